"""Every run.sh, from its first command to its last, with tiny numbers."""

import csv
import json
import random
import shutil
from pathlib import Path

import pytest

pytest.importorskip("shared")
pytest.importorskip("transformers")
pytest.importorskip("matplotlib")

from ...experiments import benchmark

EXPERIMENTS = Path(benchmark.__file__).parent
if not __package__.startswith("l0drop."):
    pytest.skip(
        "the scripts' commands are those of a package named l0drop", allow_module_level=True
    )

from shared.tests.run_sh import run_script

SIZES = {"--width": 16, "--feed-forward": 16, "--heads": 2}
SIZES |= {"--encoder-layers": 1, "--decoder-layers": 1}
STEPS = {"--steps": 2, "--save-every": 2, "--average-last": 1, "--mixed-precision": "no"}
SHORT = {"--limit": 2, "--max-length": 4, "--beam": 1}


@pytest.fixture(autouse=True)
def no_drawing(monkeypatch):
    """test_figures.py draws."""
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda self, path, **options: path.touch()
    )


@pytest.fixture
def texts(tmp_path):
    """A folder with parallel text, and with documents and their summaries, of a few words."""
    random.seed(0)
    lines = [
        " ".join(random.choices(["a", "cab", "abcab"], k=random.randint(2, 5))) for _ in range(4)
    ]
    rows = [{"document": [line, "b ."], "summary": [line]} for line in lines]
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        for language in ("en", "de"):
            (tmp_path / f"{split}.{language}").write_text("".join(f"{line} .\n" for line in lines))
    return tmp_path


def test_multi30k(texts, tmp_path, stanza):
    flags = {"l0drop.train": SIZES | STEPS, "l0drop.experiments.rules train": STEPS}
    flags |= {"l0drop.predict": SHORT, "l0drop.experiments.rules predict": SHORT}
    # faster intervals
    flags |= {"l0drop.experiments.figures": {"--limit": 2}, "shared.score": {"--metric": "rouge"}}
    run_script(EXPERIMENTS / "multi30k/run.sh", [texts, ""], tmp_path, flags, SEEDS="2", RULES="")


def test_samsum(texts, tmp_path, stanza, bart_folder):
    shutil.copytree(bart_folder, tmp_path / "bart-0")
    flags = {"l0drop.experiments.bart train": STEPS | {"--max-source": 30, "--max-target": 30}}
    flags |= {"l0drop.experiments.bart predict": SHORT}
    arguments = [texts, "", bart_folder, bart_folder]
    run_script(EXPERIMENTS / "samsum/run.sh", arguments, tmp_path, flags, SEEDS="0")


def test_speed(tmp_path):
    flags = {"l0drop.experiments.benchmark": {"--repeats": 2, "--lengths": 100}}
    run_script(EXPERIMENTS / "speed/run.sh", [], tmp_path, flags, QUICK="--quick")
    folder = tmp_path / "runs/l0drop/experiments/speed"  # the table of the paper's sizes stays
    assert (folder / "speed.png").exists()
    for length in (100, 400, 2048):
        rows = list(csv.DictReader((folder / f"benchmark_{length}.csv").open(encoding="utf-8")))
        sides = {row["side"]: row for row in rows}
        assert sides.keys() >= {"expanded", "expanded, pruned", "shared", "shared, pruned"}
        assert sides.keys() >= {"generate", "update, no gates", "update, gates"}
        assert float(sides["expanded"]["x expanded_median"]) == 1
        for row in rows:
            seconds = [float(row[f"seconds_{end}"]) for end in ("low", "median", "high")]
            assert 0 < seconds[0] <= seconds[1] <= seconds[2]
            assert (row["device"], row["precision"], row["threads"]) == ("cpu", "float32", "1")


def test_every_script_is_run():
    assert all(f"test_{path.parent.name}" in globals() for path in EXPERIMENTS.glob("*/run.sh"))
