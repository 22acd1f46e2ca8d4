"""What the README shows can be pasted and works."""

import re
from pathlib import Path

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

pytest.importorskip("shared")

from ..labels import selected_words, tag
from ..masking import PAPER_DECODING, PAPER_HEADS, mask_heads
from ..oracle import token_labels
from ..text import train_tokenizer
from ..train import load_run


def test_the_examples_of_copy_it_run(runs, tmp_path):
    """On a local BART with the structure of facebook/bart-large-cnn and a small tagger: kept is what each says."""
    readme = Path(__file__).resolve().parents[1] / "README.md"
    package = __package__.removesuffix(".tests")  # the folder may have another name
    text = re.sub(r"from head_masking(\.\w+)? import", rf"from {package}\1 import", readme.read_text(encoding="utf-8"))
    by_tagger, by_query = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert by_tagger.count("\n") <= 16
    sizes = dict(vocab_size=400, d_model=32, encoder_ffn_dim=8, decoder_ffn_dim=8, encoder_layers=1, init_std=0.3)
    BartForConditionalGeneration(BartConfig(max_position_embeddings=160, **sizes)).save_pretrained(tmp_path)
    document = re.search(r'document = "(.*)"', by_tagger)[1]
    train_tokenizer([document] * 4, 400).save_pretrained(tmp_path)
    names: dict = {"token_labels": token_labels}
    for name, folder in (("facebook/bart-large-cnn", tmp_path), ("runs/cnndm-tagger", runs / "tagger")):
        by_tagger = by_tagger.replace(name, folder.as_posix())
    exec(by_tagger, names)
    [tagged] = tag(load_run(runs / "tagger"), [document])
    words = {text.lower() for text in selected_words(document, tagged).split() if text.isalnum()}
    assert words and words <= set(kept_words(names)) and 55 <= names["summary"].size(1) <= 140
    settings = PAPER_DECODING["cnn_dailymail"] | dict(return_dict_in_generate=True, output_scores=True)
    plain = names["bart"].generate(**names["inputs"], **settings)
    with mask_heads(names["bart"], PAPER_HEADS["cnn_dailymail"], names["keep"]):
        masked = names["bart"].generate(**names["inputs"], **settings)
    assert torch.equal(masked.sequences, names["summary"])
    assert (plain.sequences_scores - masked.sequences_scores).abs().max() > 1e-4
    exec(by_query, names)
    assert kept_words(names) == "storm hit norwick schools closed".split()


def kept_words(names: dict) -> list[str]:
    kept = names["inputs"].input_ids[names["keep"]]
    return re.sub(r"\W+", " ", names["tokenizer"].decode(kept)).lower().split()
