"""Labels, measures, tables and the command line."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from shared import rouge
from shared.data import Example, load

from .. import evaluate, labels
from ..evaluate import (
    compare,
    decode_and_score,
    find_heads,
    main,
    parse,
    read_selector,
    read_summarizer,
    salient_recall,
    sample,
    score,
)
from ..labels import Labels, Tagged, kept, kind_of, read_documents, tag, tagging_quality
from ..masking import PAPER_HEADS
from ..oracle import longest_common_runs, word_spans
from ..sweep import Decoder, Setting, read_heads
from ..train import TrainConfig, read_config, train
from .test_train import DATA, SMALL

QUICK = ["--data", DATA, "--limit", "5", "--max-length", "10", "--beam", "2", "--batch-size", "3"]


def example(source: str, target: str, **fields) -> Example:
    return Example(id=source, document=[source], summary=[target], references=[[target]], **fields)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two summarisers and two taggers, hardly trained."""
    folder = tmp_path_factory.mktemp("runs")
    train(replace(SMALL, layers=2, heads=4), folder / "base")
    train(replace(SMALL, examples=12, steps=2, seed=1), folder / "half")
    tagger = TrainConfig(
        task="tagger", data=DATA, encoder=str(folder / "base" / "model"), hidden=8, batch_size=8, steps=12,
        save_every=6, warmup=1, learning_rate=0.01,
    )  # fmt: skip
    train(tagger, folder / "tagger")
    train(replace(tagger, examples=12, steps=6, max_source=40), folder / "weak")
    return folder


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return load(DATA, "test", 6)


# Labels


def test_a_batch_is_tagged_as_its_documents_alone(runs, examples):
    """In the order of the documents; the scores are the tagger's probabilities."""
    selector = read_selector(runs / "tagger")
    together, alone = (tag(selector, examples, size) for size in (4, 1))
    for text, one, other in zip(examples, together, alone, strict=True):
        torch.testing.assert_close(torch.tensor(one.scores), torch.tensor(other.scores), atol=1e-5, rtol=0)
        ids = torch.tensor([selector.tokenizer(text.source)["input_ids"]])
        expected = selector.tagger(ids, torch.ones_like(ids, dtype=torch.bool)).sigmoid()[0].tolist()
        assert one.scores == pytest.approx(expected, abs=1e-5) and len(one.offsets) == len(one.scores)


def test_oracle_documents_keep_the_words_of_the_longest_runs(runs, examples):
    """What masked heads see, read back from the tokens, are the words that the oracle marks."""
    summarizer = read_summarizer(runs / "base")
    documents, offsets, cut = read_documents(summarizer.tokenizer, summarizer.max_source, examples, Labels())
    assert cut == 0
    for text, document, places in zip(examples, documents, offsets, strict=True):
        words, target = (text.source.split(), text.target.split())
        spans = word_spans(text.source)
        marked = longest_common_runs(words, target)
        assert [text.source[a:b] for a, b in spans] == words  # in toy they are the same
        expected = {span for span, mark in zip(spans, marked, strict=True) if mark}
        seen = [place for place, keep in zip(places, document.keep["oracle"], strict=True) if keep]
        assert all(any(a <= start and end <= b for a, b in expected) for start, end in seen)
        assert sum(end - start for start, end in seen) == sum(b - a for a, b in expected)


def test_system_documents_keep_what_scores_over_the_threshold(runs, examples):
    """One word scores high: its tokens alone are kept, or with the fallback at least five."""
    summarizer, selector = read_summarizer(runs / "base"), read_selector(runs / "tagger", threshold=0.5)
    text = examples[0]
    spans = word_spans(text.source)
    tagged = [Tagged([0.1, 0.9, *[0.2] * (len(spans) - 2)], spans)]
    for min_keep in (0, 5):
        made = read_documents(summarizer.tokenizer, 1024, [text], Labels(min_keep=min_keep), [(selector, tagged)])
        [document], [places], _ = made
        [start, end] = spans[1]
        inside = {i for i, (a, b) in enumerate(places) if start <= a < b <= end}
        seen = {i for i, keep in enumerate(document.keep["system:tagger"]) if keep}
        assert inside <= seen and (seen == inside if min_keep == 0 else len(seen) >= 5)
        assert 0 not in seen and len(places) - 1 not in seen


def test_documents_are_cut_and_counted(runs, examples):
    summarizer, selector = read_summarizer(runs / "base"), read_selector(runs / "weak")
    assert selector.max_source == 40
    documents, _, cut = read_documents(
        summarizer.tokenizer, 50, examples, Labels(), [(selector, tag(selector, examples))]
    )
    assert cut == len(examples) and {len(document.ids) for document in documents} == {50}
    assert {len(document.keep["system:weak"]) for document in documents} == {50}


def test_labels_that_select_nothing_fall_back_on_the_same_positions_each_time():
    """An oracle without any match: five positions at random, by the document's number, so that a sweep can resume."""
    first = kept([0.0] * 40, 0.0, 5, seed=3)
    assert sum(first) == 5 and kept([0.0] * 40, 0.0, 5, seed=3) == first != kept([0.0] * 40, 0.0, 5, seed=4)
    assert kept([0.0, 0.3, 0.31], 0.3, 0, seed=0) == [False, False, True]


def test_tagging_quality_by_hand(runs):
    """Oracle: "red cats" of four words; the tagger says cats and dogs. Special tokens do not count."""
    selector = read_selector(runs / "tagger", threshold=0.5)
    places = [(0, 0), (0, 3), (4, 8), (9, 12), (13, 17), (0, 0)]
    tagged = [Tagged([0.9, 0.2, 0.6, 0.5, 0.7, 0.9], places)]
    found = tagging_quality(selector, [example("red cats and dogs", "Red cats")], tagged, Labels())
    assert found["token_f1"] == pytest.approx(50.0) and found["tokens"] == 4
    assert found["positive_share"] == found["predicted_share"] == 50.0
    assert found["token_f1_of_all"] == pytest.approx(100 * 2 / 3)
    assert (found["threshold"], found["trained_on"]) == (0.5, 24)


# Measures


def test_salient_recall_by_hand():
    """Different salient words that the reference has: a, c; "b" is salient but reworded, "d" is not salient."""
    fields = {"salient_tokens": [[True, True, True, False, True]]}
    story = example("a b c d a", "c x a d", **fields)
    assert salient_recall("c d d", story) == 50.0
    assert salient_recall(story.target, story) == 100.0 and salient_recall("b d", story) == 0.0


def test_scores_are_shared_rouge_with_recall():
    """F1 of shared.rouge over sentences; recall by hand, of the reference with the best F1."""
    story = replace(
        example("a", "x"), references=[["red cats sleep .", "dogs bark ."], ["red mice .", "run now yes"]],
        salient_tokens=[[False]],
    )  # fmt: skip
    texts = ["dogs bark . red cats sleep .", "red cats"]
    found = score(texts, [story, story])
    assert found["rougeLsum"][0] == pytest.approx(100.0)
    assert found["rouge1_recall"].tolist() == pytest.approx([100.0, 40.0])  # two of five words
    expected = rouge.score([["red cats"]], [story.references])
    assert found["rouge1"][1] == expected["rouge1"][0] and found["rouge2"][1] == expected["rouge2"][0]
    assert "salient_recall" in found and "salient_recall" not in score(texts, [replace(story, salient_tokens=None)] * 2)


def test_marks_stand_for_p_below_0_005():
    """Caption of Table 1: * is significantly better; what is significantly worse must not get it."""
    rng = np.random.default_rng(0)
    base = rng.normal(40, 5, 200)
    noise = {"rouge1": base + 5, "rouge2": base + rng.normal(0, 1, 200), "rougeLsum": base - 5}
    rows = compare(noise, dict.fromkeys(noise, base))
    assert [row["mark"] for row in rows.values()] == ["*", "", "!"]
    assert rows["rouge1"]["p"] == rouge.paired_test(base + 5, base) < 0.005 < rows["rouge2"]["p"]
    assert rows["rouge1"]["low"] < rows["rouge1"]["mean"] < rows["rouge1"]["high"]
    alone = compare({"rouge1": base}, None)["rouge1"]
    assert alone["p"] is None and alone["mark"] == ""


def test_analysis_set_is_a_random_sample_in_order():
    stories = [example(str(i), "x") for i in range(50)]
    chosen = [int(each.id) for each in sample(stories, 10)]
    assert chosen == sorted(set(chosen)) and len(chosen) == 10 and chosen != list(range(10))
    assert [each.id for each in sample(stories, 10)] == [str(i) for i in chosen]
    assert sample(stories, 50) == stories


# The command


def test_table_1_by_one_command(runs, tmp_path, capsys, examples):
    """Baseline, oracle masking and masking by taggers; every row decodes what its setting says."""
    names = ["base", "base+oracle", "base+tagger", "base+weak"]
    files = {kind: tmp_path / "new" / f"table.{kind}" for kind in ("json", "csv")} | {"predictions": tmp_path / "out"}
    flags = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    taggers = ["--tagger", str(runs / "tagger"), str(runs / "weak")]
    main([str(runs / "base"), *taggers, "--heads", "1:0-3,2:1", "--oracle", *QUICK, *flags])
    printed, metrics = capsys.readouterr().out, json.loads(files["json"].read_text())
    systems = metrics["systems"]
    assert list(systems) == names and all(name in printed for name in names)
    assert metrics["signature"] in printed and metrics["examples"] == 5
    assert [row["labels"] for row in systems.values()] == ["plain", "oracle", "system:tagger", "system:weak"]
    assert systems["base"]["heads"] == "" and systems["base+weak"]["heads"] == "1:0-3,2:1"
    assert systems["base"]["scores"]["rouge1"]["p"] is None and 0 < systems["base+weak"]["scores"]["rouge1"]["p"] <= 1
    assert metrics["taggers"]["weak"]["trained_on"] == 12 and metrics["taggers"]["tagger"]["trained_on"] == 24
    assert metrics["analysis"] == {}

    rows = list(csv.DictReader(files["csv"].open()))
    assert [row["system"] for row in rows] == [*names, "tagger", "weak"]
    for row in rows[:4]:
        for column, key in (("rouge1", "mean"), ("rouge1 low", "low")):
            expected = systems[row["system"]]["scores"]["rouge1"][key]
            assert float(row[column]) == pytest.approx(expected, rel=1e-3)

    summarizer, selector = read_summarizer(runs / "base"), read_selector(runs / "tagger")
    tagged = [(selector, tag(selector, examples[:5]))]
    documents, _, _ = read_documents(summarizer.tokenizer, 1024, examples[:5], Labels(), tagged)
    settings = parse(["x", *QUICK]).generation
    assert settings["num_beams"] == 2 and settings["max_length"] == 10
    decoder = Decoder(summarizer.model, documents, 3, **settings)
    for name, kind in zip(names, ("plain", "oracle", "system:tagger"), strict=False):
        written = [json.loads(line) for line in (tmp_path / "out" / f"{name}.jsonl").read_text().splitlines()]
        ids = decoder.decode(Setting(kind, "1:0-3,2:1"))
        assert [row["prediction"] for row in written] == evaluate.read_summaries(summarizer, ids)
        assert [row["reference"] for row in written] == [each.target for each in examples[:5]]


def test_analysis_by_one_command_resumes(runs, tmp_path, monkeypatch):
    """Sweep, choice of heads and focus; a second start decodes the analysis set for the focus alone."""
    path, calls, beams, decode = tmp_path / "m.json", [], [], Decoder.decode

    def counted(self, setting):
        calls.append(setting)
        beams.append(self.generation["num_beams"])
        return decode(self, setting)

    monkeypatch.setattr(Decoder, "decode", counted)
    flags = [str(runs / "base"), "--tagger", str(runs / "tagger"), "--select", "--group", "2", "--sweep", "--focus"]
    flags += [*QUICK, "--analysis", "4", "--sweep-file", str(tmp_path / "sweep.jsonl"), "--json", str(path)]
    main(flags)
    first = json.loads(path.read_text())
    found = first["analysis"]["base"]
    settings = 2 * 2 * 4 + 2 * 2 * 3 + 1 + 2 * 2  # single heads, heads together, plain, choice
    assert len(calls) == settings + 1 + 2 and found["documents"] == 4  # and focus, two rows of the table
    assert beams == [1] * (settings + 1) + [2, 2]
    assert len((tmp_path / "sweep.jsonl").read_text().splitlines()) == settings
    assert [(row["layer"], row["head"]) for row in found["effects"]] == [(i, h) for i in (1, 2) for h in range(4)]
    assert found["selection"]["heads"] == first["systems"]["base+tagger"]["heads"]
    tried = {row["heads"]: row["rouge1"] + row["rouge2"] for row in found["selection"]["tried"] if row["heads"]}
    assert tried[found["selection"]["heads"]] == max(tried.values()) and len(tried) == 4
    assert len(found["focus"]) == 8 and "copy_content" in found["focus"][0]
    calls.clear()
    main(flags)
    assert calls == [Setting("plain"), Setting("plain"), Setting("system:tagger", found["selection"]["heads"])]
    again = json.loads(path.read_text())
    assert again["analysis"] == first["analysis"]


def test_d10_improvements_are_over_uniform_weights_and_over_the_plain_model(tmp_path):
    """D10: both readings of Figure 3 stand in the rows; the right side has all heads and the sum of the parts."""
    values = {("plain", ""): 50.0}
    for heads, oracle, uniform in (("1:0", 53, 50), ("1:1", 51, 50), ("1:0-1", 60, 45)):
        values |= {("oracle", heads): oracle, ("uniform", heads): uniform}

    def fake(texts):
        value = values[tuple(texts[0].split("|"))]
        return {metric: np.array([value, value + 2.0]) for metric in ("rouge1", "rouge1_recall")}

    sweep = evaluate.Sweep(tmp_path / "s", lambda setting: ["|".join(setting)], fake, {})
    effects = evaluate.sweeps.content_selection_effects(sweep, {1: [0, 1]})
    left, right = evaluate.synergy_rows(sweep, effects)
    assert [(row["count"], row["added"], row["mean"], row["over_plain"]) for row in left] == [
        (1, 0, 3.0, 3.0), (2, 1, 15.0, 10.0)
    ]  # fmt: skip
    assert [row["added_effect"] for row in left] == [3.0, 1.0]
    [row] = right
    assert (row["layer"], row["together"]["mean"], row["parts"]["mean"]) == (1, 15.0, 4.0)


def test_p_refers_to_the_first_system(monkeypatch):
    """The third system is the second one, so that p against that would be 1."""
    texts = {"plain": "cats run", "oracle": "red mice", "system": "red mice"}
    stories = [example(str(i), "red mice") for i in range(12)]
    decoder = type("Decoder", (), {"decode": lambda self, setting: [texts[setting.kind]] * 12})()
    monkeypatch.setattr(evaluate, "read_summaries", lambda summarizer, summaries: summaries)
    summarizer = evaluate.Summarizer("s", None, None, 9, None)
    rows, _ = decode_and_score(decoder, summarizer, {kind: Setting(kind) for kind in texts}, stories)
    assert [row["scores"]["rouge1"]["mark"] for row in rows.values()] == ["", "*", "*"]
    assert rows["plain"]["scores"]["rouge1"]["p"] is None
    assert rows["system"]["scores"]["rouge1"] == rows["oracle"]["scores"]["rouge1"]


def test_several_summarisers_take_a_tagger_each(runs, tmp_path):
    """Figure 5: pairs in their order; sizes of the training data from the runs' logs."""
    path = tmp_path / "m.json"
    pair = [str(runs / "base"), str(runs / "half"), "--tagger", str(runs / "tagger"), str(runs / "weak")]
    main([*pair, "--heads", "1:0-1", *QUICK, "--json", str(path)])
    systems = json.loads(path.read_text())["systems"]
    assert list(systems) == ["base", "base+tagger", "half", "half+weak"]
    assert [row["trained_on"] for row in systems.values()] == [24, 24, 12, 12]
    assert systems["half"]["scores"]["rouge1"]["p"] is None  # each is compared with its own baseline


def test_taggers_by_themselves(runs, tmp_path, capsys):
    main(["--tagger", str(runs / "tagger"), "--limit", "5", "--csv", str(tmp_path / "t.csv")])
    assert "tagger tagger: token F1" in capsys.readouterr().out
    [row] = csv.DictReader((tmp_path / "t.csv").open())
    assert row["system"] == "tagger" and float(row["tokens"]) > 100


def test_heads_of_appendix_b_go_by_name():
    assert read_heads(find_heads("xsum")) == {3: list(PAPER_HEADS["xsum"][3])}
    assert find_heads("2:1,0") == "2:0-1"
    settings = parse(["x", "--data", "toy", "--decoding", "cnn_dailymail", "--min-length", "9"]).generation
    assert settings == dict(num_beams=5, length_penalty=2.0, min_length=9, max_length=140, no_repeat_ngram_size=3)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["{runs}/nothing", "--data", DATA], "cannot load|not a run folder"),
        (["{runs}/nothing"], "give --data"),
        ([], "give the run of a summariser"),
        (["{runs}/tagger", "--data", DATA], "holds a tagger; give the run of a summarizer"),
        (["{runs}/base", "--tagger", "{runs}/half", "--heads", "1:0"], "holds a summarizer; give the run of a tagger"),
        (["{runs}/base", "--tagger", "{runs}/tagger"], "which heads are to be masked"),
        (["{runs}/base", "--oracle"], "which heads are to be masked"),
        (["{runs}/base", "--select"], "give --tagger RUN"),
        (["{runs}/base", "--tagger", "{runs}/tagger", "--select", "--heads", "1:0"], "give one of the two"),
        (["{runs}/base", "{runs}/half", "--tagger", "a", "b", "c", "--heads", "1:0"], "2 summarisers and 3 taggers"),
        (["{runs}/base", "{runs}/../x/base"], "same name"),
        (["{runs}/base", "--oracle", "--heads", "3:0", "--data", DATA], "layer 3 does not exist"),
        (["{runs}/base", "--oracle", "--heads", "1:7", "--data", DATA], "layer 1 has no head 7"),
        (["{runs}/base", "--oracle", "--heads", "one"], "write LAYER:HEADS"),
        (["hub/name", "--sweep", "--data", DATA], "give --sweep-file"),
        (["{runs}/base", "--sweep", "--analysis", "0"], "at least 1"),
        (["{runs}/base", "--tagger", "{runs}/tagger", "--heads", "1:0", "--threshold", "2"], "threshold must be"),
        (["{runs}/base", "--data", "no/such/place"], "no/such/place"),
        (["{runs}/base", "--data", DATA, "--split", "tset"], "tset"),
    ],
)  # fmt: skip
def test_bad_requests_end_with_a_message(runs, flags, message):
    with pytest.raises(SystemExit, match=f"error: .*({message})"):
        main([flag.format(runs=runs) for flag in flags])


def test_oracle_labels_are_made_as_the_first_tagger_learned_them(runs, tmp_path):
    config = read_config(runs / "tagger")
    train(replace(config, min_run=2, oracle="newsroom", steps=1), tmp_path / "pairs")
    flags = ["--tagger", str(tmp_path / "pairs"), str(runs / "tagger")]
    assert parse(flags).labels == Labels("newsroom", 2, 5)
    assert parse([*flags, "--min-run", "3", "--method", "runs", "--min-keep", "0"]).labels == Labels("runs", 3, 0)
    assert parse(["x", "--data", "toy"]).labels == Labels("runs", 1, 5)


def test_names_of_labels_are_those_of_the_documents(runs):
    """A tagger's folder may have any name, also that of another kind of setting."""
    selector = read_selector(runs / "tagger")._replace(name="plain")
    assert kind_of(selector) == "system:plain" and labels.kind_of is kind_of
