"""Train a summariser, make its attention sparse, and teach it to choose sentences.

python -m encdec_sentence_sparse.train --task base --out runs/sparse-base
python -m encdec_sentence_sparse.train --task sparse --out runs/sparse-0.1 --init runs/sparse-base --steps 300
python -m encdec_sentence_sparse.train --task kl --out runs/sparse-kl --init runs/sparse-base --steps 500
python -m encdec_sentence_sparse.train --task integrated --out runs/sparse-apx --init runs/sparse-kl --select approx

The paper's chain: KL-only on a fine-tuned BART, then integrated with all of its values. LoBART is trained before (D24).

python -m encdec_sentence_sparse.train --preset paper --out runs/kl
python -m encdec_sentence_sparse.train --init runs/kl --task integrated --select approx --out runs/apx
"""

import argparse
import json
import logging
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
import tyro
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from filelock import FileLock
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoTokenizer, BartConfig, GenerationConfig, PreTrainedTokenizerBase
from transformers import logging as hub_logging

from shared.data import Example, in_sentences, load

from .approximator import KINDS
from .lobart import extend_positions, make_local
from .model import SentenceSparseBart, add_approximator, bart_config, freeze, load_model, take_turns
from .run import check_fields, holds_run, load_weights, one_line_errors, read_config, save_checkpoint, training
from .selection import PHASES, Selection, ideal_probability, objective
from .sentences import RULES
from .text import Batch, Batches, Item, StoredItems, collate, encode, sizes_of, tokenize, train_tokenizer


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source. Defaults: the tiny base."""

    task: Literal[PHASES] = "base"  # Section 4.3; all but base start from a trained model: --init or --model
    # Data
    data: str = "toy"  # anything shared.data.load takes
    examples: int = 0  # train on the first so many; 0 = all
    cache: str = ""  # folder that keeps tokenised data between runs, to be read as needed; none: all in memory
    max_source: int = 1024  # tokens, <s> and </s> included. D9: longer documents are cut, 4096 for LoBART
    max_target: int = 256  # tokens; longer summaries are cut (released code: 200, arXiv 400)
    sentences: Literal[RULES] = "given"  # the data's own (whole strings are split), or the paper's nltk
    # The model to start from; neither: a small new BART
    init: str = ""  # run folder: its weights and, unless flags override them, its values
    model: str = ""  # BART of transformers, name or folder (the paper's: facebook/bart-large-cnn, bart-large-xsum)
    attention_window: int = 0  # LoBART: width of local attention in the encoder, tokens; 0 = the model's own
    extend_positions: int = 0  # LoBART: length of the position table; 0 = the model's own
    # The small BART
    vocabulary: int = 1000  # subwords
    width: int = 128
    feed_forward: int = 512
    heads: int = 4
    layers: int = 2  # of the encoder, and as many of the decoder
    positions: int = 1024
    dropout: float = 0.0  # a loaded model has its own
    # Attention
    gamma: float = 0.1  # of sparse: weight of the entropy, Eq. (5); Table 2 has 0.1 and 1
    sentence_encoder: Literal[KINDS] = "gru"  # of kl: the paper's gru, or beyond it mean, attention
    temperature: float = 0.5  # of kl and integrated: of the target; A.5
    kl_scale: Literal["paper", "released"] = "paper"  # D5: released = divided by the sentences, summed over layers
    kl_weight: float = 0.2  # of integrated: lambda of Eq. (12); A.5
    select: Literal["ideal", "approx", "mix"] = "approx"  # of integrated: Int-Idl, Int-Apx or Int-Mix, Section 4.3
    r: int = 5  # of integrated: sentences that a step attends to; Section 4.4
    mix_steps: int = 0  # updates until mix is approx alone; 0 = an epoch, Section 4.3
    updates: Literal["joint", "interleaved"] = "joint"  # of integrated; D23: interleaved = decoder and theta~ in turns
    # Optimisation
    steps: int = 1500  # updates at most
    batch_size: int = 32  # documents of a micro-batch of one process
    accumulate: int = 1  # micro-batches per update and process
    learning_rate: float = 1e-3  # the highest
    warmup: int = 100  # updates, linear, then the inverse square root; A.3: 20,000 documents
    clip: float = 1.0  # norm of the gradient; 0 = off, as in the paper
    save_every: int = 100  # updates between checkpoints, each with a validation; 0 = an epoch
    patience: int = 0  # stop after so many validations without improvement, take the best; 0 = never, take the last
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"  # of the forward pass
    seed: int = 0

    def check(self) -> None:
        """ValueError for a value out of range, or values that contradict each other."""
        positive = (*SIZES[1:-1], "steps", "batch_size", "accumulate", "warmup", "r")
        least = dict.fromkeys(positive, 1) | dict.fromkeys(("max_source", "max_target"), 3)  # <s>, a token, </s>
        least |= {"vocabulary": 260, "temperature": 0.01}  # all bytes and the special tokens
        check_fields(self, least, {"dropout": 1})
        if self.task != "base" and not (self.init or self.model):
            raise ValueError(f"--task {self.task} starts from a trained model: give --init RUN or --model NAME")
        if self.task != "base" and self.extend_positions and not self.init:
            raise ValueError("--extend-positions needs training first: --task base, then --init that run")
        if self.attention_window % 2:
            raise ValueError(f"--attention-window is {self.attention_window}; it must be even")
        if self.width % self.heads:
            raise ValueError(f"--width {self.width} is not a multiple of --heads {self.heads}")
        without_effect = [name for name, tasks in EFFECT.items() if self.task not in tasks and not self.init]
        for name in [*without_effect, *(SIZES if self.model else ())]:
            if getattr(self, name) != getattr(type(self), name):
                beside = f"--model {self.model}" if name in SIZES else f"--task {self.task}"
                raise ValueError(f"--{name.replace('_', '-')} has no effect with {beside}: leave it out")


SIZES = ("vocabulary", "width", "feed_forward", "heads", "layers", "positions", "dropout")  # of the small BART
EFFECT = {  # of what only some tasks read
    "gamma": ("sparse",), "sentence_encoder": ("kl",), "temperature": ("kl", "integrated"),
    "kl_scale": ("kl", "integrated"), "kl_weight": ("integrated",), "select": ("integrated",),
    "mix_steps": ("integrated",), "updates": ("integrated",),
}  # fmt: skip
# A.5: KL-only, where the paper's chain begins; integrated training is --init of that run and reads r (r*, Section 4.4).
# A.3; steps: an epoch of A.2's documents, in which all of the paper's training converged; max_target: released code.
PAPER = dict(
    task="kl", data="cnn_dailymail", model="facebook/bart-large-cnn", sentences="nltk", max_target=200, r=5,
    batch_size=1, accumulate=2, learning_rate=0.002 * 20_000**-0.5, clip=0.0, patience=3, steps=143_556,
    warmup=10_000, save_every=10_000,  # D15: A.3's 20,000 steps are documents, two to an update
    cache="runs/tokens",
)  # fmt: skip
# D24: the fine-tuned LoBART that the KL run starts from is trained first; r 30 in training (released code: 5)
LOBART = PAPER | dict(task="base", max_source=4096, attention_window=1024, extend_positions=4096, r=30)
PRESETS = {
    "tiny": {},
    "paper": PAPER,
    "paper-sparse": PAPER | dict(task="sparse", save_every=12_500),  # released code: 25,000 documents (D15)
    "paper-xsum": PAPER | dict(data="xsum", model="facebook/bart-large-xsum", r=10, steps=102_022),
    "paper-arxiv": LOBART | dict(data="arxiv", max_target=400, steps=101_518),
    "paper-podcast": LOBART | dict(data="podcast", steps=30_207),  # data: a folder of JSONL
}


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of update `step`, from 0. A.3: factor * min(n^-0.5, n * warmup^-1.5); `config` has its maximum."""
    n = step + 1  # D15: updates, and so is `warmup` (released code: both in documents, two to an update)
    return config.learning_rate * min((config.warmup / n) ** 0.5, n / config.warmup)


def choose_selection(config: TrainConfig, step: int, mix_steps: int) -> Selection:
    """What decoder layers attend to at update `step`, in all of its micro-batches and processes."""
    if config.task != "integrated":
        return Selection("full")
    mode = config.select
    if mode == "mix":  # D17: drawn once an update, from the seed and the step (released code: once a document)
        draw = np.random.default_rng((config.seed, 1, step)).random()
        mode = "ideal" if draw < ideal_probability(step, mix_steps) else "approx"
    return Selection(mode, r=config.r)


# The data and the model


class Run(NamedTuple):
    """A run folder's contents, or a BART of transformers."""

    config: TrainConfig
    model: SentenceSparseBart
    tokenizer: PreTrainedTokenizerBase

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights."""
        self.tokenizer.save_pretrained(folder / "tokenizer")
        self.model.config.save_pretrained(folder / "model")
        self.model.generation_config.save_pretrained(folder / "model")


def load_run(folder: str | Path) -> Run:
    """Read a run, in eval mode; of one in training the last checkpoint. ValueError: no run, or a damaged one."""
    config, folder = read_config(folder, TrainConfig), Path(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder / "tokenizer"))
        model = SentenceSparseBart(BartConfig.from_pretrained(folder / "model"))
        model.generation_config = GenerationConfig.from_pretrained(folder / "model")
    except Exception as error:  # transformers raises a dozen unrelated types
        raise ValueError(f"{folder}: tokenizer/ or model/*.json is missing or cut off ({error})") from None
    load_weights(model, folder, "model/model.safetensors")
    return Run(config, model.eval(), tokenizer)


def begin(config: TrainConfig, examples: Sequence[Example]) -> Run:
    """What a new run starts from: a run (`init`), a BART (`model`) or a small new one, which the flags must fit."""
    if config.init:
        base, model, tokenizer = load_run(config.init)
        new = [name for name in ("attention_window", "extend_positions") if getattr(base, name)]
        for name in ("model", *SIZES, *new):
            if getattr(config, name) != getattr(base, name):
                flag = "--" + name.replace("_", "-")
                raise ValueError(f"{flag}: {config.init} has {getattr(base, name)!r}, leave it out")
    elif config.model:
        model, tokenizer = load_model(config.model)
    else:
        texts = [text for example in examples for text in (example.source, example.target)]
        tokenizer = train_tokenizer(texts, config.vocabulary)
        sizes = (config.width, config.feed_forward, config.heads, config.layers, config.positions)
        dropout = dict(dropout=config.dropout, attention_dropout=config.dropout)
        # BART's own init_std of 0.02 is for large widths: here attention would stay flat for long.
        model = SentenceSparseBart(bart_config(len(tokenizer), *sizes, init_std=config.width**-0.5, **dropout))
        model.generation_config.update(num_beams=4, max_length=min(128, config.positions))
    if config.attention_window and not getattr(model.config, "attention_window", None):
        make_local(model, config.attention_window)
    if config.extend_positions and config.extend_positions != model.config.max_position_embeddings:
        extend_positions(model, config.extend_positions)
    set_seed(config.seed)  # the approximator's start does not depend on how the model was read
    if config.task == "kl" and getattr(model.config, "sentence_encoder", None) != config.sentence_encoder:
        add_approximator(model, config.sentence_encoder)
    if config.task == "integrated" and model.sentence_encoder is None:
        raise ValueError("--task integrated needs an approximator: give --init a run of --task kl")
    positions = model.config.max_position_embeddings
    for flag, length in (("--max-source", config.max_source), ("--max-target", config.max_target)):
        if length > positions:
            raise ValueError(f"{flag} is {length}, the model has {positions} positions: lower it")
    return Run(config, model, tokenizer)


def encode_examples(examples: Iterable[Example], run: Run) -> Iterator[Item]:
    """Examples as token ids, cut to the run's lengths; D8: by the rule "given" a string is split, each by itself."""
    rule = run.config.sentences
    for example in in_sentences(examples) if rule == "given" else examples:
        item = encode(run.tokenizer, example.document, run.config.max_source, rule)
        target, _ = tokenize(run.tokenizer, example.target, run.config.max_target)
        yield item._replace(target=target["input_ids"])


def read_items(config: TrainConfig, run: Run, split: str, examples: Sequence[Example] = ()) -> Sequence[Item]:
    """A split as token ids; with `config.cache` from the disk, where the first run puts it. `examples`: if known."""
    limit = (config.examples or None) if split == "train" else None
    read = lambda: encode_examples(examples or load(config.data, split, limit), run)  # noqa: E731
    if not config.cache:
        return list(read())
    files = [path.stat().st_mtime_ns for path in (Path(config.data), *Path(config.data).glob("*")) if path.exists()]
    reads = [config.data, files, split, limit, config.max_source, config.max_target, config.sentences]
    key = sha256(json.dumps([*reads, run.tokenizer.backend_tokenizer.to_str()]).encode()).hexdigest()[:16]
    folder = Path(config.cache, f"{split}-{key}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):  # the first run writes, others wait
        return StoredItems(folder, lambda: tqdm(read(), f"reading {split}"))


# Training


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`.

    Args:
        resume: go on after the last checkpoint; the result is bit for bit that of a run that was never stopped.
    Raises:
        ValueError: bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    config.check()
    out = Path(out)
    resume = holds_run(out, resume)
    accelerator = make_accelerator(config)
    examples = () if resume or config.init or config.model else load(config.data, "train", config.examples or None)
    start = load_run(out) if resume else begin(config, examples)
    freeze(start.model, config.task)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    items, validation = read_items(config, start, "train", examples), read_items(config, start, "validation")
    batches = Batches(items, config.batch_size, config.seed)
    join = partial(collate, padding=start.tokenizer.pad_token_id)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=join, generator=torch.Generator())
    learning = [parameter for parameter in start.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learning, lr=0.0, betas=(0.9, 0.999), eps=1e-8)  # A.3; released code
    model, optimizer, loader = accelerator.prepare(start.model, optimizer, loader)
    epoch = -(-batches.per_epoch // (config.accumulate * accelerator.num_processes))
    save_every, mix_steps = config.save_every or epoch, config.mix_steps or epoch
    cut = int(sizes_of(items)[:, 2].sum())
    counts = {"step": 0, "examples": len(items), "validation_examples": len(validation), "sources_cut": cut}
    progress = {"step": 0, "best": None, "without_gain": 0, "log": [counts]}
    with (
        training(accelerator, out, config, progress, start.write_files) as progress,
        tqdm(total=config.steps, initial=progress["step"], disable=not accelerator.is_main_process) as bar,
    ):
        stream = iter(accelerator.skip_first_batches(loader, progress["step"] * config.accumulate))
        for step in range(progress["step"], config.steps):
            if config.patience and progress["without_gain"] >= config.patience:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            model.train()  # D14: dropout is on in frozen parts, too (released code)
            start.model.selection = choose_selection(config, step, mix_steps)
            for _ in range(config.accumulate):
                batch = next(stream)
                with accelerator.accumulate(model):
                    # D18: Eq. (5), (11) or (12), mean over the target tokens of a micro-batch.
                    losses = batch_losses(model, batch, config)
                    accelerator.backward(losses["loss"])
                    if config.updates == "interleaved":
                        take_turns(start.model, step)
                    if config.clip and accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), config.clip)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1} | {name: loss.item() for name, loss in losses.items()}
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if is_checkpoint := row["step"] % save_every == 0 or row["step"] == config.steps:
                start.model.selection = choose_selection(config, mix_steps, mix_steps)  # in the end, mix is approx
                row |= validation_losses(start.model, validation, config, join)
            if bad := [name for name, value in row.items() if not math.isfinite(value)]:
                raise ValueError(f"{bad[0]} is {row[bad[0]]} at step {row['step']}; {out} keeps its last checkpoint")
            if is_checkpoint:
                progress = checkpoint(accelerator, start.model, out, progress, row, config.patience > 0)
    if accelerator.is_main_process:
        if config.patience:
            load_weights(start.model, out, "best.safetensors")
        save_weights(start.model, out, "model/model.safetensors")
        print(f"{out}: {progress['step']} steps, best validation loss {progress['best']:.3f}")
        print(f"next: python -m {__package__}.evaluate {out}")


def make_accelerator(config: TrainConfig) -> Accelerator:
    set_seed(config.seed)
    return Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.accumulate,
        cpu=not torch.accelerator.is_available(),  # or several processes would each believe to be alone
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )


def batch_losses(model: nn.Module, batch: Batch, config: TrainConfig) -> dict[str, Tensor]:
    """The loss of a batch and its parts, see `selection.objective`."""
    record = None if config.task == "base" else []
    output = model(**batch.source(), labels=batch.labels, record=record)
    options = {name: getattr(config, name) for name in ("gamma", "kl_weight", "temperature", "kl_scale")}
    return objective(config.task, output.loss, record, batch.labels != -100, batch.exists, **options)


@torch.no_grad()
def validation_losses(
    model: SentenceSparseBart, items: Sequence[Item], config: TrainConfig, join: partial
) -> dict[str, float]:
    """Mean over target tokens of the losses, in eval mode; every process computes all of it."""
    model.eval()
    sources, targets, _ = sizes_of(items).T
    by_length, totals, tokens = sources.argsort(kind="stable"), {}, int(targets.sum())
    for start in range(0, len(items), config.batch_size):
        batch = join([items[i] for i in by_length[start : start + config.batch_size]]).to(model.device)
        for name, loss in batch_losses(model, batch, config).items():
            share = (batch.labels != -100).sum().item() / tokens
            totals[f"validation_{name}"] = totals.get(f"validation_{name}", 0.0) + loss.item() * share
    return totals


def checkpoint(
    accelerator: Accelerator, model: SentenceSparseBart, out: Path, progress: dict, row: dict, keep_best: bool
) -> dict:
    """Save a run after a validation, whose losses are in `row`, and its weights if they are the best; the progress."""
    is_better = progress["best"] is None or row["validation_loss"] < progress["best"]
    if is_better and keep_best and accelerator.is_main_process:
        save_weights(model, out, "best.safetensors")
    best, without_gain = (row["validation_loss"], 0) if is_better else (progress["best"], progress["without_gain"] + 1)
    log = [*progress["log"], row]
    progress = {"step": row["step"], "best": best, "without_gain": without_gain, "log": log}
    save_checkpoint(accelerator, out, progress)
    return progress


def save_weights(model: SentenceSparseBart, out: Path, name: str) -> None:
    """Write the weights as `out`/NAME under a temporary name and rename them; OSError where there is no room."""
    try:
        model.save_pretrained(out / "unfinished")
        os.replace(out / "unfinished" / "model.safetensors", out / name)
        shutil.rmtree(out / "unfinished")
    except Exception as error:  # safetensors raises types of its own for a full disk
        raise OSError(f"{out / name} cannot be written ({error}): make room, then --resume") from None


def quiet() -> None:
    """Switch off what transformers and accelerate report of every load and save; errors stay."""
    hub_logging.set_verbosity_error()
    hub_logging.disable_progress_bar()
    logging.getLogger("accelerate").setLevel(logging.ERROR)


# Same as head_masking/train.py:parse
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
    quiet()
    train(*parse(arguments))


if __name__ == "__main__":
    main()
