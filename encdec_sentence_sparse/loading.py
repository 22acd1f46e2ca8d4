"""A run: begin a new one, from nothing, from another run or from a BART; or load a folder's."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import BartConfig, GenerationConfig, PreTrainedTokenizerBase
from transformers import logging as hub_logging

from .config import LONG, SIZES, TrainConfig
from .lobart import extend_positions, make_local
from .model import SentenceSparseBart, add_approximator, bart_config, load_model, load_tokenizer
from .run import load_weights, read_config
from .text import Batch, Item, collate, encode, tokenize, train_tokenizer


class Run(NamedTuple):
    """A run folder's contents, or a BART of transformers."""

    config: TrainConfig
    model: SentenceSparseBart
    tokenizer: PreTrainedTokenizerBase

    def encode(self, examples: Sequence) -> list[Item]:
        """Examples as token ids, cut to the run's lengths; by the rule "given" their documents are in sentences."""
        items = []
        for example in examples:
            item = encode(self.tokenizer, example.document, self.config.max_source, self.config.sentences)
            target, _ = tokenize(self.tokenizer, example.target, self.config.max_target)
            items.append(item._replace(target=target["input_ids"]))
        return items

    def collate(self, items: Sequence[Item]) -> Batch:
        """A batch on the model's device."""
        return collate(items, self.tokenizer.pad_token_id).to(self.model.device)

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights."""
        self.tokenizer.save_pretrained(folder / "tokenizer")
        self.model.config.save_pretrained(folder / "model")
        self.model.generation_config.save_pretrained(folder / "model")


def load_run(folder: str | Path) -> Run:
    """Read a run, in eval mode; of one in training the last checkpoint. ValueError: no run, or a damaged one."""
    quiet()
    config, folder = read_config(folder, TrainConfig), Path(folder)
    try:
        tokenizer = load_tokenizer(str(folder / "tokenizer"))
        model = SentenceSparseBart(BartConfig.from_pretrained(folder / "model"))
        model.generation_config = GenerationConfig.from_pretrained(folder / "model")
    except Exception as error:  # transformers raises a dozen unrelated types
        raise ValueError(f"{folder}: tokenizer/ or model/*.json is missing or cut off ({error})") from None
    load_weights(model, folder, "model/model.safetensors")
    return Run(config, model.eval(), tokenizer)


def load_run_or_bart(name: str, sentences: str = "given") -> Run:
    """`load_run` of a run folder; else a BART of transformers, which reads as many tokens as it can."""
    quiet()
    saved = Path(name, "config.json")
    if saved.is_file() and '"package"' in saved.read_text(encoding="utf-8", errors="replace"):
        return load_run(name)
    model, tokenizer = load_model(name)
    positions = model.config.max_position_embeddings
    return Run(TrainConfig(model=name, sentences=sentences, max_source=positions), model, tokenizer)


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """What a new run starts from: a run (`init`), a BART (`model`) or a small new one, which the flags must fit."""
    quiet()
    if config.init:
        base, model, tokenizer = load_run(config.init)
        for name in ("model", *SIZES, *(name for name in LONG if getattr(base, name))):
            if getattr(config, name) != getattr(base, name):
                flag = "--" + name.replace("_", "-")
                raise ValueError(f"{flag}: {config.init} has {getattr(base, name)!r}, leave it out")
    elif config.model:
        model, tokenizer = load_model(config.model)
    else:
        model, tokenizer = new_bart(config, [text for e in examples for text in (e.source, e.target)])
    if config.attention_window and not getattr(model.config, "attention_window", None):
        make_local(model, config.attention_window)
    if config.extend_positions and config.extend_positions != model.config.max_position_embeddings:
        extend_positions(model, config.extend_positions)
    torch.manual_seed(config.seed)  # the approximator's start does not depend on how the model was read
    if config.task == "kl" and getattr(model.config, "sentence_encoder", None) != config.sentence_encoder:
        add_approximator(model, config.sentence_encoder)
    if config.task == "integrated" and model.sentence_encoder is None:
        raise ValueError("--task integrated needs an approximator: give --init a run of --task kl")
    positions = model.config.max_position_embeddings
    for flag, length in (("--max-source", config.max_source), ("--max-target", config.max_target)):
        if length > positions:
            raise ValueError(f"{flag} is {length}, the model has {positions} positions: lower it")
    return Run(config, model, tokenizer)


def new_bart(config: TrainConfig, texts: Sequence[str]) -> tuple[SentenceSparseBart, PreTrainedTokenizerBase]:
    """A small BART with random weights, and a tokenizer made from the texts."""
    tokenizer = train_tokenizer(texts, config.vocabulary)
    sizes = (config.width, config.feed_forward, config.heads, config.layers, config.positions)
    dropout = dict(dropout=config.dropout, attention_dropout=config.dropout)
    # BART's own init_std of 0.02 is for large widths: here attention would stay flat for long.
    model = SentenceSparseBart(bart_config(len(tokenizer), *sizes, init_std=config.width**-0.5, **dropout))
    model.generation_config.update(num_beams=4, max_length=min(128, config.positions))
    return model, tokenizer


def quiet() -> None:
    """Switch off what transformers and accelerate report of every load and save; errors stay."""
    hub_logging.set_verbosity_error()
    hub_logging.disable_progress_bar()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
