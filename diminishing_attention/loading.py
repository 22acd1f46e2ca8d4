"""A run: begin a new one, from nothing or from another run; or load a folder's."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import nn
from tqdm import tqdm

from shared import pretrained
from shared.run import load_weights, read_config, updates_of

from . import text
from .bertsum import bert_text
from .bertsum.bertsum import BertSumConfig, BertSumExtAbs, new_encoder, read_encoder, with_positions
from .config import TrainConfig
from .model import PointerGenerator, PointerGeneratorConfig
from .text import Item

TEXT = {"pointer": text, "bertsum-abs": bert_text, "transformer": bert_text}  # model: how it reads and writes text
# What a run keeps of the one that it goes on from.
FIXED = ("model", "encoder", "vocabulary", "hidden", "width", "layers", "feed_forward")


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: PointerGenerator | BertSumExtAbs
    tokenizer: object  # text.Vocabulary, or BERTSum's tokenizer of transformers
    first_step: int = 0  # updates behind the weights that this run started from

    @property
    def text(self):
        """The module that reads and writes the model's text."""
        return TEXT[self.config.model]

    def encode(self, examples: Sequence) -> list[Item]:
        """Examples as token ids, cut to the run's sizes; BERTSum's documents must be in sentences."""
        shown = tqdm(examples, "encoding", leave=False, disable=None)
        return self.text.encode_examples(shown, self.tokenizer, self.config.max_source, self.config.max_target)

    def collate(self, items: Sequence[Item]) -> NamedTuple:
        """A batch on the model's device."""
        return self.text.collate(items, next(self.model.parameters()).device)

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights."""
        self.text.save(self.tokenizer, folder)
        (folder / "start.json").write_text(json.dumps({"first_step": self.first_step}), encoding="utf-8")
        if self.config.model != "pointer":
            self.model.encoder.config.save_pretrained(folder / "encoder")


def load_run(folder: str | Path) -> Run:
    """Read a run; the model is in eval mode on the CPU. Of a run in training, the last checkpoint, said on stderr.

    ValueError: not a run folder, one of another package or version, a cut-off file, NaN in the weights.
    """
    config, folder = read_config(folder, TrainConfig), Path(folder)
    tokenizer = TEXT[config.model].load(folder)
    model = make_model(config, tokenizer, None if config.model == "pointer" else read_encoder(folder / "encoder"))
    load_weights(model, folder)
    try:
        first_step = int(json.loads((folder / "start.json").read_text(encoding="utf-8"))["first_step"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / 'start.json'} is missing or cut off ({error})") from None
    return Run(config, model.eval(), tokenizer, first_step)


def make_model(config: TrainConfig, tokenizer, bert: nn.Module | None = None) -> nn.Module:
    """A new model of the config, on the encoder where it is BERTSum."""
    mechanism = config.mechanism()
    if config.model == "pointer":
        sizes = (len(tokenizer), config.hidden // 2, config.hidden)
        return PointerGenerator(PointerGeneratorConfig(*sizes, config.coverage, mechanism))
    sizes = {"layers": config.layers, "feed_forward": config.feed_forward, "dropout": config.dropout}
    return BertSumExtAbs(bert, BertSumConfig(**sizes, diminishing=mechanism), bert_text.target_ids(tokenizer))


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model and tokenizer, or those of the run that `config.init` names."""
    if config.init:
        return begin_from(load_run(config.init), config)
    if config.model == "pointer":
        texts = [part for example in examples for part in (example.source, example.target)]
        vocabulary = text.Vocabulary.build(texts, config.vocabulary)
        return Run(config, make_model(config, vocabulary), vocabulary)
    bert, tokenizer = pretrained.load("bert", config.encoder)
    if config.model == "transformer":  # of the BERT its words alone
        bert = new_encoder(len(tokenizer), config.max_source, config)
    return Run(config, make_model(config, tokenizer, with_positions(bert, config.max_source)), tokenizer)


def begin_from(base: Run, config: TrainConfig) -> Run:
    """A run that goes on with the weights and words of another one, with this config's mechanism.

    D12: the rates of BERTSum go on, too, with the updates behind it. D25: what the optimiser has summed up does not.
    ValueError: flags that do not fit the base.
    """
    for name in FIXED:
        if getattr(config, name) != (value := getattr(base.config, name)):
            raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value!r}, leave it out")
    positions = config.max_source if config.model == "pointer" else base.model.encoder.config.max_position_embeddings
    if config.max_source > positions:
        raise ValueError(f"--max-source is {config.max_source}: the encoder of {config.init} reads {positions} tokens")
    model = make_model(config, base.tokenizer, getattr(base.model, "encoder", None))
    model.load_state_dict(base.model.state_dict(), strict=False)  # coverage has a parameter that comes or goes
    return Run(config, model, base.tokenizer, base.first_step + updates_of(config.init, base.config))
