"""Table 2: add BERTScore and MoverScore to the outputs that predict.py wrote.

python -m diminishing_attention.predict runs/pg --data toy --split test --out out/pg.jsonl
python -m diminishing_attention.experiments.measures out/pg.jsonl out/pg-dim.jsonl --encoder FOLDER
    --out scored
python -m shared.score scored/*.jsonl

The encoder is any of transformers for BERTScore (the paper: roberta-large, layer 17), a BERT for
MoverScore.
"""

import math
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import tyro
from torch import Tensor
from torch.nn.functional import normalize

from shared import pretrained
from shared.data import open_output, read_jsonl, write_jsonl
from shared.run import one_line_errors, read_flags

load = cache(pretrained.load)  # each model once


@dataclass
class Options:
    """The command line."""

    files: tyro.conf.Positional[tuple[Path, ...]]  # JSON lines of predict.
    encoder: str  # Encoder of transformers, name or folder.
    out: Path  # Folder for the files with the new measures.
    layer: int = 0  # Layer that BERTScore reads; 0 = the last (the paper: 17).
    overwrite: bool = False  # Replace those files.


@cache
def scorer(folder: str, layer: int):
    """BERTScore by the package bert-score; layer 0 is the last."""
    from bert_score import BERTScorer

    layer = layer or load("encoder", folder)[0].config.num_hidden_layers
    return BERTScorer(model_type=folder, num_layers=layer, device="cpu")


def bertscore(
    predictions: Sequence[str], references: Sequence[str], folder: str, layer: int = 0
) -> list[float]:
    """BERTScore F1 x 100 of each prediction (Zhang et al. 2019); 0 where a text is empty, as the
    package means it.
    """
    pairs = list(zip(predictions, references, strict=True))
    # it fails on others
    whole = [i for i, pair in enumerate(pairs) if all(text.strip() for text in pair)]
    values = [0.0] * len(pairs)
    if whole:
        _, _, f1 = scorer(folder, layer).score(
            *map(list, zip(*(pairs[i] for i in whole), strict=True))
        )
        for i, value in zip(whole, f1.tolist(), strict=True):
            values[i] = 100 * value
    return values


class Text:
    """A text as MoverScore sees it: which tokens count, their idf weights, and their states."""

    def __init__(self, ids: list[int], names: list[str], states: Tensor):
        # The marks and the later pieces of a word do not count; [CLS] and [SEP] stay, with an idf
        # of 0.
        counts = [name not in set(string.punctuation) and "##" not in name for name in names]
        self.every, self.ids = set(ids), [i for i, kept in zip(ids, counts, strict=True) if kept]
        self.states = states[torch.tensor(counts)]  # (S, 3D)

    def ngrams(self, idf: dict[int, float], unseen: float, n: int) -> tuple[Tensor, Tensor]:
        """Masses (W,) that sum to 1, or to 0, and unit vectors (W, 3D) of the n-grams; a shorter
        text is one.
        """
        weights = torch.tensor([idf.get(i, unseen) for i in self.ids], dtype=torch.double)
        n = min(n, len(weights))
        masses, windows = weights.unfold(0, n, 1), self.states.unfold(0, n, 1)  # (W, n), (W, 3D, n)
        total = masses.sum(-1)  # (W,)
        means = torch.einsum("wdn,wn->wd", windows, masses / (total.unsqueeze(-1) + 1e-5))
        return total / (total.sum() or 1.0), normalize(means, dim=-1)


def moverscore(
    predictions: Sequence[str], references: Sequence[str], folder: str, n: int = 1
) -> list[float]:
    """MoverScore x 100 of each prediction: 1 - Earth Mover's Distance of idf-weighted n-grams (Zhao
    et al. 2019).

    D13: the formulas of the authors' code, on any BERT; a text without a mass is as far away as any
    n-gram can be.
    """
    import ot

    model, tokenizer = load("bert", folder)
    sides = [
        [read(text, model, tokenizer) for text in texts] for texts in (predictions, references)
    ]
    idfs, unseen, scores = (
        [inverse_frequencies(side) for side in sides],
        math.log(len(references) + 1),
        [],
    )
    for both in zip(*sides, strict=True):
        (mass, points), (other_mass, others) = (
            t.ngrams(idf, unseen, n) for t, idf in zip(both, idfs, strict=True)
        )
        # D13: the squared distance
        distance = (points.unsqueeze(1) - others).square().sum(-1)  # (W, W')
        if mass.any() and other_mass.any():
            cost = ot.emd2(mass.numpy(), other_mass.numpy(), distance.numpy())
        else:
            cost = float(distance.max())
        scores.append(100 * (1 - float(cost)))
    return scores


def inverse_frequencies(texts: Sequence[Text]) -> dict[int, float]:
    """log((N + 1) / (count + 1)) of each token, by the number of texts that have it."""
    counts = Counter(token for text in texts for token in text.every)
    return {token: math.log((len(texts) + 1) / (count + 1)) for token, count in counts.items()}


@torch.inference_mode()
def read(text: str, model: torch.nn.Module, tokenizer) -> Text:
    """The text with its states: D13: least, mean and largest value of the last five layers, each of
    unit length.
    """
    longest = min(tokenizer.model_max_length, model.config.max_position_embeddings)
    batch = tokenizer(text, max_length=longest, truncation=True, return_tensors="pt")
    # (5, S, D)
    layers = torch.stack(model(**batch, output_hidden_states=True).hidden_states[-5:])[
        :, 0
    ].double()
    layers = normalize(layers, dim=-1)
    states = torch.cat([layers.amin(0), layers.mean(0), layers.amax(0)], -1)
    ids = batch["input_ids"][0].tolist()
    return Text(ids, tokenizer.convert_ids_to_tokens(ids), states)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    for path in options.files:
        rows = read_jsonl(path)
        if lacking := [row for row in rows if not row.get("references")]:
            raise ValueError(f"{path}: document {lacking[0].get('id')} has no reference")
        texts = (
            [row["prediction"] for row in rows],
            [" ".join(row["references"][0]) for row in rows],
        )
        with open_output(options.out / path.name, options.overwrite) as file:
            columns = {"bertscore": bertscore(*texts, options.encoder, options.layer)}
            columns |= {f"moverscore{n}": moverscore(*texts, options.encoder, n) for n in (1, 2)}
            values = [
                dict(zip(columns, of_row, strict=True))
                for of_row in zip(*columns.values(), strict=True)
            ]
            write_jsonl(file, (row | more for row, more in zip(rows, values, strict=True)))


if __name__ == "__main__":
    main()
