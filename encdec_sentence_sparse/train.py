"""Train a summariser, make its attention sparse, and teach it to choose sentences.

python -m encdec_sentence_sparse.train --task base --out runs/base
python -m encdec_sentence_sparse.train --task sparse --out runs/sparse --init runs/base --steps 300
python -m encdec_sentence_sparse.train --task kl --out runs/kl --init runs/base --steps 500
python -m encdec_sentence_sparse.train --task integrated --out runs/apx --init runs/kl --select approx

The paper's chain: KL-only on a fine-tuned BART, then integrated with all of its values (LoBART is trained before: D24).

python -m encdec_sentence_sparse.train --preset paper --out runs/kl
python -m encdec_sentence_sparse.train --preset paper-integrated --init runs/kl --out runs/apx
"""

import math
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

from shared.data import in_sentences, load

from .config import PRESETS, TrainConfig, choose_selection, learning_rate
from .loading import Run, begin, load_run
from .model import SentenceSparseBart, freeze
from .run import fingerprint, holds_run, load_weights, one_line_errors, parse, save_checkpoint, training
from .selection import objective
from .text import Batch, Batches, Item, collate


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    ValueError for bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    from accelerate import Accelerator, DataLoaderConfiguration  # here, for --help answers without it
    from accelerate.utils import set_seed

    config.check()
    out, exists = Path(out), holds_run(Path(out), resume)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.accumulate,
        cpu=not torch.accelerator.is_available(),  # or several processes would each believe to be alone
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )
    set_seed(config.seed)
    examples, validation = load(config.data, "train", config.examples or None), load(config.data, "validation")
    if config.sentences == "given":  # D8: a document of one string is split
        examples, validation = in_sentences(examples), in_sentences(validation)
    run = load_run(out) if exists else begin(config, examples)
    freeze(run.model, config.task)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    items, validation = run.encode(examples), run.encode(validation)
    batches = Batches(items, config.batch_size, config.seed)
    join = partial(collate, padding=run.tokenizer.pad_token_id)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=join, generator=torch.Generator())
    learning = [parameter for parameter in run.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learning, lr=0.0, betas=(0.9, 0.999), eps=1e-8)  # A.3; released code
    model, optimizer, loader = accelerator.prepare(run.model, optimizer, loader)
    epoch = -(-batches.per_epoch // (config.accumulate * accelerator.num_processes))
    save_every, mix_steps = config.save_every or epoch, config.mix_steps or epoch
    counts = {"step": 0, "examples": len(items), "sources_cut": sum(item.was_cut for item in items)}
    new = {"step": 0, "best": None, "without_gain": 0, "log": [counts], "data": fingerprint(examples)}
    with (
        training(accelerator, out, config, new, run.write_files, exists) as progress,
        tqdm(total=config.steps, initial=progress["step"], disable=not accelerator.is_main_process) as bar,
    ):
        stream = iter(accelerator.skip_first_batches(loader, progress["step"] * config.accumulate))
        for step in range(progress["step"], config.steps):
            if config.patience and progress["without_gain"] >= config.patience:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            model.train()  # D14: dropout is on in frozen parts, too (released code)
            run.model.selection = choose_selection(config, step, mix_steps)
            for _ in range(config.accumulate):
                batch = next(stream)
                with accelerator.accumulate(model):
                    # D18: Eq. (5), (11) or (12), mean over the target tokens of a micro-batch.
                    losses = batch_losses(model, batch, config)
                    accelerator.backward(losses["loss"])
                    if config.clip and accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), config.clip)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1} | {name: loss.item() for name, loss in losses.items()}
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if is_checkpoint := row["step"] % save_every == 0 or row["step"] == config.steps:
                run.model.selection = choose_selection(config, mix_steps, mix_steps)  # in the end, mix is approx
                row |= validation_losses(run, validation)
            if bad := [name for name, value in row.items() if not math.isfinite(value)]:
                raise ValueError(f"{bad[0]} is {row[bad[0]]} at step {row['step']}; {out} keeps its last checkpoint")
            if is_checkpoint:
                progress |= validated(progress, row)
                if config.patience and not progress["without_gain"] and accelerator.is_main_process:
                    save_weights(run.model, out, "best.safetensors")
                save_checkpoint(accelerator, out, progress)
    if accelerator.is_main_process:
        if counts["sources_cut"]:
            print(f"{counts['sources_cut']} of {len(items)} documents were cut to --max-source {config.max_source}")
        if config.patience:
            load_weights(run.model, out, "best.safetensors")
        save_weights(run.model, out, "model/model.safetensors")
        print(f"{out}: {progress['step']} steps, best validation loss {progress['best']:.3f}")
        print(f"next: python -m {__package__}.evaluate {out}")


def batch_losses(model: nn.Module, batch: Batch, config: TrainConfig) -> dict[str, Tensor]:
    """The loss of a batch and its parts, see `selection.objective`."""
    record = None if config.task == "base" else []
    output = model(**batch.source(), labels=batch.labels, record=record)
    options = {name: getattr(config, name) for name in ("gamma", "kl_weight", "temperature", "kl_scale")}
    return objective(config.task, output.loss, record, batch.labels != -100, batch.exists, **options)


@torch.no_grad()
def validation_losses(run: Run, items: Sequence[Item]) -> dict[str, float]:
    """Mean over target tokens of the losses, in eval mode; every process computes all of it."""
    run.model.eval()
    by_length, totals = sorted(items, key=lambda item: len(item.ids)), {}
    tokens = sum(len(item.target) for item in items)
    for start in range(0, len(items), run.config.batch_size):
        batch = run.collate(by_length[start : start + run.config.batch_size])
        share = (batch.labels != -100).sum().item() / tokens
        for name, loss in batch_losses(run.model, batch, run.config).items():
            totals[f"validation_{name}"] = totals.get(f"validation_{name}", 0.0) + loss.item() * share
    return totals


def validated(progress: dict, row: dict) -> dict:
    """What changes in a run's progress by a validation, whose losses are in `row`."""
    is_better = progress["best"] is None or row["validation_loss"] < progress["best"]
    best = row["validation_loss"] if is_better else progress["best"]
    without_gain = 0 if is_better else progress["without_gain"] + 1
    return {"step": row["step"], "best": best, "without_gain": without_gain, "log": [*progress["log"], row]}


def save_weights(model: SentenceSparseBart, out: Path, name: str) -> None:
    """Write the weights as `out`/NAME under a temporary name and rename them; OSError where there is no room."""
    try:
        model.save_pretrained(out / "unfinished")
        os.replace(out / "unfinished" / "model.safetensors", out / name)
        shutil.rmtree(out / "unfinished")
    except Exception as error:  # safetensors raises types of its own for a full disk
        raise OSError(f"{out / name} cannot be written ({error}): make room, then --resume") from None


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
