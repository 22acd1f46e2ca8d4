"""`run_sh.run_script` runs what a script says, and fails where one of its commands does."""

import json

import pytest

from .run_sh import run_script

ROW = json.dumps({"id": "1", "prediction": "a b", "references": [["a c"]], "system": "base", "seed": 1})
SCRIPT = """
set -euo pipefail
mkdir -p out
for s in 1 2; do python -m shared.score "$1" --csv out/base-$s.csv; done
python -m shared.score "$1" {flags} > out/table.txt
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "rows.jsonl").write_text(ROW + "\n")

    def run(flags, more):
        script = tmp_path / "paper/experiments/corpus/run.sh"
        script.parent.mkdir(parents=True)
        script.write_text(SCRIPT.format(flags=flags))
        return run_script(script, [tmp_path / "rows.jsonl"], tmp_path / "here", {"shared.score": more})

    return run


def test_commands_run_and_those_that_differ_in_numbers_are_copied(run, tmp_path):
    commands = run("--metric none", {"--metric": "bleu"})
    assert [command[:2] for command in commands] == [["-m", "shared.score"]] * 2
    out = tmp_path / "here/out"
    assert (out / "base-2.csv").read_text() == (out / "base-1.csv").read_text() != ""
    assert "bleu" in (out / "table.txt").read_text()


def test_a_stale_flag_ends_the_script(run):
    with pytest.raises(AssertionError, match="(?s)ended with 2: .*--metrics"):
        run("--metrics rouge", {})
