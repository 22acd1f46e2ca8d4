"""A run: begin a new one, from nothing, from another run or from a model of transformers; or load a folder's."""

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from .config import SIZES, TrainConfig
from .oracle import oracle_labels, token_labels
from .run import load_weights, read_config
from .tagger import WINDOW, Tagger
from .text import by_length, encode_document, train_tokenizer

if TYPE_CHECKING:  # half of the time of --help
    from transformers import BartForConditionalGeneration, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

WEIGHTS = {"summarizer": "model/model.safetensors", "tagger": "model.safetensors"}  # where transformers looks for them
PUBLISHED = {"bart-large-cnn": "cnn_dailymail", "bart-large-xsum": "xsum"}  # BARTs of the hub, and their data


class Run(NamedTuple):
    """A trained model, from a run folder or from transformers."""

    config: TrainConfig
    model: "PreTrainedModel | Tagger"
    tokenizer: "PreTrainedTokenizerBase"
    trained_on: int | None = None  # documents; None = not known

    def encode(self, examples: Sequence) -> tuple[list[dict], int]:
        """What is trained on, and how many sources were cut.

        "labels" are token ids of the summary or, of a tagger, the oracle label of each token of the source.
        """
        config, items, cut = self.config, [], 0
        for example in examples:
            source = encode_document(self.tokenizer, example.source, config.max_source)
            if config.task == "summarizer":
                labels = encode_document(self.tokenizer, example.target, config.max_target).ids
            else:
                spans = oracle_labels(example.source, example.target, config.oracle, config.min_run)
                labels = [int(label) for label in token_labels(spans, source.offsets)]
            items.append({"input_ids": source.ids, "labels": labels})
            cut += source.was_cut
        return items, cut

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights."""
        self.tokenizer.backend_tokenizer.no_truncation()  # as `encode_document` left it
        self.tokenizer.save_pretrained(folder / "tokenizer")
        self.tokenizer.save_pretrained(folder / "model")
        (self.model.encoder if self.config.task == "tagger" else self.model).config.save_pretrained(folder / "model")
        if self.config.task == "summarizer":
            self.model.generation_config.save_pretrained(folder / "model")


def write_weights(model: nn.Module, path: Path) -> None:
    """Write a file of weights under another name, then rename it."""
    unfinished = path.with_name("unfinished")
    if hasattr(model, "save_pretrained"):  # of transformers
        model.save_pretrained(unfinished)
        os.replace(unfinished / "model.safetensors", path)
        shutil.rmtree(unfinished)
    else:
        from safetensors.torch import save_model

        save_model(model, str(unfinished))
        os.replace(unfinished, path)


# From a run folder, or from transformers


def load_run(folder: str | Path, task: str = "") -> Run:
    """Read a run of a task, or of any; in eval mode on the CPU. Of a run in training, the last checkpoint.

    Raises:
        ValueError: not a run folder, one of another package, version or task, a cut-off file, NaN in the weights.
    """
    from transformers import AutoModel, AutoModelForSeq2SeqLM

    config, folder = read_config(folder, TrainConfig), Path(folder)
    if task and config.task != task:
        raise ValueError(f"{folder} holds a {config.task}; give the run of a {task}")
    sizes = load_sizes(folder / "model")
    kind = AutoModelForSeq2SeqLM if config.task == "summarizer" else AutoModel
    try:
        model = kind.from_config(sizes, dtype=torch.float32, trust_remote_code=False)
    except Exception as error:  # transformers raises many types
        raise ValueError(f"{folder}/model/config.json does not fit: {str(error)[:200]}") from None
    if config.task == "summarizer":
        model.generation_config = from_folder("GenerationConfig", folder / "model")
    else:
        model = new_tagger(config, model)
    load_weights(model, folder, WEIGHTS[config.task])
    return tried(Run(config, model.eval(), load_tokenizer(folder / "tokenizer"), examples_of(folder)), folder)


def tried(run: Run, name: str | Path) -> Run:
    """The run, after it has read a text; ValueError where a file beside its weights is damaged or does not fit them."""
    model, tokenizer = run.model, run.tokenizer
    try:
        vocabulary = tokenizer.get_vocab()
        last = max(vocabulary[word] for word in set(vocabulary) - set(tokenizer.all_special_tokens))
        size = getattr(model, "encoder", model).get_input_embeddings().num_embeddings
        if last >= size:  # the <mask> of bart-large-cnn is beyond it, and in no text
            raise ValueError(f"the tokenizer has token {last}, the model knows {size}")
        [(_, ids, keep)] = by_length([encode_document(tokenizer, "A test.", 9).ids], 1, tokenizer.pad_token_id, "cpu")
        if isinstance(model, Tagger):
            model(ids, keep)
        else:
            if not isinstance(value := model.generation_config.use_cache, bool | None):  # 0 is now true, now false
                raise ValueError(f"use_cache is {value!r}, not true or false")
            rows = model.generate(ids, attention_mask=keep.long(), do_sample=False, max_new_tokens=2)
            tokenizer.decode(rows.tolist()[0])
    except Exception as error:  # as many types as there are kinds of damage
        hint = "are its tokenizer, config.json and generation_config.json those that were written with its weights?"
        raise ValueError(f"{name} cannot be used ({str(error)[:200]}): {hint}") from None
    return run


def load_sizes(folder: str | Path) -> "PretrainedConfig":
    """The config of a model of transformers; ValueError for a number that no model can have."""
    sizes = from_folder("AutoConfig", folder)
    if wrong := [name for name, value in vars(sizes).items() if type(value) is int and value > 10**8]:
        raise ValueError(f"{folder}: config.json: {wrong[0]} is larger than that of any model: make it again")
    return sizes


def examples_of(run_folder: Path) -> int | None:
    """How many documents a run was trained on, by the first line of its log."""
    try:
        with (run_folder / "log.jsonl").open(encoding="utf-8") as file:
            count = json.loads(file.readline())["examples"]
            return count if type(count) is int else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def load_summarizer(name: str | Path) -> Run:
    """The run of a summarizer, or any encoder-decoder of transformers by its name or folder."""
    if is_run(name):
        return load_run(name, "summarizer")
    model, tokenizer = from_transformers("AutoModelForSeq2SeqLM", str(name))
    config = TrainConfig(model=str(name), data=PUBLISHED.get(name_of(name), ""))  # "": what it learned is not known
    places = getattr(model.config, "max_position_embeddings", config.max_source)  # T5 has no such number
    return tried(Run(replace(config, max_source=places), model, tokenizer), name)


def name_of(name: str | Path) -> str:
    """How a model is called in tables and files: the last part of its folder's name, of "." too, or of a hub's name."""
    return Path(os.path.abspath(name)).name


def is_run(name: str | Path) -> bool:
    """Whether this is a run folder of one of our packages; a folder of transformers has a config.json, too."""
    path = Path(name, "config.json")
    return path.is_file() and '"package"' in path.read_text(encoding="utf-8", errors="replace")


def from_folder(kind: str, name: str | Path, **options):
    """A class of transformers, loaded by its `from_pretrained`; ValueError with the remedy when it is not there."""
    import transformers

    if kind.startswith("Auto"):
        options["trust_remote_code"] = False  # or it asks, and reads the answer where the documents come from
    try:
        return getattr(transformers, kind).from_pretrained(name, **options)
    except Exception as error:  # transformers and the hub raise a dozen unrelated types
        said = ([*str(error).strip().splitlines(), type(error).__name__])[0][:150]
        remedy = "make it again" if Path(name).exists() else f"give a folder, or: HF_HUB_OFFLINE=0 hf download {name}"
        raise ValueError(f"cannot load {str(name)!r} ({said}): {remedy}") from error


def load_tokenizer(name: str | Path) -> "PreTrainedTokenizerBase":
    """The fast tokenizer of a folder or a hub name; ValueError for one that transformers makes up without its file."""
    tokenizer = from_folder("AutoTokenizer", name)
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise ValueError(f"{name}: its tokenizer has no words: tokenizer.json is missing; make it again")
    return tokenizer


def from_transformers(kind: str, name: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase]":
    """A model and its tokenizer; ValueError where transformers would fill weights at random, or they are NaN."""
    load_sizes(name)
    if Path(name, "generation_config.json").exists():
        from_folder("GenerationConfig", name)  # where it is cut off, transformers would take others in silence
    model, info = from_folder(kind, name, dtype=torch.float32, output_loading_info=True)
    wrong = sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))
    wrong = [f"{key} is missing" for key in wrong if "pooler." not in key]  # of BERT; nothing here reads it
    wrong += [f"{key} has no layer" for key in sorted(info["unexpected_keys"]) if re.search(r"layers?\.\d", key)]
    wrong += [f"{key} is NaN or infinite" for key, weight in model.named_parameters() if not weight.isfinite().all()]
    if wrong:
        raise ValueError(f"{name}: {wrong[0]}: get it again")
    return model.eval(), load_tokenizer(name)


# A new one


def begin(config: TrainConfig, examples: Sequence) -> Run:
    """A new model, or that of the run that `config.init` names; ValueError for flags that do not fit it."""
    if config.init:
        base = load_run(config.init)
        for name in SIZES.split():
            if getattr(config, name) != (value := getattr(base.config, name)):
                raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value!r}, leave it out")
        return base._replace(config=config)
    if not config.encoder and not config.model:
        tokenizer = train_tokenizer([text for e in examples for text in (e.source, e.target)], config.vocabulary)
        return Run(config, new_bart(config, len(tokenizer)), tokenizer)
    if config.encoder and is_run(config.encoder):
        _, model, tokenizer, _ = load_run(config.encoder, "summarizer")
    else:
        kind = "AutoModel" if config.encoder else "AutoModelForSeq2SeqLM"
        model, tokenizer = from_transformers(kind, config.encoder or config.model)
    longest = min(config.max_source, WINDOW) if config.encoder else max(config.max_source, config.max_target)
    if longest > (places := getattr(model.config, "max_position_embeddings", longest)):  # T5 has no such number
        raise ValueError(f"--max-source or --max-target needs {longest} positions, the model has {places}: lower it")
    run = Run(config, new_tagger(config, model) if config.encoder else model, tokenizer)
    return tried(run, config.encoder or config.model)


def new_bart(config: TrainConfig, vocabulary: int) -> "BartForConditionalGeneration":
    """A small BART with random weights, of the config's sizes."""
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = BartConfig(
        vocab_size=vocabulary, d_model=config.width, encoder_layers=config.layers, decoder_layers=config.layers,
        encoder_attention_heads=config.heads, decoder_attention_heads=config.heads,
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
    return Tagger(encoder, config.hidden, config.activation, config.tagger_dropout, config.train_encoder)
