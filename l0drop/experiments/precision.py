"""Faster matrix products in decoding, outside the model: other number formats, and weights packed for the CPU.

`convert(model, "float32")` packs every weight once as oneDNN wants it (the same numbers but for rounding), "bf16" and
"fp16" cast the model, "int8" quantises weights ahead and inputs as they come. The gates' predictor stays as it is.

python -m l0drop.experiments.precision runs/base runs/l0 --csv precision.csv     # the quality at each of them
"""

import copy
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from torch import Tensor, nn

from shared.data import check_outputs, load, write_csv
from shared.rouge import table

from ..config import TrainConfig
from ..evaluate import evaluate, load_runs
from ..model import Transformer
from ..run import Positive, check_fields, one_line_errors, read_config, read_flags

PRECISIONS = ("float32", "bf16", "fp16", "int8")
ROWS = 64  # of the inputs that packed weights are laid out for; others work, more slowly


class PackedLinear(nn.Module):
    """An `nn.Linear` on the CPU with its weight in oneDNN's own layout, for inference."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        # No public function packs: torch.utils.mkldnn lays out the weight anew in each call.
        try:
            self.weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), ROWS), bias
        except RuntimeError as error:  # older CPUs cannot compute in bfloat16
            kind = str(weight.dtype).removeprefix("torch.")
            raise ValueError(f"this CPU cannot pack {kind} weights: use float32 or int8 ({error})") from None

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


def packs_bfloat16() -> bool:
    """Whether this CPU can compute in bfloat16."""
    try:
        PackedLinear(torch.ones(2, 2, dtype=torch.bfloat16), None)
    except ValueError:
        return False
    return True


def convert(model: nn.Module, precision: str, pack: bool = True) -> nn.Module:
    """Make a model on its device ready to decode at a precision, in place.

    Args:
        model: a `Transformer`, or a `bart.GatedBart`.
        precision: one of PRECISIONS.
        pack: pack weights where there is a gain: float32 and bf16 on the CPU.
    Raises:
        ValueError: int8 on another device than the CPU.
    """
    on_cpu = next(model.parameters()).device.type == "cpu"
    if precision in ("bf16", "fp16"):
        model.to(torch.bfloat16 if precision == "bf16" else torch.float16)
    if precision == "int8" and not on_cpu:
        raise ValueError("int8 is for the CPU: leave out --device, or take bf16")
    if precision == "int8" or (on_cpu and pack and precision != "fp16"):
        if not isinstance(model, Transformer):  # a pretrained one, whose output product is an nn.Linear
            swap_linears(model.bart, precision)
            return model
        swap_linears(model.encoder, precision)
        swap_linears(model.decoder, precision)
        model.output_product = swap(model.embedding.weight, None, precision).forward  # shadows the method
    return model


def swap_linears(module: nn.Module, precision: str) -> None:
    """Put another module in the place of every `nn.Linear` within."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, swap(child.weight, child.bias, precision))
        else:
            swap_linears(child, precision)


def swap(weight: Tensor, bias: Tensor | None, precision: str) -> nn.Module:
    """A module that computes x @ weight.T + bias."""
    if precision != "int8":
        return PackedLinear(weight, bias)
    linear = nn.Linear(weight.size(1), weight.size(0), bias is not None, device=weight.device)
    linear.weight.data, linear.bias = weight.detach(), bias
    with warnings.catch_warnings():  # torch.ao is deprecated; without a compiler torchao is 10 times slower here
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(nn.Sequential(linear), {nn.Linear}, torch.qint8)[0]


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "test"
    limit: Positive | None = None  # first N examples only
    precisions: tuple[str, ...] = ("float32", "bf16", "int8")
    csv: Path | None = None  # write a row per run and precision here
    device: str = "cpu"


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.precision", description=__doc__)
    check_fields(options)
    if wrong := set(options.precisions) - set(PRECISIONS):
        raise ValueError(f"--precisions {wrong.pop()}: choose from {', '.join(PRECISIONS)}")
    if not options.runs:
        raise ValueError("give at least one run folder")
    data = options.data or read_config(options.runs[0], TrainConfig).data
    check_outputs(options.csv, inputs=[data, *options.runs])
    runs, rows = load_runs(options.runs, options.device), []
    examples = load(data, options.split, options.limit)
    for precision in options.precisions:
        converted = {n: run._replace(model=convert(copy.deepcopy(run.model), precision)) for n, run in runs.items()}
        metrics = evaluate(converted, examples)
        for name, system in metrics["systems"].items():
            rows.append({"system": name, "precision": precision, metrics["metric"]: system[metrics["metric"]]})
    print(table(rows))
    if options.csv:
        write_csv(options.csv, rows)


if __name__ == "__main__":
    main()
