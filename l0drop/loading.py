"""A run: begin a new one, from nothing or from another run; or load a folder's."""

import json
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from shared.run import load_weights, read_config

from .config import LENGTH_PENALTY, TrainConfig
from .model import BOS, EOS, PAD, Encoding, ModelConfig, Transformer
from .search import generate
from .text import Batch, Item, collate, encode_examples, train_tokenizer

FEW = 10_000  # pairs, below which a model from scratch seldom learns to read
# What fine-tuning may change in a model.
FREE = ("residual_dropout", "attention_dropout", "l0drop", "gate_start", "mask_closed_in_training")


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: Transformer
    tokenizer: Tokenizer
    first_step: int = 0  # updates behind the weights that this run started from

    def encode(self, examples: Sequence) -> list[Item]:
        """Examples as token ids, cut to size."""
        sizes = self.config.max_source, self.config.max_target
        return encode_examples(examples, self.tokenizer, *sizes)

    def collate(self, items: Sequence[Item]) -> Batch:
        """A batch on the model's device."""
        return collate(items, next(self.model.parameters()).device)

    def decode(self, items: Sequence[Item], **search) -> tuple[list[str], Encoding]:
        """The output of each item, on one line, and the encoding; `search`: see `generate`."""
        search = {"length_penalty": LENGTH_PENALTY[self.config.units]} | search
        hypotheses, encoding, _ = generate(self.model, self.collate(items).source, **search)
        texts = []
        for tokens in hypotheses.tokens.tolist():
            words = [token for token in tokens if token not in (PAD, BOS, EOS)]
            texts.append(" ".join(self.tokenizer.decode(words).split()))
        return texts, encoding

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside the weights."""
        (folder / "tokenizer.json").write_text(self.tokenizer.to_str(), encoding="utf-8")
        (folder / "start.json").write_text(json.dumps({"first_step": self.first_step}))
        (folder / "config.json").write_text(json.dumps(asdict(self.config), indent=1))


def load_run(folder: str | Path) -> Run:
    """Read a finished run, its model in eval mode on the CPU.

    ValueError: not a run folder, a training that is not finished, weights that do not fit.
    """
    folder = Path(folder)
    config = read_config(folder, TrainConfig)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    start = json.loads((folder / "start.json").read_text())
    model = new_model(config, tokenizer)
    load_weights(model, folder / "model.safetensors")
    return Run(config, model.eval(), tokenizer, start["first_step"])


def new_model(config: TrainConfig, tokenizer: Tokenizer) -> Transformer:
    """A model of the config's sizes for the tokens that the tokenizer has."""
    return Transformer(replace(config, vocabulary=tokenizer.get_vocab_size()))


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model and tokenizer, or those of the run that `config.init` names with new gates.

    ValueError: that run does not fit.
    """
    if config.init:
        return begin_from(load_run(config.init), config)
    if len(examples) < FEW and not config.data.startswith("toy"):
        print(
            f"{len(examples)} pairs are few to learn from scratch; in the end the loss with the "
            f"sources exchanged must be clearly higher, or begin with a BART (l0drop/README.md)"
        )
    texts = (text for example in examples for text in (example.source, example.target))
    tokenizer = train_tokenizer(texts, config.units, config.vocabulary)
    return Run(config, new_model(config, tokenizer), tokenizer)


def begin_from(base: Run, config: TrainConfig) -> Run:
    """A run that fine-tunes another one: its weights and tokenizer, and gates where it has none."""
    sizes = [field.name for field in fields(ModelConfig) if field.name not in FREE]
    for name in ("units", *sizes):
        value = getattr(base.config, name)
        if getattr(config, name) != value:
            raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value}, leave it out")
    model = new_model(config, base.tokenizer)
    missing, unexpected = model.load_state_dict(base.model.state_dict(), strict=False)
    other = [name for name in missing if not name.startswith("l0drop.")] + unexpected
    if other:
        raise ValueError(f"{config.init} does not fit --l0drop {config.l0drop}: {', '.join(other)}")
    return Run(config, model, base.tokenizer, base.first_step + base.config.steps)
