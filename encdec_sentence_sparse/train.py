"""Train a summariser, make its attention sparse, and teach it to choose sentences.

python -m encdec_sentence_sparse.train --task base --out runs/sparse-base
python -m encdec_sentence_sparse.train --task sparse --out runs/sparse-0.1 --init runs/sparse-base --gamma 0.1
python -m encdec_sentence_sparse.train --task kl --out runs/sparse-kl --init runs/sparse-base
python -m encdec_sentence_sparse.train --task integrated --out runs/sparse-apx --init runs/sparse-kl --select approx

The run folder holds config.json, log.jsonl, tokenizer/, punkt.json with --sentences nltk, checkpoint.pt with what
--resume needs, and in the end model/ (a folder that `model.load_model` loads).
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import AutoConfig, AutoTokenizer, BartConfig, PreTrainedTokenizerBase, logging

from shared.data import Example, load

from .approximator import KINDS
from .model import SentenceSparseBart, freeze, load_model
from .selection import Selection, SentenceAttention, entropy, kl_divergence, sharpen
from .sentences import ENDS, RULES, Splitter, make_splitter, punkt_values
from .text import encode, ending_ids, tokenize, train_tokenizer

TASKS = ("base", "sparse", "kl", "integrated")
SELECTIONS = ("ideal", "approx", "mix")
SCALES = ("paper", "released")
RULE = dict(sentences="given", eos="own", sentence_end=" .")


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source. Defaults: the tiny base."""

    task: str = "base"  # one of TASKS
    # Data
    data: str = "toy"  # anything shared.data.load takes
    examples: int = 0  # train on the first so many; 0 = all
    max_source: int = 1024  # tokens, `<s>` and `</s>` included. D9: longer documents are cut, 4096 for LoBART
    max_target: int = 256  # tokens; longer summaries are cut (released code: 200, arXiv 400)
    # Sentences; an empty value is that of --init, or of RULE, or "nltk" for documents that are not split
    sentences: str = ""  # one of sentences.RULES
    eos: str = ""  # D7: `</s>` is a sentence of its "own" (released code) or belongs to the "last"; not with eos-token
    sentence_end: str = ""  # token that ends a sentence with --sentences eos-token (released code: "." or " .")
    # The model to start from: a run of this package, or a name or folder of transformers, or (base) a small new BART
    init: str = ""
    model: str = ""  # the paper's: facebook/bart-large-cnn, facebook/bart-large-xsum
    attention_window: int = 0  # LoBART: width of local attention in the encoder, tokens; 0 = the model's own
    extend_positions: int = 0  # LoBART: length of the position table; 0 = the model's own
    # The small BART
    vocabulary: int = 1000  # subwords
    width: int = 128
    feed_forward: int = 512
    heads: int = 4
    layers: int = 2  # of the encoder, and as many of the decoder
    positions: int = 1024
    dropout: float = 0.0  # a loaded model has its own
    # Attention
    gamma: float = 0.1  # of sparse: weight of the entropy, Eq. 5; Table 2 has 0.1 and 1
    sentence_encoder: str = "gru"  # of kl: the paper's "gru", "mean" or "attention"
    temperature: float = 0.5  # of kl and integrated: of the target; A.5
    kl_scale: str = "paper"  # D5: or "released": divided by the number of sentences, summed over layers
    kl_weight: float = 0.2  # of integrated: lambda; A.5
    select: str = "approx"  # of integrated: "ideal" (Int-Idl), "approx" (Int-Apx) or "mix" (Int-Mix)
    r: int = 5  # of integrated: sentences that a step attends to; Section 4.4
    mix_steps: int = 0  # updates until mix is approx alone; 0 = an epoch, Section 4.3
    # Optimisation
    steps: int = 1500  # updates at most
    batch_size: int = 32  # documents of a micro-batch of one process
    accumulate: int = 1  # micro-batches per update and process
    learning_rate: float = 1e-3  # the highest
    schedule: str = "inverse_sqrt"  # or "constant", each after a linear warm-up
    warmup: int = 100  # updates
    clip: float = 1.0  # norm of the gradient; 0 = as it is
    save_every: int = 100  # updates between checkpoints, each with a validation; 0 = an epoch
    patience: int = 0  # stop after so many validations without improvement and take the best; 0 = never, take the last
    mixed_precision: str = "no"  # "no", "bf16" or "fp16"
    seed: int = 0

    def __post_init__(self):
        choices = {
            "task": TASKS,
            "sentences": ("", *RULES),
            "eos": ("", *ENDS),
            "sentence_encoder": KINDS,
            "kl_scale": SCALES,
            "select": SELECTIONS,
            "schedule": ("inverse_sqrt", "constant"),
            "mixed_precision": ("no", "bf16", "fp16"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; use one of {', '.join(filter(None, allowed))}")
        sizes = ("vocabulary", "width", "feed_forward", "layers", "heads", "positions")
        for name in ("steps", "batch_size", "accumulate", "warmup", "r", *sizes):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("max_source", "max_target"):
            if getattr(self, name) < 3:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 3: <s>, a token, </s>")
        for name in ("examples", "save_every", "patience", "gamma", "kl_weight", "mix_steps", "clip"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        if self.attention_window < 0 or self.attention_window % 2 or self.extend_positions < 0:
            raise ValueError(
                f"attention_window is {self.attention_window}, extend_positions {self.extend_positions}; they must be "
                "at least 0, and the window even"
            )
        if self.temperature <= 0:
            raise ValueError(f"temperature is {self.temperature}; it must be above 0")
        if self.init and self.model:
            raise ValueError("give --init (a run of this package) or --model (a name or folder), not both")
        if self.task != "base" and not (self.init or self.model):
            raise ValueError(f"task {self.task!r} starts from a trained model: give --init RUN or --model NAME")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads = {self.heads}")


SCHEDULE = dict(  # A.3; an epoch of CNN/DailyMail, in which all of the paper's training converged
    batch_size=1, accumulate=2, learning_rate=0.002 * 20_000**-0.5, schedule="inverse_sqrt", warmup=20_000, clip=0.0,
    save_every=20_000, patience=3, steps=143_556,
)  # fmt: skip
PAPER = {  # data, lengths (released code) and r* of Section 4.4
    "paper": dict(data="cnn_dailymail", model="facebook/bart-large-cnn", sentences="nltk", max_target=200, r=5,
                  sentence_end="."),
    "paper-xsum": dict(data="xsum", model="facebook/bart-large-xsum", sentences="nltk", max_target=200, r=10,
                       sentence_end=".", steps=102_022),
    "paper-arxiv": dict(data="arxiv", sentences="nltk", max_source=4096, max_target=400, r=30, steps=101_518),
    "paper-podcast": dict(data="podcast", sentences="nltk", max_source=4096, max_target=200, r=30, sentence_end=".",
                          steps=30_207),  # data: a folder of JSONL
}  # fmt: skip
LOBART = dict(model="facebook/bart-large-cnn", attention_window=1024, extend_positions=4096)
PRESETS = {
    "base": {"tiny": {}}
    | {name: SCHEDULE | values | (LOBART if values.get("max_source") else {}) for name, values in PAPER.items()},
    "sparse": {"tiny": dict(steps=300, learning_rate=3e-4, warmup=50)}
    | {name: SCHEDULE | values | dict(save_every=25_000) for name, values in PAPER.items()},  # released code
    "kl": {"tiny": dict(steps=500, warmup=50)} | {name: SCHEDULE | values for name, values in PAPER.items()},
    "integrated": {"tiny": dict(steps=500, learning_rate=3e-4, warmup=50)}
    | {name: SCHEDULE | values | dict(model="") for name, values in PAPER.items()},  # starts from a run of --task kl
}


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of update `step` (from 0): linear warm-up, then the schedule.

    "inverse_sqrt" is the rate of A.3, factor * min(n^-0.5, n * warmup^-1.5), whose highest value is
    learning_rate = factor * warmup^-0.5. D15: n counts updates (released code: documents, two to an update).
    """
    number = step + 1
    if number < config.warmup:
        return config.learning_rate * number / config.warmup
    if config.schedule == "inverse_sqrt":
        return config.learning_rate * (config.warmup / number) ** 0.5
    return config.learning_rate


# The losses. Each is a sum over the real target steps of a batch, which `Training.update` divides by their number.


def sparsity_loss(record: Sequence[SentenceAttention], is_step: Tensor) -> Tensor:
    """L_sparse of Eq. (5) times M: entropy of sentence-level attention, mean over heads (A.4) and layers.

    Args:
        record: of all decoder layers.
        is_step: (B, T) bool, False at padding.
    """
    of_layers = [entropy(each.exact.float()).mean(1) for each in record]  # (B, T) each
    return (torch.stack(of_layers).mean(0) * is_step).sum()


def kl_loss(
    record: Sequence[SentenceAttention],
    is_step: Tensor,
    exists: Tensor,
    temperature: float = 0.5,
    scale: str = "paper",
) -> Tensor:
    """L_KL of Eq. (11) times M: from the sharpened saliency to its approximation, mean over heads (A.4) and layers.

    Nothing is detached: in integrated training the loss reaches the decoder through both of its arguments.

    Args:
        record: of all decoder layers, with an approximation.
        is_step: (B, T) bool.
        exists: (B, N) bool.
        scale: "paper", or D5: "released", divided by the number of sentences and summed over layers.
    """
    of_layers = [
        kl_divergence(sharpen(each.exact.float(), exists, temperature), each.approximate.float()).mean(1)
        for each in record
    ]
    divergence = torch.stack(of_layers)  # (layers, B, T)
    if scale == "released":
        return (divergence.sum(0) / exists.sum(1, keepdim=True) * is_step).sum()
    return (divergence.mean(0) * is_step).sum()


def ideal_probability(step: int, mix_steps: int) -> float:
    """Section 4.3: how likely Int-Mix takes the exact saliency at update `step`; from 1 down to 0 in `mix_steps`."""
    return max(0.0, 1 - step / mix_steps)


def choose_selection(config: TrainConfig, step: int, mix_steps: int) -> Selection:
    """What decoder layers attend to at update `step`, in all of its micro-batches and processes."""
    if config.task != "integrated":
        return Selection("full")
    mode = config.select
    if mode == "mix":  # D17: drawn once an update, from the seed and the step (released code: once a document)
        draw = np.random.default_rng((config.seed, 1, step)).random()
        mode = "ideal" if draw < ideal_probability(step, mix_steps) else "approx"
    return Selection(mode, r=config.r)


# The run folder


def write_json(path: Path, value: object) -> None:
    """Write to a temporary name and rename, so that the file is either whole or not there."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def read_json(path: Path) -> object:
    """A JSON file of a run folder; raises ValueError that names it when it is missing or cut off."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"{path} does not exist: {path.parent} is not a run folder of encdec_sentence_sparse.train"
        ) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is cut off or not JSON ({error}): train the run again") from None


def read_config(run_dir: str | Path) -> TrainConfig:
    """The config of a run folder of this package.

    Raises:
        ValueError: names the file and what is wrong.
    """
    path = Path(run_dir) / "config.json"
    saved = read_json(path)
    if saved.get("package") != "encdec_sentence_sparse":
        raise ValueError(f"{path} belongs to the package {saved.get('package')!r}, not to encdec_sentence_sparse")
    unknown = set(saved["train"]) - {field.name for field in fields(TrainConfig)}
    if unknown:
        raise ValueError(f"{path}: unknown field {', '.join(sorted(unknown))}: the run was made by another version")
    return TrainConfig(**saved["train"])


def model_folder(run_dir: str | Path) -> str:
    """The model of a finished run; raises ValueError for what is not a run of this package, or not finished."""
    read_config(run_dir)
    if not (folder := Path(run_dir) / "model").exists():
        raise ValueError(f"{folder} does not exist: the run is not finished, go on with --out {run_dir} --resume")
    return str(folder)


def load_pretrained(load_it: Callable, name: str, **keywords):
    """`load_it(name)`; raises ValueError with the remedy when it is not there or does not fit."""
    try:
        return load_it(name, **keywords)
    except Exception as error:  # transformers and the hub raise a dozen unrelated types
        remedy = "make it again" if Path(name).exists() else f"give a folder, or: HF_HUB_OFFLINE=0 hf download {name}"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(f"cannot load {name!r} ({reason}): {remedy}") from error


def load_bart(name: str, **keywords) -> SentenceSparseBart:
    """`model.load_model` of what is a BART; another model would load without a word as a BART of random weights."""
    kind = load_pretrained(AutoConfig.from_pretrained, name).model_type
    if kind != "bart":
        raise ValueError(f"{name!r} is a {kind} model: give the name or folder of a BART")
    return load_pretrained(load_model, name, **keywords)


def load_run(
    run_or_name: str | Path, sentences: str = "given"
) -> tuple[SentenceSparseBart, PreTrainedTokenizerBase, TrainConfig, Splitter]:
    """A model in eval mode on the CPU, its tokenizer, how it was trained, and how its documents are split.

    Args:
        run_or_name: a finished run, or a BART of transformers by its folder or name.
        sentences: rule for a BART that is no run.
    Raises:
        ValueError: a run of another package or not finished; a name that is not on this machine or in reach.
    """
    name = str(run_or_name)
    saved = Path(name) / "config.json"
    is_run = saved.exists() and "package" in read_json(saved)
    config = read_config(name) if is_run else with_rule(TrainConfig(model=name, sentences=sentences))
    folder = model_folder(name) if is_run else name
    tokenizer = load_pretrained(AutoTokenizer.from_pretrained, folder)
    model = load_bart(folder)
    return model, tokenizer, config, find_splitter(config, tokenizer, Path(name) if is_run else None)


def find_splitter(
    config: TrainConfig, tokenizer: PreTrainedTokenizerBase, run_dir: Path | None, examples: Sequence[Example] = ()
) -> Splitter:
    """The splitter of a run or of the run it started from, or a new one (see `make_splitter`)."""
    if config.sentences == "nltk":
        paths = [Path(folder) / "punkt.json" for folder in (run_dir, config.init) if folder]
        saved = next((read_json(path) for path in paths if path.exists()), None)
        return make_splitter("nltk", (example.source for example in examples), saved, config.eos)
    ids = ending_ids(tokenizer, config.sentence_end) if config.sentences == "eos-token" else ()
    return make_splitter(config.sentences, eos=config.eos, eos_ids=ids)


# The data and the model


class Item(NamedTuple):
    """A document and its summary as token ids."""

    source: list[int]
    sentence_ids: list[int]  # as long as source
    target: list[int]
    was_cut: bool


class Batch(NamedTuple):
    """Items side by side, padded."""

    source: Tensor  # (B, S)
    is_real: Tensor  # (B, S) 1 = token
    sentence_ids: Tensor  # (B, S)
    labels: Tensor  # (B, T). D6: -100 at padding, which no loss counts (released code: 0, which they count). D19: the
    # decoder reads </s> and then these, as in generation (released code: without </s>)

    @property
    def exists(self) -> Tensor:
        """(B, N) bool, the sentences of each document."""
        last = self.sentence_ids.amax(1, keepdim=True)
        return torch.arange(int(last.max()) + 1, device=last.device) <= last


class Task:
    """What is trained, on what, and by which loss."""

    def __init__(self, config: TrainConfig, run_dir: Path, examples: Sequence[Example]):
        self.tokenizer = make_tokenizer(config, run_dir, examples)
        self.module = make_model(config, self.tokenizer)
        positions = self.module.config.max_position_embeddings
        for name in ("max_source", "max_target"):
            if getattr(config, name) > positions:
                raise ValueError(f"{name} is {getattr(config, name)}, the model has {positions} positions: lower it")
        if config.task == "integrated" and self.module.sentence_encoder is None:
            raise ValueError("task 'integrated' needs an approximator: give --init a run of --task kl")
        self.config = with_rule(config)
        if self.config.sentences == "given" and all(len(example.document) == 1 for example in examples):
            if config.sentences or config.init:
                raise ValueError(f"the documents of {config.data} are not split into sentences: use --sentences nltk")
            self.config = replace(self.config, sentences="nltk")  # D8: the default for such data
        self.splitter = find_splitter(self.config, self.tokenizer, run_dir, examples)
        freeze(self.module, config.task)

    def prepare(self, examples: Sequence[Example]) -> list[Item]:
        items = []
        for example in examples:
            document = encode(self.tokenizer, example.document, self.config.max_source, self.splitter)
            target, _ = tokenize(self.tokenizer, example.target, self.config.max_target)
            items.append(Item(document.ids, document.sentence_ids, target["input_ids"], document.was_cut))
        return items

    def batch(self, items: Sequence[Item], device: torch.device) -> Batch:
        return Batch(
            pad([item.source for item in items], self.tokenizer.pad_token_id, device),
            pad([[1] * len(item.source) for item in items], 0, device),
            pad([item.sentence_ids for item in items], -1, device),
            pad([item.target for item in items], -100, device),
        )

    def losses(self, module: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """The loss and its parts, each a sum over the target tokens of the batch."""
        config = self.config
        record = None if config.task == "base" else []
        output = module(
            input_ids=batch.source,
            attention_mask=batch.is_real,
            sentence_ids=batch.sentence_ids,
            labels=batch.labels,
            record=record,
        )
        logits, is_step = output.logits.float(), batch.labels != -100  # (B, T, V), (B, T)
        cross_entropy = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum")
        if config.task == "base":
            return {"loss": cross_entropy}
        if config.task == "sparse":
            sparse = sparsity_loss(record, is_step)
            # Eq. (5): L_A = L_xent + gamma L_sparse
            return {"loss": cross_entropy + config.gamma * sparse, "xent": cross_entropy, "entropy": sparse}
        divergence = kl_loss(record, is_step, batch.exists, config.temperature, config.kl_scale)
        if config.task == "kl":
            return {"loss": divergence}
        # Eq. (12): L_I = L_xent + lambda L_KL. One backward pass gives both gradients. Eq. (13): the decoder's is that
        # of both losses. Eq. (14): theta~'s is that of L_KL alone, as the top-r choice passes no gradient on.
        return {"loss": cross_entropy + config.kl_weight * divergence, "xent": cross_entropy, "kl": divergence}

    def finish(self, module: SentenceSparseBart, run_dir: Path) -> None:
        """Write model/ under a temporary name and rename it."""
        if not (run_dir / "model").exists():
            shutil.rmtree(run_dir / "model.tmp", ignore_errors=True)
            module.save_pretrained(run_dir / "model.tmp")
            self.tokenizer.save_pretrained(run_dir / "model.tmp")
            os.replace(run_dir / "model.tmp", run_dir / "model")


def with_rule(config: TrainConfig) -> TrainConfig:
    """The config with the sentence rule of the run that is trained on, where it has none of its own."""
    rule = asdict(read_config(config.init)) if config.init else RULE
    return replace(config, **{name: getattr(config, name) or rule[name] for name in RULE})


def make_tokenizer(config: TrainConfig, run_dir: Path, examples: Sequence[Example]) -> PreTrainedTokenizerBase:
    """The model's tokenizer, that of the run, or for a new small BART a new one."""
    if config.init or config.model:
        return load_pretrained(AutoTokenizer.from_pretrained, config.model or model_folder(config.init))
    if (run_dir / "tokenizer").exists():
        return load_pretrained(AutoTokenizer.from_pretrained, str(run_dir / "tokenizer"))
    return train_tokenizer(
        [text for example in examples for text in (example.source, example.target)], config.vocabulary
    )


def make_model(config: TrainConfig, tokenizer: PreTrainedTokenizerBase) -> SentenceSparseBart:
    """The model to start from, with an approximator if that is to be trained."""
    if config.init or config.model:
        return load_bart(
            config.model or model_folder(config.init),
            sentence_encoder=config.sentence_encoder if config.task == "kl" else None,
            attention_window=config.attention_window or None,
            positions=config.extend_positions or None,
        )
    sizes = BartConfig(
        vocab_size=len(tokenizer),
        d_model=config.width,
        encoder_layers=config.layers,
        decoder_layers=config.layers,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.feed_forward,
        decoder_ffn_dim=config.feed_forward,
        max_position_embeddings=config.extend_positions or config.positions,
        dropout=config.dropout,
        attention_dropout=config.dropout,
        init_std=config.width**-0.5,  # BART's own 0.02 is for large widths: here attention would stay flat for long
        attention_window=config.attention_window or None,
    )
    return SentenceSparseBart(sizes)


def pad(rows: Sequence[list[int]], value: int, device: torch.device) -> Tensor:
    """(B, longest) on the device, padded on the right."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value).to(device)


class Batches:
    """The endless stream of micro-batches of like length: number i is the same whenever and whoever asks for it."""

    def __init__(self, items: Sequence, batch_size: int, seed: int):
        self.items, self.batch_size, self.seed = items, batch_size, seed
        self.lengths = np.array([len(item.source) for item in items])
        self.per_epoch = -(-len(items) // batch_size)
        self.epoch, self.order = -1, []

    def __getitem__(self, number: int) -> list:
        epoch, index = divmod(number, self.per_epoch)
        if epoch != self.epoch:
            rng = np.random.default_rng((self.seed, epoch))
            by_length = np.argsort(self.lengths * rng.uniform(0.8, 1.2, len(self.lengths)), kind="stable")
            batches = [by_length[i : i + self.batch_size] for i in range(0, len(by_length), self.batch_size)]
            self.epoch, self.order = epoch, [batches[i] for i in rng.permutation(len(batches))]
        return [self.items[i] for i in self.order[index]]


# Training


def train(config: TrainConfig, run_dir: str | Path, resume: bool = False) -> None:
    """Train and write the run folder.

    Args:
        resume: go on after the last checkpoint; the result is bit for bit that of a run that was never stopped.
    Raises:
        ValueError: bad data, or a run folder or model that cannot be used; nothing is lost.
    """
    run_dir = Path(run_dir)
    accelerator = make_accelerator(config.mixed_precision)
    exists = (run_dir / "config.json").exists()
    accelerator.wait_for_everyone()  # all processes look before the first one creates it
    if exists and not resume:
        raise ValueError(f"{run_dir} already holds a run: add --resume to go on with it, or choose another --out")
    examples = load(config.data, "train", config.examples or None)
    validation = load(config.data, "validation")
    set_seed(config.seed)
    task = Task(config, run_dir, examples)
    items, validation = task.prepare(examples), task.prepare(validation)
    accelerator.wait_for_everyone()  # none still looks for a tokenizer in the run folder
    if not exists and accelerator.is_main_process:
        create_run(run_dir, task)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    Training(run_dir, accelerator, task, items, validation).run()


def make_accelerator(mixed_precision: str) -> Accelerator:
    """The processes and devices that accelerate or torchrun has set up."""
    # Without this, several processes on a machine without GPU would each believe to be alone.
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    return Accelerator(mixed_precision=mixed_precision, cpu=several and not torch.cuda.is_available())


def create_run(run_dir: Path, task: Task) -> None:
    """Write what does not change during the run; config.json comes last and makes it a run folder."""
    run_dir.mkdir(parents=True, exist_ok=True)
    task.tokenizer.save_pretrained(run_dir / "tokenizer")
    if task.splitter.punkt is not None:
        write_json(run_dir / "punkt.json", punkt_values(task.splitter))
    write_json(
        run_dir / "config.json",
        {"package": "encdec_sentence_sparse", "task": task.config.task, "train": asdict(task.config)},
    )


class Training:
    """One run: the loop, its checkpoints and its log."""

    def __init__(
        self, run_dir: Path, accelerator: Accelerator, task: Task, items: Sequence[Item], validation: Sequence[Item]
    ):
        """Take up the run where its last checkpoint left it, or at its beginning."""
        self.config, self.run_dir, self.accelerator, self.task = task.config, run_dir, accelerator, task
        self.validation = validation
        self.batches = Batches(items, self.config.batch_size, self.config.seed)
        learning = [parameter for parameter in task.module.parameters() if parameter.requires_grad]
        self.module, self.optimizer = accelerator.prepare(task.module, torch.optim.Adam(learning, lr=0.0))
        self.step, self.best, self.without_gain = 0, None, 0
        per_update = self.config.accumulate * accelerator.num_processes
        epoch = -(-self.batches.per_epoch // per_update)
        self.save_every, self.mix_steps = self.config.save_every or epoch, self.config.mix_steps or epoch
        self.restore()
        if not self.step:
            cut = sum(item.was_cut for item in items)
            self.log({"examples": len(items), "validation_examples": len(validation), "sources_cut": cut})

    def run(self) -> None:
        """Train to the last step, or until nothing improves, and write what the run is for."""
        config, is_main = self.config, self.accelerator.is_main_process
        bar = tqdm(total=config.steps, initial=self.step, disable=not is_main, unit="step")
        while self.step < config.steps and not (config.patience and self.without_gain >= config.patience):
            measures = self.update()
            bar.update()
            bar.set_postfix(measures, refresh=False)
            if self.step % self.save_every == 0 or self.step == config.steps:
                self.save(measures)
        bar.close()
        module = self.accelerator.unwrap_model(self.module).eval()
        if config.patience:
            module.load_state_dict(self.best["weights"])
        self.accelerator.wait_for_everyone()
        if is_main:
            self.task.finish(module, self.run_dir)

    def update(self) -> dict[str, float]:
        """One step on `accumulate` micro-batches in each process."""
        config, accelerator = self.config, self.accelerator
        processes, device = accelerator.num_processes, accelerator.device
        # Process r of P takes every P-th micro-batch: P processes do what one does that accumulates P times as much.
        first = self.step * config.accumulate * processes + accelerator.process_index
        numbers = range(first, first + config.accumulate * processes, processes)
        rate = learning_rate(self.step, config)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        # D14: dropout is on in frozen parts, too (released code).
        self.module.train()
        accelerator.unwrap_model(self.module).selection = choose_selection(config, self.step, self.mix_steps)
        totals, tokens = {}, 0
        for number in numbers:
            batch = self.task.batch(self.batches[number], device)
            with nullcontext() if number == numbers[-1] else accelerator.no_sync(self.module):
                with accelerator.autocast():
                    losses = self.task.losses(self.module, batch)
                accelerator.backward(losses["loss"])
            add_up(totals, losses)
            tokens += int((batch.labels != -100).sum())
        # D18: the mean over all target tokens of the update (released code: sum of the documents' means). DDP has
        # averaged over processes, hence times their number.
        all_tokens = accelerator.reduce(torch.tensor(tokens, device=device)).item()
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad *= processes / all_tokens
        if config.clip:
            accelerator.clip_grad_norm_(self.module.parameters(), config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return {name: round(total / tokens, 4) for name, total in totals.items()} | {"lr": rate}

    @torch.no_grad()
    def validation_losses(self) -> dict[str, float]:
        """Nats per target token in eval mode; every process computes all of it."""
        module = self.accelerator.unwrap_model(self.module).eval()
        # In the end, mix is approx.
        module.selection = choose_selection(self.config, self.mix_steps, self.mix_steps)
        by_length = sorted(self.validation, key=lambda item: len(item.source))
        totals, tokens = {}, 0
        for start in range(0, len(by_length), self.config.batch_size):
            batch = self.task.batch(by_length[start : start + self.config.batch_size], self.accelerator.device)
            add_up(totals, self.task.losses(module, batch))
            tokens += int((batch.labels != -100).sum())
        return {name: total / tokens for name, total in totals.items()}

    def save(self, measures: dict[str, float]) -> None:
        """Validate and write a checkpoint, one file that is renamed when it is whole."""
        random_states = gather_object([random_state()])
        losses = self.validation_losses()
        weights = self.accelerator.unwrap_model(self.module).state_dict()
        is_better = self.best is None or losses["loss"] < self.best["loss"]
        self.without_gain = 0 if is_better else self.without_gain + 1
        if is_better:
            copies = (
                {name: value.detach().cpu().clone() for name, value in weights.items()} if self.config.patience else {}
            )
            self.best = {"loss": losses["loss"], "weights": copies}
        if not self.accelerator.is_main_process:
            return
        found = {f"validation_{name}": round(value, 4) for name, value in losses.items()}
        self.log({"step": self.step, **measures, **found})
        scaler = self.accelerator.scaler
        state = {
            "step": self.step,
            "weights": weights,
            "optimizer": self.optimizer.state_dict(),
            "random": random_states,
            "scaler": scaler.state_dict() if scaler else None,
            "best": self.best,
            "without_gain": self.without_gain,
        }
        temporary = self.run_dir / "checkpoint.pt.tmp"
        torch.save(state, temporary)
        os.replace(temporary, self.run_dir / "checkpoint.pt")

    def restore(self) -> None:
        """Continue after the last checkpoint, if there is one."""
        path = self.run_dir / "checkpoint.pt"
        if not path.exists():
            if self.accelerator.is_main_process:
                (self.run_dir / "log.jsonl").unlink(missing_ok=True)
            return
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, OSError, UnpicklingError) as error:
            raise ValueError(f"{path} is cut off ({error}): delete it, and the run starts again") from None
        if (processes := len(state["random"])) != self.accelerator.num_processes:
            raise ValueError(f"{path} was written by {processes} processes: resume with as many")
        self.step, self.best, self.without_gain = state["step"], state["best"], state["without_gain"]
        self.accelerator.unwrap_model(self.module).load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        set_random_state(state["random"][self.accelerator.process_index])
        if self.accelerator.is_main_process:  # what a killed run logged after this checkpoint is forgotten
            rows = (self.run_dir / "log.jsonl").read_text(encoding="utf-8").splitlines()
            kept = [row for row in map(json.loads, rows) if row.get("step", 0) <= self.step]
            temporary = self.run_dir / "log.jsonl.tmp"
            temporary.write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")
            os.replace(temporary, self.run_dir / "log.jsonl")

    def log(self, row: dict) -> None:
        """Append a row to log.jsonl, on the main process."""
        if self.accelerator.is_main_process:
            with (self.run_dir / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def add_up(totals: dict[str, float], losses: dict[str, Tensor]) -> None:
    """Add the losses of a batch to those of the batches before."""
    for name, loss in losses.items():
        totals[name] = totals.get(name, 0.0) + loss.item()


def random_state() -> dict:
    """State of the generators that dropout draws from, on this process."""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}


def set_random_state(state: dict) -> None:
    """Undo `random_state`."""
    if len(state["cuda"]) not in (0, torch.cuda.device_count()):
        raise ValueError(
            f"the run used {len(state['cuda'])} GPUs, here are {torch.cuda.device_count()}: resume on as many"
        )
    torch.set_rng_state(state["cpu"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


# Command line


def flag_type(kind: type) -> Callable[[str], object]:
    """What turns a flag's text into its field's type."""

    def parse(text: str) -> object:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not {kind.__name__}") from None

    return parse


def parse(arguments: Sequence[str] | None = None) -> tuple[TrainConfig, Path, bool]:
    """Command line -> config, run folder, resume.

    Raises:
        SystemExit: an unknown or mistyped flag.
        ValueError: a value out of range, or --resume with other values than the run's.
    """
    description = __doc__.splitlines()[0]
    program = "python -m encdec_sentence_sparse.train"
    parser = argparse.ArgumentParser(program, description=description, allow_abbrev=False)
    parser.add_argument("--out", required=True, type=Path, help="run folder")
    parser.add_argument("--preset", default="tiny", choices=list(PRESETS["base"]), help="named set of values")
    parser.add_argument("--resume", action="store_true", help="go on after the last checkpoint, if there is one")
    for field in fields(TrainConfig):
        flag, choices = "--" + field.name.replace("_", "-"), TASKS if field.name == "task" else None
        metavar = None if choices else field.type.__name__
        parser.add_argument(
            flag, type=flag_type(field.type), default=argparse.SUPPRESS, choices=choices, metavar=metavar
        )
    given = vars(parser.parse_args(arguments))
    run_dir, preset, resume = given.pop("out"), given.pop("preset"), given.pop("resume")
    if resume and (run_dir / "config.json").exists():
        saved = read_config(run_dir)
        changed = [name for name, value in given.items() if getattr(saved, name) != value]
        if changed:
            raise ValueError(f"--resume keeps the values in {run_dir / 'config.json'}; leave out {', '.join(changed)}")
        return saved, run_dir, True
    values = PRESETS[given.get("task", "base")][preset]
    if "init" in given:  # a run takes the place of the preset's model
        values = values | {"model": ""}
    return TrainConfig(**values | given), run_dir, resume


def main(arguments: Sequence[str] | None = None) -> None:
    """Train; bad input ends the program with one line that says what is wrong."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        train(*parse(arguments))
    except (ValueError, ImportError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command with --resume goes on after the last checkpoint")


if __name__ == "__main__":
    main()
