"""What defines a run: every flag with its source, the presets, and the rates as functions of the step."""

from dataclasses import dataclass, fields
from typing import Annotated, Literal

from . import patterns
from .model import ModelConfig
from .run import Positive, Range, Share, Size, check_fields

# Of a model for good.
SIZES = ("units", "vocabulary", "width", "feed_forward", "heads", "encoder_layers", "decoder_layers")
# What a pretrained model has its own of, or has no place for.
NOT_PRETRAINED = (*SIZES, "residual_dropout", "attention_dropout", "mask_closed_in_training")


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `l0_weight` is --l0-weight. Sizes default to the tiny preset."""

    # Data
    data: str = "toy"  # anything shared.data.load takes
    units: Literal["bpe", "char"] = "bpe"  # "char": character level (Section 5)
    vocabulary: Size = 1000  # joint subwords; "char" has as many as the text has characters
    max_source: Positive = 400  # tokens; longer sources are cut (Appendix A: 400 for CNN/Daily Mail, 2048 for WikiSum)
    max_target: Positive = 200  # tokens; longer targets are cut in training
    # Model: see ModelConfig
    width: Size = 128
    feed_forward: Size = 512
    heads: Size = 4
    encoder_layers: Size = 2
    decoder_layers: Size = 2
    residual_dropout: Share = 0.0
    attention_dropout: Share = 0.0
    positions: Size = 1024
    model: str = ""  # a BART or Marian, by hub name or folder, in the place of all sizes and dropout rates above
    freeze: bool = False  # train the gates of that model alone
    # L0Drop
    l0drop: Literal["none", "output", "every"] = "output"  # Eq. (11); "none": baseline; "every": each layer (Section 6)
    gate_bias: bool = True  # released code
    gate_start: Annotated[float, Range(-10, 10)] = 0.0  # D15: where that bias starts; 3: open gates
    mask_closed_in_training: bool = False  # released code: true
    l0_weight: float = 0.3  # lambda of Eq. (12); Table 1: 0.3
    l0_warmup: int = 0  # steps over which lambda rises linearly; 0 = constant, as in fine-tuning (Section 6)
    l0_start: int = 0  # steps before that rise: lambda is 0, D19: the gates are held open (released: 0)
    l0_reduction: Literal["token_mean", "sum"] = "token_mean"  # released code; "sum": Eq. (12) as printed
    pattern: Literal[patterns.PATTERNS] = "none"  # a rule of Section 7 instead of gates
    stanza: str = ""  # folder of Stanza models, for sources without tags; empty = Stanza's own folder
    init: str = ""  # run folder to fine-tune: its weights and, unless flags override them, its values
    # Optimisation
    steps: Positive = 1200  # updates of this run
    batch_tokens: Positive = 1000  # padded target tokens of a micro-batch of one process
    accumulate: Positive = 1  # micro-batches per update and process
    learning_rate: float = 0.12  # factor of D^-0.5 min(n^-0.5, n warmup^-1.5); the paper's schedule has 1
    warmup: Positive = 100  # updates
    label_smoothing: Share = 0.1  # Appendix A
    average_last: Positive = 1  # checkpoints averaged at the end, D13 (Appendix A: 5); of a control as many
    save_every: Positive = 100  # updates between checkpoints
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"  # of the forward pass
    seed: int = 0
    # Decoding defaults that evaluate.py takes from here
    beam: Positive = 4  # Appendix A
    length_penalty: Annotated[float, Range(0, 10)] = 0.6  # Appendix A; Section 5: 1.0 for characters
    extra_length: int = 50  # outputs may be this much longer than their source (released code)

    def check(self) -> None:
        """ValueError for a value out of range, or values that contradict each other."""
        check_fields(self)
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
            if given := [name for name in NOT_PRETRAINED if getattr(self, name) != getattr(TrainConfig, name)]:
                raise ValueError(f"--{given[0].replace('_', '-')} does not go with --model: leave it out")
            if self.l0drop == "every":
                raise ValueError("--l0drop every does not go with --model: use output or none")
        if self.freeze and not (self.model and self.l0drop == "output"):
            raise ValueError("--freeze trains the gates of a --model alone: it needs --model and --l0drop output")

    def model_config(self, vocabulary: int) -> ModelConfig:
        """The model's part of the fields, with the size V that the tokenizer came to."""
        own = {field.name for field in fields(self)}
        values = {field.name: getattr(self, field.name) for field in fields(ModelConfig) if field.name in own}
        return ModelConfig(**values | {"vocabulary": vocabulary})


PAPER = dict(  # Appendix A: WMT14 En-De, the base Transformer; the baseline, which is fine-tuned
    data="wmt14-en-de", l0drop="none", vocabulary=32_000, width=512, feed_forward=2048, heads=8, encoder_layers=6,
    decoder_layers=6, residual_dropout=0.1, attention_dropout=0.1, batch_tokens=25_000, learning_rate=1.0, warmup=4000,
    steps=300_000, max_source=512, max_target=512, average_last=5, save_every=2000, positions=4096,
)  # fmt: skip
FINETUNE = dict(l0drop="output", l0_weight=0.3, steps=50_000)  # Section 5: 50K extra steps, constant lambda of Table 1
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
    "paper-cnndm-finetune": FINETUNE | dict(init="a run of --preset paper-cnndm", steps=20_000),  # Section 5
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
