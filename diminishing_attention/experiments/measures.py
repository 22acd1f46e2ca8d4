"""Table 2: add BERTScore and MoverScore to the outputs that evaluate.py wrote.

python -m diminishing_attention.evaluate runs/pg runs/pg-dim --predictions out
python -m diminishing_attention.experiments.measures out/pg.jsonl out/pg-dim.jsonl --encoder FOLDER --out scored
python -m shared.score scored/*.jsonl

The encoder is any of transformers; the paper has roberta-large (layer 17) for BERTScore, and BERT for MoverScore.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro

from shared.data import open_output, read_jsonl, write_jsonl
from shared.run import one_line_errors, read_flags

from ..bertsum.bert_text import load_pretrained


@dataclass
class Options:
    """The command line."""

    files: tyro.conf.Positional[tuple[Path, ...]]  # JSON lines of evaluate.
    encoder: str  # Encoder of transformers, name or folder.
    out: Path  # Folder for the files with the new measures.
    layer: int = 0  # Layer that BERTScore reads; 0 = the last (the paper: 17).
    overwrite: bool = False  # Replace those files.
    device: str = "cpu"  # Device of torch.


def bertscore(predictions: Sequence[str], references: Sequence[str], folder: str, layer=0, device="cpu") -> list[float]:
    """BERTScore F1 x 100 of each prediction (Zhang et al. 2019), by the package bert-score; layer 0 is the last."""
    from bert_score import score

    layer = layer or load_pretrained("AutoConfig", folder).num_hidden_layers
    _, _, f1 = score(list(predictions), list(references), model_type=str(folder), num_layers=layer, device=device)
    return [100 * value for value in f1.tolist()]


def moverscore(predictions: Sequence[str], references: Sequence[str], folder: str, n=1, device="cpu") -> list[float]:
    """MoverScore x 100 of each prediction: 1 - Earth Mover's Distance of n-gram states (Zhao et al. 2019).

    D13: the idf is of the references for both texts, so that equal texts score 100.
    """
    import ot

    outputs, targets = encode(predictions, folder, device), encode(references, folder, device)
    counts = Counter(token for tokens, _ in targets for token in set(tokens))
    idf = {token: math.log((1 + len(targets)) / (1 + count)) for token, count in counts.items()}
    unseen, scores = math.log(1 + len(targets)), []

    def weigh(tokens: list[int], states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return ngram_states(states, [idf.get(token, unseen) + 1e-3 for token in tokens], n)  # no mass is 0

    for output, target in zip(outputs, targets, strict=True):
        (mass, points), (other_mass, others) = weigh(*output), weigh(*target)
        distance = (points.unsqueeze(1) - others).norm(dim=-1).numpy()  # (W, W')
        cost = float(ot.emd2(mass.numpy(), other_mass.numpy(), distance)) if distance.size else 1.0
        scores.append(100 * (1 - cost))
    return scores


@torch.inference_mode()
def encode(texts: Sequence[str], folder: str, device: str = "cpu") -> list[tuple]:
    """Token ids of each text without special tokens, and their states (S, D), of unit length.

    D13: a state is the mean of the last five layers.
    """
    tokenizer, model = load_pretrained("AutoTokenizer", folder), load_pretrained("AutoModel", folder).to(device).eval()
    longest, encoded = min(tokenizer.model_max_length, model.config.max_position_embeddings), []
    for text in texts:
        options = dict(max_length=longest, return_tensors="pt", return_special_tokens_mask=True)
        batch = tokenizer(text, truncation=True, **options).to(device)
        is_text = batch.pop("special_tokens_mask")[0] == 0
        layers = model(**batch, output_hidden_states=True).hidden_states[-5:]
        states = torch.stack(layers).mean(0)[0, is_text].cpu().double()
        encoded.append((batch["input_ids"][0, is_text].tolist(), torch.nn.functional.normalize(states, dim=-1)))
    return encoded


def ngram_states(states: torch.Tensor, weights: Sequence[float], n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Masses (W,), sums of the weights scaled to 1, and states (W, D), weighted means, of the n-grams of a text.

    Args:
        states: (S, D) of the tokens; fewer than n are one n-gram.
        weights: (S,) of the tokens, positive.
    """
    weights, n = states.new_tensor(weights), min(n, len(states)) or 1
    if not len(states):
        return weights, states
    masses, windows = weights.unfold(0, n, 1), states.unfold(0, n, 1)  # (W, n), (W, D, n)
    total = masses.sum(-1)  # (W,)
    return total / total.sum(), torch.einsum("wdn,wn->wd", windows, masses) / total.unsqueeze(-1)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    for path in options.files:
        rows = read_jsonl(path)
        texts = [row["prediction"] for row in rows], [" ".join(row["references"][0]) for row in rows]
        with open_output(options.out / path.name, options.overwrite) as file:
            columns = {"bertscore": bertscore(*texts, options.encoder, options.layer, options.device)}
            for n in (1, 2):
                columns[f"moverscore{n}"] = moverscore(*texts, options.encoder, n, options.device)
            values = [dict(zip(columns, of_row, strict=True)) for of_row in zip(*columns.values(), strict=True)]
            write_jsonl(file, (row | more for row, more in zip(rows, values, strict=True)))


if __name__ == "__main__":
    main()
