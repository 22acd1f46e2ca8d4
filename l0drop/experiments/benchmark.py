"""What pruning and sharing save: whole decodes on one thread of the CPU, all sides in one run.

python -m l0drop.experiments.benchmark --csv results.csv      # an hour; --quick: seconds, does it run

A decode is encoder, gates, compression and beam search of ten sources, with random weights of the paper's size and
gates that close the paper's share of the positions. "expanded" is the ordinary decoder: keys and values once per beam.
A row: CPU seconds, and how many times as fast as "expanded" within a round; the median, lowest and highest of rounds.
"""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.benchmark import Timer

from shared.data import open_output, write_csv
from shared.run import one_line_errors, read_flags

from ..config import PAPER, Positive, TrainConfig
from ..gates import Memory
from ..model import ModelConfig, Projected, Transformer
from ..search import generate

BEAM = 4  # Appendix A
SIDES = ("expanded", "expanded, pruned", "shared", "shared, pruned")
SIZES = TrainConfig(**PAPER | {"l0drop": "output"})  # Appendix A


class Shape(NamedTuple):
    sources: int
    length: int
    sparsity: float
    tokens: int


# Table 1 and Appendix A: CNN/Daily Mail and WikiSum, batch 10; tokens of a source, share pruned, tokens of an output
SHAPES = [Shape(10, 400, 0.476, 40), Shape(10, 2048, 0.715, 20)]


@dataclass
class Options:
    """The command line."""

    repeats: Positive = 7  # Rounds.
    csv: Path | None = None  # File for every number.
    overwrite: bool = False  # Replace that file.
    quick: bool = False  # Take a small model and sources: does it run, nothing more.


class Decoder(Transformer):
    """A Transformer with given gates (B, S); `is_expanded` copies keys and values for each beam."""

    gates: Tensor
    is_expanded = False

    def encode(self, source: Tensor, hold_open: bool = False):
        encoding = super().encode(source)
        return encoding._replace(states=self.gates.unsqueeze(-1) * encoding.states, gates=[self.gates])

    def project(self, memory: Memory) -> list[Projected]:
        times = BEAM if self.is_expanded else 1
        return [Projected(*(part.repeat_interleave(times, 0) for part in layer)) for layer in super().project(memory)]


def close_gates(shape: Shape) -> Tensor:
    """(B, S) gates of 0 and 1: exactly `sparsity` of all positions are closed, of each source about as many."""
    gates = torch.ones(shape.sources * shape.length)
    gates[torch.randperm(gates.numel())[: round(shape.sparsity * gates.numel())]] = 0
    return gates.view(shape.sources, shape.length)


def decode(model: Decoder, source: Tensor, tokens: int, side: str):
    """A whole decode by one of SIDES."""
    model.is_expanded = side.startswith("expanded")
    lengths = {"extra_length": tokens - source.size(1), "min_length": tokens}
    return generate(model, source, prune="pruned" in side, beam=BEAM, **lengths)


def time_shape(config: ModelConfig, shape: Shape, repeats: int) -> list[dict]:
    """A row per side; every round runs each side once, so that a slow minute slows all."""
    source, model = torch.randint(4, config.vocabulary, (shape.sources, shape.length)), Decoder(config).eval()
    model.gates, seconds = close_gates(shape), np.zeros((repeats, len(SIDES)))
    for number, side in itertools.product(range(repeats), range(len(SIDES))):
        call = {"decode": decode, "arguments": (model, source, shape.tokens, SIDES[side])}
        seconds[number, side] = Timer("decode(*arguments)", globals=call).timeit(1).median
    rows = []
    for side, own in zip(SIDES, seconds.T, strict=True):
        rows.append({"S": shape.length, "T": shape.tokens, "side": side, "repeats": repeats})
        for name, values in {"seconds": own, "x expanded": seconds[:, 0] / own}.items():
            spread = {"mean": np.median(values), "low": values.min(), "high": values.max()}
            rows[-1] |= {f"{name}_{part}": float(value) for part, value in spread.items()}
    return rows


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shapes, config = ([Shape(2, 24, 0.5, 8)], ModelConfig()) if options.quick else (SHAPES, SIZES)
    with open_output(options.csv, options.overwrite) as file:
        rows = [row for shape in shapes for row in time_shape(config, shape, options.repeats)]
        for row in rows:
            print(*(f"{value:.3g}" if isinstance(value, float) else value for value in row.values()))
        if options.csv:
            write_csv(file, rows)


if __name__ == "__main__":
    main()
