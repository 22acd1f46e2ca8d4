"""`run_sh.run_script` runs what a script says, with the given flags, and fails where one of its
commands does.
"""

import json

import pytest

from .run_sh import run_script

ROW = json.dumps(
    {"id": "1", "prediction": "a b", "references": [["a c"]], "system": "base", "seed": 1}
)
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
    return run_script(
        script, [tmp_path / "rows.jsonl"], tmp_path / "here", {"shared.score": {"--metric": "bleu"}}
    )


def test_a_script_runs_to_its_end(tmp_path):
    assert [command[:2] for command in run(tmp_path, "--metric none")] == [
        ["-m", "shared.score"]
    ] * 3
    assert (
        "bleu" in (tmp_path / "here/out-2.csv").read_text()
        and "bleu" in (tmp_path / "here/table.txt").read_text()
    )


def test_a_stale_flag_ends_the_script(tmp_path):
    with pytest.raises(AssertionError, match="(?s)ended with 2: .*--metrics"):
        run(tmp_path, "--metrics rouge")
