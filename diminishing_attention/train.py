"""Train a pointer-generator or BERTSum, then switch diminishing attention or coverage on.

python -m diminishing_attention.train --out runs/pg --preset repetition
python -m diminishing_attention.train --out runs/pg-dim --init runs/pg --diminishing dim --steps 150
python -m diminishing_attention.train --out runs/bertsum --preset bertsum-abs
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from logging import getLogger
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm

try:
    from shared.data import in_sentences, load
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared.run import check, check_folder, one_line_errors, parse, share, training

from .config import PRESETS, TrainConfig, learning_rate
from .loading import Run, begin, for_task, load_run
from .text import Items, LengthBatches


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    ValueError for bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    from accelerate import Accelerator, DataLoaderConfiguration  # here, for --help answers without it
    from accelerate.utils import set_seed
    from safetensors.torch import save_model

    check(config)
    getLogger("accelerate").setLevel("ERROR")  # it says at each checkpoint that a tied tensor is stored once
    out = Path(out)
    begun = check_folder(out, resume)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.accumulate,
        cpu=not torch.accelerator.is_available(),  # or several processes would each believe to be alone
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )
    examples = for_task(in_sentences(load(config.data, "train", config.examples or None)), config.task)
    validation = load(config.data, "validation", config.validation_examples or None)
    validation = for_task(in_sentences(validation), config.task)
    set_seed(config.seed)
    run = load_run(out) if begun else begin(config, examples)
    if config.beam > run.model.vocabulary:
        raise ValueError(f"--beam is {config.beam}: at most the vocabulary's {run.model.vocabulary} tokens")
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    items, held_out = share(accelerator, run.encode(examples)), run.encode(validation)
    batches = LengthBatches(items, config.batch_size, config.batch_tokens, config.seed)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.text.collate, generator=torch.Generator())
    model, optimizer, loader = accelerator.prepare(run.model, make_optimizer(run.model, config), loader)
    data = {"training": examples, "validation": validation}
    first = {"step": 0, "examples": len(items), "validation_examples": len(held_out),
             "sources_cut": sum(items.was_cut)}  # fmt: skip
    with training(accelerator, out, config, run.write_files, begun, data, first) as folder:
        del data, examples
        start, hidden = folder.progress["step"], None if accelerator.is_main_process else True
        bar = tqdm(total=config.steps, initial=start, disable=hidden)
        stream = iter(accelerator.skip_first_batches(loader, start * config.accumulate))
        for step in range(start, config.steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, group["factor"], group["warmup"])
            model.train()
            for _ in range(config.accumulate):
                batch = next(stream)
                with accelerator.accumulate(model):
                    # Eq. (5) of each document; BERTSum: cross-entropy of each target token.
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
                row["validation_loss"] = validation_loss(run, held_out)
                folder.save_checkpoint(row)
        bar.close()
        folder.write("model.safetensors", lambda path: save_model(run.model, path))
    if accelerator.is_main_process:
        report(out, run, validation, held_out)


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adagrad, or Adam; a group of parameters for each learning rate."""
    encoder = {"factor": config.encoder_learning_rate, "warmup": config.encoder_warmup}  # Eq. (7)
    other = {"factor": config.learning_rate, "warmup": config.warmup}  # Eq. (8)
    groups = [{"params": list(model.parameters()), **other}]
    if config.model != "pointer":
        # D9: the two optimisers of Eq. (7)-(8) are two groups of one Adam, which updates each parameter by itself.
        groups = [{"params": part, **rate} for part, rate in zip(model.parts(), (encoder, other), strict=True)]
    if config.optimizer == "adagrad":  # D8: See et al.; the accumulator's start is theirs
        return torch.optim.Adagrad(groups, lr=0.0, initial_accumulator_value=0.1, eps=1e-10)
    return torch.optim.Adam(groups, lr=0.0, betas=(0.9, 0.999), eps=1e-8)  # D20: the code behind PreSumm has eps 1e-9


def batches_of(run: Run, items: Items) -> Iterator[NamedTuple]:
    """Batches of like length, in eval mode and on the model's device."""
    device, size = next(run.model.eval().parameters()).device, run.config.batch_size
    by_length = sorted(items, key=lambda item: len(item.source))
    return (run.text.collate(by_length[first : first + size], device) for first in range(0, len(items), size))


@torch.inference_mode()
def validation_loss(run: Run, items: Items) -> float:
    """Mean loss of all documents or target tokens, in eval mode and without label smoothing."""
    return torch.cat([run.model(batch) for batch in batches_of(run, items)]).mean().item()


@torch.inference_mode()
def copying_share(run: Run, items: Items) -> float:
    """Mean probability, 0-1, that a pointer-generator gives to copying at a target token."""
    shares = []
    for batch in batches_of(run, items):
        steps = run.model.run(batch)
        shares.append(((1 - steps.p_gen) * steps.copying.sum(-1))[batch.keep_target])
    return torch.cat(shares).mean().item()


def report(out: Path, run: Run, examples: Sequence, items: Items) -> None:
    """Say at the end of a training whether the model reads its sources, on validation, and what to do next."""
    loss = validation_loss(run, items)
    pairs = zip(examples, [*examples[1:], examples[0]], strict=True)  # each summary with the next document
    others = validation_loss(run, run.encode([replace(one, document=other.document) for one, other in pairs]))
    print(f"{out}: validation loss {loss:.3f}; {others:.3f} with the documents exchanged")
    if others < 1.1 * loss:
        print("the model hardly reads its sources: train longer (--steps), or on more documents")
    if run.config.model == "pointer" and (share := copying_share(run, items)) < 0.01:
        print(f"the pointer hardly copies ({100 * share:.1f} % of the probability): train longer (--steps)")
    print(f"next: python -m {__package__}.evaluate {out}")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
