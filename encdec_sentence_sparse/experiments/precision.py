"""Faster matrix products in decoding, outside the model: other number formats, and weights packed for the CPU."""

import warnings

import torch
from torch import Tensor, nn

PRECISIONS = ("float32", "packed", "bf16", "fp16", "int8")


class PackedLinear(nn.Module):
    """An `nn.Linear` on the CPU, for inference, with its weight in oneDNN's own layout for inputs of 64 rows."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        # No public function packs: torch.utils.mkldnn lays out the weight anew in each call.
        self.weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), 64), linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


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
