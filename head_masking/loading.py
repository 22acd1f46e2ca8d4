"""A run: begin a new one, from nothing, from another run or from a model of transformers; or load a folder's."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from tqdm import tqdm

from shared.run import load_weights, read_config

from .config import FIXED, HEADS, LAYERS, TrainConfig
from .oracle import oracle_labels, token_labels
from .tagger import WINDOW, Tagger
from .text import Items, encode_documents, train_tokenizer

if TYPE_CHECKING:  # half of the time of --help
    from transformers import BartForConditionalGeneration, PreTrainedModel, PreTrainedTokenizerBase

WEIGHTS = {"summarizer": "model/model.safetensors", "tagger": "model.safetensors"}  # where transformers looks for them
PUBLISHED = {"bart-large-cnn": "cnn_dailymail", "bart-large-xsum": "xsum"}  # BARTs of the hub, and their data


class Run(NamedTuple):
    """A trained model, from a run folder or from transformers."""

    config: TrainConfig
    model: "PreTrainedModel | Tagger"
    tokenizer: "PreTrainedTokenizerBase"

    def encode(self, examples: Sequence) -> tuple[Items, int]:
        """What is trained on, and how many sources were cut.

        "labels" are token ids of the summary or, of a tagger, the oracle label of each token of the source.
        """
        config, items, cut = self.config, Items(), 0
        for start in tqdm(range(0, len(examples), 1000), "tokenising", disable=None):
            part = examples[start : start + 1000]
            sources = encode_documents(self.tokenizer, [example.source for example in part], config.max_source)
            targets = encode_documents(self.tokenizer, [example.target for example in part], config.max_target)
            for example, source, target in zip(part, sources, targets, strict=True):
                labels = target.ids
                if config.task == "tagger":
                    spans = oracle_labels(example.source, example.target, config.min_run)
                    labels = [int(label) for label in token_labels(spans, source.offsets)]
                items.append(source.ids, labels)
                cut += source.was_cut
        return items, cut

    def write_files(self, folder: Path) -> None:
        """Write model/, which `load_run` reads; a summariser's loads in transformers, too, once it has its weights."""
        self.tokenizer.backend_tokenizer.no_truncation()  # as `encode_documents` left it
        self.tokenizer.save_pretrained(folder / "model")
        (self.model.encoder if self.config.task == "tagger" else self.model).config.save_pretrained(folder / "model")
        if self.config.task == "summarizer":
            self.model.generation_config.save_pretrained(folder / "model")


# From a run folder, or from transformers


def load_run(folder: str | Path, task: str = "") -> Run:
    """Read a run of a task, or of any; in eval mode on the CPU. Of a run in training, the last checkpoint.

    Raises:
        ValueError: not a run folder, one of another package, version or task, a cut-off file, NaN in the weights.
    """
    from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

    config, files = read_config(folder, TrainConfig), Path(folder, "model")
    if task and config.task != task:
        raise ValueError(f"{folder} holds a {config.task}; give the run of a {task}")
    sizes = AutoConfig.from_pretrained(files, trust_remote_code=False)
    if config.task == "summarizer":
        model = AutoModelForSeq2SeqLM.from_config(sizes, dtype=torch.float32, trust_remote_code=False)
        model.generation_config = GenerationConfig.from_pretrained(files)
    else:
        encoder = AutoModel.from_config(sizes, dtype=torch.float32, trust_remote_code=False)
        model = new_tagger(config, encoder)
    load_weights(model, folder, WEIGHTS[config.task])
    return Run(config, model.eval(), AutoTokenizer.from_pretrained(files, trust_remote_code=False))


def load_pretrained(kind: str, name: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """A model of transformers, by its Auto class and its name or folder, and its tokenizer.

    ValueError: it is not there; weights that transformers would fill at random, or that are NaN; no tokenizer.
    """
    import transformers

    try:
        model, info = getattr(transformers, kind).from_pretrained(
            name, dtype=torch.float32, output_loading_info=True, trust_remote_code=False
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:  # transformers and the hub raise a dozen unrelated types
        remedy = "make it again" if Path(name).exists() else f"give a folder, or: HF_HUB_OFFLINE=0 hf download {name}"
        raise ValueError(f"cannot load {name!r} ({' '.join(str(error).split())[:150]}): {remedy}") from error
    missing = [str(key) for key in (*info["missing_keys"], *info["mismatched_keys"]) if "pooler." not in str(key)]
    wrong = [key for key, weight in model.named_parameters() if not weight.isfinite().all()]
    if missing or wrong:
        raise ValueError(f"{name}: {(missing + wrong)[0]} is missing, NaN or infinite: get it again")
    if len(tokenizer) <= len(tokenizer.all_special_tokens):  # transformers makes one up where its file is missing
        raise ValueError(f"{name}: its tokenizer has no words: tokenizer.json is missing; get it again")
    return model.eval(), tokenizer


def load_summarizer(name: str | Path) -> Run:
    """The run of a summarizer, or any encoder-decoder of transformers by its name or folder."""
    if is_run(name):
        return load_run(name, "summarizer")
    model, tokenizer = load_pretrained("AutoModelForSeq2SeqLM", str(name))
    config = TrainConfig(model=str(name), data=PUBLISHED.get(name_of(name), ""))  # "": what it learned is not known
    return Run(replace(config, max_source=positions_of(model)), model, tokenizer)


def name_of(name: str | Path) -> str:
    """How a model is called in tables and files: the last part of its folder's name, of "." too, or of a hub's name."""
    return Path(os.path.abspath(name)).name


def is_run(name: str | Path) -> bool:
    """Whether this is a run folder of one of our packages; a folder of transformers has a config.json, too."""
    path = Path(name, "config.json")
    return path.is_file() and '"package"' in path.read_text(encoding="utf-8", errors="replace")


def positions_of(model: "PreTrainedModel") -> int:
    """How many tokens a model can read; T5 does not say."""
    return getattr(model.config, "max_position_embeddings", 10**6)


# A new one


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model, or that of the run that `config.init` names; ValueError for flags that do not fit it."""
    if config.init:
        base = load_run(config.init)
        for name in FIXED.split():
            if getattr(config, name) != (value := getattr(base.config, name)):
                raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value!r}, leave it out")
        return base._replace(config=config)
    if not config.encoder and not config.model:
        tokenizer = train_tokenizer((text for e in examples for text in (e.source, e.target)), config.vocabulary)
        return Run(config, new_bart(config, len(tokenizer)), tokenizer)
    if config.encoder and is_run(config.encoder):
        _, model, tokenizer = load_run(config.encoder, "summarizer")
    else:
        kind = "AutoModel" if config.encoder else "AutoModelForSeq2SeqLM"
        model, tokenizer = load_pretrained(kind, config.encoder or config.model)
    longest = min(config.max_source, WINDOW) if config.encoder else max(config.max_source, config.max_target)
    if longest > (places := positions_of(model)):
        raise ValueError(f"--max-source or --max-target needs {longest} positions, the model has {places}: lower it")
    return Run(config, new_tagger(config, model) if config.encoder else model, tokenizer)


def new_bart(config: TrainConfig, vocabulary: int) -> "BartForConditionalGeneration":
    """A small BART with random weights, of the config's sizes."""
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = BartConfig(
        vocab_size=vocabulary, d_model=config.width, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS,
        encoder_ffn_dim=config.feed_forward, decoder_ffn_dim=config.feed_forward,
        max_position_embeddings=config.positions, dropout=config.dropout, attention_dropout=config.dropout,
        init_std=config.width**-0.5,  # BART's own 0.02 is for large widths: here attention would stay flat for long
    )  # fmt: skip
    model = BartForConditionalGeneration(sizes)
    model.generation_config.update(num_beams=5, max_length=min(config.max_target, config.positions))
    return model


def new_tagger(config: TrainConfig, model: "PreTrainedModel") -> Tagger:
    """A new perceptron on a model, or on its encoder."""
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    encoder.pooler = None
    return Tagger(encoder, activation=config.activation, train_encoder=config.train_encoder)
