"""The whole paper in one file: Han, Lin & Joty (2020), "Resurrecting Submodularity in Neural
Abstractive
Summarization", https://arxiv.org/abs/1911.03014v2

Before each word a decoder spreads its attention over the source. Where it looks again it often
tells again what it has told. Here a look counts for what it adds to a concave function of all looks
at that word so far: less, the more there were. So what has been told fades, and what has not stands
out; this needs no parameter and no loss of its own.

B texts, S source tokens, T target tokens, D embedding, H hidden size, V words.

`python one.py`, 18 CPU seconds: a small pointer-generator learns to tell four trips, each once.
Then it goes on with each mechanism, and equally long without. The last lines compare them.
tests/test_one.py: the package is equal. D1, D2, ... are deviations from the paper, listed in
PAPER.md.
"""

import random

import torch
import torch.nn.functional as F
from torch import nn

seed = 0
CITIES = """rome oslo bern kyiv riga bonn graz pisa cork york lodz brno nice bari faro vigo turku
    ghent essen lyon lima cairo delhi tokyo quito accra dakar hanoi seoul osaka perth
    miami utah chad laos cuba peru mali fiji iran"""
WORDS = ["<s>", "</s>", ".", *CITIES.split()]
BOS, EOS, DOT, V = 0, 1, 2, len(WORDS)
D, H = 32, 48
# of each text: "rome lima . ...", "rome lima rome . ... </s>"; so there is no padding
TRIPS, S, T = 4, 12, 17
EPSILON = 1e-12  # D15: inside the log of the loss
LAMBDA = 1.0  # weight of the coverage loss
KINDS = ("none", "coverage", "dim", "dydim")

# 1. The idea: a look is worth what it adds


def log(x):
    return torch.log1p(x)


def sqrt(x):
    return torch.sqrt(1 + x)


def coverage_value(looks, f=log):  # (..., T, S)
    # Eq. (9): concave in the sum, so each further look adds less. The paper's constant C cancels
    # below (D4).
    return f(looks.cumsum(-2))  # (..., T, S)


def gain(attention, coverage, f=log):  # (B, S) of this step, (B, S) summed over the steps before
    # Eq. (10).  Eq. (11): over the steps these gains add up to F(A^t) - F(nothing), however the
    # looks are spread.
    return f(coverage + attention) - f(coverage)  # (B, S)


def dim_attention(attention, coverage, peak):  # the peak is DyDimAttn's
    return gain(attention, coverage)  # (B, S), a step's sum is less than 1


def dydim_attention(attention, coverage, peak):
    # Eq. (13): sqrt, whose gains are smaller below a coverage of 3 (D3), counts as far as a word
    # has been the most important one.
    return peak * gain(attention, coverage, sqrt) + (1 - peak) * gain(attention, coverage, log)


MECHANISM = {"dim": dim_attention, "dydim": dydim_attention}

# 2. The pointer-generator around it (See et al. 2017)


class Encoder(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
        self.lstm = nn.LSTM(D, H, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * H, 2 * H, bias=False)  # W_e

    def forward(self, source):  # (B, S)
        # (B, S, 2H); hidden and cell of both directions, (2, B, H)
        states, last = self.lstm(self.embedding(source))
        return states, [torch.cat([*each], -1) for each in last]  # (B, S, 2H), 2 x (B, 2H)


class Decoder(nn.Module):
    def __init__(self, embedding, kind):
        super().__init__()
        self.embedding, self.kind = embedding, kind
        self.merge = nn.Linear(2 * H + D, D)  # [context; word] -> x, the LSTM's input
        self.lstm = nn.LSTMCell(D, H)
        self.query = nn.Linear(2 * H, 2 * H)  # W_d and b
        self.score = nn.Linear(2 * H, 1, bias=False)  # u
        self.coverage_map = nn.Linear(1, 2 * H, bias=False) if kind == "coverage" else None  # W_c
        self.switch = nn.Linear(4 * H + D, 1)  # p_gen
        self.inner = nn.Linear(3 * H, H)
        self.output = nn.Linear(H, V)

    def attend(self, state, coverage, features):  # (B, 2H), (B, S), (B, S, 2H)
        features = features + self.query(state).unsqueeze(1)
        if self.coverage_map:  # the older way: the attention reads its own past, by new parameters
            features = features + self.coverage_map(coverage.unsqueeze(-1))
        # Eq. (3)
        scores = self.score(torch.tanh(features)).squeeze(-1)  # (B, S)
        # Eq. (4). In plain attention nothing says what has been read: the scores know the LSTM's
        # state alone. Where it comes near an earlier one the look is as sharp as it was then, and
        # what has been told is told again.
        return scores.softmax(-1)

    def forward(self, word, source, states, features, past):  # (B,), (B, S), (B, S, 2H), (B, S, 2H)
        hidden, cell, context, coverage, peak = past  # (B, H), (B, H), (B, 2H), (B, S), (B, S)
        x = self.merge(torch.cat([context, self.embedding(word)], -1))  # (B, D)
        hidden, cell = self.lstm(x, (hidden, cell))
        attention = self.attend(torch.cat([hidden, cell], -1), coverage, features)  # (B, S)
        # Eq. (12): how likely a word has ever been the most important one.  D2: this step is in it.
        peak = torch.maximum(peak, attention)
        # D1: the weights of context and copying are the gains, and are not rescaled to sum to 1.
        # (B, S)
        weights = (
            MECHANISM[self.kind](attention, coverage, peak) if self.kind in MECHANISM else attention
        )
        context = (weights.unsqueeze(1) @ states).squeeze(1)  # (B, 2H)
        p_gen = self.switch(torch.cat([context, hidden, cell, x], -1)).sigmoid()  # (B, 1)
        p_vocab = self.output(self.inner(torch.cat([hidden, context], -1))).softmax(-1)  # (B, V)
        # A word is new or copied. The gains shrink the pointer, so more words are new (Remark 2).
        p = (p_gen * p_vocab).scatter_add(1, source, (1 - p_gen) * weights)  # (B, V)
        # Eq. (2): what is summed is the attention itself, never the gains.
        coverage = coverage + attention
        return p, attention, weights, (hidden, cell, context, coverage, peak)


class PointerGenerator(nn.Module):
    def __init__(self, kind="none"):
        super().__init__()
        embedding = nn.Embedding(V, D)
        self.encoder, self.decoder = Encoder(embedding), Decoder(embedding, kind)
        self.reduce = nn.ModuleDict({name: nn.Linear(2 * H, H) for name in ("hidden", "cell")})

    def start(self, source):  # (B, S)
        states, last = self.encoder(source)
        first = [
            F.relu(reduce(each)) for reduce, each in zip(self.reduce.values(), last, strict=True)
        ]
        nothing = torch.zeros(source.shape)  # D6: no look before the first word
        past = (*first, torch.zeros(len(source), 2 * H), nothing, nothing)
        return (source, states, self.encoder.project(states)), past

    def forward(self, source, target):  # (B, S), (B, T + 1)
        """Loss of each text, (B,)."""
        read, past = self.start(source)
        losses = []
        for word, wanted in zip(target.T, target.T[1:], strict=False):
            coverage = past[3]
            p, attention, _, past = self.decoder(word, *read, past)
            loss = -(p.gather(1, wanted.unsqueeze(1)).squeeze(1) + EPSILON).log()  # (B,)
            if self.decoder.kind == "coverage":
                # Eq. (5): the older way needs a loss: a look costs as much as it repeats.
                loss = loss + LAMBDA * torch.minimum(attention, coverage).sum(-1)
            losses.append(loss)
        return torch.stack(losses, 1).mean(1)


# 3. Data, training, writing, effect


def draw(count, rng):
    """Sources (count, S) and targets (count, T + 1): each trip there and back, from either end, in
    any order. So no
    word order says what is left to tell: only memory does.
    """
    sources, targets = [], []
    for _ in range(count):
        cities = rng.sample(range(DOT + 1, V), 2 * TRIPS)
        trips = list(zip(cities[::2], cities[1::2], strict=True))
        sources.append([word for trip in trips for word in (*trip, DOT)])
        told = [rng.sample(trip, 2) for trip in rng.sample(trips, TRIPS)]
        targets.append([BOS, *(word for a, b in told for word in (a, b, a, DOT)), EOS])
    return torch.tensor(sources), torch.tensor(targets)


def train(updates, rate, base=None, kind="none"):
    """Train from scratch or, as the paper does with a mechanism, late: a few more updates from
    `base`.
    """
    torch.manual_seed(seed)
    model, rng = PointerGenerator(kind), random.Random(f"{seed} {base is None}")
    if base:
        # coverage has one vector of weights more, W_c
        model.load_state_dict(base.state_dict(), strict=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(updates):
        optimizer.zero_grad()
        model(*draw(32, rng)).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
    return model


@torch.no_grad()
def write(model, source, blocking=False):
    """Greedy search: words (B, T), and the weights that wrote them (B, T, S).

    `blocking`: no three words twice. A weak control for this task: a trip from its other end has
    other three words.
    """
    read, past = model.start(source)
    words, steps = torch.full((len(source), 1), BOS), []
    for _ in range(T):
        p, _, weights, past = model.decoder(words[:, -1], *read, past)
        for row, written in enumerate(words.tolist() if blocking else []):
            for first, second, third in zip(written, written[1:], written[2:], strict=False):
                if [first, second] == written[-2:]:
                    p[row, third] = 0
        words = torch.cat([words, p.argmax(-1, keepdim=True)], 1)
        steps.append(weights)
    return words[:, 1:], torch.stack(steps, 1)


def trips(words):
    """The trips that a text tells, as pairs of cities: a trip from its other end is the same
    one.
    """
    sentences = " ".join(WORDS[word] for word in words if word > EOS).split(" .")
    return [frozenset(sentence.split()) for sentence in sentences if sentence]


def measure(words, targets):
    """Per cent of the trips that are told before in the same text, and of all trips that are
    told.
    """
    told, wanted = ([trips(text) for text in texts.tolist()] for texts in (words, targets))
    again = sum(len(each) - len(set(each)) for each in told) / sum(map(len, told))
    right = sum(len(set(a) & set(b)) for a, b in zip(told, wanted, strict=True)) / (
        TRIPS * len(told)
    )
    return 100 * again, 100 * right


def main():
    torch.set_num_threads(1)
    adds = coverage_value(torch.full((5, 1), 0.6)).diff(dim=0).flatten()
    print("After a look of 0.6, four more like it add", *(f"{gain:.2f}" for gain in adds))
    sources, targets = draw(500, random.Random(f"test {seed}"))
    base = train(400, 8e-3)
    models = {kind: train(80, 2e-3, base, kind) for kind in KINDS}
    systems = {
        "no mechanism": "none",
        "trigrams blocked": "none",
        "coverage": "coverage",
        "DimAttn": "dim",
    }
    print(f"{'per cent':18}told again  trips told")
    found = {}
    for name, kind in (systems | {"DyDimAttn": "dydim"}).items():
        words, _ = write(models[kind], sources, blocking=name == "trigrams blocked")
        found[name] = again, told = measure(words, targets)
        print(f"{name:18}{again:10.1f}{told:12.1f}")
    for control in ("no mechanism", "trigrams blocked"):
        again, told = (a - b for a, b in zip(found["DimAttn"], found[control], strict=True))
        print(
            f"DimAttn minus {control}: told again {again:+.1f} points, trips told {told:+.1f} "
            f"points."
        )
    print(
        "Blocking forbids three words in a row; a trip from its other end has them in another "
        "order."
    )


if __name__ == "__main__":
    main()
