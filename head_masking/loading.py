"""Load what is there: a tagger's run, or a BART to be masked; begin a new tagger."""

import json
import os
from array import array
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from tqdm import tqdm

from shared import pretrained
from shared.run import load_weights, read_config

from .config import HEADS, LAYERS, VOCABULARY, WIDTH, TrainConfig
from .labels import Tagged
from .oracle import oracle_labels, token_labels
from .tagger import WINDOW, Tagger
from .text import Batch, Item, by_length, encode_documents, pad, train_tokenizer

if TYPE_CHECKING:  # half of the time of --help
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, RobertaModel

PUBLISHED = {"bart-large-cnn": "cnn_dailymail", "bart-large-xsum": "xsum"}  # BARTs of the hub, and their data
CHUNK = 1000  # documents that are tokenised at a time
FEW = 10_000  # documents, below which a new model seldom learns to read


class Run(NamedTuple):
    """A tagger, and what defines it."""

    config: TrainConfig
    model: Tagger
    tokenizer: "PreTrainedTokenizerBase"

    weights = "model.safetensors"  # the encoder's, too

    @property
    def seed(self) -> int:
        return self.config.seed

    def encode(self, examples: Sequence) -> list[Item]:
        """The tokens of each document with their oracle labels (Section 4.1)."""
        items = []
        for start in tqdm(range(0, len(examples), CHUNK), "tokenising", leave=False, disable=None):
            chunk = examples[start : start + CHUNK]
            documents = encode_documents(self.tokenizer, [example.source for example in chunk], self.config.max_source)
            for example, document in zip(chunk, documents, strict=True):
                spans = oracle_labels(example.source, example.target, self.config.min_run)
                labels = token_labels(spans, document.offsets)
                items.append(Item(array("i", document.ids), array("i", labels), document.was_cut))
        return items

    def collate(self, items: Sequence[Item]) -> Batch:
        """A batch on the model's device."""
        ids = pad([item.ids for item in items], self.tokenizer.pad_token_id).long()
        keep = pad([[True] * len(item.ids) for item in items], False)
        labels = pad([item.labels for item in items], 0).bool()
        return Batch(*(tensor.to(self.model.threshold.device) for tensor in (ids, labels, keep)))

    def write_files(self, folder: Path) -> None:
        """Write model/, the encoder's configuration and the tokenizer."""
        self.tokenizer.backend_tokenizer.no_truncation()  # as `encode_documents` left it
        self.tokenizer.save_pretrained(folder / "model")
        self.model.encoder.config.save_pretrained(folder / "model")

    def write_weights(self, path: Path) -> None:
        """Write the weights, what is tied once; the same ones are the same bytes."""
        from safetensors.torch import save_file

        tied = getattr(self.model, "all_tied_weights_keys", {})
        tensors = {name: tensor.contiguous() for name, tensor in self.model.state_dict().items() if name not in tied}
        save_file(tensors, str(path), {"format": "pt"})

    @torch.inference_mode()
    def tag(self, texts: Sequence[str], batch_size: int = 32) -> list[Tagged]:
        """What the tagger says of all texts; what stands beyond its `max_source` tokens has no score."""
        documents = encode_documents(self.tokenizer, texts, self.config.max_source)
        boundary, tagged = self.model.threshold, [None] * len(texts)
        rows = [document.ids for document in documents]
        for numbers, ids, keep in by_length(rows, batch_size, self.tokenizer.pad_token_id, boundary.device):
            for i, scores in zip(numbers, self.model(ids, keep).sigmoid().tolist(), strict=True):
                scores = scores[: len(rows[i])]
                tagged[i] = Tagged(scores, documents[i].offsets, round(boundary.item(), 4), documents[i].was_cut)
        return tagged


class Summarizer(NamedTuple):
    """A BART that can be masked."""

    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"
    max_source: int  # tokens that it reads
    max_target: int = 142  # tokens that it writes at most, where its files say nothing
    data: str = ""  # what it has learned; "": not known
    seed: int = 0

    def text(self, tokens: Sequence[int]) -> str:
        """What the tokens of a summary say, in one line."""
        return " ".join(self.tokenizer.decode(tokens, skip_special_tokens=True).split())


# Taggers


def load_run(folder: str | Path) -> Run:
    """Read a tagger's run, or of one in training the last checkpoint; ValueError: it is none, damaged, or has NaN."""
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    config, files = read_config(folder, TrainConfig), Path(folder, "model")
    sizes = AutoConfig.from_pretrained(files, trust_remote_code=False)
    model = AutoModel.from_config(sizes, dtype=torch.float32, trust_remote_code=False)
    model = new_tagger(config, model.get_encoder() if sizes.is_encoder_decoder else model)
    load_weights(model, folder, Run.weights)
    return Run(config, model.eval(), AutoTokenizer.from_pretrained(files, trust_remote_code=False))


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new tagger; what a new encoder's tokenizer learns from are the examples."""
    if config.encoder:
        encoder, tokenizer = pretrained.load("encoder", config.encoder, min(config.max_source, WINDOW))
    else:
        if len(examples) < FEW and not config.data.startswith("toy"):
            advice = "--preset pretrained --encoder roberta-base"
            print(f"{len(examples)} documents are few to learn from scratch; to begin with an encoder: {advice}")
        tokenizer = train_tokenizer((text for e in examples for text in (e.source, e.target)), VOCABULARY)
        encoder = new_encoder(len(tokenizer))
    return Run(config, new_tagger(config, encoder), tokenizer)


def new_tagger(config: TrainConfig, encoder: "PreTrainedModel") -> Tagger:
    """A new perceptron on an encoder."""
    encoder.pooler = None
    return Tagger(encoder, train_encoder=config.train_encoder)


def new_encoder(vocabulary: int) -> "RobertaModel":
    """A small RoBERTa with random weights."""
    from transformers import RobertaConfig, RobertaModel

    sizes = RobertaConfig(
        vocab_size=vocabulary, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH, max_position_embeddings=WINDOW + 2, type_vocab_size=1,
        initializer_range=WIDTH**-0.5,  # 0.02 is for large widths: here attention would stay flat for long
    )  # fmt: skip
    return RobertaModel(sizes, add_pooling_layer=False)


# Models to be masked


def load_model(name: str | Path) -> Run | Summarizer:
    """A tagger's run, or a summarizer: a run of experiments/summarizer.py, or any BART by its name or folder."""
    values = run_config(name)
    if values is None:
        model, tokenizer = pretrained.load("bart", name)
        data = PUBLISHED.get(name_of(name), "")
        return Summarizer(model, tokenizer, pretrained.positions_of(model), data=data)
    return load_summarizer(name, values) if "model" in values else load_run(name)


def load_summarizer(folder: str | Path, values: dict) -> Summarizer:
    """The BART of a run of experiments/summarizer.py; of one in training, the last checkpoint."""
    from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

    files = Path(folder, "model")
    if not files.is_dir():
        raise ValueError(f"{folder} has no folder model: it is not a run of this package, or not whole")
    sizes = AutoConfig.from_pretrained(files, trust_remote_code=False)
    model = AutoModelForSeq2SeqLM.from_config(sizes, dtype=torch.float32, trust_remote_code=False)
    model.generation_config = GenerationConfig.from_pretrained(files)
    load_weights(model, folder, "model/model.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(files, trust_remote_code=False)
    pretrained.check_tokenizer(f"{folder}: its tokenizer", model, tokenizer)
    known = {name: values[name] for name in ("max_source", "max_target", "data", "seed")}
    return Summarizer(model.eval(), tokenizer, **known)


def run_config(name: str | Path) -> dict | None:
    """The configuration of a run folder; None where it is none: a folder of transformers has a config.json, too."""
    path, values = Path(name, "config.json"), {}
    with suppress(ValueError):  # what is damaged is refused by transformers
        values = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return values["config"] if "package" in values else None


def name_of(name: str | Path) -> str:
    """How a model is called in tables and files: the last part of its folder's name, of "." too, or of a hub's name."""
    return Path(os.path.abspath(name)).name
