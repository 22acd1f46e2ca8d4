"""Time and memory of one encoder layer by attention type and document length, and time of a training epoch.

python -m discourse_tree_attention.benchmark                                       # the layer, random weights
python -m discourse_tree_attention.benchmark --epoch -- --data FOLDER --encoder FOLDER      # a training epoch

All sides of a comparison are timed in one run, interleaved; a ratio is the median of the ratios within rounds.
"""

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from shared.data import load
from shared.timing import compare, ratio

from .evaluate import SYSTEMS
from .model import BALANCED, Attention, EncoderLayer, ModelConfig
from .train import Training, load_corpus, load_encoder, parse, random_encoder

SIZES = {"default": {}, "balanced": BALANCED}  # Section 5.1
LENGTHS = (10, 32, 64, 128, 256, 512)
REFERENCE = "Dot Product(1)"


def inputs(units: int, width: int, documents: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Full documents: states, keep, and matrices whose rows sum to 1."""
    torch.manual_seed(0)
    states = torch.randn(documents, units, width, device=device)
    matrix = torch.rand(documents, units, units, device=device)
    keep = torch.ones(documents, units, dtype=torch.bool, device=device)
    return states, keep, matrix / matrix.sum(-1, keepdim=True)


def forward(layer: torch.nn.Module, states: Tensor, keep: Tensor, matrix: Tensor) -> Callable[[], None]:
    """What is timed as inference."""

    def run() -> None:
        with torch.inference_mode():
            layer(states, keep, matrix)

    return run


def training(layer: torch.nn.Module, states: Tensor, keep: Tensor, matrix: Tensor) -> Callable[[], None]:
    """What is timed as training: forward and backward, gradients of weights and states."""
    states = states.clone().requires_grad_()

    def run() -> None:
        layer.zero_grad()
        layer(states, keep, matrix).sum().backward()

    return run


def measure_layers(
    lengths: Sequence[int], size: str, width: int, documents: int, device: str, repeats: int, whole: bool = True
) -> list[dict]:
    """Rows of the benchmark: each system at each length, inference and training.

    Args:
        whole: the whole encoder layer; False: its attention alone.
    """
    rows = []
    for units in lengths:
        arguments = inputs(units, width, documents, device)
        for mode, make in (("inference", forward), ("training", training)):
            sides = {}
            for name, values in SYSTEMS.items():
                config = ModelConfig(width=width, **SIZES[size] | values)
                layer = (EncoderLayer if whole else Attention)(config).to(device)
                sides[name] = make(layer.eval() if mode == "inference" else layer, *arguments)
            timings = compare(sides, repeats, device=device)
            for name, timing in timings.items():
                times, spread = ratio(timings, REFERENCE, name)
                row = {"part": "layer" if whole else "attention", "size": size, "mode": mode, "units": units}
                row |= {"system": name, "ms": 1e3 * timing.median, "IQR ms": 1e3 * timing.iqr}
                row |= {"dot product(1) / this": times, "IQR of the ratio": spread}
                row |= {"peak MiB": timing.peak_bytes / 2**20, "documents": documents}
                rows.append(row | {"repeats": repeats, "device": device})
                print(
                    f"{row['part']:9} {size:8} {mode:9} {units:4} units  {name:15} {row['ms']:8.2f} ms  "
                    f"{times:5.2f}x of dot product(1) [IQR {spread:.2f}]  {row['peak MiB']:7.1f} MiB",
                    flush=True,
                )
    return rows


def measure_epoch(flags: Sequence[str], systems: Sequence[str], repeats: int) -> list[dict]:
    """Seconds of a training epoch with unit vectors from the cache, and of what comes before the first epoch."""
    config, *_ = parse(["--out", "unused", "--preset", "gum", *flags])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        examples = load(config.data, "train")
        if not config.encoder:
            random_encoder([s for example in examples for s in example.document], Path(folder) / "encoder")
        encoder = load_encoder(config.encoder or f"{folder}/encoder", config.max_tokens)
        for name in systems:
            own = replace(config, **SYSTEMS[name])
            prepare = partial(load_corpus, own, "train", encoder, folder, False)
            first, again = _seconds(prepare), _seconds(prepare)
            corpus, _, _ = prepare()
            run = Training(replace(own, steps=10**9), Path(folder), corpus, corpus, [])
            times = [_seconds(partial(train_epoch, run)) for _ in range(repeats)]
            low, middle, high = np.quantile(times, [0.25, 0.5, 0.75])
            units = sum(len(document.units) for document in corpus.documents)
            row = {"system": name, "documents": len(corpus), "units": units, "epoch s": middle, "IQR s": high - low}
            rows.append(row | {"repeats": repeats, "prepare s, empty cache": first, "prepare s, cached": again})
            print(
                f"{name:15} epoch {middle:6.2f} s (IQR {high - low:.2f}), {len(corpus)} documents, {units} units; "
                f"before it {first:.1f} s, with vectors and matrices cached {again:.1f} s",
                flush=True,
            )
    return rows


def train_epoch(run: Training) -> None:
    """As many updates as an epoch has batches."""
    for _ in range(-(-len(run.training) // run.config.batch)):
        run.update()


def _seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def write_csv(rows: Sequence[dict], path: Path) -> None:
    """One line per row."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure; with --epoch, what stands after -- are flags of training."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    end = arguments.index("--") if "--" in arguments else len(arguments)
    own, rest = arguments[:end], arguments[end + 1 :]
    module = "python -m discourse_tree_attention.benchmark"
    parser = argparse.ArgumentParser(module, description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--lengths", nargs="+", type=int, default=list(LENGTHS), help="units of a document")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--width", type=int, default=768, help="D")
    parser.add_argument("--documents", type=int, default=4, help="in a batch")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--attention-only", action="store_true", help="without feed-forward and layer norms")
    parser.add_argument("--epoch", action="store_true", help="time a training epoch in place of a layer")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS), help="for --epoch")
    parser.add_argument("--csv", type=Path, help="write every number here")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    flags = parser.parse_args(own)
    torch.set_num_threads(flags.threads)
    print(f"torch {torch.__version__}, {flags.device}, {flags.threads} thread(s), float32")
    try:
        if rest and not flags.epoch:
            raise ValueError("flags after -- are those of training, for --epoch")
        if flags.epoch:
            rows = measure_epoch(rest, flags.systems, flags.repeats)
        else:
            sizes = (flags.width, flags.documents, flags.device, flags.repeats, not flags.attention_only)
            rows = [row for size in flags.sizes for row in measure_layers(flags.lengths, size, *sizes)]
    except (ValueError, ImportError, OSError) as error:
        sys.exit(f"error: {error}")
    if flags.csv:
        write_csv(rows, flags.csv)


if __name__ == "__main__":
    main()
