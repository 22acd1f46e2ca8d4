"""Decoding, measures, tables and the command line."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")


from shared import rouge
from shared.data import Example, load

from .. import evaluate as evaluation
from ..evaluate import (
    Corpus,
    attention_map,
    check_generation,
    decode,
    evaluate,
    main,
    mean_curve,
    read_again,
    read_corpus,
    report,
    retained_attention,
    salient_recall,
    salient_sentences,
    selections_of,
    system_name,
    table_rows,
)
from ..selection import Selection, SentenceAttention
from ..sentences import Splitter
from ..text import Item, encode
from ..train import Run, TrainConfig, load_run, load_run_or_bart, train
from .test_train import DATA, SMALL, save_bart

QUICK = ["--data", DATA, "--limit", "5", "--max-length", "9", "--beam", "2", "--batch-size", "3", "--r", "2", "1"]
GENERATION = dict(num_beams=2, max_length=9)


def example(source: list[str], target: str, **fields) -> Example:
    return Example(id=source[0], document=source, summary=[target], references=[[target]], **fields)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each task, hardly trained, and a second integrated one."""
    folder = tmp_path_factory.mktemp("runs")
    train(replace(SMALL, steps=2, max_source=400), folder / "base")
    small = replace(SMALL, steps=2, max_source=400, init=str(folder / "base"))
    train(replace(small, task="sparse", gamma=1.0, seed=3), folder / "tuned")
    train(replace(small, task="kl"), folder / "kl")
    integrated = replace(small, task="integrated", init=str(folder / "kl"))
    train(replace(integrated, r=2), folder / "apx")
    train(replace(integrated, r=1, select="ideal"), folder / "idl")
    return folder


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return load(DATA, "test", 5)


@pytest.fixture(scope="module")
def kl(runs) -> Run:
    return load_run(runs / "kl")


@pytest.fixture(scope="module")
def corpus(kl, examples) -> Corpus:
    return read_corpus(kl, examples)


def part(corpus: Corpus, number: int) -> Corpus:
    """One document of a corpus."""
    return Corpus(*(field[number : number + 1] for field in corpus))


# Decoding


def test_a_batch_is_decoded_as_its_documents_alone_under_each_selection(kl, corpus):
    """In the order of the documents, each selection in its place; states encoded once serve all of them."""
    selections = [Selection("full"), Selection("random", 1), Selection("approx", 2), Selection("ideal", 1)]
    calls, encoder = [], kl.model.get_encoder()
    hook = encoder.register_forward_hook(lambda *a: calls.append(1))
    together = decode(kl, corpus, selections, 3, **GENERATION)
    assert len(calls) == 2  # two batches
    hook.remove()
    for selection, decoded in zip(selections, together, strict=True):
        kl.model.selection = selection
        for item, text in zip(corpus.items, decoded.texts, strict=True):
            ids = torch.tensor([item.ids])
            source = dict(attention_mask=torch.ones_like(ids), sentence_ids=torch.tensor([item.sentence_ids]))
            rows = kl.model.generate(ids, **source, do_sample=False, **GENERATION)
            [expected] = kl.tokenizer.batch_decode(rows, skip_special_tokens=True)
            assert text == " ".join(expected.split())
        assert decoded.seconds > 0


def test_reading_again_sees_the_choices_of_decoding(kl, corpus):
    """Greedy: the sentences that `generate` kept at each step, recorded while it ran, are those read again."""
    item = max(corpus.items, key=lambda item: item.sentence_ids[-1])
    for mode in ("ideal", "random", "approx", "mean_key"):
        kl.model.selection = Selection(mode, 2)
        [batch] = evaluation.batches(kl, [item], 1)
        chosen = [[] for _ in kl.model.attentions]
        for attention, kept in zip(kl.model.attentions, chosen, strict=True):
            select = attention.select
            attention.select = lambda *a, select=select, kept=kept: kept.append(select(*a)) or kept[-1]
        rows = kl.model.generate(**batch.source(), do_sample=False, num_beams=1, max_length=7)
        for attention in kl.model.attentions:
            del attention.select
        record, is_step = read_again(kl, batch, rows)
        for layer, kept in zip(record, chosen, strict=True):
            assert torch.equal(torch.cat(kept, 1), layer.keep)
        assert is_step.all() and is_step.size(1) == len(chosen[0])


def test_recall_is_what_r_sentences_can_hold(kl):
    """By hand: 2 layers, 3 steps of which the last is padding, r 2 of 4 sentences."""
    keep = torch.zeros(2, 1, 3, 4, dtype=torch.bool)
    chosen = [[(0, 1), (0, 2), (2, 3)], [(1, 2), (2, 3), (2, 3)]]  # by layer and step
    for layer, steps in enumerate(chosen):
        for step, sentences in enumerate(steps):
            keep[layer, 0, step, list(sentences)] = True
    record = [SentenceAttention(None, None, None, each) for each in keep]
    is_step = torch.tensor([[True, True, False]])
    one, three = torch.tensor([[True, False, False, False]]), torch.tensor([[True, True, False, True]])
    assert salient_recall(record, is_step, one).tolist() == [50.0]  # in 2 of 4
    expected = 100 * (2 / 2 + 1 / 2 + 1 / 2 + 1 / 2) / 4  # at most 2 of the 3 can be there
    assert salient_recall(record, is_step, three).tolist() == [expected]
    assert salient_recall(record, is_step, torch.zeros(1, 4, dtype=torch.bool)).tolist() == [100.0]
    everything = [SentenceAttention(None, None, None, torch.ones_like(keep[0]))]
    assert salient_recall(everything, is_step, three).tolist() == [100.0]


def test_recall_of_decoding_is_known_where_it_can_be(kl, corpus):
    """All of it under full attention; unknown where beams share a choice, or the corpus does not say."""
    selections = [Selection(), Selection("ideal", 1), Selection("ideal", 1, share_beams=True)]
    full, ideal, shared = decode(kl, corpus, selections, 5, **GENERATION)
    assert (full.salient_recall == 100).all() and ((0 <= ideal.salient_recall) & (ideal.salient_recall <= 100)).all()
    assert np.isnan(shared.salient_recall).all()
    unknown = corpus._replace(salient=[None] * 5)
    assert np.isnan(decode(kl, unknown, [Selection()], 5, **GENERATION)[0].salient_recall).all()


def test_salient_sentences_follow_the_models_own_sentences(kl):
    """A sentence of the model is salient if a token of it is: two given ones in one, one cut in two, `</s>` not."""

    def marks(sentence_ids, salient, longest=99):
        run = kl._replace(config=replace(kl.config, max_source=longest))
        return salient_sentences(run, example(text, "x", salient=salient), Item([], sentence_ids, False))

    text, second = ["one two .", "three four .", "five ."], [False, True, False]
    given = encode(kl.tokenizer, text, 99, Splitter("given")).sentence_ids
    assert marks(given, second) == [False, True, False, False]
    assert marks([0 if number < 2 else 1 for number in given], second) == [True, False]
    half = given.index(1) + 1
    halved = [number + (number >= 1 and place >= half) for place, number in enumerate(given)]
    assert marks(halved, second) == [False, True, True, False, False]
    cut = given.index(1)  # the first sentence and, in the place of its last token, `</s>`
    assert marks([*given[: cut - 1], 1], second, cut) == [False, False]
    assert marks(given, [False, False, True]) == [False, False, True, False]
    assert marks(given, None) is None


def test_d21_retained_attention_averages_heads_first():
    """D21, A.4: heads that look at different sentences retain less together than each alone; padding steps are out."""
    exact = torch.tensor([[[0.9, 0.1, 0.0], [0.2, 0.2, 0.6]], [[0.1, 0.9, 0.0], [0.2, 0.2, 0.6]]])  # (H, T, N)
    record = [SentenceAttention(None, exact.unsqueeze(0), None, None)]
    curve = retained_attention(record, torch.tensor([[True, False]]))
    np.testing.assert_allclose(curve, [[0.5, 1.0, 1.0]], atol=1e-6)  # not 0.9
    curve = retained_attention(record, torch.tensor([[True, True]]))
    np.testing.assert_allclose(curve, [[0.55, 0.9, 1.0]], atol=1e-6)  # (0.5 + 0.6) / 2: each step has its own order
    second = SentenceAttention(None, torch.tensor([[[[1.0, 0, 0], [0, 1.0, 0]]]]), None, None)
    curve = retained_attention([record[0], second], torch.tensor([[True, True]]))
    np.testing.assert_allclose(curve, [[0.775, 0.95, 1.0]], atol=1e-6)
    np.testing.assert_allclose(mean_curve([np.array([0.5, 1.0]), np.array([0.2, 0.4, 1.0])]), [0.35, 0.7, 1.0])


def test_retained_attention_of_a_batch_knows_no_padding(kl, corpus):
    """A short document beside longer ones has the curve that it has alone, of its own number of sentences."""
    generation = dict(num_beams=1, max_length=6)
    [together] = decode(kl, corpus, [Selection()], 5, **generation)
    for number, (curve, item) in enumerate(zip(together.retained, corpus.items, strict=True)):
        [one] = decode(kl, part(corpus, number), [Selection()], 1, **generation)
        assert len(curve) == item.sentence_ids[-1] + 1 and curve[-1] == pytest.approx(1.0, abs=1e-5)
        np.testing.assert_allclose(curve, one.retained[0], atol=1e-5)


def test_d21_maps_of_words_and_sentences_add_up_to_one_and_agree(kl, corpus):
    """D21: means over heads and layers. The weights of a sentence's words add up to the sentence's."""
    found = attention_map(kl, corpus.items[1], **GENERATION)
    words, sentences = np.array(found["word"]), np.array(found["exact"])
    assert words.shape == (len(found["target"]), len(found["source"]))
    for number in range(sentences.shape[1]):
        inside = np.array(found["sentence_ids"]) == number
        np.testing.assert_allclose(words[:, inside].sum(1), sentences[:, number], atol=1e-3)
    np.testing.assert_allclose(sentences.sum(1), 1, atol=1e-3)
    assert found["source"][0] == "<s>" and found["source"][-1] == "</s>"


# Which systems, and the tables


def test_systems_of_each_task():
    """The tables' modes at all r; other phi and shared beams at the first; sparse-tuned runs at the first alone."""
    names = {}
    for task in ("base", "sparse", "integrated"):
        model = SimpleNamespace(sentence_encoder=1 if task == "integrated" else None)
        run = Run(TrainConfig(task=task), model, None, None)
        found = selections_of("s", run, (), (2, 1), True, 3)
        names[task] = list(found)
        assert all(selection.seed == 3 for selection in [*found.values()][1:])
        assert [system_name("s", selection) for selection in found.values()] == list(found)
    assert names["base"] == [
        "s.full", "s.ideal.r2", "s.ideal.r1", "s.ideal.r2.shared", "s.random.r2", "s.random.r1",
        "s.mean_key.r2", "s.mean_key.r1", "s.mean_key.r2.shared", "s.model_free-elu.r2", "s.model_free-elu.r1",
        "s.model_free-exp.r2", "s.model_free-relu.r2", "s.model_free-elu.r2.shared",
    ]  # fmt: skip
    assert names["sparse"] == ["s.full", "s.ideal.r2", "s.ideal.r2.shared", "s.random.r2"]
    assert names["integrated"] == ["s.full", "s.approx.r2", "s.approx.r1", "s.approx.r2.shared"]
    assert list(selections_of("s", run, ("full", "random"), (2, 1), True, 0)) == [
        "s.full",
        "s.random.r2",
        "s.random.r1",
    ]


def fake_metrics() -> dict:
    """Runs and systems as `evaluate` gives them; R-1 by hand."""

    def run(task, **more):
        more = {"task": task, "gamma": 0.0, "sentence_encoder": None, "select": None, "r_train": None} | more
        return more | {"source_tokens": 100.0, "source_sentences": 5.0, "target_tokens": 20.0, "sources_cut": 0}

    runs = {
        "base": run("base"), "g": run("sparse", gamma=0.1), "kl": run("kl", sentence_encoder="gru"),
        "apx": run("integrated", sentence_encoder="gru", select="approx", r_train=2),
    }  # fmt: skip
    values = {
        ("base", "full"): 90, ("base", "ideal"): 89, ("base", "random"): 50, ("base", "mean_key"): 85,
        ("base", "model_free"): 60, ("base", "ideal", 1): 80, ("g", "full"): 91, ("g", "ideal"): 90.5,
        ("g", "random"): 40, ("kl", "approx"): 70, ("apx", "approx"): 88, ("apx", "approx", 1): 99,
        ("apx", "approx", "shared"): 97,
    }  # fmt: skip
    systems = {}
    for (name, mode, *more), value in values.items():
        own = 91 if name == "g" else 90
        row = {"run": name, "mode": mode, "r": 1 if 1 in more else 2, "phi": "elu" if mode == "model_free" else None}
        row |= {"share_beams": "shared" in more} | dict.fromkeys(("rouge1", "rouge2", "rougeLsum"), around(value))
        for key, base in (("difference", 90), ("cost", own)):
            gap = around(value - base)
            row[key] = {"difference": gap.pop("mean"), **gap, "p": 0.5}
        systems[f"{name}.{mode}.{more}"] = row
    return {"r": [2, 1], "runs": runs, "systems": systems, "examples": 3, "signature": "signed"}


def around(value: float) -> dict:
    return {"mean": value, "low": value - 1, "high": value + 1}


def test_tables_hold_the_systems_of_the_paper():
    """At the first r; Table 6 also what the paper has not: the mean key, and choices that beams share."""
    rows = {number: table_rows(fake_metrics(), number) for number in (2, 3, 5, 6)}
    names = {number: [row["system"] for row in table] for number, table in rows.items()}
    base, apx = ["Vanilla, full", "Vanilla, ideal", "Vanilla, random"], "Int-Apx, r 2 in training (gru), approx"
    tuned = [f"L_A-tuned, gamma 0.1, {mode}" for mode in ("full", "ideal", "random")]
    assert names[2] == base + tuned and names[5] == [base[2], tuned[2]]
    assert names[3] == [*base, "KL-only (gru), approx", apx]
    more = ["Vanilla, mean_key", "Vanilla, model_free (elu)", "KL-only (gru), approx", apx, apx + ", beams share"]
    assert names[6] == base + more
    assert rows[5][1]["R-1 minus own full"]["difference"] == -51 and rows[5][1]["r"] == 2
    assert rows[3][4]["R-1 minus first full"]["difference"] == -2 and rows[3][0]["r"] == "all"
    assert rows[2][4]["R-1"] == around(90.5) and "salient recall" not in rows[2][4]


def test_a_table_without_its_runs_is_left_out():
    metrics = fake_metrics()
    assert [title for title in report(metrics).split("\n") if title.startswith("Table")] == [
        "Table 2", "Table 3", "Table 5", "Table 6", "Table 4"
    ]  # fmt: skip
    metrics["systems"] = {name: row for name, row in metrics["systems"].items() if row["run"] == "base"}
    assert [table_rows(metrics, number) for number in (2, 3, 5)] == [[], [], []] and table_rows(metrics, 6)
    metrics["systems"] = {name: row for name, row in metrics["systems"].items() if row["mode"] != "model_free"}
    assert table_rows(metrics, 6) == [] and "N/M" in report(metrics) and report(metrics).endswith("signed")


# The command


def test_all_tables_by_one_command(runs, tmp_path, capsys, examples):
    """Rows decode what they say, are compared with the right system, and stand in every file alike."""
    folders = [str(runs / name) for name in ("base", "tuned", "kl", "apx", "idl")]
    files = ["--json", str(tmp_path / "new" / "m.json"), "--csv", str(tmp_path / "c.csv"), "--predictions",
             str(tmp_path / "p"), "--map", "2"]  # fmt: skip
    main([*folders, *QUICK, *files])
    printed, metrics = capsys.readouterr().out, json.loads((tmp_path / "new" / "m.json").read_text())
    systems = metrics["systems"]
    assert all(f"Table {number}\n| " in printed for number in (2, 3, 4, 5, 6)) and metrics["signature"] in printed
    trained = [tuple(run[key] for key in ("task", "gamma", "r_train", "seed")) for run in metrics["runs"].values()]
    assert list(metrics["runs"]) == ["base", "tuned", "kl", "apx", "idl"] and trained == [
        ("base", 0.0, None, 0), ("sparse", 1.0, None, 3), ("kl", 0.0, None, 0), ("integrated", 0.0, 2, 0),
        ("integrated", 0.0, 1, 0),
    ]  # fmt: skip
    base = metrics["runs"]["base"]
    assert "map" in base and "map" not in metrics["runs"]["kl"] and base["sources_cut"] == 0
    assert metrics["generation"]["num_beams"] == 2 and metrics["data"] == DATA
    tokenizer = load_run(runs / "base").tokenizer
    assert base["target_tokens"] == np.mean([len(tokenizer(e.target)["input_ids"]) for e in examples])  # Table 4

    texts = {}
    for name in systems:
        rows = [json.loads(line) for line in (tmp_path / "p" / f"{name}.jsonl").read_text().splitlines()]
        assert {row["id"]: row["reference"] for row in rows} == {e.id: e.target for e in examples}
        texts[name] = [{row["id"]: row["prediction"] for row in rows}[e.id] for e in examples]
    assert texts["kl.full"] == texts["base.full"]  # KL-only leaves the summariser as it is
    run = load_run(runs / "apx")
    [approx] = decode(run, read_corpus(run, examples), [Selection("approx", 1)], 5, **GENERATION)
    assert texts["apx.approx.r1"] == approx.texts

    values = {name: rouge.score(found, [e.references for e in examples])["rouge1"] for name, found in texts.items()}
    for name, row in systems.items():
        assert row["rouge1"]["mean"] == pytest.approx(values[name].mean())
        assert row["difference"]["difference"] == pytest.approx((values[name] - values["base.full"]).mean())
        own = values[f"{row['run']}.full"]
        assert row["cost"]["difference"] == pytest.approx((values[name] - own).mean())
        assert row["cost"]["p"] == rouge.paired_test(values[name], own)  # approximate randomisation
    assert systems["base.full"]["salient_recall"]["mean"] == 100

    written = list(csv.DictReader((tmp_path / "c.csv").open(encoding="utf-8")))
    assert [(row["system"], row["seed"]) for row in written] == [
        (name, str(metrics["runs"][row["run"]]["seed"])) for name, row in systems.items()
    ]
    for row in written:
        assert float(row["rouge1_mean"]) == pytest.approx(systems[row["system"]]["rouge1"]["mean"], rel=1e-4)


def test_d20_scores_are_shared_rouge_over_sentences(kl, examples, monkeypatch):
    """D20: R-L is Lsum: two sentences in another order score 100."""
    stories = [replace(examples[0], references=[["red cats sleep .", "dogs bark ."]], salient=None)] * 2
    answer = evaluation.Decoded(["dogs bark . red cats sleep .", "red cats"], np.full(2, np.nan), [np.ones(1)] * 2, 1.0)
    monkeypatch.setattr(evaluation, "decode", lambda *a, **k: [answer])
    row = evaluate({"kl": kl}, stories, modes=("full",))["systems"]["kl.full"]
    expected = rouge.score([["dogs bark .", "red cats sleep ."], ["red cats"]], [each.references for each in stories])
    assert expected["rougeLsum"][0] == pytest.approx(100.0) and "salient_recall" not in row
    assert all(row[metric]["mean"] == expected[metric].mean() for metric in ("rouge1", "rouge2", "rougeLsum"))


def test_a_bart_that_is_no_run(tmp_path, examples, runs, capsys):
    """Its positions are the limit, its own generation settings the default, and its rule that of the run beside it."""
    save_bart(tmp_path / "bart")
    run = load_run_or_bart(str(tmp_path / "bart"))
    assert check_generation("bart", run, {}) == {"num_beams": 3, "max_length": 21}
    assert {len(item.ids) for item in read_corpus(run, examples).items} <= set(range(257))
    main([str(tmp_path / "bart"), *QUICK, "--modes", "mean_key", "--decoding", "own"])
    assert "bart.mean_key.r1" in capsys.readouterr().out
    train(replace(SMALL, steps=1, sentences="eos-token"), tmp_path / "dots")
    names = (str(tmp_path / "bart"), str(tmp_path / "dots"))
    rules = lambda **flags: [run.splitter.rule for run in evaluation.load_runs(evaluation.Options(**flags)).values()]  # noqa: E731
    with pytest.raises(SystemExit):
        main(names[:1])
    assert "bart is not a run that knows its data: give --data" in capsys.readouterr().err
    assert rules(runs=names) == ["eos-token"] * 2 and rules(runs=names, sentences="given") == ["given", "eos-token"]


def test_documents_of_one_string_are_split_each_by_itself(kl):
    """D8: with "given" a whole string is split; what came in sentences stays."""
    both = [example(["a storm . hit", "the town ."], "x"), example(["It rained. We left. He stayed."], "y")]
    assert [item.sentence_ids[-1] + 1 for item in read_corpus(kl, both).items] == [3, 4]  # and `</s>`


def test_a_runs_own_length_is_the_limit(kl, examples):
    short = read_corpus(kl._replace(config=replace(kl.config, max_source=40)), examples)
    assert all(len(item.ids) == 40 and item.was_cut for item in short.items)
    assert all(len(marks) == i.sentence_ids[-1] + 1 for marks, i in zip(short.salient, short.items, strict=True))


def test_decoding_settings_are_those_of_the_released_configurations():
    """A.3: beam 4, length penalty 2.0; released code: lengths by corpus, no trigram twice."""
    lengths = {"paper": (50, 200), "paper-arxiv": (56, 400), "paper-podcast": (56, 144)}
    for name, (low, high) in lengths.items():
        expected = dict(num_beams=4, length_penalty=2.0, min_length=low, max_length=high, no_repeat_ngram_size=3)
        assert evaluation.DECODING[name] == expected
    assert evaluation.DECODING["own"] == {} and evaluation.Options(runs=()).decoding == "own"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["{runs}/nothing", "--data", DATA], "cannot load"),
        (["{runs}", "--data", DATA], "neither a run nor a BART"),
        (["{runs}/base", "{runs}/../x/base"], "same name"),
        ([], "run"),
        (["{runs}/base", "--r", "5", "0"], "--r and --batch-size must be at least 1"),
        (["{runs}/base", "--modes", "approx", "--limit", "2"], "base has no approximator: leave mode 'approx' out"),
        (["{runs}/base", "--map", "5", "--limit", "5"], "there are 5 examples, counted from 0"),
        (["{runs}/base", "--json", "{runs}"], "is not a file"),
        (["{runs}/base", "--csv", "{runs}/base/config.json/x"], "config.json"),
        (["{runs}/base", "--beam", "0"], "--beam is 0"),
        (["{runs}/base", "--max-length", "1"], "--max-length is 1"),
        (["{runs}/base", "--min-length", "90", "--max-length", "20"], "--max-length is 20"),
        (["{runs}/base", "--max-length", "5000"], "at most 1024, the positions of base"),
        (["{runs}/base", "--device", "cuda:9"], "--device cuda:9 cannot be used here"),
        (["{runs}/base", "--data", "no/such/place"], "no/such/place"),
        (["{runs}/base", "--split", "tset"], "tset"),
        (["{runs}/base", "--modes", "best"], "best"),
        (["{runs}/base", "--rr", "1"], "rr"),
    ],
)
def test_bad_requests_end_with_a_message_before_any_work(runs, flags, message, capsys, monkeypatch):
    monkeypatch.setattr(evaluation, "decode", lambda *a, **k: pytest.fail("it was decoded"))
    with pytest.raises(SystemExit) as stop:
        main([flag.format(runs=runs) for flag in flags])
    captured = capsys.readouterr()
    assert stop.value.code in (1, 2) and message in captured.err + captured.out


def test_a_reference_that_rouge_cannot_read_is_found_before_decoding(kl, monkeypatch):
    monkeypatch.setattr(evaluation, "decode", lambda *a, **k: pytest.fail("it was decoded"))
    with pytest.raises(ValueError, match="one: the reference '...' has no word"):
        evaluate({"kl": kl}, [example(["one", "two"], "...")])
