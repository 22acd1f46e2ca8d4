"""The paper's method in one file: Han, Lin & Joty (2020), "Resurrecting Submodularity in Neural
Abstractive Summarization", https://arxiv.org/abs/1911.03014v2

Before each word a decoder spreads its attention over the source. Where it looks again it often
tells again what it has told. Here a look counts for what it adds to a concave function of all looks
at that word so far. Such a function of the looks is submodular: the more there were, the less one
more adds. So what has been told fades, and what has not stands out; this needs no parameter and no
loss of its own.

In the paper, on news, ROUGE-1 is 36.7 without a mechanism, 39.1 with coverage, the older way, and
40.0 and 40.1 with DimAttn and DyDimAttn. These two have a search of their own, which also blocks
trigrams and favours long outputs; with the mechanism alone they have 39.3 and 39.7.
Not here: that search (beam 6, length normalisation; blocking is here as a system), BERTSum
(Eq. 6-8), and Eq. 1, the choice of a best set.

B texts, S source tokens, T target tokens, D embedding, H hidden size, V words.

`python one.py`, 18 CPU seconds: a small pointer-generator learns to tell four trips, each once.
Then it goes on with each mechanism, and equally long without. The last lines compare them.
tests/test_one.py: the package is equal. D1, D2, ...: deviations from the paper (PAPER.md).
"""

import random
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

seed = 0
CITIES = """rome oslo bern kyiv riga bonn graz pisa cork york lodz brno nice bari faro vigo turku
    ghent essen lyon lima cairo delhi tokyo quito accra dakar hanoi seoul osaka perth
    miami utah chad laos cuba peru mali fiji iran"""
TRIPS = 4  # trips of a text: "rome lima . ...", told as "rome lima rome . ... </s>"
D, H = 32, 48
UPDATES, MORE = 400, 80  # of the baseline; of each system that goes on from it
RATE, MORE_RATE = 8e-3, 2e-3  # Adam's
BATCH, TEXTS = 32, 500  # texts of an update; held-out texts
EPSILON = 1e-12  # D15: inside the log of the loss
LAMBDA = 1.0  # weight of the coverage loss
SYSTEMS = {"no mechanism": "none", "trigrams blocked": "none", "coverage": "coverage"}
SYSTEMS |= {"DimAttn": "dim", "DyDimAttn": "dydim"}  # name: mechanism

WORDS = ["<s>", "</s>", ".", *CITIES.split()]
BOS, EOS, DOT, V = 0, 1, 2, len(WORDS)
T = 4 * TRIPS + 1  # a trip is told in four words; all texts are equally long: no padding

# 1. The idea: a look is worth what it adds


def log(x):
    return torch.log1p(x)


def sqrt(x):
    return torch.sqrt(1 + x)


def coverage_value(looks, f=log):  # (..., T, S)
    # Eq. (9): concave in the sum, so each further look adds less. D4: C cancels below.
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
KINDS = ("none", "coverage", *MECHANISM)

# 2. The pointer-generator around it (See et al. 2017)


class Source(NamedTuple):
    words: torch.Tensor  # (B, S)
    states: torch.Tensor  # (B, S, 2H)
    features: torch.Tensor  # (B, S, 2H), W_e e_i


class Past(NamedTuple):
    hidden: torch.Tensor  # (B, H)
    cell: torch.Tensor  # (B, H)
    context: torch.Tensor  # (B, 2H)
    coverage: torch.Tensor  # (B, S), all looks before, summed
    peak: torch.Tensor  # (B, S), the sharpest of them


class Step(NamedTuple):
    p: torch.Tensor  # (B, V)
    attention: torch.Tensor  # (B, S)
    weights: torch.Tensor  # (B, S), what the looks count for


class Encoder(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
        self.lstm = nn.LSTM(D, H, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * H, 2 * H, bias=False)  # W_e

    def forward(self, source):  # (B, S)
        # (B, S, 2H); hidden and cell of both directions, (2, B, H)
        states, (hidden, cell) = self.lstm(self.embedding(source))
        return states, torch.cat([*hidden], -1), torch.cat([*cell], -1)  # the last two (B, 2H)


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

    def forward(self, word, source, past):  # (B,)
        x = self.merge(torch.cat([past.context, self.embedding(word)], -1))  # (B, D)
        hidden, cell = self.lstm(x, (past.hidden, past.cell))
        state = torch.cat([hidden, cell], -1)  # (B, 2H)
        attention = self.attend(state, past.coverage, source.features)  # (B, S)
        # Eq. (12): how likely a word has ever been the most important one.  D2: this step is in it.
        peak = torch.maximum(past.peak, attention)
        weights = attention
        if self.kind in MECHANISM:
            # D1: context and copying have the gains, which are not rescaled to sum to 1.
            weights = MECHANISM[self.kind](attention, past.coverage, peak)  # (B, S)
        context = (weights.unsqueeze(1) @ source.states).squeeze(1)  # (B, 2H)
        p_gen = self.switch(torch.cat([context, hidden, cell, x], -1)).sigmoid()  # (B, 1)
        p_vocab = self.output(self.inner(torch.cat([hidden, context], -1))).softmax(-1)  # (B, V)
        # A word is new or copied. The gains shrink the pointer, so more words are new (Remark 2).
        p = (p_gen * p_vocab).scatter_add(1, source.words, (1 - p_gen) * weights)  # (B, V)
        # Eq. (2): what is summed is the attention itself, never the gains.
        coverage = past.coverage + attention
        return Step(p, attention, weights), Past(hidden, cell, context, coverage, peak)


class PointerGenerator(nn.Module):
    def __init__(self, kind="none"):
        super().__init__()
        embedding = nn.Embedding(V, D)
        self.encoder, self.decoder = Encoder(embedding), Decoder(embedding, kind)
        self.reduce = nn.ModuleDict({name: nn.Linear(2 * H, H) for name in ("hidden", "cell")})

    def start(self, words):  # (B, S)
        states, hidden, cell = self.encoder(words)
        hidden = F.relu(self.reduce["hidden"](hidden))
        cell = F.relu(self.reduce["cell"](cell))
        nothing = torch.zeros(words.shape)  # D6: no look before the first word
        past = Past(hidden, cell, torch.zeros(len(words), 2 * H), nothing, nothing)
        return Source(words, states, self.encoder.project(states)), past

    def forward(self, source, target):  # (B, S), (B, T + 1)
        """Loss of each text, (B,)."""
        source, past = self.start(source)
        losses = []
        for word, wanted in zip(target.T[:-1], target.T[1:], strict=True):
            coverage = past.coverage
            step, past = self.decoder(word, source, past)
            loss = -(step.p.gather(1, wanted.unsqueeze(1)).squeeze(1) + EPSILON).log()  # (B,)
            if self.decoder.kind == "coverage":
                # Eq. (5): the older way needs a loss: a look costs as much as it repeats.
                loss = loss + LAMBDA * torch.minimum(step.attention, coverage).sum(-1)
            losses.append(loss)
        return torch.stack(losses, 1).mean(1)


# 3. Data, training, writing, effect


def check():
    """Refuse a constant that cannot work before anything is trained."""
    most = (V - DOT - 1) // 2
    if not 1 <= TRIPS <= most:
        raise SystemExit(f"TRIPS is {TRIPS}; the {V - DOT - 1} cities make 1 to {most} trips")
    if len(set(WORDS)) < V:
        raise SystemExit("CITIES has a word twice; each stands for a place of its own")
    if min(D, H, BATCH, TEXTS) < 1 or min(UPDATES, MORE) < 0:
        raise SystemExit("D, H, BATCH and TEXTS are at least 1, UPDATES and MORE at least 0")
    if EPSILON <= 0 or LAMBDA < 0:
        raise SystemExit("EPSILON is above 0, LAMBDA at least 0")
    if "DimAttn" not in SYSTEMS or not set(SYSTEMS.values()) <= set(KINDS):
        raise SystemExit(f"SYSTEMS needs DimAttn, and mechanisms of {', '.join(KINDS)}")


def draw(count, rng):
    """Sources (count, S) and targets (count, T + 1): each trip there and back, from either end, in
    any order. So no word order says what is left to tell: only memory does.
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
    """Train from scratch or, as the paper with a mechanism, late: a few updates more of `base`."""
    torch.manual_seed(seed)
    model, rng = PointerGenerator(kind), random.Random(f"{seed} {base is None}")
    if base:
        # coverage has one vector of weights more, W_c
        model.load_state_dict(base.state_dict(), strict=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for _ in range(updates):
        optimizer.zero_grad()
        model(*draw(BATCH, rng)).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
    return model


@torch.no_grad()
def write(model, sources, blocking=False):
    """Greedy search: words (B, T), and the weights that wrote them (B, T, S).

    `blocking`: no three words twice. In the paper it is part of the search; here it is a system of
    its own, weak in this task: a trip from its other end has other three words.
    """
    source, past = model.start(sources)
    words, weights = torch.full((len(sources), 1), BOS), []
    for _ in range(T):
        step, past = model.decoder(words[:, -1], source, past)
        if blocking:
            for p, text in zip(step.p, words.tolist(), strict=True):
                for first, second, third in zip(text, text[1:], text[2:], strict=False):
                    if [first, second] == text[-2:]:
                        p[third] = 0
        words = torch.cat([words, step.p.argmax(-1, keepdim=True)], 1)
        weights.append(step.weights)
    return words[:, 1:], torch.stack(weights, 1)


def trips(words):
    """The trips told before the end, as sets: a trip from its other end is the same one."""
    words = words[: words.index(EOS)] if EOS in words else words
    sentences = " ".join(WORDS[word] for word in words if word != BOS).split(" .")
    return [frozenset(sentence.split()) for sentence in sentences if sentence]


class Measured(NamedTuple):
    again: float  # per cent of the trips that are told before in the same text
    told: float  # per cent of all trips that are told


def measure(words, targets):
    written = again = right = 0
    for text, target in zip(words.tolist(), targets.tolist(), strict=True):
        told = trips(text)
        written += len(told)
        again += len(told) - len(set(told))
        right += len(set(told) & set(trips(target)))
    return Measured(100 * again / max(written, 1), 100 * right / (TRIPS * len(targets)))


def main():
    check()
    torch.set_num_threads(1)
    adds = coverage_value(torch.full((5, 1), 0.6)).diff(dim=0).flatten()
    print("After a look of 0.6, four more like it add", *(f"{gain:.2f}" for gain in adds))
    sources, targets = draw(TEXTS, random.Random(f"test {seed}"))
    base = train(UPDATES, RATE)
    models = {kind: train(MORE, MORE_RATE, base, kind) for kind in set(SYSTEMS.values())}
    print(f"{'per cent':18}told again  trips told")
    measured = {}
    for name, kind in SYSTEMS.items():
        words, _ = write(models[kind], sources, blocking=name == "trigrams blocked")
        measured[name] = measure(words, targets)
        print(f"{name:18}{measured[name].again:10.1f}{measured[name].told:12.1f}")
    ours = measured.pop("DimAttn")
    for name, other in measured.items():
        again, told = ours.again - other.again, ours.told - other.told
        print(f"DimAttn minus {name}: told again {again:+.1f} points, trips told {told:+.1f}")
    print("Blocking forbids three words in a row; a trip from its other end has other ones.")


if __name__ == "__main__":
    main()
