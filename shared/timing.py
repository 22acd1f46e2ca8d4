"""How long functions take, side by side in one run, on a CPU or a GPU.

Each round runs every function once, so a machine that slows down slows down all of them: take the
ratio of two functions within rounds, `spread(slow.seconds / fast.seconds)`.
"""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch


class Times(NamedTuple):
    """What one function took."""

    seconds: np.ndarray  # (repeats,)
    peak: int  # most bytes that its tensors held on the GPU at a time; 0 on a CPU


def time_rounds(
    functions: dict[str, Callable[[], object]], repeats: int = 5, warmup: int = 1, device="cpu"
) -> dict[str, Times]:
    """Time each function `repeats` times; a round begins one function later than the one before.

    A call to a GPU returns before the work is done: the clock is read once the device has finished.
    On one CPU thread the seconds are CPU seconds, which other programs hardly lengthen; else they
    are wall-clock seconds.
    """
    device = torch.device(device)
    on_gpu = device.type == "cuda"
    one_thread = not on_gpu and torch.get_num_threads() == 1
    clock = time.process_time if one_thread else time.perf_counter
    wait = torch.cuda.synchronize if on_gpu else lambda device: None
    names = list(functions)
    seconds = {name: [] for name in names}
    peak = dict.fromkeys(names, 0)
    for number in range(warmup + repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if on_gpu:
                torch.cuda.reset_peak_memory_stats(device)
            wait(device)
            start = clock()
            result = functions[name]()
            wait(device)
            seconds[name].append(clock() - start)
            del result  # freed off the clock
            if on_gpu:
                peak[name] = max(peak[name], torch.cuda.max_memory_allocated(device))
    return {name: Times(np.array(seconds[name][warmup:]), peak[name]) for name in names}


def spread(values: np.ndarray) -> dict[str, float]:
    """Median and its 95 % interval by ranks: of up to 8 rounds the least and the largest value.

    Of five rounds, the default, these two are an interval of 94 %, of three of 75 %.
    """
    ordered = np.sort(values)
    count = len(ordered)
    # Probability that the median lies outside the k-th values from both ends (binomial).
    outside = 2 * np.cumsum([math.comb(count, k) for k in range(count)]) / 2.0**count
    rank = max(int((outside <= 0.05).sum()), 1)
    low, high = float(ordered[rank - 1]), float(ordered[-rank])
    return {"median": float(np.median(ordered)), "low": low, "high": high}
