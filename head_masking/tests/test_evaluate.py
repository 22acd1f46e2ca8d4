"""Labels, measures, tables and the command line."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from shared import rouge
from shared.data import Example, load, write_jsonl

from .. import evaluate
from ..decode import Setting, decode, encode, read_documents, tag
from ..evaluate import Options, compare, labels_of, main, score
from ..labels import Labels, Tagged, kept, selected_words, tagging_quality
from ..loading import load_run
from ..oracle import longest_common_runs, word_spans
from .test_train import DATA, SMALL

QUICK = ["--data", DATA, "--limit", "5", "--max-length", "10", "--beam", "2", "--batch-size", "3"]
GENERATION = dict(num_beams=2, max_length=10)


def example(source: str, target: str, **fields) -> Example:
    return Example(id=source, document=[source], summary=[target], references=[[target]], **fields)


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    return load(DATA, "test", 6)


# Labels


def test_a_batch_is_tagged_as_its_documents_alone(runs, examples):
    """In the order of the documents; the scores are the tagger's probabilities."""
    run = load_run(runs / "tagger")
    together, alone = (tag(run, [text.source for text in examples], size) for size in (4, 1))
    for text, one, other in zip(examples, together, alone, strict=True):
        torch.testing.assert_close(torch.tensor(one.scores), torch.tensor(other.scores), atol=1e-5, rtol=0)
        ids = torch.tensor([run.tokenizer(text.source)["input_ids"]])
        expected = run.model(ids, torch.ones_like(ids, dtype=torch.bool)).sigmoid()[0].tolist()
        assert one.scores == pytest.approx(expected, abs=1e-5) and len(one.offsets) == len(one.scores)
        assert one.threshold == pytest.approx(run.model.threshold.item()) and not one.was_cut
    run.model.threshold.fill_(0.27)
    [cut] = tag(run._replace(config=replace(run.config, max_source=9)), [examples[0].source])
    assert cut.threshold == 0.27 and cut.was_cut and len(cut.scores) == 9


def test_oracle_documents_keep_the_words_of_the_longest_runs(runs, examples):
    """What masked heads see, read back from the tokens, are the words that the oracle marks."""
    run = load_run(runs / "base")
    for text, document in zip(examples, read_documents(run, examples, Labels()), strict=True):
        words, target = (text.source.split(), text.target.split())
        spans = word_spans(text.source)
        assert [text.source[a:b] for a, b in spans] == words  # in toy they are the same
        expected = {span for span, mark in zip(spans, longest_common_runs(words, target), strict=True) if mark}
        seen = [place for place, keep in zip(document.offsets, document.keep["oracle"], strict=True) if keep]
        assert all(any(a <= start and end <= b for a, b in expected) for start, end in seen)
        assert sum(end - start for start, end in seen) == sum(b - a for a, b in expected) and not document.was_cut


def test_oracle_masks_have_the_positions_that_are_asked_for(runs):
    """One word of the reference: its pieces alone, or none, and the fallback fills up to --min-keep."""
    run = load_run(runs / "base")
    for reference, least in (("storm", 0), ("storm", 5), ("xyz", 0), ("xyz", 7)):
        texts = [example("a storm hit the quiet town on Monday morning", reference)]
        [document] = read_documents(run, texts, Labels(min_keep=least))
        pieces = len(run.tokenizer("a storm")["input_ids"]) - len(run.tokenizer("a")["input_ids"])
        assert sum(document.keep["oracle"]) == (pieces if reference == "storm" else least)


def test_system_documents_keep_what_scores_over_the_threshold(runs, examples):
    """One word scores high: its tokens alone are kept, or with the fallback at least five; cut where it is cut."""
    run, text = load_run(runs / "base"), examples[0]
    spans = word_spans(text.source)
    tagged = {"t": [Tagged([0.1, 0.9, *[0.2] * (len(spans) - 2)], spans, 0.5)]}
    for min_keep in (0, 5):
        [document] = read_documents(run, [text], Labels(min_keep=min_keep), tagged, oracle=False)
        [start, end] = spans[1]
        inside = {i for i, (a, b) in enumerate(document.offsets) if start <= a < b <= end}
        seen = {i for i, keep in enumerate(document.keep["system:t"]) if keep}
        assert inside <= seen and (seen == inside if min_keep == 0 else len(seen) >= 5)
        assert 0 not in seen and len(document.ids) - 1 not in seen and document.keep.keys() == {"system:t"}
    short = run._replace(config=replace(run.config, max_source=50))
    [document] = read_documents(short, [text], Labels(), tagged)
    assert document.was_cut and len(document.ids) == len(document.keep["system:t"]) == 50


def test_labels_that_select_nothing_fall_back_on_the_same_positions_each_time():
    """An oracle without any match: five positions at random, by the document's number, so that a sweep can resume."""
    first = kept([0.0] * 40, 0.0, 5, seed=3)
    assert sum(first) == 5 and kept([0.0] * 40, 0.0, 5, seed=3) == first != kept([0.0] * 40, 0.0, 5, seed=4)
    assert kept([0.0, 0.3, 0.31], 0.3, 0, seed=0) == [False, False, True]


def test_flipped_labels_differ_in_that_share_of_the_words(runs, examples):
    """The same words each time; more of them with a larger share; a share of 0 is the oracle."""
    run, labels = load_run(runs / "base"), Labels(min_keep=0, flips=(0.2, 0.4))
    assert labels.oracles() == {"oracle": 0.0, "oracle-0.2": 0.2, "oracle-0.4": 0.4}
    documents = read_documents(run, examples * 5, labels)
    assert [d.keep for d in documents[:6]] == [d.keep for d in documents[6:12]]
    pairs = [(d.keep["oracle"][1:-1], d.keep[f"oracle-{s}"][1:-1]) for s in (0.2, 0.4) for d in documents[:6]]
    shares = [np.not_equal(*pair).mean() for pair in pairs]
    assert abs(np.mean(shares[:6]) - 0.2) < 0.07 and abs(np.mean(shares[6:]) - 0.4) < 0.07
    assert all(few < many for few, many in zip(shares[:6], shares[6:], strict=True))


def test_tagging_quality_by_hand():
    """Oracle: "red cats" of five words; the tagger says cats, dogs and run. Special tokens do not count."""
    places = [(0, 0), (0, 3), (4, 8), (9, 12), (13, 17), (18, 21), (0, 0)]
    tagged = Tagged([0.9, 0.2, 0.6, 0.5, 0.7, 0.8, 0.9], places, 0.5)
    story = example("red cats and dogs run", "Red cats")
    quality = tagging_quality([tagged], [story], Labels())
    assert quality.pop("token_f1") == pytest.approx(100 * 2 / 5) and quality.pop("tokens") == 5
    assert quality.pop("precision") == pytest.approx(100 / 3) and quality.pop("recall") == 50.0
    assert quality.pop("positive_share") == pytest.approx(40) and quality.pop("predicted_share") == pytest.approx(60)
    assert quality.pop("token_f1_of_all") == pytest.approx(100 * 4 / 7) and quality == {"threshold": 0.5}
    assert selected_words("red cats and dogs run", tagged) == "cats dogs run"


def test_the_tables_cells_are_those_of_their_titles():
    """Each column of both tables by hand, in their order."""
    names = ["rouge1", "token_f1", "precision", "recall", "predicted_share", "token_f1_of_all", "threshold"]
    tagger = dict(zip(names, (11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 0.17), strict=True)) | {"positive_share": 99.0}
    system = {"heads": "1:0", "marks": "R-1*", "rouge1": 21.0, "rouge2": 22.0, "rougeLsum": 23.0}
    system["difference"] = {"rouge1": 24.0, "rouge2": 99.0}
    metrics = {"systems": {"s": system}, "taggers": {"t": tagger}, "examples": 5, "signature": "signed"}
    titles, _, cells, _, tagger_titles, _, tagger_cells, *rest = evaluate.table(metrics).splitlines()
    read = lambda line: [cell.strip() for cell in line.strip("|").split("|")]  # noqa: E731
    assert read(titles) == ["system", "heads", "R-1", "R-2", "R-L", "R-1, difference", "p < 0.005"]
    assert read(cells) == ["s", "1:0", "21.00", "22.00", "23.00", "24.00", "R-1*"]
    assert read(tagger_titles) == [
        "tagger", "R-1 of its words", "token F1", "precision", "recall", "% selected", "F1 of all", "threshold"
    ]  # fmt: skip
    assert read(tagger_cells) == ["t", "11.00", "12.00", "13.00", "14.00", "15.00", "16.00", "0.17"]
    assert rest[-1] == "5 examples; signed"


# Measures


def test_scores_are_shared_rouge_with_recall():
    """F1 of shared.rouge over sentences; recall by hand, of the reference with the best F1."""
    story = replace(example("a", "x"), references=[["red cats sleep .", "dogs bark ."], ["red mice .", "run now yes"]])
    found = score(["dogs bark . red cats sleep .", "red cats"], [story, story])
    assert found["rougeLsum"][0] == pytest.approx(100.0)
    assert found["rouge1_recall"].tolist() == pytest.approx([100.0, 40.0])  # two of five words
    expected = rouge.score([["red cats"]], [story.references])
    assert found["rouge1"][1] == expected["rouge1"][0] and found["rouge2"][1] == expected["rouge2"][0]
    # A reference of one string is read in sentences: as one, the clauses in another order would have 50.
    story = replace(story, references=[["Red cats sleep. Dogs bark now."]])
    assert score(["Dogs bark now, red cats sleep."], [story])["rougeLsum"][0] == pytest.approx(100.0)


def test_marks_stand_for_p_below_0_005():
    """Caption of Table 1: * is significantly better; what is significantly worse must not get it."""
    rng = np.random.default_rng(0)
    base = rng.normal(40, 5, 200)
    noise = {"rouge1": base + 5, "rouge2": base + rng.normal(0, 1, 200), "rougeLsum": base - 5}
    row = compare(noise, dict.fromkeys(noise, base))
    assert row["marks"] == "R-1* R-L!" and evaluate.SIGNIFICANT == 0.005
    difference = row["difference"]
    assert difference["rouge1"]["p"] == rouge.paired_test(base + 5, base) < 0.005 < difference["rouge2"]["p"]
    assert difference["rouge1"]["difference"] == pytest.approx(5)
    assert row["rouge1"]["low"] < row["rouge1"]["mean"] < row["rouge1"]["high"]


# The command


def test_table_1_by_one_command(runs, tmp_path, capsys, examples):
    """Baseline, oracle masking and masking by taggers; every row decodes what its setting says."""
    names = ["base", "base+oracle", "base+oracle-0.3", "base+tagger", "base+weak"]
    files = {kind: tmp_path / "new" / f"table.{kind}" for kind in ("json", "csv")} | {"predictions": tmp_path / "out"}
    flags = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    taggers = ["--tagger", str(runs / "tagger"), str(runs / "weak")]
    main([str(runs / "base"), *taggers, "--heads", "1:0-3,2:1", "--oracle", "--flip", "0.3", *QUICK, *flags])
    printed, metrics = capsys.readouterr().out, json.loads(files["json"].read_text())
    systems = metrics["systems"]
    assert list(systems) == names and all(name in printed for name in names)
    assert metrics["signature"] in printed and metrics["examples"] == 5 and metrics["generation"] == GENERATION
    labels = ["plain", "oracle", "oracle-0.3", "system:tagger", "system:weak"]
    assert [row["labels"] for row in systems.values()] == labels
    assert [row["flipped"] for row in systems.values()] == [None, 0.0, 0.3, None, None]
    assert systems["base"]["heads"] == "" and systems["base+weak"]["heads"] == "1:0-3,2:1"
    assert systems["base"]["difference"] is None and 0 < systems["base+weak"]["difference"]["rouge1"]["p"] <= 1
    assert metrics["taggers"]["weak"]["trained_on"] == 12 and metrics["taggers"]["tagger"]["trained_on"] == 24
    assert 0 <= metrics["taggers"]["weak"]["rouge1"]["mean"] <= 100

    rows = list(csv.DictReader(files["csv"].open()))
    assert [row["system"] for row in rows] == [*names, "tagger", "weak"] and {row["seed"] for row in rows} == {"0"}
    for row in rows[:5]:
        assert float(row["rouge1_low"]) == pytest.approx(systems[row["system"]]["rouge1"]["low"], rel=1e-3)

    run, tagger = load_run(runs / "base"), load_run(runs / "tagger")
    tagged = {"tagger": tag(tagger, [text.source for text in examples[:5]])}
    documents = read_documents(run, examples[:5], Labels(flips=(0.3,)), tagged)
    kinds = zip(names, labels[:4], strict=False)
    settings = {name: Setting(kind, "1:0-3,2:1") for name, kind in kinds}
    written = {name: (tmp_path / "out" / f"{name}.jsonl").read_text() for name in settings}
    written = {name: {row["id"]: row for row in map(json.loads, text.splitlines())} for name, text in written.items()}
    for name, i, _, text in decode(run, documents, settings, encode(run.model, documents, 3), **GENERATION):
        row = {"id": examples[i].id, "prediction": text, "reference": examples[i].target}
        assert written[name][examples[i].id] == row


def test_d14_without_heads_those_of_the_top_layer_are_masked(runs, tmp_path):
    """D14: Appendix B names no heads for a small model; without labels no heads are sought."""
    main([str(runs / "base"), "--oracle", *QUICK, "--json", str(tmp_path / "m.json")])
    systems = json.loads((tmp_path / "m.json").read_text())["systems"]
    assert {name: row["heads"] for name, row in systems.items()} == {"base": "", "base+oracle": "2:0-3"}


def test_p_refers_to_the_first_system(monkeypatch):
    """The third system is the second one, so that p against that would be 1."""
    texts = {"s": "cats run", "s+oracle": "red mice", "s+t": "red mice"}
    stories = [example(str(i), "red mice") for i in range(12)]
    monkeypatch.setattr(evaluate, "tag", lambda run, texts: [Tagged([0.9], [(0, 1)], 0.5)] * 12)
    monkeypatch.setattr(evaluate, "read_documents", lambda *_: [])
    monkeypatch.setattr(evaluate, "collect", lambda *_: {name: [text] * 12 for name, text in texts.items()})
    run = evaluate.Run(SMALL, torch.nn.Linear(1, 1), None)
    systems = evaluate.evaluate({"s": run}, stories, {"t": run}, {"s": "1:0"}, oracle=True)["systems"]
    assert [row["marks"] for row in systems.values()] == ["", "R-1* R-2* R-L*", "R-1* R-2* R-L*"]
    assert systems["s+t"]["difference"] == systems["s+oracle"]["difference"]


def test_each_tagger_masks_each_summariser(runs, tmp_path):
    """Sizes of the training data come from the runs' logs (Figure 5)."""
    pair = [str(runs / "base"), str(runs / "half"), "--tagger", str(runs / "tagger")]
    main([*pair, "--heads", "1:0-1", *QUICK, "--json", str(tmp_path / "m.json"), "--predictions", str(tmp_path / "p")])
    systems = json.loads((tmp_path / "m.json").read_text())["systems"]
    assert list(systems) == ["base", "base+tagger", "half", "half+tagger"]
    assert sorted(path.stem for path in (tmp_path / "p").iterdir()) == sorted(systems)
    assert [row["trained_on"] for row in systems.values()] == [24, 24, 12, 12]
    assert systems["half"]["difference"] is None  # each is compared with its own baseline


def test_taggers_by_themselves(runs, tmp_path, capsys):
    main(["--tagger", str(runs / "tagger"), "--limit", "5", "--csv", str(tmp_path / "t.csv"), "--threshold", "0.9"])
    assert "R-1 of its words" in capsys.readouterr().out
    [row] = csv.DictReader((tmp_path / "t.csv").open())
    assert (row["system"], float(row["threshold"])) == ("tagger", 0.9) and float(row["tokens"]) > 100


def test_every_flag_reaches_what_it_says(runs, tmp_path, monkeypatch, capsys):
    call = {}

    def enough(*arguments, **generation):
        call.update(arguments=arguments, generation=generation)
        raise ValueError("enough")

    monkeypatch.setattr(evaluate, "evaluate", enough)
    flags = ["--heads", "1:1", "--oracle", "--flip", "0.2", "--data", DATA, "--split", "validation", "--limit", "3"]
    flags += ["--method", "lcs", "--min-run", "2", "--min-keep", "7", "--threshold", "0.33", "--beam", "3"]
    flags += ["--max-length", "9", "--no-repeat-ngram-size", "2", "--batch-size", "2", "--predictions", str(tmp_path)]
    with pytest.raises(SystemExit):
        main([str(runs / "base"), "--tagger", str(runs / "tagger"), *flags])
    summarizers, stories, taggers, heads, oracle, labels, batch_size, predictions = call["arguments"]
    assert list(summarizers) == ["base"] and stories == load(DATA, "validation", 3)
    assert heads == {"base": "1:1"} and oracle and labels == Labels("lcs", 2, 7, (0.2,))
    assert (batch_size, predictions) == (2, tmp_path) and list(taggers) == ["tagger"]
    assert taggers["tagger"].model.threshold.item() == pytest.approx(0.33)
    assert call["generation"] == dict(num_beams=3, max_length=9, no_repeat_ngram_size=2)


def test_outputs_that_are_inputs_or_each_other_are_refused_and_old_ones_survive_a_typo(runs, tmp_path, capsys):
    data, folder, old = tmp_path / "data.jsonl", tmp_path / "folder", tmp_path / "old.json"
    for path in (data, folder / "test.jsonl"):
        path.parent.mkdir(exist_ok=True)
        write_jsonl(path, [{"source": "a storm hit the town .", "target": "a storm ."}])
    (tmp_path / "link.json").symlink_to(data)
    old.write_text("hours of work")
    before = data.read_text()
    for flags, message in (
        (["--data", str(data), "--json", str(data)], "would be overwritten"),
        (["--data", str(data), "--csv", str(tmp_path / "link.json")], "would be overwritten"),
        (["--data", str(data), "--csv", str(runs / "base/log.jsonl")], "would be overwritten"),
        (["--data", str(folder), "--json", str(folder / "test.jsonl")], "would be overwritten"),
        (["--data", DATA, "--json", str(old), "--csv", str(tmp_path / "folder/../old.json")], "would be overwritten"),
        (["--data", str(tmp_path / "typo"), "--json", str(old)], "typo"),
    ):
        with pytest.raises(SystemExit):
            main([str(runs / "base"), *flags])
        assert message in capsys.readouterr().err
    assert data.read_text() == before and old.read_text() == "hours of work"


def test_documents_that_were_cut_are_counted(runs, tmp_path, capsys):
    data = tmp_path / "data.jsonl"
    write_jsonl(data, [{"source": text, "target": "a storm ."} for text in ("storm " * 2000, "a storm .")])
    flags = ["--tagger", str(runs / "weak"), "--data", str(data), "--beam", "1", "--max-length", "4"]
    main([str(runs / "base"), *flags])
    said = capsys.readouterr().err
    assert "1 documents were cut to the --max-source of base" in said and "--max-source of weak" in said


def test_decoding_is_the_models_own_or_appendix_a():
    assert Options(runs=("x",)).generation() == {}
    given = Options(runs=("x",), decoding="cnn_dailymail", max_length=90, no_repeat_ngram_size=2).generation()
    assert given == dict(num_beams=5, length_penalty=2.0, min_length=55, max_length=90, no_repeat_ngram_size=2)


def test_oracle_labels_are_made_as_the_first_tagger_learned_them(runs):
    taggers = {name: load_run(runs / name) for name in ("weak", "tagger")}
    assert labels_of(Options(), taggers) == Labels("newsroom", 2, 5)
    assert labels_of(Options(method="runs", min_run=3, min_keep=0, flip=(0.2,)), taggers) == Labels(
        "runs", 3, 0, (0.2,)
    )
    assert labels_of(Options(), {}) == Labels("runs", 1, 5)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["{runs}/nothing", "--data", DATA], "cannot load"),
        (["{runs}/nothing"], "give --data"),
        ([], "give the run of a summariser"),
        (["{runs}/tagger", "--data", DATA], "holds a tagger; give the run of a summarizer"),
        (["{runs}/base", "--tagger", "{runs}/half", "--heads", "1:0"], "holds a summarizer; give the run of a tagger"),
        (["{runs}/base", "--flip", "0.3"], "and --oracle beside it"),
        (["{runs}/base", "{runs}/../x/base"], "same name"),
        (["{runs}/base", "--oracle", "--heads", "3:0", "--data", DATA], "layer 3 does not exist"),
        (["{runs}/base", "--oracle", "--heads", "1:7", "--data", DATA], "layer 1 has no head 7"),
        (["{runs}/base", "--oracle", "--heads", "one"], "write LAYER:HEADS"),
        (["{runs}/base", "--max-length", "3000"], "--max-length is 3000, the model has 1024 positions"),
        (["{runs}/base", "--tagger", "{runs}/tagger", "--heads", "1:0", "--threshold", "nan"], "--threshold is nan"),
        (["{runs}/base", "--data", "no/such/place"], "no/such/place"),
        (["{runs}/base", "--data", DATA, "--split", "tset"], "tset"),
        (["{runs}/base", "--device", "foo"], "--device foo cannot be used"),
        (["{runs}/base", "--data", DATA, "--json", "{runs}/base/config.json/m"], "config.json"),
        (["{runs}/base", "--data", "{runs}/emoji.jsonl"], "has no word of a-z or 0-9"),
    ],
)  # fmt: skip
def test_bad_requests_end_with_one_line_before_any_decoding(runs, flags, message, capsys, monkeypatch):
    monkeypatch.setattr(evaluate, "decode", lambda *_, **__: pytest.fail("decoded"))
    write_jsonl(runs / "emoji.jsonl", [{"source": "a storm hit .", "target": "\U0001f600"}])
    with pytest.raises(SystemExit) as stop:
        main([flag.format(runs=runs) for flag in flags])
    error = capsys.readouterr().err.splitlines()
    assert stop.value.code in (1, 2) and message in error[-1] and error[-1].startswith("error: ")
