"""The lesson holds for other seeds, too: its own asserts are the test (`nox -s lesson` runs seed 0)."""

from pathlib import Path

import pytest

PACKAGE = "head_masking"


@pytest.mark.parametrize("seed", [1, 2])
def test_the_lesson_holds_for_other_seeds(seed, monkeypatch):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setattr(pyplot, "show", lambda: pyplot.close("all"))
    path = Path(__file__).parents[1] / "lesson.py"
    source = path.read_text(encoding="utf-8")
    assert source.count("\nseed = 0\n") == 1
    here = __package__.removesuffix(".tests")  # of a copy, another one
    source = source.replace("\nseed = 0\n", f"\nseed = {seed}\n").replace(f"from {PACKAGE}", f"from {here}")
    exec(compile(source, path, "exec"), {"__name__": "lesson"})
