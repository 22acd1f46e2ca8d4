"""What summaries repeat and invent (Figures 2 and 3), BERTScore and MoverScore (Table 2).

BERTScore needs the package `bert-score`, MoverScore `POT`; both take any encoder that transformers loads.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

import torch

LENGTHS = (1, 2, 3, 4, 5)  # n-grams of Figure 2
NOVEL = (1, 2, 3, 4)  # n-grams of Figure 3


def split_words(text: str) -> list[str]:
    """Lower-cased words: runs of letters and digits; other signs do not count."""
    return re.findall(r"[^\W_]+", text.lower())


def ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """All n-grams in order; none when there are fewer than n words."""
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def repetition_ratio(words: Sequence[str], n: int) -> float:
    """Duplicate n-grams / n-grams (Figure 2), 0-1. A text without n-grams repeats nothing: 0."""
    # D11: every occurrence after the first is a duplicate.
    grams = ngrams(words, n)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def novel_share(words: Sequence[str], source: Sequence[str], n: int) -> float:
    """Share of the n-grams, 0-1, that do not stand in the source (Figure 3, Section 4.4); without n-grams 0."""
    grams, known = ngrams(words, n), set(ngrams(source, n))
    return sum(gram not in known for gram in grams) / len(grams) if grams else 0.0


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
    from transformers import AutoConfig

    layer = layer or AutoConfig.from_pretrained(folder).num_hidden_layers
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
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).to(device).eval()
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
