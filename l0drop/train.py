"""Train a baseline, fine-tune it with L0Drop, or train with L0Drop from scratch.

python -m l0drop.train --out runs/base --l0drop none
python -m l0drop.train --out runs/l0 --init runs/base --l0drop output --l0-weight 0.3
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch.utils.data import DataLoader
from tqdm import tqdm

from shared.data import load

from .config import PRESETS, TrainConfig, l0_weight, learning_rate
from .loading import Run, begin, load_run
from .model import Encoding, objective, translation_loss
from .run import fingerprint, holds_run, one_line_errors, parse, save_checkpoint, training, write_config
from .text import Item, TokenBatches


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
    examples, validation = load(config.data, "train"), load(config.data, "validation")
    start = load_run(out) if exists else begin(config, examples)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout and gates
    items, validation = start.encode(examples), start.encode(validation)
    batches = TokenBatches(items, config.batch_tokens, config.seed)
    # The loader's own generator, or starting it would draw from the one that dropout and gates draw from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=start.collate, generator=torch.Generator())
    # Appendix A: Adam, beta1 = 0.9, beta2 = 0.98; released code: eps 1e-8. A frozen model's weights have no gradient.
    optimizer = torch.optim.Adam(start.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-8)
    model, optimizer, loader = accelerator.prepare(start.model, optimizer, loader)
    counts = {"step": 0, "examples": len(items), "sources_cut": sum(item.was_cut for item in items)}
    new, keep = {"step": 0, "log": [counts], "data": fingerprint(examples)}, config.average_last
    with (
        training(accelerator, out, config, new, start.write_files, exists, keep) as progress,
        tqdm(total=config.steps, initial=progress["step"], disable=not accelerator.is_main_process) as bar,
    ):
        stream = iter(accelerator.skip_first_batches(loader, progress["step"] * config.accumulate))
        for step in range(progress["step"], config.steps):
            weight = l0_weight(step, config)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config, start.first_step, start.model.width)
            for layer in start.model.l0drop:
                layer.held_open = step < config.l0_start  # D19
            model.train()
            for _ in range(config.accumulate):
                batch = next(stream)
                with accelerator.accumulate(model):
                    logits, encoding = model(batch.source, batch.target_input, batch.rule_keep)
                    # Eq. (12), mean over the sentences of a micro-batch (D14).
                    options = config.label_smoothing, config.l0_reduction, start.model.special[0]
                    loss = objective(logits, batch.target, encoding, weight, *options).mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item(), "lambda": weight, "zero": share_of_zeros(encoding)}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", zero=f"{row['zero']:.2f}", refresh=False)
            if row["step"] % config.save_every == 0 or row["step"] == config.steps:
                row["validation_loss"] = validation_loss(start, validation)
                progress |= {"step": row["step"], "log": [*progress["log"], row]}
                save_checkpoint(accelerator, out, progress, keep)
    if accelerator.is_main_process:
        averaged = ", ".join(map(str, save_average(out, config)))
        print(f"{out}: {progress['step']} steps, validation loss {progress['log'][-1]['validation_loss']:.3f}")
        print(f"model.safetensors: the mean of the checkpoints of step {averaged}")
        print(f"next: python -m {__package__}.evaluate {out}")


def share_of_zeros(encoding: Encoding) -> float:
    """Share of a batch's source encodings whose gate is exactly 0."""
    return (encoding.gates[-1] == 0)[encoding.keep].float().mean().item() if encoding.gates else 0.0


@torch.inference_mode()
def validation_loss(run: Run, items: Sequence[Item]) -> float:
    """Unsmoothed nats per token, mean over sentences, in eval mode (expected gates)."""
    run.model.eval()
    losses = []
    for indices in TokenBatches(items, run.config.batch_tokens, seed=0).epoch(0):
        batch = run.collate([items[i] for i in indices])
        logits, _ = run.model(batch.source, batch.target_input, batch.rule_keep)
        losses.append(translation_loss(logits, batch.target, smoothing=0.0, pad=run.model.special[0]))
    return torch.cat(losses).mean().item()


def save_average(out: Path, config: TrainConfig) -> list[int]:
    """Write model.safetensors, the mean of the last checkpoints (D13), and note their steps beside the config."""
    folders = sorted((out / "checkpoints").glob("[0-9]*"))[-config.average_last :]
    steps, states = [int(folder.name) for folder in folders], [load_file(f / "model.safetensors") for f in folders]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    (out / "unfinished").write_bytes(save(mean))
    os.replace(out / "unfinished", out / "model.safetensors")
    write_config(out, config, averaged=steps)
    return steps


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
