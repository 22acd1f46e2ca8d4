"""Train a pointer-generator or BERTSum, then switch diminishing attention or coverage on.

python -m diminishing_attention.train --out runs/pg --preset repetition
python -m diminishing_attention.train --out runs/pg-dim --init runs/pg --diminishing dim --steps 150
python -m diminishing_attention.train --out runs/bertsum --preset bertsum-abs
"""

import argparse
import json
import math
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, field, fields, make_dataclass, replace
from itertools import pairwise
from logging import getLogger
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import torch
import tyro
from accelerate import Accelerator, DataLoaderConfiguration
from accelerate.utils import set_seed
from filelock import FileLock
from safetensors.torch import save_model
from torch import nn
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoConfig, AutoModel, logging

from shared.data import Example, in_sentences, load, write_json

from . import bert_text, bertsum, released, text
from .config import LEAST, MOST, PRESETS, TrainConfig
from .encoder import load_encoder, new_encoder
from .model import PointerGenerator, PointerGeneratorConfig
from .run import NAME, check_fields, holds_run, load_weights, one_line_errors, read_config, save_checkpoint, training

TEXT = {"pointer": text, "bertsum-ext": bert_text, "bertsum-abs": bert_text}  # model: how it reads and writes text
COUNTED = {"pointer": "target_out", "bertsum-ext": "source", "bertsum-abs": "target"}  # by --batch-tokens
ENCODER = ("encoder", "pretrained", "vocabulary", "width", "layers", "positions")
SIZES = ("embedding", "hidden", "heads", "feed_forward", "decoder_layers")  # of the rest


class Run(NamedTuple):
    """A run folder's contents."""

    config: TrainConfig
    model: PointerGenerator | bertsum.BertSumExt | bertsum.BertSumExtAbs
    tokenizer: object  # text.Vocabulary, or BERTSum's tokenizer of transformers
    base: list[dict] = []  # the configs of the runs that it goes on from, the last one first

    @property
    def text(self):
        """The module that reads and writes the model's text."""
        return TEXT[self.config.model]

    def encode(self, examples: Sequence[Example]) -> list:
        """Examples as token ids, cut to the run's sizes; BERTSum's documents must be in sentences."""
        labels = {"with_labels": True} if self.config.model == "bertsum-ext" else {}
        sizes = self.config.max_source, self.config.max_target
        return self.text.encode_examples(examples, self.tokenizer, *sizes, **labels)

    def write_files(self, folder: Path) -> None:
        """Write what `load_run` reads beside config.json and the weights."""
        self.text.save(self.tokenizer, folder)
        (folder / "start.json").write_text(json.dumps({"base": self.base}), encoding="utf-8")
        if self.config.model != "pointer":
            self.model.encoder.config.save_pretrained(folder / "encoder")


def load_run(folder: str | Path) -> Run:
    """Read a run; the model is in eval mode on the CPU. Of a run in training, the last checkpoint, said on stderr.

    Raises:
        ValueError: not a run folder, one of another package or version, a cut-off file, NaN in the weights.
    """
    config, folder, bert = read_config(folder, TrainConfig), Path(folder), None
    tokenizer = TEXT[config.model].load(folder)
    try:
        base = json.loads((folder / "start.json").read_text(encoding="utf-8"))["base"]
        if config.model != "pointer":
            bert = AutoModel.from_config(AutoConfig.from_pretrained(folder / "encoder"), dtype=torch.float32)
    except Exception as error:  # transformers raises many types
        raise ValueError(f"{folder}: start.json or encoder/ is missing or cut off ({str(error)[:200]})") from None
    model = make_model(config, tokenizer, bert)
    load_weights(model, folder)
    return Run(config, model.eval(), tokenizer, base)


def make_model(config: TrainConfig, tokenizer, bert: nn.Module | None = None) -> nn.Module:
    """A new model of the config, on the encoder where it is BERTSum."""
    kind = PointerGeneratorConfig if config.model == "pointer" else bertsum.BertSumConfig
    values = {field.name: getattr(config, field.name) for field in fields(kind) if hasattr(config, field.name)}
    values["diminishing"] = config.mechanism()
    if config.model == "pointer":
        return PointerGenerator(PointerGeneratorConfig(**values | {"vocabulary": len(tokenizer)}))
    sizes = bertsum.BertSumConfig(**values | {"layers": config.decoder_layers})
    if config.model == "bertsum-ext":
        return bertsum.BertSumExt(bert, sizes)
    return bertsum.BertSumExtAbs(bert, sizes, bert_text.target_ids(tokenizer))


def begin(config: TrainConfig, examples: Sequence[Example]) -> Run:
    """A new model and tokenizer, or those of the run that `config.init` names."""
    if config.init:
        return go_on(config)
    texts = [part for example in examples for part in (example.source, example.target)]
    if config.model == "pointer":
        vocabulary = text.Vocabulary.build(texts, config.vocabulary)
        return Run(config, make_model(config, vocabulary), vocabulary)
    if config.encoder:
        tokenizer = bert_text.load_pretrained("AutoTokenizer", config.encoder)
    else:
        tokenizer = bert_text.make_tokenizer(texts, config.vocabulary, config.positions)
    if config.encoder and config.pretrained:
        bert = load_encoder(config.encoder, config.positions)
    else:
        bert = new_encoder(len(tokenizer), config)
    return Run(config, make_model(config, tokenizer, bert), tokenizer)


def go_on(config: TrainConfig) -> Run:
    """The weights and words of the run that `config.init` names, with this config's mechanism.

    D12: weights alone are taken over; optimiser, learning rates and their warm-up start anew. ValueError: flags that
    do not fit the base run.
    """
    base = load_run(config.init)
    is_same = base.config.model == config.model
    if not is_same and (base.config.model, config.model) != ("bertsum-ext", "bertsum-abs"):
        raise ValueError(f"{config.init} holds a {base.config.model}; a {config.model} cannot go on from it")
    for name in ENCODER + SIZES * is_same:
        if getattr(config, name) != (value := getattr(base.config, name)):
            raise ValueError(f"--{name.replace('_', '-')}: {config.init} has {value!r}, leave it out")
    model = make_model(config, base.tokenizer, base.model.encoder)  # a BERTSum goes on with this encoder
    if is_same:
        model.load_state_dict(base.model.state_dict(), strict=False)  # coverage has a parameter that comes or goes
    return Run(config, model, base.tokenizer, [asdict(base.config), *base.base])


def load_task(config: TrainConfig, split: str, limit: int | None = None, data: str = "") -> list[Example]:
    """Examples of the run's task, documents in sentences; `data` in place of the run's; ValueError: no title."""
    examples = in_sentences(load(data or config.data, split, limit))
    if config.task == "summary":
        return examples
    if missing := [example.id for example in examples if not (example.title or "").strip()]:
        raise ValueError(f"{data or config.data}: {missing[0]!r} has no field 'title': use --task summary")
    return [replace(e, summary=[e.title], references=[[e.title]], salient=None) for e in examples]


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adagrad, or Adam; a group of parameters for each learning rate."""
    encoder = {"factor": config.encoder_learning_rate, "warmup": config.encoder_warmup}  # Eq. (7)
    other = {"factor": config.learning_rate, "warmup": config.warmup}  # Eq. (8)
    groups = [{"params": list(model.parameters()), **other}]
    if config.model != "pointer":
        # D9: the two optimisers of Eq. (7)-(8) are two groups of one Adam, which updates each parameter by itself.
        groups = [{"params": part, **rate} for part, rate in zip(model.parts(), (encoder, other), strict=True)]
    if config.optimizer == "adagrad":
        return torch.optim.Adagrad(groups, lr=0.0, initial_accumulator_value=config.accumulator, eps=1e-10)
    return torch.optim.Adam(groups, lr=0.0, betas=(0.9, 0.999), eps=1e-8)  # D20: the code behind PreSumm has eps 1e-9


def prepare(config: TrainConfig, out: Path | None) -> tuple[Run, list, list]:
    """The run, new or that of the folder `out`, and its training and validation data."""
    examples = load_task(config, "train", config.examples or None)
    validation = load_task(config, "validation", config.validation_examples or None)
    set_seed(config.seed)
    run = load_run(out) if out else begin(config, examples)
    set_seed(config.seed, device_specific=True)  # each process draws its own dropout
    return run, run.encode(examples), run.encode(validation)


def train(config: TrainConfig, out: str | Path, resume: bool = False) -> None:
    """Train and write the run folder `out`.

    Args:
        resume: go on after the last checkpoint; the result is bit for bit that of a run that was never stopped.
    Raises:
        ValueError: bad values or data, a folder that cannot be used, a loss that is not finite; nothing is lost.
    """
    check_fields(config, LEAST, MOST)
    config.check()
    getLogger("accelerate").setLevel("ERROR")  # it says at each checkpoint that a tied tensor is stored once
    out, resume = Path(out), holds_run(Path(out), resume)
    accelerator = Accelerator(
        mixed_precision=config.mixed_precision,
        gradient_accumulation_steps=config.accumulate,
        cpu=not torch.accelerator.is_available(),  # or several processes would each believe to be alone
        dataloader_config=DataLoaderConfiguration(even_batches=False),
    )
    run, items, validation = prepare(config, out if resume else None)
    batches = text.LengthBatches(items, config.batch_size, config.batch_tokens, COUNTED[config.model], config.seed)
    # The loader's own generator, or starting it would draw from the one that dropout draws from.
    loader = DataLoader(items, batch_sampler=batches, collate_fn=run.text.collate, generator=torch.Generator())
    model, optimizer, loader = accelerator.prepare(run.model, make_optimizer(run.model, config), loader)

    counts = {"step": 0, "examples": len(items), "validation_examples": len(validation),
              "sources_cut": sum(item.was_cut for item in items)}  # fmt: skip
    with (
        training(accelerator, out, config, {"step": 0, "log": [counts]}, run.write_files) as progress,
        tqdm(total=config.steps, initial=progress["step"], disable=not accelerator.is_main_process) as bar,
    ):
        stream = iter(accelerator.skip_first_batches(loader, progress["step"] * config.accumulate))
        for step in range(progress["step"], config.steps):
            for group in optimizer.param_groups:
                group["lr"] = bertsum.learning_rate(step, group["factor"], group["warmup"])
            model.train()
            for _ in range(config.accumulate):
                batch = next(stream)
                with accelerator.accumulate(model):
                    # Eq. (5) of each document; BERTSum: cross-entropy of each sentence or target token.
                    losses = model(batch)
                    accelerator.backward(losses.mean())  # D19: the mean over micro-batches of their means
                    if config.clip and accelerator.sync_gradients:
                        accelerator.unscale_gradients()
                        for part in run.model.parts():
                            nn.utils.clip_grad_norm_(part, config.clip)
                    optimizer.step()
                    optimizer.zero_grad()
            row = {"step": step + 1, "loss": losses.mean().item(), "lr": optimizer.param_groups[-1]["lr"]}
            if not math.isfinite(row["loss"]):
                raise ValueError(f"the loss is {row['loss']} at step {step + 1}; {out} keeps its last checkpoint")
            bar.update()
            bar.set_postfix(loss=f"{row['loss']:.3f}", refresh=False)
            if row["step"] % config.save_every == 0 or row["step"] == config.steps:
                row["validation_loss"] = validation_loss(accelerator.unwrap_model(model), run, validation)
                progress = {"step": row["step"], "log": [*progress["log"], row]}
                save_checkpoint(accelerator, out, progress)
    if accelerator.is_main_process:
        finish(out, progress["log"][-1])


def finish(out: Path, last: dict) -> None:
    """The last checkpoint's weights become the run's."""
    shutil.copyfile(out / f"checkpoints/{last['step']:08d}/model.safetensors", out / "unfinished")
    os.replace(out / "unfinished", out / "model.safetensors")
    print(f"{out}: {last['step']} steps, validation loss {last['validation_loss']:.3f}")
    print(f"next: python -m {__package__}.evaluate {out}")


@torch.inference_mode()
def validation_loss(model: nn.Module, run: Run, items: Sequence) -> float:
    """Mean loss of all documents, sentences or target tokens, in eval mode and without label smoothing."""
    model.eval()
    device, size = next(model.parameters()).device, run.config.batch_size
    by_length = sorted(items, key=lambda item: len(item.source))
    batches = (by_length[first : first + size] for first in range(0, len(items), size))
    return torch.cat([model(run.text.collate(batch, device)) for batch in batches]).mean().item()


# Same as l0drop/train.py:parse
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


def convert(source: str, encoder: str) -> str:
    """presumm:FILE (with the encoder's WordPieces) or pointer_summarizer:FILE -> FILE.run; other texts as they are."""
    kind, _, file = source.partition(":")
    if kind not in released.NAMES:
        return source
    out, unfinished = Path(f"{file}.run"), Path(f"{file}.unfinished")
    with FileLock(f"{file}.lock"):  # the processes of one training come here together
        if not out.exists():
            found = released.read(kind, Path(file), encoder)
            config = TrainConfig(**PRESETS[found.preset] | found.values)
            model = make_model(config, found.tokenizer, found.bert and AutoModel.from_config(found.bert))
            released.fill(model, found.weights, file)
            unfinished.mkdir(exist_ok=True)
            Run(config, model, found.tokenizer).write_files(unfinished)
            save_model(model, str(unfinished / "model.safetensors"))
            write_json(unfinished / "config.json", {"package": NAME, "config": asdict(config)})
            os.replace(unfinished, out)
            print(f"{file}: its weights, and nothing else of it, were read into {out}", file=sys.stderr)
    return str(out)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    logging.set_verbosity_error()  # what an encoder lacks is checked here
    logging.disable_progress_bar()
    given = sys.argv[1:] if arguments is None else arguments
    encoder = dict(pairwise(given)).get("--encoder", "bert-base-uncased")
    train(*parse([convert(text, encoder) for text in given]))


if __name__ == "__main__":
    main()
