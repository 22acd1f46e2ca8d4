"""The demo's end: what it prints, and that it fails where trees do not help."""

import pytest

pytest.importorskip("shared")

from ...config import TrainConfig
from ...experiments import demo
from ...train import train

SMALL = dict(units_taken=2, head_width=32, feed_forward=64, batch_size=16, steps=110, save_every=110, warmup=20)
DATA = "toy:signal=0,count=200,min_sentences=8,max_sentences=8,min_facts=2,max_facts=2"


def test_the_demo_shows_a_right_extract_and_fails_without_the_effect(tmp_path, capsys):
    for name in ("none", "d_tree"):
        train(TrainConfig(DATA, attention=name, **SMALL), tmp_path / name)
    capsys.readouterr()
    runs = [str(tmp_path / "none"), str(tmp_path / "d_tree")]
    demo.main([*runs, "--limit", "60", "--least", "0.1"])
    lines = dict(line.split(":", 1) for line in capsys.readouterr().out.strip().splitlines())
    assert list(lines) == ["story", "no tree", "prediction", "reference", "exactly the main facts extracted"]
    # The clauses extracted tell of the people that the reference names; those of the other run do not.
    people = [part.split(" by ")[1].split(" .")[0] for part in lines["reference"].split(" in ") if " by " in part]
    assert people and all(name in lines["prediction"] for name in people)
    assert not all(name in lines["no tree"] for name in people)
    with pytest.raises(SystemExit) as stop:
        demo.main([*runs[::-1], "--limit", "60"])
    assert stop.value.code == 2 and "the effect does not show" in capsys.readouterr().err
