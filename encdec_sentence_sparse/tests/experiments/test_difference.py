"""Differences of predictions, paired by document and averaged over seeds."""

import pytest

pytest.importorskip("shared")

from shared.data import write_jsonl

from ...experiments.difference import main, read_predictions, scores


def test_a_difference_is_of_each_documents_mean_over_seeds(tmp_path, capsys):
    """R-1 by hand: 100 and 50 against 50 and 50 with seed 3, 50 and 50 against 100 and 50 with seed 4."""
    good, half = ["a b", "c d"], ["a x", "c x"]
    mixed = [good[0], half[1]]
    for seed, texts in ((3, (mixed, half)), (4, (half, mixed))):
        for name, found in zip(("apx", "control"), texts, strict=True):
            rows = [{"id": i, "prediction": text, "reference": good[i]} for i, text in enumerate(found)]
            path = tmp_path / f"predictions_{seed}" / f"{name}-{seed}.approx.r2.jsonl"
            path.parent.mkdir(exist_ok=True)
            write_jsonl(path, rows if name == "apx" else rows[::-1])  # the order of lines does not matter
    folders = [str(tmp_path / f"predictions_{seed}") for seed in (3, 4)]
    assert scores(read_predictions(tmp_path / "predictions_3", "apx.approx.r2")).tolist() == pytest.approx([100, 50])
    main([*folders, "--systems", "apx.approx.r2", "control.approx.r2"])
    printed = capsys.readouterr().out
    assert "apx.approx.r2 minus control.approx.r2" in printed and "0.0" in printed and "+25.0, -25.0" in printed
    main([folders[0], "--systems", "apx.approx.r2", "control.approx.r2"])
    assert "+25.0" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([folders[0], "--systems", "apx.approx.r2", "none.approx.r2"])
    assert "none-3.approx.r2.jsonl" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prediction": None}, "kl-0.full.jsonl is not what evaluate --predictions writes"),
        ({"reference": ["a"]}, "is not what evaluate"),
        ({"id": 3}, "not of the same documents"),
        ({"reference": "b ."}, "not of the same documents"),
    ],
)
def test_predictions_that_are_no_pairs_are_refused(tmp_path, capsys, row, message):
    """Rows are paired by their place: those of other documents would give a number that means nothing."""
    whole, folder = {"id": "a", "prediction": "a b", "reference": "a c"}, tmp_path / "predictions_0"
    folder.mkdir()
    for name, rows in (("kl", [whole | row]), ("base", [whole])):
        write_jsonl(folder / f"{name}-0.full.jsonl", rows)
    with pytest.raises(SystemExit):
        main([str(folder), "--systems", "kl.full", "base.full"])
    assert message in capsys.readouterr().err
