"""A run: begin a new one, from nothing, from another run or from a BART; or load a folder's."""

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import BartConfig, GenerationConfig, PreTrainedTokenizerBase
from transformers import logging as hub_logging

from .config import LONG, SIZES, TrainConfig
from .lobart import extend_positions, make_local
from .model import SentenceSparseBart, add_approximator, bart_config, check_sizes, load_model, load_tokenizer
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
        tokenizer, bart = load_tokenizer(str(folder / "tokenizer")), BartConfig.from_pretrained(folder / "model")
        check_sizes(vars(bart))
        model = SentenceSparseBart(bart)
        model.generation_config = GenerationConfig.from_pretrained(folder / "model")
    except Exception as error:  # transformers raises a dozen unrelated types
        raise ValueError(f"{folder}: tokenizer/ or model/*.json is missing or cut off ({str(error)[:200]})") from None
    load_weights(model, folder, "model/model.safetensors")
    return tried(Run(config, model.eval(), tokenizer), folder)


def load_run_or_bart(name: str, sentences: str = "given") -> Run:
    """`load_run` of a run folder; else a BART of transformers, which reads as many tokens as it can."""
    quiet()
    saved = Path(name, "config.json")
    if saved.is_file() and '"package"' in saved.read_text(encoding="utf-8", errors="replace"):
        return load_run(name)
    return load_bart(TrainConfig(model=name, sentences=sentences))


def load_bart(config: TrainConfig) -> Run:
    """The BART that `config` names, which reads as many tokens as it can."""
    model, tokenizer = load_model(config.model)
    positions = model.config.max_position_embeddings
    return tried(Run(replace(config, max_source=positions), model, tokenizer), config.model)


def name_of(folder: str | Path) -> str:
    """How a run is called in tables and files: the last part of its folder's name, of "." too, or of a hub's name."""
    return Path(os.path.abspath(folder)).name


def tried(run: Run, name: str | Path) -> Run:
    """The run, after it has written two tokens; ValueError where a file beside its weights does not fit them."""
    try:
        vocabulary, size = run.tokenizer.get_vocab(), run.model.config.vocab_size
        last = max(vocabulary[word] for word in set(vocabulary) - set(run.tokenizer.all_special_tokens))
        if last >= size:  # the <mask> of bart-large-cnn is beyond it, and in no text
            raise ValueError(f"the tokenizer has token {last}, the model knows {size}")
        if not isinstance(value := run.model.generation_config.use_cache, bool | None):  # 0 is now true, now false
            raise ValueError(f"use_cache is {value!r}, not true or false")
        source = run.collate([encode(run.tokenizer, ["A test."], 9)]).source()
        rows = run.model.generate(**source, do_sample=False, max_new_tokens=2)
        run.tokenizer.batch_decode(rows, skip_special_tokens=True)
    except Exception as error:  # as many types as there are kinds of damage
        hint = "are its tokenizer, config.json and generation_config.json those that were written with its weights?"
        raise ValueError(f"{name} cannot be used ({str(error)[:200]}): {hint}") from None
    return run


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
        _, model, tokenizer = load_bart(config)
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
