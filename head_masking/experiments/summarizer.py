"""Train a summariser to be masked: a small BART, or one that is there.

python -m head_masking.experiments.summarizer --out runs/hm
python -m head_masking.experiments.summarizer --out runs/b --data DIR --model BART --preset finetune

The run folder holds config.json, log.jsonl, checkpoints/ and model/, a folder of transformers.
"""

import json
import logging
import math
import shutil
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader
from tqdm import tqdm

from shared import pretrained
from shared.data import Example, load
from shared.run import (
    Batches,
    check,
    check_out,
    checkpoints,
    cpu_has_bf16,
    fingerprint,
    one_line_errors,
    parse,
    read_progress,
    save_checkpoint,
)

from ..config import HEADS, LAYERS, Length, Positive, Precision, Schedule, Share, learning_rate
from ..text import encode_documents, pad, padded, train_tokenizer
from ..train import since_best, updates_per_epoch

IGNORED = -100  # the label of padding


@dataclass(frozen=True)
class SummarizerConfig:
    """All that defines a summariser's run. Defaults are the tiny preset."""

    # Training data: a folder of JSON lines, or anything else that shared.data.load takes.
    data: str = "toy"
    examples: int = 0  # Training documents, the first ones; 0 takes all (Figure 5 varies it).
    max_source: Length = 1024  # Tokens to which documents are cut.
    max_target: Length = 256  # Tokens to which summaries are cut.
    # Name or folder of a BART to start from; empty makes a small one (paper: facebook/bart-large).
    model: str = ""
    vocabulary: Annotated[int, (260, 10**6)] = 4000  # Subwords of the small BART.
    width: Positive = 64  # Width of the small BART's states.
    feed_forward: Positive = 256  # Inner width of its feed-forward layers.
    dropout: Share = 0.1  # Dropout of the small BART; a loaded model has its own.

    steps: Positive = 1500  # Updates at most.
    batch_size: Positive = 16  # Documents of a micro-batch of one process.
    accumulate: Positive = 1  # Micro-batches for each update and process.
    learning_rate: Share = 3e-3  # Highest rate (fairseq's instructions: 3e-5).
    # How the rate falls after the warm-up (fairseq's instructions: polynomial).
    schedule: Schedule = "inverse_sqrt"
    warmup: Positive = 200  # Updates in which the rate rises (fairseq's instructions: 500).
    weight_decay: float = 0.0  # Weight decay of AdamW (fairseq's instructions: 0.01).
    clip: float = 1.0  # Highest norm of the gradient; 0 turns it off (fairseq's instructions: 0.1).
    # Share of the probability spread over all tokens (fairseq's instructions: 0.1).
    label_smoothing: Share = 0.0
    save_every: int = 250  # Updates between checkpoints, each with a validation; 0 is an epoch.
    # Validations without gain that end training at the best; 0 never stops and takes the last.
    patience: int = 0
    mixed_precision: Precision = "no"  # Of the forward pass; bf16 is slower on a CPU without it.
    log_with: str = ""  # Tracker of accelerate beside log.jsonl: tensorboard, wandb, ...
    seed: int = 0  # Seed of weights, order and dropout.


PAPER = dict(
    # Appendix A: 2 epochs without gain
    data="cnn_dailymail",
    model="facebook/bart-large",
    save_every=0,
    patience=2,
    # Appendix A: fairseq's instructions for BART. Its 4 x 8 batches of 2,048 tokens are 64
    # documents of 1,024.
    max_source=1024,
    max_target=1024,
    label_smoothing=0.1,
    steps=20_000,
    batch_size=2,
    accumulate=32,
    learning_rate=3e-5,
    schedule="polynomial",
    warmup=500,
    weight_decay=0.01,
    clip=0.1,
    mixed_precision="fp16",
)
PRESETS = {
    "tiny": {},
    # for --model
    "finetune": dict(
        steps=600, batch_size=8, learning_rate=5e-5, warmup=60, save_every=100, patience=3
    ),
    "paper": PAPER,
    "paper-nyt": PAPER | dict(data="nyt", steps=30_000),  # Appendix A; data: a folder of JSONL
    # The 2 x 8 batches of 2,048 tokens for XSum are 64 documents of about 500.
    "paper-xsum": PAPER | dict(data="xsum", steps=15_000, batch_size=4, accumulate=16),
}


class Pair(NamedTuple):
    """A document and its summary, as token ids."""

    source: array  # of "i", special tokens included, as in the target
    target: array
    source_was_cut: bool
    target_was_cut: bool


def begin(config: SummarizerConfig, examples: Sequence[Example]) -> tuple:
    """The model to train and its tokenizer; a small BART with random weights if none is named."""
    longest = max(config.max_source, config.max_target)
    if config.model:
        model, tokenizer = pretrained.load("bart", config.model, longest)
        pretrained.generation(model, config.max_target)
        return model, tokenizer
    from transformers import BartConfig, BartForConditionalGeneration

    texts = (text for example in examples for text in (example.source, example.target))
    tokenizer = train_tokenizer(texts, config.vocabulary)
    sizes = BartConfig(
        vocab_size=len(tokenizer),
        d_model=config.width,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=config.feed_forward,
        decoder_ffn_dim=config.feed_forward,
        max_position_embeddings=longest,
        dropout=config.dropout,
        attention_dropout=config.dropout,
        # BART's own 0.02 is for large widths: here attention would stay flat for long
        init_std=config.width**-0.5,
    )
    model = BartForConditionalGeneration(sizes)
    model.generation_config.update(num_beams=5, max_length=config.max_target)
    return model, tokenizer


def encode(examples: Sequence[Example], tokenizer, config: SummarizerConfig) -> list[Pair]:
    """Documents and summaries, cut to size, as `predict` reads documents."""
    pairs = []
    for example in examples:
        [source] = encode_documents(tokenizer, [example.source], config.max_source)
        [target] = encode_documents(tokenizer, [example.target], config.max_target)
        ids = array("i", source.ids), array("i", target.ids)
        pairs.append(Pair(*ids, source.was_cut, target.was_cut))
    return pairs


def loss_of(model, batch: tuple, smoothing: float = 0.0) -> torch.Tensor:
    """Cross-entropy of a batch's summaries, mean over their tokens; BART shifts them itself."""
    source, keep, labels = batch
    logits = model(input_ids=source, attention_mask=keep.long(), labels=labels).logits
    return F.cross_entropy(
        logits.flatten(0, 1).float(),
        labels.flatten(),
        ignore_index=IGNORED,
        label_smoothing=smoothing,
    )


def train(config: SummarizerConfig, out: Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` continues from the last checkpoint.

    A training that was killed and resumed ends with the same bits (one process, on a CPU).

    Raises:
        ValueError: bad values or data, a folder that cannot be used, a loss that is not finite.
    """
    import transformers
    from accelerate import Accelerator, DataLoaderConfiguration
    from accelerate.utils import GradientAccumulationPlugin, set_seed

    check(config)
    check_out(out, resume)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        # The plugin: a variable of the shell would override `gradient_accumulation_steps`.
        gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=config.accumulate),
        # Without this, several processes on a CPU would each train alone.
        cpu=not torch.accelerator.is_available(),
        dataloader_config=DataLoaderConfiguration(even_batches=False),  # of different sizes
        log_with=config.log_with or None,
        project_dir=out,
    )
    is_main = accelerator.is_main_process
    if config.log_with and not accelerator.log_with:
        raise ValueError(f"--log-with {config.log_with} is not installed")
    if is_main and config.mixed_precision == "no" and cpu_has_bf16():
        print("this CPU has bf16: --mixed-precision bf16 trains wide models faster")

    # Silence two messages per checkpoint: that weights are tied, and a progress bar.
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()

    # Data, model, tokenizer.
    set_seed(config.seed)
    examples = load(config.data, "train", config.examples or None)
    validation_examples = load(config.data, "validation")
    bart, tokenizer = begin(config, examples)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout

    def collate(pairs: Sequence[Pair]) -> tuple:
        """source (B, S), keep (B, S), labels (B, T), on the model's device."""
        source, keep = padded([pair.source for pair in pairs], tokenizer.pad_token_id, bart.device)
        labels = pad([pair.target for pair in pairs], IGNORED).long().to(bart.device)
        return source, keep, labels

    # fairseq's instructions: Adam, beta1 = 0.9, beta2 = 0.999, eps 1e-8. The loop sets the rate.
    optimizer = torch.optim.AdamW(
        bart.parameters(), lr=0.0, betas=(0.9, 0.999), eps=1e-8, weight_decay=config.weight_decay
    )
    model, optimizer = accelerator.prepare(bart, optimizer)  # model: bart, wrapped
    pairs = encode(examples, tokenizer, config)
    validation = encode(validation_examples, tokenizer, config)
    lengths = [(len(pair.source), len(pair.target)) for pair in pairs]
    batches = Batches(lengths, config.seed, size=config.batch_size)
    # Its own generator: starting the loader would else draw from the one that dropout uses.
    generator = torch.Generator()
    loader = DataLoader(pairs, batch_sampler=batches, collate_fn=collate, generator=generator)
    loader = accelerator.prepare(loader)
    if is_main:
        say_what_is_cut(pairs, config)

    # A checkpoint saves this beside weights, optimizer and random states.
    progress = {"data": fingerprint(examples), "log": []}
    done = 0
    if checkpoints(out):
        last = checkpoints(out)[-1]
        progress = read_progress(last, accelerator.num_processes, progress["data"])
        accelerator.load_state(str(last))
        done = progress["log"][-1]["step"]
    model_path, best_path = out / "model", out / "best"
    if is_main:
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text(json.dumps(asdict(config), indent=1))
        if done < config.steps and not config.patience:
            shutil.rmtree(model_path, ignore_errors=True)  # of a finished run that is extended

    accelerator.init_trackers("head_masking", vars(config))
    epoch = updates_per_epoch(len(pairs), config, accelerator.num_processes)
    save_every = config.save_every or epoch
    endless = iter(accelerator.skip_first_batches(loader, done * config.accumulate))
    bar = tqdm(total=config.steps, initial=done, disable=None if is_main else True)
    for step in range(done, config.steps):
        if config.patience and since_best(progress["log"]) >= config.patience:
            break
        bart.train()
        rate = learning_rate(step, config)
        for group in optimizer.param_groups:
            group["lr"] = rate
        for _ in range(config.accumulate):
            batch = next(endless)
            with accelerator.accumulate(model):
                # Cross-entropy of the summaries. An update averages the micro-batch means.
                loss = loss_of(model, batch, config.label_smoothing)
                accelerator.backward(loss)
                if config.clip and accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), config.clip)
                optimizer.step()
                optimizer.zero_grad()

        row = {"step": step + 1, "loss": loss.item(), "lr": rate}
        if not math.isfinite(row["loss"]):
            raise ValueError(
                f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint"
            )
        bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
        bar.update()
        if row["step"] % save_every == 0 or row["step"] == config.steps:
            own = validate(bart, collate, validation, config.batch_size)
            # The same number in all processes, which decide by it when to stop.
            own = torch.tensor(own, device=accelerator.device)
            row["validation_loss"] = accelerator.reduce(own, "mean").item()
            progress["log"].append(row)
            is_best = math.isfinite(row["validation_loss"]) and since_best(progress["log"]) == 0
            if is_main and config.patience and is_best:
                # Before the checkpoint: after a kill in between, the resume writes it again.
                save_model(bart, tokenizer, best_path)
            save_checkpoint(accelerator, out, progress)
            accelerator.log(row, step=row["step"])
            if is_main:
                bar.write(json.dumps(row))
    bar.close()
    accelerator.end_training()
    if not is_main:
        return

    # The weights that stay are the last ones or, with early stopping, the best.
    kept = progress["log"][-1]
    if not config.patience:
        save_model(bart, tokenizer, model_path)
    else:
        kept = progress["log"][-1 - since_best(progress["log"])]
        if best_path.exists():  # a finished run has it under its name already
            shutil.rmtree(model_path, ignore_errors=True)
            best_path.rename(model_path)
    others = zip(validation, validation[1:] + validation[:1], strict=True)
    exchanged = [pair._replace(source=other.source) for pair, other in others]
    bart, _ = pretrained.load("bart", model_path)
    bart.to(accelerator.device)
    exchanged_loss = validate(bart, collate, exchanged, config.batch_size)
    print(
        f"{out}: {kept['step']} updates, validation loss {kept['validation_loss']:.3f}, with the "
        f"documents exchanged {exchanged_loss:.3f} (should be higher)"
    )
    package = __package__.removesuffix(".experiments")
    print(f"next: python -m {package}.predict {out} --split validation --oracle")


def say_what_is_cut(pairs: Sequence[Pair], config: SummarizerConfig) -> None:
    """How many documents and summaries are longer than the limits."""
    sources = sum(pair.source_was_cut for pair in pairs)
    targets = sum(pair.target_was_cut for pair in pairs)
    if sources:
        print(f"{sources} of {len(pairs)} documents are cut to --max-source {config.max_source}")
    if targets:
        print(f"{targets} of {len(pairs)} summaries are cut to --max-target {config.max_target}")


@torch.inference_mode()
def validate(bart, collate, pairs: Sequence[Pair], batch_size: int) -> float:
    """Cross-entropy in eval mode, not smoothed, mean over all tokens of the summaries."""
    bart.eval()
    total = tokens = 0
    for first in range(0, len(pairs), batch_size):
        batch = collate(pairs[first : first + batch_size])
        count = (batch[2] != IGNORED).sum().item()
        total += loss_of(bart, batch).item() * count
        tokens += count
    return total / tokens


def save_model(bart, tokenizer, folder: Path) -> None:
    """Write a folder that transformers loads; it has its name when it is whole."""
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    bart.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    shutil.rmtree(folder, ignore_errors=True)
    unfinished.rename(folder)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    train(*parse(arguments, SummarizerConfig, PRESETS, __doc__))


if __name__ == "__main__":
    main()
