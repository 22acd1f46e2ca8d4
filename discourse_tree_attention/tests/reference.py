"""The model again, from the paper and slowly: NumPy loops, one document at a time."""

import math

import numpy as np


def array(tensor):
    return tensor.detach().double().numpy()


def linear(module, x):
    return x @ array(module.weight).T + array(module.bias)


def softmax(logits):
    """Softmax of one row."""
    powers = [math.exp(value - max(logits)) for value in logits]
    return [power / sum(powers) for power in powers]


def attention_matrix(module, states, matrix, head):
    """Section 3 and 4, entry by entry: (N, N) for one head of an `Attention` module."""
    units, kind = len(states), type(module.attend).__name__
    weights = module.attend
    if weights is None:
        return np.eye(units)
    if kind == "Tree":
        return matrix
    rows = []
    for i in range(units):
        if kind == "DotProduct":
            query, key = linear(weights.query, states), linear(weights.key, states)
            width = query.shape[1] // module.heads
            part = slice(head * width, (head + 1) * width)
            logits = [float(query[i, part] @ key[j, part]) / math.sqrt(width) for j in range(units)]
        elif kind == "Dense":
            first, _, second = weights.maps[head]
            hidden = np.maximum(linear(first, states[i]), 0)
            logits = linear(second, hidden)[:units].tolist()
        else:
            logits = array(weights.logits)[head, i, :units].tolist()
        rows.append(softmax(logits))
    return np.array(rows)


def attention(module, states, matrix):
    """X_out = A G(X), heads side by side, through the output map."""
    value = linear(module.value, states)
    width = value.shape[1] // module.heads
    mixed = np.zeros_like(value)
    for head in range(module.heads):
        weights = attention_matrix(module, states, matrix, head)
        for i in range(len(states)):
            for j in range(len(states)):
                part = slice(head * width, (head + 1) * width)
                mixed[i, part] += weights[i, j] * value[j, part]
    return linear(module.output, mixed)


def layer_norm(module, x):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * array(module.weight) + array(module.bias)


def scores(model, units, matrix):
    """Scores of one document without padding: units (N, D), matrix (N, N) or None."""
    states = np.zeros_like(units)
    for position, unit in enumerate(units):
        for place in range(units.shape[1]):
            angle = position / 10_000 ** ((place - place % 2) / units.shape[1])
            states[position, place] = unit[place] + (
                math.cos(angle) if place % 2 else math.sin(angle)
            )
    for layer in model.layers:
        states = layer_norm(
            layer.attention_norm, states + attention(layer.attention, states, matrix)
        )
        fed = linear(layer.outer, np.maximum(linear(layer.inner, states), 0))
        states = layer_norm(layer.feed_forward_norm, states + fed)
    first, _, _, last = model.classifier
    return linear(last, np.maximum(linear(first, states), 0))[:, 0]
