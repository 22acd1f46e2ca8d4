"""The paper's Table 1 for a corpus, and the parameters of its Tables 2 and 3.

python -m discourse_tree_attention.experiments.tables statistics DATA --split train
python -m discourse_tree_attention.experiments.tables parameters
"""

from typing import Literal

import numpy as np
import torch
import tyro

from shared import rouge
from shared.data import in_sentences

from ..loading import load
from ..model import ModelConfig, Summarizer, count_parameters
from ..selection import ORACLE_UNITS, oracle, required_units
from ..text import sentence_of_edus
from ..trees import leaves, read_dis

# Tables 2 and 3: model, attention, heads, ROUGE-1 of EDUs and of sentences, default sizes and balanced ones
MODELS = (
    ("Dot Product (8)", "dot", 8, (41.02, 41.82), (40.95, 41.45)),
    ("Dot Product (1)", "dot", 1, (40.92, 41.71), (40.64, 41.51)),
    ("Dense", "dense", 1, (40.70, 41.69), (40.87, 41.63)),
    ("Learned Random", "learned_random", 1, (40.24, 41.21), (40.32, 41.26)),
    ("Fixed Random", "fixed_random", 1, (40.36, 41.27), (40.18, 41.17)),
    ("no attention", "none", 1, (39.89, 40.97), (40.21, 41.25)),
    ("D-Tree", "d_tree", 1, (40.43, 41.44), (40.29, 41.31)),
    ("C-Tree", "c_tree", 1, (40.80, 41.64), (40.28, 41.68)),
    ("C-Tree w/Nuc", "c_tree_nuclearity", 1, (40.76, 41.64), (40.70, 41.64)),
)
BALANCED = {"head_width": 512, "feed_forward": 512}


def parameters() -> list[dict]:
    """Parameters of the attention and of the whole model in both settings, beside the paper's ROUGE-1."""
    rows = []
    for name, attention, heads, *rouge_1 in MODELS:
        row = {"model": name}
        for setting, sizes, values in zip(("", "balanced "), ({}, BALANCED), rouge_1, strict=True):
            with torch.device("meta"):
                model = Summarizer(ModelConfig(attention, heads=heads, **sizes))
            counts = [f"{count:,}" for count in count_parameters(model)]
            names = ("attention", "whole", "R-1 EDUs", "R-1 sentences")
            row |= {f"{setting}{name}": value for name, value in zip(names, (*counts, *values), strict=True)}
        rows.append(row)
    return rows


def statistics(data: str, split: str = "train") -> dict[str, float]:
    """Means over the documents: tokens, sentences, where there are trees EDUs; of both how many the oracle takes."""
    columns: dict[str, list[int]] = {}
    for example in in_sentences(load(data, split)):
        reference, sentences = " ".join(example.summary), example.document
        row = {"tokens": len(example.source.split()), "sentences": len(sentences)}
        row["sentences (oracle)"] = len(oracle(sentences, reference, [[] for _ in sentences], ORACLE_UNITS["sentence"]))
        if example.tree:
            tree = read_dis(example.tree, example.id)
            edus = [leaf.text for leaf in leaves(tree)]
            required = required_units(tree, sentence_of_edus(edus, sentences, example.id))
            row |= {"EDUs": len(edus), "EDUs (oracle)": len(oracle(edus, reference, required, ORACLE_UNITS["edu"]))}
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return {"documents": len(columns["tokens"])} | {name: float(np.mean(column)) for name, column in columns.items()}


def main(
    table: tyro.conf.Positional[Literal["statistics", "parameters"]], data: tyro.conf.Positional[str] = "toy",
    split: str = "train",
) -> None:  # fmt: skip
    """Print one of the tables; DATA is anything that shared.data.load takes."""
    print(rouge.table(parameters() if table == "parameters" else [statistics(data, split)]))
    if table == "statistics":
        print("the paper's rule (Section 5.1): --units-taken is what the oracle takes on average; CNN/DM: 6.4 and 3.1")


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
