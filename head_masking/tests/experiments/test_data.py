"""The corpora that samsum/run.sh and scitldr/run.sh make: no document is in two splits."""

import json
import runpy
import sys

import pytest

pytest.importorskip("shared")

from shared.data import load

PACKAGE = __package__.split(".")[0]


def ids(folder, split):
    return [example.id for example in load(str(folder), split)]


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def dialogues(name, count):
    rows = [dict(document=["hi .", f"we meet {i}", "ok"], summary=f"they meet at {i}") for i in range(count)]
    return [row | {"id": f"{name}-{i}"} for i, row in enumerate(rows)]


def make(monkeypatch, module, *arguments):
    monkeypatch.setattr(sys, "argv", [module, *map(str, arguments)])
    runpy.run_module(f"{PACKAGE}.experiments.{module}.data", run_name="__main__")


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")
def test_dialogues_are_divided_as_the_text_says(tmp_path, monkeypatch):
    for folder, sizes in (("sam", dict(train=5, validation=403, test=2)), ("other", dict(train=243, validation=4))):
        for split, count in sizes.items():
            (tmp_path / folder).mkdir(exist_ok=True)
            write(tmp_path / folder / f"{split}.jsonl", dialogues(split, count))
    make(monkeypatch, "samsum", tmp_path / "out", tmp_path / "sam", tmp_path / "other")
    names = [f"validation-{i}" for i in range(403)]
    out = tmp_path / "out"
    assert ids(out / "sam", "train") == [f"train-{i}" for i in range(5)]
    assert (ids(out / "sam", "validation"), ids(out / "sam", "test")) == (names[400:], names[:400])
    assert ids(out / "sam-test", "test") == ["test-0", "test-1"]
    turns = load(str(out / "turns-data"), "train")
    assert [turn.id for turn in turns] == [f"train-{i}-{n}" for i in range(5) for n in range(4)]
    said = {sentence for turn in turns for sentence in turn.summary}
    assert said == {f"we meet {i}" for i in range(5)}  # the one turn of three words
    assert ids(out / "turns-data", "validation") == [f"{name}-0" for name in names[400:]]
    assert ids(out / "dialogues", "train") == [f"train-{i}" for i in range(240)]
    assert ids(out / "dialogues", "validation") == [f"train-{i}" for i in range(240, 243)]
    assert ids(out / "dialogues", "test") == [f"validation-{i}" for i in range(4)]
