"""Table 2: add BERTScore and MoverScore to the outputs that predict.py wrote.

python -m diminishing_attention.predict runs/pg --data toy --split test --out out/pg.jsonl
python -m diminishing_attention.experiments.measures out/*.jsonl --encoder FOLDER --out scored
python -m shared.score scored/*.jsonl

The encoder is any of transformers for BERTScore (the paper: roberta-large, layer 17), a BERT for
MoverScore. Of several references the one with the best value counts, as in ROUGE.
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
from shared.data import open_output, write_jsonl
from shared.run import one_line_errors, read_flags
from shared.score import rows_of

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
    predictions: Sequence[str], references: Sequence[Sequence[str]], folder: str, layer: int = 0
) -> list[float]:
    """BERTScore F1 x 100 of each prediction (Zhang et al. 2019), the best of its references.

    0 where a text is empty, as the package means it.
    ValueError: the package cannot read this encoder.
    """
    values = [0.0] * len(predictions)
    places, candidates, others = [], [], []  # the package fails on texts without a word
    for place, (prediction, several) in enumerate(zip(predictions, references, strict=True)):
        for reference in several:
            if prediction.strip() and reference.strip():
                places.append(place)
                candidates.append(prediction)
                others.append(reference)
    if not places:
        return values
    try:
        _, _, f1 = scorer(folder, layer).score(candidates, others)
    except Exception as error:  # of torch, transformers and the package itself
        raise ValueError(f"bert-score cannot use {folder}: {error}") from None
    for place, value in zip(places, f1.tolist(), strict=True):
        values[place] = max(values[place], 100 * value)
    return values


class Text:
    """A text as MoverScore sees it: which tokens count, their idf weights, and their states."""

    def __init__(self, ids: list[int], names: list[str], states: Tensor):
        marks = set(string.punctuation)
        # Marks and later pieces of a word do not count; [CLS] and [SEP] stay, with an idf of 0.
        counts = [name not in marks and "##" not in name for name in names]
        self.every = set(ids)
        self.ids = [i for i, is_kept in zip(ids, counts, strict=True) if is_kept]
        self.states = states[torch.tensor(counts)]  # (S, 3D)

    def ngrams(self, idf: dict[int, float], n: int) -> tuple[Tensor, Tensor]:
        """Masses (W,), whose sum is 1 or 0, and unit vectors (W, 3D) of the n-grams.

        A shorter text is one n-gram.
        """
        weights = torch.tensor([idf[i] for i in self.ids], dtype=torch.double)
        n = min(n, len(weights))
        masses, windows = weights.unfold(0, n, 1), self.states.unfold(0, n, 1)  # (W, n), (W, 3D, n)
        total = masses.sum(-1)  # (W,)
        means = torch.einsum("wdn,wn->wd", windows, masses / (total.unsqueeze(-1) + 1e-5))
        return total / (total.sum() or 1.0), normalize(means, dim=-1)


def moverscore(
    predictions: Sequence[str], references: Sequence[Sequence[str]], folder: str, n: int = 1
) -> list[float]:
    """MoverScore x 100 of each prediction (Zhao et al. 2019), the best of its references.

    1 - Earth Mover's Distance of idf-weighted n-grams. D13: the formulas of the authors' code, on
    any BERT; a text without a mass has 0.
    ValueError: too few different texts for idf.
    """
    model, tokenizer = load("bert", folder)
    texts = [read(text, model, tokenizer) for text in predictions]
    others = [[read(text, model, tokenizer) for text in several] for several in references]
    idf = inverse_frequencies(texts, "predictions")
    other_idf = inverse_frequencies([text for several in others for text in several], "references")
    scores = []
    for text, several in zip(texts, others, strict=True):
        sides = [(text.ngrams(idf, n), other.ngrams(other_idf, n)) for other in several]
        scores.append(max(100 * similarity(*both) for both in sides))
    return scores


def similarity(one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> float:
    """1 - the cheapest transport of one text's mass to the other's points; 0 without a mass."""
    import ot

    (mass, points), (other_mass, other_points) = one, other
    if not (mass.any() and other_mass.any()):
        return 0.0
    # D13: the squared distance
    distance = (points.unsqueeze(1) - other_points).square().sum(-1)  # (W, W')
    return 1 - float(ot.emd2(mass.numpy(), other_mass.numpy(), distance.numpy()))


def inverse_frequencies(texts: Sequence[Text], name: str) -> dict[int, float]:
    """log((N + 1) / (count + 1)) of each token, by the number of texts that have it.

    ValueError: every token is in every text, so that none would count.
    """
    counts = Counter(token for text in texts for token in text.every)
    idf = {token: math.log((len(texts) + 1) / (count + 1)) for token, count in counts.items()}
    if not any(idf.values()):
        raise ValueError(
            f"MoverScore counts a token by how few texts have it: give {name} of several "
            f"documents, not all alike"
        )
    return idf


@torch.inference_mode()
def read(text: str, model: torch.nn.Module, tokenizer) -> Text:
    """The text with its states.

    D13: least, mean and largest value of the last five layers, each of unit length.
    """
    longest = min(tokenizer.model_max_length, model.config.max_position_embeddings)
    batch = tokenizer(text, max_length=longest, truncation=True, return_tensors="pt")
    every = model(**batch, output_hidden_states=True).hidden_states
    layers = torch.cat(every[-5:]).double()  # (5, S, D)
    layers = normalize(layers, dim=-1)
    states = torch.cat([layers.amin(0), layers.mean(0), layers.amax(0)], -1)
    ids = batch["input_ids"][0].tolist()
    return Text(ids, tokenizer.convert_ids_to_tokens(ids), states)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    for path in options.files:
        rows = rows_of(path)
        lacking = [row["id"] for row in rows if not row["references"]]
        if lacking:
            raise ValueError(f"{path}: document {lacking[0]} has no reference")
        predictions = [joined(row["prediction"]) for row in rows]
        references = [[joined(text) for text in row["references"]] for row in rows]
        texts = predictions, references, options.encoder
        with open_output(options.out / path.name, options.overwrite) as file:
            by_bert = bertscore(*texts, options.layer)
            by_word = moverscore(*texts, 1)
            by_pair = moverscore(*texts, 2)
            for row, *values in zip(rows, by_bert, by_word, by_pair, strict=True):
                names = ("bertscore", "moverscore1", "moverscore2")
                write_jsonl(file, [row | dict(zip(names, values, strict=True))])


def joined(text: str | Sequence[str]) -> str:
    """A text as one string."""
    return text if isinstance(text, str) else " ".join(text)


if __name__ == "__main__":
    main()
