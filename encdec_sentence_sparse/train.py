"""Train a summariser, make its attention sparse, and teach it to choose sentences.

python -m encdec_sentence_sparse.train --out runs/base --model facebook/bart-base --data FOLDER
python -m encdec_sentence_sparse.train --task kl --init runs/base --out runs/kl --steps 500
python -m encdec_sentence_sparse.train --task integrated --init runs/kl --out runs/apx
python -m encdec_sentence_sparse.train --task sparse --init runs/base --out runs/sparse --steps 300
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from shared.run import (
    RunFolder,
    exchanged,
    load_weights,
    one_line_errors,
    parse,
    says_it_reads,
    setup,
    write_weights,
)

from .config import PRESETS, TrainConfig, choose_selection, learning_rate
from .loading import WEIGHTS, Run, begin, load_run
from .model import freeze
from .selection import Selection, attention_held, objective, sentences_of
from .text import Batch, Item


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same
    bits.

    ValueError: bad values or data, a folder that cannot be used, a loss that is not finite.
    """
    adam, final = partial(adam_of, config.task), "" if config.patience else WEIGHTS
    made = setup(
        config, Path(out), resume, begin, load_run, adam, lambda item: len(item.ids), final=final
    )
    accelerator, run, model, optimizer = made[:4]
    with made.folder as folder:
        done = folder.progress["step"]
        batches = iter(accelerator.skip_first_batches(made.loader, done * config.accumulate))
        hidden = not accelerator.is_main_process or None  # None: where there is no terminal
        for step in (
            bar := tqdm(range(done, config.steps), initial=done, total=config.steps, disable=hidden)
        ):
            if 0 < config.patience <= folder.since_best():
                break
            run.model.train()  # D14: dropout is on in frozen parts, too (released code)
            selection = choose_selection(config, step)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            for _ in range(config.accumulate):
                batch = next(batches)
                with accelerator.accumulate(model):
                    # D18: Eq. (5), (11) or (12), mean over the target tokens of a micro-batch.
                    losses = batch_losses(model, batch, config, selection)
                    accelerator.backward(losses["loss"])
                    if config.clip and accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), config.clip)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1} | {name: loss.item() for name, loss in losses.items()}
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if is_checkpoint := row["step"] % config.save_every == 0 or row["step"] == config.steps:
                row |= validation_losses(run, made.validation)
            if bad := [name for name, value in row.items() if not math.isfinite(value)]:
                raise ValueError(
                    f"{bad[0]} is {row[bad[0]]} at step {row['step']}; {out} keeps its last "
                    f"checkpoint"
                )
            if is_checkpoint and config.patience:
                folder.keep_best(row, partial(write_weights, run.model))
            if is_checkpoint:
                folder.save_checkpoint(row)
        if config.patience:
            folder.take_best(WEIGHTS)
            load_weights(run.model, out, WEIGHTS)
        else:
            folder.write(WEIGHTS, partial(write_weights, run.model))
    if accelerator.is_main_process:
        report(run, made.validation, folder)


def adam_of(task: str, model: nn.Module) -> torch.optim.Optimizer:
    """A.3: Adam; released code: its betas and eps.

    What the task leaves as it is gets no gradient.
    """
    freeze(model, task)
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.Adam(learning, lr=0.0, betas=(0.9, 0.999), eps=1e-8)


def batch_losses(
    model: nn.Module, batch: Batch, config: TrainConfig, selection: Selection
) -> dict[str, Tensor]:
    """The loss of a batch and its parts, see `selection.objective`."""
    record = None if config.task == "base" else []
    output = model(**batch.source(), labels=batch.labels, selection=selection, record=record)
    exists = sentences_of(batch.sentence_ids, batch.attention_mask).exists
    is_step = batch.labels != -100
    return objective(
        config.task, output.loss, record, is_step, exists, config.gamma, config.kl_weight
    )


@torch.no_grad()
def validation_losses(run: Run, items: Sequence[Item]) -> dict[str, float]:
    """Mean over target tokens of the losses, in eval mode; every process computes all of it."""
    run.model.eval()
    # that of the end, where mix is approx
    selection = choose_selection(run.config, run.config.steps)
    by_length, totals = sorted(items, key=lambda item: len(item.ids)), {}
    tokens = sum(len(item.target) for item in items)
    for first in range(0, len(items), run.config.batch_size):
        batch = run.collate(by_length[first : first + run.config.batch_size])
        share = (batch.labels != -100).sum().item() / tokens
        for name, loss in batch_losses(run.model, batch, run.config, selection).items():
            totals[f"validation_{name}"] = (
                totals.get(f"validation_{name}", 0.0) + loss.item() * share
            )
    return totals


def report(run: Run, validation: list[Item], folder: RunFolder) -> None:
    """Say what came out, what was learned, and what to do next."""
    out, rows = folder.path, folder.progress["log"][1:]
    print(
        f"{out}: {rows[-1]['step']} steps, best validation loss "
        f"{min(row['validation_loss'] for row in rows):.3f}"
    )
    verdict = reads_its_documents if run.config.task in ("base", "sparse") else map_knows_more
    print(verdict(run, validation[:200]))
    command = f"next: python -m {__package__}."
    if run.config.task == "base":
        print(
            f"{command}train --task kl --init {out} --out {out}-kl   # trains a map that chooses "
            f"sentences"
        )
    else:
        print(f"{command}predict {out} --split validation")


def reads_its_documents(run: Run, items: list[Item]) -> str:
    """The loss with each summary's own document and with that of another one; a warning where they
    hardly differ.
    """
    name = "validation_loss" if run.config.task == "base" else "validation_xent"
    own = validation_losses(run, items)[name]
    swapped = exchanged(
        items, lambda item: item.ids, lambda item, other: other._replace(target=item.target)
    )
    if swapped is None:
        return f"validation loss {own:.3f}"
    foreign = validation_losses(run, swapped)[name]
    losses = f"validation loss {own:.3f}; with the documents exchanged {foreign:.3f}"
    return f"{losses}\n{says_it_reads(own, foreign)}".rstrip("\n")


@torch.no_grad()
def map_knows_more(run: Run, items: list[Item]) -> str:
    """How much attention the map's sentences hold; a warning where the first ones hold as much."""
    run.model.eval()
    held, r = [], run.config.r
    for item in items:
        batch, record = run.collate([item]), []
        run.model(**batch.source(), labels=batch.labels, record=record)
        exists = sentences_of(batch.sentence_ids, batch.attention_mask).exists
        # (T, 3)
        held.append(torch.stack([attention_held(layer, exists, r)[0] for layer in record]).mean(0))
    best, learned, first = torch.cat(held).mean(0).tolist()
    warning = (
        ": IT KNOWS NO MORE THAN TO TAKE THE FIRST; train longer"
        if learned < first + 0.01 < best
        else ""
    )
    shares = (
        f"the best {r} sentences hold {best:.3f} of the attention, the first {first:.3f}, the "
        f"map's {learned:.3f}"
    )
    return shares + warning


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
