"""Train a summariser to be masked, by the Trainer of transformers: a small BART, or one that is
there.

python -m head_masking.experiments.summarizer --out runs/hm

python -m head_masking.experiments.summarizer --out runs/bart --data FOLDER --model
    facebook/bart-base --preset finetune

The run folder holds config.json, checkpoints/ and model/, a folder that transformers loads.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from shared import pretrained
from shared.data import Example
from shared.run import exchanged, one_line_errors, parse, say_what_is_odd, says_it_reads

from ..config import HEADS, LAYERS, Length, Positive, Share, Training
from ..loading import load_examples
from ..text import train_tokenizer
from ..train import epoch


@dataclass(frozen=True)
class SummarizerConfig(Training):
    """All that defines a summariser's run. Defaults are the tiny preset."""

    steps: Positive = 1500  # Updates at most.
    learning_rate: Share = 3e-3  # Highest rate (fairseq's instructions: 3e-5).
    warmup: Positive = 200  # Updates in which the rate rises.
    save_every: int = 250  # Updates between checkpoints, each with a validation; 0 is an epoch.
    max_target: Length = 256  # Tokens to which summaries are cut.
    # Name or folder of a BART to start from; empty makes a small one (paper: facebook/bart-large).
    model: str = ""
    vocabulary: Annotated[int, (260, 10**6)] = 4000  # Subwords of the small BART.
    width: Positive = 64  # Width of the small BART's states.
    feed_forward: Positive = 256  # Inner width of its feed-forward layers.
    dropout: Share = 0.1  # Dropout of the small BART; a loaded model has its own.
    # Share of the probability spread over all tokens (fairseq's instructions: 0.1).
    label_smoothing: Share = 0.0


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


def encode(examples: list[Example], tokenizer, config: SummarizerConfig) -> list[dict]:
    """Documents and summaries as token ids; those of documents as numpy's: lists of a large corpus
    are too large.
    """
    settings = {"truncation": True, "split_special_tokens": True}
    sources = (
        tokenizer(e.source, max_length=config.max_source, **settings).input_ids for e in examples
    )
    targets = (
        tokenizer(e.target, max_length=config.max_target, **settings).input_ids for e in examples
    )
    return [
        {"input_ids": np.array(s, np.int32), "labels": t}
        for s, t in zip(sources, targets, strict=True)
    ]


def begin(config: SummarizerConfig, examples: list[Example]) -> tuple:
    """The model to train, a small BART with random weights where none is named, and its
    tokenizer.
    """
    from transformers import BartConfig, BartForConditionalGeneration

    longest = max(config.max_source, config.max_target)
    if config.model:
        model, tokenizer = pretrained.load("bart", config.model, longest)
        pretrained.generation(model, config.max_target)
        return model, tokenizer
    tokenizer = train_tokenizer(
        (text for e in examples for text in (e.source, e.target)), config.vocabulary
    )
    model = BartForConditionalGeneration(
        BartConfig(
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
    )
    model.generation_config.update(num_beams=5, max_length=config.max_target)
    return model, tokenizer


def trainer_of(config: SummarizerConfig, out: Path):
    """A Trainer with its data; where there is a patience the best weights are the result, else the
    last ones.
    """
    from transformers import (
        DataCollatorForSeq2Seq,
        EarlyStoppingCallback,
        Trainer,
        TrainingArguments,
        set_seed,
    )

    set_seed(config.seed)
    data = [load_examples(config.data, split, config.examples) for split in ("train", "validation")]
    model, tokenizer = begin(config, data[0])
    training, validation = (encode(examples, tokenizer, config) for examples in data)
    ends = (("source", "input_ids", config.max_source), ("target", "labels", config.max_target))
    cut = {side: sum(len(item[name]) == most for item in training) for side, name, most in ends}
    say_what_is_odd(config, data, cut)
    every = config.save_every or epoch(len(training), config)
    settings = TrainingArguments(
        str(out / "checkpoints"),
        max_steps=config.steps,
        per_device_train_batch_size=config.batch_size,
        gradient_accumulation_steps=config.accumulate,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.schedule,
        warmup_steps=config.warmup,
        weight_decay=config.weight_decay,
        max_grad_norm=config.clip,
        label_smoothing_factor=config.label_smoothing,
        seed=config.seed,
        bf16=config.mixed_precision == "bf16",
        fp16=config.mixed_precision == "fp16",
        eval_strategy="steps",
        save_steps=every,
        logging_steps=every,
        save_total_limit=1,
        load_best_model_at_end=config.patience > 0,
        metric_for_best_model="loss",
        restore_callback_states_from_checkpoint=True,  # how often there was no gain
        train_sampling_strategy="group_by_length",
        dataloader_pin_memory=False,
        report_to="none",
        use_cpu=not torch.accelerator.is_available(),  # or bf16 would be refused
    )
    stop = [EarlyStoppingCallback(config.patience)] if config.patience else []
    collate = DataCollatorForSeq2Seq(tokenizer, model)
    return Trainer(
        model, settings, collate, training, validation, processing_class=tokenizer, callbacks=stop
    )


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    config, out, resume = parse(arguments, SummarizerConfig, PRESETS, __doc__)
    if out.exists() and not resume:
        raise ValueError(f"{out} exists: add --resume to go on with it, or choose another --out")
    saved = json.dumps({"package": __package__.split(".")[0], "config": asdict(config)}, indent=1)
    if (out / "model").exists() and (out / "config.json").read_text() == saved:
        return print(f"{out} is finished")
    trainer = trainer_of(config, out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(saved)
    trainer.train(resume_from_checkpoint=any((out / "checkpoints").glob("checkpoint-*")))
    trainer.save_model(str(out / "model"))
    items = trainer.eval_dataset
    swapped = exchanged(
        items, lambda item: item["input_ids"], lambda a, b: b | {"labels": a["labels"]}
    )
    loss, other = (
        trainer.evaluate(each)["eval_loss"] if each else None for each in (items, swapped)
    )
    print(f"{out}: validation loss {loss:.3f}", says_it_reads(loss, other), sep="\n")
    print(
        f"next: python -m {__package__.rpartition('.')[0]}.predict {out} --split validation "
        f"--oracle"
    )


if __name__ == "__main__":
    main()
