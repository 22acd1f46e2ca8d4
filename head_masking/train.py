"""Train a summariser to be masked, or a tagger that says what to mask.

python -m head_masking.train --out runs/hm-base

python -m head_masking.train --preset tagger --out runs/hm-tagger --encoder runs/hm-base

The run folder holds config.json, log.jsonl, checkpoints/ and model/, the tokenizer in it: of a summariser a folder that
transformers loads, of a tagger its encoder's config; a tagger's own weights, encoder included, are model.safetensors.
"""

import logging
import math
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from tqdm import tqdm

try:
    from shared.data import load
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared.run import RunFolder, check, check_folder, one_line_errors, parse, share, training

from .config import PRESETS, TrainConfig, learning_rate
from .loading import WEIGHTS, Run, begin, load_run
from .tagger import best_threshold, tagging_loss
from .text import Items, LengthBatches

BEST = "best.safetensors"  # of a run that may stop early


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    ValueError for bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    from accelerate import Accelerator, DataLoaderConfiguration
    from accelerate.utils import set_seed
    from transformers import DataCollatorForSeq2Seq

    check(config)
    out, begun = Path(out), check_folder(Path(out), resume)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.accumulate,
        cpu=not torch.accelerator.is_available(),  # or several processes would each believe to be alone
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )
    set_seed(config.seed)
    examples, checked = load(config.data, "train", config.examples or None), load(config.data, "validation")
    start = load_run(out)._replace(config=config) if begun else begin(config, examples)
    (items, cut), (validation, _) = share(accelerator, start.encode(examples)), start.encode(checked)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    batches, to_batch = LengthBatches(items, config.batch_size, config.seed), DataCollatorForSeq2Seq(start.tokenizer)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=to_batch, generator=torch.Generator())
    trained = [parameter for parameter in start.model.parameters() if parameter.requires_grad]
    # Released code: Adam with betas (0.9, 0.999), eps 1e-8.
    optimizer = torch.optim.AdamW(trained, lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=config.weight_decay)
    model, optimizer, loader = accelerator.prepare(start.model, optimizer, loader)
    epoch = -(-len(items) // (config.batch_size * config.accumulate * accelerator.num_processes))  # updates
    data, first = {"training": examples, "validation": checked}, {"step": 0, "examples": len(items), "sources_cut": cut}
    with training(accelerator, out, config, start.write_files, begun, data, first) as folder:
        del examples, checked, data  # of a large corpus more than its tokens take
        step = folder.progress["step"]
        stream = iter(accelerator.skip_first_batches(loader, step * config.accumulate))
        silent = None if accelerator.is_main_process else True  # None: silent where standard error is no terminal
        bar = tqdm(range(step, config.steps), initial=step, total=config.steps, disable=silent)
        for step in bar:
            if config.patience and without_gain(folder.progress["log"]) >= config.patience:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            model.train()
            for _ in range(config.accumulate):
                batch = next(stream)
                with accelerator.accumulate(model):
                    logits = forward(model, batch, config.task)
                    loss = objective(logits, batch, config.task, config.label_smoothing)  # Section 5, Appendix A
                    accelerator.backward(loss)
                    if config.clip and accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(trained, config.clip)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item(), "lr": learning_rate(step, config)}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if row["step"] % (config.save_every or epoch) == 0 or row["step"] == config.steps:
                row |= validate(start.model, validation, config.task, config.batch_size, to_batch)
                if config.patience and not without_gain([*folder.progress["log"], row]):
                    folder.write(BEST, lambda path: write_weights(start.model, path))
                folder.save_checkpoint(row)
        exchanged = validate(start.model, validation, config.task, config.batch_size, to_batch, exchange=True)
        finish(start, folder, exchanged["validation_loss"])


def forward(model: nn.Module, batch: Mapping[str, Tensor], task: str) -> Tensor:
    """Logits of the summaries' tokens (B, T, V), or of the source tokens' labels (B, S)."""
    if task == "tagger":
        return model(batch["input_ids"], batch["attention_mask"].bool()).float()
    return model(**batch).logits.float()


def objective(logits: Tensor, batch: Mapping[str, Tensor], task: str, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of the summaries' tokens, or of the source tokens' labels (Appendix A); D13: a batch's mean."""
    if task == "tagger":
        return tagging_loss(logits, batch["labels"] == 1, batch["attention_mask"].bool())
    return F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), label_smoothing=smoothing)


@torch.no_grad()
def validate(
    model: nn.Module, items: Items, task: str, batch_size: int, to_batch: Callable, exchange: bool = False
) -> dict[str, float]:
    """Mean loss of all tokens in eval mode; of a tagger also the best decision boundary, which it keeps, and its F1.

    `exchange` gives each summary the source of another document of its batch.
    """
    model.eval()
    device, total, tokens, scores, labels = next(model.parameters()).device, 0.0, 0, [], []
    for start in range(0, len(items), batch_size):
        batch = to_batch([items[i] for i in range(start, min(start + batch_size, len(items)))]).to(device)
        if exchange and task == "summarizer":
            batch.update({name: batch[name].roll(1, 0) for name in ("input_ids", "attention_mask")})
        logits, is_label = forward(model, batch, task), batch["labels"] != -100
        total += objective(logits, batch, task).item() * is_label.sum().item()
        tokens += is_label.sum().item()
        if task == "tagger":
            scores.append(logits[is_label].sigmoid().cpu())
            labels.append(batch["labels"][is_label].cpu() == 1)
    if task == "summarizer":
        return {"validation_loss": total / tokens}
    scores, labels = torch.cat(scores), torch.cat(labels)
    threshold, f1 = best_threshold(scores, labels)
    model.threshold.fill_(threshold)
    selected = (scores > threshold).float().mean().item()
    return {"validation_loss": total / tokens, "threshold": threshold, "token_f1": 100 * f1, "selected": selected}


def without_gain(log: Sequence[dict]) -> int:
    """How many validations there were after the best one; Appendix A stops by it."""
    losses = [row["validation_loss"] for row in log if "validation_loss" in row]
    return len(losses) - 1 - losses.index(min(losses)) if losses else 0


def write_weights(model: nn.Module, path: Path) -> None:
    """Write a file of weights that safetensors and, of its own models, transformers load."""
    from safetensors.torch import save_model

    save_model(model, str(path), metadata={"format": "pt"})


def finish(run: Run, folder: RunFolder, exchanged: float) -> None:
    """Put the last weights where they belong or, with early stopping, the best; say what to do next.

    Called on every process, for all write together.
    """
    task, best = run.config.task, folder.path / BEST
    if not run.config.patience:
        folder.write(WEIGHTS[task], lambda path: write_weights(run.model, path))
    elif best.exists():  # no more once a run is finished
        folder.write(WEIGHTS[task], lambda path: shutil.copyfile(best, path))
    if not folder.accelerator.is_main_process:
        return
    best.unlink(missing_ok=True)
    last = folder.progress["log"][-1]
    print(f"{folder.path}: {last['step']} steps, validation loss {last['validation_loss']:.3f}")
    print(what_it_learned(last, exchanged))
    print(f"next: python -m {__package__}.evaluate {'--tagger ' if task == 'tagger' else ''}{folder.path}")


def what_it_learned(last: Mapping[str, float], exchanged: float) -> str:
    """Whether a summariser reads its source, by its validation loss with exchanged ones; whether a tagger selects."""
    if "selected" in last:
        said = f"the tagger selects {100 * last['selected']:.1f} % of all tokens, token F1 {last['token_f1']:.1f}"
        if 0.001 < last["selected"] < 0.98:
            return said
        return said + ": its masks tell nothing; train longer, on more data, or with --train-encoder True"
    said = f"with the sources of other documents the loss is {exchanged:.3f}"
    if exchanged - last["validation_loss"] > 0.05:
        return said
    return said + ": the model does not read its source; train longer, on more data, or begin with --model"


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    logging.getLogger("accelerate").setLevel(logging.ERROR)  # it reports BART's tied weights at every checkpoint
    config, out, resume = parse(arguments, TrainConfig, PRESETS, __doc__)
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    train(config, out, resume)


if __name__ == "__main__":
    main()
