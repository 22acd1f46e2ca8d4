"""What the README shows can be pasted and works."""

import re
from pathlib import Path

import torch
from transformers import BartConfig, BartForConditionalGeneration

from ..masking import PAPER_DECODING, PAPER_HEADS, mask_heads
from ..text import train_tokenizer


def test_the_example_of_copy_it_runs(tmp_path):
    """On a local BART with the structure of facebook/bart-large-cnn: kept is what the example calls salient."""
    readme = Path(__file__).resolve().parents[1] / "README.md"
    (code,) = re.findall(r"```python\n(.*?)```", readme.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert code.count("\n") <= 16
    sizes = dict(vocab_size=400, d_model=32, encoder_ffn_dim=8, decoder_ffn_dim=8, encoder_layers=1, init_std=0.3)
    BartForConditionalGeneration(BartConfig(max_position_embeddings=160, **sizes)).save_pretrained(tmp_path)
    document = re.search(r'document = "(.*)"', code)[1]
    train_tokenizer([document] * 4, 400).save_pretrained(tmp_path)
    package = __package__.removesuffix(".tests")  # the folder may have another name
    code = code.replace("from head_masking import", f"from {package} import")
    names: dict = {}
    exec(code.replace("facebook/bart-large-cnn", tmp_path.as_posix()), names)
    kept = names["inputs"].input_ids[names["keep"]]
    assert re.sub(r"\W+", " ", names["tokenizer"].decode(kept)).split() == "storm hit Norwick Schools closed".split()
    assert 55 <= names["summary"].size(1) <= 140
    settings = PAPER_DECODING["cnn_dailymail"] | dict(return_dict_in_generate=True, output_scores=True)
    plain = names["bart"].generate(**names["inputs"], **settings)
    with mask_heads(names["bart"], PAPER_HEADS["cnn_dailymail"], names["keep"]):
        masked = names["bart"].generate(**names["inputs"], **settings)
    assert torch.equal(masked.sequences, names["summary"])
    assert (plain.sequences_scores - masked.sequences_scores).abs().max() > 1e-4
