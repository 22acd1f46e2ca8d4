"""Train a baseline, fine-tune it with L0Drop, or train with L0Drop from scratch.

python -m l0drop.train --out runs/mine --data FOLDER                                       # prunes 47 %
python -m l0drop.train --out runs/base --l0drop none
python -m l0drop.train --out runs/l0 --init runs/base --l0drop output --l0-weight 0.3      # the paper's fine-tuning
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import DataLoader
from tqdm import tqdm

try:
    from shared.data import load
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared.run import RunFolder, check, check_folder, one_line_errors, parse, share, training

from .config import PRESETS, TrainConfig, follow, holds_open, l0_weight, learning_rate
from .gates import expected_gates
from .loading import Run, begin, load_run
from .model import Encoding, objective, translation_loss
from .text import Items, TokenBatches

REMEDY = "if that stays so, leave --l0-weight out, so that lambda follows --target-sparsity"


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    ValueError for bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    from accelerate import Accelerator, DataLoaderConfiguration  # here, for --help answers without it
    from accelerate.utils import set_seed

    check(config)
    out, begun = Path(out), check_folder(Path(out), resume)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.accumulate,
        cpu=not torch.accelerator.is_available(),  # or several processes would each believe to be alone
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )
    set_seed(config.seed)
    data = {split: load(config.data, split) for split in ("train", "validation")}
    start = load_run(out) if begun else begin(config, data["train"])
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout and gates
    items, validation = share(accelerator, start.encode(data["train"])), start.encode(data["validation"])
    batches = TokenBatches(items, config.batch_tokens, config.seed)
    # The loader's own generator, or starting it would draw from the one that dropout and gates draw from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=start.collate, generator=torch.Generator())
    # Appendix A: Adam, beta1 = 0.9, beta2 = 0.98; released code: eps 1e-8.
    optimizer = torch.optim.Adam(start.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-8)
    model, optimizer, loader = accelerator.prepare(start.model, optimizer, loader)
    counts = {"step": 0, "examples": len(items), "sources_cut": sum(items[i].was_cut for i in range(len(items)))}
    target = {"multiplier": 0.0, "aim": config.target_sparsity, "pruned": 0.0}  # D20
    settings = {"first": counts, "keep": config.average_last} | target
    with (
        training(accelerator, out, config, start.write_files, begun, data, **settings) as folder,
        tqdm(total=config.steps, disable=None if accelerator.is_main_process else True) as bar,
    ):
        bar.update(folder.progress["step"])
        del data  # the token ids are all that is needed
        follows_target = start.model.l0drop and not config.l0_weight  # D20
        stream = iter(accelerator.skip_first_batches(loader, folder.progress["step"] * config.accumulate))
        for step in range(folder.progress["step"], config.steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config, start.first_step, start.model.width)
            for layer in start.model.l0drop:
                layer.held_open = holds_open(step, config)  # D19, D20
            model.train()
            for _ in range(config.accumulate):
                batch = next(stream)
                with accelerator.accumulate(model):
                    logits, encoding = model(batch.source, batch.target_input, batch.rule_keep)
                    weight = l0_weight(step, config)
                    if follows_target and not holds_open(step, config):
                        state, pruned = folder.progress, accelerator.reduce(sparsity(encoding), "mean").item()
                        state["pruned"] += (pruned - state["pruned"]) / 20
                        state["multiplier"], weight = follow(state["multiplier"], state["aim"] - pruned)
                    # Eq. (12), mean over the sentences of a micro-batch (D14).
                    options = config.label_smoothing, config.l0_reduction, start.model.special[0]
                    loss = objective(logits, batch.target, encoding, weight, *options).mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item(), "lambda": weight}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", pruned=folder.progress["log"][-1].get("sparsity"), refresh=False)
            if row["step"] % config.save_every == 0 or row["step"] == config.steps:
                row |= validate(start, validation)
                if follows_target and not holds_open(step, config):  # batches may be pruned more than validation
                    folder.progress["aim"] = config.target_sparsity + folder.progress["pruned"] - row["sparsity"]
                if start.model.l0drop and row["sparsity"] in (0, 1) and not holds_open(step, config):
                    tqdm.write(f"step {row['step']}: every gate is {'closed' if row['sparsity'] else 'open'}: {REMEDY}")
                folder.save_checkpoint(row)
        averaged = save_average(folder, config)
    if accelerator.is_main_process:
        report(start, validation, folder, averaged)


def sparsity(encoding: Encoding) -> torch.Tensor:
    """Share of a batch's source encodings that the last layer would prune at test time."""
    return (expected_gates(encoding.log_alpha[-1]) == 0)[encoding.keep].float().mean()


@torch.inference_mode()
def validate(run: Run, items: Items, shift: int = 0) -> dict[str, float]:
    """Unsmoothed nats per token, mean over sentences, and share of encodings pruned, in eval mode (expected gates).

    Args:
        shift: give each target the source of the example so many places before it in its batch.
    """
    run.model.eval()
    losses, pruned, tokens = [], 0, 0
    for indices in TokenBatches(items, run.config.batch_tokens, seed=0).epoch(0):
        batch = run.collate([items[i] for i in indices])
        source, rule_keep = batch.source.roll(shift, 0), batch.rule_keep.roll(shift, 0)
        logits, encoding = run.model(source, batch.target_input, rule_keep)
        losses.append(translation_loss(logits, batch.target, smoothing=0.0, pad=run.model.special[0]))
        pruned += (encoding.gates[-1] == 0)[encoding.keep].sum().item() if encoding.gates else 0
        tokens += encoding.keep.sum().item()
    return {"validation_loss": torch.cat(losses).mean().item(), "sparsity": pruned / tokens}


def save_average(folder: RunFolder, config: TrainConfig) -> list[int]:
    """Write model.safetensors, the mean of the last checkpoints (D13); returns their steps."""
    paths = sorted((folder.path / "checkpoints").glob("[0-9]" * 8))[-config.average_last :]
    states = [load_file(path / "model.safetensors") for path in paths]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    folder.write("model.safetensors", lambda path: save_file(mean, path))
    return [int(path.name) for path in paths]


def report(run: Run, validation: Items, folder: RunFolder, averaged: list[int]) -> None:
    """Say what came out, and what is wrong with it; what to do next."""
    last, other = folder.progress["log"][-1], validate(run, validation, shift=1)["validation_loss"]
    steps = f"{last['step']} steps (weights: mean of {', '.join(map(str, averaged))})"
    print(f"{folder.path}: {steps}, validation loss {last['validation_loss']:.3f}, with sources exchanged {other:.3f}")
    if run.model.l0drop:
        print(f"{100 * last['sparsity']:.1f} % of the encodings are pruned")
    if other - last["validation_loss"] < 0.05:
        print("the model does not read its source: train longer, on more data or with a higher --learning-rate")
    print(f"next: python -m {__package__}.evaluate {folder.path}")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
