"""What summaries repeat and invent (Figures 2 and 3), BERTScore and MoverScore (Table 2).

The counts need nothing but Python. BERTScore needs the package `bert-score`, MoverScore `POT`; both take the folder of
any encoder that transformers loads.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

LENGTHS = (1, 2, 3, 4, 5)  # n-grams of Figure 2
NOVEL = (1, 2, 3, 4)  # n-grams of Figure 3


def split_words(text: str) -> list[str]:
    """Lower-cased words: runs of letters and digits; other signs do not count."""
    return re.findall(r"[^\W_]+", text.lower())


def ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    """All n-grams in order; none when there are fewer than n words.

    Raises:
        ValueError: n < 1.
    """
    if n < 1:
        raise ValueError(f"n is {n}; an n-gram has at least 1 word")
    return [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]


def repetition_ratio(words: Sequence[str], n: int) -> float:
    """Duplicate n-grams / n-grams (Figure 2), 0-1. A text without n-grams repeats nothing: 0."""
    # D11: every occurrence after the first is a duplicate.
    found = ngrams(words, n)
    return 1 - len(set(found)) / len(found) if found else 0.0


def novel_share(words: Sequence[str], source: Sequence[str], n: int) -> float:
    """Share of the n-grams, 0-1, that do not stand in the source (Figure 3, Section 4.4); without n-grams 0."""
    found, known = ngrams(words, n), set(ngrams(source, n))
    return sum(gram not in known for gram in found) / len(found) if found else 0.0


# Table 2


def bertscore(
    predictions: Sequence[str], references: Sequence[str], folder: str, layers: int = 0, device: str = "cpu"
) -> list[float]:
    """BERTScore F1 x 100 of each prediction (Zhang et al. 2019), by the package bert-score.

    Args:
        folder: an encoder of transformers. The paper's is roberta-large, layer 17.
        layers: which layer's states are compared; 0 = the last.
    Raises:
        ImportError: bert-score is absent.
        ValueError: numbers of predictions and references differ, or a tokenizer without a longest input.
    """
    check_pairs(predictions, references)
    try:
        from bert_score import score
    except ImportError as error:
        raise ImportError("--bertscore needs a package: pip install bert-score") from error
    from transformers import AutoConfig

    layers = layers or AutoConfig.from_pretrained(folder).num_hidden_layers
    try:
        _, _, f1 = score(list(predictions), list(references), model_type=str(folder), num_layers=layers, device=device)
    except OverflowError as error:
        remedy = 'set "model_max_length" in its tokenizer_config.json'
        raise ValueError(f"the tokenizer of {folder} does not say how much its model can read: {remedy}") from error
    return [100 * value for value in f1.tolist()]


def moverscore(
    predictions: Sequence[str], references: Sequence[str], folder: str, n: int = 1, device: str = "cpu"
) -> list[float]:
    """MoverScore x 100 of each prediction: 1 - Earth Mover's Distance of n-gram states (Zhao et al. 2019).

    An n-gram's state is the idf-weighted mean of its tokens' unit-length states, its mass the sum of their idf; the
    distance is Euclidean. D13: the idf is of the references, so that equal texts score 100.

    Args:
        folder: an encoder of transformers.
        n: 1 or 2.
    Raises:
        ImportError: POT is absent.
        ValueError: numbers of predictions and references differ.
    """
    check_pairs(predictions, references)
    try:
        import ot
    except ImportError as error:
        raise ImportError("--moverscore needs a package: pip install POT") from error
    encoded = [encode(texts, folder, device) for texts in (predictions, references)]
    weigh = inverse_frequencies(encoded[1][0])
    sides = [[ngram_states(state, weigh(tokens), n) for tokens, state in zip(*side, strict=True)] for side in encoded]
    scores = []
    for (mass, states), (other_mass, others) in zip(*sides, strict=True):
        is_empty = not len(mass) or not len(other_mass)
        distance = (states.unsqueeze(1) - others).norm(dim=-1)  # (W, W')
        cost = 1.0 if is_empty else float(ot.emd2(mass.numpy(), other_mass.numpy(), distance.numpy()))
        scores.append(100 * (1 - cost))
    return scores


def check_pairs(predictions: Sequence[str], references: Sequence[str]) -> None:
    """Raise ValueError unless there is one reference for each prediction."""
    if not predictions or len(predictions) != len(references):
        raise ValueError(f"need as many predictions as references, got {len(predictions)} and {len(references)}")


def encode(texts: Sequence[str], folder: str, device: str = "cpu", batch_size: int = 32) -> tuple[list, list]:
    """Token ids of each text without special tokens, and their states (S, D): the mean of the last five layers."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).to(device).eval()
    longest = min(tokenizer.model_max_length, model.config.max_position_embeddings)
    tokens, states = [], []
    for start in range(0, len(texts), batch_size):
        batch = tokenizer(
            list(texts[start : start + batch_size]), padding=True, truncation=True, max_length=longest,
            return_tensors="pt", return_special_tokens_mask=True,
        )  # fmt: skip
        is_text = batch.pop("special_tokens_mask") == 0  # False also at padding
        with torch.inference_mode():
            layers = model(**batch.to(device), output_hidden_states=True).hidden_states[-5:]
        mean = torch.stack(layers).mean(0).cpu().float()  # (B, S, D)
        for row, ids, keep in zip(mean, batch["input_ids"].cpu(), is_text, strict=True):
            tokens.append(ids[keep].tolist())
            states.append(torch.nn.functional.normalize(row[keep], dim=-1))
    return tokens, states


def inverse_frequencies(texts: Sequence[Sequence[int]]) -> Callable[[Sequence[int]], list[float]]:
    """tokens -> log((1 + texts) / (1 + texts with the token)) of each, and a little more, so that no mass is 0."""
    counts = Counter(token for tokens in texts for token in set(tokens))
    return lambda tokens: [math.log((1 + len(texts)) / (1 + counts[token])) + 1e-3 for token in tokens]


def ngram_states(states, weights: Sequence[float], n: int) -> tuple:
    """Masses (W,) that sum to 1, float64, and states (W, D) of the n-grams of one text; a shorter text is one n-gram.

    Args:
        states: (S, D) tensor.
        weights: (S,) of the tokens, positive.
    """
    weights = states.new_tensor(weights).double()
    n = min(n, len(states)) or 1
    if not len(states):
        return weights, states.double()
    masses = weights.unfold(0, n, 1)  # (W, n)
    windows = states.double().unfold(0, n, 1)  # (W, D, n)
    total = masses.sum(-1, keepdim=True)  # (W, 1)
    return total.squeeze(-1) / total.sum(), (windows * masses.unsqueeze(1)).sum(-1) / total
