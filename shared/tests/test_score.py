"""score.py by known answers: values, intervals, paired tests, ROUGE and BLEU as published."""

import csv
import json
import re

import numpy as np
import pytest

pytest.importorskip("scipy")
sacrebleu = pytest.importorskip("sacrebleu")
pytest.importorskip("rouge_score")

from shared import rouge, score
from shared.data import Example
from shared.score import system_name

REFERENCES = [["the cat sat ."], ["a dog ran ."], ["it rained all day ."], ["we left ."]]


def rows(system: str = "a", seed: int = 0, texts=None, **measures) -> list[dict]:
    """A line a document; each measure has a value for each."""
    count = len(next(iter(measures.values()))) if measures else len(texts)
    return [
        {"id": str(n), "prediction": texts[n] if texts else "x", "references": [REFERENCES[n % 4]]}
        | {"system": system, "seed": seed, "note": "text is no measure"}
        | {name: values[n] for name, values in measures.items()}
        for n in range(count)
    ]


def of(table: list[dict], system: str, metric: str, minus: str | None = None) -> dict:
    wanted = system, metric, minus
    (row,) = [row for row in table if (row["system"], row["metric"], row["minus"]) == wanted]
    return row


def test_a_value_is_the_mean_over_documents_and_seeds():
    data = rows("a", 1, words=[1, 2, 3]) + rows("a", 2, words=[4.0, 5.0, 9.0])
    table = score.score(data + rows("b", 1, words=[1, 1, 1]), "none")
    row = of(table, "a", "words")
    assert row["value"] == 4 and row["documents"] == 3
    assert row["seeds"] == "2 6" and row["p"] is None
    keys = [(row["system"], row["minus"], row["metric"]) for row in table]
    assert keys == [("a", None, "words"), ("b", None, "words"), ("b", "a", "words")]
    assert of(table, "b", "words")["low"] == of(table, "b", "words")["high"] == 1


def test_a_pair_is_a_share_of_all_documents_together_in_percent():
    data = rows("a", 1, pruned=[[1, 2], [0, 8]]) + rows("a", 2, pruned=[[2, 2], [3, 8]])
    row = of(score.score(data, "none"), "a", "pruned")
    # not the means of 50 and 0, ...
    assert row["value"] == pytest.approx((10 + 50) / 2) and row["seeds"] == "10 50"
    assert (row["low"], row["high"]) == pytest.approx(((0 + 37.5) / 2, (50 + 100) / 2))

    # A rare share has an interval over the resamples that have it.
    data = rows("a", pruned=[[1, 2], [0, 0], [0, 0]]) + rows("b", pruned=[[2, 2], [0, 0], [0, 0]])
    table = score.score(data, "none")
    for row in (of(table, "a", "pruned"), of(table, "b", "pruned", "a")):
        assert (row["value"], row["low"], row["high"]) == (50, 50, 50)


def test_the_interval_over_seeds_is_students():
    """Seeds 1, 2, 3: 2 -+ 4.302653 / sqrt(3).

    Their differences 1, 1, 4: 2 -+ 4.302653 * sqrt(3) / sqrt(3).
    """
    data = []
    for seed, other in ((1, 2), (2, 3), (3, 7)):
        data += rows("a", seed, x=[seed] * 2) + rows("b", seed, x=[other] * 2)
    table = score.score(data, "none")
    own, difference = of(table, "a", "x"), of(table, "b", "x", "a")
    for row, half in ((own, 2.484138), (difference, 4.302653)):
        found = row["seeds_low"], row["seeds_high"]
        assert found == pytest.approx((2 - half, 2 + half), abs=1e-5)
    assert own["low"] == own["high"] == 2  # the documents are alike: all doubt is the seeds'
    assert of(score.score(rows("a", 1, x=[1, 2]), "none"), "a", "x")["seeds_low"] is None


@pytest.mark.parametrize("others", [(7,), (7, 8)])
def test_systems_of_other_seeds_are_compared_by_their_means(others):
    data = rows("a", 1, x=[1, 2, 3]) + rows("a", 2, x=[3, 4, 5])
    for seed in others:
        data += rows("b", seed, x=[4, 5, 6])
    row = of(score.score(data, "none"), "b", "x", "a")
    assert row["value"] == 2 and row["seeds_low"] is None and row["seeds"] is None
    assert (row["p"] is not None) == (len(others) == 2)


def test_differences_are_paired_by_document():
    """Each document is better by 1, but documents differ by 100: unpaired numbers see nothing."""
    base = np.linspace(-50, 50, 60)
    noise = np.random.default_rng(0).normal(size=60) / 10
    table = score.score(rows("a", x=list(base)) + rows("b", x=list(base + 1 + noise)), "none")
    row = of(table, "b", "x", "a")
    assert 0.9 < row["low"] < row["value"] < row["high"] < 1.1 and row["p"] < 0.001
    assert of(table, "b", "x")["high"] - of(table, "b", "x")["low"] > 10


def test_p_is_that_of_swapping_the_outputs_of_documents():
    """Differences 1, 2, 3: of the 8 signings +++ and --- alone reach |sum| 6, so p = 2/8.

    Equal systems: 1.
    """
    data = rows("a", x=[0.0] * 3) + rows("b", x=[1.0, 2.0, 3.0]) + rows("c", x=[0.0] * 3)
    table = score.score(data, "none", minus=["a", "b"])
    assert of(table, "b", "x", "a")["p"] == of(table, "c", "x", "b")["p"] == pytest.approx(0.25)
    assert of(table, "c", "x", "a")["p"] == 1
    # Of two seeds, a document's outputs are swapped together: differences of means 1, 2, 3 again.
    data = rows("a", 1, x=[0.0] * 3) + rows("b", 1, x=[0.5, 1.0, 1.5])
    data += rows("a", 2, x=[0.0] * 3) + rows("b", 2, x=[1.5, 3.0, 4.5])
    assert of(score.score(data, "none"), "b", "x", "a")["p"] == pytest.approx(0.25)


def test_lsum_splits_references_and_predictions_alike():
    """Two sentences exchanged: by sentences all words are common, in order only three of six."""
    text, exchanged = "the cat sat. on a mat.", "on a mat. the cat sat."
    lines = exchanged.replace(". ", ".\n")
    forms = (exchanged, [text]), (exchanged, text), (lines, ["the cat sat.", "on a mat."])
    data = []
    for n, (form, text) in enumerate(forms):
        row = {"id": n, "prediction": form, "references": [text]}
        data.append(row | {"system": "a", "seed": 0})
    table = score.score(data, "rouge")
    values = {row["metric"]: round(row["value"], 6) for row in table}
    assert values == {"rouge1": 100, "rouge2": 80, "rougeLsum": 100}
    assert all(row["low"] == row["high"] for row in table)  # all forms alike


TEXTS = ["The cat sat .", "a dog barked .", "it rained all the day .", "we left at noon ."]
OTHERS = ["the cat sat .", "the dog ran .", "rain .", "we left ."]


def test_bleu_is_sacrebleus():
    several = [[reference, ["the old " + reference[0]]] for reference in REFERENCES]
    pairs = zip(rows("a", 0, TEXTS) + rows("b", 0, OTHERS), several * 2, strict=True)
    data = [row | {"references": own} for row, own in pairs]
    table = score.score(data, "bleu")
    streams = [[own[k][0] for own in several] for k in (0, 1)]
    one, other = (sacrebleu.corpus_bleu(texts, streams).score for texts in (TEXTS, OTHERS))
    assert of(table, "a", "bleu")["value"] == pytest.approx(one)
    assert of(table, "b", "bleu")["value"] == pytest.approx(other)
    row = of(table, "b", "bleu", "a")
    assert row["value"] == pytest.approx(other - one)
    assert row["low"] < row["value"] < row["high"] and 0 < row["p"] <= 1
    settings = rouge.signature("bleu")
    assert "case:mixed" in settings and f"version:{sacrebleu.__version__}" in settings


def test_what_sacrebleu_warns_of_in_a_corpus_is_said(caplog):
    score.score(rows(texts=["we left ."] * 120), "bleu")
    assert "tokenized period" in caplog.text


BLANK = Example("2", [], [], [])
EXAMPLES = [
    Example("1", ["a b"], ["c"], [["c"]]),
    BLANK,
    Example("3", ["d"], ["e"], [["e"], ["f"]]),
]


def outputs(texts):
    for n, text in texts:
        yield {"id": n, "prediction": text, "words": 1, "was_cut": n == "3"}


def test_outputs_are_rows_lines_and_a_table(tmp_path, capsys):
    texts = [("1", "c"), ("3", "x")]
    score.write_outputs(outputs(texts), EXAMPLES, "l0", 4, tmp_path / "out.jsonl", metric="rouge")
    printed = capsys.readouterr()
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["prediction"] for row in written] == ["c", "", "x"]
    own = {"id": "3", "prediction": "x", "words": 1, "was_cut": True}
    more = {"references": [["e"], ["f"]], "system": "l0", "seed": 4, "metric": "rouge"}
    assert written[2] == own | more
    assert "| l0 " in printed.out and "50.00" in printed.out and "was_cut" not in printed.out
    assert "1 of 3 documents" in printed.err
    lines = (row | {"line": f"> {row['prediction']}"} for row in outputs(texts))
    score.write_outputs(lines, EXAMPLES, out=tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "> c\n\n> x\n"  # a blank line stays one
    capsys.readouterr()
    score.write_outputs(outputs(texts), EXAMPLES)
    assert (said := capsys.readouterr().out).startswith("c\n\nx\n| system")
    assert said.endswith(f"{rouge.signature('rouge1')} | n 2\n")
    score.write_outputs(outputs(texts[:1]), [Example("1", ["a"], [], []), BLANK])
    assert capsys.readouterr().out == "c\n\n"  # without references no table
    with pytest.raises(ValueError, match="exists"):
        score.write_outputs(outputs(texts), EXAMPLES, out=tmp_path / "out.txt")


def test_references_that_rouge_does_not_read_are_refused_before_decoding(capsys, tmp_path):
    example = Example("zh-1", ["a"], ["一只狗在睡觉。"], [["一只狗在睡觉。"]])

    def never():
        pytest.fail("was asked for a row")
        yield

    with pytest.raises(ValueError, match="zh-1; give --words unicode"):
        score.write_outputs(never(), [example], out=tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match="zh-1; give --tokenize zh"):
        score.write_outputs(never(), [example], out=tmp_path / "a.jsonl", metric="bleu")
    rows = outputs([("zh-1", "一只猫在睡觉。")])
    score.write_outputs(rows, [example], "a", out=tmp_path / "a.jsonl", words="unicode")
    assert "83.33" in (said := capsys.readouterr().out) and "WORDS ARE UNICODE'S" in said
    # the file by itself: asked for again
    for metric, flags, value in (("rouge", "--words unicode", "83.33"), ("bleu", *ZH)):
        with pytest.raises(SystemExit):
            score.main([str(tmp_path / "a.jsonl"), "--metric", metric])
        assert "1 of 1 documents have references in" in capsys.readouterr().err
        score.main([str(tmp_path / "a.jsonl"), "--metric", metric, *flags.split()])
        assert value in capsys.readouterr().out


# 6 of 7 characters, 4 of 6 pairs, 2 of 5 triples, 1 of 4 quadruples: 100 (6/7 4/6 2/5 1/4)^(1/4)
ZH = "--tokenize zh", "48.89"


def test_a_document_is_one_line_whatever_a_model_writes(tmp_path):
    """README: one document per line; the JSON keeps what was written, but for "line"."""
    text, examples = "a\nb\rc\x0bd\u2028e", [Example("1", ["a"], [], [])]
    for name, more in (("o.txt", {}), ("line.txt", {"line": "1:\ta"}), ("o.jsonl", {"line": "x"})):
        row = {"id": "1", "prediction": text} | more
        score.write_outputs([row], examples, out=tmp_path / name)
    assert (tmp_path / "o.txt").read_text() == "a b c d e\n"
    assert (tmp_path / "line.txt").read_text() == "1:\ta\n"
    written = json.loads((tmp_path / "o.jsonl").read_text())
    assert written["prediction"] == text and "line" not in written


def test_documents_without_reference_are_counted_here_and_there(tmp_path, capsys):
    """A reference without a word is none."""
    mixed = [Example("1", ["a"], ["a"], [["a"]]), Example("2", ["a"], [], [])]
    mixed.append(Example("3", ["a"], ["..."], [["..."]]))
    rows = outputs([("1", "a"), ("2", "b"), ("3", "c")])
    score.write_outputs(rows, mixed, "x", out=tmp_path / "o.jsonl")
    score.main([str(tmp_path / "o.jsonl")])
    printed = capsys.readouterr()
    assert printed.err.count("2 of 3 documents have no reference") == 2
    # no interval of one document
    assert printed.out.count("| x ") == 2 and "[" not in printed.out.split("means")[0]


def test_an_interval_and_a_p_that_disagree_are_explained(capsys):
    row = {"system": "a", "minus": None, "metric": "x", "documents": 3}
    row |= {"value": 1.0, "low": 0.1, "high": 2.0, "p": None}
    for p, is_said in ((0.2, True), (0.01, False)):
        score.report([row, row | {"system": "b", "minus": "a", "p": p}], "13a")
        assert ("take it as not shown" in capsys.readouterr().out) == is_said


@pytest.mark.parametrize(
    ("data", "minus", "message"),
    [
        (rows("a", x=[1, 2]) + rows("b", x=[1]), [], "b, seed 0 has 1 documents, the first run 2"),
        (rows("a", 1, x=[1, 2]) + rows("a", 2, x=[1, 2])[1:], [], "a, seed 2 has 1 documents"),
        (
            [rows("a", x=[1])[0], rows("b", x=[1])[0] | {"references": [["other"]]}],
            [],
            "b, seed 0: document 0 has other references than the first run",
        ),
        (rows("a", x=[1, 2]) * 2, [], "a, seed 0: documents come twice; is a file given twice"),
        (rows("a", x=[1]), ["b"], "no system 'b' to subtract; there are a"),
        ([*rows("a", x=[1]), rows("a", y=[1, 1])[1]], [], "document 1 has no 'x' like that of 0"),
        (rows("a", x=[1, [1, 2]]), [], "document 1 has no 'x' like that of 0"),
        (
            [rows("a", y=[1])[0], rows("a", x=[1, 1], y=[1, 1])[1]],
            [],
            "document 0 has no 'x' like that of 1",
        ),
        (rows("a", 1, x=[1]) + rows("a", 2, y=[1]), [], "a: not all of its seeds have x, y"),
    ],
)
def test_what_cannot_be_compared_is_refused(data, minus, message):
    with pytest.raises(ValueError, match=message):
        score.score(data, "none", minus)


@pytest.mark.parametrize(
    "form",
    [
        [["the café shut .", "we left ."], "we ran ."],
        ["the cafe\u0301 shut . we left .", "we ran ."],
        ["the café shut .\n we  left . ", "we ran ."],
        ["we ran .", "the café shut . we left ."],  # in another order
    ],
)
def test_references_are_compared_as_they_are_scored(form, tmp_path):
    """Public bug: a string and the list of its sentences were other documents."""
    row = {
        "id": 1,
        "prediction": "we left .",
        "references": ["the café shut . we left .", "we ran ."],
    }
    for name, references in (("a", row["references"]), ("b", form)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row | {"references": references}))
    table = score.score([row for name in "ab" for row in score.rows_of(tmp_path / f"{name}.jsonl")])
    assert of(table, "b", "rougeLsum", "a")["value"] == 0 < of(table, "b", "rougeLsum")["value"]


def test_seeds_of_one_system_have_one_name():
    runs = (
        ("base-1", 1),
        ("base_seed2", 2),
        ("base-seed10", 10),
        ("l0-1", 0),
        ("base11", 1),
        ("1", 1),
    )
    assert [system_name(*run) for run in runs] == ["base", "base", "base", "l0-1", "base11", "1"]


def test_the_command_makes_the_table_and_the_csv(tmp_path, capsys):
    runs = ("a", 1, [1, 2, 3]), ("a", 2, [2, 3, 4]), ("b", 1, [3, 5, 9]), ("b", 2, [4, 5, 6])
    files, data = [], []
    for system, seed, x in runs:
        files.append(tmp_path / f"{system}-{seed}.jsonl")
        own = rows(system, seed, x=x)
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in own))
        data += own
    score.main([*map(str, files), "--metric", "none", "--csv", str(tmp_path / "new" / "t.csv")])
    printed = capsys.readouterr().out
    table = score.score(data, "none")
    difference = of(table, "b", "x", "a")
    shown = "+{value:.2f} [{low:.2f}, {high:.2f}]".format(**difference)
    assert shown in printed and "minus a" in printed
    assert printed.splitlines()[-1].endswith("n 3")
    with (tmp_path / "new" / "t.csv").open() as file:
        written = list(csv.DictReader(file))
    assert list(written[0]) == list(table[0])
    assert [row["system"] for row in written] == ["a", "b", "b"]
    assert float(written[2]["high"]) == pytest.approx(difference["high"], rel=1e-5)
    assert written[2]["seeds"]
    own = {"id": "0", "prediction": ["a b"], "references": "a c", "system": None}
    (tmp_path / "own.jsonl").write_text(json.dumps(own))
    # a file without names is a system of its own; one string one reference
    score.main([str(tmp_path / "own.jsonl")])
    assert "| own " in (said := capsys.readouterr().out) and "50.00" in said


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "no outputs to score: give files that predict wrote with --out"),
        ('{"id": 1, "prediction": "a", "references": []}', "no document has a reference"),
        ('{"prediction": "a", "references": ["a"]}', "a.jsonl: document None lacks"),
        (
            '{"id": 1, "prediction": null, "references": ["a"]}',
            "a.jsonl: document 1 lacks an id or a prediction",
        ),
        (
            '{"id": 1, "prediction": "a", "references": [null]}',
            "a.jsonl: document 1 .* a reference is no text",
        ),
        (
            '{"id": 1, "prediction": "a", "references": ["a"], "rouge1": 7}',
            "a field is called 'rouge1', like a score: rename it",
        ),
    ],
)
def test_a_file_without_outputs_is_refused_in_one_line(tmp_path, capsys, lines, message):
    (tmp_path / "a.jsonl").write_text(lines)
    with pytest.raises(SystemExit) as ended:
        score.main([str(tmp_path / "a.jsonl")])
    said = capsys.readouterr().err
    assert ended.value.code == 2 and re.search(message, said) and said.count("\n") == 1
