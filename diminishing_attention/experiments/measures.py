"""Table 2: what evaluate.py says, and BERTScore and MoverScore of the same outputs.

python -m diminishing_attention.experiments.measures runs/pg runs/pg-dim --bertscore FOLDER --moverscore FOLDER

BERTScore needs the package `bert-score`, MoverScore `POT`; both take any encoder that transformers loads.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
import tyro

from .. import evaluate
from ..bertsum.bert_text import load_pretrained
from ..run import one_line_errors, read_flags


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass(kw_only=True)
class Options(evaluate.Options):
    """The command line."""

    bertscore: str = ""  # encoder of transformers, for bert-score (the paper: roberta-large)
    bertscore_layer: int = 0  # layer of it; 0 = the last (the paper: 17)
    moverscore: str = ""  # encoder of transformers, for MoverScore


def bertscore(predictions: Sequence[str], references: Sequence[str], folder: str, layer=0, device="cpu") -> list[float]:
    """BERTScore F1 x 100 of each prediction (Zhang et al. 2019), by the package bert-score.

    Args:
        folder: an encoder of transformers. The paper's is roberta-large, layer 17.
        layer: whose states are compared; 0 = the last.
    Raises:
        ImportError: bert-score is absent.
        ValueError: a tokenizer without a longest input.
    """
    try:
        from bert_score import score
    except ImportError as error:
        raise ImportError("--bertscore needs a package: pip install bert-score") from error
    config = load_pretrained("AutoConfig", folder)  # also where the layer is given: it refuses a folder with code
    layer = layer or config.num_hidden_layers
    try:
        _, _, f1 = score(list(predictions), list(references), model_type=str(folder), num_layers=layer, device=device)
    except OverflowError as error:
        remedy = 'set "model_max_length" in its tokenizer_config.json'
        raise ValueError(f"the tokenizer of {folder} does not say how much its model can read: {remedy}") from error
    return [100 * value for value in f1.tolist()]


def moverscore(predictions: Sequence[str], references: Sequence[str], folder: str, n=1, device="cpu") -> list[float]:
    """MoverScore x 100 of each prediction: 1 - Earth Mover's Distance of n-gram states (Zhao et al. 2019).

    D13: the idf is of the references for both texts, so that equal texts score 100.

    Args:
        folder: an encoder of transformers.
        n: 1 or 2.
    Raises:
        ImportError: POT is absent.
    """
    try:
        import ot
    except ImportError as error:
        raise ImportError("--moverscore needs a package: pip install POT") from error
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


def chosen(options: Options) -> dict[str, evaluate.Measure]:
    """The measures that were asked for, by the names of their columns."""
    measures: dict[str, evaluate.Measure] = {}
    if options.bertscore:
        rest = dict(folder=options.bertscore, layer=options.bertscore_layer, device=options.device)
        measures["bertscore"] = partial(bertscore, **rest)
    for n in (1, 2) if options.moverscore else ():
        measures[f"moverscore{n}"] = partial(moverscore, folder=options.moverscore, n=n, device=options.device)
    return measures


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.measures", description=__doc__)
    if not (measures := chosen(options)):
        raise ValueError("give --bertscore FOLDER, --moverscore FOLDER or both: evaluate has all the rest")
    for measure in measures.values():
        measure(["What cannot be used"], ["is said before hours of decoding."])
    evaluate.run_options(options, measures)


if __name__ == "__main__":
    main()
