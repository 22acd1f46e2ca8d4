"""What the README shows can be pasted and works."""

import re
import shutil
import sys
from pathlib import Path

import torch
from transformers import BartConfig, BartForConditionalGeneration

from ..masking import PAPER_DECODING, PAPER_HEADS, mask_heads
from ..text import train_tokenizer

FOLDER = Path(__file__).resolve().parents[1]


def test_the_example_runs_with_masking_py_alone(tmp_path, monkeypatch):
    """On a local BART with the structure of facebook/bart-large-cnn: kept are the words that it names."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    (by_words,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    sizes = dict(vocab_size=400, d_model=32, encoder_ffn_dim=8, decoder_ffn_dim=8, encoder_layers=1, init_std=0.3)
    BartForConditionalGeneration(BartConfig(max_position_embeddings=160, **sizes)).save_pretrained(tmp_path / "bart")
    document = re.search(r'document = "(.*)"', by_words)[1]
    train_tokenizer([document] * 4, 400).save_pretrained(tmp_path / "bart")
    shutil.copy(FOLDER / "masking.py", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "masking", raising=False)
    names: dict = {}
    exec(by_words.replace("facebook/bart-large-cnn", (tmp_path / "bart").as_posix()), names)
    assert Path(sys.modules["masking"].__file__).parent == tmp_path
    assert kept_words(names) == "storm hit norwick schools closed".split() and 55 <= names["summary"].size(1) <= 140
    settings = PAPER_DECODING["cnn_dailymail"] | dict(return_dict_in_generate=True, output_scores=True)
    plain = names["bart"].generate(**names["inputs"], **settings)
    with mask_heads(names["bart"], PAPER_HEADS["cnn_dailymail"], names["keep"]):
        masked = names["bart"].generate(**names["inputs"], **settings)
    assert torch.equal(masked.sequences, names["summary"])
    assert (plain.sequences_scores - masked.sequences_scores).abs().max() > 1e-4


def kept_words(names: dict) -> list[str]:
    kept = names["inputs"].input_ids[names["keep"]]
    return re.sub(r"\W+", " ", names["tokenizer"].decode(kept)).lower().split()
