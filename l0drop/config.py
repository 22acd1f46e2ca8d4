"""What defines a run: every flag with its source, the presets, and what changes with the step."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

from .model import POSITIONS, ModelConfig, Share

# The second part is the range.
Positive = Annotated[int, (1, 10**9)]
Length = Annotated[int, (2, POSITIONS)]
LENGTH_PENALTY = {"bpe": 0.6, "char": 1.0}  # of the search (Appendix A; characters: Section 5)


@dataclass(frozen=True)
class TrainConfig(ModelConfig):
    """All that defines a run, the model's sizes among it.

    Every field is a flag: `l0_weight` is --l0-weight.
    """

    data: str = "toy"  # Anything that shared.data.load takes.
    units: Literal["bpe", "char"] = "bpe"  # Subwords, or characters (Section 5).
    # Longest source in tokens, longer ones are cut (Appendix A: 400 for CNN/Daily Mail).
    max_source: Length = 400
    max_target: Length = 200  # Longest target in training in tokens, longer ones are cut.
    # Share to prune where --l0-weight is 0: lambda follows it (D20; Table 1: 0.467).
    target_sparsity: Share = 0.47
    l0_weight: float = 0.0  # Lambda of Eq. (12); 0: it follows --target-sparsity (Table 1: 0.3).
    # Steps over which --l0-weight rises linearly (Section 6: 200,000); 0: constant.
    l0_warmup: int = 0
    # Steps of this run before --l0-weight counts, in which the gates are held open (D19).
    l0_start: int = 0
    # Run folder to fine-tune: its weights and, unless flags override them, its values.
    init: str = ""

    steps: Positive = 1200  # Updates of this run (Appendix A: 300,000).
    # Padded target tokens of a micro-batch of one process (Appendix A: 25,000).
    batch_tokens: Positive = 1000
    accumulate: Positive = 1  # Micro-batches per update and process (D14).
    # Factor of D^-0.5 min(n^-0.5, n warmup^-1.5) (Vaswani et al. 2017: 1).
    learning_rate: float = 0.12
    warmup: Positive = 100  # Updates in which the rate rises (Appendix A: 4,000).
    average_last: Positive = 1  # Checkpoints averaged at the end (Appendix A: 5; D13).
    save_every: Positive = 100  # Updates between checkpoints.
    # Of the forward pass; bf16 is slower on a CPU without it.
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"
    log_with: str = ""  # Tracker of accelerate beside log.jsonl: tensorboard, wandb, ...
    seed: int = 0  # Seed of weights, order, dropout and gates.

    def check(self) -> None:
        """ValueError for values that contradict each other."""
        if self.width % self.heads or self.width % 2:
            raise ValueError(
                f"width {self.width} must be even and a multiple of heads {self.heads}"
            )
        if self.save_every * (self.average_last - 1) >= self.steps:
            raise ValueError(
                f"{self.steps} steps are too few for {self.average_last} checkpoints, "
                f"{self.save_every} apart: add --average-last 1, for its control too"
            )
        if self.l0_weight and self.l0drop == "none":
            raise ValueError(f"--l0-weight {self.l0_weight} needs gates: --l0drop output")
        for name in ("l0_start", "l0_warmup"):
            value = getattr(self, name)
            if value and self.l0drop != "none" and not self.l0_weight:
                raise ValueError(f"--{name.replace('_', '-')} {value} needs --l0-weight")


# Appendix A: WMT14 En-De, the base Transformer, the baseline; D23, D13: lengths, save_every as
# released
PAPER = dict(
    data="wmt14-en-de",
    l0drop="none",
    vocabulary=32_000,
    width=512,
    feed_forward=2048,
    heads=8,
    encoder_layers=6,
    decoder_layers=6,
    residual_dropout=0.1,
    attention_dropout=0.1,
    batch_tokens=25_000,
    learning_rate=1.0,
    warmup=4000,
    steps=300_000,
    max_source=256,
    max_target=256,
    average_last=5,
    save_every=5000,
)
# Section 6: 50K extra steps, constant lambda of Table 1
FINETUNE = dict(l0drop="output", l0_weight=0.3, steps=50_000)
# Appendix A: CNN/Daily Mail
NEWS = dict(
    data="cnn_dailymail",
    max_source=400,
    residual_dropout=0.5,
    attention_dropout=0.3,
    steps=80_000,
)
PRESETS = {
    "tiny": {},
    # this repository's: a small Transformer for 29,000 sentence pairs, half an hour on one core
    "multi30k": dict(
        vocabulary=4000,
        width=128,
        feed_forward=512,
        heads=4,
        encoder_layers=3,
        decoder_layers=3,
        residual_dropout=0.1,
        attention_dropout=0.1,
        batch_tokens=2500,
        learning_rate=1.0,
        warmup=1000,
        steps=4000,
        save_every=200,
        average_last=5,
    ),
    "paper": PAPER,
    "paper-finetune": FINETUNE | dict(init="a run of --preset paper"),
    # Section 6
    "paper-scratch": PAPER | dict(l0drop="output", l0_weight=0.2, l0_warmup=200_000),
    # Section 5
    "paper-char": PAPER | dict(units="char", batch_tokens=85_000, max_source=1024, max_target=1024),
    # Table 1
    "paper-char-finetune": FINETUNE | dict(init="a run of --preset paper-char", l0_weight=0.02),
    # Appendix A
    "paper-cnndm": PAPER | NEWS,
    # Section 6; save_every: so that all five checkpoints are of this run
    "paper-cnndm-finetune": FINETUNE
    | dict(init="a run of --preset paper-cnndm", steps=20_000, save_every=4000),
    # Appendix A; a folder of JSONL
    "paper-wikisum": PAPER | dict(data="wikisum", max_source=2048, steps=100_000),
}


def learning_rate(number: int, width: int, config: TrainConfig) -> float:
    """Inverse square root of the running update with linear warm-up (Appendix A).

    Args:
        number: of the update, from 1; fine-tuning counts on from the last one of its baseline (D6).
        width: D of the model.
    """
    return config.learning_rate * width**-0.5 * min(number**-0.5, number * config.warmup**-1.5)


def held_open(config: TrainConfig) -> float:
    """Steps in which all gates are held open (D19; D20: until the decoder has learned to read).

    Of a baseline all.
    """
    if config.l0drop == "none":
        return math.inf
    return config.l0_start if config.l0_weight else 0.4 * config.steps


def l0_weight(step: int, config: TrainConfig) -> float:
    """Lambda of Eq. (12): 0 while gates are held open, then constant or, from scratch, rising.

    Section 6 has both.
    """
    if step < held_open(config):
        return 0.0
    risen = (step - config.l0_start) / config.l0_warmup if config.l0_warmup else 1.0
    return config.l0_weight * min(risen, 1.0)
