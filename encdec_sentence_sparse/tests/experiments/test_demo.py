"""The demo's end: what it prints, and that it fails where the effect does not show."""

from dataclasses import replace

import pytest

pytest.importorskip("shared")

from ...experiments import demo
from ...experiments.demo import main
from ...train import train
from ..test_train import SMALL


def test_the_demo_says_what_was_seen_and_fails_without_the_effect(tmp_path, capsys, monkeypatch):
    train(replace(SMALL, steps=2), tmp_path / "base")
    train(replace(SMALL, steps=2, init=str(tmp_path / "base"), task="kl"), tmp_path / "kl")
    names = [str(tmp_path / "base"), str(tmp_path / "kl"), "--limit", "3"]
    with pytest.raises(SystemExit) as stop:
        main(names)
    shown = capsys.readouterr()
    assert stop.value.code == 2 and "the effect does not show" in shown.err
    story, prediction, reference, line = shown.out.splitlines()[-4:]
    assert story.startswith("story:") and prediction.startswith("prediction:") and reference.startswith("reference:")
    assert line.startswith("2 of ") and "ROUGE-1" in line and line.endswith("0 of 3 summaries exact")
    scores = {"base.full": 90.0, "base.ideal.r2": 89.5, "base.random.r2": 40.0, "learned.approx.r2": 88.0}
    found = {"systems": {name: {"rouge1": {"mean": score}} for name, score in scores.items()}}
    found["runs"] = {"base": {"source_sentences": 9.0}}
    monkeypatch.setattr(demo, "evaluate", lambda *a, **k: found)
    monkeypatch.setattr(demo, "decode_all", lambda run, items, selections, examples: [[e.target for e in examples]])
    main(names)
    line = capsys.readouterr().out.splitlines()[-1]
    assert line == (
        "2 of 9 sentences at each step, chosen by the learned map: ROUGE-1 88.0; all sentences 90.0, "
        "ideally chosen 89.5, at random 40.0; 3 of 3 summaries exact"
    )
    for low in ("learned.approx.r2", "random"):  # too far below all sentences; not above the random choice
        worse = {"learned.approx.r2": 80.0} if low != "random" else {"base.random.r2": 80.0}
        found["systems"] |= {name: {"rouge1": {"mean": score}} for name, score in (scores | worse).items()}
        with pytest.raises(SystemExit):
            main(names)
