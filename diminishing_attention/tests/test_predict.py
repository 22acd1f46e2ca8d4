"""What predict measures of an output, how it hands its flags on, and the command itself."""

import csv
import json
from dataclasses import replace

import pytest

pytest.importorskip("shared")

from shared import score
from shared.data import Example, in_sentences, load

from .. import predict as command
from ..loading import Run, load_run
from ..predict import main, measure, novel_share, predict, repetition_ratio
from ..text import EOS
from .conftest import PAIRS, SMALL

TEXTS = ["Mara Kelman opened a bridge . It rained .", "", "A storm hit the town hall today . " * 4, "One ."]


def test_measures_of_one_text_by_hand():
    """Words without punctuation; the overlap is with the first sentences of the document."""
    document = ["a storm hit the town .", "schools closed .", "rain fell .", "the sun came back ."]
    found = measure("a storm hit . a storm hit .", document, lead=3)
    assert found["words"] == 6
    assert found["repetition1"] == pytest.approx(50) and found["repetition3"] == pytest.approx(25)
    assert found["novel1"] == 0 and found["novel2"] == pytest.approx(20)  # "hit a"
    # Against the lead of 3 sentences, 9 words: "a storm hit" is shared.
    assert found["lead_rouge1"] == pytest.approx(100 * 2 * (3 / 6) * (3 / 9) / (3 / 6 + 3 / 9))
    names = [f"repetition{n}" for n in range(1, 6)] + [f"novel{n}" for n in range(1, 5)]
    assert list(found) == ["words", *names, "lead_rouge1", "lead_rouge2", "lead_rougeLsum"]
    assert measure("राम", ["राम आया"])["words"] == 1  # no ROUGE of another script


def test_d11_repetition_counts_every_occurrence_after_the_first():
    """D11: "a man a plan a canal a plan": 1-grams a 4, plan 2, man, canal; of 2-grams "a plan" twice."""
    words = "a man a plan a canal a plan".split()
    assert repetition_ratio(words, 1) == pytest.approx(4 / 8)
    assert repetition_ratio(words, 2) == pytest.approx(1 / 7)
    assert repetition_ratio(["a"] * 5, 3) == pytest.approx(2 / 3) and repetition_ratio([], 1) == 0


def test_d11_novel_ngrams_are_those_that_the_source_lacks():
    source = "the cat sat on the mat".split()
    summary = "the cat sat on a mat".split()
    assert novel_share(summary, source, 1) == pytest.approx(1 / 6)  # "a"
    assert novel_share(summary, source, 2) == pytest.approx(2 / 5)  # "on a", "a mat"
    assert novel_share("mat the cat".split(), source, 2) == pytest.approx(1 / 2)  # words of the source in a new order
    assert novel_share(source, source, 3) == 0 and novel_share(["dog"], source, 1) == 1 and novel_share([], [], 1) == 0


def test_outputs_come_in_order_as_if_each_document_were_alone(trained, monkeypatch):
    """Also over several windows, within which documents are sorted by length."""
    monkeypatch.setattr(command, "WINDOW", 2)
    run, examples = load_run(trained(replace(SMALL, max_source=12, min_length=4))), load(SMALL.data, "test", 7)
    rows, alone = list(predict(run, examples, 2)), [next(predict(run, [example])) for example in examples]
    assert rows == alone and [row["id"] for row in rows] == [example.id for example in examples]
    assert len({row["prediction"] for row in rows}) > 1 and all(row["was_cut"] for row in rows)


@pytest.mark.parametrize(
    ("flag", "value"),
    [("beam", 1), ("length_penalty", 8.0), ("trigram_blocking", True), ("min_length", 9), ("max_length", 4)],
)
def test_every_flag_of_decoding_changes_an_output(make_pointer, vocabulary, flag, value):
    runs = [Run(SMALL, make_pointer("dim", seed), vocabulary) for seed in range(6)]
    for run in runs:
        run.model.decoder.output.bias.data[EOS] += 3  # outputs that end
    examples = [Example(str(n), [document], [summary], [[summary]]) for n, (document, summary) in enumerate(PAIRS)]
    plain, other = (
        [row["prediction"] for run in runs for row in predict(run, examples, **given)] for given in ({}, {flag: value})
    )
    assert plain != other


def test_d21_flags_of_decoding_reach_the_search(trained, monkeypatch, tmp_path):
    """D21: <unk> is never written. What is not given is the run's."""
    seen, search = [], command.beam_search
    monkeypatch.setattr(command, "beam_search", lambda *a, **k: seen.append(k) or search(*a, **k))
    run = str(trained(SMALL))
    flags = [
        "--beam",
        "3",
        "--length-penalty",
        "1.5",
        "--trigram-blocking",
        "True",
        "--min-length",
        "2",
        "--max-length",
        "7",
    ]
    out = ["--data", SMALL.data, "--limit", "1", "--out"]
    main([run, *out, str(tmp_path / "a.jsonl"), *flags])
    main([run, *out, str(tmp_path / "b.jsonl")])
    given = {"beam": 3, "length_penalty": 1.5, "trigram_blocking": True, "min_length": 2, "max_length": 7}
    own = {"beam": 2, "length_penalty": 0.0, "trigram_blocking": False, "min_length": 0, "max_length": 10}
    assert seen == [given | {"never": (0, 1)}, own | {"never": (0, 1)}]


def test_lines_in_are_lines_out(trained, tmp_path, capsys):
    """In order, a blank line for a blank one; cut documents are counted; .jsonl has all that is known."""
    folder, path = trained(replace(SMALL, max_source=12, min_length=4)), tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS) + "\n")
    capsys.readouterr()  # of the training
    main([str(folder), str(path), "--batch-size", "2"])
    printed, run = capsys.readouterr(), load_run(folder)
    examples = in_sentences(Example(str(n), [text.strip()], [], []) for n, text in enumerate(TEXTS))
    alone = ["" if not text else next(predict(run, [e]))["prediction"] for text, e in zip(TEXTS, examples, strict=True)]
    assert printed.out.splitlines() == alone and printed.out.endswith("\n") and len(set(alone)) > 2
    assert "1 of 4 documents are longer than the model reads: they were cut" in printed.err
    main([str(folder), str(path), "--out", str(tmp_path / "o.jsonl"), "--max-length", "4"])
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").open()]
    assert [row.get("was_cut", False) for row in rows] == [False, False, True, False]
    assert [len(row["prediction"].split()) for row in rows] == [3, 0, 3, 3]


def test_settings_are_outputs_side_by_side(trained, tmp_path):
    """Rows of each setting, named by --system; score.py's values are the rows' means, a system minus itself is 0."""
    ways = {"only": [], "norm": ["--length-penalty", "1.5"], "same": []}
    for way, flags in ways.items():
        out = ["--out", str(tmp_path / f"{way}.jsonl"), "--system", way, "--limit", "4", "--data", SMALL.data]
        main([str(trained(SMALL)), *out, *flags])
    rows = {way: [json.loads(line) for line in (tmp_path / f"{way}.jsonl").open()] for way in ways}
    assert all(len(of) == 4 and of[0]["system"] == way and of[0]["references"] for way, of in rows.items())
    score.main([*(str(tmp_path / f"{way}.jsonl") for way in ways), "--csv", str(tmp_path / "t.csv")])
    table = {(row["system"], row["minus"], row["metric"]): row for row in csv.DictReader(open(tmp_path / "t.csv"))}
    for way in ways:
        mean = sum(row["repetition2"] for row in rows[way]) / 4
        assert float(table[way, "", "repetition2"]["value"]) == pytest.approx(mean, rel=1e-4)
    assert float(table["same", "only", "rouge1"]["value"]) == 0
