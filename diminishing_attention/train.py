"""Train a pointer-generator or BERTSum, then switch diminishing attention or coverage on.

python -m diminishing_attention.train --out runs/pg --preset repetition
python -m diminishing_attention.train --out runs/pg-dim --init runs/pg --diminishing dim --steps 150
python -m diminishing_attention.train --out runs/bertsum --preset bertsum-abs
"""

import math
import os
import shutil
from collections.abc import Sequence
from logging import getLogger
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from shared.data import in_sentences, load

from .bertsum.bertsum import learning_rate
from .config import PRESETS, TrainConfig
from .loading import Run, begin, for_task, load_run
from .run import fingerprint, holds_run, one_line_errors, parse, save_checkpoint, training
from .text import LengthBatches

COUNTED = {"pointer": "target_out", "bertsum-ext": "source", "bertsum-abs": "target"}  # by --batch-tokens


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    ValueError for bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    from accelerate import Accelerator, DataLoaderConfiguration  # here, for --help answers without it
    from accelerate.utils import set_seed

    config.check()
    getLogger("accelerate").setLevel("ERROR")  # it says at each checkpoint that a tied tensor is stored once
    out, exists = Path(out), holds_run(Path(out), resume)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.accumulate,
        cpu=not torch.accelerator.is_available(),  # or several processes would each believe to be alone
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )
    examples = for_task(in_sentences(load(config.data, "train", config.examples or None)), config.task)
    validation = load(config.data, "validation", config.validation_examples or None)
    set_seed(config.seed)
    run = load_run(out) if exists else begin(config, examples)
    if config.beam > (words := getattr(run.model, "vocabulary", config.beam)):
        raise ValueError(f"--beam is {config.beam}: at most the vocabulary's {words} tokens")
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    items, validation = run.encode(examples), run.encode(for_task(in_sentences(validation), config.task))
    batches = LengthBatches(items, config.batch_size, config.batch_tokens, COUNTED[config.model], config.seed)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.text.collate, generator=torch.Generator())
    model, optimizer, loader = accelerator.prepare(run.model, make_optimizer(run.model, config), loader)
    counts = {"step": 0, "examples": len(items), "validation_examples": len(validation),
              "sources_cut": sum(item.was_cut for item in items)}  # fmt: skip
    new = {"step": 0, "log": [counts], "data": fingerprint(examples)}
    with (
        training(accelerator, out, config, new, run.write_files, exists) as progress,
        tqdm(total=config.steps, initial=progress["step"], disable=not accelerator.is_main_process) as bar,
    ):
        stream = iter(accelerator.skip_first_batches(loader, progress["step"] * config.accumulate))
        for step in range(progress["step"], config.steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, group["factor"], group["warmup"])
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
                progress |= {"step": row["step"], "log": [*progress["log"], row]}
                save_checkpoint(accelerator, out, progress)
    if accelerator.is_main_process:
        finish(out, progress["log"][-1])


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


@torch.inference_mode()
def validation_loss(model: nn.Module, run: Run, items: Sequence) -> float:
    """Mean loss of all documents, sentences or target tokens, in eval mode and without label smoothing."""
    model.eval()
    device, size = next(model.parameters()).device, run.config.batch_size
    by_length = sorted(items, key=lambda item: len(item.source))
    batches = (by_length[first : first + size] for first in range(0, len(items), size))
    return torch.cat([model(run.text.collate(batch, device)) for batch in batches]).mean().item()


def finish(out: Path, last: dict) -> None:
    """The last checkpoint's weights become the run's."""
    shutil.copyfile(out / f"checkpoints/{last['step']:08d}/model.safetensors", out / "unfinished")
    os.replace(out / "unfinished", out / "model.safetensors")
    print(f"{out}: {last['step']} steps, validation loss {last['validation_loss']:.3f}")
    print(f"model.safetensors: the weights after step {last['step']}; nothing is averaged")
    print(f"next: python -m {__package__}.evaluate {out}")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
