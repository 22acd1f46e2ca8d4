"""The paper's Table 1 for a corpus: means of tokens, units, and units that the oracle takes.

python -m discourse_tree_attention.experiments.statistics DATA --split train
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tyro

from shared.data import Example, in_sentences
from shared.run import one_line_errors, read_flags

from ..loading import load
from ..selection import ORACLE_UNITS, oracle
from ..text import check_words, units_of


def statistics(example: Example) -> dict[str, int]:
    """A document's row; EDUs where it has a tree.

    Section 5.1: a summary has as many units as the oracle on average.
    """
    row = {"tokens": len(example.source.split())}
    names = {"sentence": "sentences", "edu": "EDUs"}
    for level in names if example.tree else ["sentence"]:
        document = units_of(example, level)
        picks = oracle(document.units, example.target, document.required, ORACLE_UNITS[level])
        row |= {names[level]: len(document), f"{names[level]} (oracle)": len(picks)}
    return row


@dataclass
class Options:
    """The command line."""

    data: tyro.conf.Positional[str]  # Anything that shared.data.load takes.
    split: str = "train"


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    examples = in_sentences(load(options.data, options.split))
    check_words(examples)
    rows = [statistics(example) for example in examples]
    print(f"documents {len(rows)}")
    for name in max(rows, key=len):
        print(f"{name} {np.mean([row[name] for row in rows if name in row]):.1f}")


if __name__ == "__main__":
    main()
