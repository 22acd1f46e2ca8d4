"""Train a summariser to be masked, or a tagger that says what to mask.

python -m head_masking.train --out runs/hm-base
python -m head_masking.train --preset tagger --out runs/hm-tagger --encoder runs/hm-base

The run folder holds config.json, log.jsonl, checkpoints/, tokenizer/, and model/: of a summariser a folder that
transformers loads, of a tagger its encoder's config; a tagger's own weights, encoder included, are model.safetensors.
"""

import argparse
import logging
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import torch
import transformers
import tyro
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    GenerationConfig,
)

from shared.data import Example, load, read_jsonl

from .loading import Run, from_folder, from_transformers, is_run, new_bart, new_tagger, write_weights
from .model import WINDOW, forward, objective, validate
from .run import check_fields, holds_run, load_weights, one_line_errors, read_config, save_checkpoint, training
from .text import LengthBatches, encode_examples, train_tokenizer


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source. Defaults are the tiny preset."""

    task: Literal["summarizer", "tagger"] = "summarizer"  # what is trained
    # Data
    data: str = "toy"  # anything shared.data.load takes
    examples: int = 0  # train on the first so many; 0 = all (Figure 5 and Table 3 vary it)
    max_source: int = 1024  # tokens, special ones included; longer documents are cut (released code: 1023 and EOS)
    max_target: int = 256  # tokens; longer summaries are cut
    init: str = ""  # run folder to go on from: its weights and, unless flags override them, its values
    # The summarizer: a small BART of these sizes, or one of transformers
    model: str = ""  # name or folder of transformers, or empty; the paper's: facebook/bart-large
    vocabulary: int = 1000  # subwords of the small BART
    width: int = 128  # of its states
    feed_forward: int = 512  # inner width of its feed-forward layers
    heads: int = 4  # of each attention
    layers: int = 2  # of the encoder, and as many of the decoder
    positions: int = 1024  # longest source or summary, in tokens
    dropout: float = 0.0  # of the small BART; a loaded model has its own
    label_smoothing: float = 0.0  # fairseq's instructions for BART: 0.1
    # The tagger
    encoder: str = ""  # a run, or a name or folder of transformers; of an encoder-decoder its encoder is used
    train_encoder: bool = False  # train the encoder, too; Appendix A: it is fixed
    hidden: int = 512  # width between the two layers (released code)
    activation: Literal["tanh", "relu"] = "tanh"  # between the two layers: Section 5; released code: "relu"
    tagger_dropout: float = 0.1  # on the encoder's states (released code)
    oracle: Literal["runs", "newsroom", "lcs"] = "runs"  # how training labels are made: "runs" as in Section 4.1
    min_run: int = 1  # words; shorter runs are not labelled
    # Optimisation
    steps: int = 1500  # updates at most
    batch_size: int = 32  # documents of a micro-batch of one process
    accumulate: int = 1  # micro-batches per update and process
    learning_rate: float = 1e-3  # the highest (Appendix A: 5e-4 for the tagger)
    schedule: Literal["inverse_sqrt", "polynomial", "constant"] = "inverse_sqrt"  # released: "polynomial", linear to 0
    warmup: int = 100  # updates
    weight_decay: float = 0.0  # of AdamW (released code: 0.01)
    clip: float = 1.0  # norm of the gradient; 0 = off
    save_every: int = 100  # updates between checkpoints, each with a validation; 0 = an epoch
    patience: int = 0  # stop after so many validations without improvement, take the best; 0 = never, take the last
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"  # of the forward pass
    seed: int = 0  # of weights, order and dropout

    def check(self) -> None:
        """ValueError for a value out of range, or values that contradict each other."""
        positive = "width feed_forward heads layers positions hidden min_run steps batch_size accumulate warmup".split()
        least = dict.fromkeys(positive, 1) | {"max_source": 3, "max_target": 3, "vocabulary": 260}  # <s>, a token, </s>
        shares = ("dropout", "tagger_dropout", "label_smoothing", "learning_rate")
        check_fields(self, least, dict.fromkeys(shares, 1))
        if self.task == "tagger" and not (self.encoder or self.init):
            raise ValueError("a tagger needs --encoder: the run of a summarizer, or a name or folder of transformers")
        other = "model" if self.task == "tagger" else "encoder"
        if getattr(self, other):
            raise ValueError(f"--{other} has no meaning for --task {self.task}: leave it out")
        if not self.model and self.task == "summarizer" and max(self.max_source, self.max_target) > self.positions:
            raise ValueError(f"--max-source and --max-target must not exceed --positions, which is {self.positions}")
        if self.width % self.heads:
            raise ValueError(f"--width {self.width} is not a multiple of --heads {self.heads}")


SUMMARIZER = dict(
    data="cnn_dailymail", model="facebook/bart-large", save_every=0, patience=2,  # Appendix A: 2 epochs without gain
    # Appendix A: fairseq's instructions for BART; its 4 x 8 batches of 2,048 tokens are 64 documents of 1,024
    max_source=1024, max_target=1024, label_smoothing=0.1, steps=20_000, batch_size=2, accumulate=32,
    learning_rate=3e-5, schedule="polynomial", warmup=500, weight_decay=0.01, clip=0.1, mixed_precision="fp16",
)  # fmt: skip
TAGGER = dict(
    task="tagger", data="cnn_dailymail", encoder="roberta-base",  # Section 5; the size: released code
    learning_rate=5e-4, batch_size=32, accumulate=4, save_every=0, patience=2,  # Appendix A: 128, 2 epochs without gain
    steps=12_000, schedule="polynomial", warmup=500, weight_decay=0.01, clip=0.1, mixed_precision="fp16",  # released
)  # fmt: skip
PRESETS = {
    "tiny": {},
    "tagger": dict(task="tagger", steps=1000, learning_rate=5e-4, schedule="constant", save_every=0, patience=2),
    "paper": SUMMARIZER,
    "paper-nyt": SUMMARIZER | dict(data="nyt", steps=30_000),  # Appendix A; data: a folder of JSONL
    "paper-xsum": SUMMARIZER | dict(data="xsum", steps=15_000, accumulate=16),
    "paper-tagger": TAGGER,
    "paper-tagger-nyt": TAGGER | dict(data="nyt"),
    "paper-tagger-xsum": TAGGER | dict(data="xsum"),
}


PUBLISHED = {"bart-large-cnn": "cnn_dailymail", "bart-large-xsum": "xsum"}  # BARTs of the hub, and their data
OF_THE_MODEL = "task model encoder vocabulary width feed_forward heads layers positions hidden activation train_encoder"
BEST = "best.safetensors"  # of a run that may stop early
WEIGHTS = {"summarizer": "model/model.safetensors", "tagger": "model.safetensors"}  # where transformers looks for them


def load_run(folder: str | Path, task: str = "") -> Run:
    """Read a run of a task, or of any; in eval mode on the CPU. Of a run in training, the last checkpoint.

    Raises:
        ValueError: not a run folder, one of another package, version or task, a cut-off file, NaN in the weights.
    """
    config, folder = read_config(folder, TrainConfig), Path(folder)
    if task and config.task != task:
        raise ValueError(f"{folder} holds a {config.task}; give the run of a {task}")
    sizes = from_folder(AutoConfig, folder / "model")
    if config.task == "summarizer":
        model = AutoModelForSeq2SeqLM.from_config(sizes, dtype=torch.float32)
        model.generation_config = from_folder(GenerationConfig, folder / "model")
    else:
        model = new_tagger(config, AutoModel.from_config(sizes, dtype=torch.float32))
    load_weights(model, folder, WEIGHTS[config.task])
    tokenizer, log = from_folder(AutoTokenizer, folder / "tokenizer"), read_jsonl(folder / "log.jsonl")
    return Run(config, model.eval(), tokenizer, log[0].get("examples") if log else None)


def load_summarizer(name: str | Path) -> Run:
    """The run of a summarizer, or any encoder-decoder of transformers by its name or folder."""
    if is_run(name):
        return load_run(name, "summarizer")
    model, tokenizer = from_transformers(AutoModelForSeq2SeqLM, str(name))
    config = TrainConfig(model=str(name), data=PUBLISHED.get(Path(name).name, ""))  # "": what it learned is not known
    return Run(replace(config, max_source=model.config.max_position_embeddings), model, tokenizer)


def begin(config: TrainConfig, examples: Sequence[Example]) -> Run:
    """A new model, or that of the run that `config.init` names; ValueError for flags that do not fit it."""
    if config.init:
        base = load_run(config.init)
        for name in OF_THE_MODEL.split():
            if getattr(config, name) != (value := getattr(base.config, name)):
                raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value!r}, leave it out")
        return base._replace(config=config)
    if not config.encoder and not config.model:
        tokenizer = train_tokenizer([text for e in examples for text in (e.source, e.target)], config.vocabulary)
        return Run(config, new_bart(config, len(tokenizer)), tokenizer)
    if config.encoder and is_run(config.encoder):
        _, model, tokenizer, _ = load_run(config.encoder, "summarizer")
    else:
        kind = AutoModel if config.encoder else AutoModelForSeq2SeqLM
        model, tokenizer = from_transformers(kind, config.encoder or config.model)
    longest = min(config.max_source, WINDOW) if config.encoder else max(config.max_source, config.max_target)
    if longest > (places := getattr(model.config, "max_position_embeddings", longest)):  # T5 has no such number
        raise ValueError(f"--max-source or --max-target needs {longest} positions, the model has {places}: lower it")
    return Run(config, new_tagger(config, model) if config.encoder else model, tokenizer)


# Training


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of update `step` (from 0): linear warm-up, then the schedule."""
    number, peak = step + 1, config.learning_rate
    if number < config.warmup:
        return peak * number / config.warmup
    match config.schedule:
        case "inverse_sqrt":
            return peak * (config.warmup / number) ** 0.5
        case "polynomial":
            return peak * (config.steps - step) / max(config.steps - config.warmup + 1, 1)
        case "constant":
            return peak


def without_gain(log: Sequence[dict]) -> int:
    """How many validations there were after the best one; Appendix A stops by it."""
    losses = [row["validation_loss"] for row in log if "validation_loss" in row]
    return len(losses) - 1 - losses.index(min(losses)) if losses else 0


def new_accelerator(config: TrainConfig) -> Accelerator:
    return Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.accumulate,
        cpu=not torch.accelerator.is_available(),  # or several processes would each believe to be alone
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`.

    Args:
        resume: go on after the last checkpoint; the result is bit for bit that of a run that was never stopped.
    Raises:
        ValueError: bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    config.check()
    out, accelerator = Path(out), new_accelerator(config)
    resume = holds_run(out, resume)
    set_seed(config.seed)
    examples, checked = load(config.data, "train", config.examples or None), load(config.data, "validation")
    start = load_run(out)._replace(config=config) if resume else begin(config, examples)
    (items, cut), (validation, _) = (encode_examples(start.tokenizer, part, config) for part in (examples, checked))
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    batches, to_batch = LengthBatches(items, config.batch_size, config.seed), DataCollatorForSeq2Seq(start.tokenizer)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=to_batch, generator=torch.Generator())
    trained = [parameter for parameter in start.model.parameters() if parameter.requires_grad]
    # Released code: Adam with betas (0.9, 0.999), eps 1e-8.
    optimizer = torch.optim.AdamW(trained, lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=config.weight_decay)
    model, optimizer, loader = accelerator.prepare(start.model, optimizer, loader)
    epoch = -(-len(items) // (config.batch_size * config.accumulate * accelerator.num_processes))  # updates
    counts = {"step": 0, "examples": len(items), "sources_cut": cut}
    with (
        training(accelerator, out, config, {"step": 0, "log": [counts]}, start.write_files) as progress,
        tqdm(total=config.steps, initial=progress["step"], disable=not accelerator.is_main_process) as bar,
    ):
        stream = iter(accelerator.skip_first_batches(loader, progress["step"] * config.accumulate))
        for step in range(progress["step"], config.steps):
            if config.patience and without_gain(progress["log"]) >= config.patience:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            model.train()
            for _ in range(config.accumulate):
                batch = next(stream)
                with accelerator.accumulate(model):
                    logits = forward(model, batch, config.task)
                    loss = objective(logits, batch, config.task, config.label_smoothing)  # Section 5, Appendix A
                    accelerator.backward(loss)
                    if config.clip and accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(trained, config.clip)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item(), "lr": learning_rate(step, config)}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if row["step"] % (config.save_every or epoch) == 0 or row["step"] == config.steps:
                row |= validate(start.model, validation, config.task, config.batch_size, to_batch)
                progress = {"step": row["step"], "log": [*progress["log"], row]}
                if config.patience and not without_gain(progress["log"]) and accelerator.is_main_process:
                    write_weights(start.model, out / BEST)
                save_checkpoint(accelerator, out, progress)
    if accelerator.is_main_process:
        finish(start, out, progress["log"][-1])


def finish(run: Run, out: Path, last: dict) -> None:
    """Put the last weights where they belong or, with early stopping, the best; say what to do next."""
    if not run.config.patience:
        write_weights(run.model, out / WEIGHTS[run.config.task])
    elif (out / BEST).exists():  # no more once a run is finished
        os.replace(out / BEST, out / WEIGHTS[run.config.task])
    print(f"{out}: {last['step']} steps, validation loss {last['validation_loss']:.3f}")
    print(f"next: python -m {__package__}.evaluate {'--tagger ' if run.config.task == 'tagger' else ''}{out}")


# Command line


# Same as encdec_sentence_sparse/train.py:parse
# Same as discourse_tree_attention/train.py:parse
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
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    logging.getLogger("accelerate").setLevel(logging.ERROR)  # it reports BART's tied weights at every checkpoint
    train(*parse(arguments))


if __name__ == "__main__":
    main()
