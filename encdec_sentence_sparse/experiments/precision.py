"""Faster matrix products in decoding, outside the model: other number formats, and weights packed for the CPU.

python -m encdec_sentence_sparse.experiments.precision runs/base runs/kl --csv precision.csv   # quality at each of them
"""

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro
from torch import Tensor, nn

from shared.data import check_outputs, load, write_csv
from shared.rouge import table

from ..evaluate import METRICS, evaluate
from ..loading import load_run, name_of
from ..run import Positive, check_fields, one_line_errors, read_flags

PRECISIONS = ("float32", "packed", "bf16", "fp16", "int8")


class PackedLinear(nn.Module):
    """An `nn.Linear` on the CPU, for inference, with its weight in oneDNN's own layout for inputs of 64 rows."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        # No public function packs: torch.utils.mkldnn lays out the weight anew in each call.
        try:
            self.weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), 64), linear.bias
        except RuntimeError as error:  # older CPUs cannot compute in bfloat16
            kind = str(linear.weight.dtype).removeprefix("torch.")
            raise ValueError(f"this CPU cannot pack {kind} weights: use float32 or int8 ({error})") from None

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


def packs_bfloat16() -> bool:
    """Whether this CPU can compute in bfloat16."""
    try:
        PackedLinear(nn.Linear(2, 2, dtype=torch.bfloat16))
    except ValueError:
        return False
    return True


def convert(model: nn.Module, precision: str) -> nn.Module:
    """A model as it is fastest at one of PRECISIONS; int8 quantises weights ahead and inputs as they come."""
    is_cpu = all(parameter.device.type == "cpu" for parameter in model.parameters())
    if precision in ("packed", "int8") and not is_cpu:
        raise ValueError(f"--precision {precision} is for the CPU: leave out --device, or take bf16")
    if precision == "int8":
        with warnings.catch_warnings():  # torch.ao is deprecated; without a compiler torchao is 10 times slower
            warnings.simplefilter("ignore")
            return torch.ao.quantization.quantize_dynamic(model, {nn.Linear, nn.GRU}, torch.qint8)
    model = model.to({"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32))
    if is_cpu and precision in ("packed", "bf16"):
        children = [(module, *named) for module in model.modules() for named in module.named_children()]
        for module, name, linear in (child for child in children if isinstance(child[2], nn.Linear)):
            setattr(module, name, PackedLinear(linear))
    return model


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "test"
    limit: Positive | None = None  # first N examples only
    precisions: tuple[Literal[PRECISIONS], ...] = ("float32", "bf16", "int8")
    r: tuple[Positive, ...] = (5,)  # sentences to attend to
    csv: Path | None = None  # write a row per system and precision here


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.precision", description=__doc__)
    check_fields(options)
    if not options.runs:
        raise ValueError("give at least one run folder")
    runs, rows = {name_of(path): load_run(path) for path in options.runs}, []
    if len(runs) < len(options.runs):
        raise ValueError("two runs have folders of the same name; rename one")
    data = options.data or next(iter(runs.values())).config.data
    check_outputs(options.csv, inputs=[data, *options.runs])
    examples = load(data, options.split, options.limit)
    for precision in options.precisions:
        converted = {n: run._replace(model=convert(copy.deepcopy(run.model), precision)) for n, run in runs.items()}
        for system, row in evaluate(converted, examples, r=options.r)["systems"].items():
            rows.append({"system": system, "precision": precision} | {metric: row[metric] for metric in METRICS})
    print(table(rows))
    if options.csv:
        write_csv(options.csv, rows)


if __name__ == "__main__":
    main()
