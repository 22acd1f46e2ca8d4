"""The demo's end: what it prints, and that it fails where the effect does not show."""

import pytest

pytest.importorskip("shared")

from ...experiments.demo import main  # noqa: E402


def test_the_demo_says_what_was_seen_and_fails_without_the_effect(whole, capsys):
    with pytest.raises(SystemExit) as stop:
        main([str(whole["base"]), str(whole["scratch"]), "--limit", "3"])
    shown = capsys.readouterr()
    assert stop.value.code == 2 and "the effect does not show" in shown.err
    story, prediction, reference, line = shown.out.splitlines()[-4:]
    assert story.startswith("story:") and prediction.startswith("prediction:") and reference.startswith("reference:")
    assert "% of the encodings pruned: ROUGE-1" in line and line.endswith("0 of 3 summaries exact")
