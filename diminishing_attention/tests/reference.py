"""Slow restatements in NumPy loops, written from the paper and from See et al. (2017)."""

import math

import numpy as np

FUNCTIONS = {"log": lambda x: math.log(x + 1), "sqrt": lambda x: math.sqrt(x + 1)}


def dim_attention(attention: np.ndarray, f: str = "log") -> np.ndarray:
    """(T, S) -> (T, S): differences of the coverage function from step to step."""
    result = np.zeros_like(attention)
    for t, i in np.ndindex(attention.shape):
        until_now = sum(attention[k, i] for k in range(t + 1))
        until_before = sum(attention[k, i] for k in range(t))
        result[t, i] = FUNCTIONS[f](until_now) - FUNCTIONS[f](until_before)
    return result


def dynamic_attention(attention: np.ndarray, f1: str = "sqrt", f2: str = "log") -> np.ndarray:
    """(T, S) -> (T, S): the two differences, weighted by the token's largest attention so far."""
    first, second = dim_attention(attention, f1), dim_attention(attention, f2)
    result = np.zeros_like(attention)
    for t, i in np.ndindex(attention.shape):
        peak = max(attention[k, i] for k in range(t + 1))
        result[t, i] = peak * first[t, i] + (1 - peak) * second[t, i]
    return result


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm(
    x: np.ndarray, hidden: np.ndarray, cell: np.ndarray, weights: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """One step of an LSTM with gates in the order input, forget, cell, output."""
    of_input, of_hidden, bias_input, bias_hidden = weights
    gates = np.split(of_input @ x + bias_input + of_hidden @ hidden + bias_hidden, 4)
    cell = sigmoid(gates[1]) * cell + sigmoid(gates[0]) * np.tanh(gates[2])
    return sigmoid(gates[3]) * np.tanh(cell), cell


class Pointer:
    """A pointer-generator, a document and a step at a time, from a model's weights in float64."""

    def __init__(self, model, kind: str = "none"):
        self.weights = {name: p.detach().double().numpy() for name, p in model.named_parameters()}
        self.kind, self.vocabulary = kind, model.vocabulary

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        y = self.weights[f"{name}.weight"] @ x
        return y + self.weights[f"{name}.bias"] if f"{name}.bias" in self.weights else y

    def encode(self, source: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Encoder states (S, 2H); first hidden state and cell of the decoder."""
        names = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
        embedding = self.weights["encoder.embedding.weight"]
        halves, last = [], []
        for way, order in (("", source), ("_reverse", source[::-1])):
            weights = [self.weights[f"encoder.lstm.{name}{way}"] for name in names]
            hidden = cell = np.zeros(weights[1].shape[1])
            states = []
            for word in order:
                hidden, cell = lstm(embedding[word], hidden, cell, weights)
                states.append(hidden)
            halves.append(states if order is source else states[::-1])
            last.append((hidden, cell))
        hidden, cell = (np.concatenate(pair) for pair in zip(*last, strict=True))
        hidden = np.maximum(self.linear("reduce.hidden", hidden), 0)
        return np.concatenate(halves, 1), hidden, np.maximum(self.linear("reduce.cell", cell), 0)

    def distributions(self, item, size: int) -> dict:
        """Everything at each step for a given document and summary.

        `p` (T, size) over the extended vocabulary, `attention`, `copying` and `coverage` (T, S).
        """
        # an unknown word is read as <unk>
        source = [n if n < self.vocabulary else 1 for n in item.source]
        target_in = [n if n < self.vocabulary else 1 for n in item.target[:-1]]
        states, hidden, cell = self.encode(source)
        names = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
        weights = [self.weights[f"decoder.lstm.{name}"] for name in names]
        embedding = self.weights["encoder.embedding.weight"]
        coverage_map = self.weights.get("decoder.coverage_map.weight")
        functions = {"none": lambda h: h, "dim": dim_attention, "dydim": dynamic_attention}
        context = np.zeros(states.shape[1])
        found = {"p": [], "attention": [], "copying": [], "coverage": []}
        for word in target_in:
            x = self.linear("decoder.merge", np.concatenate([context, embedding[word]]))
            hidden, cell = lstm(x, hidden, cell, weights)
            decoder_state = np.concatenate([hidden, cell])
            # The coverage vector: the attention of all steps before.
            coverage = sum(found["attention"], np.zeros(len(source)))
            scores = []
            for i, state in enumerate(states):
                inside = self.linear("encoder.project", state)
                inside = inside + self.linear("decoder.query", decoder_state)
                if coverage_map is not None:
                    inside = inside + coverage_map[:, 0] * coverage[i]
                scores.append(self.weights["decoder.score.weight"][0] @ np.tanh(inside))
            exponentials = np.exp(np.array(scores) - max(scores))
            attention = exponentials / exponentials.sum()
            found["attention"].append(attention)
            gain = functions[self.kind](np.array(found["attention"]))[-1]
            context = gain @ states
            switch = self.linear("decoder.switch", np.concatenate([context, hidden, cell, x]))
            p_gen = sigmoid(switch)[0]
            inner = self.linear("decoder.inner", np.concatenate([hidden, context]))
            logits = self.linear("decoder.output", inner)
            exponentials = np.exp(logits - logits.max())
            p = np.zeros(size)
            p[: self.vocabulary] = p_gen * exponentials / exponentials.sum()
            for place, number in enumerate(item.source):
                p[number] += (1 - p_gen) * gain[place]
            for name, value in (("p", p), ("copying", gain), ("coverage", coverage)):
                found[name].append(value)
        return {name: np.array(values) for name, values in found.items()}

    def loss(self, item, size: int, weight: float = 0.0) -> float:
        """Mean over the target's tokens of -log p and the weighted overlap with the coverage."""
        found = self.distributions(item, size)
        total = 0.0
        for t, word in enumerate(item.target[1:]):
            total -= math.log(found["p"][t, word] + 1e-12)
            for a, c in zip(found["attention"][t], found["coverage"][t], strict=True):
                total += weight * min(a, c)
        return total / len(item.target[1:])
