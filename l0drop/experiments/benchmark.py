"""What pruning and sharing save: whole decodes on one thread of the CPU, all sides in one run.

python -m l0drop.experiments.benchmark --csv results.csv      # an hour; --quick: seconds, does it
    run

A decode is encoder, gates, compression and beam search of ten sources, with random weights of the
paper's size and gates that close the paper's share of the positions. "expanded" is the ordinary
decoder: keys and values once per beam.
A row: CPU seconds, and how many times as fast as "expanded" within a round; the median, lowest and
highest of rounds.
"""

from pathlib import Path

import numpy as np
import torch
import tyro
from torch import Tensor
from torch.utils.benchmark import Timer

from shared.data import open_output, write_csv
from shared.run import one_line_errors

from ..config import PAPER, TrainConfig
from ..gates import Memory
from ..model import ModelConfig, Projected, Transformer
from ..search import generate

BEAM = 4  # Appendix A
SIDES = ("expanded", "expanded, pruned", "shared", "shared, pruned")
SIZES = TrainConfig(**PAPER | {"l0drop": "output"})  # Appendix A
# Table 1 and Appendix A, CNN/Daily Mail and WikiSum: sources, tokens of each, share pruned, tokens
# of an output
SHAPES = [(10, 400, 0.476, 40), (10, 2048, 0.715, 20)]


class Decoder(Transformer):
    """A Transformer with given gates (B, S); keys and values in `copies`, for each beam or once."""

    gates: Tensor
    copies: int

    def encode(self, source: Tensor, hold_open: bool = False):
        encoding = super().encode(source)
        return encoding._replace(
            states=self.gates.unsqueeze(-1) * encoding.states, gates=[self.gates]
        )

    def project(self, memory: Memory) -> list[Projected]:
        layers = super().project(memory)
        return [
            Projected(*(part.repeat_interleave(self.copies, 0) for part in layer))
            for layer in layers
        ]


def close_gates(sources: int, length: int, sparsity: float) -> Tensor:
    """(B, S) gates of 0 and 1: exactly `sparsity` of all positions are closed, of each source about
    as many.
    """
    gates = torch.ones(sources * length)
    gates[torch.randperm(gates.numel())[: round(sparsity * gates.numel())]] = 0
    return gates.view(sources, length)


def decode(model: Decoder, source: Tensor, tokens: int, side: str):
    """A whole decode by one of SIDES."""
    model.copies = BEAM if side.startswith("expanded") else 1
    lengths = {"extra_length": tokens - source.size(1), "min_length": tokens}
    return generate(model, source, prune="pruned" in side, beam=BEAM, **lengths)


def time_shape(
    config: ModelConfig, sources: int, length: int, sparsity: float, tokens: int, repeats: int
) -> list:
    """A row per side; every round runs each side once, so that a slow minute slows all."""
    source, model = torch.randint(4, config.vocabulary, (sources, length)), Decoder(config).eval()
    model.gates, seconds = close_gates(sources, length, sparsity), np.zeros((repeats, len(SIDES)))
    for number, side in np.ndindex(seconds.shape):
        call = {"decode": decode, "arguments": (model, source, tokens, SIDES[side])}
        seconds[number, side] = Timer("decode(*arguments)", globals=call).timeit(1).median
    rows = []
    for side, own in zip(SIDES, seconds.T, strict=True):
        rows.append({"S": length, "T": tokens, "side": side, "repeats": repeats})
        for name, values in {"seconds": own, "x expanded": seconds[:, 0] / own}.items():
            rows[-1][name] = {"mean": np.median(values), "low": values.min(), "high": values.max()}
    return rows


def main(
    repeats: int = 7, csv: Path | None = None, overwrite: bool = False, quick: bool = False
) -> None:
    """Time all sides in `repeats` rounds; `quick`: a small model and sources, to see that it runs,
    nothing more.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shapes, config = ([(2, 24, 0.5, 8)], ModelConfig()) if quick else (SHAPES, SIZES)
    with open_output(csv, overwrite) as file:
        write_csv(file, [row for shape in shapes for row in time_shape(config, *shape, repeats)])


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
