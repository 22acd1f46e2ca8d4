"""Presets against the paper's values, contradictions, and what every flag says of itself."""

import io
import sys
from contextlib import redirect_stdout
from dataclasses import asdict, fields
from pathlib import Path

import pytest

pytest.importorskip("shared")

import tyro
from transformers import BartConfig, BartForConditionalGeneration

from shared.data import load
from shared.run import check, parse, read_config

from .. import predict
from ..config import PRESETS, TrainConfig
from ..predict import DECODING
from ..text import train_tokenizer
from ..train import main
from .test_train import DATA, changed, weights

PAPERS = {  # the first is whole, but for what the tiny run has, too; the others name what differs
    "paper": dict(
        task="kl",  # A.5: integrated training starts from it
        data="cnn_dailymail", model="facebook/bart-large-cnn",  # A.1: a BART that is fine-tuned already
        sentences="nltk",  # A.2
        batch_size=1, accumulate=2, patience=3,  # A.3
        warmup=10_000, save_every=10_000,  # A.3: 20,000, which are documents in the released code: D15
        learning_rate=pytest.approx(0.002 / 20_000**0.5),  # A.3, at its highest
        clip=0.0, max_target=200,  # released code
        steps=143_556,  # A.2: 287,113 documents, two to an update; A.3: one epoch
        r=5, kl_weight=0.2,  # Section 4.4, A.5
        max_source=1024, sentence_encoder="gru", mixed_precision="no",
    ),
    "paper-integrated": dict(task="integrated", select="approx"),  # A.5
    "paper-sparse": dict(task="sparse", save_every=12_500, gamma=0.1),  # released code: 25,000 documents
    "paper-xsum": dict(data="xsum", model="facebook/bart-large-xsum", r=10, steps=102_022),  # 204,045 documents
}  # fmt: skip


def test_presets_hold_the_papers_values():
    """A.3, A.5 and r* of Section 4.4; an epoch of each corpus (A.2); lengths and validations of the released code."""
    assert PRESETS["tiny"] == {} and set(PRESETS) == {"tiny", *PAPERS}
    for preset, values in PAPERS.items():
        if preset == "paper-integrated":  # what goes on from a run changes no other value of it
            assert PRESETS[preset] == values
            continue
        config = TrainConfig(**PRESETS[preset])
        check(config)
        assert asdict(config) == asdict(TrainConfig()) | PAPERS["paper"] | values, preset
    tiny = dict(
        task="base", data="toy", max_source=1024, max_target=256, sentences="given",
        init="", model="", vocabulary=4000, width=64, feed_forward=256, dropout=0.1,
        gamma=0.1, sentence_encoder="gru", kl_weight=0.2, select="approx", r=5, mix_steps=0,
        steps=1500, batch_size=16, accumulate=1, learning_rate=3e-3, warmup=200, clip=1.0, save_every=250, patience=0,
        mixed_precision="no", seed=0,
    )  # fmt: skip
    assert asdict(TrainConfig()) == tiny


def test_d27_the_searches_of_the_corpora():
    """A.3: beam 4, length penalty 2, no trigram twice; lengths of the released code, XSum's of bart-large-xsum."""
    released = dict(num_beams=4, length_penalty=2.0, no_repeat_ngram_size=3)
    lengths = {"paper": (50, 200), "paper-xsum": (11, 62), "paper-arxiv": (56, 400), "paper-podcast": (56, 144)}
    pairs = {
        name: released | dict(zip(("min_length", "max_length"), two, strict=True)) for name, two in lengths.items()
    }
    assert pairs | {"own": {}} == DECODING


def save_bart(folder: Path) -> BartForConditionalGeneration:
    """A BART as transformers saves it, 3 decoder layers, with generation settings of its own."""
    tokenizer = train_tokenizer([example.source for example in load(DATA)], 400)
    sizes = dict(d_model=16, encoder_layers=1, decoder_layers=3, encoder_ffn_dim=8, decoder_ffn_dim=8)
    heads = dict(encoder_attention_heads=2, decoder_attention_heads=2, max_position_embeddings=256)
    bart = BartForConditionalGeneration(BartConfig(vocab_size=len(tokenizer), **sizes, **heads))
    bart.generation_config.update(num_beams=3, max_length=21)
    bart.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return bart


@pytest.mark.parametrize("preset", ["paper", "paper-xsum"])
def test_d24_the_chain_of_the_paper(tmp_path, preset):
    """A.5: KL-only, then integrated from it, with the corpus' values in both; D24: r* is in them, too.

    Both are made, on a small BART and small data; all other values are the preset's.
    """
    save_bart(tmp_path / "bart")
    small = dict(model=str(tmp_path / "bart"), data="toy:count=4", sentences="given", steps=1, max_source=100)
    flags = [text for name, value in small.items() for text in ("--" + name.replace("_", "-"), str(value))]
    presets = [preset, "paper-integrated"]
    expected, last = asdict(TrainConfig()) | PAPERS["paper"] | PAPERS[preset] | small, ""
    for number, name in enumerate(presets):
        main(["--preset", name, "--out", str(tmp_path / str(number)), *(["--init", last] if last else flags)])
        expected |= {"init": last} | (PAPERS[name] if number else {})
        last = str(tmp_path / str(number))
        assert asdict(read_config(last, TrainConfig)) == expected
    before, after = weights(tmp_path / str(len(presets) - 2)), weights(Path(last))
    frozen = {name for name in before if "sentence_" not in name and "decoder.layers" not in name}
    assert not changed(before, after) & frozen and changed(before, after) - frozen


@pytest.mark.parametrize(
    ("sources", "r"),
    [("", 5), ("init", 7), ("preset", 10), ("init preset", 10), ("init flag", 9), ("preset flag", 9), ("resume", 8)],
)
def test_what_wins(tmp_path, sources, r):
    """The default, then the run of --init, then the preset, then a flag; --resume has its own run's values."""
    saved = '{"config": {"r": %d, "task": "kl", "model": "x", "max_source": 120}}'
    for name, value in (("init", 7), ("out", 8)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(saved % value)
    flags = {"init": ["--init", str(tmp_path / "init")], "preset": ["--preset", "paper-xsum"], "flag": ["--r", "9"]}
    flags["resume"] = ["--resume"]
    given = [flag for source in sources.split() for flag in flags[source]]
    out = tmp_path / ("out" if "resume" in sources else "new")
    config, folder, resume = parse(["--out", str(out), *given], TrainConfig, PRESETS, "")
    assert (config.r, folder, resume) == (r, out, "resume" in sources)
    assert config.max_source == (120 if "init" in sources or resume else 1024)
    if resume:
        with pytest.raises(ValueError, match="--resume keeps the values"):
            parse(["--out", str(out), "--resume", "--r", "3"], TrainConfig, PRESETS, "")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "kl"}, "--task kl starts from a trained model: give --init RUN or --model NAME"),
        ({"vocabulary": 10}, "--vocabulary is 10"),
        ({"learning_rate": float("nan")}, "--learning-rate is nan"),
        ({"max_source": 2}, "--max-source is 2"),
    ],
)
def test_values_that_cannot_be_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        check(TrainConfig(**change))


@pytest.mark.parametrize("options", [TrainConfig, predict.Options])
def test_every_flag_says_what_it_does(options):
    """One sentence of its own behind each field, which stands in --help."""
    said = io.StringIO()
    with redirect_stdout(said), pytest.raises(SystemExit):
        tyro.cli(options, args=["--help"])
    text = " ".join(said.getvalue().replace("│", " ").split())
    source = Path(sys.modules[options.__module__].__file__).read_text(encoding="utf-8").splitlines()
    for field in fields(options):
        line = next(line for line in source if line.startswith(f"    {field.name}: "))
        words = line.partition("  # ")[2]
        assert words[0].isupper() and len(words.split()) >= 2, field.name
        assert " ".join(words.split()[:4]) in text, field.name
