"""Timing that can be believed: several functions side by side in one run, medians, spread, peak memory.

Every round runs each function once, one function later than the round before: a machine that slows down slows down all
sides. Ratios are taken within rounds. On CUDA, where a call returns early, the clock is read after synchronisation.
"""

from __future__ import annotations

import functools
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch


class Timing(NamedTuple):
    name: str
    median: float  # seconds
    iqr: float  # seconds, third quartile minus first
    n: int  # timed runs
    peak_bytes: int | None  # most torch memory held during a run above what was held before it; None: not measured
    times: tuple[float, ...]  # (n,) seconds; times[i] of all functions are from round i


def compare(
    functions: dict[str, Callable[[], object]], repeats: int = 7, warmup: int = 2, device="cpu", memory: bool = True
) -> dict[str, Timing]:
    """Time functions against each other, interleaved: `warmup` rounds that do not count, then `repeats` that do.

    Args:
        memory: measure peak memory, in a run of its own after the timed ones.
    Raises:
        ValueError: no functions, fewer than 3 repeats, a device that this file cannot synchronise.
    """
    device = torch.device(device or "cpu")
    if not functions or repeats < 3 or warmup < 0:
        raise ValueError(f"need a function, 3 repeats or more, warmup >= 0: {len(functions)}, {repeats}, {warmup}")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"cannot time on {device}: cpu or cuda only")
    names, times = list(functions), {name: [] for name in functions}
    for number in range(-warmup, repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            seconds = _seconds(functions[name], device)
            if number >= 0:
                times[name].append(seconds)
    peaks = {name: _peak_bytes(functions[name], device) if memory else None for name in names}
    return {name: Timing(name, *_median_iqr(times[name]), repeats, peaks[name], tuple(times[name])) for name in names}


def ratio(timings: dict[str, Timing], slow: str, fast: str) -> tuple[float, float]:
    """How many times longer `slow` takes than `fast`: median and interquartile range of the ratios within rounds."""
    return _median_iqr(np.divide(timings[slow].times, timings[fast].times))


def _median_iqr(values: Sequence[float]) -> tuple[float, float]:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float(middle), float(high - low)


def find_device(name: str) -> torch.device:
    """The torch device of that name; ValueError where this machine cannot compute on it."""
    try:
        number = torch.zeros(1, device=name)
        number.item()
        return number.device
    except (RuntimeError, AssertionError, ImportError) as error:
        raise ValueError(f"--device {name} cannot be used here: {str(error).partition(chr(10))[0]}") from None


def _seconds(function: Callable[[], object], device: torch.device) -> float:
    """Wall-clock seconds of one call, the device's work included."""
    wait = functools.partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    _ = function()  # freed off the clock
    wait()
    return time.perf_counter() - start


def _peak_bytes(function: Callable[[], object], device: torch.device) -> int:
    """Most bytes that torch held during one call, above what it held before: CUDA's count, or the profiler's log."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        _seconds(function, device)
        return torch.cuda.max_memory_allocated(device) - before
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        function()
    with tempfile.TemporaryDirectory() as folder:
        profile.export_chrome_trace(f"{folder}/trace.json")
        events = json.loads(Path(folder, "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    # Every allocation (+) and release (-) of a tensor; the peak is the largest running sum.
    changes = sorted((event for event in events if event.get("name") == "[memory]"), key=lambda event: event["ts"])
    return max(accumulate((event["args"]["Bytes"] for event in changes), initial=0))
