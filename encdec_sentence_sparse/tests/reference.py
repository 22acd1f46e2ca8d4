"""The paper's equations again: NumPy and Python loops, one query, one head, one word at a time."""

import numpy as np


def weights(module) -> dict[str, np.ndarray]:
    return {name: value.detach().double().numpy() for name, value in module.state_dict().items()}


def softmax(logits) -> np.ndarray:
    powers = [np.exp(x - max(logits)) for x in logits]
    return np.array([power / sum(powers) for power in powers])


def word_attention(query, keys) -> np.ndarray:
    """Eq. 2: (K,), (S, K) -> (S,)."""
    return softmax([query @ key / len(query) ** 0.5 for key in keys])


def saliency(query, keys, ids) -> np.ndarray:
    """Eq. 4, with exponentials and Z_m as printed: (N,)."""
    powers = [np.exp(query @ key / len(query) ** 0.5) for key in keys]
    sums = np.zeros(max(ids) + 1)
    for power, n in zip(powers, ids, strict=True):
        sums[n] += power
    return sums / sum(powers)


def top(scores, r) -> set[int]:
    """Eq. 6."""
    return set(sorted(range(len(scores)), key=lambda n: -scores[n])[:r])


def subset_attention(query, keys, values, ids, kept) -> np.ndarray:
    """Eq. 3: attention over the words of the kept sentences, as if there were no others."""
    chosen = [j for j, i in enumerate(ids) if i in kept]
    return word_attention(query, keys[chosen]) @ values[chosen]


def linear(vector, w, name) -> np.ndarray:
    return w[f"{name}.weight"] @ vector + w[f"{name}.bias"]


def heads(vector, number) -> list[np.ndarray]:
    return np.split(vector, number)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru_pass(words, w, suffix) -> list[np.ndarray]:
    """One direction of one layer of a GRU: the state after each word."""
    state, states = np.zeros(w[f"weight_hh_{suffix}"].shape[1]), []
    for word in words:
        own = np.split(w[f"weight_ih_{suffix}"] @ word + w[f"bias_ih_{suffix}"], 3)
        past = np.split(w[f"weight_hh_{suffix}"] @ state + w[f"bias_hh_{suffix}"], 3)
        reset, update = sigmoid(own[0] + past[0]), sigmoid(own[1] + past[1])
        state = (1 - update) * np.tanh(own[2] + reset * past[2]) + update * state
        states.append(state)
    return states


def gru_sentence(words, w) -> np.ndarray:
    """Eq. 10 on one sentence (J, D): the top layer's two end states, projected."""
    gru = {name.removeprefix("gru."): value for name, value in w.items() if name.startswith("gru.")}
    for layer in (0, 1):
        forward = gru_pass(words, gru, f"l{layer}")
        backward = gru_pass(words[::-1], gru, f"l{layer}_reverse")[::-1]
        words = [np.concatenate(pair) for pair in zip(forward, backward, strict=True)]
    return linear(np.concatenate([forward[-1], backward[0]]), w, "projection")


def approximate(asking, encoded, w, number) -> np.ndarray:
    """Eq. 7-9 for one query (D,) and the sentences (N, D): (H, N)."""
    queries = heads(linear(asking, w, "sentence_q"), number)
    keys = [heads(linear(vector, w, "sentence_k"), number) for vector in encoded]
    logits = [[q @ key[h] / len(q) ** 0.5 for key in keys] for h, q in enumerate(queries)]
    return np.array([softmax(row) for row in logits])


def layer(asking, states, ids, w, number, r, mode, encoded=None, phi=None) -> np.ndarray:
    """The output of an attention for one query (D,) over one document's states (S, D)."""
    queries = heads(linear(asking, w, "q_proj"), number)
    keys = np.stack([heads(linear(state, w, "k_proj"), number) for state in states], 1)  # (H, S, K)
    values = np.stack([heads(linear(state, w, "v_proj"), number) for state in states], 1)
    if mode == "ideal":
        scores = [saliency(q, own, ids) for q, own in zip(queries, keys, strict=True)]
    elif mode == "approx":
        scores = approximate(asking, encoded, w, number)
    elif mode == "model_free":
        pairs = zip(queries, keys, strict=True)
        scores = [model_free(q / len(q) ** 0.5, own, ids, phi) for q, own in pairs]
    kept = set(ids) if mode == "full" else top(np.mean(scores, 0), r)
    parts = zip(queries, keys, values, strict=True)
    context = [subset_attention(*part, ids, kept) for part in parts]
    return linear(np.concatenate(context), w, "out_proj")


def model_free(query, keys, ids, phi) -> np.ndarray:
    """Eq. 18: sum over words and dimensions of phi(q_d) phi(k_d), one at a time."""
    scores = np.zeros(max(ids) + 1)
    for key, n in zip(keys, ids, strict=True):
        for q, k in zip(query, key, strict=True):
            scores[n] += phi(q) * phi(k)
    return scores


def mean_key(query, keys, ids) -> np.ndarray:
    """Saliency if every word had the mean key of its sentence."""
    means = {
        n: np.mean([key for key, i in zip(keys, ids, strict=True) if i == n], 0) for n in set(ids)
    }
    powers = [sum(np.exp(query @ means[n]) for i in ids if i == n) for n in range(max(ids) + 1)]
    return np.array(powers) / sum(powers)


def entropy(attention) -> float:
    """The H of Eq. 5."""
    return -sum(a * np.log(a) for a in attention if a > 0)


def kl(exact, approximate) -> float:
    """Eq. 11 for one step."""
    return sum(a * np.log(a / b) for a, b in zip(exact, approximate, strict=True) if a > 0)
