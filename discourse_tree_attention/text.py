"""From text to batches: units, their vectors by a frozen encoder (Section 3), labels, matrix."""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from .matrices import MATRICES, d_tree, normalize, sentence_matrix
from .model import TREES
from .selection import ORACLE_UNITS, is_read, oracle, required_units
from .trees import check_same_text, leaves, letters, read_dis

# Longest unit in word pieces, [CLS] and [SEP] included; longer ones are cut (released code).
MAX_TOKENS = 512


class UnitEncoder:
    """A frozen encoder of `transformers`.

    A unit's vector is its first token's last state, or the mean over all tokens (D23).
    """

    def __init__(self, model: nn.Module, tokenizer, pooling: str = "cls"):
        # D6: eval mode always; a frozen encoder without dropout gives each unit one vector.
        self.model = model.requires_grad_(False).eval()
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.width = model.config.hidden_size  # D

    @torch.inference_mode()
    def encode(self, texts: Sequence[str], batch_size: int = 128) -> np.ndarray:
        """Encode units, those of like length together: (n,) texts -> (n, D) float32."""
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        vectors = np.empty((len(texts), self.width), dtype=np.float32)
        options = {"truncation": True, "max_length": MAX_TOKENS, "return_tensors": "pt"}
        options |= {"padding": True, "padding_side": "right"}
        starts = range(0, len(texts), batch_size)
        for start in tqdm(starts, desc="unit vectors", leave=False, disable=None):
            places = order[start : start + batch_size]
            batch = self.tokenizer([texts[i] for i in places], **options).to(self.model.device)
            states = self.model(**batch).last_hidden_state  # (n, tokens, D)
            # Section 3: "the hidden state of the first token in the last BERT layer"; [CLS] unit
            # [SEP], segment ids 0.
            pooled = states[:, 0]  # (n, D)
            if self.pooling == "mean":
                # D23: the mean over the tokens, for encoders that were trained for it.
                real = batch.attention_mask[..., None]
                pooled = (states * real).sum(1) / real.sum(1)
            vectors[places] = pooled.float().cpu().numpy()
        return vectors


def random_encoder(
    texts: Sequence[str], pooling: str = "cls", width: int = 128, seed: int = 0
) -> UnitEncoder:
    """A small BERT with random weights that knows the words of `texts`, for `toy` and tests (D9).

    Its first token attends almost evenly to all words, so a vector is a random projection of the
    unit's words.
    """
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from transformers import BertConfig, BertModel, BertTokenizer

    clean, split = BertNormalizer().normalize_str, BertPreTokenizer().pre_tokenize_str
    words = Counter(word for text in texts for word, _ in split(clean(text)))
    characters = sorted({character for word in words for character in word})
    frequent = sorted(words, key=lambda word: (-words[word], word))[:4000]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *characters, *(f"##{c}" for c in characters), *frequent]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = BertTokenizer(vocab=vocabulary, split_special_tokens=True)
    # The usual 0.02 would leave the first token's own embedding nearly alone in its state.
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=2 * width, max_position_embeddings=MAX_TOKENS, initializer_range=0.2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return UnitEncoder(BertModel(config, add_pooling_layer=False), tokenizer, pooling)


# Documents


@dataclass(frozen=True, eq=False)  # arrays have no single truth value
class Document:
    """One document at EDU or sentence level; N units."""

    id: str
    units: list[str]  # (N,) texts
    sentence: np.ndarray  # (N,) index of each unit's sentence; at sentence level 0, 1, ...
    required: list[list[int]]  # (N,) units that each needs beside it; none at sentence level
    references: list[list[str]]  # the sentences of each
    matrix: np.ndarray | None = None  # (N, N) attention, for tree attention
    labels: np.ndarray | None = None  # (N,) bool, the oracle's units
    was_cut: bool = False
    vectors: np.ndarray | None = None  # (N, D)

    def __len__(self) -> int:
        return len(self.units)


def read_corpus(examples: Sequence, config, encoder: UnitEncoder) -> list[Document]:
    """The documents of a corpus with unit vectors; `config` is a `TrainConfig`."""
    examples = tqdm(examples, desc="oracles", leave=False, disable=None)
    documents = [make_document(example, config, encoder) for example in examples]
    vectors = encoder.encode([unit for document in documents for unit in document.units])
    parts = np.split(vectors, np.cumsum([len(document) for document in documents])[:-1])
    return [
        replace(document, vectors=part) for document, part in zip(documents, parts, strict=True)
    ]


def make_document(example, config, encoder: UnitEncoder) -> Document:
    """An example (`shared.data.Example`, in sentences) as a document, cut, with its oracle."""
    whole = units_of(example, config.level, config.attention)
    pieces = np.array([len(ids) for ids in encoder.tokenizer(whole.units, verbose=False).input_ids])
    most = min(len(whole), config.model_config(encoder.width).longest)
    if config.max_pieces:
        # D28: [CLS] and [SEP] of each unit count; the released code counts those of each sentence.
        most = min(most, max(1, int((pieces.cumsum() <= config.max_pieces).sum())))
    document = cut(whole, most)
    picks = ORACLE_UNITS[config.level]
    taken = oracle(document.units, " ".join(example.summary), document.required, picks)
    was_cut = most < len(whole) or bool((pieces > MAX_TOKENS).any())  # the encoder cuts a long unit
    return replace(document, labels=np.isin(np.arange(most), taken), was_cut=was_cut)


def cut(document: Document, most: int) -> Document:
    """The first `most` units of a document without labels, with what they require of each other."""
    if most == len(document):
        return document
    matrix = document.matrix
    if matrix is not None:
        # D10: the rows are normalised again; a unit whose head was cut off attends to itself.
        matrix = normalize(matrix[:most, :most])
    required = []
    for needed in document.required[:most]:
        # Ancestors end at the first one that is not there.
        required.append(list(takewhile(lambda other: other < most, needed)))
    units, sentence = document.units[:most], document.sentence[:most]
    return replace(document, units=units, sentence=sentence, required=required, matrix=matrix)


def check_words(examples: Sequence) -> None:
    """ValueError where the oracle cannot read the summaries: it knows the words of English (D7).

    It is raised from 1 % of the documents on; fewer are named.
    """
    unread = []
    for example in examples:
        if not all(is_read(" ".join(reference)) for reference in example.references):
            unread.append(example.id)
    names = ", ".join(unread[:5]) + ", ..." * (len(unread) > 5)
    said = f"{len(unread)} of {len(examples)} documents have summaries not written in a-z: {names}"
    if len(unread) > 0.01 * len(examples):
        raise ValueError(f"{said}; the oracle, which says what a model learns, reads English")
    if unread:
        print(said, file=sys.stderr)


def units_of(example, level: str, attention: str = "none") -> Document:
    """An example as a document of EDUs or sentences, whole, with the matrix of `attention`.

    ValueError: a tree is needed and there is none, or it is of another text.
    """
    name = f"{example.id}.dis"
    sentences = list(example.document)
    count = len(sentences)
    required = [[] for _ in sentences]
    whole = Document(example.id, sentences, np.arange(count), required, example.references)
    if example.tree is None:
        if attention in TREES or level == "edu":
            what = "the clauses come from it, or take --level sentence"
            if level == "sentence":
                what = f"--attention {attention} is read off it"
            command = f"python -m {__package__}.experiments.parse FILE --out TREES"
            raise ValueError(f"{example.id} has no tree {name} ({what}): make it by {command}")
        return whole
    tree = read_dis(example.tree, name)
    edus = [leaf.text or "" for leaf in leaves(tree)]
    sentence = sentence_of_edus(edus, sentences, name)
    matrix = None
    if attention in TREES:
        matrix = d_tree(tree, sentence) if attention == "d_tree" else MATRICES[attention](tree)
    if level == "edu":
        required = required_units(tree, sentence)
        return Document(example.id, edus, sentence, required, example.references, matrix)
    if matrix is not None:
        matrix = sentence_matrix(matrix, sentence, count)
    return replace(whole, matrix=matrix)


def sentence_of_edus(edus: Sequence[str], sentences: Sequence[str], where: str) -> np.ndarray:
    """(N,) index of the sentence in which each EDU begins, found by its letters, blanks apart.

    ValueError: the texts are not the same, or an EDU has none; names `where` and the first place
    that differs.
    """
    check_same_text(edus, sentences, where)
    lengths = np.array([len(letters(edu)) for edu in edus])
    if not lengths.all():
        raise ValueError(f"{where}: EDU {lengths.argmin() + 1} has no words")
    ends = np.cumsum([len(letters(sentence)) for sentence in sentences])
    return np.searchsorted(ends, lengths.cumsum() - lengths, side="right")


def positive_weight(documents: Sequence[Document]) -> float:
    """Units left out for each one that the summaries take: the weight of these in the loss.

    ValueError: the oracles take no unit, or all: there is nothing to learn.
    """
    labels = np.concatenate([document.labels for document in documents])
    if labels.all() or not labels.any():
        raise ValueError(
            f"the summaries take {labels.sum()} of all {len(labels)} units of the training "
            f"documents: there is nothing to learn; give longer documents, or use --level edu"
        )
    # D12: of all units of the trained level.
    return float((~labels).sum() / labels.sum())


# Batches


class Batch(NamedTuple):
    """What the model and its loss read of some documents, padded with zeros."""

    units: Tensor  # (B, N, D)
    keep: Tensor  # (B, N)
    labels: Tensor  # (B, N)
    matrix: Tensor | None  # (B, N, N)


def collate(documents: Sequence[Document], device: str | torch.device = "cpu") -> Batch:
    """A batch of some documents."""
    vectors = [torch.from_numpy(np.array(document.vectors)) for document in documents]
    units = pad_sequence(vectors, batch_first=True)
    labels = [torch.from_numpy(document.labels) for document in documents]
    labels = pad_sequence(labels, batch_first=True)
    lengths = torch.tensor([len(document) for document in documents])
    most = labels.size(1)
    keep = torch.arange(most) < lengths[:, None]
    matrix = None
    if documents[0].matrix is not None:
        matrices = [torch.from_numpy(document.matrix) for document in documents]
        matrix = torch.stack([pad(each, 2 * (0, most - len(each))) for each in matrices]).to(device)
    return Batch(units.to(device), keep.to(device), labels.to(device), matrix)
