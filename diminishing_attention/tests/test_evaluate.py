"""What evaluate measures of an output, and how decoding hands its flags on; the command itself: test_commands.py."""

import pytest

pytest.importorskip("shared")

from shared.data import Example, load

from .. import decode as decoding
from ..decode import Decoding, decode
from ..evaluate import evaluate, load_runs, measure, novel_share, repetition_ratio
from ..loading import load_run
from ..search import beam_search
from .conftest import SMALL

DATA = SMALL.data


def test_measures_of_one_text_by_hand():
    """Words without punctuation; the overlap is with the first sentences of the document."""
    document = ["a storm hit the town .", "schools closed .", "rain fell .", "the sun came back ."]
    found = measure("a storm hit . a storm hit .", Example("x", document, ["r"], [["r"]]), lead=3)
    assert found["words"] == 6
    assert found["repetition1"] == pytest.approx(50) and found["repetition3"] == pytest.approx(25)
    assert found["novel1"] == 0 and found["novel2"] == pytest.approx(20)  # "hit a"
    # Against the lead of 3 sentences, 9 words: "a storm hit" is shared.
    assert found["lead_rouge1"] == pytest.approx(100 * 2 * (3 / 6) * (3 / 9) / (3 / 6 + 3 / 9))
    names = [f"repetition{n}" for n in range(1, 6)] + [f"novel{n}" for n in range(1, 5)]
    assert list(found) == ["words", *names, "lead_rouge1", "lead_rouge2", "lead_rougeLsum"]


def test_d11_repetition_counts_every_occurrence_after_the_first():
    """D11: "a man a plan a canal a plan": 1-grams a 4, plan 2, man, canal; of 2-grams "a plan" twice."""
    words = "a man a plan a canal a plan".split()
    assert repetition_ratio(words, 1) == pytest.approx(4 / 8)
    assert repetition_ratio(words, 2) == pytest.approx(1 / 7)
    assert repetition_ratio(["a"] * 5, 3) == pytest.approx(2 / 3) and repetition_ratio([], 1) == 0


def test_novel_ngrams_are_those_that_the_source_lacks():
    source = "the cat sat on the mat".split()
    summary = "the cat sat on a mat".split()
    assert novel_share(summary, source, 1) == pytest.approx(1 / 6)  # "a"
    assert novel_share(summary, source, 2) == pytest.approx(2 / 5)  # "on a", "a mat"
    assert novel_share("mat the cat".split(), source, 2) == pytest.approx(1 / 2)  # words of the source in a new order
    assert novel_share(source, source, 3) == 0 and novel_share(["dog"], source, 1) == 1 and novel_share([], [], 1) == 0


def test_rows_stand_with_their_documents_and_baselines_come_last(trained):
    """Called from Python; in whatever order documents were decoded."""
    examples = load(DATA, "test", 5)
    rows = evaluate(load_runs([trained(SMALL)]), examples, lead=2)
    by_id = {example.id: example for example in examples}
    assert all(row["references"] == by_id[row["id"]].references for row in rows)
    assert [row["system"] for row in rows] == ["run"] * 5 + ["lead-2"] * 5 + ["reference"] * 5
    assert rows[5]["prediction"] == "\n".join(examples[0].document[:2]) and rows[10]["prediction"].count("\n") >= 1
    assert all(row["novel1"] == 0 and row["lead_rouge1"] == pytest.approx(100) for row in rows[5:10])
    with pytest.raises(ValueError, match="no two of the same name"):
        load_runs([trained(SMALL)] * 2)


def test_d21_flags_of_decoding_reach_the_search(trained, monkeypatch):
    """D21: <unk> is never written. A length penalty takes the place of the average; what is not given is the run's."""
    seen = []
    monkeypatch.setattr(decoding, "beam_search", lambda *a, **k: seen.append(k) or beam_search(*a, **k))
    flags = Decoding(beam=3, length_penalty=1.5, trigram_blocking=True, min_length=2, max_length=7)
    list(decode(load_run(trained(SMALL)), load(DATA, "test", 1), 1, **flags.search()))
    given = {"beam": 3, "length_penalty": 1.5, "trigram_blocking": True, "min_length": 2, "max_length": 7}
    assert seen == [given | {"average": False, "never": (0, 1)}]
    assert Decoding(average=True).search() == {"average": True, "length_penalty": 0.0} and Decoding().search() == {}
