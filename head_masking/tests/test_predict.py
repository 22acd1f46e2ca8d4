"""From texts to summaries: masks by a tagger, by words, by the reference.

Files, data sets, and standard input.
"""

import io
import json
import sys

import pytest
import torch

pytest.importorskip("shared")

from shared import pretrained
from shared.data import Example, load

from .. import predict as predicting
from ..loading import load_model, load_run
from ..masking import keep_at_least, mask_heads
from ..predict import Options, main, predict, read_documents
from .conftest import DATA

TEXTS = [
    "a storm hit the town .",
    "on Monday the river rose , officials said .",
    "two well-known bridges were closed .",
]
TOP = {2: [0, 1, 2, 3]}


@pytest.fixture
def base(runs):
    """A summariser to which it matters what it attends to."""
    return load_model(runs / "base")


@pytest.fixture
def tagger(runs):
    return load_run(runs / "tagger")


def examples(texts=TEXTS):
    return [Example(str(i), [text], [], []) for i, text in enumerate(texts)]


def alone(run, text, keep=None) -> str:
    """`generate` on one text by itself, its kept tokens given."""
    inputs = run.tokenizer([text], return_tensors="pt")
    kept = keep(inputs) if keep else inputs.attention_mask.bool()
    with mask_heads(run.model, TOP if keep else {}, kept):
        ids = run.model.generate(**inputs)
    return " ".join(run.tokenizer.decode(ids[0], skip_special_tokens=True).split())


def test_texts_are_summarised_in_their_order_with_and_without_masks(base, tagger):
    """Each as alone, under the model's own settings.

    What is kept are the tagger's words; batches change nothing.
    """

    def keep(inputs):
        scores = tagger.model(inputs.input_ids, inputs.attention_mask.bool()).sigmoid()
        scores[:, [0, -1]] = 0
        words = inputs.word_ids()  # D8: a word has the highest score of its pieces
        highest = [
            max(scores[0, n].item() for n in range(len(words)) if words[n] == word)
            for word in words
        ]
        return keep_at_least(torch.tensor([highest]), tagger.model.threshold.item())

    base = base._replace(tokenizer=tagger.tokenizer)
    base.model.resize_token_embeddings(len(tagger.tokenizer))
    texts = TEXTS[::-1]  # the longest first: in a batch they stand in another order
    rows = list(predict(base, examples(texts), TOP, both=True, batch_size=3, tagger=tagger))
    assert [row["id"] for row in rows] == ["0", "1", "2"]
    assert not any(row["was_cut"] for row in rows)
    assert [row["plain"] for row in rows] == [alone(base, text) for text in texts]
    assert [row["prediction"] for row in rows] == [alone(base, text, keep) for text in texts]
    assert any(row["prediction"] != row["plain"] for row in rows)
    alone_rows = predict(base, examples(texts), TOP, both=True, batch_size=1, tagger=tagger)
    assert list(alone_rows) == rows
    [plain, *_] = predict(base, examples(texts))
    assert plain["prediction"] == rows[0]["plain"] and plain["heads"] == "" and "plain" not in plain


def test_what_the_tagger_did_not_read_was_cut(base, runs):
    weak, [story] = load_run(runs / "weak-1"), load(DATA, "test", 1)
    [document] = read_documents(base, [story], tagger=weak)
    assert document.was_cut and not read_documents(base, [story])[0].was_cut


def test_words_that_a_document_lacks_mask_nothing_there_and_this_is_said(base, capsys):
    words = ["STORM", "river", "flood"]
    rows = list(predict(base, examples(), TOP, both=True, words=words))
    assert [row["kept"] for row in rows] == ["storm", "river", TEXTS[2]]
    places = base.tokenizer(TEXTS[0], return_offsets_mapping=True)["offset_mapping"]
    storm = torch.tensor([[2 <= start < end <= 7 for start, end in places]])
    assert rows[0]["prediction"] == alone(base, TEXTS[0], lambda inputs: storm)
    assert rows[2]["prediction"] == rows[2]["plain"]
    said = capsys.readouterr().err
    assert "0 has no river, flood as far as the model reads\n" in said
    assert "2 has no STORM, river, flood as far as the model reads; nothing is masked" in said


def test_d14_models_of_the_hub_are_masked_as_in_appendix_b_by_a_tagger_alone(
    runs, base, tagger, tmp_path, monkeypatch
):
    """D14: asked for are the heads for the data of its name, and for a tagger's masks or others."""
    learned = {"bart-large-cnn": "cnn_dailymail", "bart-large-xsum": "xsum", "bart-large": ""}
    for name, data in learned.items():
        (tmp_path / name).symlink_to(runs / "base")
        assert load_model(tmp_path / name).data == data
    asked = []

    def noted(text, model, data, by_tagger):
        asked.append((data, by_tagger))
        return TOP

    monkeypatch.setattr(predicting, "find_heads", noted)
    (tmp_path / "a.txt").write_text(TEXTS[0])
    for flags in (["--tagger", f"{runs}/tagger"], ["--keep-words", "storm"]):
        main([f"{tmp_path}/bart-large-xsum", f"{tmp_path}/a.txt", *flags])
    assert asked == [("xsum", True), ("xsum", False)]


# The command


def command(capsys, *flags) -> str:
    main([str(flag) for flag in flags])
    return capsys.readouterr().out


def rows_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_d15_a_data_set_is_scored_and_systems_are_named_by_model_and_mask(runs, tmp_path, capsys):
    """The same documents by each system; seeds leave the name.

    D15: the table is rouge-score's, and says so.
    """
    systems = {
        "base": [],
        "base+oracle": ["--oracle"],
        "base+weak": ["--tagger", runs / "weak-1", "--heads", "1:0-3,2:1"],
    }
    rows = {}
    for name, flags in systems.items():
        flags += ["--data", DATA, "--limit", 3, "--out", tmp_path / f"{name}.jsonl"]
        said = command(capsys, runs / "base", *flags)
        assert "rouge1" in said and "rouge-score" in said
        rows[name] = rows_of(tmp_path / f"{name}.jsonl")
        assert {row["system"] for row in rows[name]} == {name}
        references = [story.references for story in load(DATA, "test", 3)]
        assert [row["references"] for row in rows[name]] == references
    assert [row["seed"] for row in rows["base+weak"]] == [0, 0, 0]
    heads = {name: {row["heads"] for row in of_system} for name, of_system in rows.items()}
    assert heads == {"base": {""}, "base+oracle": {"2:0-3"}, "base+weak": {"1:0-3,2:1"}}
    texts = [tuple(row["prediction"] for row in of_system) for of_system in rows.values()]
    assert len({*texts}) == 3


def test_lines_in_are_lines_out(runs, monkeypatch, capsys):
    """A line each, or with --both three; a blank line is a blank line."""
    flags, said = [runs / "base", "--tagger", runs / "tagger"], []
    for more in ([], ["--both"]):
        monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join([TEXTS[0], "", *TEXTS[1:]]) + "\n"))
        said.append(command(capsys, *flags, *more))
    lines = said[0].split("\n")
    assert len(lines) == 5 and [line == "" for line in lines] == [False, True, False, False, True]
    assert said[1].count("\nkept:   ") == 3
    assert all(f"masked: {line}\n" in said[1] for line in lines[:4] if line)


CHANGED = {  # each flag with a value that must change what is written
    "limit": ["--limit", "1"],
    "split": ["--split", "validation"],
    "system": ["--system", "x"],
    "tagger": ["--tagger", "{runs}/weak-1"],
    "heads": ["--heads", "1:0-3"],
    "threshold": ["--threshold", "0.1"],
    "both": ["--both"],
    "decoding": ["--decoding", "xsum"],
    "beam": ["--beam", "1"],
    "max_length": ["--max-length", "5"],
    "no_repeat_ngram_size": ["--no-repeat-ngram-size", "1"],
}
# These cannot: they say where things are, or how fast; or they have tests of their own.
SAME = {"run", "files", "data", "out", "overwrite", "batch_size", "words", "device"}
SAME |= {"keep_words", "oracle", "min_run"}


def test_each_flag_changes_what_is_written(runs, tmp_path, capsys):
    assert CHANGED.keys() | SAME == Options.__dataclass_fields__.keys()
    out = tmp_path / "out.jsonl"
    common = [runs / "base", "--tagger", runs / "tagger", "--threshold", "0.9"]
    common += ["--data", DATA, "--limit", "2", "--out", out, "--overwrite"]

    def written(*flags) -> list[dict]:
        command(capsys, *common, *(flag.format(runs=runs) for flag in flags))
        return [row | {"heads": ""} for row in rows_of(out)]

    plain = written()
    assert written("--batch-size", "1") == plain
    for name, flags in CHANGED.items():
        assert written(*flags) != plain, name


def test_a_threshold_of_zero_keeps_every_word(runs, tagger, tmp_path, monkeypatch):
    """Whatever the tagger's own is."""
    tagger.model.threshold.fill_(0.99)
    monkeypatch.setattr(predicting, "load_run", lambda folder: tagger)
    flags = ["--data", DATA, "--limit", "2", "--tagger", "x", "--threshold", "0"]
    main([f"{runs}/base", *flags, "--out", f"{tmp_path}/out.jsonl"])
    kept = [row["kept"].split() for row in rows_of(tmp_path / "out.jsonl")]
    assert kept == [story.source.split() for story in load(DATA, "test", 2)]


def test_min_run_labels_shorter_runs_no_more(base):
    story = Example("1", ["a storm hit the town"], ["hit the storm"], [["hit the storm"]])
    kept = [read_documents(base, [story], oracle=True, min_run=n)[0] for n in (1, 2)]
    assert sum(kept[0].keep) > sum(kept[1].keep) > 0


def test_decoding_is_the_models_own_or_appendix_a(base):
    assert Options(run="x").generation() == {}
    given = Options(run="x", decoding="cnn_dailymail", max_length=90, no_repeat_ngram_size=2)
    assert given.generation() == dict(
        num_beams=5, length_penalty=2.0, min_length=57, max_length=90, no_repeat_ngram_size=2
    )


def test_a_model_whose_files_name_no_longest_output_writes_142_tokens(runs, tmp_path, monkeypatch):
    """As facebook/bart-base."""
    longest = []
    monkeypatch.setattr(pretrained, "generation", lambda *given, **_: longest.append(given[1]))
    (tmp_path / "a.txt").write_text(TEXTS[0])
    main([f"{runs}/base", f"{tmp_path}/a.txt"])
    assert longest == [142]
