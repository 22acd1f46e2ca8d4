"""Train an extractive summariser with one of the paper's attention types on units with fixed vectors.

python -m discourse_tree_attention.train --out runs/gum --preset gum --data FOLDER --encoder FOLDER --attention dot
"""

import math
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_model
from torch.utils.data import DataLoader
from tqdm import tqdm

try:
    from shared.data import Example, in_sentences, load
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared import rouge
from shared.run import check, check_folder, load_weights, one_line_errors, parse, training

from .config import PRESETS, TrainConfig, learning_rate
from .decode import extract_all, mean_loss, read_corpus, same_positions, score_documents
from .documents import Corpus, DocumentBatches, choose_documents, collate, positive_weight
from .loading import begin, load_run
from .model import Summarizer, extraction_loss

SAME = 0.95  # a model that takes the same positions in this share of the documents does not read them
READS = 0.05  # nor does one whose loss rises by less than this when units are exchanged


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; model.safetensors has the weights with the best ROUGE-2 in validation.

    Args:
        resume: go on after the last checkpoint; the result is bit for bit that of a run that was never stopped.
    Raises:
        ValueError: bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    from accelerate import Accelerator, DataLoaderConfiguration  # here, for --help answers without it
    from accelerate.utils import set_seed

    check(config)
    out, begun = Path(out), check_folder(out, resume)
    # Without a GPU it must be told, or several processes would each believe to be alone.
    settings = {"cpu": not torch.accelerator.is_available(), "mixed_precision": config.mixed_precision}
    accelerator = Accelerator(**settings, dataloader_config=DataLoaderConfiguration(even_batches=False))
    set_seed(config.seed)
    examples = read_examples(config, "train")
    others = examples if config.folds else read_examples(config, "validation")
    rouge.check_references(others)
    start = load_run(out) if begun else begin(config, examples)
    with accelerator.main_process_first():  # the others find its unit vectors in the cache
        settings = config, start.encoder.to(accelerator.device), config.cache or out.parent / "cache"
        corpus = read_corpus(examples, *settings)
        validation = corpus if config.folds else read_corpus(others, *settings)
        validation = validation.select(choose_documents(config, "validation", len(others)))
        corpus = corpus.select(choose_documents(config, "train", len(examples)))
    if config.standardize and not begun:
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
    data = {"training": examples, "validation": others}
    with training(accelerator, out, config, start.write_files, begun, data, first, best=-1.0) as folder:
        done = folder.progress["step"]
        bar = tqdm(total=config.steps, initial=done, disable=None if accelerator.is_main_process else True)
        stream = iter(accelerator.skip_first_batches(loader, done))
        for step in range(done, config.steps):
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
                row |= validate(accelerator.unwrap_model(model), validation, weight, config)
                if row["rouge2"] > folder.progress["best"]:
                    folder.progress["best"] = row["rouge2"]
                    folder.write("best.safetensors", partial(save_model, accelerator.unwrap_model(model)))
                folder.save_checkpoint(row)
        bar.close()
        if (best := out / "best.safetensors").exists():
            folder.write("model.safetensors", partial(shutil.copyfile, best))
    if accelerator.is_main_process:
        best.unlink(missing_ok=True)
        load_weights(start.model, out)
        others = {
            what: mean_loss(other.documents, score_documents(start.model, other), weight)
            for what, other in validation.exchanged().items()
        }
        print_end(out, config, folder.progress["log"], others)


def read_examples(config: TrainConfig, split: str) -> list[Example]:
    """The data of a split in sentences; with folds those of train and validation."""
    return in_sentences(example for name in config.splits(split) for example in load(config.data, name))


def validate(model: Summarizer, corpus: Corpus, weight: float, config: TrainConfig) -> dict:
    """Loss a unit, mean ROUGE of the summaries, and the positions that the model takes most often, with their share."""
    scores = score_documents(model, corpus)
    row = {"validation_loss": mean_loss(corpus.documents, scores, weight)}
    summaries = extract_all(corpus.documents, scores, config)
    values = rouge.score(summaries, [document.references for document in corpus.documents])
    row |= {metric: float(values[metric].mean()) for metric in ("rouge1", "rouge2", "rougeLsum")}
    positions, share = same_positions(scores, config.count)
    return row | {"positions": positions, "same_positions": share}


def print_end(out: Path, config: TrainConfig, log: Sequence[dict], others: dict[str, float]) -> None:
    """Say how the training went, whether the model reads, and what to do next; `others`: losses where it cannot."""
    best = max((row for row in log if "rouge2" in row), key=lambda row: row["rouge2"])
    print(f"{out}: {log[-1]['step']} steps, best validation ROUGE-2 {best['rouge2']:.2f} at step {best['step']}")
    said = "".join(f"; with {what} {loss:.3f}" for what, loss in others.items())
    print(f"validation loss {best['validation_loss']:.3f}{said}")
    pretrained = "--encoder sentence-transformers/all-MiniLM-L6-v2 --pooling mean --standardize True"
    remedy = "train on more data" if config.encoder else f"its vectors are random: try {pretrained}"
    if best["same_positions"] >= SAME:
        share, places = f"{best['same_positions']:.0%}", ", ".join(map(str, best["positions"]))
        print(f"it takes the units {places} of {share} of the documents, so it does not read them: {remedy}")
    elif next(iter(others.values())) - best["validation_loss"] < READS:
        print(f"it hardly reads its units: {remedy}")
    if log[0]["documents_cut"]:
        print(f"{log[0]['documents_cut']} of {log[0]['documents']} training documents were cut to what it can read")
    print(f"next: python -m {__package__}.evaluate {out}")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, TrainConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
