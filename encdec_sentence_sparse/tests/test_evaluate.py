"""Decoding, measures, tables and the command line."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from transformers import BartConfig, BartForConditionalGeneration

from shared import rouge
from shared.data import Example, load, write_jsonl

from .. import evaluate
from ..evaluate import (
    Document,
    Run,
    attention_map,
    decode,
    default_data,
    difference,
    main,
    mean_curve,
    parse,
    read_again,
    read_run,
    read_summaries,
    retained_attention,
    salient_recall,
    salient_sentences,
    score,
    selections_of,
    system_name,
    table_lines,
    table_rows,
)
from ..selection import Selection, SentenceAttention
from ..text import train_tokenizer
from ..train import TrainConfig, train
from .test_train import DATA, SMALL

QUICK = ["--data", DATA, "--limit", "5", "--max-length", "9", "--beam", "2", "--batch-size", "3", "--r", "2", "1"]
GENERATION = dict(num_beams=2, max_length=9)


def example(source: list[str], target: str, **fields) -> Example:
    return Example(id=source[0], document=source, summary=[target], references=[[target]], **fields)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each task, hardly trained, and a second integrated one."""
    folder = tmp_path_factory.mktemp("runs")
    small = replace(SMALL, steps=2, max_source=400)
    train(small, folder / "base")
    train(replace(small, task="sparse", init=str(folder / "base"), gamma=1.0), folder / "tuned")
    train(replace(small, task="kl", init=str(folder / "base")), folder / "kl")
    integrated = replace(small, task="integrated", init=str(folder / "kl"))
    train(replace(integrated, r=2), folder / "apx")
    train(replace(integrated, r=1, select="ideal"), folder / "idl")
    return folder


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return load(DATA, "test", 5)


def flags_of(*more: str):
    return parse(["x", *QUICK, *more])


@pytest.fixture(scope="module")
def kl(runs, examples) -> Run:
    return read_run(str(runs / "kl"), examples, flags_of())


# Decoding


def test_a_batch_is_decoded_as_its_documents_alone_under_each_selection(kl):
    """In the order of the documents, each selection in its place; states encoded once serve all of them."""
    selections = [Selection("full"), Selection("random", 1), Selection("approx", 2), Selection("ideal", 1)]
    calls, encoder = [], kl.model.get_encoder()
    hook = encoder.register_forward_hook(lambda *a: calls.append(1))
    together = decode(kl, selections, 3, **GENERATION)
    assert len(calls) == 2  # two batches
    hook.remove()
    for selection, found in zip(selections, together, strict=True):
        kl.model.selection = selection
        for number, document in enumerate(kl.documents):
            ids = torch.tensor([document.ids])
            source = dict(attention_mask=torch.ones_like(ids), sentence_ids=torch.tensor([document.sentence_ids]))
            [expected] = kl.model.generate(ids, **source, do_sample=False, **GENERATION).tolist()
            texts = read_summaries(kl, [found.summaries[number], expected])
            assert texts[0] == texts[1]
        assert found.seconds > 0
    assert together[0].summaries != together[1].summaries != together[3].summaries


def test_reading_again_sees_the_choices_of_decoding(kl):
    """Greedy: the sentences that `generate` kept at each step, recorded while it ran, are those read again."""
    document = max(kl.documents, key=lambda document: document.sentence_ids[-1])
    for mode in ("ideal", "random", "approx", "mean_key"):
        kl.model.selection = Selection(mode, 2)
        [batch] = evaluate.batches(kl._replace(documents=[document]), 1)
        chosen = [[] for _ in kl.model.attentions]
        undo = []
        for attention, kept in zip(kl.model.attentions, chosen, strict=True):
            select = attention.select
            attention.select = lambda *a, select=select, kept=kept: kept.append(select(*a)) or kept[-1]
            undo.append(attention)
        rows = kl.model.generate(**batch.source(), do_sample=False, num_beams=1, max_length=7)
        for attention in undo:
            del attention.select
        record, is_step = read_again(kl.model, batch, rows)
        for each, kept in zip(record, chosen, strict=True):
            assert torch.equal(torch.cat(kept, 1), each.keep)
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


def test_recall_of_decoding_is_known_where_it_can_be(kl):
    """All of it under full attention; unknown where beams share a choice, or the corpus does not say."""
    full, ideal, shared = decode(kl, [Selection(), Selection("ideal", 1), Selection("ideal", 1, share_beams=True)], 5,
                                 **GENERATION)  # fmt: skip
    assert (full.salient_recall == 100).all() and ((0 <= ideal.salient_recall) & (ideal.salient_recall <= 100)).all()
    assert np.isnan(shared.salient_recall).all() and len(shared.summaries[0]) > 1
    unknown = kl._replace(documents=[document._replace(salient=None) for document in kl.documents])
    assert np.isnan(decode(unknown, [Selection()], 5, **GENERATION)[0].salient_recall).all()


def test_salient_sentences_follow_the_models_own_sentences(kl):
    """A sentence of the model is salient if a token of it is: two given ones in one, one cut in two, `</s>` not."""
    text = ["one two .", "three four .", "five ."]
    story = example(text, "x", salient=[False, True, False])
    given = evaluate.encode(kl.tokenizer, text, 99, evaluate.make_splitter("given")).sentence_ids
    assert salient_sentences(story, given, kl.tokenizer, 99) == [False, True, False, False]
    merged = [0 if number < 2 else 1 for number in given]
    assert salient_sentences(story, merged, kl.tokenizer, 99) == [True, False]
    half = given.index(1) + 1
    halved = [number + (number >= 1 and place >= half) for place, number in enumerate(given)]
    assert salient_sentences(story, halved, kl.tokenizer, 99) == [False, True, True, False, False]
    cut = given.index(1)  # the first sentence and, in the place of its last token, `</s>`
    assert salient_sentences(story, [*given[: cut - 1], 1], kl.tokenizer, cut) == [False, False]
    last = replace(story, salient=[False, False, True])
    assert salient_sentences(last, given, kl.tokenizer, 99) == [False, False, True, False]
    assert salient_sentences(replace(story, salient=None), given, kl.tokenizer, 99) is None


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


def test_retained_attention_of_a_batch_knows_no_padding(kl):
    """A short document beside longer ones has the curve that it has alone, of its own number of sentences."""
    generation = dict(num_beams=1, max_length=6)
    [together] = decode(kl, [Selection()], 5, **generation)
    alone = [decode(kl._replace(documents=[document]), [Selection()], 1, **generation)[0] for document in kl.documents]
    for curve, one, document in zip(together.retained, alone, kl.documents, strict=True):
        assert len(curve) == document.sentence_ids[-1] + 1 and curve[-1] == pytest.approx(1.0, abs=1e-5)
        np.testing.assert_allclose(curve, one.retained[0], atol=1e-5)


def test_d21_maps_sum_to_one_and_agree(kl):
    """D21: means over heads and layers. The weights of a sentence's words add up to the sentence's."""
    found = attention_map(kl, 1, GENERATION)
    words, sentences = np.array(found["word"]), np.array(found["exact"])
    assert words.shape == (len(found["target"]), len(found["source"]))
    for number in range(sentences.shape[1]):
        inside = np.array(found["sentence_ids"]) == number
        np.testing.assert_allclose(words[:, inside].sum(1), sentences[:, number], atol=1e-3)
    np.testing.assert_allclose(sentences.sum(1), 1, atol=1e-3)
    assert found["source"][0] == "<s>" and found["source"][-1] == "</s>"


# Measures


def test_d20_scores_are_shared_rouge_over_sentences():
    """D20: R-L is Lsum: two sentences in another order score 100."""
    stories = [replace(example(["a"], "x"), references=[["red cats sleep .", "dogs bark ."]])] * 2
    texts = ["dogs bark . red cats sleep .", "red cats"]
    found = score(texts, stories, np.array([50.0, 0.0]))
    expected = rouge.score([["dogs bark .", "red cats sleep ."], ["red cats"]], [each.references for each in stories])
    assert found["rougeLsum"][0] == pytest.approx(100.0) and found["salient_recall"].tolist() == [50, 0]
    assert all((found[metric] == expected[metric]).all() for metric in evaluate.METRICS)
    assert "salient_recall" not in score(texts, stories, np.array([50.0, np.nan]))


def test_differences_are_paired():
    """A constant gain on examples that vary a lot has an interval without width; noise has one around 0."""
    rng = np.random.default_rng(0)
    base = rng.normal(40, 15, 200)
    found = difference(dict.fromkeys(evaluate.METRICS, base - 2), dict.fromkeys(evaluate.METRICS, base))["rouge2"]
    assert [found[key] for key in ("mean", "low", "high")] == pytest.approx([-2, -2, -2]) and found["p"] < 0.005
    noisy = dict.fromkeys(evaluate.METRICS, base + rng.normal(0, 1, 200))
    noise = difference(noisy, dict.fromkeys(evaluate.METRICS, base))["rouge1"]
    assert noise["low"] < 0 < noise["high"] and noise["p"] > 0.005


# Which systems, and the tables


def test_systems_of_each_task(runs, examples):
    """The tables' modes at all r; other phi and shared beams at the first; sparse-tuned runs at the first alone."""
    flags = flags_of("--share-beams", "--seed", "3")
    names = {}
    for task, folder in (("base", "base"), ("sparse", "tuned"), ("integrated", "apx")):
        model = SimpleNamespace(sentence_encoder=None if task != "integrated" else 1)
        run = Run(folder, model, None, TrainConfig(task=task, init="" if task == "base" else "x"), [])
        names[task] = [system_name("s", selection) for selection in selections_of(run, flags)]
        assert all(s.seed == 3 for s in selections_of(run, flags)[1:])
    assert names["base"] == [
        "s.full", "s.ideal.r2", "s.ideal.r1", "s.ideal.r2.shared", "s.random.r2", "s.random.r1",
        "s.mean_key.r2", "s.mean_key.r1", "s.mean_key.r2.shared", "s.model_free-elu.r2", "s.model_free-elu.r1",
        "s.model_free-exp.r2", "s.model_free-relu.r2", "s.model_free-elu.r2.shared",
    ]  # fmt: skip
    assert names["sparse"] == ["s.full", "s.ideal.r2", "s.ideal.r2.shared", "s.random.r2"]
    assert names["integrated"] == ["s.full", "s.approx.r2", "s.approx.r1", "s.approx.r2.shared"]
    asked = selections_of(run, flags_of("--modes", "full", "random"))
    assert [system_name("s", selection) for selection in asked] == ["s.full", "s.random.r2", "s.random.r1"]


def fake_metrics() -> dict:
    """Runs and systems as `evaluate` writes them; R-1 by hand."""

    def run(task, **more):
        return {"task": task, "gamma": 0.0, "sentence_encoder": None, "select": None, "r_train": None} | more

    runs = {
        "base": run("base"), "g": run("sparse", gamma=0.1), "kl": run("kl", sentence_encoder="gru"),
        "apx": run("integrated", sentence_encoder="gru", select="approx", r_train=2),
        "idl": run("integrated", sentence_encoder="gru", select="ideal", r_train=2),
    }  # fmt: skip
    values = {
        ("base", "full"): 90, ("base", "ideal"): 89, ("base", "random"): 50, ("base", "mean_key"): 85,
        ("base", "model_free"): 60, ("base", "ideal", 1): 80, ("g", "full"): 91, ("g", "ideal"): 90.5,
        ("g", "random"): 40, ("kl", "approx"): 70, ("apx", "approx"): 88, ("idl", "approx"): 75,
        ("apx", "approx", 1): 99, ("apx", "approx", "shared"): 97, ("idl", "approx", "shared"): 96,
    }  # fmt: skip
    systems = {}
    for (name, mode, *more), value in values.items():
        r = 1 if 1 in more else 2
        gap = {key: value - (91 if name == "g" and key == "full" else 90) for key in ("first", "full")}
        row = {"run": name, "mode": mode, "r": r, "phi": "elu" if mode == "model_free" else None, "seconds": 1.0}
        row |= {"share_beams": "shared" in more, "scores": {m: around(value) for m in evaluate.METRICS}}
        row |= {f"to_{key}": {m: around(gap[key]) | {"p": 0.5} for m in evaluate.METRICS} for key in gap}
        selection = Selection(mode, r, share_beams="shared" in more)
        systems[system_name(name, selection)] = row
    return {"r": [2, 1], "runs": runs, "systems": systems}


def around(value: float) -> dict:
    return {"mean": value, "low": value - 1, "high": value + 1}


def test_tables_hold_the_systems_of_the_paper():
    """At the first r. The best learned system of Table 6 is best among those that share nothing."""
    metrics = fake_metrics()
    found = {number: [row["system"] for row in table_rows(metrics, number)] for number in (2, 3, 5, 6)}
    base = ["base.full", "base.ideal.r2", "base.random.r2"]
    assert found[2] == [*base, "g.full", "g.ideal.r2", "g.random.r2"]
    assert found[3] == [*base, "kl.approx.r2", "apx.approx.r2", "idl.approx.r2"]
    assert found[5] == ["base.random.r2", "g.random.r2"]
    assert found[6] == [*base, "base.mean_key.r2", "base.model_free-elu.r2", "apx.approx.r2", "apx.approx.r2.shared"]


def test_lines_of_tables_say_what_is_compared():
    """Tables 2 and 5: what a selection costs this model; Tables 3 and 6: against the first run's full attention."""
    metrics = fake_metrics()
    lines = table_lines(metrics, 5)
    assert lines[0].endswith("| R-1 minus own full |") and lines[1].count("---") == lines[0].count("|") - 1
    assert lines[3] == (
        "| L_A-tuned, gamma 0.1 | random | 2 | 40.00 [39.00, 41.00] | 40.00 [39.00, 41.00] | 40.00 [39.00, 41.00] | "
        "-51.00 [-52.00, -50.00] |"
    )
    lines = table_lines(metrics, 3)
    assert lines[0].endswith("| R-1 minus first full |") and lines[2].startswith("| Vanilla | full | all |")
    assert lines[6].startswith("| Int-Apx, r 2 in training (gru) | approx | 2 | 88.00 [87.00, 89.00]")
    assert lines[-1].endswith("| -15.00 [-16.00, -14.00] |") and "Int-Idl" in lines[-1]
    assert any("model_free (elu)" in line for line in table_lines(metrics, 6))
    assert "approx, beams share" in table_lines(metrics, 6)[-1]


def test_a_table_without_its_runs_is_left_out():
    metrics = fake_metrics()
    metrics["systems"] = {name: row for name, row in metrics["systems"].items() if row["run"] == "base"}
    assert [table_lines(metrics, number) for number in (2, 3, 5)] == [[], [], []] and table_lines(metrics, 6)
    metrics["systems"] = {name: row for name, row in metrics["systems"].items() if row["mode"] != "model_free"}
    assert table_lines(metrics, 6) == []


# The command


def test_all_tables_by_one_command(runs, tmp_path, capsys, examples):
    """Rows decode what they say, are compared with the right system, and stand in every file alike."""
    folders = [str(runs / name) for name in ("base", "tuned", "kl", "apx", "idl")]
    files = ["--json", str(tmp_path / "new" / "m.json"), "--csv", str(tmp_path / "c"), "--predictions",
             str(tmp_path / "p"), "--map", "2"]  # fmt: skip
    main([*folders, *QUICK, *files])
    printed, metrics = capsys.readouterr().out, json.loads((tmp_path / "new" / "m.json").read_text())
    systems = metrics["systems"]
    assert all(f"Table {number}\n| system" in printed for number in (2, 3, 5, 6)) and metrics["signature"] in printed
    assert [(name, run["task"], run["gamma"], run["r_train"]) for name, run in metrics["runs"].items()] == [
        ("base", "base", 0.0, None), ("tuned", "sparse", 1.0, None), ("kl", "kl", 0.0, None),
        ("apx", "integrated", 0.0, 2), ("idl", "integrated", 0.0, 1),
    ]  # fmt: skip
    assert "map" in metrics["runs"]["base"] and "map" not in metrics["runs"]["kl"]
    assert metrics["runs"]["base"]["sources_cut"] == 0 and metrics["generation"]["num_beams"] == 2

    texts = {}
    for name in systems:
        rows = [json.loads(line) for line in (tmp_path / "p" / f"{name}.jsonl").read_text().splitlines()]
        assert [row["reference"] for row in rows] == [each.target for each in examples]
        assert [row["id"] for row in rows] == [each.id for each in examples]
        texts[name] = [row["prediction"] for row in rows]
    assert texts["kl.full"] == texts["base.full"]  # KL-only leaves the summariser as it is
    run = read_run(str(runs / "apx"), examples, flags_of())
    [approx] = decode(run, [Selection("approx", 1)], 5, **parse(["x", *QUICK]).generation)
    assert texts["apx.approx.r1"] == read_summaries(run, approx.summaries)

    values = {name: rouge.score(found, [e.references for e in examples])["rouge1"] for name, found in texts.items()}
    for name, row in systems.items():
        assert row["scores"]["rouge1"]["mean"] == pytest.approx(values[name].mean())
        assert row["to_first"]["rouge1"]["mean"] == pytest.approx((values[name] - values["base.full"]).mean())
        own = values[f"{row['run']}.full"]
        assert row["to_full"]["rouge1"]["mean"] == pytest.approx((values[name] - own).mean())
    assert systems["base.full"]["scores"]["salient_recall"]["mean"] == 100

    written = {path.stem: list(csv.DictReader(path.open(encoding="utf-8"))) for path in (tmp_path / "c").iterdir()}
    assert sorted(written) == ["systems", "table_2", "table_3", "table_5", "table_6"]
    assert [row["system"] for row in written["systems"]] == list(systems)
    for row in written["table_3"]:
        assert float(row["rouge1"]) == pytest.approx(systems[row["system"]]["scores"]["rouge1"]["mean"], rel=1e-3)
        gap = systems[row["system"]]["to_first"]["rouge1"]["low"]
        assert float(row["rouge1 to_first low"]) == pytest.approx(gap, rel=1e-3, abs=1e-3)


def test_a_bart_that_is_no_run(tmp_path, examples, capsys):
    """A folder of transformers: its positions are the limit, --sentences its rule; unsplit data is named."""
    tokenizer = train_tokenizer([each.source for each in load(DATA, "train")], 400)
    sizes = dict(vocab_size=len(tokenizer), d_model=16, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=8)
    bart = BartForConditionalGeneration(
        BartConfig(max_position_embeddings=50, encoder_attention_heads=2, decoder_attention_heads=2, **sizes)
    )
    bart.save_pretrained(tmp_path / "bart")
    tokenizer.save_pretrained(tmp_path / "bart")
    run = read_run(str(tmp_path / "bart"), examples, flags_of())
    assert {len(document.ids) for document in run.documents} == {50} and all(d.was_cut for d in run.documents)
    dots = read_run(str(tmp_path / "bart"), examples, flags_of("--sentences", "eos-token"))
    ends = [
        token for token, mark in zip(dots.documents[0].ids, dots.documents[0].sentence_ids, strict=True) if not mark
    ]
    assert tokenizer.decode(ends[-1:]).strip() == "."
    main([str(tmp_path / "bart"), *QUICK, "--modes", "mean_key"])
    assert "bart.mean_key.r1" in capsys.readouterr().out
    with pytest.raises(ValueError, match="bart is not a run of .*give --data"):
        default_data(str(tmp_path / "bart"))
    whole = [{"source": each.source, "target": each.target} for each in examples]
    write_jsonl(tmp_path / "test.jsonl", whole)
    with pytest.raises(SystemExit, match="error: the documents of .*test.jsonl are not split into sentences"):
        main([str(tmp_path / "bart"), *QUICK, "--data", str(tmp_path / "test.jsonl")])


def test_a_runs_own_length_is_the_limit(runs, examples, tmp_path):
    train(replace(SMALL, steps=1, max_source=40), tmp_path / "short")
    run = read_run(str(tmp_path / "short"), examples, flags_of())
    assert {len(document.ids) for document in run.documents} == {40}
    assert default_data(str(tmp_path / "short")) == DATA
    document = run.documents[0]
    assert isinstance(document, Document) and len(document.salient) == document.sentence_ids[-1] + 1


def test_decoding_presets_hold_the_papers_values():
    """A.3: beam 4, length penalty 2.0; released code: lengths 50-200, no trigram twice. Flags win over a preset."""
    paper = parse(["x", "--data", "toy", "--decoding", "paper"]).generation
    assert paper == dict(num_beams=4, length_penalty=2.0, min_length=50, max_length=200, no_repeat_ngram_size=3)
    changed = parse(["x", "--data", "toy", "--decoding", "paper", "--beam", "1", "--min-length", "0"]).generation
    assert changed == paper | dict(num_beams=1, min_length=0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["{runs}/nothing", "--data", DATA], "cannot load|not a run folder"),
        (["{runs}/nothing"], "give --data"),
        (["{runs}/base", "{runs}/../x/base"], "same name"),
        (["{runs}/base", "--r", "5", "0"], "--r 0: at least 1 sentence"),
        (["{runs}/base", "--modes", "approx", "--limit", "2"], "base has no approximator: leave mode 'approx' out"),
        (["{runs}/base", "--map", "5", "--limit", "5"], "there are 5 examples, counted from 0"),
        (["{runs}/base", "--json", "{runs}"], "is a folder; name a file"),
        (["{runs}/base", "--csv", "{runs}/base/config.json"], "is a file; name a folder"),
        (["{runs}/base", "--predictions", "{runs}/base/config.json"], "is a file; name a folder"),
        (["{runs}/base", "--beam", "0"], "must be at least 1"),
        (["{runs}/base", "--max-length", "1"], "--max-length must be at least 2"),
        (["{runs}/base", "--data", "no/such/place"], "no/such/place"),
        (["{runs}/base", "--data", DATA, "--split", "tset"], "tset"),
    ],
)
def test_bad_requests_end_with_a_message(runs, flags, message):
    with pytest.raises(SystemExit, match=f"error: .*({message})"):
        main([flag.format(runs=runs) for flag in flags])


@pytest.mark.parametrize("flags", [["--modes", "best"], ["--tables", "4"], ["--r", "many"], ["--rr", "1"]])
def test_unknown_and_mistyped_flags(flags, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["x", "--data", "toy", *flags])
    assert stop.value.code == 2 and flags[-1] in capsys.readouterr().err


def test_no_gpu_is_said(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="--device cuda, but torch finds no GPU here"):
        parse(["x", "--data", "toy", "--device", "cuda"])
