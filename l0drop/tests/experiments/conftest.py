"""What the laboratory's tests share: a small BART, and a stand-in for Stanza."""

import itertools
import json
import re
import sys
from types import SimpleNamespace

import pytest
import torch


@pytest.fixture
def bart():
    """A small BART with sharp attention and biases: the dummy's key and value are not zero."""
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(1)
    sizes = dict(vocab_size=31, d_model=16, max_position_embeddings=32, init_std=0.4)
    encoder = dict(encoder_layers=1, encoder_ffn_dim=24, encoder_attention_heads=4)
    decoder = dict(decoder_layers=2, decoder_ffn_dim=24, decoder_attention_heads=4)
    config = BartConfig(**sizes, **encoder, **decoder)
    model = BartForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter += 0.3 * torch.randn_like(parameter)
    return model


@pytest.fixture
def bart_folder(bart, tmp_path):
    """The BART's folder; it writes at most 12 tokens, <s> and </s> stand around a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["<s>", "<pad>", "</s>", "<unk>", "a", "b", "c"]
    words = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(words, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("<s>", 0), ("</s>", 2)]
    around = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    tokenizer.post_processor = around
    special = dict(bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    bart.generation_config.update(max_length=12, num_beams=2)
    for part in (bart, wrapped):
        part.save_pretrained(tmp_path / "bart")
    return tmp_path / "bart"


@pytest.fixture
def folder(bart_folder, tmp_path):
    """The BART's folder, and data beside it."""
    words = itertools.permutations("abc")
    rows = [json.dumps({"source": " ".join(three), "target": three[0]}) for three in words]
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows))
    return tmp_path


TAGS = {"The": "DT", "dogs": "NNS", ".": "."}


class Pipeline:
    """Stands for Stanza's: tags the words of TAGS, calls all others proper names."""

    def __init__(self, language, **options):
        if options.get("dir") == "missing":
            raise FileNotFoundError("resources.json")
        assert options["download_method"] is None  # never the network

    def bulk_process(self, texts):
        found = [list(map(self.token, re.finditer(r"\w+|[^\w\s]", text))) for text in texts]
        return [SimpleNamespace(iter_tokens=tokens.copy) for tokens in found]

    def token(self, match):
        word = SimpleNamespace(xpos=TAGS.get(match[0], "NNP"))
        return SimpleNamespace(end_char=match.end(), words=[word])


@pytest.fixture
def stanza(monkeypatch):
    monkeypatch.setitem(sys.modules, "stanza", SimpleNamespace(Pipeline=Pipeline))
