"""A run: begin a new one, from nothing or from another run; or load a folder's."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from . import text
from .bertsum import bert_text, bertsum
from .bertsum.encoder import load_encoder, new_bert, new_encoder
from .config import TrainConfig
from .model import PointerGenerator, PointerGeneratorConfig
from .run import load_weights, read_config

TEXT = {"pointer": text, "bertsum-ext": bert_text, "bertsum-abs": bert_text}  # model: how it reads and writes text
ENCODER = ("encoder", "pretrained", "vocabulary", "width", "layers", "positions")
SIZES = ("embedding", "hidden", "heads", "feed_forward", "decoder_layers")  # of the rest


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: PointerGenerator | bertsum.BertSumExt | bertsum.BertSumExtAbs
    tokenizer: object  # text.Vocabulary, or BERTSum's tokenizer of transformers
    base: list[dict] = []  # the configs of the runs that it goes on from, the last one first

    @property
    def text(self):
        """The module that reads and writes the model's text."""
        return TEXT[self.config.model]

    def encode(self, examples: Sequence) -> list:
        """Examples as token ids, cut to the run's sizes; BERTSum's documents must be in sentences."""
        labels = {"with_labels": True} if self.config.model == "bertsum-ext" else {}
        sizes = self.config.max_source, self.config.max_target
        return self.text.encode_examples(examples, self.tokenizer, *sizes, **labels)

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights."""
        self.text.save(self.tokenizer, folder)
        (folder / "start.json").write_text(json.dumps({"base": self.base}), encoding="utf-8")
        if self.config.model != "pointer":
            self.model.encoder.config.save_pretrained(folder / "encoder")


def load_run(folder: str | Path) -> Run:
    """Read a run; the model is in eval mode on the CPU. Of a run in training, the last checkpoint, said on stderr.

    Raises:
        ValueError: not a run folder, one of another package or version, a cut-off file, NaN in the weights.
    """
    config, folder = read_config(folder, TrainConfig), Path(folder)
    tokenizer = TEXT[config.model].load(folder)
    try:
        base = [dict(values) for values in json.loads((folder / "start.json").read_text(encoding="utf-8"))["base"]]
        is_bert = config.model != "pointer"
        bert = new_bert(bert_text.load_pretrained("AutoConfig", str(folder / "encoder"))) if is_bert else None
        if is_bert:
            bert(torch.zeros(1, 1, dtype=torch.long))  # sizes that do not fit would fail in the work
    except Exception as error:  # transformers raises many types
        raise ValueError(f"{folder}: start.json or encoder/ is missing or cut off ({str(error)[:200]})") from None
    model = make_model(config, tokenizer, bert)
    load_weights(model, folder)
    return Run(config, model.eval(), tokenizer, base)


def make_model(config: TrainConfig, tokenizer, bert: nn.Module | None = None) -> nn.Module:
    """A new model of the config, on the encoder where it is BERTSum."""
    kind = PointerGeneratorConfig if config.model == "pointer" else bertsum.BertSumConfig
    values = {field.name: getattr(config, field.name) for field in fields(kind) if hasattr(config, field.name)}
    values["diminishing"] = config.mechanism()
    if config.model == "pointer":
        return PointerGenerator(PointerGeneratorConfig(**values | {"vocabulary": len(tokenizer)}))
    sizes = bertsum.BertSumConfig(**values | {"layers": config.decoder_layers})
    if config.model == "bertsum-ext":
        return bertsum.BertSumExt(bert, sizes)
    return bertsum.BertSumExtAbs(bert, sizes, bert_text.target_ids(tokenizer))


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model and tokenizer, or those of the run that `config.init` names."""
    if config.init:
        return go_on(config)
    texts = [part for example in examples for part in (example.source, example.target)]
    if config.model == "pointer":
        vocabulary = text.Vocabulary.build(texts, config.vocabulary)
        return Run(config, make_model(config, vocabulary), vocabulary)
    if config.encoder:
        tokenizer = bert_text.load_pretrained("AutoTokenizer", config.encoder)
    else:
        tokenizer = bert_text.make_tokenizer(texts, config.vocabulary, config.positions)
    if config.encoder and config.pretrained:
        bert = load_encoder(config.encoder, config.positions)
    else:
        bert = new_encoder(len(tokenizer), config)
    return Run(config, make_model(config, tokenizer, bert), tokenizer)


def go_on(config: TrainConfig) -> Run:
    """The weights and words of the run that `config.init` names, with this config's mechanism.

    D12: weights alone are taken over; optimiser, learning rates and their warm-up start anew. ValueError: flags that
    do not fit the base run.
    """
    base = load_run(config.init)
    is_same = base.config.model == config.model
    if not is_same and (base.config.model, config.model) != ("bertsum-ext", "bertsum-abs"):
        raise ValueError(f"{config.init} holds a {base.config.model}; a {config.model} cannot go on from it")
    for name in ENCODER + SIZES * is_same:
        if getattr(config, name) != (value := getattr(base.config, name)):
            raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value!r}, leave it out")
    model = make_model(config, base.tokenizer, base.model.encoder)  # a BERTSum goes on with this encoder
    if is_same:
        model.load_state_dict(base.model.state_dict(), strict=False)  # coverage has a parameter that comes or goes
    return Run(config, model, base.tokenizer, [asdict(base.config), *base.base])


def for_task(examples: Iterable, task: str) -> list:
    """Examples in sentences, as the task wants them: of "title" the title is the summary. ValueError: no title."""
    examples = list(examples)
    if task == "summary":
        return examples
    if missing := [example.id for example in examples if not (example.title or "").strip()]:
        raise ValueError(f"the data's {missing[0]!r} has no field 'title': use --task summary")
    return [replace(e, summary=[e.title], references=[[e.title]], salient=None) for e in examples]
