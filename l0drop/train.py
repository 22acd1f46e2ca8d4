"""Train a baseline, fine-tune it with L0Drop, or train with L0Drop from scratch.

python -m l0drop.train --out runs/base --l0drop none
python -m l0drop.train --out runs/l0 --init runs/base --l0drop output --l0-weight 0.3
"""

import argparse
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import torch
import tyro
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from safetensors.torch import load_file, save
from tokenizers import Tokenizer
from torch.utils.data import DataLoader
from tqdm import tqdm

from shared.data import Example, load

from . import patterns
from .model import Encoding, ModelConfig, Transformer, objective, translation_loss
from .run import check_fields, holds_run, load_weights, one_line_errors, read_config, save_checkpoint, training
from .text import Batch, Item, TokenBatches, collate, dropped_units, encode_examples, train_tokenizer

if TYPE_CHECKING:
    from .bart import GatedBart

# Of a model for good.
SIZES = ("units", "vocabulary", "width", "feed_forward", "heads", "encoder_layers", "decoder_layers")
# What a pretrained model has its own of, or has no place for.
NOT_PRETRAINED = (*SIZES, "residual_dropout", "attention_dropout", "cross_attention", "pattern")


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `l0_weight` is --l0-weight. Sizes default to the tiny preset."""

    # Data
    data: str = "toy"  # anything shared.data.load takes
    units: Literal["bpe", "char"] = "bpe"  # "char": character level (Section 5)
    vocabulary: int = 1000  # joint subwords; "char" has as many as the text has characters
    max_source: int = 400  # tokens; longer sources are cut (Appendix A: 400 for CNN/Daily Mail, 2048 for WikiSum)
    max_target: int = 200  # tokens; longer targets are cut in training
    # Model: see ModelConfig
    width: int = 128
    feed_forward: int = 512
    heads: int = 4
    encoder_layers: int = 2
    decoder_layers: int = 2
    residual_dropout: float = 0.0
    attention_dropout: float = 0.0
    positions: int = 1024
    cross_attention: Literal["softmax", "entmax"] = "softmax"  # "entmax": the sparse attention of Figure 2
    model: str = ""  # a BART or Marian, by hub name or folder, in the place of all sizes and dropout rates above
    freeze: bool = False  # train the gates of that model alone
    # L0Drop
    l0drop: Literal["none", "output", "every"] = "output"  # Eq. (11); "none": baseline; "every": each layer (Section 6)
    gate_bias: bool = True  # released code
    gate_start: float = 0.0  # D15: where that bias starts; 0 as released, 3 opens the gates at first
    mask_closed_in_training: bool = False  # released code: true
    l0_weight: float = 0.3  # lambda of Eq. (12); Table 1: 0.3
    l0_warmup: int = 0  # steps over which lambda rises linearly; 0 = constant, as in fine-tuning (Section 6)
    l0_start: int = 0  # steps before that rise: lambda is 0, D19: the gates are held open (released: 0)
    l0_reduction: Literal["token_mean", "sum"] = "token_mean"  # released code; "sum": Eq. (12) as printed
    pattern: Literal[patterns.PATTERNS] = "none"  # a rule of Section 7 instead of gates
    stanza: str = ""  # folder of Stanza models, for sources without tags; empty = Stanza's own folder
    init: str = ""  # run folder to fine-tune: its weights and, unless flags override them, its values
    # Optimisation
    steps: int = 1200  # updates of this run
    batch_tokens: int = 1000  # padded target tokens of a micro-batch of one process
    accumulate: int = 1  # micro-batches per update and process
    learning_rate: float = 0.12  # factor of D^-0.5 min(n^-0.5, n warmup^-1.5); the paper's schedule has 1
    warmup: int = 100  # updates
    label_smoothing: float = 0.1  # Appendix A
    average_last: int = 5  # checkpoints averaged at the end (Appendix A), of the last tenth of the run (D13)
    save_every: int = 100  # updates between checkpoints
    mixed_precision: Literal["no", "bf16", "fp16"] = "no"  # of the forward pass
    seed: int = 0
    # Decoding defaults that evaluate.py takes from here
    beam: int = 4  # Appendix A
    length_penalty: float = 0.6  # Appendix A; Section 5: 1.0 for characters
    extra_length: int = 50  # outputs may be this much longer than their source (released code)

    def check(self) -> None:
        """ValueError for a value out of range, or values that contradict each other."""
        positive = (*SIZES[2:], "positions", "steps", "batch_tokens", "accumulate", "warmup", "average_last")
        least = {"max_source": 2, "max_target": 2, "gate_start": -10, "vocabulary": 8}  # 2: a token and </s>
        least |= dict.fromkeys((*positive, "save_every", "beam"), 1)
        check_fields(self, least, dict.fromkeys(("residual_dropout", "attention_dropout", "label_smoothing"), 1))
        if self.pattern != "none" and self.l0drop != "none":
            raise ValueError(f"--pattern {self.pattern} takes the place of the gates: add --l0drop none")
        if max(self.max_source, self.max_target) > self.positions:
            raise ValueError(f"--max-source and --max-target must not exceed --positions, which is {self.positions}")
        self.model_config(self.vocabulary)  # its own checks
        if self.model:
            own = (*NOT_PRETRAINED, "mask_closed_in_training")
            if given := [name for name in own if getattr(self, name) != getattr(TrainConfig, name)]:
                raise ValueError(f"--{given[0].replace('_', '-')} does not go with --model: leave it out")
            if self.l0drop == "every":
                raise ValueError("--l0drop every does not go with --model: use output or none")
        if self.freeze and not (self.model and self.l0drop == "output"):
            raise ValueError("--freeze trains the gates of a --model alone: it needs --model and --l0drop output")
        if self.cross_attention == "entmax":
            import entmax  # noqa: F401  # ImportError before any work

    def model_config(self, vocabulary: int) -> ModelConfig:
        """The model's part of the fields, with the size V that the tokenizer came to."""
        shared_fields = {field.name for field in fields(ModelConfig)} & {field.name for field in fields(self)}
        return ModelConfig(**{name: getattr(self, name) for name in shared_fields} | {"vocabulary": vocabulary})


PAPER = dict(  # Appendix A: WMT14 En-De, the base Transformer
    data="wmt14-en-de", vocabulary=32_000, width=512, feed_forward=2048, heads=8, encoder_layers=6, decoder_layers=6,
    residual_dropout=0.1, attention_dropout=0.1, batch_tokens=25_000, learning_rate=1.0, warmup=4000, steps=300_000,
    max_source=512, max_target=512, save_every=2000, positions=4096,
)  # fmt: skip
PRESETS = {
    "tiny": {},
    "multi30k": dict(  # this repository's: a small Transformer for 29,000 sentence pairs, half an hour on one core
        vocabulary=4000, width=128, feed_forward=512, heads=4, encoder_layers=3, decoder_layers=3, residual_dropout=0.1,
        attention_dropout=0.1, batch_tokens=2500, learning_rate=1.0, warmup=1000, steps=4000, save_every=200,
    ),
    "paper": PAPER,
    "paper-char": PAPER | dict(units="char", batch_tokens=85_000, length_penalty=1.0, max_source=1024, max_target=1024,
                               l0_weight=0.02),  # Section 5, Table 1
    "paper-cnndm": PAPER | dict(data="cnn_dailymail", max_source=400, residual_dropout=0.5, attention_dropout=0.3,
                                steps=80_000),  # Appendix A
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


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: "Transformer | GatedBart"
    tokenizer: Tokenizer
    dropped: set[int]  # token ids that the run's frequency pattern drops
    first_step: int  # updates behind the weights that this run started from

    def encode(self, examples: Sequence[Example], stanza: str = "") -> list[Item]:
        """Examples as token ids, cut to size, with the pattern's choice; `stanza` replaces the run's folder."""
        config, end = self.config, self.model.special[2]
        pattern = config.pattern, self.dropped, stanza or config.stanza
        return encode_examples(examples, self.tokenizer, config.max_source, config.max_target, *pattern, end)

    def collate(self, items: Sequence[Item]) -> Batch:
        """A batch on the model's device, with the special tokens of the model."""
        return collate(items, next(self.model.parameters()).device, *self.model.special[:2])

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights."""
        (folder / "tokenizer.json").write_text(self.tokenizer.to_str(), encoding="utf-8")
        start = {"first_step": self.first_step, "dropped": sorted(self.dropped)}
        (folder / "start.json").write_text(json.dumps(start), encoding="utf-8")
        if self.config.model:
            self.model.bart.config.save_pretrained(folder / "model")
            self.model.bart.generation_config.save_pretrained(folder / "model")


def load_run(folder: str | Path) -> Run:
    """Read a run, its model in eval mode on the CPU; of one in training the last checkpoint, said on stderr.

    Raises:
        ValueError: not a run folder, one of another package or version, a cut-off file, NaN in the weights.
    """
    config = read_config(folder, TrainConfig)
    try:
        tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
        start = json.loads(Path(folder, "start.json").read_text())
    except Exception as error:  # tokenizers raises a bare Exception
        raise ValueError(f"{folder}: tokenizer.json or start.json is missing or cut off ({error})") from None
    model = new_model(config, tokenizer, Path(folder, "model"))
    load_weights(model, folder)
    return Run(config, model.eval(), tokenizer, set(start["dropped"]), start["first_step"])


def new_model(config: TrainConfig, tokenizer: Tokenizer, pretrained=None) -> "Transformer | GatedBart":
    """The model of a config with new weights; or the pretrained one, by itself or by its configuration's folder."""
    if not config.model:
        return Transformer(config.model_config(tokenizer.get_vocab_size()))
    from .bart import GatedBart, from_config

    bart = from_config(pretrained) if isinstance(pretrained, Path) else pretrained
    return GatedBart(bart, config.l0drop != "none", config.gate_bias, config.gate_start, config.freeze)


def begin(config: TrainConfig, examples: Sequence[Example]) -> Run:
    """A new model and tokenizer, or those of the run that `config.init` names with new gates; ValueError if unfit."""
    if config.model and not config.init:
        from .bart import load_pretrained

        bart, tokenizer = load_pretrained(config.model, config.max_source)
        return Run(config, new_model(config, tokenizer, bart), tokenizer, set(), 0)
    if not config.init:
        texts = [text for example in examples for text in (example.source, example.target)]
        tokenizer = train_tokenizer(texts, config.units, config.vocabulary)
        dropped = dropped_units(examples, tokenizer, config.pattern)
        return Run(config, new_model(config, tokenizer), tokenizer, dropped, 0)
    base = load_run(config.init)
    for name in ("model", *SIZES):
        if getattr(config, name) != (value := getattr(base.config, name)):
            raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value}, leave it out")
    model = new_model(config, base.tokenizer, Path(config.init, "model"))
    missing, unexpected = model.load_state_dict(base.model.state_dict(), strict=False)
    other = [name for name in missing if not name.startswith("l0drop.") and "entmax" not in name] + unexpected
    if other:
        raise ValueError(f"{config.init} does not fit --l0drop {config.l0drop}: it has no place for {', '.join(other)}")
    dropped = dropped_units(examples, base.tokenizer, config.pattern)
    return Run(config, model, base.tokenizer, dropped, base.first_step + base.config.steps)


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`; `resume` goes on after the last checkpoint, to the same bits.

    ValueError for bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    config.check()
    out, resume = Path(out), holds_run(Path(out), resume)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.accumulate,
        cpu=not torch.accelerator.is_available(),  # or several processes would each believe to be alone
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )
    set_seed(config.seed)
    examples, validation = load(config.data, "train"), load(config.data, "validation")
    start = load_run(out) if resume else begin(config, examples)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout and gates
    items, validation = start.encode(examples), start.encode(validation)
    batches = TokenBatches(items, config.batch_tokens, config.seed)
    # The loader's own generator, or starting it would draw from the one that dropout and gates draw from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=start.collate, generator=torch.Generator())
    # Appendix A: Adam, beta1 = 0.9, beta2 = 0.98; released code: eps 1e-8. A frozen model's weights have no gradient.
    optimizer = torch.optim.Adam(start.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-8)
    model, optimizer, loader = accelerator.prepare(start.model, optimizer, loader)
    counts = {"step": 0, "examples": len(items), "sources_cut": sum(item.was_cut for item in items)}
    with (
        training(accelerator, out, config, {"step": 0, "log": [counts]}, start.write_files) as progress,
        tqdm(total=config.steps, initial=progress["step"], disable=not accelerator.is_main_process) as bar,
    ):
        stream = iter(accelerator.skip_first_batches(loader, progress["step"] * config.accumulate))
        for step in range(progress["step"], config.steps):
            weight = l0_weight(step, config)
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(step, config, start.first_step, start.model.width)
            for layer in start.model.l0drop:
                layer.held_open = step < config.l0_start  # D19
            model.train()
            for _ in range(config.accumulate):
                batch = next(stream)
                with accelerator.accumulate(model):
                    logits, encoding = model(batch.source, batch.target_input, batch.rule_keep)
                    # Eq. (12), mean over the sentences of a micro-batch (D14).
                    options = config.label_smoothing, config.l0_reduction, start.model.special[0]
                    loss = objective(logits, batch.target, encoding, weight, *options).mean()
                    accelerator.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1, "loss": loss.item(), "lambda": weight, "zero": share_of_zeros(encoding)}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", zero=f"{row['zero']:.2f}", refresh=False)
            if row["step"] % config.save_every == 0 or row["step"] == config.steps:
                row["validation_loss"] = validation_loss(start, validation)
                progress = {"step": row["step"], "log": [*progress["log"], row]}
                save_checkpoint(accelerator, out, progress, keep=config.average_last)
    if accelerator.is_main_process:
        save_average(out, config)
        print(f"{out}: {progress['step']} steps, validation loss {progress['log'][-1]['validation_loss']:.3f}")
        print(f"next: python -m {__package__}.evaluate {out}")


def share_of_zeros(encoding: Encoding) -> float:
    """Share of a batch's source encodings whose gate is exactly 0."""
    return (encoding.gates[-1] == 0)[encoding.keep].float().mean().item() if encoding.gates else 0.0


@torch.inference_mode()
def validation_loss(run: Run, items: Sequence[Item]) -> float:
    """Unsmoothed nats per token, mean over sentences, in eval mode (expected gates)."""
    run.model.eval()
    losses = []
    for indices in TokenBatches(items, run.config.batch_tokens, seed=0).epoch(0):
        batch = run.collate([items[i] for i in indices])
        logits, _ = run.model(batch.source, batch.target_input, batch.rule_keep)
        losses.append(translation_loss(logits, batch.target, smoothing=0.0, pad=run.model.special[0]))
    return torch.cat(losses).mean().item()


def save_average(out: Path, config: TrainConfig) -> None:
    """Write model.safetensors: the mean of the last checkpoints (Appendix A); D13: of those of the run's last tenth."""
    folders = sorted((out / "checkpoints").glob("[0-9]*"))[-config.average_last :]
    tail = [folder for folder in folders if int(folder.name) > 0.9 * config.steps]
    states = [load_file(folder / "model.safetensors") for folder in tail]
    mean = {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}
    (out / "unfinished").write_bytes(save(mean))
    os.replace(out / "unfinished", out / "model.safetensors")


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
