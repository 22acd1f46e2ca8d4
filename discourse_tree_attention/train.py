"""Train an extractive summariser with one of the paper's attention types on units with fixed vectors.

python -m discourse_tree_attention.train --out runs/tree --attention d_tree
python -m discourse_tree_attention.train --out runs/gum --preset gum --data FOLDER --encoder FOLDER --attention dot
"""

import math
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

from shared import rouge
from shared.data import Example, in_sentences, load

from .config import PRESETS, TrainConfig, learning_rate
from .decode import extract_all
from .documents import (
    Corpus,
    DocumentBatches,
    choose_documents,
    collate,
    make_documents,
    positive_weight,
    prepare,
)  # fmt: skip
from .loading import begin, load_run
from .model import Summarizer, extraction_loss
from .run import fingerprint, holds_run, one_line_errors, parse, save_checkpoint, training


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; model.safetensors has the weights with the best ROUGE-2 in validation.

    Args:
        resume: go on after the last checkpoint; the result is bit for bit that of a run that was never stopped.
    Raises:
        ValueError: bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    from accelerate import Accelerator, DataLoaderConfiguration  # here, for --help answers without it
    from accelerate.utils import set_seed

    config.check()
    out, exists = Path(out), holds_run(Path(out), resume)
    # Without a GPU it must be told, or several processes would each believe to be alone.
    settings = {"cpu": not torch.accelerator.is_available(), "mixed_precision": config.mixed_precision}
    accelerator = Accelerator(**settings, dataloader_config=DataLoaderConfiguration(even_batches=False))
    set_seed(config.seed)
    examples = read_examples(config, "train")
    tests = examples if config.folds else read_examples(config, "validation")
    rouge.check_references(tests)
    start = load_run(out) if exists else begin(config, examples)
    with accelerator.main_process_first():  # the others find its unit vectors in the cache
        read = partial(read_corpus, config, start.encoder.to(accelerator.device), config.cache or out.parent / "cache")
        whole = read(examples)
        validation, references = select(read(tests) if tests is not examples else whole, tests, config, "validation")
    corpus, _ = select(whole, examples, config, "train")
    if config.standardize and not (exists or config.init):
        start.model.standardize.fit(torch.from_numpy(np.concatenate(corpus.vectors)))
    if accelerator.num_processes > 1:
        set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    weight = positive_weight(corpus.documents)
    batches = DocumentBatches(corpus.documents, config.batch_size, config.seed)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    loader = DataLoader(
        range(len(corpus.documents)), batch_sampler=batches, collate_fn=partial(collate, corpus),
        generator=torch.Generator(),
    )  # fmt: skip
    # D26: betas and eps of the released code; those of Vaswani et al. (2017) are 0.9, 0.98 and 1e-9.
    optimizer = torch.optim.Adam(start.model.parameters(), lr=0.0, betas=(0.9, 0.999), eps=1e-9)
    model, optimizer, loader = accelerator.prepare(start.model, optimizer, loader)
    cut = sum(document.was_cut for document in corpus.documents)
    first = {"step": 0, "documents": len(corpus.documents), "documents_cut": cut, "positive_weight": weight}
    new = {"step": 0, "best": -1.0, "log": [first], "data": fingerprint(examples)}
    with (
        training(accelerator, out, config, new, start.write_files, exists) as progress,
        tqdm(total=config.steps, initial=progress["step"], disable=not accelerator.is_main_process) as bar,
    ):
        stream = iter(accelerator.skip_first_batches(loader, progress["step"]))
        for step in range(progress["step"], config.steps):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            model.train()
            batch = next(stream)
            scores = model(batch.units, batch.keep, batch.matrix)
            # Section 3: cross-entropy of the sigmoid of the scores, summed; of several processes the mean (D21).
            loss = extraction_loss(scores, batch.labels, batch.keep, weight)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item() / batch.keep.sum().item()}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if row["step"] % config.save_every == 0 or row["step"] == config.steps:
                row |= validate(accelerator.unwrap_model(model), validation, references, config)
                if row["rouge2"] > progress["best"] and accelerator.is_main_process:
                    save_best(accelerator.unwrap_model(model), out)
                best = max(progress["best"], row["rouge2"])
                progress |= {"step": row["step"], "best": best, "log": [*progress["log"], row]}
                save_checkpoint(accelerator, out, progress)
    if accelerator.is_main_process:
        if (out / "best.safetensors").exists():
            os.replace(out / "best.safetensors", out / "model.safetensors")
        print(f"{out}: {progress['step']} steps, best validation ROUGE-2 {progress['best']:.2f}")
        if cut:
            print(f"{cut} of {len(corpus.documents)} training documents were cut to what the model can read")
        print(f"next: python -m {__package__}.evaluate {out}")


def read_examples(config: TrainConfig, split: str) -> list[Example]:
    """The data of a split in sentences; with folds those of train and validation."""
    return in_sentences(example for name in config.splits(split) for example in load(config.data, name))


def read_corpus(config: TrainConfig, encoder, cache: str | Path, examples: Sequence[Example]) -> Corpus:
    """Documents with oracles, unit vectors and matrices."""
    documents = make_documents(examples, config, partial(tqdm, desc="oracles", leave=False))
    return prepare(documents, config, encoder, cache, partial(tqdm, desc="unit vectors", leave=False))


def select(corpus: Corpus, examples: Sequence[Example], config: TrainConfig, split: str) -> tuple[Corpus, list]:
    """What of a corpus belongs to a split of the run, and its references."""
    chosen = choose_documents(config, split, len(examples))
    return corpus.select(chosen), [examples[i].references for i in chosen]


def validate(model: Summarizer, corpus: Corpus, references: list, config: TrainConfig) -> dict[str, float]:
    """Mean ROUGE of the validation documents' summaries."""
    values = rouge.score(extract_all(model, corpus, config), references)
    return {metric: float(values[metric].mean()) for metric in ("rouge1", "rouge2", "rougeLsum")}


def save_best(model: Summarizer, out: Path) -> None:
    """Write best.safetensors under another name and rename it; OSError: a full disk; ValueError: `out` is gone."""
    from safetensors.torch import save_model

    if not (out / "config.json").exists():
        raise ValueError(f"{out} was moved or removed while it was trained: the training stops")
    try:
        save_model(model, str(out / "best.unfinished"))
        os.replace(out / "best.unfinished", out / "best.safetensors")
    except Exception as error:  # safetensors raises types of its own
        raise OSError(f"{out / 'best.safetensors'} cannot be written ({error}): make room, then --resume") from None


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
