"""Train the extractive summariser of Xiao, Huber & Carenini (2020) with one of its attention types.

A document is its units, EDUs (clauses) or sentences, each with a vector that a frozen encoder has
computed beforehand. D12, D26, ... are deviations from the paper; PAPER.md lists them.

python -m discourse_tree_attention.train --out runs/tree --attention d_tree
python -m discourse_tree_attention.train --out runs/mine --data FOLDER --preset small
"""

import json
import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader
from tqdm import tqdm

from shared import rouge
from shared.data import Example
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

from .config import PRESETS, TrainConfig, learning_rate
from .loading import Run, begin, load
from .model import extraction_loss
from .selection import join_units
from .text import Document, check_words, positive_weight


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
        # Fixed: else a variable of the shell could divide the loss. The paper's batches are small.
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=1),
        # Without this, several processes on a CPU would each train alone.
        cpu=not torch.accelerator.is_available(),
        dataloader_config=DataLoaderConfiguration(even_batches=False),  # of different sizes
        log_with=config.log_with or None,
        project_dir=out,
    )
    is_main = accelerator.is_main_process
    if config.log_with and not accelerator.log_with:  # accelerate drops what it does not find
        raise ValueError(f"--log-with {config.log_with} is not installed")
    if is_main and config.mixed_precision == "no" and cpu_has_bf16():
        print("this CPU has bf16: --mixed-precision bf16 trains wide models faster")

    # Data, model, encoder.
    set_seed(config.seed)
    examples = sample(config, load(config.data, "train"))
    validation_examples = load(config.data, "validation")
    check_words([*examples, *validation_examples])
    run = begin(config, examples)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout

    # D26: the second beta is 0.999 as released, or a preset's 0.98; the loop sets the rate.
    optimizer = torch.optim.Adam(
        run.model.parameters(), lr=0.0, betas=(0.9, config.beta2), eps=1e-9
    )
    # `model` is `run.model` as accelerate wraps it.
    model, optimizer = accelerator.prepare(run.model, optimizer)
    items = run.encode(examples)
    validation = run.encode(validation_examples)
    weight = positive_weight(items)
    # D29: batches hold documents of like length; as the loss is summed, long ones weigh more.
    batches = Batches([len(item) for item in items], config.seed, size=config.batch_size)
    # Its own generator: starting the loader would else draw from the one that dropout uses.
    generator = torch.Generator()
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.collate, generator=generator)
    loader = accelerator.prepare(loader)
    cut = sum(item.was_cut for item in items)
    if cut and is_main:
        print(f"{cut} of {len(items)} documents are cut: --max-pieces, or the model's own limits")

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
        if done < config.steps and (out / "model.safetensors").exists():
            # A finished run is extended: its weights are the best so far.
            os.replace(out / "model.safetensors", out / "best.safetensors")

    accelerator.init_trackers("discourse_tree_attention", vars(config))
    endless = iter(accelerator.skip_first_batches(loader, done))
    bar = tqdm(total=config.steps, initial=done, disable=None if is_main else True)
    for step in range(done, config.steps):
        run.model.train()
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, config)
        batch = next(endless)
        scores = model(batch.units, batch.keep, batch.matrix)
        # Section 3: binary cross-entropy of each unit's score with the oracle's label, summed over
        # units; those that the oracle takes weigh more. D21: with several processes gradients are
        # averaged over processes, each a sum over units.
        loss = extraction_loss(scores, batch.labels, batch.keep, weight)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

        row = {"step": step + 1, "loss": loss.item() / batch.keep.sum().item()}
        if not math.isfinite(row["loss"]):
            raise ValueError(
                f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint"
            )
        bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
        bar.update()
        if row["step"] % config.save_every == 0 or row["step"] == config.steps:
            row |= validate(run, validation, weight)
            # Released code: keep the weights with the best validation ROUGE-2 (the first on ties).
            # They are written before the checkpoint that knows of them.
            is_best = all(row["rouge2"] > old["rouge2"] for old in progress["log"])
            if is_main and is_best and math.isfinite(row["validation_loss"]):
                save_file(run.model.state_dict(), out / "unfinished.safetensors")
                os.replace(out / "unfinished.safetensors", out / "best.safetensors")
            progress["log"].append(row)
            save_checkpoint(accelerator, out, progress)
            accelerator.log(row, step=row["step"])
            if is_main:
                bar.write(json.dumps(row))
    bar.close()
    accelerator.end_training()
    if not is_main:
        return

    if (out / "best.safetensors").exists():  # absent if the run had already finished
        os.replace(out / "best.safetensors", out / "model.safetensors")
    load_weights(run.model, out / "model.safetensors")
    taken = np.mean([item.labels.sum() for item in items])
    print(
        f"the oracle selects {taken:.1f} units on average; summaries take {config.count} "
        f"(--units-taken)"
    )
    report(run, validation, weight, progress["log"], out)


def sample(config: TrainConfig, examples: Sequence[Example]) -> list[Example]:
    """Section 5.2, low resource: --examples of the documents, another sample for each --seed."""
    order = np.random.default_rng(config.seed).permutation(len(examples))
    places = sorted(order[: config.examples or None].tolist())
    return [examples[place] for place in places]


def validate(run: Run, documents: Sequence[Document], weight: float) -> dict[str, float]:
    """The training loss per unit, and mean ROUGE of the summaries; each process does all of it."""
    rows = run.scores(documents, run.config.batch_size)
    scores = torch.from_numpy(np.concatenate(rows))
    labels = torch.from_numpy(np.concatenate([document.labels for document in documents]))
    loss = extraction_loss(scores, labels, torch.ones_like(labels), weight)
    texts = []
    for document, row in zip(documents, rows, strict=True):
        taken = run.extract(document, row)
        texts.append(join_units(document.units, document.sentence, taken))
    values = rouge.score(texts, [document.references for document in documents])
    means = {name: float(values[name].mean()) for name in ("rouge1", "rouge2", "rougeLsum")}
    return {"validation_loss": loss.item() / len(labels)} | means


def report(
    run: Run, validation: Sequence[Document], weight: float, log: Sequence[dict], out: Path
) -> None:
    """Print the validation loss of the best weights, and what it is when documents swap vectors."""
    best = max(log, key=lambda row: row["rouge2"])
    exchanged = []
    for document, other in zip(validation, [*validation[1:], *validation[:1]], strict=True):
        vectors = np.resize(other.vectors, document.vectors.shape)  # cut, or repeated
        exchanged.append(replace(document, vectors=vectors))
    exchanged_loss = validate(run, exchanged, weight)["validation_loss"]
    print(
        f"{out}: {log[-1]['step']} updates, best validation ROUGE-2 {best['rouge2']:.2f} after "
        f"{best['step']}, there validation loss {best['validation_loss']:.3f}, with the documents "
        f"exchanged {exchanged_loss:.3f}"
    )
    reads_trees = run.config.level == "edu" or validation[0].matrix is not None
    command = f"python -m {__package__}.predict {out}"
    tree = " --tree FILE.dis" if reads_trees else ""
    print(f"next: {command} FILE.txt{tree}; with scores: {command} --split validation")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
