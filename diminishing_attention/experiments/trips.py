"""The lesson's trips as files, for the README's demo, and a run that is not trained yet, to begin with.

python -m diminishing_attention.experiments.trips --out runs/trips --start runs/start
"""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import save_model

from shared.data import open_output, write_jsonl
from shared.run import one_line_errors, read_flags

from .. import one
from ..config import TrainConfig
from ..loading import Run, make_model
from ..text import SPECIAL, Vocabulary

SPLITS = {"train": 12_000, "validation": 200, "test": 300}


@dataclass
class Options:
    """The command line."""

    out: Path  # Folder for train.jsonl, validation.jsonl and test.jsonl.
    start: Path  # Run folder to make; train --init goes on from it.
    seed: int = 0  # Seed of its weights, and of the trainings after it.
    overwrite: bool = False  # Replace those files.


def sentences(words: Sequence[int]) -> list[str]:
    """The sentences of a text of `one.draw`."""
    text = " ".join(one.WORDS[word] for word in words if word > one.EOS)
    return [f"{sentence.strip()} ." for sentence in text.removesuffix(".").split(" .") if sentence.strip()]


def write_start(folder: Path, data: Path, seed: int) -> None:
    """A run of no updates, with torch's initial values, which one.py has, too.

    With the released code's (D14), which are smaller, a model of this size learns the task with some seeds only.
    """
    vocabulary = Vocabulary([*SPECIAL, *one.WORDS[one.DOT :]])
    config = TrainConfig(data=str(data), vocabulary=len(vocabulary), batch_size=32, seed=seed)
    torch.manual_seed(seed)
    model = make_model(config, vocabulary)
    for part in model.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    folder.mkdir(parents=True, exist_ok=True)
    Run(config, model, vocabulary).write_files(folder)
    (folder / "config.json").write_text(json.dumps({"config": asdict(config)}))
    save_model(model, str(folder / "model.safetensors"))


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    for split, count in SPLITS.items():
        pairs = zip(*(texts.tolist() for texts in one.draw(count, random.Random(split))), strict=True)
        rows = [{"document": sentences(source), "summary": sentences(target)} for source, target in pairs]
        with open_output(options.out / f"{split}.jsonl", options.overwrite) as file:
            write_jsonl(file, rows)
    write_start(options.start, options.out, options.seed)
    print(f"{options.out}: {', '.join(f'{count:,} {split}' for split, count in SPLITS.items())} texts; {options.start}")


if __name__ == "__main__":
    main()
