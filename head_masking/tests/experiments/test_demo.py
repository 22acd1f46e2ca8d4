"""The toy corpus, the demo, flipped labels, and tables of seeds and of novelty."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("shared")

from shared.data import load

from ...experiments import demo, facts, flips, novelty, seeds
from ...loading import load_model
from ...predict import read_documents
from ..conftest import DATA


def test_stories_of_facts_have_two_that_belong_into_the_summary(tmp_path):
    """Word for word or reworded; with signal 1 the verbs tell which, with signal 0 as often the others."""
    for name, flags in (("plain", []), ("verbatim", ["--verbatim"])):
        facts.main([str(tmp_path / name), "--signal", "0", "1", "--count", "40", *flags])
    agree = {}
    for signal in ("0", "1"):
        plain, verbatim = (load(tmp_path / name / signal, "train") for name in ("plain", "verbatim"))
        said = []
        for story, same in zip(plain, verbatim, strict=True):
            assert len(story.document) == 4 and len(same.summary) == 2 and story.document == same.document
            told = [text for text in story.document if any(fact.removesuffix(" .") in text for fact in same.summary)]
            assert len(told) == 2 and len(story.pos[0]) == len(story.document[0].split())
            said += [any(verb in text.split() for verb in facts.CERTAIN) for text in told]
        agree[signal] = sum(said) / len(said)
    assert agree["1"] == 1 and agree["0"] < 0.8


def test_the_demo_scores_all_three_and_fails_where_there_is_no_effect(base, runs, capsys):
    """It shows the first story that is told right with masks and wrong without them."""
    examples = [SimpleNamespace(target=text) for text in "abc"]
    assert demo.first_told_right(examples, {"tagger": ["a", "x", "c"], "plain": ["a", "b", "y"]}) == 2
    with pytest.raises(SystemExit, match="the effect does not show"):
        demo.main(str(base), str(runs / "tagger"), limit=4)
    *shown, last = capsys.readouterr().out.splitlines()
    assert last.startswith("ROUGE-1 without masks ") and "of 4 summaries exact" in last
    names = ["story", "may see", "no masks", "masked", "reference"]
    assert [line.partition(":")[0] for line in shown] == names


def test_flipped_labels_differ_in_that_share_of_the_words(runs):
    """More of them with a larger share; a share of 0 is the oracle."""
    run, examples = load_model(runs / "base"), load(DATA, "test", 6)
    documents = read_documents(run, examples, oracle=True)
    shares = {}
    for share in (0.0, 0.2, 0.4):
        pairs = [(flips.flipped(*pair, share), pair[1]) for pair in zip(examples, documents, strict=True)]
        shares[share] = np.mean([np.not_equal(mask, own.keep)[1:-1].mean() for mask, own in pairs])
    assert shares[0.0] == 0 and abs(shares[0.2] - 0.2) < 0.07 and abs(shares[0.4] - 0.4) < 0.07


def test_each_seed_and_set_of_heads_stands_by_itself():
    def row(system, seed, text, heads=""):
        reference = {"id": "1", "references": [["red cats"]], "heads": heads}
        return reference | {"system": system, "seed": seed, "prediction": text}

    rows = [row("s+t", 0, "red cats", "2:0"), row("s", 0, "red mice"), row("s+oracle", 0, "red", "2:0")]
    rows += [row("s", 1, "red cats"), row("s+t", 1, "dogs", "2:1"), row("s", 1, "red cats")]  # one is in two files
    table = seeds.table(rows)
    gains = {row["system"]: row["value"] for row in table if row["minus"] and row["metric"] == "rouge1"}
    assert gains == {"s-0+t-0 2:0": 50, "s-0+oracle 2:0": pytest.approx(100 * 2 / 3 - 50), "s-1+t-1 2:1": -100}
    assert {row["minus"] for row in table} == {None, "s-0", "s-1"}


def test_each_quartile_of_novelty_has_its_own_gain():
    """Novelty is the share of a reference's pairs of words that its document has not."""
    assert novelty.novelty("The cat sat. A dog ran", "the CAT ran away") == pytest.approx(2 / 3)
    shares = {str(i): i / 8 for i in range(8)}
    assert novelty.quartiles(shares)[0] == ("0-12", {"0", "1"})
    rows = [
        dict(id=i, prediction=text, references=["xyz" if i > "3" else "abc"], system=f"s{heads}", heads=heads, seed=0)
        for heads, text in (("", "abc"), ("1:0", "xyz"))
        for i in shares
    ]
    gains = [r["value"] for r in novelty.table(rows, shares) if r["metric"] == "rouge1" and r["minus"] == "s"]
    assert gains == [-100, -100, 100, 100]


def test_means_over_seeds_have_the_interval_of_students_t():
    """Three seeds of two heads: 1, 2, 6 have the mean 3 and the standard error 1.528; t of two degrees is 4.303."""
    rows = [
        dict(minus=f"s-10-{n}", system=f"s-10-{n}+oracle-0.1 2:{n}", metric="r", value=v)
        for n, v in enumerate((1, 2, 6))
    ]
    [row] = seeds.means([*rows, rows[0] | {"minus": "", "system": "s-10-0"}])
    assert row["system"] == "s-10+oracle-0.1" and row["value"] == 3
    assert (row["low"], row["high"]) == pytest.approx((3 - 4.303 * 1.528, 3 + 4.303 * 1.528), abs=0.01)
