"""Train the tagger that says what to mask (Section 5).

python -m head_masking.train --out runs/tagger                                                   #
    toy, a new encoder

python -m head_masking.train --out runs/tagger --data FOLDER --preset pretrained --encoder
    roberta-base

The run folder holds config.json, log.jsonl, checkpoints/, model/ (the encoder's configuration and
the tokenizer) and model.safetensors, the weights of encoder and perceptron.
"""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from tqdm import tqdm

from shared.run import RunFolder, one_line_errors, parse, setup, write_weights

from .config import PRESETS, TrainConfig, learning_rate
from .loading import WEIGHTS, Run, begin, load_examples, load_run
from .tagger import best_threshold, tagging_loss, token_f1
from .text import Item, length


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same
    bits.

    ValueError: bad values or data, a folder that cannot be used, a loss that is not finite.
    """
    load = partial(load_examples, count=config.examples)
    final = "" if config.patience else WEIGHTS  # the best ones stay
    made = setup(
        config, Path(out), resume, begin, load_run, partial(adam, config), length, load, final
    )
    accelerator, run, model, optimizer = made[:4]
    save_every = config.save_every or epoch(len(made.training), config, accelerator.num_processes)
    with made.folder as folder:
        done = folder.progress["step"]
        batches = iter(accelerator.skip_first_batches(made.loader, done * config.accumulate))
        hidden = not accelerator.is_main_process or None  # None: where there is no terminal
        for step in (
            bar := tqdm(range(done, config.steps), initial=done, total=config.steps, disable=hidden)
        ):
            if config.patience and folder.since_best() >= config.patience:
                break
            model.train()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            for _ in range(config.accumulate):
                batch = next(batches)
                with accelerator.accumulate(model):
                    # Appendix A: cross-entropy of the labels. D13: a batch's mean, so an update's
                    # is a mean of means.
                    loss = tagging_loss(
                        model(batch.ids, batch.keep).float(), batch.labels, batch.keep
                    )
                    accelerator.backward(loss)
                    if config.clip and accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), config.clip)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item(), "lr": learning_rate(step, config)}
            if not math.isfinite(row["loss"]):
                raise ValueError(
                    f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint"
                )
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if row["step"] % save_every == 0 or row["step"] == config.steps:
                row |= validate(run, made.validation)
                if config.patience:
                    folder.keep_best(row, partial(write_weights, run.model))
                folder.save_checkpoint(row)
        if config.patience:
            folder.take_best(WEIGHTS)
        else:
            folder.write(WEIGHTS, partial(write_weights, run.model))
    if accelerator.is_main_process:
        report(kept_row(folder, config), folder.path)


def adam(config: TrainConfig, model: torch.nn.Module) -> torch.optim.Optimizer:
    """Released code: Adam with betas (0.9, 0.999), eps 1e-8. The loop sets the rate."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        trained, lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=config.weight_decay
    )


def epoch(examples: int, config: TrainConfig, processes: int = 1) -> int:
    """Updates in which each document is seen once."""
    return -(-examples // (config.batch_size * config.accumulate * processes))


@torch.no_grad()
def validate(run: Run, items: Sequence[Item]) -> dict[str, float]:
    """Mean loss of all tokens in eval mode, and the best decision boundary, which the tagger keeps,
    with its F1.
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
        # a tagger that selects everything
        "f1_of_all": 100 * token_f1(torch.ones_like(scores), labels, 0.0),
    }


def kept_row(folder: RunFolder, config: TrainConfig) -> dict:
    """The row of the log whose weights the run keeps: the last or, with early stopping, the
    best.
    """
    rows = [row for row in folder.progress["log"] if "validation_loss" in row]
    return rows[-1 - folder.since_best()] if config.patience else rows[-1]


def report(kept: dict, out: Path) -> None:
    """Say what came out, whether the tagger tells words apart, and what to do next."""
    f1, f1_of_all = kept["token_f1"], kept["f1_of_all"]
    print(f"{out}: {kept['step']} steps, validation loss {kept['validation_loss']:.3f}")
    print(
        f"token F1 {f1:.1f} above {kept['threshold']:.2f}; if all tokens were selected "
        f"{f1_of_all:.1f}"
    )
    if f1 < f1_of_all + 1:
        print(
            "its masks are as good as none: train longer, on more data, or with --encoder "
            "roberta-base"
        )
    print(
        f"next, with a BART that learned such data: python -m {__package__}.predict BART FILE.txt "
        f"--tagger {out} --both"
    )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
