"""Train a baseline, fine-tune it with L0Drop, or train with L0Drop from scratch.

python -m l0drop.train --out runs/mine --data FOLDER                # aims at 47 %
python -m l0drop.train --out runs/base --l0drop none
python -m l0drop.train --out runs/l0 --init runs/base --l0drop output --l0-weight 0.3   # the paper
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
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

from .config import PRESETS, TrainConfig, held_open, l0_weight, learning_rate
from .gates import expected_gates
from .loading import Run, begin
from .model import Encoding, objective, translation_loss
from .sparsity import SparsityControl
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

    # Data, model, tokenizer.
    set_seed(config.seed)
    examples = load(config.data, "train")
    validation_examples = load(config.data, "validation")
    run = begin(config, examples)  # new, or from --init; a checkpoint's weights replace these below
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout and gates

    # Appendix A: Adam, beta1 = 0.9, beta2 = 0.98; released code: eps 1e-8. The loop sets the rate.
    optimizer = torch.optim.Adam(run.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-8)
    # `model` is `run.model` as accelerate wraps it.
    model, optimizer = accelerator.prepare(run.model, optimizer)
    items = run.encode(examples)
    validation = run.encode(validation_examples)
    batches = Batches(lengths(items), config.seed, tokens=config.batch_tokens)
    # Its own generator: starting the loader would else draw from the one that dropout uses.
    generator = torch.Generator()
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.collate, generator=generator)
    loader = accelerator.prepare(loader)
    cut = sum(item.was_cut for item in items)
    if cut and is_main:
        print(f"{cut} of {len(items)} sources are cut to --max-source {config.max_source}")

    # A checkpoint saves these beside weights, optimizer and random states. D20: `dual` sets lambda
    # where --l0-weight does not.
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
        if done < config.steps:  # a finished run that is extended has none until its end
            (out / "model.safetensors").unlink(missing_ok=True)

    accelerator.init_trackers("l0drop", vars(config))
    # An update is `accumulate` micro-batches; `Batches` never ends.
    endless = iter(accelerator.skip_first_batches(loader, done * config.accumulate))
    bar = tqdm(total=config.steps, initial=done, disable=None if is_main else True)
    for step in range(done, config.steps):
        run.model.train()
        # D19, D20: gates are held open in the first steps (of a baseline all: its lambda is 0).
        hold_open = step < dual.open_until
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(run.first_step + step + 1, run.model.width, config)
        for _ in range(config.accumulate):
            batch = next(endless)
            with accelerator.accumulate(model):
                logits, encoding = model(batch.source, batch.target_input, hold_open)
                # The share pruned, in all processes: each follows with the same lambda.
                pruned = accelerator.reduce(sparsity(encoding), "mean").item()
                if hold_open or config.l0_weight:
                    lambda_ = l0_weight(step, config)  # 0 while gates are held open
                else:
                    lambda_ = dual.follow(pruned)  # D20
                # Eq. (12), mean over the sentences of a micro-batch (D14).
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

    # D13: the weights that stay are the mean of the last checkpoints.
    last = checkpoints(out)[-config.average_last :]
    states = [load_file(path / "model.safetensors") for path in last]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    save_file(mean, out / "model.safetensors")
    run.model.load_state_dict(mean)
    report(run, validation, out)
    print(f"next: python -m {__package__}.predict {out} FILE.txt")


def lengths(items: Sequence[Item]) -> list[tuple[int, int]]:
    """Batches are sorted by the target's tokens, which `batch_tokens` counts, then the source's."""
    return [(len(item.target), len(item.source)) for item in items]


def sparsity(encoding: Encoding) -> torch.Tensor:
    """Share of source encodings that the last layer would prune at test time; 0 without gates."""
    if not encoding.log_alpha:
        return torch.zeros((), device=encoding.keep.device)
    return (expected_gates(encoding.log_alpha[-1]) == 0)[encoding.keep].float().mean()


@torch.inference_mode()
def validate(run: Run, items: Sequence[Item], hold_open: bool = False) -> dict[str, float]:
    """Validation loss and share of encodings pruned, in eval mode (expected gates).

    The loss is in nats per token, without label smoothing, averaged over sentences.
    """
    run.model.eval()
    losses = []
    pruned = tokens = 0
    for indices in Batches(lengths(items), seed=0, tokens=run.config.batch_tokens).epoch(0):
        batch = run.collate([items[index] for index in indices])
        logits, encoding = run.model(batch.source, batch.target_input, hold_open)
        losses.append(translation_loss(logits, batch.target, smoothing=0.0))
        tokens += encoding.keep.sum().item()
        if encoding.gates:
            pruned += (encoding.gates[-1] == 0)[encoding.keep].sum().item()
    return {"validation_loss": torch.cat(losses).mean().item(), "sparsity": pruned / tokens}


def report(run: Run, validation: list[Item], out: Path) -> None:
    """Print the validation loss, and what it is where each target stands beside another source."""
    pairs = zip(validation, validation[1:] + validation[:1], strict=True)
    exchanged = [item._replace(source=other.source) for item, other in pairs]
    row = validate(run, validation)
    exchanged_loss = validate(run, exchanged)["validation_loss"]
    print(
        f"{out}: {run.config.steps} updates, validation loss {row['validation_loss']:.3f}, "
        f"with the sources exchanged {exchanged_loss:.3f} (should be higher)"
    )
    if run.model.l0drop:
        print(f"{100 * row['sparsity']:.1f} % of the encodings are pruned")
        if row["sparsity"] in (0, 1):
            print(
                "all gates are open, or all are closed: leave --l0-weight out, so that lambda "
                "follows --target-sparsity, or train with more --steps"
            )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
