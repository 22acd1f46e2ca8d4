"""Train the systems of Manakul & Gales (2021): a decoder that reads few sentences at each step.

python -m encdec_sentence_sparse.train --out runs/base --model facebook/bart-base --data FOLDER
python -m encdec_sentence_sparse.train --task kl --init runs/base --out runs/kl --steps 500
python -m encdec_sentence_sparse.train --task integrated --init runs/kl --out runs/apx
python -m encdec_sentence_sparse.train --task sparse --init runs/base --out runs/sparse --steps 300

base: a BART learns to summarise, by cross-entropy. kl: a map that predicts which sentences the
decoder will attend to learns alone, Eq. (11). integrated: decoder and map learn together while the
decoder reads only what is selected, Eq. (12). sparse: the BART learns to attend to few sentences,
Eq. (5). D6, D14, ...: deviations, which PAPER.md lists.
"""

import json
import logging
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers.utils.logging import disable_progress_bar

from shared.data import load
from shared.run import (
    Batches,
    check,
    check_out,
    checkpoints,
    cpu_has_bf16,
    fingerprint,
    load_weights,
    one_line_errors,
    parse,
    read_progress,
    save_checkpoint,
)

from .config import PRESETS, TrainConfig, choose_selection, learning_rate
from .loading import WEIGHTS, Run, begin
from .model import freeze
from .selection import Selection, attention_held, objective, sentences_of
from .text import Batch, Item


def train(config: TrainConfig, out: Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` continues from the last checkpoint.

    A training that was killed and resumed ends with the same bits (one process, on a CPU).

    Raises:
        ValueError: bad values or data, a folder that cannot be used, a loss that is not finite.
    """
    from accelerate import Accelerator, DataLoaderConfiguration
    from accelerate.utils import GradientAccumulationPlugin, broadcast_object_list, set_seed

    check(config)
    check_out(out, resume)
    # Silence two messages per checkpoint: about BART's tied weights, and a progress bar.
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    disable_progress_bar()
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

    # Data, model, tokenizer.
    set_seed(config.seed)
    examples = load(config.data, "train")
    validation_examples = load(config.data, "validation")
    run = begin(config, examples)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout

    # A.3: Adam; released code: its betas and eps. The loop sets the rate.
    freeze(run.model, config.task)
    learning = [parameter for parameter in run.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learning, lr=0.0, betas=(0.9, 0.999), eps=1e-8)
    # `model` is `run.model` as accelerate wraps it.
    model, optimizer = accelerator.prepare(run.model, optimizer)
    items = run.encode(examples)
    validation = run.encode(validation_examples)
    batches = Batches([len(item.ids) for item in items], config.seed, size=config.batch_size)
    # Its own generator: starting the loader would else draw from the one that dropout uses.
    generator = torch.Generator()
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.collate, generator=generator)
    loader = accelerator.prepare(loader)
    if is_main:
        say_what_is_cut(config, items)

    # A checkpoint saves this beside weights, optimizer and random states.
    progress = {"data": fingerprint(examples), "log": []}
    done = 0
    if checkpoints(out):
        last = checkpoints(out)[-1]
        progress = read_progress(last, accelerator.num_processes, progress["data"])
        accelerator.load_state(str(last))
        done = progress["log"][-1]["step"]
    if is_main:
        out.mkdir(parents=True, exist_ok=True)
        run.write_files(out)
        if done < config.steps and not config.patience:
            (out / WEIGHTS).unlink(missing_ok=True)  # of a finished run that is extended

    accelerator.init_trackers("encdec_sentence_sparse", vars(config))
    # An update is `accumulate` micro-batches; `Batches` never ends.
    endless = iter(accelerator.skip_first_batches(loader, done * config.accumulate))
    bar = tqdm(total=config.steps, initial=done, disable=None if is_main else True)
    for step in range(done, config.steps):
        if config.patience and since_best(progress["log"]) >= config.patience:
            break
        run.model.train()  # D14: dropout stays on in frozen parts as well (released code)
        selection = choose_selection(config, step)  # all sentences, but in task integrated
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        for _ in range(config.accumulate):
            batch = next(endless)
            with accelerator.accumulate(model):
                # base: cross-entropy; sparse: Eq. (5); kl: Eq. (11); integrated: Eq. (12).
                # D18: a mean over the target tokens of a micro-batch.
                losses = batch_losses(model, batch, config, selection)
                accelerator.backward(losses["loss"])
                if config.clip and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), config.clip)
                optimizer.step()
                optimizer.zero_grad()

        row = {"step": step + 1} | {name: loss.item() for name, loss in losses.items()}
        if not math.isfinite(row["loss"]):
            raise ValueError(
                f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint"
            )
        bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
        bar.update()
        if row["step"] % config.save_every == 0 or row["step"] == config.steps:
            row |= validate(run, validation)
            # The main process's numbers for all, so that --patience ends all at the same update.
            [row] = broadcast_object_list([row])
            progress["log"].append(row)
            is_best = math.isfinite(row["validation_loss"]) and since_best(progress["log"]) == 0
            if is_main and config.patience and is_best:
                # Before the checkpoint: after a kill in between, the resume does this again.
                run.model.save_pretrained(out / "best")
            save_checkpoint(accelerator, out, progress)
            accelerator.log(row, step=row["step"])
            if is_main:
                bar.write(json.dumps(row))
    bar.close()
    accelerator.end_training()
    if not is_main:
        return

    row = progress["log"][-1]
    if config.patience:
        # A.3: the weights of the best validation stay.
        row = progress["log"][-1 - since_best(progress["log"])]
        if (out / "best").exists():  # absent if the run had already finished
            shutil.rmtree(out / "model", ignore_errors=True)
            os.replace(out / "best", out / "model")
        load_weights(run.model, out / WEIGHTS)
    else:
        run.model.save_pretrained(out / "model")
    report(run, validation, row, out)


def since_best(log: Sequence[dict]) -> int:
    """Number of validations since the lowest loss (the first on ties)."""
    losses = [row["validation_loss"] for row in log]
    return len(losses) - 1 - losses.index(min(losses)) if losses else 0


def batch_losses(
    model: nn.Module, batch: Batch, config: TrainConfig, selection: Selection
) -> dict[str, Tensor]:
    """The loss of a batch and its parts, see `selection.objective`."""
    record = None if config.task == "base" else []  # the model appends a SentenceAttention a layer
    output = model(**batch.source(), labels=batch.labels, selection=selection, record=record)
    exists = sentences_of(batch.sentence_ids, batch.attention_mask).exists
    is_step = batch.labels != -100
    weights = config.gamma, config.kl_weight
    return objective(config.task, output.loss, record, is_step, exists, *weights)


@torch.no_grad()
def validate(run: Run, items: Sequence[Item]) -> dict[str, float]:
    """The losses, means over target tokens, in eval mode; each process evaluates the whole set."""
    run.model.eval()
    config = run.config
    # As at the last update: --select mix has become approx, the map's own choice.
    selection = choose_selection(config, config.steps)
    by_length = sorted(items, key=lambda item: len(item.ids))
    tokens = sum(len(item.target) for item in items)
    totals = {}
    for first in range(0, len(items), config.batch_size):
        batch = run.collate(by_length[first : first + config.batch_size])
        share = (batch.labels != -100).sum().item() / tokens
        for name, loss in batch_losses(run.model, batch, config, selection).items():
            name = f"validation_{name}"
            totals[name] = totals.get(name, 0.0) + loss.item() * share
    return totals


@torch.no_grad()
def held_by_sentences(run: Run, items: Sequence[Item]) -> tuple[float, float]:
    """Share of attention that falls on r sentences: the best r, and the r that the map picks.

    Means over layers and target tokens, under full attention.
    """
    run.model.eval()
    shares = []
    for item in items:
        batch = run.collate([item])
        record = []  # gets a SentenceAttention of each layer
        run.model(**batch.source(), labels=batch.labels, record=record)
        exists = sentences_of(batch.sentence_ids, batch.attention_mask).exists
        layers = [attention_held(layer, exists, run.config.r)[0] for layer in record]  # (T, 2)
        shares.append(torch.stack(layers).mean(0))
    best, learned = torch.cat(shares).mean(0).tolist()
    return best, learned


def say_what_is_cut(config: TrainConfig, items: Sequence[Item]) -> None:
    """D9: report how many documents and summaries are truncated."""
    sources = sum(item.was_cut for item in items)
    targets = sum(item.target_was_cut for item in items)
    if sources:
        print(f"{sources} of {len(items)} documents are cut to --max-source {config.max_source}")
    if targets:
        print(f"{targets} of {len(items)} summaries are cut to --max-target {config.max_target}")


def report(run: Run, validation: list[Item], row: dict, out: Path) -> None:
    """Say what came out, and what the loss is where each summary stands beside another document."""
    print(f"{out}: {row['step']} updates, validation loss {row['validation_loss']:.3f}", end="")
    if run.config.task == "kl":
        print()  # a map is compared with attention, whatever the document
    else:
        pairs = zip(validation, validation[1:] + validation[:1], strict=True)
        exchanged = [other._replace(target=item.target) for item, other in pairs]
        exchanged_loss = validate(run, exchanged)["validation_loss"]
        print(f", with the documents exchanged {exchanged_loss:.3f} (should be higher)")
    if run.config.task in ("kl", "integrated"):
        best, learned = held_by_sentences(run, validation[:200])
        print(
            f"the best {run.config.r} sentences hold {best:.3f} of the attention, those that the "
            f"map picks {learned:.3f}"
        )
    if run.config.task == "base":
        task = f"--task kl --init {out} --out {out}-kl"
        print(f"next: python -m {__package__}.train {task}   # a map that chooses sentences")
    else:
        print(f"next: python -m {__package__}.predict {out} --split validation")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
