"""timing.py against a fake clock and a fake CUDA device: what is timed, in which order, and when it synchronises."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from shared import timing


class FakeMachine:
    """A clock that only moves when told, and a CUDA device that records what is asked of it."""

    def __init__(self, monkeypatch):
        self.now, self.pending, self.log = 0.0, 0.0, []
        monkeypatch.setattr(timing.time, "process_time", self.read)
        monkeypatch.setattr(timing.time, "perf_counter", lambda: 10 * self.read())
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1)

    def read(self):
        self.log.append("clock")
        return self.now

    def synchronize(self, device):
        self.log.append(f"sync {device}")
        self.now, self.pending = self.now + self.pending, 0.0

    def function(self, name, *seconds, queued=0.0):
        """A function that takes each of `seconds` in turn, and `queued` more on the device after it has returned."""
        remaining = list(seconds)

        def run():
            self.log.append(name)
            self.now += remaining.pop(0) if len(remaining) > 1 else remaining[0]
            self.pending += queued

        return run


@pytest.fixture
def machine(monkeypatch):
    return FakeMachine(monkeypatch)


def test_every_round_starts_one_function_later_and_has_ratios_of_its_own(machine):
    timing.time_rounds({name: machine.function(name, 1.0) for name in "abc"}, repeats=4, warmup=0)
    assert "".join(entry for entry in machine.log if entry != "clock") == "abcbcacababc"
    functions = {"fast": machine.function("fast", 1.0, 2.0, 10.0), "slow": machine.function("slow", 4.0, 4.0, 30.0)}
    seconds = timing.time_rounds(functions, repeats=3, warmup=0)
    assert timing.spread(seconds["slow"] / seconds["fast"]) == {"mean": 3.0, "low": 2.0, "high": 4.0}  # 4 / 2 = 2


def test_the_interval_holds_the_median_with_95_percent():
    """By ranks: of n values, low and high leave out so many that the median lies beyond them with at most 5 %."""
    ends = {n: timing.spread(np.random.default_rng(n).permutation(n) + 1.0) for n in (4, 7, 8, 9, 11, 12, 25)}
    ranks = {n: (end["low"], end["high"]) for n, end in ends.items()}  # the tables of the sign test
    assert ranks == {4: (1, 4), 7: (1, 7), 8: (1, 8), 9: (2, 8), 11: (2, 10), 12: (3, 10), 25: (8, 18)}


def test_seconds_are_cpu_seconds_on_one_thread_only(machine, monkeypatch):
    """The wall clock of this machine runs ten times as fast."""
    for threads, seconds in ((1, 1.0), (2, 10.0)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert timing.time_rounds({"a": machine.function("a", 1.0)}, repeats=3)["a"].tolist() == [seconds] * 3


def test_cuda_is_synchronised_before_and_after_every_call(machine):
    run = machine.function("a", 1.0, queued=7.0)
    seconds = timing.time_rounds({"a": run}, repeats=3, warmup=1, device="cuda:0")["a"]
    assert machine.log == ["sync cuda:0", "clock", "a", "sync cuda:0", "clock"] * 4
    assert seconds.tolist() == [80.0] * 3  # of the wall clock; the queued work belongs to the call that queued it


@pytest.mark.parametrize("wrong", [{"repeats": 2}, {"device": "meta"}])
def test_refuses(wrong):
    with pytest.raises(ValueError, match="give 3 repeats or more, and cpu or cuda"):
        timing.time_rounds({"a": lambda: pytest.fail("must not run")}, **wrong)
