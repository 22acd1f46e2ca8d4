"""From documents to summaries: labels, masks, and decoding with the masked heads; what evaluate and predict share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from typing import NamedTuple
from zlib import crc32

import torch
from torch import Tensor, nn

from .labels import Tagged, kept
from .loading import Run
from .masking import PAPER_HEADS, Heads, cross_attentions, mask_heads, uniform_heads
from .oracle import oracle_labels, token_labels, word_spans
from .text import Document, by_length, encode_document, encode_documents, pad, transfer_scores

# Which heads


class Setting(NamedTuple):
    """What is done to the cross-attention."""

    kind: str = "plain"  # "plain": nothing; "uniform": uniform weights; else the masks of `Document.masks`
    heads: Heads = {}


def write_heads(heads: Heads) -> str:
    """{3: [0, 1, 2, 5], 4: [1]} -> "3:0-2,5,4:1", the form that --heads reads; equal heads are equal text."""
    parts = []
    for layer, chosen in sorted(heads.items()):
        ordered = sorted(set(chosen))
        runs = [list(run) for _, run in groupby(ordered, key=lambda head: head - ordered.index(head))]
        texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
        parts += [f"{layer}:{','.join(texts)}"] if texts else []
    return ",".join(parts)


def read_heads(text: str) -> dict[int, list[int]]:
    """The inverse of `write_heads`; a part without a layer belongs to that before it. ValueError for other text."""
    heads: dict[int, set[int]] = {}
    layer = None
    try:
        for part in text.split(","):
            before, colon, chosen = part.rpartition(":")
            layer = int(before) if colon else layer
            first, dash, last = chosen.partition("-")
            numbers = range(int(first), min(int(last if dash else first) + 1, 10**4))
            if layer is None or not numbers:
                raise ValueError
            heads.setdefault(layer, set()).update(numbers)
    except ValueError:
        raise ValueError(f"heads {text!r}: write LAYER:HEADS, layers from 1, heads from 0, e.g. 1:0-3,2:1,3") from None
    return {layer: sorted(chosen) for layer, chosen in heads.items()}


def all_heads(model: nn.Module) -> dict[int, list[int]]:
    """Every layer of a model's decoder with all its heads."""
    cross_attentions(model, {})  # refuses a model that has none
    layers = model.get_decoder().layers
    return {number: list(range(layer.encoder_attn.num_heads)) for number, layer in enumerate(layers, start=1)}


def find_heads(text: str, run: Run) -> Heads:
    """The heads that --heads names: LAYER:HEADS, a data set of Appendix B, or "top": all heads of the top layer.

    D14: none named, they are those of Appendix B where it has them for a run's model and data, else "top".
    """
    every = all_heads(run.model)
    is_large = list(every.values()) == 12 * [list(range(16))]
    if not text:
        text = run.config.data if is_large and run.config.data in PAPER_HEADS else "top"
    top = max(every)
    heads = {top: every[top]} if text == "top" else PAPER_HEADS.get(text) or read_heads(text)
    cross_attentions(run.model, heads)  # refuses what the model has not
    return heads


# What they may see


@torch.inference_mode()
def tag(run: Run, texts: Sequence[str], batch_size: int = 16) -> list[Tagged]:
    """What a tagger says of all texts; what stands beyond its `max_source` tokens has no score."""
    documents = encode_documents(run.tokenizer, texts, run.config.max_source)
    threshold = run.model.threshold
    tagged: list = [None] * len(texts)
    rows, padding = [document.ids for document in documents], run.tokenizer.pad_token_id
    for numbers, ids, keep in by_length(rows, batch_size, padding, threshold.device):
        for i, scores in zip(numbers, run.model(ids, keep).sigmoid().tolist(), strict=True):
            boundary = round(threshold.item(), 4)
            tagged[i] = Tagged(scores[: len(rows[i])], documents[i].offsets, boundary, documents[i].was_cut)
    return tagged


def read_documents(
    run: Run,
    examples: Iterable,
    tagged: Mapping[str, Sequence[Tagged]] = {},
    oracle: bool = False,
    min_run: int = 1,
    min_keep: int = 5,
) -> list[Document]:
    """Documents as a summariser reads them, with masks by the reference and by taggers.

    Args:
        examples: with `source` and, for the oracle, `target`.
        tagged: name of a tagger -> what `tag` returned; its masks have this name.
        oracle: make the masks "oracle" from the reference, too, of runs of at least `min_run` words.
        min_keep: tokens that a masked head sees, at least.
    """
    documents = []
    for i, example in enumerate(examples):
        document, masks = encode_document(run.tokenizer, example.source, run.config.max_source), {}
        seed = checksum(example.source)  # not the number: batches of one or of many documents give the same
        if oracle:
            labels = token_labels(oracle_labels(example.source, example.target, min_run), document.offsets)
            masks["oracle"] = kept([float(label) for label in labels], 0.0, min_keep, seed)
        for name, of_all in tagged.items():
            scores, offsets, threshold, _ = of_all[i]
            scores = transfer_scores(scores, offsets, word_spans(example.source), document.offsets)
            masks[name] = kept(scores, threshold, min_keep, seed)
        documents.append(document._replace(masks=masks))
    return documents


def checksum(text: str) -> int:
    """Of a document: the seed of what is drawn at random for it."""
    return crc32(text.encode("utf-8", "surrogatepass"))


# Decoding


Batch = tuple[list[int], Tensor, Tensor]  # numbers of documents; (B, S) True at real tokens; (B, S, D) states


@torch.inference_mode()
def encode(model: nn.Module, documents: Sequence[Document], batch_size: int = 32) -> Iterator[Batch]:
    """Encode documents once for all settings, those of like length together; what the caller does not keep is freed."""
    rows = [document.ids for document in documents]
    for numbers, ids, keep in by_length(rows, batch_size, model.config.pad_token_id, model.device):
        yield numbers, keep, model.get_encoder()(input_ids=ids, attention_mask=keep.long()).last_hidden_state


def masked_as(model: nn.Module, documents: Sequence[Document], setting: Setting) -> AbstractContextManager:
    """The context in which the model decodes these documents as the setting says."""
    if setting.kind == "plain":
        return nullcontext()
    if setting.kind == "uniform":
        return uniform_heads(model, setting.heads)
    keep = pad([document.masks[setting.kind] for document in documents], False)
    return mask_heads(model, setting.heads, keep.to(model.device))


@torch.inference_mode()
def decode(
    run: Run, documents: Sequence[Document], settings: Mapping[str, Setting], batches: Iterable[Batch], **generation
) -> Iterator[tuple[str, int, list[int], str]]:
    """Summaries as they come; each batch is decoded under all settings before the next one is asked for.

    Args:
        generation: arguments of `generate`, such as num_beams; what is not given is the model's own.
    Yields:
        name of the setting; number of the document; token ids from the decoder's start token on, without padding; text.
    """
    from transformers.modeling_outputs import BaseModelOutput

    for numbers, keep, states in batches:
        for name, setting in settings.items():
            memory = BaseModelOutput(last_hidden_state=states)  # a new one, for `generate` repeats it for the beams
            with masked_as(run.model, [documents[i] for i in numbers], setting):
                rows = run.model.generate(
                    encoder_outputs=memory, attention_mask=keep.long(), do_sample=False, **generation
                ).tolist()
            for i, row in zip(numbers, rows, strict=True):
                while row[-1] == run.model.config.pad_token_id:
                    row.pop()
                yield name, i, row, " ".join(run.tokenizer.decode(row, skip_special_tokens=True).split())
