"""Time and memory of one encoder layer, or of its attention alone, by attention type and document length.

python -m discourse_tree_attention.experiments.benchmark --repeats 9 --documents 1
python -m discourse_tree_attention.experiments.benchmark --quick

All sides of a comparison are timed in one run, interleaved; a ratio is the median of the ratios within rounds, with its
interval (`timing.spread`). On one thread of the CPU, times are CPU times.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro
from torch import Tensor

from shared import rouge
from shared.data import check_outputs, write_csv
from shared.timing import find_device, keep_memory, peak_bytes, spread, time_rounds

from ..evaluate import ATTENTION_NAMES
from ..model import BALANCED, Attention, EncoderLayer, ModelConfig
from ..run import Range, Size, check_fields, one_line_errors, read_flags

SIZES = {"default": {}, "balanced": BALANCED}  # Section 5.1
PARTS = {"attention": Attention, "layer": EncoderLayer}
REFERENCE = "Dot Product(1)"
SYSTEMS = {"Dot Product(8)": dict(attention="dot", heads=8), REFERENCE: dict(attention="dot")}  # rows of Tables 2 and 3
SYSTEMS |= {name: dict(attention=kind) for kind, name in ATTENTION_NAMES.items() if kind not in ("dot", "previous")}
Length = Annotated[int, Range(1, ModelConfig.max_units)]  # Dense and Random have weights for no more
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    lengths: tuple[Length, ...] = (8, 32, 64, 128, 256, 512)  # units of a document
    sizes: tuple[Literal[tuple(SIZES)], ...] = tuple(SIZES)  # Section 5.1
    parts: tuple[Literal[tuple(PARTS)], ...] = tuple(PARTS)  # layer: feed-forward and norms too
    modes: tuple[Literal["inference", "training"], ...] = ("inference", "training")
    width: Size = 768  # D
    documents: Size = 4  # in a batch
    repeats: Annotated[int, Range(3, 1000)] = 9  # timed rounds
    threads: Annotated[int, Range(1, 1000)] = 1
    quick: bool = False  # two short lengths at width 64, three rounds
    csv: Path | None = None  # write every number here
    device: str = "cpu"
    precision: Literal[tuple(PRECISIONS)] = "float32"


def inputs(units: int, width: int, documents: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Full documents: states, keep, and matrices whose rows sum to 1."""
    torch.manual_seed(0)
    states = torch.randn(documents, units, width)
    matrix = torch.rand(documents, units, units).softmax(-1)
    return states.to(like), torch.ones(documents, units, dtype=torch.bool, device=like.device), matrix.to(like)


@torch.inference_mode()
def inference(layer: torch.nn.Module, states: Tensor, keep: Tensor, matrix: Tensor) -> None:
    layer(states, keep, matrix)


def training(layer: torch.nn.Module, states: Tensor, keep: Tensor, matrix: Tensor) -> None:
    """Forward and backward, gradients of weights and states."""
    layer.zero_grad()
    layer(states.detach().requires_grad_(), keep, matrix).sum().backward()


def measure(options: Options, part: str, size: str, mode: str, units: int) -> list[dict]:
    """A row for each system at one length."""
    like = torch.empty(0, device=options.device, dtype=PRECISIONS[options.precision])
    arguments = inputs(units, options.width, options.documents, like)
    sides = {}
    for name, values in SYSTEMS.items():
        layer = PARTS[part](ModelConfig(width=options.width, **SIZES[size] | values)).to(like)
        layer.train(mode == "training")
        sides[name] = partial(training if mode == "training" else inference, layer, *arguments)
    seconds, rows = time_rounds(sides, options.repeats, 2, options.device), []
    for name, own in seconds.items():
        sides[name].args[0].zero_grad()  # or the call would free what the profiler never saw
        row = {"part": part, "size": size, "mode": mode, "units": units, "system": name}
        row |= {"ms": spread(1e3 * own), "dot product(1) / this": spread(seconds[REFERENCE] / own)}
        row |= {"peak MiB": peak_bytes(sides[name], options.device) / 2**20, "documents": options.documents}
        rows.append(row | {"repeats": options.repeats, "device": options.device, "precision": options.precision})
    return rows


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.benchmark", description=__doc__)
    check_fields(options)
    if options.quick:
        options.lengths, options.width, options.repeats = (8, 32), 64, 3
    ModelConfig(width=options.width)  # its own checks
    find_device(options.device)
    check_outputs(options.csv)
    keep_memory()
    torch.set_num_threads(options.threads)
    rows = []
    for setting in product(options.parts, options.sizes, options.modes, options.lengths):
        print(*setting, "units", file=sys.stderr)
        rows += measure(options, *setting)
    if options.csv:
        write_csv(options.csv, rows)
    columns = ("part", "size", "mode", "units", "system", "ms", "dot product(1) / this", "peak MiB")
    print(rouge.table([{column: row[column] for column in columns} for row in rows]))
    print(f"torch {torch.__version__}, {options.device}, {options.threads} thread(s), {options.precision}")


if __name__ == "__main__":
    main()
