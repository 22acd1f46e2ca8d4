"""Decoding, measures, tables and the command line."""

import csv
import json
import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BartForConditionalGeneration

pytest.importorskip("shared")

from shared import rouge
from shared.data import Example, load

from .. import evaluate as evaluation
from .. import text as text_file
from ..attention import SentenceSparseAttention
from ..evaluate import (
    attention_map,
    check_generation,
    decode,
    encode_batch,
    evaluate,
    load_run_or_bart,
    main,
    read_again,
    retained_attention,
    selections_of,
)
from ..selection import Selection, SentenceAttention
from ..text import Item
from ..train import Run, TrainConfig, encode_examples, load_run, train
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
    return list(encode_examples(examples, kl))


# Decoding


def test_a_batch_is_decoded_as_its_documents_alone_under_each_selection(kl, items):
    """In the order of the documents, each selection in its place; states encoded once serve all of them."""
    selections = [Selection("full"), Selection("random", 1), Selection("approx", 2), Selection("ideal", 1)]
    calls, encoder = [], kl.model.get_encoder()
    hook = encoder.register_forward_hook(lambda *a: calls.append(1))
    together, _ = decode(kl, items, selections, 3, **GENERATION)
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


def test_padding_is_no_step(kl, items):
    """The steps of a summary are its words and `</s>`; those that a longer one beside it has are not."""
    rows = torch.tensor([[2, 0, 9, 2, 1, 1], [2, 0, 9, 9, 9, 2]])
    record, is_step = read_again(kl, encode_batch(kl, items[:2]), rows)
    assert is_step.tolist() == [[True] * 3 + [False] * 2, [True] * 5]
    assert record[0].exact.shape[:3] == (2, 2, 5) and len(record) == 2


def test_attention_to_all_words_lives_in_one_layer_at_a_time(kl, items, monkeypatch):
    """What is kept of a layer has the size of its sentences, (B, H, T, N), and is no view of what has words."""
    made, attend = [], SentenceSparseAttention.word_attention

    def watched(*given):
        assert not any(words() is not None for words in made)
        words = attend(*given)
        made.append(weakref.ref(words))
        return words

    monkeypatch.setattr(SentenceSparseAttention, "word_attention", watched)
    source, kl.model.selection = encode_batch(kl, items[:3]), Selection("full")
    record, _ = read_again(kl, source, torch.full((3, 9), 5))
    sentences = int(source["sentence_ids"].max()) + 1
    assert len(made) == len(record) == 2 and sentences < source["sentence_ids"].size(1) / 4
    for layer in record:
        assert layer.exact.shape == layer.approximate.shape == (3, 2, 8, sentences)
        kept = [part.untyped_storage().nbytes() for part in layer]
        assert kept[:2] == [3 * 2 * 8 * sentences * 4] * 2 and kept[2] <= 3 * 8 * sentences and len(kept) == 3


def test_d21_retained_attention_averages_heads_first():
    """D21, A.4: heads that look at different sentences retain less together than each alone; padding steps are out."""
    exact = torch.tensor([[[0.9, 0.1, 0.0], [0.2, 0.2, 0.6]], [[0.1, 0.9, 0.0], [0.2, 0.2, 0.6]]])  # (H, T, N)
    record = [SentenceAttention(exact.unsqueeze(0), None, None)]
    curve = retained_attention(record, torch.tensor([[True, False]]))
    np.testing.assert_allclose(curve, [[0.5, 1.0, 1.0]], atol=1e-6)  # not 0.9
    curve = retained_attention(record, torch.tensor([[True, True]]))
    np.testing.assert_allclose(curve, [[0.55, 0.9, 1.0]], atol=1e-6)  # (0.5 + 0.6) / 2: each step has its own order
    second = SentenceAttention(torch.tensor([[[[1.0, 0, 0], [0, 1.0, 0]]]]), None, None)
    curve = retained_attention([record[0], second], torch.tensor([[True, True]]))
    np.testing.assert_allclose(curve, [[0.775, 0.95, 1.0]], atol=1e-6)


def test_retained_attention_of_a_batch_knows_no_padding(kl, items):
    """The mean over the curves that documents have alone; beyond its last sentence a document retains everything."""
    together = decode(kl, items, [Selection()], 3, num_beams=1, max_length=6)[1]
    alone = [decode(kl, [item], [Selection()], 1, num_beams=1, max_length=6)[1] for item in items]
    assert [len(curve) for curve in alone] == [item.sentence_ids[-1] + 1 for item in items]
    expected = [[*curve, *[1.0] * (len(together) - len(curve))] for curve in alone]
    np.testing.assert_allclose(together, np.mean(expected, 0), atol=1e-5)
    assert together[-1] == pytest.approx(1.0, abs=1e-5) and len({len(curve) for curve in alone}) > 1


def test_d21_maps_of_words_and_sentences_add_up_to_one_and_agree(runs, kl, items):
    """D21: transformers' cross-attention, mean over heads and layers. A sentence has the sum of its words' weights."""
    found = attention_map(kl, items[1], **GENERATION)
    words, sentences = np.array(found["word"]), np.array(found["exact"])
    assert words.shape == (len(found["target"]), len(found["source"]))
    plain = BartForConditionalGeneration.from_pretrained(runs / "base" / "model", attn_implementation="eager").eval()
    target = torch.tensor([[2, *kl.tokenizer.convert_tokens_to_ids(found["target"])]])
    theirs = plain(torch.tensor([items[1].ids]), decoder_input_ids=target[:, :-1], output_attentions=True)
    expected = torch.stack(theirs.cross_attentions).mean((0, 2))[0]
    np.testing.assert_allclose(words, expected.detach().numpy(), atol=1e-4)
    for number in range(sentences.shape[1]):
        inside = np.array(found["sentence_ids"]) == number
        np.testing.assert_allclose(words[:, inside].sum(1), sentences[:, number], atol=1e-3)
    np.testing.assert_allclose(sentences.sum(1), 1, atol=1e-3)
    assert found["source"][0] == "<s>" and found["source"][-1] == "</s>"


# Which systems


def test_systems_of_each_task():
    """The tables' modes at all r; other phi at the first; sparse-tuned runs at the first alone."""
    names = {}
    for task in ("base", "sparse", "integrated"):
        run = Run(TrainConfig(task=task), SimpleNamespace(sentence_encoder=task == "integrated" or None), None)
        names[task] = selections_of("s", run, (), (2, 1), True, 3)
    base = ["s.full", "s.ideal.r2", "s.ideal.r1", "s.random.r2", "s.random.r1", "s.mean_key.r2", "s.mean_key.r1"]
    free = ["s.model_free-elu.r2", "s.model_free-exp.r2", "s.model_free-relu.r2", "s.model_free-elu.r1"]
    assert list(names["base"]) == base + free
    assert names["base"]["s.random.r1"] == Selection("random", 1, share_beams=True, seed=3)
    assert names["base"]["s.model_free-exp.r2"] == Selection("model_free", 2, "exp", True, 3)
    assert list(names["sparse"]) == ["s.full", "s.ideal.r2", "s.random.r2"]
    assert list(names["integrated"]) == ["s.full", "s.approx.r2", "s.approx.r1"]
    assert list(selections_of("s", run, ("full", "random"), (2, 1), True, 0)) == base[:1] + base[3:5]


# The command


def test_all_tables_by_one_command(runs, tmp_path, capsys, examples):
    """Rows decode what they say, are compared with the right system, and stand in every file alike."""
    folders = [str(runs / name) for name in ("base", "tuned", "kl", "apx", "idl")]
    files = ["--json", str(tmp_path / "new" / "m.json"), "--csv", str(tmp_path / "c.csv"), "--predictions",
             str(tmp_path / "p"), "--map", "2"]  # fmt: skip
    main([*folders, *QUICK, *files])
    printed, metrics = capsys.readouterr().out, json.loads((tmp_path / "new" / "m.json").read_text())
    systems = metrics["systems"]
    assert "Table 4\n| " in printed and printed.rstrip().endswith(metrics["signature"])
    cells = {line.split("|")[1].strip(): line.split("|")[2:4] for line in printed.splitlines() if line.count("|") > 4}
    assert [cell.strip() for cell in cells["base.random.r2"]] == ["Vanilla", "2, 3, 5"]
    assert [cell.strip() for cell in cells["apx.approx.r2"]] == ["Int-Apx, r 2, gru", "3, 6"]
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
    [approx], _ = decode(run, list(encode_examples(examples, run)), [Selection("approx", 1)], 5, **GENERATION)
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


def test_d20_scores_are_shared_rouge_over_sentences(kl, examples, monkeypatch):
    """D20: R-L is Lsum over sentences: those of another order, together, score 100."""
    stories = [replace(examples[0], references=[["red cats sleep and dogs bark ."]])] * 2
    answers = ["dogs bark . red cats sleep and .", "red cats"]
    monkeypatch.setattr(evaluation, "decode", lambda *a, **k: ([answers], [1.0]))
    row = evaluate({"kl": kl}, stories, modes=("full",))["systems"]["kl.full"]
    references = [story.references for story in stories]
    expected = rouge.score([["dogs bark .", "red cats sleep and ."], ["red cats"]], references)
    assert expected["rougeLsum"][0] == pytest.approx(100.0)
    assert all(row[metric]["mean"] == expected[metric].mean() for metric in ("rouge1", "rouge2", "rougeLsum"))


def test_systems_are_compared_with_full_attention_of_the_first_run_and_of_their_own(kl, examples, monkeypatch):
    story = [replace(examples[0], references=[["a b c d"]])]
    answers = iter([["a b c d", "x b c d"], ["x x c d", "x x x d"]])  # R-1 100 and 75, 50 and 25
    monkeypatch.setattr(evaluation, "decode", lambda *a, **k: ([[text] for text in next(answers)], [1.0]))
    systems = evaluate({"a": kl, "b": kl}, story, modes=("ideal",))["systems"]
    assert [row["difference"]["difference"] for row in systems.values()] == [0, -25, -50, -75]
    assert [row["cost"]["difference"] for row in systems.values()] == [0, -25, 0, -25]


def test_a_bart_that_is_no_run(tmp_path, examples, runs, capsys, monkeypatch):
    """Its positions are the limit, its own generation settings the default, and its rule that of the run beside it."""
    save_bart(tmp_path / "bart")
    run = load_run_or_bart(str(tmp_path / "bart"))
    assert check_generation("bart", run, {}) == {"num_beams": 3, "max_length": 21}
    assert {len(item.ids) for item in encode_examples(examples, run)} <= set(range(257))
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
    assert set(evaluation.DECODING) == {"own", *lengths} and lengths["paper-xsum"][0] < 27.9 < lengths["paper"][0]
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
        (["{runs}/base", "--r", "5", "0"], "--r and --batch-size must be at least 1"),
        (["{runs}/base", "--modes", "approx", "--limit", "2"], "base has no approximator: leave mode 'approx' out"),
        (["{runs}/base", "--map", "5", "--limit", "5"], "there are 5 examples, counted from 0"),
        (["{runs}/base", "--json", "{runs}"], "is not a file"),
        (["{runs}/base", "--beam", "0"], "--beam is 0"),
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
