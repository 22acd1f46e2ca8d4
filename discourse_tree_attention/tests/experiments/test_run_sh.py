"""Each run.sh from its first line to its last, with tiny numbers and a stand-in for the parser."""

import functools
import json
from pathlib import Path

import pytest

pytest.importorskip("shared")
pytest.importorskip("shared.tests.run_sh")
pytest.importorskip("matplotlib")

from shared import pretrained
from shared.tests.run_sh import run_script

from ...loading import load
from ...text import random_encoder
from .test_parse import stand_in

ROOT = Path(__file__).parents[3]
PACKAGE = "discourse_tree_attention"
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
TINY = {"SEEDS": "0", "FOLDS": "0", "STEPS": "2", "SYSTEMS": "none", "ONLY": "dot"}
# Takes the place of the package aclsum: three papers a split.
ACLSUM = """
class Paper:
    summaries = dict.fromkeys(("challenge", "approach", "outcome"), "a storm came")
    def __init__(self, id): self.id = id
    def get_all_sentences(self): return ["a storm came .", "nobody was hurt ."]
def ACLSum(split): return [Paper(f"{split}{n}") for n in range(3)]
"""


def write_corpus(folder):
    """Toy stories as train, dev and test, with their trees."""
    for name, split in {"train": "train", "dev": "validation", "test": "test"}.items():
        (folder / name).mkdir(parents=True)
        with (folder / f"{name}.jsonl").open("w") as file:
            for story in load("toy:signal=0,count=4,max_sentences=8", split):
                row = {"id": story.id, "document": story.document, "summary": story.summary}
                file.write(json.dumps(row) + "\n")
                (folder / name / f"{story.id}.dis").write_text(story.tree)


@pytest.mark.skipif(
    EXPERIMENTS.parts[-2] != PACKAGE, reason="the scripts have the package's first name"
)
@pytest.mark.parametrize("corpus", ["aclsum", "bbc", "gum", "scitldr", "toy"])
def test_each_script_runs_to_its_end(tmp_path, monkeypatch, corpus):
    encoder = random_encoder([story.source for story in load("toy:count=5")], width=16)
    encoder.model.save_pretrained(tmp_path / "minilm")
    encoder.tokenizer.save_pretrained(tmp_path / "minilm")
    write_corpus(tmp_path / "CORPUS")
    stand_in(monkeypatch)
    (tmp_path / "aclsum.py").write_text(ACLSUM)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr(pretrained, "load", functools.cache(pretrained.load))  # each encoder once
    # One process has one precision.
    flags, controls = {f"{PACKAGE}.experiments.controls train": {"--mixed-precision": "no"}}, ""
    if corpus == "toy":
        small = {"--data": "toy:signal=0,count=6,max_sentences=8"}
        flags, controls = {f"{PACKAGE}.experiments.controls": small}, "previous d_tree-shuffled"
    script = EXPERIMENTS / corpus / "run.sh"
    run_script(script, ["CORPUS"], tmp_path, flags, MINILM="minilm", CONTROLS=controls, **TINY)
