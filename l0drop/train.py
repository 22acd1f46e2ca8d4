"""Train a baseline, fine-tune it with L0Drop, or train with L0Drop from scratch.

python -m l0drop.train --out runs/base --l0drop none
python -m l0drop.train --out runs/l0 --init runs/base --l0-weight 0.3

The run folder holds config.json, tokenizer.json, dropped.json (frequency patterns), log.jsonl, model.safetensors (the
mean of the last checkpoints) and checkpoints/ with what --resume needs.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import tqdm

from shared.data import Example, load

from . import patterns
from .model import ModelConfig, Transformer, objective, translation_loss
from .text import Batches, Item, collate, encode_examples, train_tokenizer


@dataclass(frozen=True)
class TrainConfig:
    """All that defines a run. Every field is a flag: `l0_weight` is --l0-weight. Sizes default to the tiny preset."""

    # Data
    data: str = "toy"  # anything shared.data.load takes
    units: str = "bpe"  # "bpe", or "char" for character level (Section 5)
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
    cross_attention: str = "softmax"
    # L0Drop
    l0drop: str = "output"  # "none" = baseline, "output" = Eq. (11), "every" = after each encoder layer (Section 6)
    gate_bias: bool = True  # released code
    mask_closed_in_training: bool = False  # released code: true
    l0_weight: float = 0.3  # lambda of Eq. (12); Table 1: 0.3
    l0_warmup: int = 0  # steps over which lambda rises linearly; 0 = constant, as in fine-tuning (Section 6)
    l0_start: int = 0  # steps before that rise, with lambda = 0 (released code: 0)
    l0_reduction: str = "token_mean"  # "token_mean" = released code, "sum" = Eq. (10) as printed
    pattern: str = "none"  # a rule of Section 7 instead of gates: pos, freq, inv_freq, group
    tagger: str = ""  # folder of Stanza models, for sources without tags; empty = Stanza's own folder
    init: str = ""  # run folder to fine-tune: its weights, tokenizer and sizes
    # Optimisation
    steps: int = 1200  # updates of this run
    batch_tokens: int = 1000  # padded target tokens of a micro-batch of one process
    accumulate: int = 1  # micro-batches per update and process
    learning_rate: float = 0.12  # factor of D^-0.5 min(n^-0.5, n warmup^-1.5); the paper's schedule has 1
    warmup: int = 100  # updates
    label_smoothing: float = 0.1  # Appendix A
    average_last: int = 5  # checkpoints averaged into model.safetensors (Appendix A)
    save_every: int = 100  # updates between checkpoints
    mixed_precision: str = "no"  # "no", "bf16" or "fp16"
    seed: int = 0
    # Decoding defaults that evaluate.py takes from here
    beam: int = 4  # Appendix A
    length_penalty: float = 0.6  # Appendix A; Section 5: 1.0 for characters
    extra_length: int = 50  # outputs may be this much longer than their source (released code)

    def __post_init__(self):
        choices = {
            "units": ("bpe", "char"),
            "l0_reduction": ("token_mean", "sum"),
            "pattern": patterns.PATTERNS,
            "mixed_precision": ("no", "bf16", "fp16"),
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; use one of {', '.join(allowed)}")
        for name in ("steps", "batch_tokens", "accumulate", "warmup", "average_last", "save_every", "beam"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.l0_weight < 0:
            raise ValueError(f"l0_weight (lambda) is {self.l0_weight}; a penalty must be at least 0")
        if self.pattern != "none" and self.l0drop != "none":
            raise ValueError(f"pattern {self.pattern!r} takes the place of the gates: add --l0drop none")
        if max(self.max_source, self.max_target) > self.positions:
            raise ValueError(
                f"max_source and max_target must not exceed positions = {self.positions}: raise --positions"
            )

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


def learning_rate(step: int, config: TrainConfig, first_step: int = 0) -> float:
    """Inverse square root of the running step with linear warm-up (Appendix A); fine-tuning counts on (D6).

    Args:
        step: updates done in this run.
        first_step: updates of the runs that `init` builds on.
    """
    number = first_step + step + 1
    return config.learning_rate * config.width**-0.5 * min(number**-0.5, number * config.warmup**-1.5)


def l0_weight(step: int, config: TrainConfig) -> float:
    """lambda at a step: 0 before `l0_start`, then rising linearly over `l0_warmup` steps (Section 6), then constant."""
    if step < config.l0_start:
        return 0.0
    return config.l0_weight * (min((step - config.l0_start) / config.l0_warmup, 1.0) if config.l0_warmup else 1.0)


# The run folder


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: Transformer
    tokenizer: Tokenizer
    dropped: set[int]  # token ids that the run's frequency pattern drops
    steps: int  # updates so far, those of the runs it was initialised from included


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
        raise ValueError(f"{path} does not exist: {path.parent} is not a run folder of l0drop.train") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is cut off or not JSON ({error}): train the run again") from None


def read_config(run_dir: Path) -> dict:
    """config.json of a run folder of this package; raises ValueError that names the file and what is wrong."""
    path = run_dir / "config.json"
    saved = read_json(path)
    if saved.get("package") != "l0drop":
        raise ValueError(f"{path} belongs to the package {saved.get('package')!r}, not to l0drop")
    unknown = set(saved["train"]) - {field.name for field in fields(TrainConfig)}
    if unknown:
        raise ValueError(f"{path}: unknown field {', '.join(sorted(unknown))}: the run was made by another version")
    return saved


def load_run(run_dir: str | Path) -> Run:
    """Read a finished run; the model is in eval mode on the CPU.

    Raises:
        ValueError: not a run folder, one of another package, one that is not finished, or a cut-off file.
    """
    run_dir = Path(run_dir)
    saved = read_config(run_dir)
    config = TrainConfig(**saved["train"])
    weights = run_dir / "model.safetensors"
    if not weights.exists():
        raise ValueError(f"{weights} does not exist: the run is not finished, go on with --out {run_dir} --resume")
    try:
        tokenizer = Tokenizer.from_file(str(run_dir / "tokenizer.json"))
    except Exception as error:  # tokenizers raises a bare Exception
        raise ValueError(f"{run_dir / 'tokenizer.json'} is missing or cut off ({error})") from None
    model = Transformer(config.model_config(tokenizer.get_vocab_size()))
    try:
        model.load_state_dict(load_file(weights))
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{weights} is cut off or does not fit config.json ({error})") from None
    dropped = set(read_json(run_dir / "dropped.json"))
    return Run(config, model.eval(), tokenizer, dropped, saved["first_step"] + config.steps)


def average(paths: Sequence[Path]) -> dict[str, Tensor]:
    """Mean of the parameters of several checkpoints (Appendix A: the last 5)."""
    states = [load_file(path) for path in paths]
    return {name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]}


# Training


class Start(NamedTuple):
    """What a run starts from."""

    config: TrainConfig
    model: Transformer
    tokenizer: Tokenizer
    first_step: int  # updates already behind the weights


def start(config: TrainConfig, examples: Sequence[Example]) -> Start:
    """A new model and tokenizer, or those of the run that `config.init` names, whose sizes it keeps."""
    if not config.init:
        texts = [text for example in examples for text in (example.source, example.target)]
        tokenizer = train_tokenizer(texts, config.units, config.vocabulary)
        return Start(config, Transformer(config.model_config(tokenizer.get_vocab_size())), tokenizer, 0)
    base = load_run(config.init)
    sizes = ("units", "vocabulary", "width", "feed_forward", "heads", "encoder_layers", "decoder_layers", "positions")
    config = replace(config, **{name: getattr(base.config, name) for name in sizes})
    model = Transformer(config.model_config(base.tokenizer.get_vocab_size()))
    missing, unexpected = model.load_state_dict(base.model.state_dict(), strict=False)
    strange = [name for name in missing if not name.startswith("l0drop.") and "entmax" not in name] + unexpected
    if strange:
        raise ValueError(f"{config.init} does not fit this run: {', '.join(strange)}")
    return Start(config, model, base.tokenizer, base.steps)


def train(config: TrainConfig, run_dir: str | Path, resume: bool = False) -> None:
    """Train and write the run folder.

    Args:
        resume: go on after the last checkpoint; the result is bit for bit that of a run that was never stopped.
    Raises:
        ValueError: bad data, or a run folder that cannot be used; nothing is lost.
    """
    run_dir = Path(run_dir)
    accelerator = make_accelerator(config.mixed_precision)
    set_seed(config.seed)
    exists = (run_dir / "config.json").exists()
    accelerator.wait_for_everyone()  # all processes look before the first one creates it
    if exists and not resume:
        raise ValueError(f"{run_dir} already holds a run: add --resume to go on with it, or choose another --out")
    examples = load(config.data, "train")
    if exists:
        first_step = read_config(run_dir)["first_step"]
        tokenizer = Tokenizer.from_file(str(run_dir / "tokenizer.json"))
        dropped = set(read_json(run_dir / "dropped.json"))
        model = Transformer(config.model_config(tokenizer.get_vocab_size()))
    else:
        config, model, tokenizer, first_step = start(config, examples)
        dropped = dropped_units(examples, tokenizer, config.pattern)
        if accelerator.is_main_process:
            create_run(run_dir, config, tokenizer, dropped, first_step)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout and gates
    validation = load(config.data, "validation")
    make_items = partial(
        encode_examples,
        tokenizer=tokenizer,
        max_source=config.max_source,
        max_target=config.max_target,
        pattern=config.pattern,
        dropped=dropped,
        tagger=config.tagger,
    )
    training = Training(config, run_dir, accelerator, model, make_items(examples), make_items(validation), first_step)
    training.run()


def make_accelerator(mixed_precision: str) -> Accelerator:
    """The processes and devices that accelerate or torchrun has set up."""
    processes = int(os.environ.get("WORLD_SIZE", 1))
    if processes == 1 and os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true":
        # accelerate launch --cpu --num_processes N starts one process whatever N is, unless MPI starts the others.
        print(
            "one CPU process; for N of them: torchrun --standalone --nproc-per-node N -m l0drop.train ...",
            file=sys.stderr,
        )
    # Without this, several processes on a machine without GPU would each believe to be alone.
    return Accelerator(mixed_precision=mixed_precision, cpu=processes > 1 and not torch.cuda.is_available())


def create_run(run_dir: Path, config: TrainConfig, tokenizer: Tokenizer, dropped: set[int], first_step: int) -> None:
    """Write what does not change during the run; config.json comes last and makes it a run folder."""
    (run_dir / "checkpoints").mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(run_dir / "tokenizer.json"))
    write_json(run_dir / "dropped.json", sorted(dropped))
    write_json(run_dir / "config.json", {"package": "l0drop", "first_step": first_step, "train": asdict(config)})


def dropped_units(examples: Sequence[Example], tokenizer: Tokenizer, pattern: str) -> set[int]:
    """Token ids that the run's frequency pattern drops, counted on the training sources; empty for other patterns."""
    if pattern not in ("freq", "inv_freq"):
        return set()
    sources = [encoding.ids for encoding in tokenizer.encode_batch([example.source for example in examples])]
    rarest = pattern == "inv_freq"
    share = patterns.RARE_SHARE if rarest else patterns.FREQUENT_SHARE
    return patterns.dropped_by_frequency(sources, share, rarest)


class Training:
    """One run: the loop, its checkpoints and its log."""

    def __init__(
        self,
        config: TrainConfig,
        run_dir: Path,
        accelerator: Accelerator,
        model: Transformer,
        items: Sequence[Item],
        validation: Sequence[Item],
        first_step: int,
    ):
        """Take up the run where its last checkpoint left it, or at its beginning.

        Args:
            items, validation: encoded examples.
            first_step: updates behind the weights that the run starts from, for the learning rate.
        """
        self.config, self.run_dir, self.accelerator, self.first_step = config, run_dir, accelerator, first_step
        self.validation = validation
        self.batches = Batches(items, config.batch_tokens, config.seed)
        # Appendix A: Adam, beta1 = 0.9, beta2 = 0.98; released code: eps 1e-8.
        optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-8)
        self.model, self.optimizer = accelerator.prepare(model, optimizer)
        self.step = 0
        self.restore()
        cut = sum(item.source_was_cut for item in items)
        if not self.step:
            self.log({"examples": len(items), "batches_per_epoch": len(self.batches.order), "sources_cut": cut})

    def run(self) -> None:
        """Train to the last step and write model.safetensors."""
        config = self.config
        bar = tqdm(total=config.steps, initial=self.step, disable=not self.accelerator.is_main_process, unit="step")
        while self.step < config.steps:
            measures = self.update()
            bar.update()
            bar.set_postfix(measures, refresh=False)
            if self.step % config.save_every == 0 or self.step == config.steps:
                self.save(measures)
        bar.close()
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            paths = sorted((self.run_dir / "checkpoints").glob("*.safetensors"))[-config.average_last :]
            save_tensors(average(paths), self.run_dir / "model.safetensors")

    def update(self) -> dict[str, float]:
        """One step on `accumulate` micro-batches in each process."""
        config, accelerator = self.config, self.accelerator
        # Process r of P takes every P-th micro-batch: P processes do what one does that accumulates P times as much.
        first = self.step * config.accumulate * accelerator.num_processes + accelerator.process_index
        numbers = range(first, first + config.accumulate * accelerator.num_processes, accelerator.num_processes)
        micro_batches = [collate(self.batches[number], accelerator.device) for number in numbers]
        rows = torch.tensor(sum(len(batch.source) for batch in micro_batches), device=accelerator.device)
        all_rows = accelerator.reduce(rows).item()
        weight = l0_weight(self.step, config)
        rate = learning_rate(self.step, config, self.first_step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        total, closed, tokens = 0.0, 0, 0
        for index, batch in enumerate(micro_batches):
            with accelerator.autocast():
                logits, encoding = self.model(batch.source, batch.target_input, batch.rule_keep)
            losses = objective(logits, batch.target, encoding, weight, config.label_smoothing, config.l0_reduction)
            # The mean over all sentences of the update; DDP averages over processes, hence times their number.
            loss = losses.sum() * accelerator.num_processes / all_rows
            last = index == len(micro_batches) - 1
            with nullcontext() if last else accelerator.no_sync(self.model):
                accelerator.backward(loss)
            total += loss.item()
            tokens += int(encoding.keep.sum())
            if encoding.gates:
                closed += int(((encoding.gates[-1] == 0) & encoding.keep).sum())
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return {"loss": round(total, 4), "sampled_zero": round(closed / tokens, 3), "lr": rate, "lambda": weight}

    @torch.inference_mode()
    def validation_loss(self) -> float:
        """Unsmoothed nats per token, mean over sentences, in eval mode (expected gates)."""
        model = self.accelerator.unwrap_model(self.model).eval()
        losses = []
        for batch in Batches(self.validation, self.config.batch_tokens, 0).order:
            batch = collate([self.validation[i] for i in batch], self.accelerator.device)
            logits, _ = model(batch.source, batch.target_input, batch.rule_keep)
            losses.append(translation_loss(logits, batch.target, smoothing=0.0))
        return torch.cat(losses).mean().item()

    def save(self, measures: dict[str, float]) -> None:
        """Write a checkpoint; state.pt comes last, so that a run killed in between resumes from the one before."""
        random_states = gather_object([random_state()])
        if not self.accelerator.is_main_process:
            return
        folder = self.run_dir / "checkpoints"
        model = self.accelerator.unwrap_model(self.model)
        save_tensors(model.state_dict(), folder / f"{self.step:08d}.safetensors")
        self.log({"step": self.step, **measures, "validation_loss": round(self.validation_loss(), 4)})
        scaler = self.accelerator.scaler
        state = {
            "step": self.step,
            "optimizer": self.optimizer.state_dict(),
            "random": random_states,
            "scaler": scaler.state_dict() if scaler else None,
        }
        temporary = folder / "state.pt.tmp"
        torch.save(state, temporary)
        os.replace(temporary, folder / "state.pt")
        for path in sorted(folder.glob("*.safetensors"))[: -self.config.average_last]:
            path.unlink()

    def restore(self) -> None:
        """Continue after the last whole checkpoint, if there is one."""
        folder = self.run_dir / "checkpoints"
        if not (folder / "state.pt").exists():
            return
        state = torch.load(folder / "state.pt", map_location="cpu", weights_only=False)
        self.step = state["step"]
        weights = load_file(folder / f"{self.step:08d}.safetensors")
        self.accelerator.unwrap_model(self.model).load_state_dict(weights)
        self.optimizer.load_state_dict(state["optimizer"])
        if state["scaler"]:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        set_random_state(state["random"][self.accelerator.process_index])
        if self.accelerator.is_main_process:  # what a killed run wrote after this state is forgotten
            for path in folder.glob("*.safetensors"):
                if int(path.stem) > self.step:
                    path.unlink()
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
    """State of every generator that dropout and gates draw from, on this process."""
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
    parser = argparse.ArgumentParser("python -m l0drop.train", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--out", required=True, type=Path, help="run folder")
    parser.add_argument("--preset", default="tiny", choices=list(PRESETS), help="named set of values (default tiny)")
    parser.add_argument("--resume", action="store_true", help="go on after the last checkpoint, if there is one")
    for field in fields(TrainConfig):
        flag, kind = "--" + field.name.replace("_", "-"), flag_type(field.type)
        parser.add_argument(flag, type=kind, default=argparse.SUPPRESS, metavar=field.type.__name__)
    given = vars(parser.parse_args(arguments))
    run_dir, preset, resume = given.pop("out"), given.pop("preset"), given.pop("resume")
    if resume and (run_dir / "config.json").exists():
        saved = TrainConfig(**read_config(run_dir)["train"])
        changed = [name for name, value in given.items() if getattr(saved, name) != value]
        if changed:
            raise ValueError(f"--resume keeps the values in {run_dir / 'config.json'}; leave out {', '.join(changed)}")
        return saved, run_dir, True
    return TrainConfig(**PRESETS[preset] | given), run_dir, resume


def main(arguments: Sequence[str] | None = None) -> None:
    """Train; bad input ends the program with one line that says what is wrong."""
    try:
        train(*parse(arguments))
    except (ValueError, ImportError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command with --resume goes on after the last checkpoint")


if __name__ == "__main__":
    main()
