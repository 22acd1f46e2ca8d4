"""What predict measures of an output, how it hands its flags on, and the command itself."""

import json
from dataclasses import replace

import pytest

pytest.importorskip("shared")

import torch

from shared.data import in_sentences, load
from shared.pack import pack

from .. import predict as command
from ..config import DECODING
from ..loading import load_run
from ..predict import main, measure, novel_share, predict, repetition_ratio
from .conftest import BERT, SMALL


def test_measures_of_one_text_by_hand():
    """Words without punctuation; the overlap is with the first sentences of the document."""
    document = ["a storm hit the town .", "schools closed .", "rain fell .", "the sun came back ."]
    found = measure("a storm hit . a storm hit .", document, lead=3)
    assert found["words"] == 6
    assert found["repetition1"] == pytest.approx(50) and found["repetition3"] == pytest.approx(25)
    assert found["novel1"] == 0 and found["novel2"] == pytest.approx(20)  # "hit a"
    # Against the lead of 3 sentences, 9 words: "a storm hit" is shared.
    assert found["lead_rouge1"] == [pytest.approx(2 * (3 / 6) * (3 / 9) / (3 / 6 + 3 / 9)), 1]
    other = measure("राम", ["... !"])
    # a lead without a word: a share of nothing
    assert other["words"] == 1 and other["lead_rouge1"] == [0, 0]
    # one that ROUGE reads only if it is asked to
    assert measure("राम गया", ["राम गया ."])["lead_rouge1"] == [0, 0]
    assert measure("राम गया", ["राम गया ."], 3, "unicode")["lead_rouge1"] == [1, 1]
    assert len(found) == len(other) == 1 + 5 + 4 + 3
    assert measure("a storm", ["It rained .", "A storm came ."], 1)["lead_rouge1"] == [0, 1]


def test_d11_repetition_counts_every_occurrence_after_the_first():
    """D11: 1-grams: a 4 times, plan 2, man, canal; of 2-grams "a plan" twice."""
    words = "a man a plan a canal a plan".split()
    assert repetition_ratio(words, 1) == pytest.approx(4 / 8)
    assert repetition_ratio(words, 2) == pytest.approx(1 / 7)
    assert repetition_ratio(["a"] * 5, 3) == pytest.approx(2 / 3) and repetition_ratio([], 1) == 0


def test_d11_novel_ngrams_are_those_that_the_source_lacks():
    source, summary = "the cat sat on the mat".split(), "the cat sat on a mat".split()
    assert novel_share(summary, source, 1) == pytest.approx(1 / 6)  # "a"
    assert novel_share(summary, source, 2) == pytest.approx(2 / 5)  # "on a", "a mat"
    # words of the source in a new order
    assert novel_share("mat the cat".split(), source, 2) == pytest.approx(1 / 2)
    assert novel_share(source, source, 3) == 0 and novel_share([], [], 1) == 0


def test_outputs_come_in_order_as_if_each_document_were_alone(trained, monkeypatch):
    """Also over several windows, within which documents are sorted by length."""
    monkeypatch.setattr(command, "WINDOW", 2)
    run, examples = load_run(trained(replace(SMALL, max_source=12))), load(SMALL.data, "test", 5)
    lengths = dict(min_length=4, max_length=10)
    rows = list(predict(run, examples, 2, **lengths))
    alone = [next(predict(run, [example], **lengths)) for example in examples]
    assert rows == alone and [row["id"] for row in rows] == [example.id for example in examples]
    assert len({row["prediction"] for row in rows}) > 1 and all(row["was_cut"] for row in rows)


def test_d21_flags_reach_the_search_and_the_measures(trained, monkeypatch, tmp_path):
    """D21: <unk> is never written. What no flag says, --decoding says.

    The lead (Table 3) has so many sentences.
    """
    seen, leads, search = [], [], command.beam_search
    monkeypatch.setattr(command, "measure", lambda *a: leads.append(a[2:]) or {})
    monkeypatch.setattr(command, "beam_search", lambda *a, **k: seen.append(k) or search(*a, **k))
    five = "--beam 3 --length-penalty 1.5 --trigram-blocking --min-length 2 --max-length 7"
    preset = "--lead 5 --words unicode --decoding paper-dim --length-penalty 0 --min-length 0 --max-length 7"
    for flags in (five, preset, ""):
        out = ["--out", str(tmp_path / "a.txt"), "--overwrite"]
        main([str(trained(SMALL)), "--data", SMALL.data, "--limit", "1", *out, *flags.split()])
    common = {"trigram_blocking": True, "max_length": 7}
    given = {"beam": 3, "length_penalty": 1.5, "min_length": 2} | common
    won = {"beam": 6, "length_penalty": 0.0, "min_length": 0} | common
    assert seen == [search | {"never": (0, 1)} for search in (given, won, DECODING["tiny"])]
    assert leads == [(3, "rouge-score"), (5, "unicode"), (3, "rouge-score")]


def test_lines_in_are_lines_out(trained, tmp_path, capsys):
    """In order, a blank line for a blank one; cut documents are counted."""
    folder, path = trained(replace(SMALL, max_source=12)), tmp_path / "in.txt"
    long = "A storm hit the town hall today . " * 4
    path.write_text(f"Mara Kelman opened a bridge . It rained .\n\n{long}\n")
    lengths = ["--min-length", "4", "--max-length", "10"]
    main([str(folder), str(path), "--out", str(tmp_path / "o.jsonl"), *lengths])
    said = capsys.readouterr().err
    assert "1 of 3 documents are longer than the model reads: they were cut" in said
    rows = [json.loads(line) for line in (tmp_path / "o.jsonl").open()]
    assert [row.get("was_cut", False) for row in rows] == [False, False, True]
    assert rows[1]["prediction"] == ""
    main([str(folder), str(path), *lengths])
    assert capsys.readouterr().out.split("\n") == [*(row["prediction"] for row in rows), ""]


@pytest.mark.parametrize("config", [SMALL, BERT], ids=["pointer", "bertsum"])
def test_packed_weights_write_the_same_tokens(trained, monkeypatch, config, bert):
    """As `main` decodes where it is faster; log-probabilities within 1e-5."""
    monkeypatch.setattr("shared.pack.gain", lambda linear: 9.0)
    run, packed = load_run(trained(config)), load_run(trained(config))
    if not pack(packed.model):
        pytest.skip("this torch has not the operations")
    examples = in_sentences(load(SMALL.data, "test", 4))
    lengths = dict(min_length=4, max_length=10)
    rows = [list(predict(each, examples, **lengths)) for each in (run, packed)]
    assert rows[0] == rows[1]
    batch = run.collate(run.encode(examples))

    @torch.inference_mode()
    def first_step(model):
        log_p, _ = model.step(batch.target_in[:, 0], *model.start(batch))
        return log_p

    one, other = first_step(run.model), first_step(packed.model)
    assert (one - other).abs().nan_to_num(0).max() < 1e-5 and one.isfinite().any()
