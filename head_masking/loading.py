"""Models and tokenizers: made new, loaded from transformers, and written to a run folder."""

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration, PreTrainedModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from .model import Tagger


class Run(NamedTuple):
    """A trained model, from a run folder or from transformers."""

    config: Any  # a train.TrainConfig
    model: PreTrainedModel | Tagger
    tokenizer: Tokenizer
    trained_on: int | None = None  # documents; None = not known

    def write_files(self, folder: Path) -> None:
        """What a run folder holds beside its weights."""
        self.tokenizer.backend_tokenizer.no_truncation()  # as `encode_document` left it
        self.tokenizer.save_pretrained(folder / "tokenizer")
        self.tokenizer.save_pretrained(folder / "model")
        (self.model.encoder if self.config.task == "tagger" else self.model).config.save_pretrained(folder / "model")
        if self.config.task == "summarizer":
            self.model.generation_config.save_pretrained(folder / "model")


def write_weights(model: nn.Module, path: Path) -> None:
    """Write a file of weights under another name, then rename it."""
    unfinished = path.with_name("unfinished")
    if isinstance(model, PreTrainedModel):
        model.save_pretrained(unfinished)
        os.replace(unfinished / "model.safetensors", path)
        shutil.rmtree(unfinished)
    else:
        from safetensors.torch import save_model

        save_model(model, str(unfinished))
        os.replace(unfinished, path)


def new_bart(config, vocabulary: int) -> BartForConditionalGeneration:
    """A small BART with random weights, of the sizes that `train.TrainConfig` has."""
    sizes = BartConfig(
        vocab_size=vocabulary, d_model=config.width, encoder_layers=config.layers, decoder_layers=config.layers,
        encoder_attention_heads=config.heads, decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.feed_forward, decoder_ffn_dim=config.feed_forward,
        max_position_embeddings=config.positions, dropout=config.dropout, attention_dropout=config.dropout,
        init_std=config.width**-0.5,  # BART's own 0.02 is for large widths: here attention would stay flat for long
    )  # fmt: skip
    model = BartForConditionalGeneration(sizes)
    model.generation_config.update(num_beams=5, max_length=min(config.max_target, config.positions))
    return model


def new_tagger(config, model: PreTrainedModel) -> Tagger:
    """A new perceptron on a model, or on its encoder; `config` as above."""
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    encoder.pooler = None
    return Tagger(encoder, config.hidden, config.activation, config.tagger_dropout, config.train_encoder)


def from_folder(kind: type, name: str | Path, **options):
    """`kind.from_pretrained(name)`; ValueError with the remedy when it is not there or does not fit."""
    try:
        return kind.from_pretrained(name, **options)
    except Exception as error:  # transformers and the hub raise a dozen unrelated types
        remedy = "make it again" if Path(name).exists() else f"give a folder, or: HF_HUB_OFFLINE=0 hf download {name}"
        raise ValueError(f"cannot load {str(name)!r} ({str(error).strip().splitlines()[0][:150]}): {remedy}") from error


def from_transformers(kind: type, name: str) -> tuple[PreTrainedModel, Tokenizer]:
    """A model and its tokenizer; ValueError where transformers would fill weights at random, or they are NaN."""
    model, info = from_folder(kind, name, dtype=torch.float32, output_loading_info=True)
    wrong = sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))
    wrong = [f"{key} is missing" for key in wrong if "pooler." not in key]  # of BERT; nothing here reads it
    wrong += [f"{key} is NaN or infinite" for key, weight in model.named_parameters() if not weight.isfinite().all()]
    if wrong:
        raise ValueError(f"{name}: {wrong[0]}: get it again")
    return model.eval(), from_folder(AutoTokenizer, name)


def is_run(name: str | Path) -> bool:
    """Whether this is a run folder of one of our packages; a folder of transformers has a config.json, too."""
    path = Path(name, "config.json")
    return path.exists() and '"package"' in path.read_text(encoding="utf-8", errors="replace")
