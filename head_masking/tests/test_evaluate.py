"""What evaluate yields and scores: systems, heads, seeds, and the flags that reach it."""

import csv
import json

import pytest

pytest.importorskip("shared")

from shared.data import load
from shared.score import score

from .. import evaluate as evaluating
from ..decode import Setting, decode, encode, read_documents, tag
from ..evaluate import Options, evaluate, main
from ..loading import load_run
from .conftest import DATA

GENERATION = dict(num_beams=2, max_length=10)


def test_table_1_has_the_outputs_of_every_setting(runs):
    """Baseline, oracle masking and masking by taggers; every row decodes what its setting says."""
    examples, heads = load(DATA, "test", 5), {1: [0, 1, 2, 3], 2: [1]}
    run, taggers = load_run(runs / "base-0"), {name: load_run(runs / name) for name in ("tagger", "weak")}
    rows = list(evaluate({"base-0": run}, examples, taggers, "1:0-3,2:1", True, batch_size=3, **GENERATION))
    systems = ["tagger", "weak", "base", "base+oracle", "base+tagger", "base+weak"]
    assert list(dict.fromkeys(row["system"] for row in rows)) == systems and len(rows) == 6 * 5
    assert {row["heads"] for row in rows if row["run"] == "base-0"} == {"", "1:0-3,2:1"}
    tagged = {"system:tagger": tag(taggers["tagger"], [example.source for example in examples])}
    documents = read_documents(run, examples, tagged, oracle=True)
    kinds = {"base": "plain", "base+oracle": "oracle", "base+tagger": "system:tagger"}
    settings = {system: Setting(kind, heads if system != "base" else {}) for system, kind in kinds.items()}
    found = {(row["system"], row["id"]): row["prediction"] for row in rows}
    for system, i, _, text in decode(run, documents, settings, encode(run.model, documents), **GENERATION):
        assert found[system, examples[i].id] == text
    assert [row["references"] for row in rows[:5]] == [example.references for example in examples]


def test_each_tagger_masks_each_summariser_and_seeds_are_one_system(runs):
    examples = load(DATA, "test", 3)
    summarizers = {name: load_run(runs / name) for name in ("base-0", "base-1")}
    taggers = {"tagger": load_run(runs / "tagger")}
    rows = list(evaluate(summarizers, examples, taggers, "1:0-1", **GENERATION))
    pairs = list(dict.fromkeys((row["system"], row["seed"]) for row in rows))
    assert pairs == [("tagger", 0), ("base", 0), ("base+tagger", 0), ("base", 1), ("base+tagger", 1)]
    table = score(rows, minus=["base"])
    [row] = [r for r in table if (r["system"], r["minus"], r["metric"]) == ("base+tagger", "base", "rouge1")]
    assert len(row["seeds"].split()) == 2
    measures = {row["metric"] for row in table if row["system"] == "tagger"}
    assert measures >= {"rouge1", "token_f1", "precision", "recall", "selected", "f1_of_all", "threshold"}


def test_d14_without_heads_those_of_the_top_layer_are_masked(runs):
    """D14: Appendix B names no heads for a small model; without labels no heads are sought."""
    run, examples = load_run(runs / "base-0"), load(DATA, "test", 2)
    rows = list(evaluate({"base": run}, examples, oracle=True, **GENERATION))
    assert {row["system"]: row["heads"] for row in rows} == {"base": "", "base+oracle": "2:0-3"}
    assert {row["heads"] for row in evaluate({"base": run}, examples, **GENERATION)} == {""}


def test_outputs_and_the_table_are_written(runs, tmp_path, capsys):
    out, table = tmp_path / "out", tmp_path / "table.csv"
    flags = [str(runs / "base-0"), "--tagger", str(runs / "tagger"), "--limit", "3", "--max-length", "8", "--beam", "1"]
    main([*flags, "--min-run", "2", "--predictions", str(out), "--csv", str(table)])
    assert "base+tagger" in capsys.readouterr().out
    assert {row["system"] for row in csv.DictReader(table.open())} == {"tagger", "base", "base+tagger"}
    rows = [json.loads(line) for path in sorted(out.iterdir()) for line in path.read_text().splitlines()]
    assert [row["system"] for row in rows] == ["base"] * 3 + ["base+tagger"] * 3 + ["tagger"] * 3
    with pytest.raises(SystemExit):
        main([*flags, "--predictions", str(out)])
    assert "base-0.jsonl exists" in capsys.readouterr().err


def test_every_flag_reaches_what_it_says(runs, monkeypatch):
    call = {}

    def enough(*arguments, **generation):
        call.update(arguments=arguments, generation=generation)
        raise ValueError("enough")

    monkeypatch.setattr(evaluating, "evaluate", enough)
    flags = ["--heads", "1:1", "--oracle", "--data", DATA, "--split", "validation", "--limit", "3", "--min-keep", "7"]
    flags += ["--threshold", "0.33", "--beam", "3", "--max-length", "9", "--no-repeat-ngram-size", "2"]
    with pytest.raises(SystemExit):
        main([str(runs / "base-0"), "--tagger", str(runs / "weak"), *flags, "--batch-size", "2"])
    summarizers, stories, taggers, *rest = call["arguments"]
    assert list(summarizers) == ["base-0"] and stories == load(DATA, "validation", 3)
    assert rest == ["1:1", True, 2, 7, 2]  # the shortest run that is labelled is the tagger's
    assert abs(taggers["weak"].model.threshold.item() - 0.33) < 1e-6
    assert call["generation"] == dict(num_beams=3, max_length=9, no_repeat_ngram_size=2)


def test_decoding_is_the_models_own_or_appendix_a():
    assert Options(runs=("x",)).generation() == {}
    given = Options(runs=("x",), decoding="cnn_dailymail", max_length=90, no_repeat_ngram_size=2).generation()
    assert given == dict(num_beams=5, length_penalty=2.0, min_length=55, max_length=90, no_repeat_ngram_size=2)
