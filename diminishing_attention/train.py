"""Train a pointer-generator or BERTSum, then switch diminishing attention or coverage on.

Han, Lin & Joty 2020; D12, D19 and the like are deviations from the paper, listed in PAPER.md.

python -m diminishing_attention.train --out runs/pg --preset repetition
python -m diminishing_attention.train --out runs/pg-more --init runs/pg --steps 150     # control
python -m diminishing_attention.train --out runs/pg-dim --init runs/pg --steps 150 --diminishing dim
"""

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_model
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from shared.data import Example, in_sentences, load
from shared.run import (
    Batches,
    check,
    check_out,
    checkpoints,
    cpu_has_bf16,
    fingerprint,
    one_line_errors,
    parse,
    read_progress,
    save_checkpoint,
)

from .config import PRESETS, TrainConfig, learning_rate
from .loading import Run, begin
from .text import Item

MAX_VALIDATION = 200  # documents of the validation loss
# Largest gradient norm of each part of a pointer-generator (See et al.); BERTSum is not clipped, as
# in PreSumm.
CLIP = 2.0


def train(config: TrainConfig, out: Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` continues from the last checkpoint.

    A training that was killed and resumed ends with the same bits (one process, on a CPU).

    Raises:
        ValueError: bad values or data, a folder that cannot be used, a loss that is not finite.
    """
    from accelerate import Accelerator, DataLoaderConfiguration
    from accelerate.utils import GradientAccumulationPlugin, set_seed

    check(config)
    check_out(out, resume)
    # A line on the shared embedding at every checkpoint.
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        # The plugin: a variable of the shell would override `gradient_accumulation_steps`.
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=config.accumulate),
        # Without this, several processes on a CPU would each train alone.
        cpu=not torch.accelerator.is_available(),
        dataloader_config=DataLoaderConfiguration(even_batches=False),  # of different sizes
        log_with=config.log_with or None,
        project_dir=out,
    )
    is_main = accelerator.is_main_process
    if config.log_with and not accelerator.log_with:
        raise ValueError(f"--log-with {config.log_with} is not installed")
    if is_main and config.mixed_precision == "no" and cpu_has_bf16():
        print("this CPU has bf16: --mixed-precision bf16 trains wide models faster")

    # Data, model, vocabulary.
    set_seed(config.seed)
    examples = load_sentences(config.data, "train")
    validation_examples = load_sentences(config.data, "validation")
    run = begin(config, examples)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout

    optimizer = make_optimizer(run.model, config)
    model, optimizer = accelerator.prepare(run.model, optimizer)  # model: run.model, wrapped
    items = run.encode(examples)
    validation = run.encode(validation_examples)
    batches = Batches(lengths(items, config), config.seed, config.batch_size, config.batch_tokens)
    # Its own generator: starting the loader would else draw from the one that dropout uses.
    generator = torch.Generator()
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.collate, generator=generator)
    loader = accelerator.prepare(loader)
    sources_cut = sum(item.was_cut for item in items)
    targets_cut = sum(item.target_was_cut for item in items)
    if sources_cut and is_main:
        print(f"{sources_cut} of {len(items)} sources are cut to --max-source {config.max_source}")
    if targets_cut and is_main:
        print(f"{targets_cut} of {len(items)} targets are cut to --max-target {config.max_target}")

    # A checkpoint saves this beside weights, optimizer and random states.
    progress = {"data": fingerprint(examples), "log": []}
    done = 0
    if checkpoints(out):
        last = checkpoints(out)[-1]
        progress = read_progress(last, accelerator.num_processes, progress["data"])
        accelerator.load_state(str(last))
        done = progress["log"][-1]["step"]
    weights_path = out / "model.safetensors"
    if is_main:
        out.mkdir(parents=True, exist_ok=True)
        run.write_files(out)
        if done < config.steps:
            weights_path.unlink(missing_ok=True)  # of a finished run that is extended

    accelerator.init_trackers("diminishing_attention", vars(config))
    endless = iter(accelerator.skip_first_batches(loader, done * config.accumulate))
    bar = tqdm(total=config.steps, initial=done, disable=None if is_main else True)
    for step in range(done, config.steps):
        run.model.train()
        for group in optimizer.param_groups:  # D12: a second phase continues the schedule
            number = run.first_step + step + 1
            group["lr"] = learning_rate(number, group["factor"], group["warmup"])
        for _ in range(config.accumulate):
            batch = next(endless)
            with accelerator.accumulate(model):
                # The objective: of each document -log P of its summary's words, with --coverage
                # also Eq. (5)'s penalty; BERTSum: cross-entropy of each target token. Diminishing
                # attention has no loss: it acts inside the model, on the attention.
                loss = model(batch).mean()  # D19: an update averages the micro-batch means
                accelerator.backward(loss)
                if accelerator.sync_gradients and config.model == "pointer":
                    accelerator.unscale_gradients()  # of fp16
                    for part in run.model.parts():  # each by itself, as in the released code
                        nn.utils.clip_grad_norm_(part, CLIP)
                optimizer.step()
                optimizer.zero_grad()

        row = {"step": step + 1, "loss": loss.item(), "lr": optimizer.param_groups[-1]["lr"]}
        if not math.isfinite(row["loss"]):
            raise ValueError(
                f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint"
            )
        bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
        bar.update()
        if row["step"] % config.save_every == 0 or row["step"] == config.steps:
            row["validation_loss"] = validation_loss(run, validation)
            progress["log"].append(row)
            save_checkpoint(accelerator, out, progress)
            accelerator.log(row, step=row["step"])
            if is_main:
                bar.write(json.dumps(row))
    bar.close()
    accelerator.end_training()
    if not is_main:
        return

    # D26: the last weights; a tensor that the network uses twice is stored once.
    save_model(run.model, weights_path)
    report(run, validation_examples, progress["log"][-1], out)


def load_sentences(data: str, split: str) -> list[Example]:
    """Documents in sentences."""
    return in_sentences(load(data, split, MAX_VALIDATION if split == "validation" else None))


def lengths(items: Sequence[Item], config: TrainConfig) -> list[tuple[int, ...]]:
    """Batches are sorted by source length or, with --batch-tokens, by target, then source.

    D28: released code of the pointer-generator draws documents at random.
    """
    if config.batch_tokens:
        return [(len(item.target), len(item.source)) for item in items]
    return [(len(item.source),) for item in items]


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adagrad, or Adam; a group of parameters for each learning rate. The loop sets the rates."""
    encoder = {"factor": config.encoder_learning_rate, "warmup": config.encoder_warmup}  # Eq. (7)
    other = {"factor": config.learning_rate, "warmup": config.warmup}  # Eq. (8)
    if config.model == "pointer":
        groups = [{"params": list(model.parameters()), **other}]
    else:
        # D9: the two optimisers of Eq. (7)-(8) are two groups of one Adam, which updates each
        # parameter by itself.
        of_encoder, of_others = model.parts()
        groups = [{"params": of_encoder, **encoder}, {"params": of_others, **other}]
    if config.optimizer == "adagrad":  # D8: See et al.; the accumulator's start is theirs
        return torch.optim.Adagrad(groups, lr=0.0, initial_accumulator_value=0.1, eps=1e-10)
    eps = 1e-8 if config.model == "pointer" else 1e-9  # OpenNMT's, behind PreSumm
    return torch.optim.Adam(groups, lr=0.0, betas=(0.9, 0.999), eps=eps)


@torch.inference_mode()
def validation_loss(run: Run, items: Sequence[Item]) -> float:
    """Mean loss of all documents or target tokens, in eval mode and without label smoothing."""
    run.model.eval()
    by_length = sorted(items, key=lambda item: len(item.source))
    losses = []
    for first in range(0, len(items), run.config.batch_size):
        batch = run.collate(by_length[first : first + run.config.batch_size])
        losses.append(run.model(batch))
    return torch.cat(losses).mean().item()


def report(run: Run, validation: list[Example], row: dict, out: Path) -> None:
    """Say what came out, also with each summary beside another document, and what to do next."""
    config = run.config
    others = validation[1:] + validation[:1]
    # Swap the text, not ids: ids of unknown words are the document's own.
    pairs = zip(validation, others, strict=True)
    exchanged = [replace(example, document=other.document) for example, other in pairs]
    exchanged_loss = validation_loss(run, run.encode(exchanged))
    print(
        f"{out}: {sum(p.numel() for p in run.model.parameters()):,} parameters, {row['step']} "
        f"updates, validation loss {row['validation_loss']:.3f}, with the documents exchanged "
        f"{exchanged_loss:.3f}"
    )
    if not config.init and config.diminishing == "none" and not config.coverage:
        print(
            f"trained without diminishing attention or coverage; to add one: python -m "
            f"{__package__}.train --out {out}-dim --init {out} --steps "
            f"{max(config.steps // 8, 1)} --diminishing dim"
        )
    print(f"next: python -m {__package__}.predict {out} FILE.txt")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
