"""Time and memory of one encoder layer, or of its attention alone, by attention type and document length.

python -m discourse_tree_attention.benchmark --repeats 9 --documents 1
python -m discourse_tree_attention.benchmark --quick

All sides of a comparison are timed in one run, interleaved; a ratio is the median of the ratios within rounds.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro
from torch import Tensor

from shared import rouge
from shared.data import check_outputs, write_csv
from shared.timing import compare, find_device, ratio

from .evaluate import ATTENTION_NAMES
from .model import BALANCED, Attention, EncoderLayer, ModelConfig
from .run import one_line_errors

SIZES = {"default": {}, "balanced": BALANCED}  # Section 5.1
SYSTEMS = {  # the rows of Tables 2 and 3
    "Dot Product(8)": dict(attention="dot", heads=8),
    "Dot Product(1)": dict(attention="dot"),
} | {name: dict(attention=kind) for kind, name in ATTENTION_NAMES.items() if kind != "dot"}
REFERENCE = "Dot Product(1)"
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Options:
    """The command line."""

    lengths: tuple[int, ...] = (8, 32, 64, 128, 256, 512)  # units of a document
    sizes: tuple[Literal[tuple(SIZES)], ...] = tuple(SIZES)  # Section 5.1
    parts: tuple[Literal["attention", "layer"], ...] = ("attention", "layer")  # layer: feed-forward and norms too
    modes: tuple[Literal["inference", "training"], ...] = ("inference", "training")
    width: int = 768  # D
    documents: int = 4  # in a batch
    repeats: int = 9  # timed rounds, at least 3
    threads: int = 1
    quick: bool = False  # two short lengths at width 64, three rounds
    csv: Path | None = None  # write every number here
    device: str = "cpu"
    precision: Literal[tuple(PRECISIONS)] = "float32"


def inputs(units: int, width: int, documents: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Full documents: states, keep, and matrices whose rows sum to 1."""
    torch.manual_seed(0)
    states = torch.randn(documents, units, width)
    matrix = torch.rand(documents, units, units)
    matrix = matrix / matrix.sum(-1, keepdim=True)
    return states.to(like), torch.ones(documents, units, dtype=torch.bool, device=like.device), matrix.to(like)


def forward(layer: torch.nn.Module, states: Tensor, keep: Tensor, matrix: Tensor) -> Callable[[], None]:
    """What is timed as inference."""

    def run() -> None:
        with torch.inference_mode():
            layer(states, keep, matrix)

    return run


def backward(layer: torch.nn.Module, states: Tensor, keep: Tensor, matrix: Tensor) -> Callable[[], None]:
    """What is timed as training: forward and backward, gradients of weights and states."""
    states = states.clone().requires_grad_()

    def run() -> None:
        layer.zero_grad()
        layer(states, keep, matrix).sum().backward()

    return run


def measure(options: Options, part: str, size: str, mode: str, units: int) -> list[dict]:
    """A row for each system at one length."""
    like = torch.empty(0, device=options.device, dtype=PRECISIONS[options.precision])
    arguments = inputs(units, options.width, options.documents, like)
    sides = {}
    for name, values in SYSTEMS.items():
        config = ModelConfig(width=options.width, **SIZES[size] | values)
        layer = (EncoderLayer if part == "layer" else Attention)(config).to(like)
        sides[name] = (forward if mode == "inference" else backward)(layer.train(mode == "training"), *arguments)
    timings = compare(sides, options.repeats, device=options.device)
    rows = []
    for name, timing in timings.items():
        times, spread = ratio(timings, REFERENCE, name)
        row = {"part": part, "size": size, "mode": mode, "units": units, "system": name}
        row |= {"ms": 1e3 * timing.median, "IQR ms": 1e3 * timing.iqr, "dot product(1) / this": times}
        row |= {"IQR of the ratio": spread, "peak MiB": timing.peak_bytes / 2**20, "documents": options.documents}
        rows.append(row | {"repeats": options.repeats, "device": options.device, "precision": options.precision})
    return rows


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.benchmark", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    if options.quick:
        options.lengths, options.width, options.repeats = (8, 32), 64, 3
    if min(*options.lengths, options.width, options.documents, options.threads, options.repeats - 2, 512) < 1:
        raise ValueError("lengths, width, documents and threads are at least 1, repeats at least 3")
    if max(options.lengths) > ModelConfig.max_units:
        raise ValueError(f"--lengths go to {ModelConfig.max_units}: Dense and Random have weights for no more")
    find_device(options.device)
    check_outputs(options.csv)
    torch.set_num_threads(options.threads)
    rows = []
    for part in options.parts:
        for size in options.sizes:
            for mode in options.modes:
                for units in options.lengths:
                    print(f"{part}, {size}, {mode}, {units} units", file=sys.stderr)
                    rows += measure(options, part, size, mode, units)
    if options.csv:
        write_csv(options.csv, rows)
    columns = ("part", "size", "mode", "units", "system", "ms", "IQR ms", "dot product(1) / this", "peak MiB")
    print(rouge.table([{column: row[column] for column in columns} for row in rows]))
    print(f"torch {torch.__version__}, {options.device}, {options.threads} thread(s), {options.precision}")


if __name__ == "__main__":
    main()
