"""Decode under many settings of masked heads: which heads select content, and which to mask (Sections 4.1, 4.2, 5).

A `Decoder` encodes each document once, whatever the number of settings. A `Sweep` keeps the scores of every setting in
a file, line by line, and never decodes a setting twice, also when it was killed and started again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from .masking import Heads, cross_attentions, mask_heads, uniform_heads

Scores = dict[str, np.ndarray]  # metric -> (n,) a value per document, or a difference of two


class Setting(NamedTuple):
    """What is done to the cross-attention."""

    kind: str  # "plain": nothing; "uniform": uniform weights; else the labels to mask by: "oracle", "system", ...
    heads: str = ""  # as `write_heads` writes them, so that equal heads are equal text


def write_heads(heads: Heads) -> str:
    """{3: [0, 1, 2, 5], 4: [1]} -> "3:0-2,5,4:1", the form that --heads reads."""
    parts = []
    for layer, chosen in sorted(heads.items()):
        runs: list[list[int]] = []
        for head in sorted(set(chosen)):
            if runs and runs[-1][1] == head - 1:
                runs[-1][1] = head
            else:
                runs.append([head, head])
        texts = [f"{first}-{last}" if last > first else f"{first}" for first, last in runs]
        parts += [f"{layer}:{text}" if n == 0 else text for n, text in enumerate(texts)]
    return ",".join(parts)


def read_heads(text: str) -> dict[int, list[int]]:
    """The inverse of `write_heads`: a part without a layer belongs to the layer before it.

    Raises:
        ValueError: text of another form.
    """
    heads: dict[int, list[int]] = {}
    layer = None
    try:
        for part in text.split(","):
            before, colon, chosen = part.rpartition(":")
            layer = int(before) if colon else layer
            first, dash, last = chosen.partition("-")
            found = range(int(first), int(last if dash else first) + 1)
            if layer is None or not found:
                raise ValueError
            heads.setdefault(layer, []).extend(found)
    except ValueError:
        raise ValueError(f"heads {text!r}: write LAYER:HEADS, layers from 1, heads from 0, e.g. 1:0-3,2:1,3") from None
    return {layer: sorted(set(chosen)) for layer, chosen in heads.items()}


def all_heads(model: nn.Module) -> dict[int, list[int]]:
    """Every layer of a model's decoder with all its heads."""
    cross_attentions(model, {})  # refuses a model that has none
    layers = model.get_decoder().layers
    return {number: list(range(layer.encoder_attn.num_heads)) for number, layer in enumerate(layers, start=1)}


# Decoding


class Document(NamedTuple):
    """A document as the model reads it."""

    ids: Sequence[int]  # (S,) tokens, special ones included
    keep: Mapping[str, Sequence[bool]] = {}  # kind of labels -> (S,) True = masked heads may attend to this token


class Batch(NamedTuple):
    numbers: list[int]  # which documents
    is_real: Tensor  # (B, S) long, 0 at padding
    states: Tensor  # (B, S, D) what the encoder made of them


class Decoder:
    """A model and documents, encoded once and for all; their states stay on the model's device."""

    @torch.inference_mode()
    def __init__(
        self,
        model: nn.Module,
        documents: Sequence[Document],
        batch_size: int = 32,
        **generation,
    ):
        """Encode, in batches of like length.

        Args:
            generation: arguments of `generate`, such as num_beams and max_length.
        """
        self.model, self.documents, self.generation = model, documents, generation
        self.batches = []
        by_length = sorted(range(len(documents)), key=lambda i: len(documents[i].ids))
        for start in range(0, len(documents), batch_size):
            numbers = by_length[start : start + batch_size]
            ids = self.pad([documents[i].ids for i in numbers], model.config.pad_token_id)
            is_real = self.pad([[1] * len(documents[i].ids) for i in numbers], 0)
            states = model.get_encoder()(input_ids=ids, attention_mask=is_real).last_hidden_state
            self.batches.append(Batch(numbers, is_real, states))

    def pad(self, rows: Sequence[Sequence[int]], value: int) -> Tensor:
        """(B, longest), padded on the right, on the model's device."""
        width = max(map(len, rows))
        return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows], device=self.model.device)

    def changed(self, setting: Setting, numbers: Sequence[int]) -> AbstractContextManager:
        """The context in which the model decodes these documents as the setting says."""
        if setting.kind == "plain":
            return nullcontext()
        heads = read_heads(setting.heads)
        if setting.kind == "uniform":
            return uniform_heads(self.model, heads)
        rows = [self.documents[i].keep[setting.kind] for i in numbers]
        return mask_heads(self.model, heads, self.pad(rows, False))

    @torch.inference_mode()
    def decode(self, setting: Setting) -> list[list[int]]:
        """Token ids of every document's summary, from the decoder's start token on, without padding."""
        summaries: list[list[int]] = [[]] * len(self.documents)
        for batch in self.batches:
            # A new object each time: `generate` repeats what is in it for every beam.
            memory = BaseModelOutput(last_hidden_state=batch.states)
            with self.changed(setting, batch.numbers):
                rows = self.model.generate(
                    encoder_outputs=memory, attention_mask=batch.is_real, do_sample=False, **self.generation
                )
            for i, row in zip(batch.numbers, rows.tolist(), strict=True):
                while row[-1] == self.model.config.pad_token_id:
                    row.pop()
                summaries[i] = row
        return summaries


# The file of results


def digest(*values: object) -> str:
    """A short name of what the values hold: tensors, modules (their weights), and what JSON can write."""
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, nn.Module):
            for name, tensor in value.state_dict().items():
                found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        else:
            found.update(json.dumps(value, sort_keys=True).encode())
    return found.hexdigest()[:16]


class Sweep:
    """Scores by setting, from a file if it holds them, else by decoding."""

    def __init__(
        self,
        path: str | os.PathLike,
        decode: Callable[[Setting], list[str]],
        score: Callable[[list[str]], Scores],
        what: Mapping[str, object],
        labels: Mapping[str, object] | None = None,
        progress: bool = False,
    ):
        """Read what the file has. Its last line, if half-written, is dropped.

        Args:
            decode: setting -> a text per document.
            score: those texts -> values per document.
            what: all that a result depends on beside the setting and its labels: model, data, number, flags, digests.
            labels: for each kind of labels where they come from; settings of other kinds do not depend on it.
        Raises:
            ValueError: names the line that is not one of ours.
        """
        self.path, self.decode, self.score, self.progress = Path(path), decode, score, progress
        self.what, self.labels, self.known = dict(what), dict(labels or {}), {}
        self.read()

    def key(self, setting: Setting) -> str:
        """Names the setting together with all that its result depends on."""
        return digest(self.what, self.labels.get(setting.kind), setting)

    def read(self) -> None:
        """Take up the lines of the file and cut off one that was not finished."""
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):  # killed while writing
            with self.path.open("r+b") as file:
                file.truncate(sum(map(len, lines[:-1])))
            lines.pop()
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
                self.known[row["key"]] = {metric: np.array(values) for metric, values in row["scores"].items()}
            except (ValueError, KeyError, TypeError, AttributeError):
                raise ValueError(
                    f"{self.path}:{number} is not a line of a sweep: remove the line or the file"
                ) from None

    def write(self, setting: Setting, scores: Scores) -> None:
        """Append a line, and know what a later start will read from it."""
        values = {metric: np.round(values, 4) for metric, values in scores.items()}
        self.known[self.key(setting)] = values
        row = {"key": self.key(setting), "kind": setting.kind, "heads": setting.heads}
        row["scores"] = {metric: each.tolist() for metric, each in values.items()}
        row["of"] = self.what | ({"labels": self.labels[setting.kind]} if setting.kind in self.labels else {})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def run(self, settings: Iterable[Setting], title: str = "") -> list[Scores]:
        """Scores of the settings, in their order; what the file does not hold yet is decoded and written to it."""
        from tqdm import tqdm

        settings = list(settings)
        missing = [setting for setting in dict.fromkeys(settings) if self.key(setting) not in self.known]
        done = len(set(settings)) - len(missing)
        total = done + len(missing)
        quiet = not (self.progress and missing)
        for setting in tqdm(missing, title, total=total, initial=done, unit="setting", disable=quiet):
            self.write(setting, self.score(self.decode(setting)))
        return [self.known[self.key(setting)] for setting in settings]


# What the paper makes of it


def gains(sweep: Sweep, sets_of_heads: Sequence[Heads], title: str = "") -> list[Scores]:
    """r_ora - r_uni for every set of heads and every document: oracle masks, uniform weights on the same heads."""
    texts = [write_heads(heads) for heads in sets_of_heads]
    scores = sweep.run([Setting(kind, text) for text in texts for kind in ("oracle", "uniform")], title)
    pairs = zip(scores[::2], scores[1::2], strict=True)
    return [{metric: oracle[metric] - uniform[metric] for metric in oracle} for oracle, uniform in pairs]


def content_selection_effects(sweep: Sweep, heads: Heads) -> dict[tuple[int, int], Scores]:
    """The content selection effect of each head by itself (Section 4.1; Figures 2 and 6).

    Args:
        heads: which to try, `all_heads(model)` as a rule.
    Returns:
        (layer, head) -> r_ora - r_uni of every document; the effect is its mean.
    """
    pairs = [(layer, head) for layer, chosen in heads.items() for head in chosen]
    found = gains(sweep, [{layer: [head]} for layer, head in pairs], "effects of single heads")
    return dict(zip(pairs, found, strict=True))


def ranked(effects: Mapping[tuple[int, int], Scores], layer: int, metric: str = "rouge1") -> list[int]:
    """The heads of a layer, that of the largest effect first, of equal ones the lower."""
    means = {head: values[metric].mean() for (of_layer, head), values in effects.items() if of_layer == layer}
    return sorted(means, key=lambda head: (-means[head], head))


class Step(NamedTuple):
    """A layer's best heads masked together."""

    layer: int
    heads: tuple[int, ...]  # in the order in which they were added
    gain: Scores  # r_ora - r_uni of all of them together
    last_gain: float  # mean individual effect of the head added last


def synergy(sweep: Sweep, effects: Mapping[tuple[int, int], Scores], metric: str = "rouge1") -> list[Step]:
    """Heads added one by one in the order of their individual effect, layer by layer (Section 4.2; Figures 3, 7)."""
    chosen = []
    for layer in sorted({layer for layer, _ in effects}):
        order = ranked(effects, layer, metric)
        chosen += [(layer, tuple(order[:count])) for count in range(1, len(order) + 1)]
    found = gains(sweep, [{layer: heads} for layer, heads in chosen], "heads together")
    last = [float(effects[layer, heads[-1]][metric].mean()) for layer, heads in chosen]
    return [Step(*which, gain, mean) for which, gain, mean in zip(chosen, found, last, strict=True)]


def sum_of_parts(effects: Mapping[tuple[int, int], Scores], layer: int) -> Scores:
    """The sum of the individual effects of a layer's heads, for every document (right side of Figures 3 and 7)."""
    parts = [values for (of_layer, _), values in effects.items() if of_layer == layer]
    return {metric: sum(part[metric] for part in parts) for metric in parts[0]}


def select_heads(
    sweep: Sweep, effects: Mapping[tuple[int, int], Scores], labels: str = "system", group: int = 4
) -> tuple[dict[int, list[int]], list[tuple[str, Scores]]]:
    """Greedy head selection of Section 5: at every layer mask the 4, 8, 12, ... heads of the largest effect.

    D11: layer by layer, and without the model as it is among the candidates.

    Args:
        labels: kind of labels to mask by.
        group: how many heads are added at a time; 4 in the paper.
    Returns:
        the heads with the largest ROUGE-1 + ROUGE-2 F1, of equal sets the one tried first (bottom layer, fewest
        heads); and all that was tried, with scores.
    """
    candidates = []
    for layer in sorted({layer for layer, _ in effects}):
        order = ranked(effects, layer)
        counts = [*range(group, len(order), group), len(order)]
        candidates += [write_heads({layer: order[:count]}) for count in counts]
    tried = list(
        zip(candidates, sweep.run([Setting(labels, text) for text in candidates], "choice of heads"), strict=True)
    )
    best = max(tried, key=lambda pair: pair[1]["rouge1"].mean() + pair[1]["rouge2"].mean())
    return read_heads(best[0]), tried
