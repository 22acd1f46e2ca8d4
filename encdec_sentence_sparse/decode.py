"""From documents to summaries: what evaluate.py and predict.py share."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from .loading import Run
from .selection import Selection
from .text import Item, Items

RELEASED = dict(num_beams=4, length_penalty=2.0, no_repeat_ngram_size=3)  # A.3; released configurations
DECODING = {
    "own": {},  # the model's own generation settings
    "paper": RELEASED | dict(min_length=50, max_length=200),
    "paper-xsum": RELEASED | dict(min_length=11, max_length=62),  # D27: the lengths of facebook/bart-large-xsum
    "paper-arxiv": RELEASED | dict(min_length=56, max_length=400),
    "paper-podcast": RELEASED | dict(min_length=56, max_length=144),
}
FLAGS = {"beam": "num_beams"} | {name: name for name in DECODING["paper"] if name != "num_beams"}


class Summaries(NamedTuple):
    """A batch of documents, decoded under one selection."""

    selection: int  # its place in the selections
    documents: list[int]  # their places in the items
    texts: list[str]
    rows: Tensor  # (B, 1 + T) token ids of the best summaries


def encode_batch(run: Run, items: Sequence[Item]) -> dict:
    """Documents side by side, encoded: arguments of `generate` and `forward`."""
    source = run.collate(items).source()
    encoder = run.model.get_encoder()
    states = encoder(input_ids=source.pop("input_ids"), attention_mask=source["attention_mask"])[0]
    return source | {"encoder_outputs": BaseModelOutput(states)}


@torch.inference_mode()
def decode(
    run: Run, items: Items | Sequence[Item], selections: Sequence[Selection], batch_size: int = 32, **generation
) -> Iterator[Summaries]:
    """Decode all documents under each selection; each document is encoded once, in batches of like length.

    Args:
        generation: arguments of `generate`, in place of the model's own settings.
    """
    by_length = sorted(range(len(items)), key=lambda i: len(items[i].ids))
    for start in range(0, len(items), batch_size):
        documents = by_length[start : start + batch_size]
        source = encode_batch(run, [items[i] for i in documents])
        for place, selection in enumerate(selections):
            rows = run.model.generate(**source, selection=selection, do_sample=False, **generation)
            texts = run.tokenizer.batch_decode(rows, skip_special_tokens=True)
            yield Summaries(place, documents, [" ".join(text.split()) for text in texts], rows)


def settings(run: Run, options, decoding: str = "own") -> dict:
    """Arguments of `generate`: of DECODING, and those of FLAGS that were given, which win.

    Raises:
        ValueError: lengths that contradict each other or the model.
    """
    flags = {name: getattr(options, flag, None) for flag, name in FLAGS.items()}
    chosen = DECODING[decoding] | {name: value for name, value in flags.items() if value is not None}
    default, positions = run.model.generation_config, run.model.config.max_position_embeddings
    low, high = (chosen.get(name, getattr(default, name)) for name in ("min_length", "max_length"))
    if not max(2, low or 0) <= (high or 20) <= positions:
        raise ValueError(f"--max-length is {high}; it must be at least --min-length, {low}, and at most {positions}")
    return chosen
