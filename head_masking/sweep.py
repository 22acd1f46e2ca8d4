"""Decode under many settings of masked heads: which heads select content, and which to mask (Sections 4.1, 4.2, 5).

A `Sweep` keeps the scores of every setting in a file, line by line, and never decodes a setting twice, also when it was
killed and started again.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from .masking import PAPER_HEADS, Heads, cross_attentions, mask_heads, uniform_heads

Scores = dict[str, np.ndarray]  # metric -> (n,) a value per document, or a difference of two


class Setting(NamedTuple):
    """What is done to the cross-attention."""

    kind: str  # "plain": nothing; "uniform": uniform weights; else the labels to mask by: "oracle", "system:NAME"
    heads: str = ""  # as `write_heads` writes them, so that equal heads are equal text


def write_heads(heads: Heads) -> str:
    """{3: [0, 1, 2, 5], 4: [1]} -> "3:0-2,5,4:1", the form that --heads reads."""
    parts = []
    for layer, chosen in sorted(heads.items()):
        ordered = sorted(set(chosen))
        runs = [list(run) for _, run in groupby(ordered, key=lambda head: head - ordered.index(head))]
        texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
        parts += [f"{layer}:{','.join(texts)}"] if texts else []
    return ",".join(parts)


def read_heads(text: str) -> dict[int, list[int]]:
    """The inverse of `write_heads`: a part without a layer belongs to the layer before it.

    Raises:
        ValueError: text of another form.
    """
    heads: dict[int, set[int]] = {}
    layer = None
    try:
        for part in text.split(","):
            before, colon, chosen = part.rpartition(":")
            layer = int(before) if colon else layer
            first, dash, last = chosen.partition("-")
            numbers = range(int(first), int(last if dash else first) + 1)
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


def find_heads(text: str, model: nn.Module) -> str:
    """--heads as a Setting has it: LAYER:HEADS, a data set of Appendix B, or "top": all heads of the top layer.

    Raises:
        ValueError: text of another form, heads that the model does not have.
    """
    every = all_heads(model)
    heads = {max(every): every[max(every)]} if text == "top" else PAPER_HEADS.get(text) or read_heads(text)
    cross_attentions(model, heads)
    return write_heads(heads)


# Decoding


class Document(NamedTuple):
    """A document as the model reads it."""

    ids: Sequence[int]  # (S,) tokens, special ones included
    keep: Mapping[str, Sequence[bool]] = {}  # kind of labels -> (S,) True = masked heads may attend to this token


class Encoded(NamedTuple):
    """A batch of documents of like length."""

    numbers: list[int]  # which documents
    keep: Tensor  # (B, S) True at real tokens
    states: Tensor  # (B, S, D) what the encoder made of them


@torch.inference_mode()
def encode(model: nn.Module, documents: Sequence[Document], batch_size: int = 32) -> Iterator[Encoded]:
    """Encode documents once for all settings; what is not kept by the caller is freed."""
    by_length = sorted(range(len(documents)), key=lambda i: len(documents[i].ids))
    for start in range(0, len(documents), batch_size):
        numbers = by_length[start : start + batch_size]
        ids = pad([documents[i].ids for i in numbers], model.config.pad_token_id, model.device)
        is_real = pad([[1] * len(documents[i].ids) for i in numbers], 0, model.device)
        yield Encoded(
            numbers, is_real.bool(), model.get_encoder()(input_ids=ids, attention_mask=is_real).last_hidden_state
        )


def pad(rows: Sequence[Sequence[int]], value: int, device: torch.device) -> Tensor:
    """(B, longest), padded on the right."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows], device=device)


def masked_as(
    model: nn.Module, documents: Sequence[Document], setting: Setting, numbers: Sequence[int]
) -> AbstractContextManager:
    """The context in which the model decodes these documents as the setting says."""
    if setting.kind == "plain" or not setting.heads:
        return nullcontext()
    heads = read_heads(setting.heads)
    if setting.kind == "uniform":
        return uniform_heads(model, heads)
    return mask_heads(model, heads, pad([documents[i].keep[setting.kind] for i in numbers], False, model.device))


@torch.inference_mode()
def decode(
    model: nn.Module, documents: Sequence[Document], batch: Encoded, setting: Setting, **generation
) -> list[list[int]]:
    """Token ids of each summary of a batch, from the decoder's start token on, without padding.

    Args:
        generation: arguments of `generate`, such as num_beams; what is not given is the model's own.
    """
    memory = BaseModelOutput(last_hidden_state=batch.states)  # a new one each time: `generate` repeats it for the beams
    with masked_as(model, documents, setting, batch.numbers):
        rows = model.generate(
            encoder_outputs=memory, attention_mask=batch.keep.long(), do_sample=False, **generation
        ).tolist()
    for row in rows:
        while row[-1] == model.config.pad_token_id:
            row.pop()
    return rows


# The file of results


class Sweep:
    """Scores by setting, from a file if it holds them, else by decoding."""

    def __init__(
        self,
        path: Path,
        decode: Callable[[Setting], list[str]],
        score: Callable[[list[str]], Scores],
        depends: Mapping[str, int] = {},
    ):
        """Read what the file has; a last line that is half-written is dropped.

        Args:
            decode: setting -> a text per document.
            score: those texts -> values per document.
            depends: kind of setting -> a checksum of all that its results depend on; lines of another one do not count.
        Raises:
            ValueError: names the line that is not one of ours.
        """
        self.path, self.decode, self.score, self.depends, self.known = path, decode, score, depends, {}
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):
            path.write_text("".join(lines[:-1]), encoding="utf-8")
        for number, line in enumerate(filter(lambda line: line.endswith("\n"), lines), start=1):
            try:
                row = json.loads(line)
                if row["depends"] == depends.get(row["kind"], 0):
                    scores = {metric: np.array(values, dtype=float) for metric, values in row["scores"].items()}
                    self.known[Setting(row["kind"], row["heads"])] = scores
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(f"{path}:{number} is not a line of a sweep: remove the line or the file") from None

    def run(self, settings: Iterable[Setting], title: str = "") -> list[Scores]:
        """Scores of the settings, in their order; what the file does not hold yet is decoded and written to it."""
        from tqdm import tqdm

        settings = list(settings)
        missing = [setting for setting in dict.fromkeys(settings) if setting not in self.known]
        for setting in tqdm(missing, title, unit="setting", disable=not missing):
            scores = self.known[setting] = self.score(self.decode(setting))
            row = setting._asdict() | {"depends": self.depends.get(setting.kind, 0)}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                print(json.dumps(row | {"scores": {m: values.tolist() for m, values in scores.items()}}), file=file)
        return [self.known[setting] for setting in settings]


# What the paper makes of it


def gains(sweep: Sweep, sets_of_heads: Sequence[Heads], title: str = "") -> list[Scores]:
    """r_ora - r_uni for every set of heads and every document: oracle masks, uniform weights on the same heads."""
    texts = [write_heads(heads) for heads in sets_of_heads]
    scores = sweep.run([Setting(kind, text) for text in texts for kind in ("oracle", "uniform")], title)
    pairs = zip(scores[::2], scores[1::2], strict=True)
    return [{metric: oracle[metric] - uniform[metric] for metric in oracle} for oracle, uniform in pairs]


Effects = Mapping[tuple[int, int], Scores]  # (layer, head) -> r_ora - r_uni of every document


def content_selection_effects(sweep: Sweep, heads: Heads) -> Effects:
    """The content selection effect of each head by itself (Section 4.1; Figures 2 and 6): the mean of r_ora - r_uni."""
    pairs = [(layer, head) for layer, chosen in heads.items() for head in chosen]
    of_heads = gains(sweep, [{layer: [head]} for layer, head in pairs], "effects of single heads")
    return dict(zip(pairs, of_heads, strict=True))


def ranked(effects: Effects, layer: int, metric: str = "rouge1") -> list[int]:
    """The heads of a layer, that of the largest effect first, of equal ones the lower."""
    means = {head: values[metric].mean() for (of_layer, head), values in effects.items() if of_layer == layer}
    return sorted(means, key=lambda head: (-means[head], head))


class Step(NamedTuple):
    """A layer's best heads masked together."""

    layer: int
    heads: tuple[int, ...]  # in the order in which they were added
    gain: Scores  # r_ora - r_uni of all of them together
    last_gain: float  # mean individual effect of the head added last


def synergy(sweep: Sweep, effects: Effects, metric: str = "rouge1") -> list[Step]:
    """Heads added one by one in the order of their individual effect, layer by layer (Section 4.2; Figures 3, 7)."""
    chosen = []
    for layer in sorted({layer for layer, _ in effects}):
        order = ranked(effects, layer, metric)
        chosen += [(layer, tuple(order[:count])) for count in range(1, len(order) + 1)]
    of_sets = gains(sweep, [{layer: heads} for layer, heads in chosen], "heads together")
    last = [float(effects[layer, heads[-1]][metric].mean()) for layer, heads in chosen]
    return [Step(*heads, gain, mean) for heads, gain, mean in zip(chosen, of_sets, last, strict=True)]


def sum_of_parts(effects: Effects, layer: int) -> Scores:
    """The sum of the individual effects of a layer's heads, for every document (right side of Figures 3 and 7)."""
    parts = [values for (of_layer, _), values in effects.items() if of_layer == layer]
    return {metric: sum(part[metric] for part in parts) for metric in parts[0]}


def select_heads(
    sweep: Sweep, effects: Effects, labels: str = "system", group: int = 4
) -> tuple[str, dict[str, Scores]]:
    """Greedy head selection of Section 5: at every layer mask the 4, 8, 12, ... heads of the largest effect.

    D11: layer by layer, and without the model as it is among the candidates.

    Args:
        labels: kind of labels to mask by.
        group: how many heads are added at a time; 4 in the paper.
    Returns:
        the heads with the largest ROUGE-1 + ROUGE-2 F1, of equal sets the one tried first (bottom layer, fewest
        heads); and the scores of all that was tried.
    """
    candidates = []
    for layer in sorted({layer for layer, _ in effects}):
        order = ranked(effects, layer)
        counts = [*range(group, len(order), group), len(order)]
        candidates += [write_heads({layer: order[:count]}) for count in counts]
    scores = sweep.run([Setting(labels, text) for text in candidates], "choice of heads")
    tried = dict(zip(candidates, scores, strict=True))
    return max(tried, key=lambda text: tried[text]["rouge1"].mean() + tried[text]["rouge2"].mean()), tried
