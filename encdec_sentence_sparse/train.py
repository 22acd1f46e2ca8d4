"""Train a summariser, make its attention sparse, and teach it to choose sentences.

python -m encdec_sentence_sparse.train --task base --out runs/base --model facebook/bart-base --data FOLDER
python -m encdec_sentence_sparse.train --task kl --out runs/kl --init runs/base --steps 500
python -m encdec_sentence_sparse.train --task integrated --out runs/apx --init runs/kl --select approx
python -m encdec_sentence_sparse.train --task sparse --out runs/sparse --init runs/base --steps 300

The paper's chain: KL-only on a fine-tuned BART, then integrated with all of its values.

python -m encdec_sentence_sparse.train --preset paper --out runs/kl
python -m encdec_sentence_sparse.train --preset paper-integrated --init runs/kl --out runs/apx
"""

import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
from .selection import FULL, Selection, objective, top_r
from .sentences import sentences_of

if TYPE_CHECKING:  # importing BART takes as long as torch: --help and a wrong flag answer without it
    from accelerate import Accelerator

    from .loading import Run
    from .text import Batch, Item

FEW = 20_000  # documents, below which a BART from scratch hardly learns to read


class Setup(NamedTuple):
    """What the loop works with."""

    accelerator: "Accelerator"
    run: "Run"  # its model is the plain one
    model: nn.Module  # the same one, as accelerate wraps it
    optimizer: torch.optim.Optimizer
    loader: DataLoader
    validation: "list[Item]"
    epoch: int  # updates
    folder: AbstractContextManager[RunFolder]  # locks the run folder, loads its last checkpoint


def start(config: TrainConfig, out: Path, resume: bool, begin=None, load_run=None) -> Setup:
    """Set up what `train` needs; ValueError for what cannot be used. `begin`, `load_run`: in place of loading.py's."""
    from accelerate.utils import set_seed

    from . import loading
    from .model import freeze
    from .text import Batches

    check(config)
    begun, accelerator = check_folder(out, resume), new_accelerator(config)
    set_seed(config.seed)
    data = {"training": load(config.data, "train"), "validation": load(config.data, "validation")}
    say_if_few(config, len(data["training"]))
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
    epoch = -(-batches.per_epoch // (config.accumulate * accelerator.num_processes))
    first = {"step": 0, "examples": len(items), "sources_cut": sum(item.was_cut for item in items)}
    folder = training(accelerator, out, config, run.write_files, begun, data, first, best=None, without_gain=0)
    return Setup(accelerator, run, model, optimizer, loader, validation, epoch, folder)


def train(config: TrainConfig, out: str | Path, resume: bool = False, **hooks) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    Args:
        hooks: begin, load_run, as in `start`.
    Raises:
        ValueError: what `start` refuses, a loss that is not finite; nothing is lost.
    """
    setup = start(config, Path(out), resume, **hooks)
    accelerator, run, model, optimizer, loader, validation, epoch, locked = setup
    with locked as folder, progress_bar(accelerator, folder, config) as bar:
        done = folder.progress["step"]
        batches = iter(accelerator.skip_first_batches(loader, done * config.accumulate))
        for step in range(done, config.steps):
            if config.patience and folder.progress["without_gain"] >= config.patience:
                break
            model.train()  # D14: dropout is on in frozen parts, too (released code)
            selection = choose_selection(config, step, config.mix_steps or epoch)
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
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if is_checkpoint := row["step"] % (config.save_every or epoch) == 0 or row["step"] == config.steps:
                row |= validation_losses(run, validation)
            if bad := [name for name, value in row.items() if not math.isfinite(value)]:
                raise ValueError(f"{bad[0]} is {row[bad[0]]} at step {row['step']}; {out} keeps its last checkpoint")
            if is_checkpoint:
                keep_best(folder, run, row["validation_loss"])
                folder.save_checkpoint(row)
        if config.patience:
            load_weights(run.model, out, "best.safetensors")
        folder.write("model/model.safetensors", run.write_weights)
    if accelerator.is_main_process:
        report(run, validation, folder)


def say_if_few(config: TrainConfig, documents: int) -> None:
    """Say where a training from scratch has few documents to learn from."""
    if documents < FEW and not (config.init or config.model or config.data.startswith("toy")):
        print(f"{documents} documents are few to learn from scratch: begin with a BART, --model facebook/bart-base")


def progress_bar(accelerator: "Accelerator", folder: RunFolder, config: TrainConfig) -> tqdm:
    """One bar for all processes, that begins where the run goes on."""
    hidden = None if accelerator.is_main_process else True  # None: where there is no terminal
    return tqdm(total=config.steps, initial=folder.progress["step"], disable=hidden)


def batch_losses(
    model: nn.Module, batch: "Batch", config: TrainConfig, selection: Selection = FULL
) -> dict[str, Tensor]:
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
    selection = choose_selection(run.config, 1, 1)  # that of the end, where mix is approx
    by_length, totals = sorted(items, key=lambda item: len(item.ids)), {}
    tokens = sum(len(item.target) for item in items)
    for first in range(0, len(items), run.config.batch_size):
        batch = run.collate(by_length[first : first + run.config.batch_size])
        share = (batch.labels != -100).sum().item() / tokens
        for name, loss in batch_losses(run.model, batch, run.config, selection).items():
            totals[f"validation_{name}"] = totals.get(f"validation_{name}", 0.0) + loss.item() * share
    return totals


def keep_best(folder: RunFolder, run: "Run", loss: float) -> None:
    """Count the validations since the best one, whose weights --patience keeps."""
    progress = folder.progress
    if progress["best"] is not None and loss >= progress["best"]:
        progress["without_gain"] += 1
        return
    progress |= {"best": loss, "without_gain": 0}
    if run.config.patience:
        folder.write("best.safetensors", run.write_weights)


def report(run: "Run", validation: "list[Item]", folder: RunFolder) -> None:
    """Say what came out, what was learned, and what to do next."""
    out, (first, *_), config = folder.path, folder.progress["log"], run.config
    if first["sources_cut"]:
        print(f"{first['sources_cut']} of {first['examples']} documents were cut to --max-source {config.max_source}")
    print(f"{out}: {folder.progress['step']} steps, best validation loss {folder.progress['best']:.3f}")
    reads = reads_its_documents if config.task in ("base", "sparse") else map_knows_more
    print(reads(run, validation[:200]))
    to_do = f"train --task kl --init {out} --out {out}-kl   # trains a map that chooses sentences"
    if config.task != "base":
        to_do = f"predict {out} --data {config.data} --split test"
    print(f"next: python -m {__package__}.{to_do}")


def reads_its_documents(run: "Run", items: "list[Item]") -> str:
    """The loss with each summary's own document and with that of another one; a warning where they hardly differ."""
    name = "validation_loss" if run.config.task == "base" else "validation_xent"
    own = validation_losses(run, items)[name]
    swapped = exchanged(items, lambda item, other: other._replace(target=item.target))
    if swapped is None:
        return f"validation loss {own:.3f}"
    foreign = validation_losses(run, swapped)[name]
    verdict = says_it_reads(own, foreign)
    return f"validation loss {own:.3f}; with the documents exchanged {foreign:.3f}" + (verdict and f"\n{verdict}")


def map_knows_more(run: "Run", items: "list[Item]") -> str:
    """How much attention the map's sentences hold; a warning where the first ones hold as much."""
    (best, learned, first), r = attention_held(run, items), run.config.r
    warning = ": IT KNOWS NO MORE THAN TO TAKE THE FIRST; train longer" if learned < first + 0.01 < best else ""
    shares = f"the best {r} sentences hold {best:.3f} of the attention, the first {first:.3f}, the map's {learned:.3f}"
    return shares + warning


@torch.no_grad()
def attention_held(run: "Run", items: "Sequence[Item]") -> list[float]:
    """Share of the saliency that the best r sentences hold, the map's r and the first r; mean over layers and steps."""
    run.model.eval()
    held, steps = torch.zeros(3), 0
    for first in range(0, len(items), run.config.batch_size):
        batch, record = run.collate(items[first : first + run.config.batch_size]), []
        run.model(**batch.source(), labels=batch.labels, record=record)
        is_step, exists = batch.labels != -100, sentences_of(batch.sentence_ids, batch.attention_mask).exists
        for layer in record:
            exact = layer.exact.mean(1)  # (B, T, N)
            early = -torch.arange(exact.size(-1), device=exact.device).expand_as(exact).float()
            choices = [top_r(scores, exists, run.config.r) for scores in (exact, layer.approximate.mean(1), early)]
            held += torch.stack([(exact * choice).sum(-1)[is_step].sum() for choice in choices]).cpu()
            steps += is_step.sum().item()
    return (held / steps).tolist()


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
