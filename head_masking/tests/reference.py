"""Slow restatements, written from the paper with loops, of what the package computes."""

import numpy as np


def numbers(tensor):
    return tensor.detach().double().numpy()


def attention(module, states, memory, hidden):
    """Eq. (1) for every document, head and step.

    Args:
        module: a BartAttention, for its weights.
        states: (B, T, D) what asks.
        memory: (B, S, D) what is attended to.
        hidden: (B, H, S) bool, True where m + m-tilde is -inf.
    Returns:
        (B, T, D) and the weights (B, H, T, S).
    """
    layers = (module.q_proj, module.k_proj, module.v_proj, module.out_proj)
    query, key, value, out = ((numbers(layer.weight), numbers(layer.bias)) for layer in layers)
    states, memory, hidden = numbers(states), numbers(memory), hidden.numpy()
    heads, width = module.num_heads, module.head_dim
    attended = np.zeros(states.shape)
    weights = np.zeros((len(states), heads, states.shape[1], memory.shape[1]))
    for b in range(len(states)):
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            for t in range(states.shape[1]):
                q = query[0][part] @ states[b, t] + query[1][part]
                exponentials = np.zeros(memory.shape[1])
                for s in range(memory.shape[1]):
                    k = key[0][part] @ memory[b, s] + key[1][part]
                    exponentials[s] = 0.0 if hidden[b, h, s] else np.exp(q @ k / np.sqrt(width))
                weights[b, h, t] = exponentials / exponentials.sum()
                for s in range(memory.shape[1]):
                    attended[b, t, part] += weights[b, h, t, s] * (
                        value[0][part] @ memory[b, s] + value[1][part]
                    )
    return attended @ out[0].T + out[1], weights


def common_runs(source, summary, min_length=1):
    """Iterative longest common runs: look at every pair of places again after every removal."""
    source, summary = [w.lower() for w in source], [w.lower() for w in summary]
    free_source, free_summary = [True] * len(source), [True] * len(summary)
    while True:
        best = (0, 0, 0)
        for i in range(len(source)):
            for j in range(len(summary)):
                n = 0
                while i + n < len(source) and j + n < len(summary):
                    is_free = free_source[i + n] and free_summary[j + n]
                    if not is_free or source[i + n] != summary[j + n]:
                        break
                    n += 1
                # the first in the source, then the first in the summary, of equally long ones
                if n > best[0]:
                    best = (n, i, j)
        n, i, j = best
        if n < min_length:
            return [not free for free in free_source]
        for k in range(n):
            free_source[i + k] = free_summary[j + k] = False


def keep_at_least(scores, threshold, padding, min_keep):
    """The released fallback for one document that has a score above 0; scores are distinct."""
    places = [place for place in range(len(scores)) if not padding[place]]
    kept = [place for place in places if scores[place] > threshold]
    if len(kept) < min_keep:
        positive = [place for place in places if scores[place] > 0]
        kept = sorted(positive, key=lambda place: -scores[place])[:min_keep]
    return [place in kept for place in range(len(scores))]


def f1(scores, labels, threshold):
    """F1 from the four counts."""
    pairs = [*zip(scores, labels, strict=True)]
    true_positive = sum(score > threshold and label for score, label in pairs)
    false_positive = sum(score > threshold and not label for score, label in pairs)
    false_negative = sum(score <= threshold and label for score, label in pairs)
    if not true_positive:
        return 0.0
    precision = true_positive / (true_positive + false_positive)
    recall = true_positive / (true_positive + false_negative)
    return 2 * precision * recall / (precision + recall)
