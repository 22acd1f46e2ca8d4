"""Summarisers as experiments/summarizer.py trains them, hardly trained."""

import pytest

DATA = "toy:count=24,seed=5"


@pytest.fixture(scope="session")
def summarizers(tmp_path_factory):
    """A folder of two runs, base-0 and base-1."""
    from ...experiments.summarizer import main

    folder = tmp_path_factory.mktemp("summarizers")
    for seed in (0, 1):
        main(flags(folder / f"base-{seed}", "--seed", seed))
    return folder


def flags(out, *more) -> list[str]:
    """Of a small training."""
    sizes = (
        "--width 16 --feed-forward 16 --vocabulary 500 --max-target 24 --batch-size 8 --steps 4 --save-every 2".split()
    )
    return [str(flag) for flag in ("--out", out, "--data", DATA, "--warmup", 2, *sizes, *more)]
