"""ROUGE-1 of one system minus another's, of predictions that evaluate --predictions wrote, over the means of seeds.

python -m encdec_sentence_sparse.experiments.difference predictions_0 predictions_1 --systems apx.approx.r2 kl.approx.r2
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from shared import rouge
from shared.data import read_jsonl, split_sentences

from ..run import one_line_errors, read_flags


@dataclass
class Options:
    """The command line."""

    folders: tyro.conf.Positional[tuple[Path, ...]]  # one per seed, NAME_SEED, with RUN-SEED.SYSTEM.jsonl
    systems: tuple[str, str]  # RUN.SYSTEM and RUN.SYSTEM, without the seed


def read_predictions(folder: Path, system: str) -> list[dict]:
    """What evaluate wrote of a system with the folder's seed, by rising id; ValueError: it is not there, or another."""
    run, _, mode = system.partition(".")
    path = folder / f"{run}-{folder.name.rpartition('_')[2]}.{mode}.jsonl"
    if not path.is_file():
        raise ValueError(f"no file {path}: give folders of evaluate --predictions, called NAME_SEED, and RUN.SYSTEM")
    rows = read_jsonl(path)
    if not rows or not all(isinstance(row.get(field), str) for row in rows for field in ("prediction", "reference")):
        raise ValueError(f"{path} is not what evaluate --predictions writes")
    return sorted(rows, key=lambda row: str(row.get("id")))


def scores(rows: Sequence[dict]) -> np.ndarray:
    """ROUGE-1 of each document."""
    texts = [split_sentences(row["prediction"]) for row in rows]
    return rouge.score(texts, [[split_sentences(row["reference"])] for row in rows])["rouge1"]


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.difference", description=__doc__)
    if not options.folders:
        raise ValueError("give at least one folder of predictions")
    systems = [[read_predictions(folder, system) for folder in options.folders] for system in options.systems]
    if len({str([(row.get("id"), row["reference"]) for row in rows]) for runs in systems for rows in runs}) > 1:
        raise ValueError("the predictions are not of the same documents: give all the same --data, --split and --limit")
    one, other = (np.array([scores(rows) for rows in runs]) for runs in systems)  # (seeds, n)
    row = {"": " minus ".join(options.systems), "ROUGE-1": rouge.difference(one.mean(0), other.mean(0))}
    print(rouge.table([row | {"by seed": ", ".join(f"{gap:+.1f}" for gap in (one - other).mean(1))}]))


if __name__ == "__main__":
    main()
