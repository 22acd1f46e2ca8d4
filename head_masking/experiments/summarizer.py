"""Train a summariser to be masked: a small BART, or one of transformers (the paper's are trained with fairseq).

python -m head_masking.experiments.summarizer --out runs/hm

python -m head_masking.experiments.summarizer --out runs/bart --data FOLDER --model facebook/bart-base --preset finetune

The run folder holds config.json, log.jsonl, checkpoints/ and model/, a folder that transformers loads. The flags of
optimisation are those of train.py.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from shared import pretrained
from shared.run import exchanged, one_line_errors, parse, read_config, says_it_reads, setup, write_weights

from ..config import Length, Positive, Precision, Schedule, Share, learning_rate
from ..loading import CHUNK, FEW, load_examples
from ..text import encode_documents, length, pad, padded, train_tokenizer
from ..train import adam, epoch, kept_row

if TYPE_CHECKING:
    from transformers import BartForConditionalGeneration, PreTrainedModel, PreTrainedTokenizerBase

Size = Annotated[int, (1, 10**6)]
FIXED = "model vocabulary width feed_forward positions"  # what --init cannot change
HEADS, LAYERS = 4, 2  # of the small BART: heads of each attention; layers of the encoder, and as many of the decoder
IGNORED = -100  # a label that is no token
WEIGHTS = "model/model.safetensors"  # where transformers looks for them


@dataclass(frozen=True)
class SummarizerConfig:
    """All that defines a run. Every field is a flag: `max_source` is --max-source. Defaults are the tiny preset."""

    data: str = "toy"  # Training data: a folder of JSON lines, or anything else that shared.data.load takes.
    examples: int = 0  # Training documents, the first ones; 0 takes all (Figure 5 and Table 3 vary it).
    max_source: Length = 1024  # Tokens, special ones too, to which documents are cut (released code: 1023 and EOS).
    max_target: Length = 256  # Tokens to which summaries are cut.
    init: str = ""  # Run folder to go on from: its weights and, unless flags override them, its values.
    model: str = ""  # Name or folder of a BART to start from; empty makes a small one (paper: facebook/bart-large).
    vocabulary: Annotated[int, (260, 10**6)] = 4000  # Subwords of the small BART.
    width: Size = 64  # Width of the small BART's states.
    feed_forward: Size = 256  # Inner width of its feed-forward layers.
    positions: Size = 1024  # Longest source or summary that it can read, in tokens.
    dropout: Share = 0.1  # Dropout of the small BART; a loaded model has its own.
    label_smoothing: Share = 0.0  # Share of the probability spread over all tokens (fairseq's instructions: 0.1).

    steps: Positive = 1500  # Updates at most.
    batch_size: Positive = 16  # Documents of a micro-batch of one process.
    accumulate: Positive = 1  # Micro-batches for each update and process.
    learning_rate: Share = 3e-3  # Highest rate (fairseq's instructions: 3e-5).
    schedule: Schedule = "inverse_sqrt"  # How the rate falls after the warm-up (fairseq's instructions: polynomial).
    warmup: Positive = 200  # Updates in which the rate rises.
    weight_decay: float = 0.0  # Weight decay of AdamW (fairseq's instructions: 0.01).
    clip: float = 1.0  # Highest norm of the gradient; 0 turns it off (fairseq's instructions: 0.1).
    save_every: int = 250  # Updates between checkpoints, each with a validation; 0 is an epoch.
    patience: int = 0  # Validations without gain that end training at the best; 0 never stops and takes the last.
    mixed_precision: Precision = "no"  # Precision of the forward pass.
    seed: int = 0  # Seed of weights, order and dropout.

    def check(self) -> None:
        """ValueError for values that contradict each other."""
        if not self.model and max(self.max_source, self.max_target) > self.positions:
            raise ValueError(f"--max-source and --max-target must not exceed --positions, which is {self.positions}")
        if self.width % HEADS:
            raise ValueError(f"--width {self.width} is not a multiple of {HEADS}, the number of heads")


PAPER = dict(
    data="cnn_dailymail", model="facebook/bart-large", save_every=0, patience=2,  # Appendix A: 2 epochs without gain
    # Appendix A: fairseq's instructions for BART. Its 4 x 8 batches of 2,048 tokens are 64 documents of 1,024.
    max_source=1024, max_target=1024, label_smoothing=0.1, steps=20_000, batch_size=2, accumulate=32,
    learning_rate=3e-5, schedule="polynomial", warmup=500, weight_decay=0.01, clip=0.1, mixed_precision="fp16",
)  # fmt: skip
PRESETS = {
    "tiny": {},
    "finetune": dict(steps=600, batch_size=8, learning_rate=5e-5, warmup=60, save_every=100, patience=3),  # for --model
    "paper": PAPER,
    "paper-nyt": PAPER | dict(data="nyt", steps=30_000),  # Appendix A; data: a folder of JSONL
    # The 2 x 8 batches of 2,048 tokens for XSum are 64 documents of about 500.
    "paper-xsum": PAPER | dict(data="xsum", steps=15_000, batch_size=4, accumulate=16),
}


class Pair(NamedTuple):
    """A document and its summary, as token ids."""

    ids: array
    labels: array
    was_cut: bool
    target_was_cut: bool


class Pairs(NamedTuple):
    """Documents and summaries, padded."""

    input_ids: Tensor  # (B, S)
    attention_mask: Tensor  # (B, S)
    labels: Tensor  # (B, T), then IGNORED


class SummarizerRun(NamedTuple):
    """A summariser in training."""

    config: SummarizerConfig
    model: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase"

    def encode(self, examples: Sequence) -> list[Pair]:
        """The tokens of each document and summary."""
        config, items = self.config, []
        for start in tqdm(range(0, len(examples), CHUNK), "tokenising", leave=False, disable=None):
            chunk = examples[start : start + CHUNK]
            sources = encode_documents(self.tokenizer, [example.source for example in chunk], config.max_source)
            targets = encode_documents(self.tokenizer, [example.target for example in chunk], config.max_target)
            for source, target in zip(sources, targets, strict=True):
                ids = array("i", source.ids), array("i", target.ids)
                items.append(Pair(*ids, source.was_cut, target.was_cut))
        return items

    def collate(self, items: Sequence[Pair]) -> Pairs:
        """A batch on the model's device."""
        ids, keep = padded([item.ids for item in items], self.tokenizer.pad_token_id, self.model.device)
        labels = pad([item.labels for item in items], IGNORED).long()
        return Pairs(ids, keep.long(), labels.to(self.model.device))

    def write_files(self, folder: Path) -> None:
        """Write model/, which lacks the weights."""
        self.tokenizer.backend_tokenizer.no_truncation()  # as `encode_documents` left it
        for part in (self.tokenizer, self.model.config, self.model.generation_config):
            part.save_pretrained(folder / "model")


def load_run(folder: str | Path) -> SummarizerRun:
    """A run, or one in training as it was at its last validation, or its best one."""
    return SummarizerRun(read_config(folder, SummarizerConfig), *pretrained.load("bart", Path(folder, "model")))


def begin(config: SummarizerConfig, examples: Sequence) -> SummarizerRun:
    """A new model, or that of the run that `config.init` names; ValueError for flags that do not fit it."""
    if config.init:
        base = load_run(config.init)
        for name in FIXED.split():
            if getattr(config, name) != (value := getattr(base.config, name)):
                raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value!r}, leave it out")
        if max(config.max_source, config.max_target) > (most := pretrained.positions_of(base.model)):
            raise ValueError(f"{config.init} reads {most} tokens: lower --max-source or --max-target")
        return base._replace(config=config)
    if config.model:
        model, tokenizer = pretrained.load("bart", config.model, max(config.max_source, config.max_target))
        pretrained.generation(model, config.max_target)
        return SummarizerRun(config, model, tokenizer)
    if len(examples) < FEW and not config.data.startswith("toy"):
        advice = "--preset finetune --model facebook/bart-base"
        print(f"{len(examples)} documents are few to learn from scratch; to begin with a BART: {advice}")
    tokenizer = train_tokenizer((text for e in examples for text in (e.source, e.target)), config.vocabulary)
    return SummarizerRun(config, new_bart(config, len(tokenizer)), tokenizer)


def new_bart(config: SummarizerConfig, vocabulary: int) -> "BartForConditionalGeneration":
    """A small BART with random weights, of the config's sizes."""
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = BartConfig(
        vocab_size=vocabulary, d_model=config.width, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS,
        encoder_ffn_dim=config.feed_forward, decoder_ffn_dim=config.feed_forward,
        max_position_embeddings=config.positions, dropout=config.dropout, attention_dropout=config.dropout,
        init_std=config.width**-0.5,  # BART's own 0.02 is for large widths: here attention would stay flat for long
    )  # fmt: skip
    model = BartForConditionalGeneration(sizes)
    model.generation_config.update(num_beams=5, max_length=min(config.max_target, config.positions))
    return model


def train(config: SummarizerConfig, out: Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; see train.py, whose loop this is but for the objective."""
    load = partial(load_examples, count=config.examples)
    made = setup(config, out, resume, begin, load_run, partial(adam, config), length, load)
    accelerator, run, model, optimizer = made[:4]
    save_every = config.save_every or epoch(len(made.training), config, accelerator.num_processes)
    with made.folder as folder:
        done = folder.progress["step"]
        batches = iter(accelerator.skip_first_batches(made.loader, done * config.accumulate))
        hidden = not accelerator.is_main_process or None
        for step in tqdm(range(done, config.steps), initial=done, total=config.steps, disable=hidden):
            if config.patience and folder.since_best() >= config.patience:
                break
            model.train()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config)
            for _ in range(config.accumulate):
                batch = next(batches)
                with accelerator.accumulate(model):
                    loss = objective(model, batch, config.label_smoothing)
                    accelerator.backward(loss)
                    if config.clip and accelerator.sync_gradients:
                        accelerator.clip_grad_norm_(model.parameters(), config.clip)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item(), "lr": learning_rate(step, config)}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            if row["step"] % save_every == 0 or row["step"] == config.steps:
                row |= validate(run, made.validation)
                losses = [old["validation_loss"] for old in folder.progress["log"] if "validation_loss" in old]
                if not config.patience or row["validation_loss"] < min(losses, default=math.inf):
                    folder.write(WEIGHTS, partial(write_weights, run.model))
                folder.save_checkpoint(row)
    if accelerator.is_main_process:
        report(run, made.validation, kept_row(folder, config), out)


def objective(model: torch.nn.Module, batch: Pairs, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of the summaries' tokens, a batch's mean (D13)."""
    logits = model(**batch._asdict()).logits.float().flatten(0, 1)
    return F.cross_entropy(logits, batch.labels.flatten(), ignore_index=IGNORED, label_smoothing=smoothing)


@torch.no_grad()
def validate(run: SummarizerRun, items: Sequence[Pair]) -> dict[str, float]:
    """Mean loss of all tokens, not smoothed, in eval mode."""
    run.model.eval()
    total, tokens = 0.0, 0
    for first in range(0, len(items), run.config.batch_size):
        batch = run.collate(items[first : first + run.config.batch_size])
        count = (batch.labels != IGNORED).sum().item()
        total, tokens = total + objective(run.model, batch).item() * count, tokens + count
    return {"validation_loss": total / tokens}


def report(run: SummarizerRun, validation: Sequence[Pair], kept: dict, out: Path) -> None:
    """Say what came out, whether the model reads its source, and what to do next."""
    print(f"{out}: {kept['step']} steps, validation loss {kept['validation_loss']:.3f}")
    swapped = exchanged(validation, lambda item: item.ids, lambda item, other: item._replace(ids=other.ids))
    if swapped:
        kept_run = load_run(out)
        losses = validate(kept_run, validation), validate(kept_run, swapped)
        if verdict := says_it_reads(*(loss["validation_loss"] for loss in losses)):
            print(verdict)
    package = __package__.rpartition(".")[0]
    print(f"next: python -m {package}.predict {out} --split validation --oracle")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, SummarizerConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
