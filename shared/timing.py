"""Timing that can be believed: several functions side by side in one run, the spread of the rounds.

Every round runs each function once, one function later than the round before: a machine that slows down slows down all
sides. So a ratio of two sides is taken within rounds: `spread(seconds["slow"] / seconds["fast"])`. On one thread of the
CPU, seconds are CPU seconds, which other work beside lengthens least; else they are wall-clock seconds, and on CUDA,
where a call returns early, the clock is read after synchronisation.
"""

import math
import time
from collections.abc import Callable

import numpy as np
import torch


def time_rounds(
    functions: dict[str, Callable[[], object]], repeats: int = 7, warmup: int = 1, device="cpu"
) -> dict[str, np.ndarray]:
    """Seconds of each function, (repeats,), round by round, after `warmup` rounds that do not count.

    ValueError: fewer than 3 repeats; a device that this file cannot synchronise.
    """
    device = torch.device(device)
    if repeats < 3 or device.type not in ("cpu", "cuda"):
        raise ValueError(f"give 3 repeats or more, and cpu or cuda: {repeats}, {device}")
    clock = time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    names, seconds = list(functions), {name: np.zeros(warmup + repeats) for name in functions}
    for number in range(warmup + repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            wait(device)
            start = clock()
            _ = functions[name]()  # freed off the clock
            wait(device)
            seconds[name][number] = clock() - start
    return {name: values[warmup:] for name, values in seconds.items()}


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def spread(values: np.ndarray) -> dict[str, float]:
    """Median and its interval of 95 % or more, by ranks, as `rouge.table` prints them.

    The interval is from the lowest to the highest of up to 8 rounds, from the second of each end of 9 to 11, and so on.
    """
    ordered, n = np.sort(values), len(values)
    outside = np.cumsum([math.comb(n, k) for k in range(n)]) / 2.0**n  # the median is below the lowest, the second, ...
    rank = max(int((2 * outside <= 0.05).sum()), 1)
    return {"mean": float(np.median(ordered)), "low": float(ordered[rank - 1]), "high": float(ordered[-rank])}
