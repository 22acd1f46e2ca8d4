"""A summariser as experiments/summarizer.py trains it, hardly trained."""

import pytest

DATA = "toy:count=24,seed=5"


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """A run, base-0."""
    from ...experiments.summarizer import main

    folder = tmp_path_factory.mktemp("summarizers") / "base-0"
    main(flags(folder))
    return folder


def flags(out, *more) -> list[str]:
    """Of a small training."""
    sizes = (
        "--width 16 --feed-forward 16 --vocabulary 500 --max-target 12 --batch-size 8 --steps 4 "
        "--save-every 2"
    )
    return [
        str(flag) for flag in ("--out", out, "--data", DATA, "--warmup", 2, *sizes.split(), *more)
    ]
