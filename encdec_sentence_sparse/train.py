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
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

try:
    from shared.data import load
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared.run import check, check_folder, load_weights, one_line_errors, parse, share, training

from .config import PRESETS, TrainConfig, choose_selection, learning_rate
from .loading import Run, begin, load_run
from .model import SentenceSparseBart, freeze
from .selection import Selection, objective, top_r
from .sentences import sentences_of
from .text import Batch, Batches, Item, Items, collate


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
    data = {"training": load(config.data, "train", config.examples or None)}
    data["validation"] = load(config.data, "validation")
    run = load_run(out) if begun else begin(config, data["training"])
    freeze(run.model, config.task)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    items, validation = share(accelerator, run.encode(data["training"])), run.encode(data["validation"])
    batches = Batches([len(item.ids) for item in items], config.batch_size, config.seed)
    join = partial(collate, padding=run.tokenizer.pad_token_id)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=join, generator=torch.Generator())
    learning = [parameter for parameter in run.model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(learning, lr=0.0, betas=(0.9, 0.999), eps=1e-8)  # A.3; released code
    model, optimizer, loader = accelerator.prepare(run.model, optimizer, loader)
    epoch = -(-batches.per_epoch // (config.accumulate * accelerator.num_processes))
    save_every, mix_steps = config.save_every or epoch, config.mix_steps or epoch
    counts = {"step": 0, "examples": len(items), "sources_cut": sum(items.was_cut)}
    start = training(accelerator, out, config, run.write_files, begun, data, counts, best=None, without_gain=0)
    del data  # the token ids are all that is needed
    with start as folder, tqdm(total=config.steps, disable=None if accelerator.is_main_process else True) as bar:
        progress = folder.progress
        bar.update(progress["step"])
        stream = iter(accelerator.skip_first_batches(loader, progress["step"] * config.accumulate))
        for step in range(progress["step"], config.steps):
            if config.patience and progress["without_gain"] >= config.patience:
                break
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            model.train()  # D14: dropout is on in frozen parts, too (released code)
            selection = choose_selection(config, step, mix_steps)
            for _ in range(config.accumulate):
                batch = next(stream)
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
            if is_checkpoint := row["step"] % save_every == 0 or row["step"] == config.steps:
                row |= validation_losses(run, validation)
            if bad := [name for name, value in row.items() if not math.isfinite(value)]:
                raise ValueError(f"{bad[0]} is {row[bad[0]]} at step {row['step']}; {out} keeps its last checkpoint")
            if is_checkpoint:
                if is_better := progress["best"] is None or row["validation_loss"] < progress["best"]:
                    progress["best"] = row["validation_loss"]
                progress["without_gain"] = 0 if is_better else progress["without_gain"] + 1
                if config.patience and is_better:
                    folder.write("best.safetensors", partial(write_weights, run.model))
                folder.save_checkpoint(row)
        if config.patience:
            load_weights(run.model, out, "best.safetensors")
        folder.write("model/model.safetensors", partial(write_weights, run.model))
    if accelerator.is_main_process:
        if counts["sources_cut"]:
            print(f"{counts['sources_cut']} of {len(items)} documents were cut to --max-source {config.max_source}")
        print(f"{out}: {progress['step']} steps, best validation loss {progress['best']:.3f}")
        print(what_was_learned(run, validation))
        print(f"next: python -m {__package__}.evaluate {out}")


def batch_losses(model: nn.Module, batch: Batch, config: TrainConfig, selection: Selection) -> dict[str, Tensor]:
    """The loss of a batch and its parts, see `selection.objective`."""
    record = None if config.task == "base" else []
    output = model(**batch.source(), labels=batch.labels, selection=selection, record=record)
    exists = sentences_of(batch.sentence_ids, batch.attention_mask).exists
    options = {name: getattr(config, name) for name in ("gamma", "kl_weight", "kl_scale")}
    return objective(config.task, output.loss, record, batch.labels != -100, exists, **options)


@torch.no_grad()
def validation_losses(run: Run, items: Items | Sequence[Item]) -> dict[str, float]:
    """Mean over target tokens of the losses, in eval mode; every process computes all of it."""
    run.model.eval()
    selection = choose_selection(run.config, 1, 1)  # that of the end, where mix is approx
    by_length, totals = sorted(items, key=lambda item: len(item.ids)), {}
    tokens = sum(len(item.target) for item in items)
    for start in range(0, len(items), run.config.batch_size):
        batch = run.collate(by_length[start : start + run.config.batch_size])
        share = (batch.labels != -100).sum().item() / tokens
        for name, loss in batch_losses(run.model, batch, run.config, selection).items():
            totals[f"validation_{name}"] = totals.get(f"validation_{name}", 0.0) + loss.item() * share
    return totals


def what_was_learned(run: Run, items: Items) -> str:
    """One line: does the summariser read its documents, does the map know more than to take the first sentences?"""
    some, r = [items[i] for i in range(min(len(items), 200))], run.config.r
    if run.config.task in ("base", "sparse"):
        others = [item._replace(target=other.target) for item, other in zip(some, [*some[1:], some[0]], strict=True)]
        name = "validation_loss" if run.config.task == "base" else "validation_xent"
        own, shuffled = (validation_losses(run, part)[name] for part in (some, others))
        warning = ": IT DOES NOT READ ITS DOCUMENTS; train longer or on more" if shuffled < own + 0.05 else ""
        return f"validation loss {own:.3f}; with the documents shuffled {shuffled:.3f}{warning}"
    best, learned, first = attention_held(run, some)
    warning = ": IT KNOWS NO MORE THAN TO TAKE THE FIRST; train longer" if learned < first + 0.01 < best else ""
    shares = f"the best {r} sentences hold {best:.3f} of the attention, the first {first:.3f}, the map's {learned:.3f}"
    return shares + warning


@torch.no_grad()
def attention_held(run: Run, items: Sequence[Item]) -> list[float]:
    """Share of the saliency that the best r sentences hold, the map's r and the first r; mean over layers and steps."""
    run.model.eval()
    sums, steps = [0.0] * 3, 0
    for start in range(0, len(items), run.config.batch_size):
        batch, record = run.collate(items[start : start + run.config.batch_size]), []
        run.model(**batch.source(), labels=batch.labels, record=record)
        is_step, exists = batch.labels != -100, sentences_of(batch.sentence_ids, batch.attention_mask).exists
        steps += is_step.sum().item() * len(record)
        for layer in record:
            exact, learned = layer.exact.mean(1), layer.approximate.mean(1)  # (B, T, N)
            early = -torch.arange(exact.size(-1), device=exact.device).expand_as(exact).float()
            for i, scores in enumerate((exact, learned, early)):
                held = (exact * top_r(scores, exists, run.config.r)).sum(-1)  # (B, T)
                sums[i] += held[is_step].sum().item()
    return [total / steps for total in sums]


def write_weights(model: SentenceSparseBart, path: Path) -> None:
    """The weights as transformers writes them: what is tied stands once."""
    tied = getattr(model, "all_tied_weights_keys", {})
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied}
    save_file(tensors, path, {"format": "pt"})


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
