"""Decoding, measures and tables."""

import csv
import json
import re
import shutil
import sys
import types
from dataclasses import replace

import pytest
import torch

pytest.importorskip("shared")

import numpy as np  # noqa: E402
import sacrebleu  # noqa: E402

from shared.data import Example, load  # noqa: E402

from .. import decode as decoding  # noqa: E402
from .. import evaluate as module  # noqa: E402
from .. import text  # noqa: E402
from ..decode import Output, decode_all  # noqa: E402
from ..evaluate import (  # noqa: E402
    bleu,
    labels_of,
    main,
    rouge_l,
    sparsity,
    sparsity_by_label,
    with_interval,
)
from ..loading import load_run  # noqa: E402
from ..model import EOS  # noqa: E402
from ..run import write_config  # noqa: E402
from ..text import encode_examples  # noqa: E402
from ..train import train  # noqa: E402
from .test_train import SMALL  # noqa: E402

DATA = "toy:count=12,seed=9"


def example(source: str, target: str, **fields) -> Example:
    return Example(id=source, document=[source], summary=[target], references=[[target]], **fields)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A baseline, an L0Drop run and a rule-based run, hardly trained."""
    folder = tmp_path_factory.mktemp("runs")
    train(replace(SMALL, l0drop="none"), folder / "base")
    train(SMALL, folder / "l0")
    train(replace(SMALL, l0drop="none", pattern="group"), folder / "group")
    return folder


@pytest.fixture
def items(runs):
    """The L0Drop run with gates drawn at random, so that some of them are closed, and its test items."""
    run = load_run(runs / "l0")
    torch.manual_seed(0)
    torch.nn.init.normal_(run.model.l0drop[0].predictor.weight)
    return run, run.encode(load(DATA, "test")[:6])


def test_decode_keeps_the_order_whatever_the_batch(items):
    """Outputs stand in the order of the items, though batches are made by length; padding changes no score."""
    run, encoded = items
    together, alone = (decode_all(run, encoded, size, True, extra_length=0) for size in (5, 1))
    for one, other, item in zip(together, alone, encoded, strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)
        assert one.pruned == other.pruned and len(one.pruned[-1]) == len(item.source)


def test_algorithm1_decodes_what_the_dense_memory_decodes(items):
    run, encoded = items
    pruned, dense = (decode_all(run, encoded, 32, prune, extra_length=0) for prune in (True, False))
    assert 0 < sparsity(pruned)[-1] < 100
    assert [o.score for o in pruned] == pytest.approx([o.score for o in dense], abs=1e-4)


def test_sparsity_counts_every_encoding_with_eos():
    """#(expected gate = 0) / #encodings, over the corpus and not over sentences, per layer."""
    outputs = [Output([], 0.0, [[True, False], [True, True]]), Output([], 0.0, [[False] * 6, [True, False] * 3])]
    assert sparsity(outputs) == [100 / 8, 500 / 8]


def test_sparsity_by_label_leaves_eos_out():
    outputs = [Output([], 0.0, [[False] * 4, [True, False, True, True]]), Output([], 0.0, [[False] * 2, [False, True]])]
    shares = sparsity_by_label(outputs, [["noun", "verb", "noun", "cut off"], ["verb"]])
    assert shares == {"noun": 100.0, "verb": 0.0}


def test_labels_of_units_follow_the_words(runs):
    """Types come from tags and segmentation, kinds from the sentence that the unit stands in."""
    run = load_run(runs / "base")
    story = load(DATA, "test")[0]
    tokens = run.tokenizer.encode(story.source).tokens
    labels = labels_of(run, [story], text.tag_sources([story]))
    [types_], [kinds] = labels["type"], labels["kind"]
    assert len(types_) == len(kinds) == len(tokens)
    assert {types_[i] for i, token in enumerate(tokens) if token == "▁."} == {"punctuation"}
    assert {types_[i] for i, token in enumerate(tokens) if token == "▁in"} == {"function"}
    sentence = 0
    for token, kind in zip(tokens, kinds, strict=True):
        assert kind == story.kinds[sentence]
        sentence += token == "▁."


def test_labels_of_dialogues_tell_speakers_from_words(runs):
    """The name that opens a turn and its colon are "speaker", later ones are not; UH is an interjection."""
    run, turns = load_run(runs / "base"), ["Tom: Hi Ann .", "Ann: at 5 : Tom it"]
    dialogue, words = Example("", turns, ["-"], [["-"]]), re.finditer(r"\w+|[^\w ]", " ".join(turns))
    starts, tags = [word.start() for word in words], "NNP : UH NNP . NNP : IN CD : NNP PRP".split()
    spans = list(zip(starts, [*starts[1:], 99], tags, strict=True))
    kinds = "speaker speaker interjection content punctuation speaker speaker function other punctuation content other"
    [labels] = labels_of(run, [dialogue], [spans])["kind"]
    for start, label in zip(text.unit_starts(run.tokenizer, dialogue.source), labels, strict=True):
        assert label == kinds.split()[max(i for i, first in enumerate(starts) if first <= start)]
    assert "kind" not in labels_of(run, [replace(dialogue, document=["Tom: Hi .", "no name"])], [spans])


def test_gates_that_are_half_open_are_not_pruned(items):
    """Sparsity counts gates that are exactly 0 (Section 6), not small ones."""
    run, encoded = items
    with torch.no_grad():
        run.model.l0drop[0].predictor.weight.zero_()
        run.model.l0drop[0].predictor.bias.fill_(-1.5)  # expected gate 0.12
    assert sparsity(decode_all(run, encoded[:3], 32, True, extra_length=0)) == [0]
    with torch.no_grad():
        run.model.l0drop[0].predictor.bias.fill_(-2.5)
    assert sparsity(decode_all(run, encoded[:3], 32, True, extra_length=0)) == [100]


def test_d16_bleu_is_sacrebleus():
    """The corpus score, with several references too, and the signature are sacrebleu's."""
    examples = [example(f"{i}", f"the cat number {i} sat on the mat") for i in range(8)]
    examples[3] = replace(examples[3], references=[*examples[3].references, ["a dog ran off today"]])
    same, worse = [e.target for e in examples[:4]] + ["a dog ran off today yes"] * 4, ["a dog ran off today yes"] * 8
    systems, signature = bleu({"a": same, "b": same, "c": worse}, examples)
    references = [[e.target for e in examples], [" ".join(e.references[-1]) for e in examples]]
    for name, texts in (("a", same), ("c", worse)):
        expected = sacrebleu.corpus_bleu(texts, references).score
        assert systems[name]["bleu"]["mean"] == pytest.approx(expected, abs=1e-9)
    assert systems["a"]["bleu"]["low"] < systems["a"]["bleu"]["mean"] < systems["a"]["bleu"]["high"]
    assert "tok:13a" in signature and "version" in signature


def test_differences_in_bleu_have_intervals_and_p_values():
    """Equal systems: exactly 0 and p = 1; a much worse one is worse in the whole interval; two-sided."""
    examples = [example(f"{i}", f"the cat number {i} sat on the mat") for i in range(12)]
    good, bad = [e.target for e in examples], ["a dog ran off today yes"] * 12
    bad[0] = good[0]
    systems, _ = bleu({"good": good, "same": good, "bad": bad}, examples)
    assert systems["good"]["difference"] is None
    assert systems["same"]["difference"] == {"difference": 0, "low": 0, "high": 0, "p": 1}
    worse = systems["bad"]["difference"]
    assert worse["low"] <= worse["difference"] < 0 and worse["high"] < 0 and worse["p"] < 0.01
    better = bleu({"bad": bad, "good": good}, examples)[0]["good"]["difference"]
    assert better["difference"] == pytest.approx(-worse["difference"]) and better["p"] < 0.01


def test_rouge_l_is_over_sentences():
    """Outputs are cut into sentences before ROUGE-L: their order does not matter to the summary-level score."""
    story = replace(
        example("x", "y"), summary=["red cats sleep .", "dogs bark ."], references=[["red cats sleep .", "dogs bark ."]]
    )
    systems, _ = rouge_l({"a": ["dogs bark . red cats sleep ."], "b": ["dogs bark . red mice run ."]}, [story])
    assert systems["a"]["rougeLsum"]["mean"] == pytest.approx(100.0)
    assert systems["b"]["rougeLsum"]["mean"] == pytest.approx(100 * 3 / 5)  # 3 of 5 words in common, both of 5 words
    assert systems["a"]["difference"] is None
    assert systems["b"]["difference"]["difference"] == pytest.approx(-40)
    whole = example("x", "red cats sleep. dogs bark.")  # a reference of one string is split, too
    assert rouge_l({"a": ["dogs bark. red cats sleep."]}, [whole])[0]["a"]["rougeLsum"]["mean"] == pytest.approx(100.0)
    # Each sentence of the reference finds its own part of the output; as one sentence it would find but one of them.
    parts = example("x", "a dog ran. the cat sat.")
    assert rouge_l({"a": ["the cat sat a dog ran."]}, [parts])[0]["a"]["rougeLsum"]["mean"] == pytest.approx(100.0)


def test_intervals_hold_95_percent():
    assert with_interval("mean", 3.0, np.arange(1001.0)) == {"mean": 3.0, "low": 25.0, "high": 975.0}


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {"prune": True, "beam": 4, "length_penalty": 0.6, "examples": 12}),
        (["--dense"], {"prune": False}),
        (["--beam", "2", "--length-penalty", "1.5"], {"beam": 2, "length_penalty": 1.5}),
        (["--limit", "3", "--split", "validation"], {"examples": 3, "split": "validation"}),
        (["--batch-size", "5"], {"rows": 5}),
        (["--metric", "bleu"], {"metric": "bleu"}),
    ],
)
def test_every_option_changes_what_it_says(runs, tmp_path, monkeypatch, flags, expected):
    seen, real, real_load = {}, decoding.generate, module.load

    def generate(model, source, rule_keep, prune, **search):
        seen.setdefault("rows", len(source))
        seen.update(prune=prune, **search)
        return real(model, source, rule_keep, prune, **search)

    monkeypatch.setattr(decoding, "generate", generate)
    monkeypatch.setattr(module, "load", lambda data, split, n: seen.update(split=split) or real_load(data, split, n))
    main([str(runs / "l0"), "--data", DATA, "--json", str(tmp_path / "m.json"), *flags])
    seen |= {key: value for key, value in json.loads((tmp_path / "m.json").read_text()).items() if key != "split"}
    assert {name: seen[name] for name in expected} == expected


def test_stanza_and_device_reach_the_work(runs, monkeypatch):
    seen = {}
    monkeypatch.setattr(module, "find_device", lambda name: seen.update(device=name) or torch.device("cpu"))
    monkeypatch.setattr(module, "tag_sources", lambda examples, folder: seen.update(stanza=folder) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main([str(runs / "base"), "--data", DATA, "--limit", "2", "--stanza", "models", "--device", "cuda:7"])
    assert seen == {"device": "cuda:7", "stanza": "models"}


def test_the_table_has_each_number_under_its_name():
    """Cells by hand; sparsity by type and kind only of what prunes."""

    def cell(value: float) -> dict:
        return {"mean": value, "low": value - 1, "high": value + 1}

    scores = {"rouge1": cell(41), "rouge2": cell(22), "rougeLsum": cell(33)}
    base = {"seconds": 2.5, "speed_up": 1.0, "sparsity": 0.0, "difference": None, "sparsity_by_type": {"content": 0.0}}
    change = {"difference": -1.0, "low": -2.0, "high": 0.5, "p": 0.04}
    pruned = {"seconds": 1.25, "speed_up": 2.0, "sparsity": 47.0, "difference": change}
    pruned |= {"sparsity_by_type": {"content": 7.0, "punctuation": 90.0}, "sparsity_by_kind": {"filler": 80.0}}
    metrics = {
        "repeats": 7,
        "examples": 9,
        "signature": "SIG",
        "systems": {"base": base | scores, "l0": pruned | scores},
    }
    main_table, types_, kinds, note = module.table(metrics).split("\n\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in main_table.splitlines()]
    assert rows[0] == ["system", "seconds", "speed-up", "sparsity %", "R-1", "R-2", "R-L", "difference"]
    rouge = ["41.00 [40.00, 42.00]", "22.00 [21.00, 23.00]", "33.00 [32.00, 34.00]"]
    assert rows[2] == ["base", "2.50", "1.00", "0.00", *rouge, "-"]
    assert rows[3] == ["l0", "1.25", "2.00", "47.00", *rouge, "-1.00 [-2.00, 0.50] p 0.040"]
    assert types_.splitlines()[0].split() == "| sparsity % | content | punctuation |".split()
    assert [line.split() for line in types_.splitlines()[2:]] == ["| l0 | 7.00 | 90.00 |".split()]
    assert kinds.splitlines()[0].split() == "| sparsity % | filler |".split() and "80.00" in kinds
    assert note == "9 examples; seconds: median of 7 decodes; SIG"
    once = {"repeats": 1, "examples": 9, "signature": "SIG", "systems": {"base": base | {"bleu": cell(30)}}}
    assert "one decode, no claim" in module.table(once) and "| BLEU " in module.table(once)


def test_an_output_that_is_the_data_is_refused_before_it_is_opened(runs, tmp_path, capsys):
    (tmp_path / "data.jsonl").write_text('{"source": "a", "target": "b"}\n')
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "data.jsonl")
    config = str(runs / "base/config.json")  # joined to a folder, a whole path stays what it is
    both = ["--json", "x.json", "--csv", "./x.json"]
    for flags in (["--json", "data.jsonl"], ["--csv", "link.jsonl"], ["--json", config], both):
        names = [flag if flag.startswith("--") else str(tmp_path / flag) for flag in flags]
        with pytest.raises(SystemExit):
            main([str(runs / "base"), "--data", str(tmp_path / "data.jsonl"), *names])
        assert "would be overwritten" in capsys.readouterr().err
    own = shutil.copytree(runs / "base", tmp_path / "own")  # a run of that data, which need not be named again
    write_config(own, replace(load_run(own).config, data=str(tmp_path / "data.jsonl")))
    with pytest.raises(SystemExit):
        main([str(own), "--json", str(tmp_path / "data.jsonl")])
    assert "would be overwritten" in capsys.readouterr().err
    assert "source" in (tmp_path / "data.jsonl").read_text() and load_run(runs / "base")


def test_main_writes_table_json_csv_and_predictions(runs, tmp_path, capsys):
    """One command gives Table 1: every number in JSON and CSV, predictions with id, prediction and reference."""
    names = ["base", "l0", "group"]
    flags = ["--data", DATA, "--limit", "6", "--repeats", "3", "--beam", "2", "--batch-size", "3"]
    files = ["--json", str(tmp_path / "m.json"), "--csv", str(tmp_path / "t.csv"), "--predictions", str(tmp_path / "p")]
    main([*(str(runs / name) for name in names), *flags, *files])
    printed = capsys.readouterr().out
    metrics = json.loads((tmp_path / "m.json").read_text())
    assert (metrics["data"], metrics["split"]) == (DATA, "test")
    assert metrics["metric"] == "rougeLsum" and metrics["examples"] == 6 and metrics["signature"] in printed
    systems = metrics["systems"]
    assert list(systems) == names and set(systems["base"]["rougeLsum"]) == {"mean", "low", "high"}
    assert systems["base"]["sparsity"] == 0 and systems["base"]["speed_up"] == 1
    assert 40 < systems["group"]["sparsity"] < 52  # every second unit, EOS never
    assert systems["l0"]["speed_up"] == pytest.approx(systems["base"]["seconds"] / systems["l0"]["seconds"])
    assert set(systems["l0"]["sparsity_by_kind"]) <= {"main", "repeat", "detail", "filler"}
    rows = list(csv.DictReader((tmp_path / "t.csv").open()))
    assert [row["system"] for row in rows] == names and float(rows[2]["sparsity"]) == pytest.approx(
        systems["group"]["sparsity"], rel=1e-3
    )
    predictions = [json.loads(line) for line in (tmp_path / "p" / "l0.jsonl").read_text().splitlines()]
    assert len(predictions) == 6 and predictions[0]["reference"] == load(DATA, "test")[0].target
    assert set(predictions[0]) == {"id", "prediction", "reference"}
    assert [row["seed"] for row in rows] == ["0"] * 3 and [row["lambda"] for row in rows] == ["", "0.3", ""]


def test_outputs_are_scored_against_their_own_references(runs, monkeypatch):
    """Batches are decoded in the order of length; texts are scored in that of the examples."""

    def decode_backwards(run, items, *options, **search):
        for i in reversed(range(len(items))):
            yield i, Output([5 + i], 0.0, [[False] * len(items[i].source)])

    seen, run = {}, load_run(runs / "base")
    monkeypatch.setattr(module, "decode", decode_backwards)
    monkeypatch.setattr(module, "rouge_l", lambda texts, examples: seen.update(texts) or rouge_l(texts, examples))
    module.evaluate({"base": run}, load(DATA, "test", 3))
    assert seen["base"] == [run.tokenizer.decode([5 + i]) for i in range(3)]


def test_predictions_are_there_before_the_end(runs, tmp_path, monkeypatch):
    """What was decoded when a decode is killed stays, line by line."""
    real, calls = decoding.generate, iter(range(10))
    monkeypatch.setattr(decoding, "generate", lambda *a, **k: real(*a, **k) if next(calls) < 2 else 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main([str(runs / "base"), "--data", DATA, "--batch-size", "2", "--predictions", str(tmp_path / "p")])
    assert len((tmp_path / "p" / "base.jsonl").read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["{runs}/nothing"], "not a run folder"),
        (["{runs}/base", "--data", "no/such/place"], "no/such/place"),
        (["{runs}/base", "{runs}/base/../base"], "rename one"),
        (["{runs}/base", "--data", DATA, "--split", "tset"], "tset"),
        ([], "at least one run"),
        (["{runs}/base", "--device", "gpu"], "--device gpu cannot be used here"),
        (["{runs}/base", "--device", "cuda:99"], "--device cuda:99 cannot be used here"),
        (["{runs}/base", "--data", DATA, "--json", "{runs}"], "is not a file"),
        (["{runs}/base", "--data", DATA, "--csv", "{runs}/base/config.json/t.csv"], "config.json"),
        (["{runs}/base", "--data", "{runs}/chinese.jsonl"], "no word of a-z or 0-9"),
        (["{runs}/base", "--length-penalty", "1e9"], "--length-penalty is .* a finite number from 0 to 10"),
        (["{runs}/base", "--batch-size", "0"], "--batch-size is 0; it must be a whole number from 1"),
    ],
)
def test_bad_requests_end_with_a_message_before_decoding(runs, flags, message, capsys, monkeypatch):
    monkeypatch.setattr(decoding, "generate", lambda *a, **k: 1 / 0)
    row = {"document": ["两只狗。", "好。"], "summary": "两只狗。"}
    (runs / "chinese.jsonl").write_text(json.dumps(row), encoding="utf-8")
    with pytest.raises(SystemExit):
        main([flag.format(runs=runs) for flag in flags])
    error = capsys.readouterr().err
    assert re.search(f"error: .*({message})", error) and error.count("\n") == 1


def test_stanza_tags_are_placed_by_character(monkeypatch):
    """Sources without tags go through Stanza, whose tokens carry character offsets; here a stand-in for it."""

    class Pipeline:
        def __init__(self, language, **options):
            if options.get("dir") == "missing":
                raise FileNotFoundError("resources.json")
            assert options["download_method"] is None  # never the network

        def bulk_process(self, documents):
            def token(start, end, tag):
                return types.SimpleNamespace(start_char=start, end_char=end, words=[types.SimpleNamespace(xpos=tag)])

            sentence = types.SimpleNamespace(tokens=[token(0, 3, "DT"), token(4, 8, "NNS"), token(8, 9, ".")])
            return [types.SimpleNamespace(sentences=[sentence]) for _ in documents]

    stanza = types.ModuleType("stanza")
    stanza.Pipeline, stanza.Document = Pipeline, lambda sentences, text: text
    monkeypatch.setitem(sys.modules, "stanza", stanza)
    untagged = [example("The dogs.", "x")]
    tokenizer = text.train_tokenizer(["The dogs. The dogs."], "bpe", 60)
    spans = text.tag_sources(untagged)
    assert spans == [[(0, 3, "DT"), (4, 8, "NNS"), (8, 9, ".")]]
    assert text.source_types(tokenizer, "The dogs.", spans[0]) == (
        ["function", "content", "punctuation"],
        ["DT", "NNS", "."],
    )
    item = encode_examples(untagged, tokenizer, 10, 10, pattern="pos")[0]
    assert item.rule_keep == [False, True, False, True] and item.source[-1] == EOS
    with pytest.raises(ValueError, match="stanza.download"):
        text.tag_sources(untagged, "missing")
    monkeypatch.setitem(sys.modules, "stanza", None)
    with pytest.raises(ImportError, match="pip install stanza"):
        text.tag_sources(untagged)
