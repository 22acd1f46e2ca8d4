"""`run_script` runs what a script says, and fails where one of its commands does."""

import json

import pytest

from .run_sh import run_script

ROW = json.dumps({"id": "1", "prediction": "a b", "references": [["a c"]], "system": "base"})
SCRIPT = """
set -euo pipefail
for s in 1 2; do python -m shared.score "$1" --csv out-$s.csv; done
python -c 'print(input())' < "$1" | python -m shared.score - {flags} > table.txt
"""


def run(tmp_path, flags):
    script = tmp_path / "paper/experiments/corpus/run.sh"
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT.format(flags=flags))
    (tmp_path / "rows.jsonl").write_text(ROW + "\n")
    given = {"shared.score": {"--metric": "bleu"}}
    return run_script(script, [tmp_path / "rows.jsonl"], tmp_path / "here", given)


def test_a_script_runs_to_its_end(tmp_path):
    commands = run(tmp_path, "--metric none")
    assert [command[:2] for command in commands] == [["-m", "shared.score"]] * 3
    for name in ("out-2.csv", "table.txt"):
        assert "bleu" in (tmp_path / "here" / name).read_text()


def test_a_stale_flag_ends_the_script(tmp_path):
    with pytest.raises(AssertionError, match="(?s)ended with 2: .*--metrics"):
        run(tmp_path, "--metrics rouge")
