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
from .. import text as text_file
from ..config import TrainConfig
from ..decode import DECODING, check_generation
from ..evaluate import decode_all, describe, evaluate, main, selections_of
from ..loading import Run, load_run, load_run_or_bart
from ..selection import MODES, Selection
from ..text import Item
from ..train import train
from .test_train import DATA, SMALL, save_bart

QUICK = ["--data", DATA, "--limit", "5", "--max-length", "9", "--beam", "2", "--batch-size", "3", "--r", "2", "1"]
GENERATION = dict(num_beams=2, max_length=9)


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
def items(kl, examples) -> list[Item]:
    return kl.encode(examples)


def rows_of(printed: str) -> dict[str, list[str]]:
    """The cells of a printed table's rows, by their first one."""
    rows = [line.strip().strip("|").split("|") for line in printed.splitlines() if line.count("|") > 4]
    return {row[0].strip(): row[1:] for row in rows}


# Decoding


def test_a_batch_is_decoded_as_its_documents_alone_under_each_selection(kl, items, examples):
    """In the order of the documents, each selection in its place; states encoded once serve all of them."""
    selections = [Selection("full"), Selection("random", 1), Selection("approx", 2), Selection("ideal", 1)]
    named = dict(zip("abcd", selections, strict=True))
    calls, encoder = [], kl.model.get_encoder()
    hook = encoder.register_forward_hook(lambda *a: calls.append(1))
    together = decode_all(kl, items, named, examples, None, 3, **GENERATION)
    assert len(calls) == 2  # two batches
    hook.remove()
    for selection, texts in zip(selections, together, strict=True):
        kl.model.selection = selection
        for item, text in zip(items, texts, strict=True):
            ids = torch.tensor([item.ids])
            source = dict(attention_mask=torch.ones_like(ids), sentence_ids=torch.tensor([item.sentence_ids]))
            rows = kl.model.generate(ids, **source, do_sample=False, **GENERATION)
            [expected] = kl.tokenizer.batch_decode(rows, skip_special_tokens=True)
            assert text == " ".join(expected.split())


# Which systems


def test_systems_of_each_task():
    """The tables' modes at all r; other phi at the first; sparse-tuned runs at the first alone."""
    names = {}
    for task in ("base", "sparse", "integrated"):
        run = Run(TrainConfig(task=task), SimpleNamespace(sentence_encoder=task == "integrated" or None), None)
        names[task] = selections_of("s", run, (), (2, 1), 3)
    base = ["s.full", "s.ideal.r2", "s.ideal.r1", "s.random.r2", "s.random.r1", "s.mean_key.r2", "s.mean_key.r1"]
    free = ["s.model_free-elu.r2", "s.model_free-exp.r2", "s.model_free-relu.r2", "s.model_free-elu.r1"]
    assert list(names["base"]) == base + free
    assert names["base"]["s.random.r1"] == Selection("random", 1, seed=3)
    assert names["base"]["s.model_free-exp.r2"] == Selection("model_free", 2, "exp", 3)
    assert list(names["sparse"]) == ["s.full", "s.ideal.r2", "s.random.r2"]
    assert list(names["integrated"]) == ["s.full", "s.approx.r2", "s.approx.r1"]
    assert list(selections_of("s", run, ("full", "random"), (2, 1), 0)) == base[:1] + base[3:5]


# The command


def test_all_tables_by_one_command(runs, tmp_path, capsys, examples):
    """Rows decode what they say, are compared with the right system, and stand in every file alike."""
    folders = [str(runs / name) for name in ("base", "tuned", "kl", "apx", "idl")]
    files = ["--json", str(tmp_path / "new" / "m.json"), "--csv", str(tmp_path / "c.csv")]
    files += ["--predictions", str(tmp_path / "p")]
    main([*folders, *QUICK, *files])
    printed, metrics = capsys.readouterr().out, json.loads((tmp_path / "new" / "m.json").read_text())
    systems = metrics["systems"]
    assert "Table 4" in printed and printed.rstrip().endswith(metrics["signature"])
    trained = [tuple(run[key] for key in ("task", "gamma", "r_train", "seed")) for run in metrics["runs"].values()]
    assert list(metrics["runs"]) == ["base", "tuned", "kl", "apx", "idl"] and trained == [
        ("base", 0.0, None, 0), ("sparse", 1.0, None, 3), ("kl", 0.0, None, 0), ("integrated", 0.0, 2, 0),
        ("integrated", 0.0, 1, 0),
    ]  # fmt: skip
    base = metrics["runs"]["base"]
    assert base["sources_cut"] == 0
    assert metrics["generation"]["num_beams"] == 2 and metrics["data"] == DATA
    tokenizer = load_run(runs / "base").tokenizer
    table_4 = [[len(tokenizer(text)["input_ids"]) for text in (e.source, e.target)] for e in examples]
    assert [base["source_tokens"], base["target_tokens"]] == np.mean(table_4, 0).tolist()
    assert base["source_sentences"] == np.mean([len(e.document) + 1 for e in examples])  # </s> is one
    lengths = [base[name] for name in ("source_tokens", "source_sentences", "target_tokens")]
    cells = [f"{number:.2f}" for number in [*lengths, lengths[0] / lengths[2]]]
    assert [cell.strip() for cell in rows_of(printed)["base"]] == [*cells, "0"]
    row = systems["base.ideal.r2"]
    shown = [cell.strip() for cell in rows_of(printed)["base.ideal.r2"]]
    for cell, metric in zip(shown, ("rouge1", "rouge2", "rougeLsum"), strict=False):
        assert cell.startswith(f"{row[metric]['mean']:.1f}")
    assert f"{row['difference']['difference']:.1f}" in shown[3] and f"{row['cost']['difference']:.1f}" in shown[4]

    texts = {}
    for name in systems:
        rows = [json.loads(line) for line in (tmp_path / "p" / f"{name}.jsonl").read_text().splitlines()]
        assert {row["id"]: row["reference"] for row in rows} == {e.id: e.target for e in examples}
        texts[name] = [{row["id"]: row["prediction"] for row in rows}[e.id] for e in examples]
    assert texts["kl.full"] == texts["base.full"]  # KL-only leaves the summariser as it is
    run = load_run(runs / "apx")
    [approx] = decode_all(run, run.encode(examples), {"x": Selection("approx", 1)}, examples, **GENERATION)
    assert texts["apx.approx.r1"] == approx

    values = {name: rouge.score(found, [e.references for e in examples])["rouge1"] for name, found in texts.items()}
    for name, row in systems.items():
        assert row["rouge1"]["mean"] == pytest.approx(values[name].mean())
        assert row["difference"]["difference"] == pytest.approx((values[name] - values["base.full"]).mean())
        own = values[f"{row['run']}.full"]
        assert row["cost"]["difference"] == pytest.approx((values[name] - own).mean())
        assert row["cost"]["p"] == rouge.paired_test(values[name], own)  # approximate randomisation

    written = list(csv.DictReader((tmp_path / "c.csv").open(encoding="utf-8")))
    assert [(row["system"], row["seed"]) for row in written] == [
        (name, str(metrics["runs"][row["run"]]["seed"])) for name, row in systems.items()
    ]
    for row in written:
        assert float(row["rouge1_mean"]) == pytest.approx(systems[row["system"]]["rouge1"]["mean"], rel=1e-4)


def test_table_4_has_the_length_of_whole_summaries_and_of_what_was_read(kl, examples):
    """M is not cut to --max-target; N and the number of documents that were cut are of what the model reads."""
    short = kl._replace(config=replace(kl.config, max_target=5, max_source=50))
    row, tokenize = describe(short, examples, short.encode(examples)), kl.tokenizer
    assert row["target_tokens"] == np.mean([len(tokenize(e.target)["input_ids"]) for e in examples]) > 5
    assert (row["source_tokens"], row["sources_cut"]) == (50, 5)


def test_d8_a_whole_string_is_evaluated_in_sentences(kl):
    story = Example("1", ["It rained. We left. He stayed."], ["It rained."], [["It rained."]])
    metrics = evaluate({"kl": kl}, [story], modes=("full",), num_beams=1, max_length=4)
    assert metrics["runs"]["kl"]["source_sentences"] == 4  # </s> is one


def test_d20_scores_are_shared_rouge_over_sentences(kl, examples, monkeypatch):
    """D20: R-L is Lsum over sentences: those of another order, together, score 100."""
    stories = [replace(examples[0], references=[["red cats sleep and dogs bark ."]])] * 2
    answers = ["dogs bark . red cats sleep and .", "red cats"]
    monkeypatch.setattr(evaluation, "decode_all", lambda *a, **k: [answers])
    row = evaluate({"kl": kl}, stories, modes=("full",))["systems"]["kl.full"]
    references = [story.references for story in stories]
    expected = rouge.score([["dogs bark .", "red cats sleep and ."], ["red cats"]], references)
    assert expected["rougeLsum"][0] == pytest.approx(100.0)
    assert all(row[metric]["mean"] == expected[metric].mean() for metric in ("rouge1", "rouge2", "rougeLsum"))


def test_systems_are_compared_with_full_attention_of_the_first_run_and_of_their_own(kl, examples, monkeypatch):
    story = [replace(examples[0], references=[["a b c d"]])]
    answers = iter([["a b c d", "x b c d"], ["x x c d", "x x x d"]])  # R-1 100 and 75, 50 and 25
    monkeypatch.setattr(evaluation, "decode_all", lambda *a, **k: [[text] for text in next(answers)])
    systems = evaluate({"a": kl, "b": kl}, story, modes=("ideal",))["systems"]
    assert [row["difference"]["difference"] for row in systems.values()] == [0, -25, -50, -75]
    assert [row["cost"]["difference"] for row in systems.values()] == [0, -25, 0, -25]


def test_a_bart_that_is_no_run(tmp_path, examples, runs, capsys, monkeypatch):
    """Its positions are the limit, its own generation settings the default, and its rule that of the run beside it."""
    save_bart(tmp_path / "bart")
    run = load_run_or_bart(str(tmp_path / "bart"))
    assert check_generation("bart", run, {}) == {"num_beams": 3, "max_length": 21}
    assert {len(item.ids) for item in run.encode(examples)} <= set(range(257))
    main([str(tmp_path / "bart"), *QUICK, "--modes", "mean_key"])
    assert "bart.mean_key.r1" in capsys.readouterr().out
    monkeypatch.setattr(text_file, "punkt_spans", lambda document: [(0, len(document))])
    train(replace(SMALL, steps=1, sentences="nltk"), tmp_path / "dots")
    names = (str(tmp_path / "bart"), str(tmp_path / "dots"))
    rules = lambda **flags: [r.config.sentences for r in evaluation.load_runs(evaluation.Options(**flags)).values()]  # noqa: E731
    with pytest.raises(SystemExit):
        main(names[:1])
    assert "bart is not a run that knows its data: give --data" in capsys.readouterr().err
    assert rules(runs=names) == ["nltk"] * 2 and rules(runs=names, sentences="given") == ["given", "nltk"]


def test_d27_decoding_settings_are_those_of_the_released_configurations():
    """A.3: beam 4, length penalty 2.0 for all; released code: lengths by corpus, no trigram twice.

    D27: XSum's lengths are those of facebook/bart-large-xsum: fairseq's 10 and 60, with the first token and the last.
    So its mean summary (Table 4: 27.9 tokens) is allowed, which CNN/DailyMail's 50 rule out.
    """
    lengths = {"paper": (50, 200), "paper-xsum": (11, 62), "paper-arxiv": (56, 400), "paper-podcast": (56, 144)}
    assert set(DECODING) == {"own", *lengths} and lengths["paper-xsum"][0] < 27.9 < lengths["paper"][0]
    for name, (low, high) in lengths.items():
        expected = dict(num_beams=4, length_penalty=2.0, min_length=low, max_length=high, no_repeat_ngram_size=3)
        assert DECODING[name] == expected
    assert DECODING["own"] == {} and evaluation.Options(runs=()).decoding == "own"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["{runs}/nothing", "--data", DATA], "cannot load"),
        (["{runs}", "--data", DATA], "neither a run nor a BART"),
        (["{runs}/base", "{runs}/../x/base"], "same name"),
        (["{runs}/base", "--r", "5", "0"], "--r is 0; it must be a whole number from 1"),
        (["{runs}/base", "--batch-size", "-1"], "--batch-size is -1"),
        (["{runs}/base", "--seed", "-1"], "--seed is -1"),
        (["{runs}/base", "--no-repeat-ngram-size", "-1"], "--no-repeat-ngram-size is -1"),
        (["{runs}/base", "--length-penalty", "nan"], "--length-penalty is nan"),
        (["{runs}/base", "--length-penalty", "1e9"], "--length-penalty is 1000000000.0"),
        (["{runs}/base", "--precision", "bf16"], "--precision"),
        (["{runs}/base", "--modes", "approx", "--limit", "2"], "base has no approximator: leave mode 'approx' out"),
        (["{runs}/base", "--json", "{runs}"], "is not a file"),
        (["{runs}/base", "--beam", "0"], "--beam is 0"),
        ([], "give at least one run folder or BART"),
        (["{runs}/base", "--min-length", "90", "--max-length", "20"], "--max-length is 20"),
        (["{runs}/base", "--max-length", "5000"], "at most 1024, the positions of base"),
        (["{runs}/base", "--device", "cuda:9"], "--device cuda:9 cannot be used here"),
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
    with pytest.raises(ValueError, match="1: the reference '...' has no word"):
        evaluate({"kl": kl}, [Example("1", ["one", "two"], ["..."], [["..."]])])


# Options


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--split", "validation", "--limit", "2"], {"split": "validation", "limit": 2}),
        (["--data", "toy:count=3"], {"data": "toy:count=3"}),
        (["--batch-size", "4"], {"batch": 4}),
        (["--decoding", "paper-xsum"], DECODING["paper-xsum"]),
        (["--decoding", "paper", "--beam", "2", "--length-penalty", "0.5"],
         DECODING["paper"] | {"num_beams": 2, "length_penalty": 0.5}),
        (["--min-length", "3", "--max-length", "7", "--no-repeat-ngram-size", "2"],
         {"min_length": 3, "max_length": 7, "no_repeat_ngram_size": 2}),
        (["--modes", "random", "--r", "3", "--seed", "7"],
         {"selections": [Selection("full", 3), Selection("random", 3, seed=7)]}),
        (["--modes", *MODES[:2]], {"selections": [Selection("full"), Selection("ideal")]}),
    ],
)  # fmt: skip
def test_every_option_changes_what_it_says(runs, monkeypatch, flags, expected):
    seen, real_load = {}, evaluation.load

    def stand_in(run, items, selections, batch_size, **generation):
        seen.update(batch=batch_size, selections=selections, **generation)
        yield from ()

    def load_and_note(data, split, limit):
        seen.update(data=data, split=split, limit=limit)
        return real_load(data, split, limit)

    monkeypatch.setattr(evaluation, "decode", stand_in)
    monkeypatch.setattr(evaluation, "load", load_and_note)
    main([str(runs / "base"), *([] if "--data" in flags else ["--data", DATA]), *flags])
    assert {name: seen[name] for name in expected} == expected


def test_an_output_that_is_the_data_is_refused_before_it_is_opened(runs, tmp_path, capsys):
    data = tmp_path / "data.jsonl"
    data.write_text('{"document": ["It rained.", "We left."], "summary": "rain"}\n')
    (tmp_path / "link.jsonl").symlink_to(data)
    run_file = str(runs / "base" / "model" / "config.json")
    for flags in (
        ["--json", "data.jsonl"],
        ["--csv", "link.jsonl"],
        ["--json", "x", "--csv", "./x"],
        ["--csv", run_file],
    ):
        names = [flag if flag.startswith("--") else str(tmp_path / flag) for flag in flags]
        with pytest.raises(SystemExit):
            main([str(runs / "base"), "--data", str(data), *names])
        assert "would be overwritten" in capsys.readouterr().err
    assert "rained" in data.read_text()


def test_predictions_are_there_before_the_end_and_cut_documents_are_said(runs, tmp_path, monkeypatch, capsys):
    real, calls = evaluation.decode, iter(range(9))

    def stops(*arguments, **options):
        for summaries in real(*arguments, **options):
            yield summaries
            if next(calls) == 1:
                raise KeyError("killed")

    flags = ["--data", DATA, "--limit", "5", "--modes", "full", "--batch-size", "2", "--max-length", "5", "--beam", "1"]
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "decode", stops)
        with pytest.raises(KeyError):
            main([str(runs / "base"), *flags, "--predictions", str(tmp_path / "p")])
    assert len((tmp_path / "p" / "base.full.jsonl").read_text().splitlines()) == 4
    train(replace(SMALL, steps=1, max_source=40), tmp_path / "short")
    capsys.readouterr()
    main([str(tmp_path / "short"), *flags])
    assert capsys.readouterr().err.count("5 documents were cut to --max-source tokens") == 1
