"""Train a run with a rule (rules.py) or with a BART (bart.py): l0drop/train.py for other models.

The two differ in how a run begins. What is the same in l0drop/train.py has its comments there.
"""

import json
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader
from tqdm import tqdm

from shared.data import Example, load
from shared.run import (
    Batches,
    check,
    check_out,
    checkpoints,
    cpu_has_bf16,
    fingerprint,
    load_weights,
    read_progress,
    save_checkpoint,
)

from ..config import TrainConfig, held_open, l0_weight, learning_rate
from ..loading import Run
from ..model import objective
from ..sparsity import SparsityControl
from ..train import lengths, report, sparsity, validate


def train(
    config: TrainConfig,
    out: Path,
    resume: bool,
    begin: Callable[[TrainConfig, Sequence[Example]], Run],
    kind: str,
) -> None:
    """Train and write the run folder `out`; `resume` continues from the last checkpoint.

    Args:
        begin: makes the run from the training data.
        kind: "rules" or "bart", whose `predict` reads the run.
    Raises:
        ValueError: bad values or data, a folder that cannot be used, a loss that is not finite.
    """
    from accelerate import Accelerator, DataLoaderConfiguration
    from accelerate.utils import GradientAccumulationPlugin, set_seed

    check(config)
    check_out(out, resume)
    # At each checkpoint it would say that a BART's tied weights are saved once.
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=config.accumulate),
        cpu=not torch.accelerator.is_available(),
        dataloader_config=DataLoaderConfiguration(even_batches=False),
        log_with=config.log_with or None,
        project_dir=out,
    )
    is_main = accelerator.is_main_process
    if config.log_with and not accelerator.log_with:
        raise ValueError(f"--log-with {config.log_with} is not installed")
    if is_main and config.mixed_precision == "no" and cpu_has_bf16():
        print("this CPU has bf16: --mixed-precision bf16 trains wide models faster")

    set_seed(config.seed)
    examples = load(config.data, "train")
    validation_examples = load(config.data, "validation")
    run = begin(config, examples)
    set_seed(config.seed, device_specific=True)

    optimizer = torch.optim.Adam(run.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-8)
    model, optimizer = accelerator.prepare(run.model, optimizer)
    items = run.encode(examples)
    validation = run.encode(validation_examples)
    batches = Batches(lengths(items), config.seed, tokens=config.batch_tokens)
    generator = torch.Generator()
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.collate, generator=generator)
    loader = accelerator.prepare(loader)
    cut = sum(item.was_cut for item in items)
    if cut and is_main:
        print(f"{cut} of {len(items)} sources are cut to --max-source {config.max_source}")

    dual = SparsityControl(config.target_sparsity, held_open(config))
    progress = {"data": fingerprint(examples), "log": []}
    done = 0
    if checkpoints(out):
        last = checkpoints(out)[-1]
        progress = read_progress(last, accelerator.num_processes, progress["data"])
        accelerator.load_state(str(last))
        dual = SparsityControl(**progress["dual"])
        done = progress["log"][-1]["step"]
    if is_main:
        out.mkdir(parents=True, exist_ok=True)
        run.write_files(out)
        if done < config.steps:  # a finished run that is extended
            (out / "model.safetensors").unlink(missing_ok=True)

    accelerator.init_trackers("l0drop", vars(config))
    endless = iter(accelerator.skip_first_batches(loader, done * config.accumulate))
    bar = tqdm(total=config.steps, initial=done, disable=None if is_main else True)
    for step in range(done, config.steps):
        run.model.train()
        hold_open = step < dual.open_until
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(run.first_step + step + 1, run.model.width, config)
        for _ in range(config.accumulate):
            batch = next(endless)
            with accelerator.accumulate(model):
                logits, encoding = model(batch.source, batch.target_input, hold_open)
                pruned = accelerator.reduce(sparsity(encoding), "mean").item()
                if hold_open or config.l0_weight:
                    lambda_ = l0_weight(step, config)  # 0 behind a rule
                else:
                    lambda_ = dual.follow(pruned)
                loss = objective(logits, batch.target, encoding, lambda_).mean()
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()

        row = {"step": step + 1, "loss": loss.item(), "lambda": lambda_}
        if not math.isfinite(row["loss"]):
            raise ValueError(
                f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint"
            )
        bar.set_postfix(loss=f"{row['loss']:.3f}", pruned=f"{100 * pruned:.0f} %", refresh=False)
        bar.update()
        if row["step"] % config.save_every == 0 or row["step"] == config.steps:
            row |= validate(run, validation, hold_open)
            dual.correct(config.target_sparsity, row["sparsity"])
            progress["log"].append(row)
            progress["dual"] = vars(dual)
            save_checkpoint(accelerator, out, progress, keep=config.average_last)
            accelerator.log(row, step=row["step"])
            if is_main:
                bar.write(json.dumps(row))
    bar.close()
    accelerator.end_training()
    if not is_main:
        return

    last = checkpoints(out)[-config.average_last :]
    states = [load_file(path / "model.safetensors") for path in last]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    save_file(mean, out / "model.safetensors")
    load_weights(run.model, out / "model.safetensors")  # where tied weights stand once
    report(run, validation, out)
    print(f"next: python -m {__package__}.{kind} predict {out} FILE.txt")
