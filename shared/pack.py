"""Linear layers with their weights in oneDNN's own layout: on many CPUs `predict` waits less.

On some AMDs MKL, through which `nn.Linear` multiplies, has half the speed of oneDNN. PyTorch has no
public way to lay weights out for it (torch.utils.mkldnn does not); these two operations are what
torch.compile uses when it freezes a model.
"""

import time
from collections import Counter

import torch
from torch import Tensor, nn

LEAST_GAIN = 1.5  # of one product; a whole decode gains less, about 1.3
ROWS = 40  # of the product that is timed: a step of ten documents with four beams


class PackedLinear(nn.Module):
    """The product of an nn.Linear; its weight can be neither saved, copied nor trained."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), ROWS)
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def pack(model: nn.Module, least_gain: float = LEAST_GAIN) -> bool:
    """Pack a float32 model on a CPU, for decoding only; says whether it was worth it.

    Layers that share their weight, as a tied output product does, stay. The model stays as it is
    where one product gains less than `least_gain`.
    """
    users = Counter()
    for module in model.modules():
        users.update(map(id, module._parameters.values()))
    linears = {}
    for name, module in model.named_modules():
        if type(module) is nn.Linear and users[id(module.weight)] == 1:
            linears[name] = module
    if not linears or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    largest = max(linears.values(), key=lambda linear: linear.weight.numel())
    if largest.weight.dtype != torch.float32 or largest.weight.device.type != "cpu":
        return False
    if gain(largest) < least_gain:
        return False
    for name, linear in linears.items():
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, PackedLinear(linear))
    return True


@torch.inference_mode()
def gain(linear: nn.Linear) -> float:
    """How many times as fast one product is once its weight is packed: the best of ten each."""
    packed, x = PackedLinear(linear), torch.randn(ROWS, linear.in_features)
    seconds = {linear: [], packed: []}
    for _ in range(10):
        for layer in (linear, packed):
            start = time.perf_counter()
            layer(x)
            seconds[layer].append(time.perf_counter() - start)
    return min(seconds[linear]) / min(seconds[packed])
