"""Presets against the paper's values, contradictions, and what every flag says of itself."""

from dataclasses import asdict
from pathlib import Path

import pytest

pytest.importorskip("shared")

from transformers import BartForConditionalGeneration

from shared.data import load
from shared.run import check, read_config

from ..config import DECODING, PRESETS, TrainConfig
from ..model import bart_config
from ..text import train_tokenizer
from ..train import main
from .test_train import DATA, changed, weights

PAPERS = {  # the first is whole, but for what the tiny run has, too; the others name what differs
    "paper": dict(
        task="kl",  # A.5: integrated training starts from it
        # A.1: a BART that is fine-tuned already
        data="cnn_dailymail", model="facebook/bart-large-cnn",
        batch_size=1, accumulate=2, patience=3,  # A.3
        # A.3: 20,000, which are documents in the released code: D15
        warmup=10_000, save_every=10_000,
        learning_rate=pytest.approx(0.002 / 20_000**0.5),  # A.3, at its highest
        clip=0.0, max_target=200,  # released code
        steps=143_556,  # A.2: 287,113 documents, two to an update; A.3: one epoch
        r=5, kl_weight=0.2,  # Section 4.4, A.5
        max_source=1024, sentence_encoder="gru", mixed_precision="no",
    ),
    "paper-integrated": dict(task="integrated", select="approx"),  # A.5
    # released code: 25,000 documents
    "paper-sparse": dict(task="sparse", save_every=12_500, gamma=0.1),
    # 204,045 documents
    "paper-xsum": dict(data="xsum", model="facebook/bart-large-xsum", r=10, steps=102_022),
}  # fmt: skip


def test_presets_hold_the_papers_values():
    """A.2, A.3, A.5, r* of Section 4.4; lengths and validations of the released code."""
    assert PRESETS["tiny"] == {} and set(PRESETS) == {"tiny", *PAPERS}
    for preset, values in PAPERS.items():
        if preset == "paper-integrated":  # what goes on from a run changes no other value of it
            assert PRESETS[preset] == values
            continue
        config = TrainConfig(**PRESETS[preset])
        check(config)
        assert asdict(config) == asdict(TrainConfig()) | PAPERS["paper"] | values, preset
    tiny = dict(
        task="base",
        data="toy",
        max_source=1024,
        max_target=256,
        init="",
        model="",
        vocabulary=4000,
        width=64,
        feed_forward=256,
        dropout=0.1,
        gamma=0.1,
        sentence_encoder="gru",
        kl_weight=0.2,
        select="approx",
        r=5,
        steps=1500,
        batch_size=16,
        accumulate=1,
        learning_rate=3e-3,
        warmup=200,
        clip=1.0,
        save_every=250,
        patience=0,
        mixed_precision="no",
        log_with="",
        seed=0,
    )
    assert asdict(TrainConfig()) == tiny


def test_d27_the_searches_of_the_corpora():
    """A.3; the lengths are the released code's, XSum's those of bart-large-xsum."""
    released = dict(num_beams=4, length_penalty=2.0, no_repeat_ngram_size=3)
    assert DECODING == {
        "own": {},
        "paper": released | dict(min_length=50, max_length=200),
        "paper-xsum": released | dict(min_length=11, max_length=62),
    }


def save_bart(folder: Path) -> BartForConditionalGeneration:
    """A BART as transformers saves it, 3 decoder layers, with generation settings of its own."""
    tokenizer = train_tokenizer([example.source for example in load(DATA)], 400)
    config = bart_config(len(tokenizer), 16, 8, heads=2, layers=1, positions=256)
    config.decoder_layers = 3
    bart = BartForConditionalGeneration(config)
    bart.generation_config.update(num_beams=3, max_length=21)
    bart.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return bart


def test_d24_the_chain_of_the_paper(tmp_path):
    """A.5: KL-only, then integrated from it, with XSum's values in both; D24: r* is in them, too.

    Both are made, on a small BART and small data; all other values are the preset's.
    """
    save_bart(tmp_path / "bart")
    small = dict(model=str(tmp_path / "bart"), data="toy:count=4", steps=1, max_source=100)
    flags = f"--model {tmp_path}/bart --data toy:count=4 --steps 1 --max-source 100"
    kl, integrated = tmp_path / "kl", tmp_path / "integrated"
    main(["--preset", "paper-xsum", "--out", str(kl), *flags.split()])
    main(["--preset", "paper-integrated", "--out", str(integrated), "--init", str(kl)])
    expected = asdict(TrainConfig()) | PAPERS["paper"] | PAPERS["paper-xsum"] | small
    assert asdict(read_config(kl, TrainConfig)) == expected
    expected |= {"init": str(kl)} | PAPERS["paper-integrated"]
    assert asdict(read_config(integrated, TrainConfig)) == expected
    before, after = weights(kl), weights(integrated)
    frozen = {name for name in before if "sentence_" not in name and "decoder.layers" not in name}
    assert not changed(before, after) & frozen and changed(before, after) - frozen
