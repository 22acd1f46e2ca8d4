"""timing.py: rounds, the clock of each device, the interval of a median."""

import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from shared.timing import spread, time_rounds

torch.set_num_threads(1)


def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_each_round_runs_all_and_begins_one_function_later():
    calls = []
    functions = {name: lambda name=name: calls.append(name) for name in "abc"}
    times = time_rounds(functions, repeats=3, warmup=1)
    assert "".join(calls) == "abc" + "bca" + "cab" + "abc"
    assert all(len(times[name].seconds) == 3 and times[name].peak == 0 for name in "abc")


def test_one_cpu_thread_counts_cpu_seconds_and_more_count_the_clock_on_the_wall(monkeypatch):
    functions = {"sleep": lambda: time.sleep(0.05), "work": lambda: burn(0.05)}
    times = time_rounds(functions, repeats=3, warmup=0)
    assert times["sleep"].seconds.max() < 0.02 and times["work"].seconds.min() > 0.04
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert time_rounds(functions, repeats=3, warmup=0)["sleep"].seconds.min() > 0.04


def test_a_gpu_is_waited_for_before_the_clock_is_read(monkeypatch):
    """A fake one: work is queued at once and done when somebody waits, which takes its time."""
    state = {"now": 0.0, "queued": 0.0, "peak": 0}

    def synchronize(device):
        assert device == torch.device("cuda")
        state["now"] += state["queued"]
        state["queued"] = 0.0

    def launch(seconds, memory):
        state["queued"] += seconds
        state["peak"] = max(state["peak"], memory)

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: state.update(peak=0))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: state["peak"])
    monkeypatch.setattr(time, "perf_counter", lambda: state["now"])
    functions = {"long": lambda: launch(3.0, 10), "short": lambda: launch(1.0, 70)}
    state["queued"] = 50.0  # of work before, which must not count
    times = time_rounds(functions, repeats=3, warmup=0, device="cuda")
    assert times["long"].seconds.tolist() == [3.0] * 3
    assert times["short"].seconds.tolist() == [1.0] * 3
    assert (times["long"].peak, times["short"].peak) == (10, 70)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_a_product_of_twice_the_width_takes_longer_and_more_memory():
    sizes = {"small": 1024, "large": 8192}
    factors = {name: torch.randn(size, size, device="cuda") for name, size in sizes.items()}
    functions = {name: lambda x=x: x @ x for name, x in factors.items()}
    times = time_rounds(functions, repeats=5, device="cuda")
    assert times["large"].seconds.min() > 5 * times["small"].seconds.max()
    assert times["large"].peak - times["small"].peak > 4 * (8192**2 - 1024**2) - 2**22


def test_the_spread_is_the_median_and_an_interval_by_ranks():
    """Of 5 rounds the least and the largest; of 9 the second of each end, 96 % by the binomial."""
    five = np.array([5.0, 1.0, 3.0, 2.0, 40.0])
    assert spread(five) == {"median": 3.0, "low": 1.0, "high": 40.0}
    assert spread(np.arange(9.0)) == {"median": 4.0, "low": 1.0, "high": 7.0}
    rng = np.random.default_rng(0)
    inside = [
        found["low"] <= 0 <= found["high"]
        for found in (spread(rng.normal(size=12)) for _ in range(2000))
    ]
    # 3rd to 10th of 12: 1 - 2 P(Bin(12, 1/2) <= 2) = 0.961; five standard errors
    assert abs(np.mean(inside) - 0.961) < 0.022
