"""From a text to its summary: with a tagger, with words of one's own, from files and standard input."""

import io
import json
import sys

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

pytest.importorskip("shared")

from shared.data import Example

from .. import predict as predicting
from ..decode import all_heads, tag
from ..loading import load_run, load_summarizer
from ..masking import keep_at_least, mask_heads
from ..predict import main, mark_spans, mark_words, predict

TEXTS = ["a storm hit the town .", "on Monday the river rose , officials said .", "two bridges were closed ."]


@pytest.fixture
def base(runs):
    """A summariser to which it matters what it attends to."""
    run = load_summarizer(runs / "base")
    with torch.no_grad():
        for weight in run.model.get_decoder().parameters():
            weight *= 3
    run.model.generation_config.update(max_length=12, num_beams=2)
    return run


def examples():
    return [Example(str(i), [text], ["-"], [["-"]]) for i, text in enumerate(TEXTS)]


def alone(run, text, heads, keep=None) -> str:
    """`generate` on one text, its kept tokens given."""
    inputs = run.tokenizer([text], return_tensors="pt")
    if keep is None:
        ids = run.model.generate(**inputs)
    else:
        with mask_heads(run.model, heads, keep(inputs)):
            ids = run.model.generate(**inputs)
    return " ".join(run.tokenizer.decode(ids[0], skip_special_tokens=True).split())


def test_texts_are_summarised_in_their_order_with_and_without_masks(base, runs):
    """Each as alone, under the model's own settings; what is kept are the tagger's words; batches change nothing."""
    tagger, top = load_run(runs / "tagger"), {2: all_heads(base.model)[2]}

    def keep(inputs):
        scores = tagger.model(inputs.input_ids, inputs.attention_mask.bool()).sigmoid()
        scores[:, [0, -1]] = 0
        return keep_at_least(scores, tagger.model.threshold.item())

    mark = lambda text: tag(tagger, [text])[0]  # noqa: E731
    rows = list(predict(base, examples(), mark, both=True, batch_size=2))
    assert [row["id"] for row in rows] == ["0", "1", "2"] and not any(row["was_cut"] for row in rows)
    assert [row["plain"] for row in rows] == [alone(base, text, top) for text in TEXTS]
    assert [row["prediction"] for row in rows] == [alone(base, text, top, keep) for text in TEXTS]
    assert list(predict(base, examples(), mark, both=True, batch_size=1)) == rows


@pytest.mark.parametrize(
    ("name", "heads"),
    [("bart-large-cnn", "1:0-15"), ("bart-large-xsum", "3:1-4,6-9,11,13-15"), ("bart-large", "12:0-15")],
)
def test_d14_models_of_the_hub_are_masked_as_in_appendix_b(base, tmp_path, name, heads):
    """D14: a folder of that name with 12 layers of 16 heads, as facebook/bart-large has; --heads overrides it."""
    sizes = dict(d_model=16, decoder_layers=12, decoder_attention_heads=16)
    sizes |= dict(encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=8, decoder_ffn_dim=8)
    model = BartForConditionalGeneration(BartConfig(vocab_size=len(base.tokenizer), **sizes))
    model.generation_config.update(max_length=4)
    for part in (model, base.tokenizer):
        part.save_pretrained(tmp_path / name)
    run, mark = load_summarizer(tmp_path / name), mark_words(["storm"])
    assert next(predict(run, examples()[:1], mark))["heads"] == heads
    assert next(predict(run, examples()[:1], mark, "2:3"))["heads"] == "2:3"
    assert next(predict(run, examples()[:1]))["heads"] == ""


def test_words_of_ones_own_are_kept(base):
    first, _, last = predict(base, examples(), mark_words(["STORM", "town", "bridges"]), both=True)
    assert set(first["kept"]) >= {"storm", "town"}
    assert "bridges" in last["kept"] and first["prediction"] != first["plain"]
    plain = next(predict(base, examples()))
    assert plain["prediction"] == first["plain"] and plain["kept"] == []


def test_spans_of_ones_own_are_kept(base, tmp_path):
    """A line per document, in their order, also over batches; a word that a span touches counts as a whole."""
    path = tmp_path / "spans.jsonl"
    path.write_text("[[2, 7], [18, 20]]\n[]\n[[0, 11]]\n")
    rows = [list(predict(base, examples(), mark_spans(path), min_keep=1, batch_size=n)) for n in (1, 2)]
    assert rows[0] == rows[1] and rows[0][0]["kept"] == ["storm", "town"] and rows[0][2]["kept"] == ["two", "bridges"]
    words = predict(base, examples(), mark_words(["storm", "town"]), min_keep=1)
    assert next(words)["prediction"] == rows[0][0]["prediction"]
    path.write_bytes(b"\xff\xfe[]")
    with pytest.raises(ValueError, match="spans.jsonl: not UTF-8"):
        mark_spans(path)
    for line in ("", "[[9]]", "[[0, 99]]", "[[5, 2]]", "[[0, 3], [2, 4]]", "no", '[["a", 1]]'):
        path.write_text("[]\n" + line)
        with pytest.raises(ValueError, match=r"spans.jsonl(:2| has too few lines): write \[\["):
            list(predict(base, examples(), mark_spans(path), batch_size=1))


def test_input_is_streamed(base):
    """A batch is summarised before the next one is read."""
    texts = iter(examples())
    rows = predict(base, texts, batch_size=1)
    assert next(rows)["id"] == "0" and next(texts).id == "1"


def test_lines_of_standard_input_and_json_lines(runs, tmp_path, monkeypatch, capsys):
    """A line each, or with --both three; JSONL out has all that is known, from a JSONL that has only sources."""
    flags = [str(runs / "base"), "--tagger", str(runs / "tagger"), "--heads", "1:0-3"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(TEXTS) + "\n"))
    main(flags)
    lines = capsys.readouterr().out.split("\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(TEXTS)))
    main([*flags, "--both"])
    both = capsys.readouterr().out
    assert len(lines) == 4 and all(f"masked: {line}" in both for line in lines[:3]) and both.count("\nkept:   ") == 3
    source, out = tmp_path / "in.jsonl", tmp_path / "new" / "out.jsonl"
    source.write_text("".join(json.dumps({"source": text, "id": f"n{i}"}) + "\n" for i, text in enumerate(TEXTS)))
    main([*flags, str(source), "--out", str(out)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in rows] == ["n0", "n1", "n2"] and [row["prediction"] for row in rows] == lines[:3]
    assert capsys.readouterr().out == ""


def test_every_flag_reaches_what_it_says(runs, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(predicting, "predict", lambda *arguments: calls.append(arguments) or iter(()))
    (tmp_path / "in.txt").write_text("a storm .\n")
    flags = ["--tagger", str(runs / "tagger"), "--threshold", "0.31", "--heads", "1:2", "--min-keep", "2", "--both"]
    main([str(runs / "base"), str(tmp_path / "in.txt"), *flags, "--batch-size", "3"])
    [(run, texts, mark, *rest)] = calls
    assert rest == ["1:2", 2, True, 3] and [text.source for text in texts] == ["a storm ."]
    assert mark("a storm .").threshold == 0.31 and run.config.task == "summarizer"


def test_an_output_that_is_an_input_is_refused_and_an_old_output_survives_a_typo(runs, tmp_path, capsys):
    notes, spans, old = tmp_path / "notes.txt", tmp_path / "spans.jsonl", tmp_path / "old.txt"
    notes.write_text("a storm .\n")
    spans.write_text("[]\n")
    old.write_text("hours of work\n")
    for flags in (
        [notes, "--out", notes],
        [notes, "--keep-spans", spans, "--out", spans],
        [notes, "--out", runs / "base/log.jsonl"],
        ["typo.txt", "--out", old],
    ):
        with pytest.raises(SystemExit):
            main([str(runs / "base"), *map(str, flags)])
        assert capsys.readouterr().err.count("\n") == 1
    assert (notes.read_text(), spans.read_text(), old.read_text()) == ("a storm .\n", "[]\n", "hours of work\n")


def test_documents_that_model_or_tagger_cut_are_counted(runs, tmp_path, capsys):
    (tmp_path / "long.txt").write_text("storm " * 2000 + "\nshort\n" + "storm " * 50 + "\n")
    flags = ["--tagger", str(runs / "weak"), "--out", str(tmp_path / "out.txt")]  # weak reads 40 tokens
    main([str(runs / "base"), str(tmp_path / "long.txt"), *flags])
    assert "2 documents were cut to the --max-source of the model, or of the tagger" in capsys.readouterr().err


def test_at_a_terminal_each_line_is_answered_as_it_comes(runs, capsys, monkeypatch):
    """A generator stands for the keyboard: the second line is typed when the first answer is there."""

    class Keyboard(io.StringIO):
        def isatty(self):
            return True

        def __next__(self):
            line = super().__next__()
            if line.startswith("b"):
                assert capsys.readouterr().out.count("\n") == 1
            return line

    monkeypatch.setattr(sys, "stdin", Keyboard("a cat\nb cat\nc cat\n"))
    main([str(runs / "base")])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["{runs}/tagger"], "holds a tagger"),
        (["{runs}/base", "--batch-size", "0"], "--batch-size is 0"),
        (["{runs}/base", "--min-keep", "-1"], "--min-keep is -1"),
        (["{runs}/base", "--heds", "1:0"], "perhaps you meant --heads"),
        (["{runs}/base", "--heads", "1:0-99999999999", "{runs}/base/config.json"], "has no head"),
        (["{runs}/base", "--tagger", "{runs}/half"], "holds a summarizer"),
        (["{runs}/base", "--tagger", "{runs}/tagger", "--keep-words", "a"], "give one of them"),
        (["{runs}/base", "--keep-spans", "{runs}/gone.jsonl"], "gone.jsonl"),
        (["{runs}/base", "{runs}/gone.txt"], "gone.txt"),
        (["{runs}/base", "--threshold", "nan"], "--threshold is nan"),
        (["{runs}/base", "--device", "foo"], "--device foo"),
        (["{runs}/base", "--heads", "9:0", "{runs}/base/config.json"], "layer 9 does not exist"),
        (["{runs}/base", "--out", "{runs}/base"], "base"),
    ],
)
def test_bad_requests_end_with_one_line(runs, flags, message, capsys):
    with pytest.raises(SystemExit):
        main([flag.format(runs=runs) for flag in flags])
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("error: ") and message in error
