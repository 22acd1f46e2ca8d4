"""Train a summariser, make its attention sparse, and teach it to choose sentences.

python -m encdec_sentence_sparse.train --out runs/base --model facebook/bart-base --data FOLDER
python -m encdec_sentence_sparse.train --task kl --init runs/base --out runs/kl --steps 500
python -m encdec_sentence_sparse.train --task integrated --init runs/kl --out runs/apx
python -m encdec_sentence_sparse.train --task sparse --init runs/base --out runs/sparse --steps 300
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

try:
    from shared.data import load
except ModuleNotFoundError:
    where = "at the top of the import path (beside the outermost package)"
    sys.exit(f"error: the commands need the repository's folder `shared` {where}")
from shared.run import (
    RunFolder,
    check,
    check_folder,
    exchanged,
    load_weights,
    new_accelerator,
    one_line_errors,
    parse,
    says_it_reads,
    training,
)

from .config import PRESETS, TrainConfig, choose_selection, learning_rate
from .selection import Selection, attention_held, objective
from .sentences import sentences_of

if TYPE_CHECKING:  # importing BART takes as long as torch: --help and a wrong flag answer without it
    from .loading import Run
    from .text import Batch, Item


def start(config: TrainConfig, out: Path, resume: bool, begin=None, load_run=None) -> tuple:
    """Set up a training; ValueError for bad values or data, or a folder that cannot be used.

    `begin` and `load_run` take the place of loading.py's. Returns what the first line of `train` names.
    """
    from accelerate.utils import set_seed

    from . import loading
    from .model import freeze
    from .text import Batches

    check(config)
    begun, accelerator = check_folder(out, resume), new_accelerator(config)
    set_seed(config.seed)
    data = {"training": load(config.data, "train"), "validation": load(config.data, "validation")}
    run = (load_run or loading.load_run)(out) if begun else (begin or loading.begin)(config, data["training"])
    loading.check_lengths(run)
    freeze(run.model, config.task)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    items, validation = run.encode(data["training"]), run.encode(data["validation"])
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    batches, generator = Batches([len(item.ids) for item in items], config.batch_size, config.seed), torch.Generator()
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.collate, generator=generator)
    learning = [parameter for parameter in run.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learning, lr=0.0, betas=(0.9, 0.999), eps=1e-8)  # A.3; released code
    model, optimizer, loader = accelerator.prepare(run.model, optimizer, loader)
    first = {"step": 0, "examples": len(items), "sources_cut": sum(item.was_cut for item in items)}
    folder = training(accelerator, out, config, run.write_files, begun, data, first)
    return accelerator, run, model, optimizer, loader, validation, folder


def train(config: TrainConfig, out: str | Path, resume: bool = False, **hooks) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    ValueError: what `start` refuses, whose `hooks` are begin and load_run; a loss that is not finite."""
    accelerator, run, model, optimizer, loader, validation, locked = start(config, Path(out), resume, **hooks)
    hidden = None if accelerator.is_main_process else True  # None: where there is no terminal
    with locked as folder:
        done = folder.progress["step"]
        if done < config.steps and not config.patience:
            folder.reopen("model/model.safetensors")
        batches = iter(accelerator.skip_first_batches(loader, done * config.accumulate))
        bar = tqdm(range(done, config.steps), initial=done, total=config.steps, disable=hidden)
        for step in bar:
            if config.patience and without_gain(folder.progress["log"]) >= config.patience:
                break
            model.train()  # D14: dropout is on in frozen parts, too (released code)
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
                row |= validation_losses(run, validation)
            if bad := [name for name, value in row.items() if not math.isfinite(value)]:
                raise ValueError(f"{bad[0]} is {row[bad[0]]} at step {row['step']}; {out} keeps its last checkpoint")
            if is_checkpoint:
                if config.patience and without_gain([*folder.progress["log"], row]) == 0:
                    folder.write("best.safetensors", run.write_weights)
                folder.save_checkpoint(row)
        if config.patience:
            load_weights(run.model, out, "best.safetensors")
        folder.write("model/model.safetensors", run.write_weights)
    if accelerator.is_main_process:
        report(run, validation, folder)


def batch_losses(model: nn.Module, batch: "Batch", config: TrainConfig, selection: Selection) -> dict[str, Tensor]:
    """The loss of a batch and its parts, see `selection.objective`."""
    record = None if config.task == "base" else []
    output = model(**batch.source(), labels=batch.labels, selection=selection, record=record)
    exists = sentences_of(batch.sentence_ids, batch.attention_mask).exists
    is_step = batch.labels != -100
    return objective(config.task, output.loss, record, is_step, exists, config.gamma, config.kl_weight)


@torch.no_grad()
def validation_losses(run: "Run", items: "Sequence[Item]") -> dict[str, float]:
    """Mean over target tokens of the losses, in eval mode; every process computes all of it."""
    run.model.eval()
    selection = choose_selection(run.config, run.config.steps)  # that of the end, where mix is approx
    by_length, totals = sorted(items, key=lambda item: len(item.ids)), {}
    tokens = sum(len(item.target) for item in items)
    for first in range(0, len(items), run.config.batch_size):
        batch = run.collate(by_length[first : first + run.config.batch_size])
        share = (batch.labels != -100).sum().item() / tokens
        for name, loss in batch_losses(run.model, batch, run.config, selection).items():
            totals[f"validation_{name}"] = totals.get(f"validation_{name}", 0.0) + loss.item() * share
    return totals


def without_gain(log: list[dict]) -> int:
    """How many validations followed the best one."""
    losses = [row["validation_loss"] for row in log if "validation_loss" in row]
    return len(losses) - 1 - losses.index(min(losses)) if losses else 0


def report(run: "Run", validation: "list[Item]", folder: RunFolder) -> None:
    """Say what came out, what was learned, and what to do next."""
    out, (first, *rows), config = folder.path, folder.progress["log"], run.config
    if first["sources_cut"]:
        print(f"{first['sources_cut']} of {first['examples']} documents were cut to --max-source {config.max_source}")
    best = min(row["validation_loss"] for row in rows)
    print(f"{out}: {rows[-1]['step']} steps, best validation loss {best:.3f}")
    verdict = reads_its_documents if config.task in ("base", "sparse") else map_knows_more
    print(verdict(run, validation[:200]))
    lobart = "experiments.lobart " if getattr(run.model.config, "is_local", False) else ""
    make_map = f"train --task kl --init {out} --out {out}-kl   # trains a map that chooses sentences"
    read = f"predict {out} --data {config.data} --split test"
    print(f"next: python -m {__package__}.{lobart}{make_map if config.task == 'base' else read}")


def reads_its_documents(run: "Run", items: "list[Item]") -> str:
    """The loss with each summary's own document and with that of another one; a warning where they hardly differ."""
    name = "validation_loss" if run.config.task == "base" else "validation_xent"
    own = validation_losses(run, items)[name]
    swapped = exchanged(items, lambda item: item.ids, lambda item, other: other._replace(target=item.target))
    if swapped is None:
        return f"validation loss {own:.3f}"
    foreign = validation_losses(run, swapped)[name]
    losses = f"validation loss {own:.3f}; with the documents exchanged {foreign:.3f}"
    return f"{losses}\n{says_it_reads(own, foreign)}".rstrip("\n")


@torch.no_grad()
def map_knows_more(run: "Run", items: "list[Item]") -> str:
    """How much attention the map's sentences hold; a warning where the first ones hold as much."""
    run.model.eval()
    held, r = [], run.config.r
    for item in items:
        batch, record = run.collate([item]), []
        run.model(**batch.source(), labels=batch.labels, record=record)
        exists = sentences_of(batch.sentence_ids, batch.attention_mask).exists
        held.append(torch.stack([attention_held(layer, exists, r)[0] for layer in record]).mean(0))  # (T, 3)
    best, learned, first = torch.cat(held).mean(0).tolist()
    warning = ": IT KNOWS NO MORE THAN TO TAKE THE FIRST; train longer" if learned < first + 0.01 < best else ""
    shares = f"the best {r} sentences hold {best:.3f} of the attention, the first {first:.3f}, the map's {learned:.3f}"
    return shares + warning


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
