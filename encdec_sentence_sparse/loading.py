"""A run: begin a new one, from nothing, from another run or from a BART; or load a folder's."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import BartConfig, GenerationConfig, PreTrainedTokenizerBase
from transformers import logging as hub_logging

from shared.data import Example, in_sentences
from shared.run import load_weights, read_config

from .config import HEADS, LAYERS, SIZES, TrainConfig
from .lobart import extend_positions, make_local
from .model import SentenceSparseBart, add_approximator, bart_config, load_model, load_tokenizer
from .text import Batch, Item, Items, collate, encode_all, train_tokenizer


class Run(NamedTuple):
    """A run folder's contents, or a BART of transformers."""

    config: TrainConfig
    model: SentenceSparseBart
    tokenizer: PreTrainedTokenizerBase

    def encode(self, examples: Sequence[Example]) -> Items:
        """Examples as token ids, cut to the run's lengths."""
        config = self.config
        if config.sentences == "given":  # D8: a document of one string is split
            examples = in_sentences(examples)
        documents, summaries = ([getattr(e, name) for e in examples] for name in ("document", "target"))
        sizes = (config.max_source, config.sentences)
        return encode_all(self.tokenizer, documents, *sizes, summaries, config.max_target)

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
        raise ValueError(f"{folder}: tokenizer/ or model/*.json is missing or cut off ({str(error)[:200]})") from None
    load_weights(model, folder, "model/model.safetensors")
    return Run(config, model.eval(), tokenizer)


def load_run_or_bart(name: str, sentences: str = "given") -> Run:
    """`load_run` of a run folder; else a BART of transformers, which reads as many tokens as it can."""
    if Path(name, "config.json").is_file() and Path(name, "model").is_dir():
        return load_run(name)
    quiet()
    model, tokenizer = load_model(name)
    positions = model.config.max_position_embeddings
    return Run(TrainConfig(data="", model=name, sentences=sentences, max_source=positions), model, tokenizer)


def begin(config: TrainConfig, examples: Sequence[Example]) -> Run:
    """What a new run starts from: a run (`init`), a BART (`model`) or a small new one, which the flags must fit."""
    quiet()
    if config.init:
        base, model, tokenizer = load_run(config.init)
        for name in ("model", *SIZES):
            if getattr(config, name) != getattr(base, name):
                flag = "--" + name.replace("_", "-")
                raise ValueError(f"{flag}: {config.init} has {getattr(base, name)!r}, leave it out")
    elif config.model:
        model, tokenizer = load_model(config.model)
    else:
        model, tokenizer = new_bart(config, (text for e in examples for text in (e.source, e.target)))
    window = getattr(model.config, "attention_window", None)
    if config.attention_window and window and config.attention_window != window:
        raise ValueError(f"--attention-window: the model has {window}, leave it out")
    if config.attention_window and not window:
        make_local(model, config.attention_window)
        extend_positions(model, max(config.max_source, model.config.max_position_embeddings))
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


def new_bart(config: TrainConfig, texts: Iterable[str]) -> tuple[SentenceSparseBart, PreTrainedTokenizerBase]:
    """A small BART with random weights, and a tokenizer made from the texts."""
    tokenizer, positions = train_tokenizer(texts, config.vocabulary), max(config.max_source, config.max_target)
    sizes = (len(tokenizer), config.width, config.feed_forward, HEADS, LAYERS, positions)
    dropout = dict(dropout=config.dropout, attention_dropout=config.dropout)
    # BART's own init_std of 0.02 is for large widths: here attention would stay flat for long.
    model = SentenceSparseBart(bart_config(*sizes, init_std=config.width**-0.5, **dropout))
    model.generation_config.update(num_beams=4, max_length=min(128, positions))
    return model, tokenizer


def quiet() -> None:
    """Switch off what transformers and accelerate report of every load and save; errors stay."""
    hub_logging.set_verbosity_error()
    hub_logging.disable_progress_bar()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
