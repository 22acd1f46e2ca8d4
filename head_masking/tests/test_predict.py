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
from ..predict import main, mark_words, predict

TEXTS = [
    "a storm hit the town .",
    "on Monday the river rose , officials said .",
    "two well-known bridges were closed .",
]


@pytest.fixture
def base(runs):
    """A summariser to which it matters what it attends to."""
    run = load_summarizer(runs / "base-0")
    with torch.no_grad():
        for weight in run.model.get_decoder().parameters():
            weight *= 3
    run.model.generation_config.update(max_length=12, num_beams=2)
    return run


def examples(texts=TEXTS):
    return [Example(str(i), [text], ["-"], [["-"]]) for i, text in enumerate(texts)]


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
        words = inputs.word_ids()  # D8: a word has the highest score of its pieces
        highest = [max(scores[0, n].item() for n in range(len(words)) if words[n] == word) for word in words]
        return keep_at_least(torch.tensor([highest]), tagger.model.threshold.item())

    tagged = tag(tagger, TEXTS)
    rows = list(predict(base, examples(), tagged, both=True, batch_size=2))
    assert [row["id"] for row in rows] == ["0", "1", "2"] and not any(row["was_cut"] for row in rows)
    assert [row["plain"] for row in rows] == [alone(base, text, top) for text in TEXTS]
    assert [row["prediction"] for row in rows] == [alone(base, text, top, keep) for text in TEXTS]
    assert list(predict(base, examples(), tagged, both=True, batch_size=1)) == rows


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
    run = load_summarizer(tmp_path / name)
    storm = mark_words(run, examples()[:1], ["storm"])
    assert next(predict(run, examples()[:1], storm))["heads"] == heads
    assert next(predict(run, examples()[:1], storm, "2:3"))["heads"] == "2:3"
    assert next(predict(run, examples()[:1]))["heads"] == ""


# Words of one's own


@pytest.mark.parametrize(
    ("wanted", "kept"),
    [
        (["STORM", "town", "officials", "bridges"], ["storm town", "officials", "bridges"]),
        (["the town", "on", "well-known"], ["the town", "on", "well - known"]),
        (["hit the", "The River Rose", "closed"], ["hit the", "the river rose", "closed"]),
    ],
)
def test_words_and_phrases_are_kept_and_no_others(base, wanted, kept):
    """In any case of letters; a phrase as a whole alone: "the" of "the town" is not kept elsewhere."""
    marked = mark_words(base, examples(), wanted)
    rows = list(predict(base, examples(), marked, min_keep=0, both=True))
    assert [" ".join(row["kept"]) for row in rows] == kept
    assert any(row["prediction"] != row["plain"] for row in rows)


def test_words_that_a_document_does_not_hold_are_refused(base):
    """A mask for them would be of random words, the released rule for a tagger that selects nothing."""
    with pytest.raises(ValueError, match=r"document 0 has none of the words strom \(perhaps storm\): give its own"):
        mark_words(base, examples(TEXTS[:1]), ["strom"])
    with pytest.raises(ValueError, match="document 1 has none of the words storm"):
        mark_words(base, examples(TEXTS[:2]), ["storm"])
    with pytest.raises(ValueError, match="--keep-words: 'flood' stands in no document"):
        mark_words(base, examples(TEXTS[:1]), ["storm", "flood"])
    short = base._replace(config=base.config.__class__(max_source=4))
    with pytest.raises(ValueError, match="none of the words town"):  # it stands beyond what the model reads
        mark_words(short, examples(TEXTS[:1]), ["town"])
    with pytest.raises(ValueError, match="none of the words"):
        mark_words(base, examples(TEXTS[:1]), ["the storm"])


# The command


def test_lines_of_standard_input_and_json_lines(runs, tmp_path, monkeypatch, capsys):
    """A line each, or with --both three; JSONL out has all that is known, from a JSONL that has only sources."""
    flags = [str(runs / "base-0"), "--tagger", str(runs / "tagger"), "--heads", "1:0-3"]
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
    calls, sizes = [], []
    monkeypatch.setattr(predicting, "predict", lambda *arguments: calls.append(arguments) or iter(()))
    monkeypatch.setattr(predicting, "tag", lambda run, texts, size: sizes.append(size) or tag(run, texts, size))
    (tmp_path / "in.txt").write_text("a storm .\n")
    flags = ["--tagger", str(runs / "tagger"), "--threshold", "0.31", "--heads", "1:2", "--min-keep", "2", "--both"]
    main([str(runs / "base-0"), str(tmp_path / "in.txt"), *flags, "--batch-size", "3"])
    [(run, texts, [tagged], *rest)] = calls
    assert rest == ["1:2", 2, True, 3] and [text.source for text in texts] == ["a storm ."] and sizes == [3]
    assert tagged.threshold == 0.31 and run.config.task == "summarizer"
