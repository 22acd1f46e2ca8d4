"""Train a summariser to be masked, or a tagger that says what to mask.

python -m head_masking.train --task summarizer --out runs/hm-base
python -m head_masking.train --task tagger --out runs/hm-tagger --encoder runs/hm-base/model

The run folder holds config.json, log.jsonl, checkpoint.pt with what --resume needs, and in the end model/ (a folder
that transformers loads) or tagger.safetensors and tagger.json (the decision boundary).
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    logging,
)

from shared.data import Example, load

from .model import ACTIVATIONS, Tagger, best_threshold, tagging_loss
from .oracle import METHODS, oracle_labels, token_labels
from .text import encode_document, train_tokenizer

TASKS = ("summarizer", "tagger")


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source. Defaults are the tiny preset."""

    task: str = "summarizer"  # or "tagger"
    # Data
    data: str = "toy"  # anything shared.data.load takes
    examples: int = 0  # train on the first so many; 0 = all (Figure 5 and Table 3 vary it)
    max_source: int = 1024  # tokens, `<s>` and `</s>` included; longer documents are cut (released code: 1023 and EOS)
    max_target: int = 256  # tokens; longer summaries are cut
    # The summarizer: a name or folder of transformers, or if that is empty a small BART of these sizes
    model: str = ""  # the paper's: facebook/bart-large
    vocabulary: int = 1000  # subwords of the small BART
    width: int = 128
    feed_forward: int = 512
    heads: int = 4
    layers: int = 2  # of the encoder, and as many of the decoder
    positions: int = 1024
    dropout: float = 0.0  # of the small BART; a loaded model has its own
    label_smoothing: float = 0.0
    # The tagger
    encoder: str = ""  # name or folder of transformers; of an encoder-decoder its encoder is used
    hidden: int = 512  # released code
    activation: str = "tanh"  # Section 5; D6: released code "relu"
    tagger_dropout: float = 0.1  # released code
    oracle: str = "runs"  # training labels: "runs" (Section 4.1) or "newsroom"
    min_run: int = 1  # words; shorter runs are not labelled
    keep_states: bool = True  # encode the documents once and keep the states in memory (4 S D bytes each)
    # Optimisation
    steps: int = 1500  # updates at most
    batch_size: int = 32  # documents of a micro-batch of one process
    accumulate: int = 1  # micro-batches per update and process
    learning_rate: float = 1e-3
    schedule: str = "inverse_sqrt"  # or "polynomial" (linear to 0 at `steps`, released code), "constant"
    warmup: int = 100  # updates
    weight_decay: float = 0.0
    clip: float = 1.0  # norm of the gradient
    save_every: int = 100  # updates between checkpoints, each with a validation; 0 = an epoch
    patience: int = 0  # stop after so many validations without improvement and take the best; 0 = never, take the last
    mixed_precision: str = "no"  # "no", "bf16" or "fp16"
    seed: int = 0

    def __post_init__(self):
        choices = {
            "task": TASKS,
            "activation": tuple(ACTIVATIONS),
            "oracle": tuple(METHODS),
            "schedule": ("inverse_sqrt", "polynomial", "constant"),
            "mixed_precision": ("no", "bf16", "fp16"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; use one of {', '.join(allowed)}")
        for name in ("steps", "batch_size", "accumulate", "warmup", "min_run", "layers", "heads", "hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("examples", "save_every", "patience"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 0")
        if self.task == "tagger" and not self.encoder:
            raise ValueError("a tagger needs --encoder: a name or folder of transformers, or RUN/model of a summarizer")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads = {self.heads}")


PAPER_SUMMARIZER = dict(  # fairseq's instructions for BART on CNN/DailyMail, which Appendix A follows
    data="cnn_dailymail", model="facebook/bart-large", max_source=1024, max_target=1024, label_smoothing=0.1,
    steps=20_000, batch_size=2, accumulate=32, learning_rate=3e-5, schedule="polynomial", warmup=500,
    weight_decay=0.01, clip=0.1, save_every=1000, mixed_precision="fp16",
)  # fmt: skip
PAPER_TAGGER = dict(  # Appendix A; released code: weight decay, clip, schedule, warm-up and number of updates
    data="cnn_dailymail", encoder="roberta-base", steps=12_000, batch_size=32, accumulate=4, learning_rate=5e-4,
    schedule="polynomial", warmup=500, weight_decay=0.01, clip=0.1, save_every=0, patience=2, keep_states=False,
    mixed_precision="fp16",
)  # fmt: skip
PRESETS = {
    "summarizer": {
        "tiny": {},
        "paper": PAPER_SUMMARIZER,
        "paper-nyt": PAPER_SUMMARIZER | dict(data="nyt", steps=30_000),  # Appendix A; data: a folder of JSONL
        "paper-xsum": PAPER_SUMMARIZER | dict(data="xsum", steps=15_000, accumulate=16),
    },
    "tagger": {
        "tiny": dict(steps=1000, batch_size=32, learning_rate=5e-4, schedule="constant", save_every=0, patience=2),
        "paper": PAPER_TAGGER,
        "paper-nyt": PAPER_TAGGER | dict(data="nyt"),
        "paper-xsum": PAPER_TAGGER | dict(data="xsum"),
    },
}


def learning_rate(step: int, config: TrainConfig) -> float:
    """The rate of update `step` (from 0): linear warm-up, then the schedule."""
    number = step + 1
    if number < config.warmup:
        return config.learning_rate * number / config.warmup
    if config.schedule == "inverse_sqrt":
        return config.learning_rate * (config.warmup / number) ** 0.5
    if config.schedule == "polynomial":
        return config.learning_rate * (config.steps - step) / max(config.steps - config.warmup + 1, 1)
    return config.learning_rate


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
        raise ValueError(f"{path} does not exist: {path.parent} is not a run folder of head_masking.train") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is cut off or not JSON ({error}): train the run again") from None


def read_config(run_dir: str | Path, task: str = "") -> TrainConfig:
    """The config of a run folder of this package.

    Args:
        task: what the run must have trained; empty = either.
    Raises:
        ValueError: names the file and what is wrong.
    """
    path = Path(run_dir) / "config.json"
    saved = read_json(path)
    if saved.get("package") != "head_masking":
        raise ValueError(f"{path} belongs to the package {saved.get('package')!r}, not to head_masking")
    if task and saved["task"] != task:
        raise ValueError(f"{run_dir} holds a {saved['task']}; give the run of a {task}")
    unknown = set(saved["train"]) - {field.name for field in fields(TrainConfig)}
    if unknown:
        raise ValueError(f"{path}: unknown field {', '.join(sorted(unknown))}: the run was made by another version")
    return TrainConfig(**saved["train"])


def is_run(folder: str | Path) -> bool:
    """Whether this is a run folder of one of our packages (a model folder has a config.json, too)."""
    path = Path(folder) / "config.json"
    return path.exists() and "package" in read_json(path)


def load_pretrained(kind: type, name: str, **keywords):
    """`kind.from_pretrained(name)`; raises ValueError with the remedy when it is not there or does not fit."""
    try:
        return kind.from_pretrained(name, **keywords)
    except Exception as error:  # transformers and the hub raise a dozen unrelated types
        remedy = "make it again" if Path(name).exists() else f"give a folder, or: HF_HUB_OFFLINE=0 hf download {name}"
        raise ValueError(f"cannot load {name!r} ({str(error).strip().splitlines()[0]}): {remedy}") from error


def load_summarizer(run_or_name: str | Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A summariser in eval mode on the CPU, from a finished run, a folder of transformers, or a name.

    Raises:
        ValueError: a run of another task or package or not finished; a name that is not on this machine or in reach.
    """
    name = str(run_or_name)
    if is_run(name):
        read_config(name, "summarizer")
        if not (Path(name) / "model").exists():
            raise ValueError(f"{name}/model does not exist: the run is not finished, go on with --out {name} --resume")
        name = str(Path(name) / "model")
    model = load_pretrained(AutoModelForSeq2SeqLM, name, dtype=torch.float32)
    return model.eval(), load_pretrained(AutoTokenizer, name)


def load_encoder(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """An encoder with its tokenizer; of an encoder-decoder its encoder."""
    model = load_pretrained(AutoModel, name, dtype=torch.float32)
    return model.get_encoder() if model.config.is_encoder_decoder else model, load_pretrained(AutoTokenizer, name)


def make_tagger(config: TrainConfig) -> tuple[Tagger, PreTrainedTokenizerBase]:
    """A new perceptron on the config's encoder, and the encoder's tokenizer."""
    encoder, tokenizer = load_encoder(config.encoder)
    return Tagger(encoder, config.hidden, config.activation, config.tagger_dropout), tokenizer


def load_tagger(run_dir: str | Path) -> tuple[Tagger, PreTrainedTokenizerBase, float]:
    """A finished tagger in eval mode on the CPU, its encoder's tokenizer, and the decision boundary.

    Raises:
        ValueError: a run of another task or package, not finished, cut off, or whose encoder is gone.
    """
    config, run_dir = read_config(run_dir, "tagger"), Path(run_dir)
    if not (run_dir / "tagger.json").exists():
        raise ValueError(f"{run_dir}/tagger.json does not exist: go on with --task tagger --out {run_dir} --resume")
    tagger, tokenizer = make_tagger(config)
    path = run_dir / "tagger.safetensors"
    try:
        tagger.perceptron.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise ValueError(f"{path} is missing, cut off or does not fit config.json ({error})") from None
    return tagger.eval(), tokenizer, read_json(run_dir / "tagger.json")["threshold"]


# The two tasks: what an item is, what its loss is, and what is left in the end


class Pair(NamedTuple):
    """A document and its summary as token ids."""

    source: list[int]
    target: list[int]
    was_cut: bool


class Summarizing:
    """Fine-tune a BART, or train a small one."""

    def __init__(self, config: TrainConfig, run_dir: Path, examples: Sequence[Example]):
        self.config, self.tokenizer = config, make_tokenizer(config, run_dir, examples)
        self.module = make_model(config, self.tokenizer)
        if config.max_source > (positions := self.module.config.max_position_embeddings):
            raise ValueError(f"max_source is {config.max_source}, the model has {positions} positions: lower it")

    def prepare(self, examples: Sequence[Example], device: torch.device) -> list[Pair]:
        pairs = []
        for example in examples:
            source, _, was_cut = encode_document(self.tokenizer, example.source, self.config.max_source)
            target = encode_document(self.tokenizer, example.target, self.config.max_target)
            pairs.append(Pair(source, target.ids, was_cut))
        return pairs

    def loss(self, module: nn.Module, pairs: Sequence[Pair], device: torch.device) -> tuple[Tensor, int]:
        """Sum of the cross-entropies of all target tokens, and their number."""
        source = pad([pair.source for pair in pairs], self.tokenizer.pad_token_id, device)  # (B, S)
        is_real = pad([[1] * len(pair.source) for pair in pairs], 0, device)
        labels = pad([pair.target for pair in pairs], -100, device)  # (B, T)
        logits = module(input_ids=source, attention_mask=is_real, labels=labels).logits  # (B, T, V)
        smoothing = self.config.label_smoothing if module.training else 0.0
        loss = F.cross_entropy(
            logits.float().flatten(0, 1), labels.flatten(), reduction="sum", label_smoothing=smoothing
        )
        return loss, int((labels != -100).sum())

    def finish(self, module: nn.Module, validation: Sequence[Pair], run_dir: Path, device: torch.device) -> None:
        """Write model/ under a temporary name and rename it."""
        if not (run_dir / "model").exists():
            module.save_pretrained(run_dir / "model.tmp")
            self.tokenizer.save_pretrained(run_dir / "model.tmp")
            os.replace(run_dir / "model.tmp", run_dir / "model")


def make_tokenizer(config: TrainConfig, run_dir: Path, examples: Sequence[Example]) -> PreTrainedTokenizerBase:
    """The model's tokenizer, that of the run, or for a new small BART a new one."""
    if config.model or (run_dir / "tokenizer").exists():
        return load_pretrained(AutoTokenizer, config.model or str(run_dir / "tokenizer"))
    return train_tokenizer(
        [text for example in examples for text in (example.source, example.target)], config.vocabulary
    )


def make_model(config: TrainConfig, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The model named in the config, or a new small BART."""
    if config.model:
        return load_pretrained(AutoModelForSeq2SeqLM, config.model, dtype=torch.float32)
    sizes = BartConfig(
        vocab_size=len(tokenizer),
        d_model=config.width,
        encoder_layers=config.layers,
        decoder_layers=config.layers,
        encoder_attention_heads=config.heads,
        decoder_attention_heads=config.heads,
        encoder_ffn_dim=config.feed_forward,
        decoder_ffn_dim=config.feed_forward,
        max_position_embeddings=config.positions,
        dropout=config.dropout,
        attention_dropout=config.dropout,
        init_std=config.width**-0.5,  # BART's own 0.02 is for large widths: here attention would stay flat for long
    )
    return BartForConditionalGeneration(sizes)


class Labelled(NamedTuple):
    """A document as the encoder's token ids, with the oracle label of each."""

    source: list[int]
    labels: list[bool]
    was_cut: bool
    states: Tensor | None  # (S, D), with keep_states


class Tagging:
    """Train the perceptron of a tagger on oracle labels (Section 5, Appendix A)."""

    def __init__(self, config: TrainConfig, run_dir: Path, examples: Sequence[Example]):
        self.config = config
        self.tagger, self.tokenizer = make_tagger(config)
        self.module = self.tagger.perceptron

    def prepare(self, examples: Sequence[Example], device: torch.device) -> list[Labelled]:
        items = []
        for example in examples:
            ids, offsets, was_cut = encode_document(self.tokenizer, example.source, self.config.max_source)
            spans = oracle_labels(example.source, example.target, self.config.oracle, self.config.min_run)
            items.append(Labelled(ids, token_labels(spans, offsets), was_cut, None))
        self.tagger.to(device)
        return self.with_states(items, device) if self.config.keep_states else items

    def with_states(self, items: Sequence[Labelled], device: torch.device, batch_size: int = 16) -> list[Labelled]:
        """The items with the encoder's states, in batches of like length."""
        by_length, found = sorted(range(len(items)), key=lambda i: len(items[i].source)), list(items)
        for start in tqdm(range(0, len(items), batch_size), desc="encoding", unit="batch", leave=False):
            chosen = by_length[start : start + batch_size]
            states = self.states([items[i] for i in chosen], device).cpu()
            for row, i in zip(states, chosen, strict=True):
                found[i] = items[i]._replace(states=row[: len(items[i].source)].clone())
        return found

    def states(self, items: Sequence[Labelled], device: torch.device) -> Tensor:
        """(B, S, D)."""
        if items[0].states is not None:
            return pad_sequence([item.states for item in items], batch_first=True).to(device)
        source = pad([item.source for item in items], self.tokenizer.pad_token_id, device)
        return self.tagger.states(source, real_tokens(items, device))

    def loss(self, module: nn.Module, items: Sequence[Labelled], device: torch.device) -> tuple[Tensor, int]:
        """Sum of the binary cross-entropies of all tokens, and their number."""
        keep = real_tokens(items, device)
        labels = pad([item.labels for item in items], 0, device).bool()
        logits = module(self.states(items, device)).squeeze(-1).float()  # (B, S)
        tokens = int(keep.sum())
        return tagging_loss(logits, labels, keep) * tokens, tokens

    @torch.no_grad()
    def finish(self, module: nn.Module, validation: Sequence[Labelled], run_dir: Path, device: torch.device) -> None:
        """Write tagger.safetensors, then tagger.json with the decision boundary and its F1 on the validation data."""
        save_tensors(module.state_dict(), run_dir / "tagger.safetensors")
        scores = [module(self.states([item], device)).flatten().sigmoid().cpu() for item in validation]
        labels = torch.tensor([label for item in validation for label in item.labels])
        threshold, f1 = best_threshold(torch.cat(scores), labels)
        share = round(labels.float().mean().item(), 4)
        write_json(run_dir / "tagger.json", {"threshold": threshold, "token_f1": round(f1, 4), "positive_share": share})


def real_tokens(items: Sequence[Labelled], device: torch.device) -> Tensor:
    """(B, S) bool, False at padding."""
    return pad([[1] * len(item.source) for item in items], 0, device).bool()


def pad(rows: Sequence[list[int]], value: int, device: torch.device) -> Tensor:
    """(B, longest) on the device, padded on the right."""
    return pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=value).to(device)


# Training


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
    task = (Summarizing if config.task == "summarizer" else Tagging)(config, run_dir, examples)
    items, validation = (task.prepare(part, accelerator.device) for part in (examples, validation))
    accelerator.wait_for_everyone()  # none still looks for a tokenizer in the run folder
    if not exists and accelerator.is_main_process:
        create_run(run_dir, config, task)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    Training(config, run_dir, accelerator, task, items, validation).run()


def make_accelerator(mixed_precision: str) -> Accelerator:
    """The processes and devices that accelerate or torchrun has set up."""
    # Without this, several processes on a machine without GPU would each believe to be alone.
    several = int(os.environ.get("WORLD_SIZE", 1)) > 1
    return Accelerator(mixed_precision=mixed_precision, cpu=several and not torch.cuda.is_available())


def create_run(run_dir: Path, config: TrainConfig, task: Summarizing | Tagging) -> None:
    """Write what does not change during the run; config.json comes last and makes it a run folder."""
    run_dir.mkdir(parents=True, exist_ok=True)
    if config.task == "summarizer":
        task.tokenizer.save_pretrained(run_dir / "tokenizer")
    write_json(run_dir / "config.json", {"package": "head_masking", "task": config.task, "train": asdict(config)})


class Training:
    """One run: the loop, its checkpoints and its log."""

    def __init__(
        self,
        config: TrainConfig,
        run_dir: Path,
        accelerator: Accelerator,
        task: Summarizing | Tagging,
        items: Sequence,
        validation: Sequence,
    ):
        """Take up the run where its last checkpoint left it, or at its beginning."""
        self.config, self.run_dir, self.accelerator, self.task = config, run_dir, accelerator, task
        self.validation = validation
        self.batches = Batches(items, config.batch_size, config.seed)
        optimizer = torch.optim.AdamW(task.module.parameters(), lr=0.0, weight_decay=config.weight_decay)
        self.module, self.optimizer = accelerator.prepare(task.module, optimizer)
        self.step, self.best, self.without_gain = 0, None, 0
        per_update = config.accumulate * accelerator.num_processes
        self.save_every = config.save_every or -(-self.batches.per_epoch // per_update)
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
            self.task.finish(module, self.validation, self.run_dir, self.accelerator.device)

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
        self.module.train()
        total, tokens = 0.0, 0
        for number in numbers:
            with nullcontext() if number == numbers[-1] else accelerator.no_sync(self.module):
                with accelerator.autocast():
                    loss, count = self.task.loss(self.module, self.batches[number], device)
                accelerator.backward(loss)
            total, tokens = total + loss.item(), tokens + count
        # The mean over all tokens of the update; DDP has averaged over processes, hence times their number.
        all_tokens = accelerator.reduce(torch.tensor(tokens, device=device)).item()
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad *= processes / all_tokens
        accelerator.clip_grad_norm_(self.module.parameters(), config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return {"loss": round(total / tokens, 4), "lr": rate}

    @torch.no_grad()
    def validation_loss(self) -> float:
        """Nats per token in eval mode; every process computes all of it."""
        module = self.accelerator.unwrap_model(self.module).eval()
        by_length = sorted(self.validation, key=lambda item: len(item.source))
        total, tokens = 0.0, 0
        for start in range(0, len(by_length), self.config.batch_size):
            batch = by_length[start : start + self.config.batch_size]
            loss, count = self.task.loss(module, batch, self.accelerator.device)
            total, tokens = total + loss.item(), tokens + count
        return total / tokens

    def save(self, measures: dict[str, float]) -> None:
        """Validate and write a checkpoint, one file that is renamed when it is whole."""
        random_states = gather_object([random_state()])
        loss = self.validation_loss()
        weights = self.accelerator.unwrap_model(self.module).state_dict()
        is_better = self.best is None or loss < self.best["loss"]
        self.without_gain = 0 if is_better else self.without_gain + 1
        if is_better:
            copies = (
                {name: value.detach().cpu().clone() for name, value in weights.items()} if self.config.patience else {}
            )
            self.best = {"loss": loss, "weights": copies}
        if not self.accelerator.is_main_process:
            return
        self.log({"step": self.step, **measures, "validation_loss": round(loss, 4)})
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
        except (RuntimeError, EOFError, OSError) as error:
            raise ValueError(f"{path} is cut off ({error}): delete it, and the run starts again") from None
        self.step, self.best, self.without_gain = state["step"], state["best"], state["without_gain"]
        self.accelerator.unwrap_model(self.module).load_state_dict(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        set_random_state(state["random"][self.accelerator.process_index])
        if self.accelerator.is_main_process:  # what a killed run logged after this checkpoint is forgotten
            rows = (self.run_dir / "log.jsonl").read_text(encoding="utf-8").splitlines()
            kept = [row for row in map(json.loads, rows) if row.get("step", 0) <= self.step]
            (self.run_dir / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept), encoding="utf-8")

    def log(self, row: dict) -> None:
        """Append a row to log.jsonl, on the main process."""
        if self.accelerator.is_main_process:
            with (self.run_dir / "log.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write to a temporary name and rename."""
    temporary = path.with_name(path.name + ".tmp")
    save_file(tensors, temporary)
    os.replace(temporary, path)


def random_state() -> dict:
    """State of the generators that dropout draws from, on this process."""
    return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []}


def set_random_state(state: dict) -> None:
    """Undo `random_state`."""
    torch.set_rng_state(state["cpu"])
    if state["cuda"]:
        torch.cuda.set_rng_state_all(state["cuda"])


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


def parse(arguments: Sequence[str] | None = None) -> tuple[TrainConfig, Path, bool]:
    """Command line -> config, run folder, resume.

    Raises:
        SystemExit: an unknown or mistyped flag.
        ValueError: a value out of range, a run folder in use, or --resume with other values than the run's.
    """
    description = __doc__.splitlines()[0]
    parser = argparse.ArgumentParser("python -m head_masking.train", description=description, allow_abbrev=False)
    parser.add_argument("--out", required=True, type=Path, help="run folder")
    parser.add_argument("--preset", default="tiny", choices=list(PRESETS["tagger"]), help="named set of values")
    parser.add_argument("--resume", action="store_true", help="go on after the last checkpoint, if there is one")
    for field in fields(TrainConfig):
        flag, kind = "--" + field.name.replace("_", "-"), flag_type(field.type)
        choices = TASKS if field.name == "task" else None
        metavar = None if choices else field.type.__name__
        parser.add_argument(flag, type=kind, default=argparse.SUPPRESS, choices=choices, metavar=metavar)
    given = vars(parser.parse_args(arguments))
    run_dir, preset, resume = given.pop("out"), given.pop("preset"), given.pop("resume")
    if resume and (run_dir / "config.json").exists():
        saved = read_config(run_dir)
        changed = [name for name, value in given.items() if getattr(saved, name) != value]
        if changed:
            raise ValueError(f"--resume keeps the values in {run_dir / 'config.json'}; leave out {', '.join(changed)}")
        return saved, run_dir, True
    return TrainConfig(**PRESETS[given.get("task", "summarizer")][preset] | given), run_dir, resume


def main(arguments: Sequence[str] | None = None) -> None:
    """Train; bad input ends the program with one line that says what is wrong."""
    logging.set_verbosity_error()  # transformers reports at length on the decoder that a tagger leaves out
    logging.disable_progress_bar()
    try:
        train(*parse(arguments))
    except (ValueError, ImportError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command with --resume goes on after the last checkpoint")


if __name__ == "__main__":
    main()
