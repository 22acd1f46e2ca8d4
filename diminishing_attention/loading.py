"""A run: begin a new one, from nothing or from another run; or load a folder's."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from torch import nn

from shared import pretrained
from shared.run import load_weights, read_config

from . import text
from .config import TrainConfig
from .diminishing import Diminishing
from .model import PointerGenerator
from .text import Item

# What a run keeps of the one that it goes on from.
FIXED = ("model", "encoder", "vocabulary", "hidden", "width", "layers", "feed_forward")


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: nn.Module  # PointerGenerator, or BERTSum's BertSumExtAbs
    tokenizer: object  # text.Vocabulary, or BERTSum's tokenizer of transformers
    first_step: int = 0  # updates behind the weights that this run started from

    def encode(self, examples: Sequence) -> list[Item]:
        """Examples as token ids, cut to size; BERTSum's documents must be in sentences."""
        return text_of(self.config).encode_examples(
            examples, self.tokenizer, self.config.max_source, self.config.max_target
        )

    def collate(self, items: Sequence[Item]) -> NamedTuple:
        """A batch on the model's device."""
        return text_of(self.config).collate(items, next(self.model.parameters()).device)

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside the weights."""
        text_of(self.config).save(self.tokenizer, folder)
        if self.config.model != "pointer":
            self.model.encoder.config.save_pretrained(folder / "encoder")
        (folder / "start.json").write_text(json.dumps({"first_step": self.first_step}))
        (folder / "config.json").write_text(json.dumps(asdict(self.config), indent=1))


def text_of(config: TrainConfig):
    """The module that reads and writes the model's text."""
    if config.model == "pointer":
        return text
    from .bertsum import bert_text

    return bert_text


def load_run(folder: str | Path) -> Run:
    """Read a finished run, its model in eval mode on the CPU.

    ValueError: not a run folder, a training that is not finished, weights that do not fit.
    """
    folder = Path(folder)
    config = read_config(folder, TrainConfig)
    tokenizer = text_of(config).load(folder)
    start = json.loads((folder / "start.json").read_text())
    bert = None
    if config.model != "pointer":
        from transformers import BertConfig, BertModel

        bert = BertModel(BertConfig.from_pretrained(folder / "encoder", local_files_only=True))
    model = new_model(config, tokenizer, bert)
    load_weights(model, folder / "model.safetensors")
    return Run(config, model.eval(), tokenizer, start["first_step"])


def new_model(config: TrainConfig, tokenizer, bert: nn.Module | None = None) -> nn.Module:
    """A new model of the config, on the encoder `bert` where it is BERTSum."""
    mechanism = Diminishing(config.diminishing, config.f)
    if config.model == "pointer":
        sizes = len(tokenizer), config.hidden // 2, config.hidden
        model = PointerGenerator(*sizes, mechanism, config.coverage)
        if config.initial_values == "released":
            model.initialise()  # D14
        return model
    from .bertsum.bertsum import BertSumExtAbs

    special = text_of(config).target_ids(tokenizer)
    sizes = config.layers, config.feed_forward, config.dropout
    return BertSumExtAbs(bert, special, mechanism, *sizes)


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model and tokenizer, or those of the run that `config.init` names."""
    if config.init:
        return begin_from(load_run(config.init), config)
    if config.model == "pointer":
        texts = [part for example in examples for part in (example.source, example.target)]
        vocabulary = text.Vocabulary.build(texts, config.vocabulary)
        return Run(config, new_model(config, vocabulary), vocabulary)
    from .bertsum.bertsum import new_encoder, with_positions

    bert, tokenizer = pretrained.load("bert", config.encoder)
    if config.model == "transformer":  # of the BERT its words alone
        bert = new_encoder(len(tokenizer), config.max_source, config)
    bert = with_positions(bert, config.max_source)
    return Run(config, new_model(config, tokenizer, bert), tokenizer)


def begin_from(base: Run, config: TrainConfig) -> Run:
    """A run that goes on with the weights and words of another one, with this config's mechanism.

    D12: the rates of BERTSum go on, too, with the updates behind it. D25: what the optimiser has
    summed up does not.
    ValueError: flags that do not fit the base.
    """
    for name in FIXED:
        value = getattr(base.config, name)
        if getattr(config, name) != value:
            flag = "--" + name.replace("_", "-")
            raise ValueError(f"{flag}: {config.init} has {value!r}, leave it out")
    encoder = None
    if config.model != "pointer":
        encoder = base.model.encoder
        positions = encoder.config.max_position_embeddings
        if config.max_source > positions:
            raise ValueError(
                f"--max-source is {config.max_source}: the encoder of {config.init} reads "
                f"{positions} tokens"
            )
    model = new_model(config, base.tokenizer, encoder)
    # coverage has a parameter that comes or goes
    model.load_state_dict(base.model.state_dict(), strict=False)
    return Run(config, model, base.tokenizer, base.first_step + base.config.steps)
