"""The paper once more, slowly: float64 loops, one sentence at a time, without padding or masks.

Written from the paper's equations and from what the released code does, not from the package.
Weights come as a dictionary of arrays under the model's parameter names (`numpy_weights`).
"""

import math

import numpy as np


def numpy_weights(model) -> dict[str, np.ndarray]:
    return {name: tensor.detach().double().numpy() for name, tensor in model.state_dict().items()}


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - np.max(logits))
    return powers / powers.sum()


# Eq. 1-3: attention, encoder, decoder


def linear(w: dict, name: str, x: np.ndarray) -> np.ndarray:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def multi_head(
    w: dict, name: str, x: np.ndarray, memory: np.ndarray, heads: int, causal: bool = False
) -> np.ndarray:
    """Eq. (1) per head on its slice of the width; `causal`: query j sees memory 0..j only."""
    queries, keys = linear(w, f"{name}.query", x), linear(w, f"{name}.key", memory)
    values = linear(w, f"{name}.value", memory)
    size = x.shape[1] // heads
    joined = np.zeros((len(x), x.shape[1]))
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for j in range(len(x)):
            seen = range(j + 1) if causal else range(len(memory))
            logits = [queries[j, part] @ keys[i, part] / math.sqrt(size) for i in seen]
            weights = softmax(np.array(logits))
            joined[j, part] = sum(a * values[i, part] for a, i in zip(weights, seen, strict=True))
    return linear(w, f"{name}.output", joined)


def layer_norm(w: dict, name: str, x: np.ndarray) -> np.ndarray:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def feed_forward(w: dict, name: str, x: np.ndarray) -> np.ndarray:
    return linear(w, f"{name}.2", np.maximum(linear(w, f"{name}.0", x), 0))


def position(index: int, width: int) -> np.ndarray:
    """Sines of all rates, then cosines of all rates; rate k is 10000^(-2k / D)."""
    angles = [index / 10_000 ** (2 * k / width) for k in range(width // 2)]
    return np.array([math.sin(a) for a in angles] + [math.cos(a) for a in angles])


def embed(w: dict, tokens: list[int]) -> np.ndarray:
    table = w["embedding.weight"]
    width = table.shape[1]
    rows = [table[t] * math.sqrt(width) + position(i, width) for i, t in enumerate(tokens)]
    return np.array(rows)


def encoder_layer(w: dict, layer: int, x: np.ndarray, heads: int) -> np.ndarray:
    name = f"encoder.{layer}"
    x = layer_norm(w, f"{name}.norms.0", x + multi_head(w, f"{name}.attention", x, x, heads))
    return layer_norm(w, f"{name}.norms.1", x + feed_forward(w, f"{name}.feed_forward", x))


def encode(w: dict, tokens: list[int], layers: int, heads: int) -> np.ndarray:
    """Eq. (2)."""
    x = embed(w, tokens)
    for layer in range(layers):
        x = encoder_layer(w, layer, x, heads)
    return x


def decode(w: dict, tokens: list[int], memory: np.ndarray, layers: int, heads: int) -> np.ndarray:
    """Eq. (3), and the logits by the tied embeddings: (T, V)."""
    y = embed(w, tokens)
    for name in (f"decoder.{layer}" for layer in range(layers)):
        attended = multi_head(w, f"{name}.self_attention", y, y, heads, causal=True)
        y = layer_norm(w, f"{name}.norms.0", y + attended)
        attended = multi_head(w, f"{name}.cross_attention", y, memory, heads)
        y = layer_norm(w, f"{name}.norms.1", y + attended)
        y = layer_norm(w, f"{name}.norms.2", y + feed_forward(w, f"{name}.feed_forward", y))
    return y @ w["embedding.weight"].T


# Eq. 4-13: the gates


def hard_concrete(
    uniform: float, log_alpha: float, beta: float = 2 / 3, epsilon: float = 0.1
) -> float:
    """Eq. (6)-(8) for given noise: BinaryConcrete sample, stretch, hard sigmoid."""
    s = sigmoid((math.log(uniform) - math.log(1 - uniform) + log_alpha) / beta)
    stretched = s * (1 + 2 * epsilon) - epsilon
    return min(1.0, max(0.0, stretched))


def closed_probability(log_alpha: float, beta: float = 2 / 3, epsilon: float = 0.1) -> float:
    """p(g = 0), the line below Eq. (8)."""
    return sigmoid(beta * math.log(epsilon / (1 + epsilon)) - log_alpha)


def expected_open(log_alphas: list[float]) -> float:
    """Eq. (10)."""
    return sum(1 - closed_probability(log_alpha) for log_alpha in log_alphas)


def expected_gate(log_alpha: float, epsilon: float = 0.1) -> float:
    """Eq. (13)."""
    return min(1.0, max(0.0, sigmoid(log_alpha) * (1 + 2 * epsilon) - epsilon))


def algorithm1(
    states: np.ndarray,
    gates: list[float],
    query: np.ndarray,
    wq: np.ndarray,
    wk: np.ndarray,
    wv: np.ndarray,
) -> np.ndarray:
    """Algorithm 1 line by line for one sentence and one query; `states` are not yet gated."""
    kept = [i for i, g in enumerate(gates) if g != 0]  # line 1
    kept_gates, kept_states = [gates[i] for i in kept], [states[i] for i in kept]  # line 2
    count = len(gates) - len(kept)  # line 3
    gated = [x * g for x, g in zip(kept_states, kept_gates, strict=True)]
    memory = [np.zeros(states.shape[1]), *gated]  # line 4
    counts = [count] + [1] * len(kept)
    q, keys, values = query @ wq, [m @ wk for m in memory], [m @ wv for m in memory]  # line 5
    logits = [q @ k / math.sqrt(len(query)) for k in keys]  # line 6
    powers = [c * math.exp(e) for c, e in zip(counts, logits, strict=True)]  # line 7
    return sum(p / sum(powers) * v for p, v in zip(powers, values, strict=True))  # line 8


# Objective


def label_smoothed_loss(logits: np.ndarray, target: list[int], smoothing: float) -> float:
    """Mean over the target's tokens of the cross-entropy to the smoothed one-hot vectors."""
    total = 0.0
    for row, token in zip(logits, target, strict=True):
        log_p = np.log(softmax(row))
        for word in range(len(row)):
            share = smoothing / len(row) + (1 - smoothing) * (word == token)
            total -= share * log_p[word]
    return total / len(target)


# Search


def beam_search(
    next_log_probabilities,
    beam: int,
    limit: int,
    alpha: float,
    eos: int,
    forbidden: list[int],
    min_length: int = 0,
) -> tuple[list[int], float]:
    """Beam search of one sentence, hypotheses as lists, without early stopping.

    As released (D7): an end counts among the 2W best continuations alone, and never first.

    Args:
        next_log_probabilities: list of prefixes -> list of rows of V log-probabilities.
        limit: longest output with eos.
    Returns:
        best finished hypothesis with eos, and its normalised score.
    """
    going, finished = [([], 0.0)], []
    for length in range(1, limit + 1):
        candidates = []
        rows = next_log_probabilities([prefix for prefix, _ in going])
        for (prefix, score), row in zip(going, rows, strict=True):
            for token, log_probability in enumerate(row):
                if token not in forbidden and (token != eos or length >= max(min_length, 2)):
                    candidates.append((prefix + [token], score + log_probability))
        candidates.sort(key=lambda candidate: -candidate[1])
        if length == limit:  # nothing but the end can come
            candidates = [candidate for candidate in candidates if candidate[0][-1] == eos]
        best = candidates[: 2 * beam]
        norm = ((5 + length) / 6) ** alpha
        finished += [(tokens, score / norm) for tokens, score in best if tokens[-1] == eos]
        going = [candidate for candidate in best if candidate[0][-1] != eos][:beam]
    return max(finished, key=lambda hypothesis: hypothesis[1])
