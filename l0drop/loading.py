"""A run: begin a new one, from nothing or from another run; or load a folder's."""

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from shared.run import load_weights, read_config, updates_of

from .config import TrainConfig
from .model import ModelConfig, Transformer
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
        return encode_examples(examples, self.tokenizer, *sizes, self.model.eos)

    def collate(self, items: Sequence[Item]) -> Batch:
        """A batch on the model's device."""
        return collate(items, next(self.model.parameters()).device, self.model.pad, self.model.bos)

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights."""
        (folder / "tokenizer.json").write_text(self.tokenizer.to_str(), encoding="utf-8")
        (folder / "start.json").write_text(
            json.dumps({"first_step": self.first_step}), encoding="utf-8"
        )


def load_run(folder: str | Path, config_type: type = TrainConfig) -> Run:
    """Read a run, its model in eval mode on the CPU; of one in training the last checkpoint, said
    on stderr.

    Raises:
        ValueError: not a run folder, one of another package or version, a cut-off file, NaN in the
            weights.
    """
    config = read_config(folder, config_type)
    tokenizer, first_step = read_files(folder)
    model = new_model(config, tokenizer)
    load_weights(model, folder)
    return Run(config, model.eval(), tokenizer, first_step)


def read_files(folder: str | Path) -> tuple[Tokenizer, int]:
    """What `Run.write_files` wrote."""
    try:
        tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        return tokenizer, int(
            json.loads(Path(folder, "start.json").read_text(encoding="utf-8"))["first_step"]
        )
    except Exception as error:  # tokenizers raises a bare Exception
        raise ValueError(
            f"{folder}: tokenizer.json or start.json is missing or cut off ({error})"
        ) from None


def new_model(config: TrainConfig, tokenizer: Tokenizer) -> Transformer:
    """A model of the config's sizes for the tokens that the tokenizer has."""
    return Transformer(replace(config, vocabulary=tokenizer.get_vocab_size()))


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model and tokenizer, or those of the run that `config.init` names with new gates;
    ValueError if unfit.
    """
    if config.init:
        return begin_from(load_run(config.init), config)
    if len(examples) < FEW and not config.data.startswith("toy"):
        print(
            f"{len(examples)} pairs are few to learn from scratch: README.md says how to begin "
            f"with a pretrained BART"
        )
    texts = (text for example in examples for text in (example.source, example.target))
    tokenizer = train_tokenizer(texts, config.units, config.vocabulary)
    return Run(config, new_model(config, tokenizer), tokenizer)


def begin_from(base: Run, config: TrainConfig) -> Run:
    """A run that fine-tunes another one: its weights and tokenizer, and gates where it has none."""
    sizes = [field.name for field in fields(ModelConfig) if field.name not in FREE]
    for name in ("units", *sizes):
        if getattr(config, name) != (value := getattr(base.config, name)):
            raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value}, leave it out")
    model = new_model(config, base.tokenizer)
    missing, unexpected = model.load_state_dict(base.model.state_dict(), strict=False)
    if other := [name for name in missing if not name.startswith("l0drop.")] + unexpected:
        raise ValueError(
            f"{config.init} does not fit --l0drop {config.l0drop}: it has no place for "
            f"{', '.join(other)}"
        )
    return Run(
        config, model, base.tokenizer, base.first_step + updates_of(config.init, base.config)
    )
