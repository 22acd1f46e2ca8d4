"""A run: begin a new one, from nothing, from another run or from a pretrained model; or load a folder's."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tokenizers import Tokenizer

from shared.run import load_weights, read_config

from .config import SIZES, TrainConfig
from .model import Transformer
from .text import Batch, Item, Items, collate, dropped_units, encode_examples, train_tokenizer

if TYPE_CHECKING:
    from .bart import GatedBart


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: "Transformer | GatedBart"
    tokenizer: Tokenizer
    dropped: set[int]  # token ids that the run's frequency pattern drops
    first_step: int  # updates behind the weights that this run started from

    def encode(self, examples: Sequence, stanza: str = "") -> Items:
        """Examples as token ids, cut to size, with the pattern's choice; `stanza` replaces the run's folder."""
        config, end = self.config, self.model.special[2]
        pattern = config.pattern, self.dropped, stanza or config.stanza
        return encode_examples(examples, self.tokenizer, config.max_source, config.max_target, *pattern, end)

    def collate(self, items: Sequence[Item]) -> Batch:
        """A batch on the model's device, with the special tokens of the model."""
        return collate(items, next(self.model.parameters()).device, *self.model.special[:2])

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights."""
        (folder / "tokenizer.json").write_text(self.tokenizer.to_str(), encoding="utf-8")
        start = {"first_step": self.first_step, "dropped": sorted(self.dropped)}
        (folder / "start.json").write_text(json.dumps(start), encoding="utf-8")
        if self.config.model:
            self.model.bart.config.save_pretrained(folder / "model")
            self.model.bart.generation_config.save_pretrained(folder / "model")


def load_run(folder: str | Path) -> Run:
    """Read a run, its model in eval mode on the CPU; of one in training the last checkpoint, said on stderr.

    Raises:
        ValueError: not a run folder, one of another package or version, a cut-off file, NaN in the weights.
    """
    config = read_config(folder, TrainConfig)
    try:
        tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        start = json.loads(Path(folder, "start.json").read_text(encoding="utf-8"))
        dropped, first_step = {int(token) for token in start["dropped"]}, int(start["first_step"])
    except Exception as error:  # tokenizers raises a bare Exception
        raise ValueError(f"{folder}: tokenizer.json or start.json is missing or cut off ({error})") from None
    model = new_model(config, tokenizer, Path(folder, "model"))
    load_weights(model, folder)
    return Run(config, model.eval(), tokenizer, dropped, first_step)


def new_model(config: TrainConfig, tokenizer: Tokenizer, pretrained=None) -> "Transformer | GatedBart":
    """The model of a config with new weights; or the pretrained one, by itself or by its configuration's folder."""
    if not config.model:
        return Transformer(config.model_config(tokenizer.get_vocab_size()))
    from .bart import GatedBart, from_config

    bart = from_config(pretrained) if isinstance(pretrained, Path) else pretrained
    return GatedBart(bart, config.l0drop != "none", config.gate_bias, config.gate_start)


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model and tokenizer, or those of the run that `config.init` names with new gates; ValueError if unfit."""
    if config.model and not config.init:
        from .bart import load_pretrained

        bart, tokenizer = load_pretrained(config.model, config.max_source)
        dropped = dropped_units(examples, tokenizer, config.pattern)
        return Run(config, new_model(config, tokenizer, bart), tokenizer, dropped, 0)
    if not config.init:
        texts = (text for example in examples for text in (example.source, example.target))
        tokenizer = train_tokenizer(texts, config.units, config.vocabulary)
        dropped = dropped_units(examples, tokenizer, config.pattern)
        return Run(config, new_model(config, tokenizer), tokenizer, dropped, 0)
    base = load_run(config.init)
    for name in ("model", *SIZES):
        if getattr(config, name) != (value := getattr(base.config, name)):
            raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value}, leave it out")
    model = new_model(config, base.tokenizer, Path(config.init, "model"))
    missing, unexpected = model.load_state_dict(base.model.state_dict(), strict=False)
    other = [name for name in missing if not name.startswith("l0drop.")] + unexpected
    if other:
        raise ValueError(f"{config.init} does not fit --l0drop {config.l0drop}: it has no place for {', '.join(other)}")
    dropped = dropped_units(examples, base.tokenizer, config.pattern)
    return Run(config, model, base.tokenizer, dropped, base.first_step + base.config.steps)
