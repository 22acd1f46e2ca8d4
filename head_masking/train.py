"""Train the tagger of Cao and Wang (2021), Section 5: which source words will a summary take?

Words that it does not select are hidden from cross-attention heads of a summariser: masking.py does
that, predict.py uses it. D12 and the like are deviations from the paper, listed in PAPER.md.

python -m head_masking.train --out runs/tagger        # toy, a new encoder
python -m head_masking.train --out runs/tagger --data DIR --preset pretrained --encoder roberta-base

The run folder holds config.json, log.jsonl, checkpoints/, model/ (the encoder's configuration and
the tokenizer) and model.safetensors, the weights of encoder and perceptron.
"""

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader
from tqdm import tqdm

from shared.data import load
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
from .tagger import best_threshold, tagging_loss, token_f1
from .text import Item


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

    # Data, tagger, tokenizer.
    set_seed(config.seed)
    examples = load(config.data, "train", config.examples or None)
    validation_examples = load(config.data, "validation")
    run = begin(config, examples)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout

    # Appendix A: Adam; released code: beta1 = 0.9, beta2 = 0.999, eps 1e-8, and weight decay, here
    # that of AdamW. The loop sets the rate.
    optimizer = torch.optim.AdamW(
        [parameter for parameter in run.model.parameters() if parameter.requires_grad],
        lr=0.0,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=config.weight_decay,
    )
    model, optimizer = accelerator.prepare(run.model, optimizer)  # model: run.model, wrapped
    items = run.encode(examples)
    validation = run.encode(validation_examples)
    batches = Batches([len(item.ids) for item in items], config.seed, size=config.batch_size)
    # Its own generator: starting the loader would else draw from the one that dropout uses.
    generator = torch.Generator()
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.collate, generator=generator)
    loader = accelerator.prepare(loader)
    cut = sum(item.was_cut for item in items)
    if cut and is_main:
        print(f"{cut} of {len(items)} documents are cut to --max-source {config.max_source}")

    # A checkpoint saves this beside weights, optimizer and random states.
    progress = {"data": fingerprint(examples), "log": []}
    done = 0
    if checkpoints(out):
        last = checkpoints(out)[-1]
        progress = read_progress(last, accelerator.num_processes, progress["data"])
        accelerator.load_state(str(last))
        done = progress["log"][-1]["step"]
    weights_path, best_path = out / "model.safetensors", out / "best.safetensors"
    if is_main:
        out.mkdir(parents=True, exist_ok=True)
        run.write_files(out)
        if done < config.steps and not config.patience:
            weights_path.unlink(missing_ok=True)  # of a finished run that is extended

    accelerator.init_trackers("head_masking", vars(config))
    epoch = updates_per_epoch(len(items), config, accelerator.num_processes)
    save_every = config.save_every or epoch
    endless = iter(accelerator.skip_first_batches(loader, done * config.accumulate))
    bar = tqdm(total=config.steps, initial=done, disable=None if is_main else True)
    for step in range(done, config.steps):
        if config.patience and since_best(progress["log"]) >= config.patience:
            break
        run.model.train()
        rate = learning_rate(step, config)
        for group in optimizer.param_groups:
            group["lr"] = rate
        for _ in range(config.accumulate):
            batch = next(endless)
            with accelerator.accumulate(model):
                logits = model(batch.ids, batch.keep).float()
                # Appendix A: binary cross-entropy of each token's label, a mean over a micro-batch.
                # An update averages the micro-batch means (D13).
                loss = tagging_loss(logits, batch.labels, batch.keep)
                accelerator.backward(loss)
                if config.clip and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), config.clip)
                optimizer.step()
                optimizer.zero_grad()

        row = {"step": step + 1, "loss": loss.item(), "lr": rate}
        if not math.isfinite(row["loss"]):
            raise ValueError(
                f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint"
            )
        bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
        bar.update()
        if row["step"] % save_every == 0 or row["step"] == config.steps:
            row |= validate(run, validation)
            # The same number in all processes, which decide by it when to stop.
            own = torch.tensor(row["validation_loss"], device=accelerator.device)
            row["validation_loss"] = accelerator.reduce(own, "mean").item()
            progress["log"].append(row)
            is_best = math.isfinite(row["validation_loss"]) and since_best(progress["log"]) == 0
            if is_main and config.patience and is_best:
                # Before the checkpoint: after a kill in between, the resume writes it again.
                save_file(run.model.state_dict(), best_path)
            save_checkpoint(accelerator, out, progress)
            accelerator.log(row, step=row["step"])
            if is_main:
                bar.write(json.dumps(row))
    bar.close()
    accelerator.end_training()
    if not is_main:
        return

    # The weights that stay are the last ones or, with early stopping, the best.
    kept = progress["log"][-1]
    if not config.patience:
        save_file(run.model.state_dict(), weights_path)
    else:
        kept = progress["log"][-1 - since_best(progress["log"])]
        if best_path.exists():  # a finished run has it under its name already
            os.replace(best_path, weights_path)
    report(kept, out)


def updates_per_epoch(documents: int, config: TrainConfig, processes: int = 1) -> int:
    """Updates in which each document is seen once."""
    return math.ceil(documents / (config.batch_size * config.accumulate * processes))


def since_best(rows: Sequence[dict]) -> int:
    """Number of validations since the lowest loss (the first on ties)."""
    losses = [row["validation_loss"] for row in rows]
    return len(losses) - 1 - losses.index(min(losses)) if losses else 0


@torch.no_grad()
def validate(run: Run, items: Sequence[Item]) -> dict[str, float]:
    """Set the tagger's threshold to the best decision boundary (Section 5), and measure.

    Returns:
        The mean loss of all tokens in eval mode, the threshold, its F1, that of selecting all.
    """
    run.model.eval()
    logits, labels = [], []
    for first in range(0, len(items), run.config.batch_size):
        batch = run.collate(items[first : first + run.config.batch_size])
        logits.append(run.model(batch.ids, batch.keep)[batch.keep].float())
        labels.append(batch.labels[batch.keep])
    logits, labels = torch.cat(logits).cpu(), torch.cat(labels).cpu()
    scores = logits.sigmoid()
    threshold, f1 = best_threshold(scores, labels)
    run.model.threshold.fill_(threshold)
    return {
        "validation_loss": tagging_loss(logits, labels, torch.ones_like(labels)).item(),
        "threshold": threshold,
        "token_f1": 100 * f1,
        "f1_of_all": 100 * token_f1(torch.ones_like(scores), labels, 0.0),
    }


def report(kept: dict, out: Path) -> None:
    """Print the kept row of the log beside what selecting every token would give."""
    print(f"{out}: {kept['step']} updates, validation loss {kept['validation_loss']:.3f}")
    print(
        f"token F1 {kept['token_f1']:.1f} (threshold {kept['threshold']:.2f}); selecting every "
        f"token gives {kept['f1_of_all']:.1f}"
    )
    print(
        f"next, with a BART fine-tuned on the same data: python -m {__package__}.predict BART "
        f"FILE.txt --tagger {out} --both"
    )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
