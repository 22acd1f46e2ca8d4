"""A run: begin a new one, from nothing, from another run or from a BART; or load a folder's."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AutoTokenizer, BartConfig, GenerationConfig
from transformers import PreTrainedTokenizerBase as Tokenizer

from shared import pretrained
from shared.data import Example, in_sentences
from shared.run import load_weights, read_config

from .config import HEADS, LAYERS, SIZES, TrainConfig
from .model import SentenceSparseBart, add_approximator, bart_config
from .text import Batch, Item, collate, encode_all, train_tokenizer

WEIGHTS = "model/model.safetensors"  # of a run folder
FEW = 20_000  # documents, below which a BART from scratch hardly learns to read


class Run(NamedTuple):
    """A run folder's contents, or a BART of transformers."""

    config: TrainConfig
    model: SentenceSparseBart
    tokenizer: Tokenizer

    def encode(self, examples: Sequence[Example]) -> list[Item]:
        """Examples as token ids, cut to the run's lengths."""
        examples = in_sentences(examples)  # D8: a document of one string is split
        documents = [example.document for example in examples]
        summaries = [example.target for example in examples]
        max_source, max_target = self.config.max_source, self.config.max_target
        return encode_all(self.tokenizer, documents, max_source, summaries, max_target)

    def collate(self, items: Sequence[Item]) -> Batch:
        """A batch on the model's device."""
        return collate(items, self.tokenizer.pad_token_id, self.model.device)

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside the weights."""
        self.tokenizer.save_pretrained(folder / "tokenizer")
        self.model.config.save_pretrained(folder / "model")
        self.model.generation_config.save_pretrained(folder / "model")
        (folder / "config.json").write_text(json.dumps(asdict(self.config), indent=1))


def load_run(folder: str | Path) -> Run:
    """Read a finished run, its model in eval mode on the CPU.

    ValueError: not a run folder, a training that is not finished, weights that do not fit.
    """
    folder = Path(folder)
    config = read_config(folder, TrainConfig)
    with pretrained.one_line(str(folder)):
        tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer", trust_remote_code=False)
        model = SentenceSparseBart(BartConfig.from_pretrained(folder / "model"))
        model.generation_config = GenerationConfig.from_pretrained(folder / "model")
    load_weights(model, folder / WEIGHTS)
    pretrained.generation(model, config.max_target)
    return Run(config, model.eval(), tokenizer)


def load_run_or_bart(name: str) -> Run:
    """`load_run` of a run folder; else a BART of transformers, which reads all that it can."""
    if Path(name, "config.json").is_file() and Path(name, "model").is_dir():
        return load_run(name)
    model, tokenizer = pretrained.load("bart", name, model_class=SentenceSparseBart)
    config = TrainConfig(data="", model=name, max_source=model.config.max_position_embeddings)
    pretrained.generation(model, config.max_target)
    return Run(config, model, tokenizer)


def begin(config: TrainConfig, examples: Sequence[Example]) -> Run:
    """What a new run starts from: a run (`init`), a BART (`model`) or a small new one.

    ValueError: flags that do not fit it.
    """
    if config.init:
        run = begin_from(load_run(config.init), config)
    elif config.model:
        model, tokenizer = pretrained.load("bart", config.model, model_class=SentenceSparseBart)
        pretrained.generation(model, config.max_target)
        run = Run(config, model, tokenizer)
    else:
        if len(examples) < FEW and not config.data.startswith("toy"):
            print(
                f"{len(examples)} documents are few to learn from scratch: begin with --model "
                f"facebook/bart-base"
            )
        texts = (text for example in examples for text in (example.source, example.target))
        model, tokenizer = new_bart(config, texts)
        run = Run(config, model, tokenizer)
    check_lengths(run)
    torch.manual_seed(config.seed)  # a map's start does not depend on how the model was read
    kind = getattr(run.model.config, "sentence_encoder", None)
    if config.task == "kl" and kind != config.sentence_encoder:
        add_approximator(run.model, config.sentence_encoder)
    if config.task == "integrated" and kind is None:
        raise ValueError("--task integrated needs an approximator: give --init a run of --task kl")
    if config.task == "integrated" and kind != config.sentence_encoder:
        raise ValueError(f"--sentence-encoder: {config.init} has {kind!r}, leave it out")
    return run


def begin_from(base: Run, config: TrainConfig) -> Run:
    """A run that goes on from another one: its model and tokenizer.

    ValueError: flags that would change them.
    """
    for name in ("model", *SIZES):
        value = getattr(base.config, name)
        if getattr(config, name) != value:
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"{flag}: {config.init} has {value!r}, leave it out")
    return base._replace(config=config)


def check_lengths(run: Run) -> None:
    """ValueError where documents or summaries are longer than the model has positions."""
    positions = {
        "max_source": run.model.get_encoder().max_source_positions,
        "max_target": run.model.get_decoder().max_target_positions,
    }
    for name, most in positions.items():
        length = getattr(run.config, name)
        if length > most:
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"{flag} is {length}, the model has {most} positions: lower it")


def new_bart(config: TrainConfig, texts: Iterable[str]) -> tuple[SentenceSparseBart, Tokenizer]:
    """A small BART with random weights, and a tokenizer made from the texts."""
    tokenizer = train_tokenizer(texts, config.vocabulary)
    positions = max(config.max_source, config.max_target)
    sizes = (len(tokenizer), config.width, config.feed_forward, HEADS, LAYERS, positions)
    dropout = dict(dropout=config.dropout, attention_dropout=config.dropout)
    # BART's own init_std of 0.02 is for large widths: here attention would stay flat for long.
    model = SentenceSparseBart(bart_config(*sizes, init_std=config.width**-0.5, **dropout))
    pretrained.generation(model, min(128, positions), num_beams=4)
    return model, tokenizer
