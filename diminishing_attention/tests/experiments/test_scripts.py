"""Each run.sh from its first line to its last, with tiny numbers; it makes all its tables."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from scipy import stats

pytest.importorskip("shared")
if not __package__.startswith("diminishing_attention."):
    pytest.skip(
        "the scripts' commands are those of a package of that name", allow_module_level=True
    )

from shared.tests.run_sh import run_script

from ...experiments.samsum.join import join

PACKAGE = Path(__file__).parents[2]
TRAIN = {"--steps": 1, "--vocabulary": 5, "--hidden": 4, "--max-source": 40, "--max-target": 9}
PREDICT = {"--beam": 2, "--min-length": 0, "--max-length": 4}
COMMANDS = {"train": TRAIN, "predict": PREDICT, "experiments.baselines": {}}
for control in ("plain_copy", "renormalised"):
    COMMANDS |= {
        f"experiments.controls {control} {command}": COMMANDS[command]
        for command in ("train", "predict")
    }


@pytest.fixture
def run(monkeypatch, tmp_path):
    """run(corpus, arguments, data): run its run.sh, with a --data for all.

    Intervals, which take long, are made up.
    """
    monkeypatch.setattr(
        stats, "bootstrap", lambda *a, **k: SimpleNamespace(bootstrap_distribution=[-999, 999])
    )
    monkeypatch.setattr(stats, "permutation_test", lambda *a, **k: SimpleNamespace(pvalue=1.0))

    def run(corpus: str, *arguments: str, data: dict | None = None, **environment: str) -> None:
        flags = {f"{PACKAGE.name}.{name}": more | (data or {}) for name, more in COMMANDS.items()}
        script = PACKAGE / f"experiments/{corpus}/run.sh"
        run_script(script, arguments, tmp_path, flags, SEEDS="0", **environment)
        for table in script.parent.glob("*.csv"):
            assert (
                tmp_path / table.relative_to(PACKAGE.parent)
            ).read_text() != table.read_text(), table.name

    return run


def write_corpus(folder: Path) -> str:
    """Dialogues with titles, the same in all splits; an untrained model copies its word."""
    folder.mkdir()
    lines = []
    for number, pet in enumerate(("cats", "dogs", "cows", "mice", "ants", "bees")):
        row = {"id": str(number), "title": pet, "summary": [f"dora has {pet} ."]}
        row["document"] = [f"{pet} {pet} {pet} {pet}", "ok"]
        lines.append(json.dumps(row) + "\n")
    for split in ("train", "validation", "test"):
        (folder / f"{split}.jsonl").write_text("".join(lines))
    return str(folder)


def test_toy(run):
    run("toy", data={"--data": "toy:count=6,repetition=0.8"})


def test_samsum(run, tmp_path):
    run("samsum", write_corpus(tmp_path / "samsum"))


def test_bbc(run, tmp_path):
    news = tmp_path / "news"
    news.mkdir()
    sentences = [f"{word} have cats ." for word in ("dogs", "cows", "mice", "ants")]
    rows = [
        {"id": f"n{i}", "document": sentences, "summary": sentences[:3], "salient": [True] * 4}
        for i in range(6)
    ]
    for split in ("train", "validation", "test"):
        (news / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run("bbc", str(news), write_corpus(tmp_path / "samsum"))


def test_titles(run, tmp_path, encoder):
    pytest.importorskip("bert_score")
    pytest.importorskip("ot")
    run("titles", write_corpus(tmp_path / "scitldr"), encoder)


def test_joined_dialogues_follow_each_other_and_a_rest_is_left_out():
    rows = [{"id": str(i), "document": [f"a{i}", f"b{i}"], "summary": [f"s{i}"]} for i in range(5)]
    joined = {"id": "0+1", "document": ["a0", "b0", "a1", "b1"], "summary": ["s0", "s1"]}
    assert [row["id"] for row in join(rows, 2)] == ["0+1", "2+3"] and join(rows, 2)[0] == joined
    assert [row["id"] for row in join(rows)] == ["0+1+2"]
