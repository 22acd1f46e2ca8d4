"""The whole paper in one file: Zhang, Titov & Sennrich (2021), "On Sparsifying Encoder Outputs in
Sequence-to-Sequence
Models", Findings of ACL, https://aclanthology.org/2021.findings-acl.255

A decoder reads the encodings of all source words at each step, which costs time, although it needs
few. Here a gate, computed from it, multiplies each encoding, and the loss counts the gates that are
expected to be open. So the network closes those that its decoder can do without. What is needed
from a closed one moves into those that stay open.

B sentences, S source tokens, T target tokens, R rows of the memory, H heads, K head width, D = H K
width, V words.

`python one.py`, 15 CPU seconds: a small Transformer learns to copy nouns and their articles out of
filler. Then it goes
on with gates, and equally long without: the last lines compare. D1, D2, ...: deviations (PAPER.md).
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

seed = 0
PAD, BOS, EOS = 0, 1, 2
FILLER = "of to in and is it on at as by or so".split()
NOUNS = (
    "lake wolf king ship tree gold horse river tower bread knife storm crown apple stone ghost"
).split()
WORDS = ["", "", ".", "", "a", "the", *FILLER, *NOUNS]
# articles are 4 to THE, nouns begin at NOUN
THE, NOUN, V = WORDS.index("the"), WORDS.index("lake"), len(WORDS)
# model width, heads, width inside the feed-forward layers; one layer on either side
D, H, INNER = 64, 4, 128
# D1: temperature and stretch of the gates; the paper prints epsilon = -0.1
BETA, EPSILON = 2 / 3, 0.1
LAMBDA = 2.0  # price of an open gate; Section 6 tries up to 1.5

# 1. The idea: gates that can be exactly 0, and yet have a gradient


class L0Drop(nn.Module):
    """One gate for each encoder output, computed from that output."""

    def __init__(self):
        super().__init__()
        self.predictor = nn.Linear(D, 1)  # D3: the paper's w, and a bias as the released code has
        # D15: unlike the paper's, all gates start alike, at 0.22 (Eq. 13)
        nn.init.zeros_(self.predictor.weight)
        nn.init.constant_(self.predictor.bias, -1.0)

    def forward(self, states):  # (B, S, D)
        # Eq. (9): the encoding itself says how open its gate should be.
        log_alpha = self.predictor(states).squeeze(-1)  # (B, S)
        # Eq. (5) while it trains: a closed gate opens now and then, so that training sees what lies
        # behind it.
        gates = sample_gates(log_alpha) if self.training else expected_gates(log_alpha)  # (B, S)
        # Eq. (4): a gate at 0 leaves a zero vector, whatever the encoding was.
        return gates.unsqueeze(-1) * states, gates, log_alpha


def sample_gates(log_alpha):
    """g ~ HardConcrete(alpha, beta, epsilon): the noise does not depend on log alpha, so the
    gradient can pass it.
    """
    u = torch.rand(log_alpha.shape).clamp(1e-6, 1 - 1e-6)  # (B, S)
    # Eq. (6): a soft coin; log alpha loads it, and a small beta drives it towards 0 or 1.
    s = torch.sigmoid((torch.log(u) - torch.log1p(-u) + log_alpha) / BETA)
    # Eq. (7): stretched beyond both ends, from (0, 1) to (-epsilon, 1 + epsilon) ...
    s = s * (1 + 2 * EPSILON) - EPSILON
    # Eq. (8): ... and cut off there, so that exactly 0 and exactly 1 have a probability.
    return s.clamp(0, 1)


def open_probability(log_alpha):
    # Eq. (10), 1 - p(g = 0): a closed form, so that the number of open gates needs no samples: (B,
    # S).
    return torch.sigmoid(log_alpha - BETA * math.log(EPSILON / (1 + EPSILON)))


def l0_penalty(log_alpha, keep):
    # Eq. (10).  D2: as a share of a sentence's tokens, so that lambda does not depend on the
    # length: (B,).
    return (open_probability(log_alpha) * keep).sum(-1) / keep.sum(-1)


def expected_gates(log_alpha):
    # Eq. (13): no dice at test time; closed for good where log alpha < -2.4.
    return (torch.sigmoid(log_alpha) * (1 + 2 * EPSILON) - EPSILON).clamp(0, 1)


def compress(states, gates, keep):
    """Algorithm 1: (B, S, D) -> the open encodings and one zero vector for all that are closed, (B,
    R, D), and (B, R)
    how many encodings each row stands for; 0 is padding.
    """
    # Algorithm 1, lines 1-2: I = {i : g_i != 0}; a stable sort moves those to the front, in their
    # order.
    retained = (gates != 0) & keep  # (B, S)
    lengths = retained.sum(-1, keepdim=True)  # (B, 1)
    order = torch.argsort(~retained, dim=-1, stable=True)[:, : lengths.max()]  # (B, R - 1)
    states = states.gather(1, order.unsqueeze(-1).expand(-1, -1, D))  # (B, R - 1, D)
    # Algorithm 1, lines 3-4: a zero vector in front, which counts for the c encodings that are
    # closed.
    states = torch.cat([torch.zeros(states.size(0), 1, D), states], 1)  # (B, R, D)
    # (B, R)
    counts = torch.cat(
        [keep.sum(-1, keepdim=True) - lengths, torch.arange(order.size(1)) < lengths], 1
    )
    return states, counts.float()


# 2. The smallest Transformer around it, normalised after each sublayer (footnote 3)


class Attention(nn.Module):  # of H heads
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(D, D) for _ in range(4))

    # (B, T, D), (B, R, D), (B, T or 1, R): how often a row counts, 0 masks it
    def forward(self, x, memory, counts):
        layers = (self.query, x), (self.key, memory), (self.value, memory)
        # (B, H, T or R, K)
        q, k, v = (layer(y).unflatten(-1, (H, -1)).transpose(1, 2) for layer, y in layers)
        # Eq. (1).  Algorithm 1, lines 6-8: c exp(e) = exp(e + log c); a count of 0 gives no weight.
        # (B, H, T, R)
        weights = (q @ k.mT / q.size(-1) ** 0.5 + counts.log().unsqueeze(1)).softmax(-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))  # (B, T, D)


class EncoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.feed_forward = nn.Sequential(nn.Linear(D, INNER), nn.ReLU(), nn.Linear(INNER, D))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(2))

    def forward(self, x, counts):  # (B, S, D)
        # Eq. (2): every source token attends to every other.
        x = self.norms[0](x + self.attention(x, x, counts))
        return self.norms[1](x + self.feed_forward(x))


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attention, self.cross_attention = Attention(), Attention()
        self.feed_forward = nn.Sequential(nn.Linear(D, INNER), nn.ReLU(), nn.Linear(INNER, D))
        self.norms = nn.ModuleList(nn.LayerNorm(D) for _ in range(3))

    def forward(self, y, memory, counts):  # (B, T, D), (B, R, D), (B, 1, R)
        past = torch.ones(1, y.size(1), y.size(1)).tril()  # (1, T, T)
        # Eq. (3): attention to the words written so far, then to the memory.
        y = self.norms[0](y + self.self_attention(y, y, past))
        y = self.norms[1](y + self.cross_attention(y, memory, counts))
        return self.norms[2](y + self.feed_forward(y))


class Transformer(nn.Module):
    def __init__(self, has_gates):
        super().__init__()
        # D21: one table for source, target and output
        self.embedding = nn.Embedding(V, D, padding_idx=PAD)
        self.encoder, self.decoder = (
            nn.ModuleList([EncoderLayer()]),
            nn.ModuleList([DecoderLayer()]),
        )
        for matrix in (weight for weight in self.parameters() if weight.dim() == 2):
            nn.init.xavier_uniform_(matrix)
        nn.init.normal_(self.embedding.weight, std=D**-0.5)
        self.l0drop = nn.ModuleList([L0Drop()] if has_gates else [])

    def embed(self, tokens):  # (B, T)
        rates = 10_000 ** -(torch.arange(0, D, 2) / D)  # (D/2,)
        angles = torch.arange(tokens.size(1)).unsqueeze(-1) * rates  # (T, D/2)
        # (B, T, D)
        return self.embedding(tokens) * D**0.5 + torch.cat([angles.sin(), angles.cos()], -1)

    def encode(self, source):  # (B, S)
        states = self.encoder[0](self.embed(source), (source != PAD).float().unsqueeze(1))
        # (B, S, D), (B, S), (B, S)
        return self.l0drop[0](states) if self.l0drop else (states, torch.ones(source.shape), None)

    def decode(self, target, states, counts):  # (B, T), (B, R, D), (B, R)
        y = self.decoder[0](self.embed(target), states, counts.unsqueeze(1))
        return F.linear(y, self.embedding.weight)  # (B, T, V)

    def forward(self, source, target):
        states, _, log_alpha = self.encode(source)
        # Eq. (11): in training the decoder reads all gated encodings; the closed ones are zeros
        # among them.
        return self.decode(target, states, (source != PAD).float()), log_alpha


def objective(logits, target, log_alpha, keep, price):
    # Appendix A: label smoothing 0.1; nats per token (D2), of each sentence (B,).
    mle = F.cross_entropy(logits.mT, target, label_smoothing=0.1, reduction="none").mean(-1)
    # Eq. (12): a gate stays open only where its encoding saves more loss than it costs.
    return mle if log_alpha is None else mle + price * l0_penalty(log_alpha, keep)


# 3. Data, training, effect


def sentences(count, generator):
    """Sources (count, 21): 12 fillers, 4 phrases like "the lake", "."; inputs and targets (count,
    9): the phrases.
    """
    source = torch.randint(THE + 1, NOUN, (count, 20), generator=generator)
    articles = torch.randint(4, THE + 1, (count, 4), generator=generator)
    nouns = torch.randint(NOUN, V, (count, 4), generator=generator)
    places = torch.rand(count, 16, generator=generator).topk(
        4
    ).indices.sort().values + torch.arange(4)
    source = source.scatter(1, places, articles).scatter(1, places + 1, nouns)
    phrases = torch.stack([articles, nouns], -1).flatten(1)
    return (
        F.pad(source, (0, 1), value=EOS),
        F.pad(phrases, (1, 0), value=BOS),
        F.pad(phrases, (0, 1), value=EOS),
    )


TEST = sentences(500, torch.Generator().manual_seed(seed + 1000))
IS_ARTICLE, IS_NOUN = (TEST[0] > 3) & (TEST[0] <= THE), TEST[0] >= NOUN  # (500, 21)
# the same sentences with "a" for "the" and "the" for "a"
OTHER = TEST[0].where(~IS_ARTICLE, 4 + THE - TEST[0])


def train(updates, base=None, has_gates=False, moments=()):
    torch.manual_seed(seed)
    model, generator, history = Transformer(has_gates), torch.Generator().manual_seed(seed), []
    if base:
        # fine-tuning (Section 6); the gates are new
        model.load_state_dict(base.state_dict(), strict=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 if base else 3e-3)
    for update in range(updates):
        if update in moments:
            history.append((update, *measure(model)))
        source, target_input, target = sentences(32, generator)
        logits, log_alpha = model.train()(source, target_input)
        loss = objective(logits, target, log_alpha, source != PAD, LAMBDA).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, history


def write(model, states, counts, length=8):
    """Greedy search from a memory: (B, length) words."""
    written = torch.full((states.size(0), 1), BOS)
    for _ in range(length):
        # (B, T + 1)
        written = torch.cat([written, model.decode(written, states, counts)[:, -1:].argmax(-1)], 1)
    return written[:, 1:]


@torch.no_grad()
def measure(model, keep=TEST[0] != PAD, nouns_from=TEST[0]):
    """Gates (500, 21) of the test sentences, what is written (500, 8), and five shares in per cent:
    fillers, articles
    and nouns pruned, articles and nouns written right.  D8: what `keep` (500, 21) leaves out cannot
    be attended to.
    """
    source, _, target = TEST
    (states, gates, _), (nouns, noun_gates, _) = (
        model.eval().encode(source),
        model.encode(nouns_from),
    )
    states, gates = nouns.where(IS_NOUN.unsqueeze(-1), states), noun_gates.where(IS_NOUN, gates)
    written = write(model, *compress(states, gates, keep))
    is_pruned, is_right = (gates == 0) | ~keep, written == target[:, :8]
    pruned = [is_pruned[kind] for kind in ((source > THE) & (source < NOUN), IS_ARTICLE, IS_NOUN)]
    return (
        gates,
        written,
        [100 * x.float().mean().item() for x in (*pruned, is_right[:, ::2], is_right[:, 1::2])],
    )


def show(results):
    print(f"{'per cent':20}pruned: fillers articles  nouns    right: articles  nouns")
    for name, (*_, shares) in results.items():
        print("{:20}{:15.0f}{:9.0f}{:7.0f}{:19.0f}{:7.0f}".format(name, *shares))


def main():
    torch.set_num_threads(1)
    base, _ = train(400)
    (control, _), (gated, [halfway]) = (
        train(500, base),
        train(500, base, has_gates=True, moments=[60]),
    )
    # Dropped by rule from a model that was trained to read them, they are lost: nothing had to move
    # them.
    results = {"no gates": measure(control), "articles left out": measure(control, ~IS_ARTICLE)}
    show(results | {"gates, update 60": halfway, "gates, update 500": measure(gated)})
    changed = [100 - measure(model, nouns_from=OTHER)[2][3] for model in (control, gated)]
    print(
        "Now the encodings of the nouns, and no others, are from the same sentences with the other "
        "articles:"
    )
    print(
        "{:.0f} % of the articles change without gates, {:.0f} % with. So many are read from "
        "nouns.".format(*changed)
    )


if __name__ == "__main__":
    main()
