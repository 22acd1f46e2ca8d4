"""A run: begin a new one, from nothing or from another run; or load a folder's."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from torch import nn

from shared.run import load_weights, read_config

from . import text
from .bertsum import bert_text
from .bertsum.bertsum import BertSumConfig, BertSumExtAbs
from .bertsum.encoder import load_encoder, new_bert, new_encoder
from .config import TrainConfig
from .model import PointerGenerator, PointerGeneratorConfig
from .text import Items

TEXT = {"pointer": text, "bertsum-abs": bert_text}  # model: how it reads and writes text
ENCODER = ("model", "encoder", "pretrained", "vocabulary", "width", "layers")
SIZES = ("embedding", "hidden", "heads", "feed_forward", "decoder_layers")
POSITIONS = 512  # of an encoder at least (BERT)


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: PointerGenerator | BertSumExtAbs
    tokenizer: object  # text.Vocabulary, or BERTSum's tokenizer of transformers

    @property
    def text(self):
        """The module that reads and writes the model's text."""
        return TEXT[self.config.model]

    def encode(self, examples: Sequence) -> Items:
        """Examples as token ids, cut to the run's sizes; BERTSum's documents must be in sentences."""
        return self.text.encode_examples(examples, self.tokenizer, self.config.max_source, self.config.max_target)

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights."""
        self.text.save(self.tokenizer, folder)
        if self.config.model != "pointer":
            self.model.encoder.config.save_pretrained(folder / "encoder")


def load_run(folder: str | Path) -> Run:
    """Read a run; the model is in eval mode on the CPU. Of a run in training, the last checkpoint, said on stderr.

    ValueError: not a run folder, one of another package or version, a cut-off file, NaN in the weights.
    """
    config, folder = read_config(folder, TrainConfig), Path(folder)
    tokenizer, bert = TEXT[config.model].load(folder), None
    if config.model != "pointer":
        bert = new_bert(bert_text.load_pretrained("AutoConfig", str(folder / "encoder")))
    model = make_model(config, tokenizer, bert)
    load_weights(model, folder)
    return Run(config, model.eval(), tokenizer)


def make_model(config: TrainConfig, tokenizer, bert: nn.Module | None = None) -> nn.Module:
    """A new model of the config, on the encoder where it is BERTSum."""
    mechanism = config.mechanism()
    if config.model == "pointer":
        sizes = dict(vocabulary=len(tokenizer), embedding=config.embedding, hidden=config.hidden)
        options = dict(coverage=config.coverage, renormalise=config.renormalise, plain_copy=config.plain_copy)
        return PointerGenerator(PointerGeneratorConfig(**sizes, **options, diminishing=mechanism))
    sizes = dict(layers=config.decoder_layers, heads=config.heads, feed_forward=config.feed_forward)
    rates = dict(dropout=config.dropout, label_smoothing=config.label_smoothing)
    return BertSumExtAbs(bert, BertSumConfig(**sizes, **rates, diminishing=mechanism), bert_text.target_ids(tokenizer))


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model and tokenizer, or those of the run that `config.init` names."""
    if config.init:
        return go_on(config)
    texts = [part for example in examples for part in (example.source, example.target)]
    if config.model == "pointer":
        vocabulary = text.Vocabulary.build(texts, config.vocabulary)
        return Run(config, make_model(config, vocabulary), vocabulary)
    positions = max(POSITIONS, config.max_source)
    if config.encoder:
        tokenizer = bert_text.load_pretrained("AutoTokenizer", config.encoder)
    else:
        tokenizer = bert_text.make_tokenizer(texts, config.vocabulary, positions)
    if config.encoder and config.pretrained:
        bert = load_encoder(config.encoder, positions)
    else:
        bert = new_encoder(len(tokenizer), positions, config)
    return Run(config, make_model(config, tokenizer, bert), tokenizer)


def go_on(config: TrainConfig) -> Run:
    """The weights and words of the run that `config.init` names, with this config's mechanism.

    D12: weights alone are taken over; optimiser, learning rates and their warm-up start anew. ValueError: flags that
    do not fit the base run.
    """
    base = load_run(config.init)
    for name in ENCODER + SIZES:
        if getattr(config, name) != (value := getattr(base.config, name)):
            raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value!r}, leave it out")
    positions = config.max_source if config.model == "pointer" else base.model.encoder.config.max_position_embeddings
    if config.max_source > positions:
        raise ValueError(f"--max-source is {config.max_source}: the encoder of {config.init} reads {positions} tokens")
    model = make_model(config, base.tokenizer, base.model.encoder)  # a BERTSum goes on with this encoder
    model.load_state_dict(base.model.state_dict(), strict=False)  # coverage has a parameter that comes or goes
    return Run(config, model, base.tokenizer)


def for_task(examples: Iterable, task: str) -> list:
    """Examples in sentences, as the task wants them: of "title" the title is the summary. ValueError: no title."""
    examples = list(examples)
    if task == "summary":
        return examples
    if missing := [example.id for example in examples if not (example.title or "").strip()]:
        raise ValueError(f"the data's {missing[0]!r} has no field 'title': use --task summary")
    return [replace(e, summary=[e.title], references=[[e.title]], salient=None) for e in examples]
