"""What defines a run: every flag with its source, the presets, and the rates as functions of the step."""

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from annotated_types import Interval

from . import patterns
from .model import ModelConfig

Positive = Annotated[int, Interval(ge=1)]
Size = Annotated[int, Interval(ge=1, le=10**6)]
Share = Annotated[float, Interval(ge=0, le=1)]

# What fine-tuning cannot change.
SIZES = ("units", "vocabulary", "width", "feed_forward", "heads", "encoder_layers", "decoder_layers")
# What a pretrained model brings itself, or cannot do.
NOT_PRETRAINED = (*SIZES, "residual_dropout", "attention_dropout", "mask_closed_in_training")

# D20: the share of the steps in which all gates are held open, before lambda follows --target-sparsity; how fast the
# multiplier follows the sparsity of a batch; and what keeps the sparsity from swinging.
HELD_OPEN, FOLLOW, DAMP = 0.4, 0.02, 8.0


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `l0_weight` is --l0-weight. Sizes default to the tiny preset."""

    data: str = "toy"  # Anything that shared.data.load takes.
    units: Literal["bpe", "char"] = "bpe"  # Subwords, or characters (Section 5).
    vocabulary: Size = 1000  # Joint subwords; "char" has as many as the text has characters (Appendix A: 32,000).
    max_source: Positive = 400  # Longest source in tokens, longer ones are cut (Appendix A: 400 for CNN/Daily Mail).
    max_target: Positive = 200  # Longest target in training in tokens, longer ones are cut.

    width: Size = 128  # D, the model width (Appendix A: 512).
    feed_forward: Size = 512  # Inner width of the feed-forward layers (Appendix A: 2048).
    heads: Size = 4  # Attention heads (Appendix A: 8).
    encoder_layers: Size = 2  # Layers of the encoder (base Transformer: 6).
    decoder_layers: Size = 2  # Layers of the decoder (base Transformer: 6).
    residual_dropout: Share = 0.0  # Dropout of embeddings and sublayers (Appendix A: 0.1).
    attention_dropout: Share = 0.0  # Dropout of attention weights (Appendix A: 0.1).
    positions: Size = 1024  # Longest source or target that the model can read.
    model: str = ""  # BART or Marian to start from, by hub name or folder, in place of the sizes and dropouts above.

    # Gates nowhere, on the encoder's output (Eq. 11), or after each of its layers (Section 6).
    l0drop: Literal["none", "output", "every"] = "output"
    gate_bias: bool = True  # Give the gates' predictor a bias (released code, D3).
    gate_start: Annotated[float, Interval(ge=-10, le=10)] = 0.0  # Where that bias starts; 3 is an open gate (D15).
    mask_closed_in_training: bool = False  # Hide closed states in training, not only zero them (released code, D4).
    target_sparsity: Share = 0.47  # Share to prune where --l0-weight is 0: lambda follows it (D20; Table 1: 0.467).
    l0_weight: float = 0.0  # Lambda of Eq. (12); 0: it follows --target-sparsity (Table 1: 0.3).
    l0_warmup: int = 0  # Steps over which --l0-weight rises linearly (Section 6: 200,000); 0: constant.
    l0_start: int = 0  # Steps before --l0-weight counts, in which the gates are held open (D19).
    l0_reduction: Literal["token_mean", "sum"] = "token_mean"  # Losses per token (released code) or summed (Eq. 12).
    pattern: Literal[patterns.PATTERNS] = "none"  # Rule that drops encodings in place of gates (Section 7).
    stanza: str = ""  # Folder of Stanza models for sources without tags; empty: Stanza's own folder.
    init: str = ""  # Run folder to fine-tune: its weights and, unless flags override them, its values.

    steps: Positive = 1200  # Updates of this run (Appendix A: 300,000).
    batch_tokens: Positive = 1000  # Padded target tokens of a micro-batch of one process (Appendix A: 25,000).
    accumulate: Positive = 1  # Micro-batches per update and process (D14).
    learning_rate: float = 0.12  # Factor of D^-0.5 min(n^-0.5, n warmup^-1.5) (Appendix A: 1).
    warmup: Positive = 100  # Updates in which the rate rises (Appendix A: 4,000).
    label_smoothing: Share = 0.1  # Probability spread over the vocabulary (Appendix A).
    average_last: Positive = 1  # Checkpoints averaged at the end (Appendix A: 5; D13).
    save_every: Positive = 100  # Updates between checkpoints.
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"  # Precision of the forward pass.
    seed: int = 0  # Seed of weights, order, dropout and gates.

    beam: Positive = 4  # Hypotheses of the beam search (Appendix A).
    length_penalty: Annotated[float, Interval(ge=0, le=10)] = 0.6  # Of the search (Appendix A; characters: 1.0).
    extra_length: int = 50  # Outputs may be this much longer than their source (released code).

    def check(self) -> None:
        """ValueError for values that contradict each other."""
        if self.vocabulary < 8:
            raise ValueError(f"--vocabulary is {self.vocabulary}; it must be at least 8, 4 of them special tokens")
        if min(self.max_source, self.max_target) < 2:
            raise ValueError("--max-source and --max-target must be at least 2: a token and </s>")
        if self.save_every * (self.average_last - 1) >= self.steps:
            short = f"{self.steps} steps are too few for {self.average_last} checkpoints, {self.save_every} apart"
            raise ValueError(f"{short}: add --average-last 1, for its control too")
        if self.pattern != "none" and self.l0drop != "none":
            raise ValueError(f"--pattern {self.pattern} takes the place of the gates: add --l0drop none")
        if max(self.max_source, self.max_target) > self.positions:
            raise ValueError(f"--max-source and --max-target must not exceed --positions, which is {self.positions}")
        self.model_config(self.vocabulary)  # its own checks
        if self.model:
            if changed := [name for name in NOT_PRETRAINED if getattr(self, name) != getattr(TrainConfig, name)]:
                raise ValueError(f"--{changed[0].replace('_', '-')} does not go with --model: leave it out")
            if self.l0drop == "every":
                raise ValueError("--l0drop every does not go with --model: use output or none")

    def model_config(self, vocabulary: int) -> ModelConfig:
        """The model's part of the fields, with the size V that the tokenizer came to."""
        names = {field.name for field in fields(self)} & {field.name for field in fields(ModelConfig)}
        values = {name: getattr(self, name) for name in names}
        return ModelConfig(**values | {"vocabulary": vocabulary})


PAPER = dict(  # Appendix A: WMT14 En-De, the base Transformer; the baseline, which is fine-tuned
    data="wmt14-en-de", l0drop="none", vocabulary=32_000, width=512, feed_forward=2048, heads=8, encoder_layers=6,
    decoder_layers=6, residual_dropout=0.1, attention_dropout=0.1, batch_tokens=25_000, learning_rate=1.0, warmup=4000,
    steps=300_000, max_source=512, max_target=512, average_last=5, save_every=2000, positions=4096,
)  # fmt: skip
FINETUNE = dict(l0drop="output", l0_weight=0.3, steps=50_000)  # Section 6: 50K extra steps, constant lambda of Table 1
PRESETS = {
    "tiny": {},
    "multi30k": dict(  # this repository's: a small Transformer for 29,000 sentence pairs, half an hour on one core
        vocabulary=4000, width=128, feed_forward=512, heads=4, encoder_layers=3, decoder_layers=3, residual_dropout=0.1,
        attention_dropout=0.1, batch_tokens=2500, learning_rate=1.0, warmup=1000, steps=4000, save_every=200,
        average_last=5,
    ),
    "paper": PAPER,
    "paper-finetune": FINETUNE | dict(init="a run of --preset paper"),
    "paper-scratch": PAPER | dict(l0drop="output", l0_weight=0.2, l0_warmup=200_000),  # Section 6
    "paper-char": PAPER | dict(units="char", batch_tokens=85_000, length_penalty=1.0, max_source=1024,
                               max_target=1024),  # Section 5
    "paper-char-finetune": FINETUNE | dict(init="a run of --preset paper-char", l0_weight=0.02),  # Table 1
    "paper-cnndm": PAPER | dict(data="cnn_dailymail", max_source=400, residual_dropout=0.5, attention_dropout=0.3,
                                steps=80_000),  # Appendix A
    "paper-cnndm-finetune": FINETUNE | dict(init="a run of --preset paper-cnndm", steps=20_000),  # Section 6
    "paper-wikisum": PAPER | dict(data="wikisum", max_source=2048, steps=100_000),  # Appendix A; a folder of JSONL
}  # fmt: skip


def learning_rate(step: int, config: TrainConfig, first_step: int = 0, width: int | None = None) -> float:
    """Inverse square root of the running step with linear warm-up (Appendix A); fine-tuning counts on (D6).

    Args:
        step, first_step: updates done in this run, and in those that `init` builds on.
        width: D of a pretrained model.
    """
    number = first_step + step + 1
    return config.learning_rate * (width or config.width) ** -0.5 * min(number**-0.5, number * config.warmup**-1.5)


def l0_weight(step: int, config: TrainConfig) -> float:
    """lambda at a step: 0 before `l0_start`, then rising linearly over `l0_warmup` steps (Section 6), then constant."""
    steps = step - config.l0_start
    risen = steps / config.l0_warmup if config.l0_warmup else float(steps >= 0)
    return config.l0_weight * min(max(risen, 0.0), 1.0)


def holds_open(step: int, config: TrainConfig) -> bool:
    """Whether all gates are held open at a step: D19, or D20 where lambda follows a target."""
    return step < (config.l0_start if config.l0_weight else HELD_OPEN * config.steps)


def follow(multiplier: float, gap: float) -> tuple[float, float]:
    """D20: the Lagrange multiplier after an update, and the lambda of that update.

    Args:
        gap: the sparsity that is wanted minus that of the batch; where it is negative, lambda falls, even below 0.
    """
    multiplier += FOLLOW * gap
    return multiplier, multiplier + DAMP * gap
