"""Train an extractive summariser with one of the paper's attention types on units with fixed vectors.

python -m discourse_tree_attention.train --out runs/tree --attention d_tree
python -m discourse_tree_attention.train --out runs/gum --preset gum --data FOLDER --encoder FOLDER --attention dot
"""

import argparse
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
import tyro
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from safetensors.torch import save_model
from torch.utils.data import DataLoader
from tqdm import tqdm

from shared import rouge
from shared.data import Example, in_sentences, load

from . import documents
from .documents import Corpus, Document, DocumentBatches, choose_documents, extract, score_documents
from .matrices import LEVELS
from .model import ATTENTIONS, TREES, ModelConfig, Summarizer, extraction_loss
from .run import check_fields, holds_run, load_weights, one_line_errors, read_config, save_checkpoint, training
from .selection import UNITS_TAKEN
from .units import POOLINGS, UnitEncoder, load_encoder, random_encoder


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `head_width` is --head-width. Defaults are the tiny preset's."""

    # Data
    data: str = "toy:signal=0"  # anything shared.data.load takes; trees are part of the data
    level: Literal[LEVELS] = "edu"  # what is extracted: "edu" (Table 2) or "sentence" (Table 3)
    folds: int = 0  # cross-validation over train and validation together, 3 or more; 0 = the splits as they are
    fold: int = 0  # which of the folds is the test data
    examples: int = 0  # training documents, drawn with examples_seed (Section 5.2, low resource: 1,000); 0 = all
    examples_seed: int = 0
    # Unit encoder
    encoder: str = ""  # any encoder of transformers, by name or folder; empty = a small random one (D9)
    pooling: Literal[POOLINGS] = "cls"  # a unit's vector: first token (Section 3), or mean over its tokens (D23)
    standardize: bool = False  # vectors with mean 0 and spread 1, as they are in the training documents (D24)
    max_tokens: int = 128  # longest unit in word pieces, longer ones are cut
    max_pieces: int = 0  # longest document in word pieces, then units are cut (released code: 1000); 0 = no limit
    cache: str = ""  # folder where unit vectors are kept; empty = "cache" beside the run folder
    # Model: see ModelConfig; the width is the encoder's
    attention: Literal[ATTENTIONS] = "c_tree_nuclearity"
    post_edit: bool = True  # of d_tree: one root per sentence (Section 4.1); released code: none (D2)
    shuffle_trees: bool = False  # control: the matrix of each tree with its units in random order
    heads: int = 1  # Tables 2 and 3: 8 for one of the dot products
    layers: int = 2  # released code
    balanced: bool = False  # the second setting of Section 5.1: sizes that put the weight on the attention
    head_width: int = 0  # d_v; 0 = Section 5.1: 64; balanced 2/3 of the encoder's width (512 at bert-base, D16)
    key_width: int = 0  # d_k of the dot product; 0 = d_v (Section 5.1)
    feed_forward: int = 0  # 0 = Section 5.1: 4 times the encoder's width (3072 at bert-base, D16); balanced 2/3 of it
    dense_inner: int = 512  # footnote 2 (D3)
    max_units: int = 512  # released code: longest document of Dense and Random
    positions: int = 1000  # released code
    dropout: float = 0.1  # released code
    classifier: int = 100  # released code
    init: str = ""  # run folder to fine-tune: its weights, encoder and, unless flags override them, its values
    # Optimisation
    steps: int = 600  # updates (released code: 24,000)
    batch_size: int = 32  # documents, per process (released code: 32)
    learning_rate: float = 0.01  # factor of min(n^-0.5, n warmup^-1.5) (Section 5.1; D11)
    warmup: int = 200  # updates (released code: 2,400; D26)
    save_every: int = 100  # updates between validations, of which the best stays (released code: 300)
    mixed_precision: Literal["no", "bf16"] = "no"  # of the forward pass
    seed: int = 0
    # Summaries; evaluate.py and predict.py take these from here
    right_nuclei: bool = True  # an EDU brings its ancestors in the sentence, of two nuclei the right one the left (D17)
    units_taken: int = 0  # 0 = 6 EDUs or 3 sentences (Section 5.1)
    max_words: int = 0  # a summary that has this many words is complete (released code: 80); 0 = no limit

    def check(self) -> None:
        """ValueError for a value out of range, or values that contradict each other."""
        least = dict.fromkeys(("steps", "batch_size", "warmup", "save_every"), 1)
        least["max_tokens"] = 3  # [CLS], a word piece, [SEP]
        check_fields(self, least, {"dropout": 0.99, "seed": 2**32 - 1})
        if self.folds and not 0 <= self.fold < self.folds >= 3:
            raise ValueError(f"--fold {self.fold} of --folds {self.folds}: need 3 folds or more, counted from 0")
        if self.shuffle_trees and self.attention not in TREES:
            raise ValueError(f"--shuffle-trees is a control of trees; --attention {self.attention} reads no tree")
        if not self.post_edit and self.attention != "d_tree":
            raise ValueError(f"--post-edit is for --attention d_tree, not {self.attention}")
        self.model_config(768)  # its own checks

    def model_config(self, width: int) -> ModelConfig:
        """The model's part of the fields, with the encoder's width D."""
        values = {name: value for name, value in vars(self).items() if name in ModelConfig.__dataclass_fields__}
        # D16: the paper's sizes belong to D = 768; another width gets them in proportion, but heads of 64 as usual.
        values["head_width"] = self.head_width or (2 * width // 3 if self.balanced else 64)
        values["feed_forward"] = self.feed_forward or (2 * width // 3 if self.balanced else 4 * width)
        return ModelConfig(**values, width=width)

    @property
    def count(self) -> int:
        """Units of a summary."""
        return self.units_taken or UNITS_TAKEN[self.level]


PAPER = dict(
    data="cnn_dailymail_trees", encoder="bert-base-uncased",  # CNN/DM with trees; Section 3: BERT; released code
    learning_rate=0.01,  # Section 5.1, D11
    warmup=2400,  # D26: Section 5.1 says "standard", released code 2,400
    steps=24_000, batch_size=32, save_every=300, max_pieces=1000, max_words=80,  # released code
)  # fmt: skip
GUM = dict(  # this repository's (D20): 200 long documents, the paper's sizes on an encoder of width 384
    data="gum", folds=5, steps=240, batch_size=8, learning_rate=0.002, warmup=50, save_every=20, mixed_precision="bf16",
)  # fmt: skip
PRESETS = {"tiny": {}, "gum": GUM, "paper": PAPER}
PRESETS |= {f"{name}-balanced": PRESETS[name] | dict(balanced=True) for name in ("gum", "paper")}


def learning_rate(step: int, config: TrainConfig) -> float:
    """Section 5.1: inverse square root with linear warm-up; `learning_rate` is a factor, not the peak (D11)."""
    number = step + 1
    return config.learning_rate * min(number**-0.5, number * config.warmup**-1.5)


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: Summarizer
    encoder: UnitEncoder


def load_run(folder: str | Path) -> Run:
    """Read a run; the model is in eval mode on the CPU. Of a run in training, the last checkpoint, said on stderr."""
    config = read_config(folder, TrainConfig)
    encoder = load_encoder(config.encoder or str(Path(folder, "encoder")), config.max_tokens, config.pooling)
    model = Summarizer(config.model_config(encoder.width))
    load_weights(model, folder)
    return Run(config, model.eval(), encoder)


def begin(config: TrainConfig, examples: Sequence[Example]) -> Run:
    """A new model with its encoder, or those of the run that `config.init` names; ValueError where flags do not fit."""
    texts = [sentence for example in examples for sentence in example.document]
    folder = config.encoder or (config.init and str(Path(config.init, "encoder")))
    make = partial(load_encoder, folder) if folder else partial(random_encoder, texts)
    encoder = make(max_tokens=config.max_tokens, pooling=config.pooling)
    model = Summarizer(config.model_config(encoder.width))
    if config.init:
        try:
            load_weights(model, config.init)
        except ValueError as error:
            raise ValueError(f"--init {config.init}: leave out flags that change the model: {error}") from None
    return Run(config, model, encoder)


def read_documents(
    config: TrainConfig, split: str, limit: int | None = None, cache: str | Path = ""
) -> tuple[list[Example], list[Document]]:
    """Examples and their documents; with folds, all of train and validation. Errors name the tree's file."""
    splits = ("train", "validation") if config.folds else (split,)
    examples = in_sentences(example for name in splits for example in load(config.data, name, limit))
    identity, times = Counter(example.id for example in examples).most_common(1)[0]
    if times > 1:
        raise ValueError(f"{config.data}: the id {identity!r} is in both {' and '.join(splits)}; folds need unique ids")
    return examples, documents.make_documents(examples, config, cache, partial(tqdm, desc="oracles", leave=False))


def prepare(config: TrainConfig, out: Path, resume: bool, accelerator) -> tuple[Run, Corpus, Corpus, list]:
    """What a training starts from: the run, its training and validation documents, and the latter's references."""
    cache = config.cache or out.parent / "cache"
    read = partial(read_documents, config, cache=cache)
    examples, of_training = read("train")
    tests, of_validation = (examples, of_training) if config.folds else read("validation")
    rouge.check_references(tests)
    start = load_run(out) if resume else begin(config, examples)
    start.encoder.to(accelerator.device)
    bar = partial(tqdm, desc="unit vectors", disable=not accelerator.is_main_process, leave=False)
    with accelerator.main_process_first():  # the others find its unit vectors in the cache
        both = [documents.prepare(some, config, start.encoder, cache, bar) for some in (of_training, of_validation)]
    corpus = both[0].select(choose_documents(config, "train", len(examples)))
    chosen = choose_documents(config, "validation", len(tests))
    if config.standardize and not (resume or config.init):
        start.model.standardize.fit(torch.from_numpy(np.concatenate(corpus.vectors)))
    if accelerator.num_processes > 1:
        set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    return start, corpus, both[1].select(chosen), [tests[i].references for i in chosen]


def endless_loader(corpus: Corpus, config: TrainConfig) -> DataLoader:
    """Batches of a corpus, epoch after epoch."""
    batches = DocumentBatches(corpus.documents, config.batch_size, config.seed)
    # Its own generator, or starting the loader would draw from the one that dropout draws from.
    return DataLoader(
        range(len(corpus.documents)), batch_sampler=batches, collate_fn=partial(documents.collate, corpus),
        generator=torch.Generator(),
    )  # fmt: skip


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; model.safetensors has the weights with the best ROUGE-2 in validation.

    Args:
        resume: go on after the last checkpoint; the result is bit for bit that of a run that was never stopped.
    Raises:
        ValueError: bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    config.check()
    out = Path(out)
    resume = holds_run(out, resume)
    # Without a GPU it must be told, or several processes would each believe to be alone.
    settings = {"cpu": not torch.accelerator.is_available(), "mixed_precision": config.mixed_precision}
    accelerator = Accelerator(**settings, dataloader_config=DataLoaderConfiguration(even_batches=False))
    set_seed(config.seed)
    start, corpus, validation, references = prepare(config, out, resume, accelerator)
    positive_weight = documents.positive_weight(corpus.documents)
    loader = endless_loader(corpus, config)
    # D26: betas and eps of the released code; those of Vaswani et al. (2017) are 0.9, 0.98 and 1e-9.
    optimizer = torch.optim.Adam(start.model.parameters(), lr=0.0, betas=(0.9, 0.999), eps=1e-9)
    model, optimizer, loader = accelerator.prepare(start.model, optimizer, loader)
    cut = sum(document.was_cut for document in corpus.documents)
    first = {"step": 0, "documents": len(corpus.documents), "documents_cut": cut, "positive_weight": positive_weight}
    progress = {"step": 0, "best": -1.0, "log": [first]}
    write_files = lambda folder: config.encoder or start.encoder.save(folder / "encoder")  # noqa: E731
    with (
        training(accelerator, out, config, progress, write_files) as progress,
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
            loss = extraction_loss(scores, batch.labels, batch.keep, positive_weight)
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
                progress = {"step": row["step"], "best": best, "log": [*progress["log"], row]}
                save_checkpoint(accelerator, out, progress)
    if accelerator.is_main_process:
        if (out / "best.safetensors").exists():
            os.replace(out / "best.safetensors", out / "model.safetensors")
        print(f"{out}: {progress['step']} steps, best validation ROUGE-2 {progress['best']:.2f}")
        print(f"next: python -m {__package__}.evaluate {out}")


def validate(model: Summarizer, corpus: Corpus, references: list, config: TrainConfig) -> dict[str, float]:
    """Mean ROUGE of the validation documents' summaries."""
    pairs = zip(corpus.documents, score_documents(model, corpus), strict=True)
    values = rouge.score([extract(document, scores, config) for document, scores in pairs], references)
    return {metric: float(values[metric].mean()) for metric in ("rouge1", "rouge2", "rougeLsum")}


def save_best(model: Summarizer, out: Path) -> None:
    """Write best.safetensors under another name and rename it; OSError where the disk is full."""
    try:
        save_model(model, str(out / "best.unfinished"))
        os.replace(out / "best.unfinished", out / "best.safetensors")
    except Exception as error:  # safetensors raises types of its own
        raise OSError(f"{out / 'best.safetensors'} cannot be written ({error}): make room, then --resume") from None


# Command line


# Same as head_masking/train.py:parse
def parse(arguments: Sequence[str] | None = None) -> tuple[TrainConfig, Path, bool]:
    """Command line -> config, run folder, resume. What is not given comes from the preset, or from the run of --init.

    Raises:
        SystemExit: a wrong flag.
        ValueError: --preset beside --init; beside --resume, a flag that contradicts the run.
    """
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--out", "--preset", "--init"):
        first.add_argument(flag, default="")
    given, _ = first.parse_known_args(arguments)
    if given.preset and given.init:
        raise ValueError("--preset and --init contradict each other: --init starts from the values of its run")
    saved = read_config(given.out, TrainConfig) if given.out and Path(given.out, "config.json").exists() else None
    default = TrainConfig(**PRESETS.get(given.preset or "tiny", {}))
    if given.init:
        default = replace(read_config(given.init, TrainConfig), init=given.init)
    elif saved and not given.preset:
        default = saved
    flags = make_dataclass("Flags", [
        ("out", Annotated[Path, tyro.conf.arg(help="run folder")]),
        ("config", tyro.conf.FlagConversionOff[tyro.conf.OmitArgPrefixes[TrainConfig]], field(default=default)),
        ("preset", Annotated[Literal[tuple(PRESETS)], tyro.conf.arg(help="named set of values")], "tiny"),
        ("resume", Annotated[bool, tyro.conf.arg(help="go on after the last checkpoint, if there is one")], False),
    ])  # fmt: skip
    options = tyro.cli(flags, prog=f"python -m {__package__}.train", description=__doc__, args=arguments,
                       config=(tyro.conf.FlagCreatePairsOff,))  # fmt: skip
    if saved and options.resume:  # more steps lengthen a run; nothing else of it may change
        changed = [name for name, value in vars(options.config).items() if value != getattr(saved, name)]
        if changed not in ([], ["steps"]) or options.config.steps < saved.steps:
            raise ValueError(f"--resume keeps the values of {given.out}/config.json; leave out {', '.join(changed)}")
    return options.config, options.out, options.resume


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments))


if __name__ == "__main__":
    main()
