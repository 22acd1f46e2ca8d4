"""The paper's figures, one function each: a PNG and, beside it, a CSV of the numbers that it shows.

python -m l0drop.figures runs/l0 --out figures                                           # Figures 2, 3, 7, 8
python -m l0drop.figures runs/l0-* --baseline runs/base --metrics metrics.json --out figures     # all but Figure 6

Figures 4, 5 and 8 show all RUNs, the lambda sweep; Figures 2, 6 and 7 show the first. A "source word" is what L0Drop
gates: a subword or character, or the final </s> (D12).
"""

import argparse
import csv
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from shared.data import load

from .evaluate import Output, decode
from .gates import BETA, EPSILON, open_probability, stretched_density
from .model import EOS, Attention
from .patterns import UNIT_TYPES
from .text import Item, collate, encode_examples
from .train import Run, load_run

THRESHOLD = 0.6  # captions of Figures 1 and 7: the share of source words that get less than this
BIN_EDGES = np.append(np.arange(51) / 10, np.inf)  # of Figures 1 and 7; the last bin is open
PLACES = 5  # equal parts of a word in Figure 6
LONGEST_SHOWN = 20  # source tokens of the sentence that Figure 2 shows, if there is one so short


class Material(NamedTuple):
    """What there is to draw from."""

    runs: dict[str, Run]  # L0Drop runs by folder name
    items: list[Item]  # the same sources for all runs
    out: Path
    baseline: tuple[str, Run] | None = None  # name and run
    sparse: tuple[str, Run] | None = None  # a run with --cross-attention entmax
    metrics: dict | None = None  # what evaluate --json wrote

    @property
    def first(self) -> tuple[str, Run]:
        return next(iter(self.runs.items()))


class Missing(Exception):
    """A figure cannot be drawn; the message says what it needs."""


# Measures


@contextmanager
def reading(attentions: Sequence[Attention]) -> Iterator[None]:
    """Make attention layers keep their weights, only as long as this lasts."""
    for attention in attentions:
        attention.keep_weights = True
    try:
        yield
    finally:
        for attention in attentions:
            attention.keep_weights, attention.weights = False, None


@torch.inference_mode()
def attention_maps(run: Run, items: Sequence[Item], outputs: Sequence[Output], size: int = 16) -> Iterator[Tensor]:
    """Cross-attention, mean over heads and layers, while the model reads its own output (Figures 1, 2, 7).

    Pruned words share the dummy's weight equally here, which is attention over Eq. (11)'s zeros (Algorithm 1).

    Args:
        items, outputs: what `evaluate.decode` was given and what it returned.
        size: sources per batch.
    Yields:
        (T, S) per item, every row sums to 1; T and S count </s>.
    """
    read = [item._replace(target=[*output.tokens, EOS]) for item, output in zip(items, outputs, strict=True)]
    layers = [layer.cross_attention for layer in run.model.decoder]
    for start in range(0, len(read), size):
        chosen = read[start : start + size]
        batch = collate(chosen, run.model.embedding.weight.device)
        with reading(layers):
            run.model(batch.source, batch.target_input)
            maps = torch.stack([layer.weights.mean(1) for layer in layers]).mean(0).cpu()  # (B, T, S)
        for row, item in enumerate(chosen):
            yield maps[row, : len(item.target), : len(item.source)]


class Attended(NamedTuple):
    """Attention that source words receive in Figures 1 and 7, summed over the words of the output."""

    retained: np.ndarray  # one sum per retained source word of the corpus
    on_pruned: float  # share of all attention that the pruned ones (the dummy) receive, in [0, 1]


def summed_attention(maps: Iterable[Tensor], pruned: Iterable[Sequence[bool]]) -> Attended:
    """Sum (T, S) attention maps over target words; D12: pruned words are left out of the distribution.

    Args:
        pruned: (S,) per map, True where the word's encoding is pruned.
    """
    sums = [attention.sum(0).numpy() for attention in maps]
    is_pruned = np.concatenate([np.asarray(row, dtype=bool) for row in pruned])
    totals = np.concatenate(sums)
    return Attended(totals[~is_pruned], float(totals[is_pruned].sum() / totals.sum()))


def entropy(weights: Tensor) -> Tensor:
    """Entropy in nats of distributions along the last dimension: (..., S) -> (...); 0 log 0 = 0."""
    return -torch.special.xlogy(weights, weights).sum(-1)


class Encoded(NamedTuple):
    """Every source word of the corpus in order, one list entry per item."""

    pruned: list[np.ndarray]  # (S,) True where the (last) gate is closed; all False for a baseline
    entropy: list[np.ndarray]  # (S,) nats, of what the word attends to in the last encoder layer


@torch.inference_mode()
def encode_all(run: Run, items: Sequence[Item], size: int = 16) -> Encoded:
    """Gates, and the entropy of the last encoder layer's self-attention averaged over heads (Section 6, Figure 8)."""
    attention, encoded = run.model.encoder[-1].attention, Encoded([], [])
    for start in range(0, len(items), size):
        chosen = items[start : start + size]
        batch = collate(chosen, run.model.embedding.weight.device)
        with reading([attention]):
            encoding = run.model.encode(batch.source)
            entropies = entropy(attention.weights.float().mean(1)).cpu().numpy()  # (B, S)
        closed = (encoding.gates[-1] == 0 if encoding.gates else ~encoding.keep).cpu().numpy()
        for row, item in enumerate(chosen):
            encoded.pruned.append(closed[row, : len(item.source)])
            encoded.entropy.append(entropies[row, : len(item.source)])
    return encoded


def word_positions(characters: Sequence[str], words: Sequence[int]) -> list[float | None]:
    """Relative place of every character in its word (Figure 6): 0 the first, 1 the last.

    Args:
        characters: the source's tokens without </s>, "▁" the space symbol.
        words: index of the word that each belongs to.
    Returns:
        None for the space symbol and for the only character of a word, which is both first and last.
    """
    members = {word: [] for word in words}
    for index, (character, word) in enumerate(zip(characters, words, strict=True)):
        if character != "▁":
            members[word].append(index)
    positions: list[float | None] = [None] * len(characters)
    for indices in members.values():
        for rank, index in enumerate(indices if len(indices) > 1 else []):
            positions[index] = rank / (len(indices) - 1)
    return positions


def sweep(material: Material) -> list[dict]:
    """lambda and the metrics of the baseline (lambda empty) and of every run, by rising sparsity (Figures 4, 5)."""
    if material.metrics is None:
        raise Missing("needs --metrics FILE, which l0drop.evaluate --json writes")
    weights = {name: run.config.l0_weight for name, run in material.runs.items()}
    if material.baseline:
        weights = {material.baseline[0]: None} | weights
    systems = material.metrics["systems"]
    if absent := [name for name in weights if name not in systems]:
        raise ValueError(f"the metrics have no system {', '.join(absent)}, only {', '.join(systems)}: evaluate it too")
    rows = [{"run": name, "lambda": weight} | systems[name] for name, weight in weights.items()]
    return sorted(rows, key=lambda row: row["sparsity"])


# Figures


def save(material: Material, name: str, figure: Figure, rows: Sequence[dict]) -> str:
    """Write NAME.png and NAME.csv, four digits a number; returns the PNG's path."""
    material.out.mkdir(parents=True, exist_ok=True)
    figure.savefig(material.out / f"{name}.png", dpi=150)
    with (material.out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    return str(material.out / f"{name}.png")


def attention_histogram(material: Material, number: int, name: str, run: Run) -> str:
    """Figures 1 and 7: histogram, mean and share below THRESHOLD of the summed attention per source word."""
    outputs = decode(run, material.items, progress=True)
    pruned = [output.pruned[-1] for output in outputs]
    sums, on_pruned = summed_attention(attention_maps(run, material.items, outputs), pruned)
    if not len(sums):
        raise Missing(f"needs a run that keeps some source word; {name} prunes all")
    counts, _ = np.histogram(sums, BIN_EDGES)
    mean, below = float(sums.mean()), float((sums < THRESHOLD).mean())
    summary = {"mean": mean, "share_below_0.6": below, "share_on_pruned": on_pruned}
    bins = zip(BIN_EDGES[:-1].tolist(), BIN_EDGES[1:].tolist(), counts.tolist(), strict=True)
    rows = [{"from": low, "to": high, "words": count} | summary for low, high, count in bins]

    figure = Figure((6, 4), layout="constrained")
    axes = figure.subplots()
    axes.bar(BIN_EDGES[:-1], 100 * counts / len(sums), width=0.1, align="edge", edgecolor="white", linewidth=0.5)
    axes.axvline(THRESHOLD, color="gray", linestyle=":", label=f"{THRESHOLD}: {100 * below:.1f} % are below")
    axes.axvline(mean, color="tab:orange", label=f"mean {mean:.2f}")
    shown = np.searchsorted(counts.cumsum(), 0.995 * len(sums)) + 1  # bins that hold nearly all words
    axes.set_xlim(0, max(1.0, min(shown, 51) / 10))
    what = "retained source word" if number == 7 else "source word"
    axes.set(xlabel=f"attention summed over target words, per {what}", ylabel=f"{what}s, %")
    axes.set_title(f"Figure {number}: summed attention per {what}, {name}", fontsize=11)
    axes.legend()
    return save(material, f"figure_{number}", figure, rows)


def figure_1(material: Material) -> str:
    """Figure 1: distribution of the summed attention per source word, baseline."""
    if not material.baseline:
        raise Missing("needs --baseline RUN")
    return attention_histogram(material, 1, *material.baseline)


def figure_2(material: Material) -> str:
    """Figure 2: attention of one sentence's output to its source; words that the first RUN prunes in red, at 0."""
    encoded = encode_all(material.first[1], material.items)
    chosen = choose_sentence(material.items, encoded.pruned)
    item, pruned = material.items[chosen], encoded.pruned[chosen]
    panels, rows = {}, []
    systems = {"vanilla": material.baseline, "sparse (entmax)": material.sparse, "L0Drop": material.first}
    for title, (name, run) in ((title, system) for title, system in systems.items() if system):
        outputs = decode(run, [item])
        [attention] = attention_maps(run, [item], outputs)
        if run.model.l0drop:
            attention = attention.masked_fill(torch.from_numpy(pruned), 0)  # what is missing to 1 is the dummy's
        source, target = ([run.tokenizer.id_to_token(i) for i in ids] for ids in (item.source, outputs[0].tokens))
        target.append("</s>")
        panels[f"{title}: {name}"] = (attention.numpy(), source, target)
        for (t, s), weight in np.ndenumerate(attention.numpy()):
            pair = {"target_position": t, "target": target[t], "source_position": s, "source": source[s]}
            rows.append({"run": name} | pair | {"pruned": int(pruned[s]), "weight": float(weight)})
    return save(material, "figure_2", draw_maps(panels, pruned), rows)


def choose_sentence(items: Sequence[Item], pruned: Sequence[np.ndarray]) -> int:
    """First source of at most LONGEST_SHOWN tokens of which something is pruned, else the shortest source."""
    short = (i for i, item in enumerate(items) if len(item.source) <= LONGEST_SHOWN and pruned[i].any())
    return next(short, min(range(len(items)), key=lambda i: len(items[i].source)))


def draw_maps(panels: dict[str, tuple[np.ndarray, list[str], list[str]]], pruned: np.ndarray) -> Figure:
    """Panels title -> attention (T, S), source and target words; side by side, or stacked where the source is long."""
    width, height = 0.16 * len(pruned) + 2, 0.16 * max(len(target) for _, _, target in panels.values()) + 1.6
    stacked = len(pruned) > 2 * LONGEST_SHOWN
    shape = (len(panels), 1) if stacked else (1, len(panels))
    figure = Figure((width * shape[1], height * shape[0]), layout="constrained")
    for axes, (title, (attention, source, target)) in zip(
        figure.subplots(*shape, squeeze=False).flat, panels.items(), strict=True
    ):
        axes.imshow(attention, cmap="Blues", vmin=0, vmax=max(panel[0].max() for panel in panels.values()))
        axes.set_xticks(range(len(source)), source, rotation=90, fontsize=7)
        axes.set_yticks(range(len(target)), target, fontsize=7)
        for label, is_pruned in zip(axes.get_xticklabels(), pruned, strict=True):
            label.set_color("red" if is_pruned else "black")
        axes.set_title(title, fontsize=9)
    figure.suptitle("Figure 2: attention of target (y) to source words (x); red = pruned by L0Drop", fontsize=10)
    return figure
