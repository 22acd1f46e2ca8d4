"""Train a pointer-generator or BERTSum, then switch diminishing attention or coverage on.

python -m diminishing_attention.train --out runs/pg --preset repetition
python -m diminishing_attention.train --out runs/pg-dim --init runs/pg --diminishing dim --steps 150
python -m diminishing_attention.train --out runs/bertsum --preset bertsum-abs
"""

import argparse
import json
import math
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, make_dataclass, replace
from itertools import count
from logging import getLogger
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
import tyro
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoConfig, AutoModel, logging

from shared.data import Example, in_sentences, load

from . import bert_text, bertsum, text
from .diminishing import CONCAVE, KINDS, Diminishing
from .model import PointerGenerator, PointerGeneratorConfig
from .run import check_fields, holds_run, load_weights, one_line_errors, read_config, save_checkpoint, training

TEXT = {"pointer": text, "bertsum-ext": bert_text, "bertsum-abs": bert_text}  # model: how it reads and writes text
DECODING = ("beam", "length_penalty", "average", "trigram_blocking", "min_length", "max_length")  # fields of it


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source. Defaults: tiny pointer-generator."""

    model: Literal[tuple(TEXT)] = "pointer"  # "bertsum-ext": sentences, Eq. (6); "bertsum-abs": summaries
    init: str = ""  # run to go on from: its weights and, unless flags override them, its values
    # Data
    data: str = "toy"  # anything shared.data.load takes
    task: Literal["summary", "title"] = "summary"  # "title": document -> title, of data that has titles
    examples: int = 0  # train on the first so many; 0 = all
    validation_examples: int = 200  # of the loss in the log; 0 = all
    max_source: int = 400  # tokens; longer documents are cut (See et al.: 400; Section 4.2: 600 DimAttn, 800 DyDimAttn)
    max_target: int = 100  # tokens; longer summaries are cut in training (See et al.)
    # The mechanism
    coverage: bool = False  # coverage vector and loss, Eq. (2)-(5)
    coverage_weight: float = 1.0  # lambda of Eq. (5) (See et al.)
    diminishing: Literal[KINDS] = "none"  # "dim": Eq. (10); "dydim": Eq. (13)
    f: Literal[CONCAVE] = "log"  # of DimAttn (Section 4.2)
    f1: Literal[CONCAVE] = "sqrt"  # of DyDimAttn, weight P (Section 4.2)
    f2: Literal[CONCAVE] = "log"  # of DyDimAttn, weight 1 - P (Section 4.2)
    exponent: float = 0.6  # of the function "power" (README of the later version: 0.6)
    renormalise: bool = False  # make the diminished weights sum to 1 again
    # Pointer-generator
    vocabulary: int = 300  # words, or WordPieces of a new encoder; rarer words can only be copied
    embedding: int = 32
    hidden: int = 64
    # BERTSum
    encoder: str = ""  # BERT of transformers, name or folder (paper: bert-base-uncased); empty = a new one
    pretrained: bool = True  # False: of `encoder` the tokenizer alone, and a new BERT
    width: int = 128  # of a new encoder
    layers: int = 2  # of a new encoder
    heads: int = 4  # of a new encoder, of the decoder, and of the extractive layers
    feed_forward: int = 512  # of a new encoder, of the decoder, and of the extractive layers
    positions: int = 512  # beyond the encoder's own the last one is repeated (released PreSumm)
    decoder_layers: int = 2  # or extractive layers
    dropout: float = 0.0  # of the decoder or the extractive layers, and of a new encoder
    label_smoothing: float = 0.0  # bertsum-abs
    # Optimisation
    steps: int = 1200  # updates of this run
    batch_size: int = 16  # documents of a micro-batch of one process, at most
    batch_tokens: int = 0  # and at most so many padded target (bertsum-ext: source) tokens; 0 = any number
    accumulate: int = 1  # micro-batches per update and process
    optimizer: Literal["adam", "adagrad"] = "adam"  # D8: the small presets have Adam; See et al. Adagrad
    accumulator: float = 0.1  # initial value of Adagrad (See et al.)
    learning_rate: float = 2e-3  # of everything but BERTSum's encoder; with a warm-up it is lr~ of Eq. (8)
    warmup: int = 0  # updates; 0 = a constant rate
    encoder_learning_rate: float = 2e-3  # of BERTSum's encoder: lr~ of Eq. (7) with a warm-up
    encoder_warmup: int = 0  # updates; 0 = a constant rate
    clip: float = 2.0  # norm of the gradient of each part (See et al.); 0 = no clipping
    save_every: int = 200  # updates between checkpoints
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"  # of the forward pass
    seed: int = 0
    # Decoding defaults that evaluate.py and predict.py take from here
    beam: int = 4  # See et al.; Section 4.2: 6 with DimAttn and DyDimAttn; PreSumm 5
    length_penalty: float = 0.0  # alpha of Wu et al.; Section 4.2: 1.5; 0 = none
    average: bool = True  # maximise the mean log-probability of a token instead (See et al.)
    trigram_blocking: bool = False  # Section 4.2: true with DimAttn and DyDimAttn
    min_length: int = 0  # tokens, the end included (See et al.: 35 words)
    max_length: int = 80  # tokens, the end included (See et al.: 100)

    def check(self) -> None:
        """ValueError for a value out of range, or values that contradict each other."""
        positive = ("max_source", "max_target", "embedding", "hidden", "width", "layers", "heads", "feed_forward",
                    "positions", "decoder_layers", "steps", "batch_size", "accumulate", "save_every", "beam",
                    "max_length")  # fmt: skip
        least = dict.fromkeys(positive, 1) | {"vocabulary": len(text.SPECIAL) + 1}
        check_fields(self, least, {"dropout": 1, "label_smoothing": 1})
        if self.max_length < self.min_length:
            raise ValueError(f"--max-length is {self.max_length}; it must be at least --min-length {self.min_length}")
        if self.average and self.length_penalty:
            raise ValueError(f"--length-penalty is {self.length_penalty} and average is true: add --average False")
        if self.coverage and self.diminishing != "none":
            raise ValueError("coverage and diminishing attention are two systems of Table 1: switch one of them on")
        if self.model == "bertsum-ext" and self.diminishing != "none":
            raise ValueError("bertsum-ext has no decoder whose attention could diminish: use --model bertsum-abs")
        self.mechanism()  # its own check
        if self.model == "pointer":
            return
        if self.coverage:
            raise ValueError("coverage is of the pointer-generator: leave --coverage out, or use --model pointer")
        if self.max_source < 3 or self.max_target < 2:
            raise ValueError("BERTSum needs --max-source of at least 3 ([CLS], a word, [SEP]), --max-target at least 2")
        if self.max_source > self.positions:
            raise ValueError(f"--max-source is {self.max_source}, positions {self.positions}: raise --positions")
        if not self.encoder and self.width % self.heads:
            raise ValueError(f"--width {self.width} is not a multiple of --heads {self.heads}")

    def mechanism(self) -> Diminishing:
        """The attention of this run."""
        return Diminishing(self.diminishing, self.f, self.f1, self.f2, self.exponent)

    def part(self, kind: type, **values):
        """A model's config: the fields of the same name, the mechanism, and `values`."""
        known = {each.name: getattr(self, each.name) for each in fields(kind) if hasattr(self, each.name)}
        return kind(**known | {"diminishing": self.mechanism()} | values)


PAPER = dict(  # See et al. (2017), as in the public code that Section 4.2 names
    data="cnn_dailymail", vocabulary=50_000, embedding=128, hidden=256, max_source=400, max_target=100, steps=230_000,
    batch_size=8, optimizer="adagrad", learning_rate=0.15, accumulator=0.1, clip=2.0, save_every=5000, beam=4,
    min_length=36, max_length=100, validation_examples=1000,
)  # fmt: skip
BERTSUM = dict(  # this repository's: sizes for a small encoder on small data
    max_source=512, max_target=60, learning_rate=0.05, warmup=200, encoder_learning_rate=0.002, encoder_warmup=400,
    clip=0.0, beam=5, vocabulary=1000, dropout=0.1, label_smoothing=0.1, steps=1500,
)  # fmt: skip
PAPER_BERTSUM = dict(  # Section 2.3; Liu & Lapata (2019), whose hyper-parameters Section 4.2 keeps; released PreSumm
    model="bertsum-abs", data="cnn_dailymail", encoder="bert-base-uncased", width=768, heads=8, feed_forward=2048,
    decoder_layers=6, dropout=0.2, label_smoothing=0.1, max_source=512, max_target=140, steps=200_000,
    batch_tokens=140, batch_size=6, accumulate=20,  # PreSumm: 140 target tokens, 5 micro-batches, 4 GPUs
    learning_rate=0.1, warmup=10_000, encoder_learning_rate=2e-3, encoder_warmup=20_000, clip=0.0, beam=5,
    average=False, length_penalty=0.95, trigram_blocking=True, min_length=51, max_length=200, save_every=2000,
    validation_examples=1000,
)  # fmt: skip
PRESETS = {
    "tiny": {},
    # Stories that tell most facts again, and whose text says less about what the summary takes: what a short training
    # leaves is a model that repeats itself.
    "repetition": dict(data="toy:repetition=0.8,min_facts=3,max_facts=4,signal=0.5", steps=400),
    "paper": PAPER,
    "bertsum-ext": BERTSUM | dict(model="bertsum-ext"),
    "bertsum-abs": BERTSUM | dict(model="bertsum-abs"),
    "paper-bertsum-ext": PAPER_BERTSUM | dict(  # PreSumm: 3,000 source tokens, 2 micro-batches, 3 GPUs
        model="bertsum-ext", decoder_layers=2, dropout=0.1, steps=50_000, batch_tokens=3000, batch_size=100,
        accumulate=6, learning_rate=2e-3, encoder_warmup=10_000,
    ),
    "paper-bertsum-abs": PAPER_BERTSUM,
    # The 6-layer Transformer of Table 1, PreSumm's TransformerAbs: one rate for all of it, BERT's WordPieces.
    "paper-transformer": PAPER_BERTSUM | dict(
        pretrained=False, layers=6, dropout=0.1, learning_rate=0.05, encoder_learning_rate=0.05, warmup=8000,
        encoder_warmup=8000,
    ),
}  # fmt: skip
ENCODER = ("encoder", "pretrained", "vocabulary", "width", "layers", "positions")
KEPT = {  # what a run keeps of the one that it goes on from
    ("pointer", "pointer"): ("vocabulary", "embedding", "hidden"),
    ("bertsum-ext", "bertsum-ext"): (*ENCODER, "heads", "feed_forward", "decoder_layers"),
    ("bertsum-ext", "bertsum-abs"): ENCODER,
    ("bertsum-abs", "bertsum-abs"): (*ENCODER, "heads", "feed_forward", "decoder_layers"),
}


# Runs


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

    def encode(self, examples: Sequence[Example]) -> list:
        """Examples as token ids, cut to the run's sizes; BERTSum's documents must be in sentences."""
        labels = {"with_labels": True} if self.config.model == "bertsum-ext" else {}
        sizes = self.config.max_source, self.config.max_target
        return self.text.encode_examples(examples, self.tokenizer, *sizes, **labels)


def load_run(folder: str | Path) -> Run:
    """Read a run; the model is in eval mode on the CPU. Of a run in training, the last checkpoint, said on stderr.

    Raises:
        ValueError: not a run folder, one of another package or version, a cut-off file, NaN in the weights.
    """
    config, folder = read_config(folder, TrainConfig), Path(folder)
    tokenizer, encoder = TEXT[config.model].load(folder), None
    try:
        base = json.loads((folder / "start.json").read_text(encoding="utf-8"))["base"]
        if config.model != "pointer":
            encoder = AutoModel.from_config(AutoConfig.from_pretrained(folder / "encoder"), dtype=torch.float32)
    except Exception as error:  # transformers raises many types
        raise ValueError(f"{folder}: start.json or encoder/ is missing or cut off ({str(error)[:200]})") from None
    model = make_model(config, tokenizer, encoder)
    load_weights(model, folder)
    return Run(config, model.eval(), tokenizer, base)


def make_model(config: TrainConfig, tokenizer, encoder: nn.Module | None = None) -> nn.Module:
    """A new model of the config, on the encoder where it is BERTSum."""
    if config.model == "pointer":
        return PointerGenerator(config.part(PointerGeneratorConfig, vocabulary=len(tokenizer)))
    sizes = config.part(bertsum.BertSumConfig, layers=config.decoder_layers)
    if config.model == "bertsum-ext":
        return bertsum.BertSumExt(encoder, sizes)
    return bertsum.BertSumExtAbs(encoder, sizes, bert_text.target_ids(tokenizer))


def begin(config: TrainConfig, examples: Sequence[Example]) -> Run:
    """A new model and tokenizer, or those of the run that `config.init` names, with the mechanism switched on.

    Raises:
        ValueError: flags that do not fit the base run.
    """
    if not config.init:
        pieces = [piece for example in examples for piece in (example.source, example.target)]
        if config.model == "pointer":
            vocabulary = text.Vocabulary.build(pieces, config.vocabulary)
            return Run(config, make_model(config, vocabulary), vocabulary)
        if config.encoder:
            tokenizer = bertsum.load_pretrained("AutoTokenizer", config.encoder)
        else:
            tokenizer = bert_text.make_tokenizer(pieces, config.vocabulary, config.positions)
        if config.encoder and config.pretrained:
            encoder = bertsum.load_encoder(config.encoder)
        else:
            sizes = config.width, config.layers, config.heads, config.feed_forward, config.positions, config.dropout
            encoder = bertsum.new_encoder(len(tokenizer), *sizes)
        return Run(config, make_model(config, tokenizer, encoder), tokenizer)
    # D12: weights alone are taken over; optimiser, learning rates and their warm-up start anew.
    base = load_run(config.init)
    kept = KEPT.get((base.config.model, config.model))
    if kept is None:
        raise ValueError(f"{config.init} holds a {base.config.model}; a {config.model} cannot go on from it")
    for name in kept:
        if getattr(config, name) != (value := getattr(base.config, name)):
            raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value!r}, leave it out")
    encoder = None if config.model == "pointer" else AutoModel.from_config(base.model.encoder.config)
    model = make_model(config, base.tokenizer, encoder)
    if base.config.model != config.model:
        model.take_encoder(base.model.encoder)
    else:
        missing, unknown = model.load_state_dict(base.model.state_dict(), strict=False)
        if other := [name for name in (*missing, *unknown) if "coverage" not in name]:
            raise ValueError(f"{config.init} does not fit this run: {', '.join(other)}")
    return Run(config, model, base.tokenizer, [asdict(base.config), *base.base])


def load_task(config: TrainConfig, split: str, limit: int | None = None, data: str = "") -> list[Example]:
    """Examples of the run's task, documents in sentences; `data` in place of the run's.

    Raises:
        ValueError: the task is titles, and an example has none.
    """
    examples = in_sentences(load(data or config.data, split, limit))
    if config.task == "summary":
        return examples
    if missing := [example.id for example in examples if not (example.title or "").strip()]:
        raise ValueError(f"{data or config.data}: {missing[0]!r} has no field 'title': use --task summary")
    return [replace(e, summary=[e.title], references=[[e.title]], salient=None) for e in examples]


# Training


class LengthBatches:
    """Endless lists of item indices: the batch sampler of a `DataLoader`.

    An epoch sorts by source length, with some noise, cuts into batches of at most `batch_size` items and, where it is
    not 0, at most `batch_tokens` padded tokens, and shuffles the batches.
    """

    def __init__(self, items: Sequence, config: TrainConfig):
        counted = {"pointer": "target_out", "bertsum-ext": "source", "bertsum-abs": "target"}[config.model]
        self.size, self.tokens, self.seed = config.batch_size, config.batch_tokens, config.seed
        self.lengths = [len(getattr(item, counted)) for item in items]
        self.sources = np.array([len(item.source) for item in items])

    def __iter__(self) -> Iterator[list[int]]:
        for epoch in count():
            yield from self.epoch(epoch)

    def epoch(self, number: int) -> list[list[int]]:
        rng = np.random.default_rng((self.seed, number))
        by_length = np.argsort(self.sources * rng.uniform(0.8, 1.2, len(self.sources)), kind="stable")
        batches, longest = [[]], 0
        for i in by_length.tolist():
            longest, count_then = max(longest, self.lengths[i]), len(batches[-1]) + 1
            if count_then > self.size or (count_then > 1 and 0 < self.tokens < longest * count_then):
                batches.append([])
                longest = self.lengths[i]
            batches[-1].append(i)
        return [batches[i] for i in rng.permutation(len(batches))]


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adagrad, or Adam; a group of parameters for each learning rate."""
    encoder = {"factor": config.encoder_learning_rate, "warmup": config.encoder_warmup}  # Eq. (7)
    other = {"factor": config.learning_rate, "warmup": config.warmup}  # Eq. (8)
    groups = [{"params": list(model.parameters()), **other}]
    if config.model != "pointer":
        # D9: the two optimisers of Eq. (7)-(8) are two groups of one Adam, which updates each parameter by itself.
        groups = [{"params": part, **rate} for part, rate in zip(model.parts(), (encoder, other), strict=True)]
    if config.optimizer == "adagrad":
        return torch.optim.Adagrad(groups, lr=0.0, initial_accumulator_value=config.accumulator, eps=1e-10)
    return torch.optim.Adam(groups, lr=0.0, betas=(0.9, 0.999), eps=1e-8)  # D20: the code behind PreSumm has eps 1e-9


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`.

    Args:
        resume: go on after the last checkpoint; the result is bit for bit that of a run that was never stopped.
    Raises:
        ValueError: bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    config.check()
    getLogger("accelerate").setLevel("ERROR")  # it says at each checkpoint that a tied tensor is stored once
    out = Path(out)
    resume = holds_run(out, resume)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.accumulate,
        cpu=not torch.accelerator.is_available(),  # or several processes would each believe to be alone
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )
    examples = load_task(config, "train", config.examples or None)
    validation = load_task(config, "validation", config.validation_examples or None)
    set_seed(config.seed)
    run = load_run(out) if resume else begin(config, examples)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    items, validation = run.encode(examples), run.encode(validation)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    loader = DataLoader(
        items, batch_sampler=LengthBatches(items, config), collate_fn=run.text.collate, generator=torch.Generator()
    )
    model, optimizer, loader = accelerator.prepare(run.model, make_optimizer(run.model, config), loader)

    def write_files(folder: Path) -> None:
        run.text.save(run.tokenizer, folder)
        (folder / "start.json").write_text(json.dumps({"base": run.base}), encoding="utf-8")
        if config.model != "pointer":
            run.model.encoder.config.save_pretrained(folder / "encoder")

    counts = {"step": 0, "examples": len(items), "validation_examples": len(validation),
              "sources_cut": sum(item.was_cut for item in items)}  # fmt: skip
    progress = {"step": 0, "log": [counts]}
    with (
        training(accelerator, out, config, progress, write_files) as progress,
        tqdm(total=config.steps, initial=progress["step"], disable=not accelerator.is_main_process) as bar,
    ):
        stream = iter(accelerator.skip_first_batches(loader, progress["step"] * config.accumulate))
        for step in range(progress["step"], config.steps):
            for group in optimizer.param_groups:
                group["lr"] = bertsum.learning_rate(step, group["factor"], group["warmup"])
            model.train()
            for _ in range(config.accumulate):
                batch = next(stream)
                with accelerator.accumulate(model):
                    # Eq. (5) of each document; BERTSum: cross-entropy of each sentence or target token.
                    losses = model(batch)
                    accelerator.backward(losses.mean())  # D19: the mean over micro-batches of their means
                    if config.clip and accelerator.sync_gradients:
                        accelerator.unscale_gradients()
                        for part in run.model.parts():
                            nn.utils.clip_grad_norm_(part, config.clip)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1, "loss": losses.mean().item(), "lr": optimizer.param_groups[-1]["lr"]}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if row["step"] % config.save_every == 0 or row["step"] == config.steps:
                row["validation_loss"] = validation_loss(accelerator.unwrap_model(model), run, validation)
                progress = {"step": row["step"], "log": [*progress["log"], row]}
                save_checkpoint(accelerator, out, progress)
    if accelerator.is_main_process:
        shutil.copyfile(out / f"checkpoints/{config.steps:08d}/model.safetensors", out / "unfinished")
        os.replace(out / "unfinished", out / "model.safetensors")
        last = progress["log"][-1]
        print(f"{out}: {last['step']} steps, validation loss {last['validation_loss']:.3f}")
        print(f"next: python -m {__package__}.evaluate {out}")


@torch.inference_mode()
def validation_loss(model: nn.Module, run: Run, items: Sequence) -> float:
    """Mean loss of all documents, sentences or target tokens, in eval mode and without label smoothing."""
    model.eval()
    device, losses = next(model.parameters()).device, []
    by_length = sorted(items, key=lambda item: len(item.source))
    for first in range(0, len(items), run.config.batch_size):
        losses.append(model(run.text.collate(by_length[first : first + run.config.batch_size], device)))
    return torch.cat(losses).mean().item()


# Command line


# Same as l0drop/train.py:parse
def parse(arguments: Sequence[str] | None = None) -> tuple[TrainConfig, Path, bool]:
    """Command line -> config, run folder, resume. What is not given comes from the preset, or from the run of --init.

    Raises:
        SystemExit: a wrong flag.
        ValueError: --preset beside --init; beside --resume, a flag that contradicts the run.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--out", "--preset", "--init"):
        first.add_argument(flag, default="")
    given, _ = first.parse_known_args(arguments)
    if given.preset and given.init:
        raise ValueError("--preset and --init contradict each other: --init starts from the values of its run")
    saved = read_config(given.out, TrainConfig) if given.out and Path(given.out, "config.json").exists() else None
    default = TrainConfig(**PRESETS.get(given.preset or "tiny", {}))
    if given.init:
        default = replace(read_config(given.init, TrainConfig), init=given.init)
    elif saved and not given.preset:
        default = saved
    flags = make_dataclass("Flags", [
        ("out", Annotated[Path, tyro.conf.arg(help="run folder")]),
        ("config", tyro.conf.FlagConversionOff[tyro.conf.OmitArgPrefixes[TrainConfig]], field(default=default)),
        ("preset", Annotated[Literal[tuple(PRESETS)], tyro.conf.arg(help="named set of values")], "tiny"),
        ("resume", Annotated[bool, tyro.conf.arg(help="go on after the last checkpoint, if there is one")], False),
    ])  # fmt: skip
    options = tyro.cli(flags, prog=f"python -m {__package__}.train", description=__doc__, args=arguments,
                       config=(tyro.conf.FlagCreatePairsOff,))  # fmt: skip
    if saved and options.resume:  # more steps lengthen a run; nothing else of it may change
        changed = [name for name, value in vars(options.config).items() if value != getattr(saved, name)]
        if changed not in ([], ["steps"]) or options.config.steps < saved.steps:
            raise ValueError(f"--resume keeps the values of {given.out}/config.json; leave out {', '.join(changed)}")
    return options.config, options.out, options.resume


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    logging.set_verbosity_error()  # what an encoder lacks is checked here
    logging.disable_progress_bar()
    train(*parse(arguments))


if __name__ == "__main__":
    main()
