"""Train an extractive summariser with one of the paper's attention types on units with fixed vectors.

python -m discourse_tree_attention.train --out runs/tree
python -m discourse_tree_attention.train --out runs/gum --preset gum --data FOLDER --encoder FOLDER --attention dot

The run folder holds config.json, encoder/ (only where the encoder is the random one), log.jsonl, model.safetensors (the
weights with the best ROUGE-2 on the validation documents) and checkpoint.pt with what --resume needs. Unit vectors and
matrices are kept in --cache, which several runs may share.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from tqdm import tqdm

from shared import rouge
from shared.data import Example, load

from .documents import Batch, Corpus, Document, collate, cut_document, make_document
from .model import ATTENTIONS, TREES, ModelConfig, Summarizer, extraction_loss, longest_document
from .selection import UNITS_TAKEN, join_units, select
from .units import UnitEncoder, load_encoder, random_encoder


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `head_width` is --head-width. Defaults are the tiny preset's."""

    # Data
    data: str = "toy:signal=0"  # anything shared.data.load takes; trees are part of the data
    level: str = "edu"  # what is extracted: "edu" (Table 2) or "sentence" (Table 3)
    folds: int = 0  # cross-validation over train and validation together; 0 = the splits as they are
    fold: int = 0  # which of the folds is the test data
    subset: int = 0  # train on so many documents at most, drawn with subset_seed (Section 5.2, low resource); 0 = all
    subset_seed: int = 0
    shuffle_trees: bool = False  # control: the matrix of each tree with its units in random order
    # Unit encoder
    encoder: str = ""  # any encoder of transformers, by name or folder; empty = a small random one (D9)
    max_tokens: int = 128  # longest unit in word pieces, longer ones are cut
    max_pieces: int = 0  # longest document in word pieces, then units are cut (released code: 1000); 0 = no limit
    # Model: see ModelConfig; the width is the encoder's
    attention: str = "c_tree_nuclearity"
    heads: int = 1
    layers: int = 2
    balanced: bool = False  # the second setting of Section 5.1: sizes that put the weight on the attention
    head_width: int = 0  # 0 = Section 5.1: 64; balanced 2/3 of the encoder's width (512 at bert-base, D16)
    inner: int = 0  # 0 = Section 5.1: 4 times the encoder's width (3072 at bert-base, D16); balanced 2/3 of it
    dense_inner: int = 512
    max_units: int = 512
    positions: int = 1000
    dropout: float = 0.1
    classifier: int = 100
    # Optimisation
    steps: int = 600  # updates (released code: 24,000)
    batch: int = 32  # documents (released code)
    learning_rate: float = 0.01  # factor of min(n^-0.5, n warmup^-1.5) (Section 5.1; D11)
    warmup: int = 200  # updates (released code: 2,400)
    evaluate_every: int = 100  # updates between evaluations, of which the best stays (released code: 300)
    mixed_precision: str = "no"  # "no" or "bf16"
    seed: int = 0
    # Summaries; evaluate.py takes these from here
    units_taken: int = 0  # 0 = 6 EDUs or 3 sentences (Section 5.1)
    max_words: int = 0  # a summary that has so many words is complete (released code: 80); 0 = no limit

    def __post_init__(self):
        choices = {"level": ("edu", "sentence"), "attention": ATTENTIONS, "mixed_precision": ("no", "bf16")}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; use one of {', '.join(allowed)}")
        for name in ("steps", "batch", "warmup", "evaluate_every", "max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("subset", "max_pieces", "units_taken", "max_words"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        if self.folds and (self.folds < 3 or not 0 <= self.fold < self.folds):
            raise ValueError(f"fold {self.fold} of {self.folds} folds: need 3 folds or more, counted from 0")
        if self.shuffle_trees and self.attention not in TREES:
            raise ValueError(f"shuffle_trees is a control of tree attention; {self.attention} attention reads no tree")
        self.model_config(768)

    def model_config(self, width: int) -> ModelConfig:
        """The model's part of the fields, with the encoder's width D."""
        shared_fields = {field.name for field in fields(ModelConfig)} & {field.name for field in fields(self)}
        values = {name: getattr(self, name) for name in shared_fields} | {"width": width}
        # D16: the paper's sizes belong to D = 768; another width gets them in proportion, but heads of 64 as usual.
        values["head_width"] = self.head_width or (2 * width // 3 if self.balanced else 64)
        values["inner"] = self.inner or (2 * width // 3 if self.balanced else 4 * width)
        return ModelConfig(**values)

    @property
    def count(self) -> int:
        """Units of a summary."""
        return self.units_taken or UNITS_TAKEN[self.level]


PAPER = dict(  # Section 5.1 and released code; the data as a folder of JSON lines with trees beside them
    data="cnn_dailymail_trees", encoder="bert-base-uncased", steps=24_000, batch=32, warmup=2400,
    evaluate_every=300, max_pieces=1000, max_words=80,
)  # fmt: skip
GUM = dict(  # this repository's: 200 long documents, the paper's sizes on an encoder of width 384, minutes on a CPU
    data="gum", folds=5, steps=240, batch=8, learning_rate=0.002, warmup=50, evaluate_every=20, mixed_precision="bf16",
)  # fmt: skip
PRESETS = {
    "tiny": {},
    "gum": GUM,
    "gum-balanced": GUM | dict(balanced=True),
    "paper": PAPER,
    "paper-balanced": PAPER | dict(balanced=True),
}


def learning_rate(step: int, config: TrainConfig) -> float:
    """Section 5.1: inverse square root with linear warm-up; `learning_rate` is a factor, not the peak (D11)."""
    number = step + 1
    return config.learning_rate * min(number**-0.5, number * config.warmup**-1.5)


# Data


@lru_cache(maxsize=4)
def read_documents(
    data: str, splits: tuple[str, ...], level: str, limit: int | None
) -> tuple[list[Example], list[Document]]:
    """Examples and their documents; kept, since the runs of a table and the parts of a fold read the same ones."""
    examples = [example for split in splits for example in load(data, split, limit)]
    identity, count = Counter(example.id for example in examples).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{data}: the id {identity!r} is in both {' and '.join(splits)}; folds need unique ids")
    return examples, [make_document(example, level, f"{data}: ") for example in tqdm(examples, "units", leave=False)]


def splits_read(config: TrainConfig, split: str) -> tuple[str, ...]:
    """The splits of the data that a split of the run is taken from."""
    return ("train", "validation") if config.folds else (split,)


def choose_documents(config: TrainConfig, split: str, count: int) -> list[int]:
    """Which of `count` documents belong to a split of a run; with folds these are all documents of the data.

    With folds, train and validation of the data are one corpus, whose vectors and matrices all folds share: fold k of
    it is the test data, fold k + 1 the validation data, the others are for training.
    """
    chosen = list(range(count))
    if config.folds:
        order = np.random.default_rng(0).permutation(count).tolist()
        part = {"test": config.fold, "validation": (config.fold + 1) % config.folds}
        numbers = {part[split]} if split in part else set(range(config.folds)) - set(part.values())
        chosen = [i for place, i in enumerate(order) if place % config.folds in numbers]
    if split == "train" and config.subset:
        order = np.random.default_rng(config.subset_seed).permutation(len(chosen))[: config.subset]
        chosen = [chosen[place] for place in sorted(order)]
    return chosen


def load_corpus(
    config: TrainConfig,
    split: str,
    encoder: UnitEncoder,
    cache: str | Path,
    progress: bool = True,
    limit: int | None = None,
) -> tuple[Corpus, list[Example], int]:
    """A split's documents with vectors and matrices, their examples, and how many documents had to be cut."""
    whole = None if config.folds else limit
    examples, documents = read_documents(config.data, splits_read(config, split), config.level, whole)
    corpus, cut = prepare(documents, config, encoder, cache, progress)
    chosen = choose_documents(config, split, len(examples))[:limit]
    return corpus.select(chosen), [examples[i] for i in chosen], len(cut & set(chosen))


def prepare(
    documents: Sequence[Document], config: TrainConfig, encoder: UnitEncoder, cache: str | Path, progress: bool = True
) -> tuple[Corpus, set[int]]:
    """Documents with vectors and matrices, and which documents had to be cut."""
    limit = longest_document(config.model_config(encoder.width))
    short = [cut_document(document, min(limit, _units_within(document, config, encoder))) for document in documents]
    cut = {i for i, document in enumerate(documents) if len(short[i].units) < len(document.units)}
    shuffle_seed = config.seed if config.shuffle_trees else None
    bar = partial(tqdm, desc="unit vectors", unit="batch", disable=not progress)
    return Corpus(short, encoder, config.attention, config.level, cache, shuffle_seed, bar), cut


def _units_within(document: Document, config: TrainConfig, encoder: UnitEncoder) -> int:
    """How many units fit into `max_pieces` word pieces; at least one."""
    if not config.max_pieces:
        return len(document.units)
    pieces = [len(ids) for ids in encoder.tokenizer(document.units).input_ids]
    return max(1, int(np.searchsorted(np.cumsum(pieces), config.max_pieces, side="right")))


def batch_indices(sizes: Sequence[int], batch: int, seed: int, epoch: int) -> list[list[int]]:
    """Batches of documents of like length for one epoch, in random order; the same whenever they are asked for."""
    rng = np.random.default_rng((seed, epoch))
    by_length = np.lexsort((rng.random(len(sizes)), sizes))
    batches = [by_length[start : start + batch].tolist() for start in range(0, len(sizes), batch)]
    return [batches[i] for i in rng.permutation(len(batches))]


# Extraction


@torch.inference_mode()
def score_documents(model: Summarizer, corpus: Corpus, batch: int = 32) -> list[np.ndarray]:
    """Score of every unit of every document, in the order of the corpus; the model is put into eval mode."""
    model.eval()
    by_length = sorted(range(len(corpus)), key=lambda i: len(corpus.documents[i].units))
    scores: list[np.ndarray] = [np.empty(0)] * len(corpus)
    for start in range(0, len(by_length), batch):
        chosen = by_length[start : start + batch]
        b = collate(corpus, chosen, next(model.parameters()).device)
        for row, index in zip(model(b.units, b.keep, b.matrix).float().cpu().numpy(), chosen, strict=True):
            scores[index] = row[: len(corpus.documents[index].units)]
    return scores


def extract(document: Document, scores: np.ndarray, config: TrainConfig) -> list[str]:
    """The summary that some scores give, as a list of sentences."""
    lengths = [len(unit.split()) for unit in document.units]
    taken = select(scores, document.required, config.count, lengths, config.max_words)
    return join_units(document.units, document.sentence, taken)


# The run folder


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: Summarizer
    encoder: UnitEncoder


def write_json(path: Path, value: object) -> None:
    """Write to a temporary name and rename, so that the file is either whole or not there."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def read_config(run_dir: Path) -> TrainConfig:
    """config.json of a run folder of this package; raises ValueError that names the file and what is wrong."""
    path = run_dir / "config.json"
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist: {run_dir} is no run folder of discourse_tree_attention") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is cut off or not JSON ({error}): train the run again") from None
    if saved.get("package") != "discourse_tree_attention":
        raise ValueError(f"{path} belongs to the package {saved.get('package')!r}, not to discourse_tree_attention")
    if unknown := set(saved["train"]) - {field.name for field in fields(TrainConfig)}:
        raise ValueError(f"{path}: unknown field {', '.join(sorted(unknown))}: the run was made by another version")
    return TrainConfig(**saved["train"])


def load_run(run_dir: str | Path) -> Run:
    """Read a finished run; the model is in eval mode on the CPU.

    Raises:
        ValueError: not a run folder, one of another package, one that is not finished, a cut-off file, no encoder.
    """
    run_dir = Path(run_dir)
    config = read_config(run_dir)
    weights = run_dir / "model.safetensors"
    if not weights.exists():
        raise ValueError(f"{weights} does not exist: the run is not finished, go on with --out {run_dir} --resume")
    encoder = load_encoder(config.encoder or str(run_dir / "encoder"), config.max_tokens)
    model = Summarizer(config.model_config(encoder.width))
    try:
        model.load_state_dict(load_file(weights))
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{weights} is cut off or does not fit config.json ({error})") from None
    return Run(config, model.eval(), encoder)


# Training


def train(config: TrainConfig, run_dir: str | Path, cache: str | Path = "", resume: bool = False) -> None:
    """Train and write the run folder.

    Args:
        cache: folder of unit vectors and matrices; by default `cache` in the run folder.
        resume: go on after the last checkpoint; the result is bit for bit that of a run that was never stopped.
    Raises:
        ValueError: bad data, or a run folder that cannot be used; nothing is lost.
    """
    run_dir = Path(run_dir)
    if (run_dir / "config.json").exists() and not resume:
        raise ValueError(f"{run_dir} already holds a run: add --resume to go on with it, or choose another --out")
    if (run_dir / "config.json").exists() and (saved := read_config(run_dir)) != config:
        changed = ", ".join(name for name, value in vars(saved).items() if getattr(config, name) != value)
        raise ValueError(f"{run_dir} holds a run with another {changed}: choose another folder")
    for split in ("train", "validation"):  # bad data is found before anything is written
        examples, _ = read_documents(config.data, splits_read(config, split), config.level, None)
        if not config.encoder and split == "train" and not (run_dir / "encoder" / "config.json").exists():
            texts = [sentence for example in examples for sentence in example.document]
    if not config.encoder and not (run_dir / "encoder" / "config.json").exists():
        random_encoder(texts, run_dir / "encoder")
    encoder = load_encoder(config.encoder or str(run_dir / "encoder"), config.max_tokens)
    cache = cache or run_dir / "cache"
    training, _, cut = load_corpus(config, "train", encoder, cache)
    validation, examples, _ = load_corpus(config, "validation", encoder, cache)
    if not any(document.labels.any() for document in training.documents):
        raise ValueError(f"{config.data}: no unit shares a word with its summary, there is nothing to learn")
    if not (run_dir / "config.json").exists():
        run_dir.mkdir(parents=True, exist_ok=True)
        write_json(run_dir / "config.json", {"package": "discourse_tree_attention", "train": asdict(config)})
    run = Training(config, run_dir, training, validation, [example.references for example in examples])
    if not run.step:
        (run_dir / "log.jsonl").unlink(missing_ok=True)  # of a run killed before its first checkpoint
        run.log({"documents": len(training), "documents_cut": cut, "positive_weight": run.positive_weight})
    run.run()


class Training:
    """One run: the loop, its checkpoint and its log."""

    def __init__(self, config: TrainConfig, run_dir: Path, training: Corpus, validation: Corpus, references: list):
        """Take up the run where its checkpoint left it, or at its beginning.

        Args:
            references: of the validation documents, as `rouge.score` takes them.
        """
        self.config, self.run_dir = config, run_dir
        self.training, self.validation, self.references = training, validation, references
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.manual_seed(config.seed)
        self.model = Summarizer(config.model_config(training.vectors.shape[1])).to(self.device)
        # Released code: Adam, beta 0.9 and 0.999, eps 1e-9.
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.0, betas=(0.9, 0.999), eps=1e-9)
        labels = np.concatenate([document.labels for document in training.documents])
        self.positive_weight = float((~labels).sum() / labels.sum())  # D12
        self.step, self.best = 0, {"step": 0, "rouge2": -1.0}
        self.epoch: tuple[int, list[list[int]]] = (-1, [])  # number and batches of the epoch under way
        self.restore()

    def run(self) -> None:
        """Train to the last step and write model.safetensors."""
        config = self.config
        bar = tqdm(total=config.steps, initial=self.step, unit="step")
        while self.step < config.steps:
            measures = self.update()
            bar.update()
            bar.set_postfix(measures, refresh=False)
            if self.step % config.evaluate_every == 0 or self.step == config.steps:
                self.save(measures)
        bar.close()
        save_file(self.best["weights"], self.run_dir / "model.safetensors.tmp")
        os.replace(self.run_dir / "model.safetensors.tmp", self.run_dir / "model.safetensors")

    def update(self) -> dict[str, float]:
        """One step on one batch."""
        sizes = [len(document.units) for document in self.training.documents]
        epoch, number = divmod(self.step, -(-len(sizes) // self.config.batch))
        if self.epoch[0] != epoch:
            self.epoch = epoch, batch_indices(sizes, self.config.batch, self.config.seed, epoch)
        batch = collate(self.training, self.epoch[1][number], self.device)
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step, self.config)
        loss = self.loss(batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return {"loss": round(loss.item() / int(batch.keep.sum()), 4), "lr": learning_rate(self.step - 1, self.config)}

    def loss(self, batch: Batch) -> Tensor:
        """Loss of a batch, summed over its units."""
        half = self.config.mixed_precision == "bf16"
        with torch.autocast(self.device.type, torch.bfloat16) if half else nullcontext():
            scores = self.model(batch.units, batch.keep, batch.matrix)
        return extraction_loss(scores.float(), batch.labels, batch.keep, self.positive_weight)

    def validate(self) -> dict[str, float]:
        """ROUGE of the validation documents' summaries."""
        scores = score_documents(self.model, self.validation)
        pairs = zip(self.validation.documents, scores, strict=True)
        values = rouge.score([extract(document, s, self.config) for document, s in pairs], self.references)
        return {metric: round(float(values[metric].mean()), 4) for metric in ("rouge1", "rouge2", "rougeLsum")}

    def save(self, measures: dict[str, float]) -> None:
        """Evaluate, and write checkpoint.pt: a run killed at any moment resumes from the last whole one."""
        values = self.validate()
        self.log({"step": self.step, **measures, **values})
        if values["rouge2"] > self.best["rouge2"]:  # released code: the best ROUGE-2 stays
            self.best = {"step": self.step, "rouge2": values["rouge2"], "weights": self.weights()}
        state = {
            "step": self.step,
            "weights": self.weights(),
            "optimizer": self.optimizer.state_dict(),
            "best": self.best,
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        }
        temporary = self.run_dir / "checkpoint.pt.tmp"
        torch.save(state, temporary)
        os.replace(temporary, self.run_dir / "checkpoint.pt")

    def weights(self) -> dict[str, Tensor]:
        """A copy of the model's weights on the CPU."""
        return {name: tensor.detach().cpu().clone() for name, tensor in self.model.state_dict().items()}

    def restore(self) -> None:
        """Continue after the checkpoint, if there is one."""
        path = self.run_dir / "checkpoint.pt"
        if not path.exists():
            return
        try:
            state = torch.load(path, map_location="cpu", weights_only=False)
        except (RuntimeError, EOFError) as error:
            raise ValueError(f"{path} is cut off ({error}): delete it, and the run starts again") from None
        self.step, self.best = state["step"], state["best"]
        self.model.load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        if state["random_cuda"]:
            torch.cuda.set_rng_state_all(state["random_cuda"])
        log = self.run_dir / "log.jsonl"  # what a killed run wrote after the checkpoint is forgotten
        rows = [row for row in map(json.loads, log.read_text().splitlines()) if row.get("step", 0) <= self.step]
        log.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def log(self, row: dict) -> None:
        """Append a row to log.jsonl."""
        with (self.run_dir / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


# Command line


def flag_type(kind: type) -> Callable[[str], object]:
    """What turns a flag's text into its field's type."""

    def boolean(text: str) -> bool:
        return {"true": True, "false": False}[text.lower()]

    def parse(text: str) -> object:
        try:
            return (boolean if kind is bool else kind)(text)
        except (KeyError, ValueError):
            raise argparse.ArgumentTypeError(
                f"{text!r} is not {'true or false' if kind is bool else kind.__name__}"
            ) from None

    return parse


def parse(arguments: Sequence[str] | None = None) -> tuple[TrainConfig, Path, str, bool]:
    """Command line -> config, run folder, cache folder, resume.

    Raises:
        SystemExit: an unknown or mistyped flag.
        ValueError: a value out of range, a run folder in use, or --resume with other values than the run's.
    """
    module = "python -m discourse_tree_attention.train"
    parser = argparse.ArgumentParser(module, description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--out", required=True, type=Path, help="run folder")
    parser.add_argument("--preset", default="tiny", choices=list(PRESETS), help="named set of values (default tiny)")
    parser.add_argument("--cache", default="", help="folder of unit vectors and matrices (default: in the run folder)")
    parser.add_argument("--resume", action="store_true", help="go on after the last checkpoint, if there is one")
    for field in fields(TrainConfig):
        flag, kind = "--" + field.name.replace("_", "-"), flag_type(field.type)
        parser.add_argument(flag, type=kind, default=argparse.SUPPRESS, metavar=field.type.__name__)
    given = vars(parser.parse_args(arguments))
    run_dir, preset, cache, resume = (given.pop(name) for name in ("out", "preset", "cache", "resume"))
    if resume and (run_dir / "config.json").exists():
        saved = read_config(run_dir)
        if changed := [name for name, value in given.items() if getattr(saved, name) != value]:
            raise ValueError(f"--resume keeps the values in {run_dir / 'config.json'}; leave out {', '.join(changed)}")
        return saved, run_dir, cache, True
    return TrainConfig(**PRESETS[preset] | given), run_dir, cache, resume


def main(arguments: Sequence[str] | None = None) -> None:
    """Train; bad input ends the program with one line that says what is wrong."""
    try:
        train(*parse(arguments))
    except (ValueError, ImportError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command with --resume goes on after the last checkpoint")


if __name__ == "__main__":
    main()
