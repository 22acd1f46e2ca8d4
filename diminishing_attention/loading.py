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
        """Examples as token ids, cut to the run's sizes; BERTSum's documents must be in
        sentences.
        """
        shown = tqdm(examples, "encoding", leave=False, disable=None)
        return text_of(self.config).encode_examples(
            shown, self.tokenizer, self.config.max_source, self.config.max_target
        )

    def collate(self, items: Sequence[Item]) -> NamedTuple:
        """A batch on the model's device."""
        return text_of(self.config).collate(items, next(self.model.parameters()).device)

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights."""
        text_of(self.config).save(self.tokenizer, folder)
        (folder / "start.json").write_text(
            json.dumps({"first_step": self.first_step}), encoding="utf-8"
        )
        if self.config.model != "pointer":
            self.model.encoder.config.save_pretrained(folder / "encoder")


def text_of(config: TrainConfig):
    """The module that reads and writes the model's text; BERTSum's files are read where it is
    used.
    """
    if config.model == "pointer":
        return text
    from .bertsum import bert_text

    return bert_text


def load_run(folder: str | Path) -> Run:
    """Read a run; the model is in eval mode on the CPU.

    Of a run in training, the last checkpoint, said on stderr.

    ValueError: not a run folder, one of another package or version, a cut-off file, NaN in the
    weights.
    """
    config, folder = read_config(folder, TrainConfig), Path(folder)
    try:
        tokenizer, bert = text_of(config).load(folder), None
        if config.model != "pointer":
            from transformers import BertConfig, BertModel

            bert = BertModel(BertConfig.from_pretrained(folder / "encoder", local_files_only=True))
        first_step = int(
            json.loads((folder / "start.json").read_text(encoding="utf-8"))["first_step"]
        )
    except Exception as error:  # transformers and tokenizers raise a dozen unrelated types
        reason = f"tokenizer, encoder or start.json is missing or cut off ({str(error)[:200]})"
        raise ValueError(f"{folder}: {reason}: train again") from None
    model = make_model(config, tokenizer, bert)
    load_weights(model, folder)
    return Run(config, model.eval(), tokenizer, first_step)


def make_model(config: TrainConfig, tokenizer, bert: nn.Module | None = None) -> nn.Module:
    """A new model of the config, on the encoder where it is BERTSum."""
    mechanism = Diminishing(config.diminishing, config.f)
    if config.model == "pointer":
        model = PointerGenerator(
            len(tokenizer), config.hidden // 2, config.hidden, mechanism, config.coverage
        )
        if config.initial_values == "released":
            model.initialise()  # D14
        return model
    from .bertsum.bertsum import BertSumExtAbs

    sizes = config.layers, config.feed_forward, config.dropout
    return BertSumExtAbs(bert, text_of(config).target_ids(tokenizer), mechanism, *sizes)


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model and tokenizer, or those of the run that `config.init` names."""
    if config.init:
        return begin_from(load_run(config.init), config)
    if config.model == "pointer":
        texts = [part for example in examples for part in (example.source, example.target)]
        vocabulary = text.Vocabulary.build(texts, config.vocabulary)
        return Run(config, make_model(config, vocabulary), vocabulary)
    from .bertsum.bertsum import new_encoder, with_positions

    bert, tokenizer = pretrained.load("bert", config.encoder)
    if config.model == "transformer":  # of the BERT its words alone
        bert = new_encoder(len(tokenizer), config.max_source, config)
    return Run(
        config, make_model(config, tokenizer, with_positions(bert, config.max_source)), tokenizer
    )


def begin_from(base: Run, config: TrainConfig) -> Run:
    """A run that goes on with the weights and words of another one, with this config's mechanism.

    D12: the rates of BERTSum go on, too, with the updates behind it. D25: what the optimiser has
    summed up does not.
    ValueError: flags that do not fit the base.
    """
    for name in FIXED:
        if getattr(config, name) != (value := getattr(base.config, name)):
            raise ValueError(
                f"--{name.replace('_', '-')}: {config.init} has {value!r}, leave it out"
            )
    positions = (
        config.max_source
        if config.model == "pointer"
        else base.model.encoder.config.max_position_embeddings
    )
    if config.max_source > positions:
        raise ValueError(
            f"--max-source is {config.max_source}: the encoder of {config.init} reads {positions} "
            f"tokens"
        )
    model = make_model(config, base.tokenizer, getattr(base.model, "encoder", None))
    # coverage has a parameter that comes or goes
    model.load_state_dict(base.model.state_dict(), strict=False)
    return Run(
        config, model, base.tokenizer, base.first_step + updates_of(config.init, base.config)
    )
