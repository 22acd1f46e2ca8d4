"""The paper's method in one file: Zhang, Titov & Sennrich (2021), "On Sparsifying Encoder Outputs
in Sequence-to-Sequence Models", Findings of ACL, https://aclanthology.org/2021.findings-acl.255

A decoder reads the encodings of all source words at each step, although it needs few. Here a gate,
computed from it, multiplies each encoding, and the loss counts the gates that are expected to be
open. So the network closes those that its decoder can do without. What is needed from a closed one
moves into those that stay open.

In the paper: 47 % of the encodings go for 0.5 BLEU (English to German, no faster), 72 % for 0.5
ROUGE-L (WikiSum, 1.65 times as fast). The more go, the more it costs; punctuation and function
words go first. Rules that are trained with do as well on translations, worse on summaries.
Left out: three of Section 7's four rules, gates after each layer, characters, beam search, dropout.

B sentences, S source tokens, T target tokens, R rows of the memory, H heads, K head width, D = H K
width, V words. D1, D2, ...: deviations (PAPER.md).

`python one.py`, 20 CPU seconds: a small Transformer learns to copy nouns and their articles out of
filler. Then it goes on with gates, and equally long without: the last lines compare.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

seed = 0
PAD, BOS, EOS = 0, 1, 2
FILLER = "of to in and is it on at as by or so"
NOUNS = "lake wolf king ship tree gold horse river tower bread knife storm crown apple stone ghost"
WORDS = ["", "", ".", "", "a", "the", *FILLER.split(), *NOUNS.split()]
A, THE, NOUN, V = 4, 5, 6 + len(FILLER.split()), len(WORDS)  # nouns are NOUN to V - 1
FILLERS, PHRASES = 12, 4  # in a sentence; a phrase is an article and a noun
D, H, INNER = 64, 4, 128  # width, heads, width inside the feed-forward layers
BETA = 2 / 3  # temperature of the gates
EPSILON = 0.1  # D1: how far they are stretched; the paper prints -0.1
LAMBDA = 2.0  # price of an open gate; Section 6 tries up to 1.5
BEFORE, AFTER = 400, 500  # updates without gates, then with


def check():
    if min(D, H) < 1 or D % H or D % 2:
        raise ValueError(f"D = {D} must be even and a multiple of H = {H}")
    if min(BETA, EPSILON, FILLERS, PHRASES, INNER, BEFORE, AFTER) <= 0 or LAMBDA < 0:
        raise ValueError("each of these numbers must be above 0; LAMBDA may be 0")


# 1. The idea: gates that can be exactly 0, and yet have a gradient


class L0Drop(nn.Module):  # one gate for each encoder output, computed from that output
    def __init__(self):
        super().__init__()
        self.predictor = nn.Linear(D, 1)  # D3: the paper's w, and a bias as the released code has
        # D15: unlike the paper's, all gates start alike, at 0.22 (Eq. 13)
        nn.init.zeros_(self.predictor.weight)
        nn.init.constant_(self.predictor.bias, -1.0)

    def forward(self, states):  # (B, S, D)
        # Eq. (9): the encoding itself says how open its gate should be.
        log_alpha = self.predictor(states).squeeze(-1)  # (B, S)
        # Eq. (5): a closed gate opens now and then, so that training sees what lies behind it.
        gates = sample_gates(log_alpha) if self.training else expected_gates(log_alpha)  # (B, S)
        # Eq. (4): a gate at 0 leaves a zero vector, whatever the encoding was.
        return gates.unsqueeze(-1) * states, gates, log_alpha


def sample_gates(log_alpha):
    """g ~ HardConcrete(alpha, beta, epsilon): a gradient passes, the noise is apart from alpha."""
    u = torch.rand(log_alpha.shape).clamp(1e-6, 1 - 1e-6)  # (B, S)
    # Eq. (6): a soft coin; log alpha loads it, and a small beta drives it towards 0 or 1.
    s = torch.sigmoid((torch.log(u) - torch.log1p(-u) + log_alpha) / BETA)
    # Eq. (7): stretched beyond both ends, from (0, 1) to (-epsilon, 1 + epsilon) ...
    s = s * (1 + 2 * EPSILON) - EPSILON
    # Eq. (8): ... and cut off there, so that exactly 0 and exactly 1 have a probability.
    return s.clamp(0, 1)


def open_probability(log_alpha):
    # Eq. (10), 1 - p(g = 0): a closed form, so that counting open gates needs no samples: (B, S).
    return torch.sigmoid(log_alpha - BETA * math.log(EPSILON / (1 + EPSILON)))


def l0_penalty(log_alpha, keep):
    # Eq. (10).  D2: a share of the tokens, so that lambda does not depend on their number: (B,).
    return (open_probability(log_alpha) * keep).sum(-1) / keep.sum(-1)


def expected_gates(log_alpha):
    # Eq. (13): no dice at test time; closed for good where log alpha < -2.4.
    return (torch.sigmoid(log_alpha) * (1 + 2 * EPSILON) - EPSILON).clamp(0, 1)


def compress(states, gates, keep):
    """Algorithm 1: the open encodings and one zero vector for all closed ones (B, R, D), and how
    many encodings each row stands for (B, R); 0 is padding."""
    # Algorithm 1, lines 1-2: I = {i : g_i != 0}; a stable sort moves those to the front.
    retained = (gates != 0) & keep  # (B, S)
    lengths = retained.sum(-1, keepdim=True)  # (B, 1)
    order = torch.argsort(~retained, dim=-1, stable=True)[:, : lengths.max()]  # (B, R - 1)
    states = states.gather(1, order.unsqueeze(-1).expand(-1, -1, D))  # (B, R - 1, D)
    # Algorithm 1, lines 3-4: a zero vector in front counts for the c encodings that are closed.
    states = torch.cat([torch.zeros(states.size(0), 1, D), states], 1)  # (B, R, D)
    closed = keep.sum(-1, keepdim=True) - lengths  # (B, 1)
    is_real = torch.arange(order.size(1)) < lengths  # (B, R - 1)
    return states, torch.cat([closed, is_real], 1).float()


# 2. The smallest Transformer around it, normalised after each sublayer (footnote 3)


class Attention(nn.Module):  # of H heads
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(D, D) for _ in range(4))

    def split_heads(self, x):  # (B, S, D) -> (B, H, S, K)
        return x.unflatten(-1, (H, -1)).transpose(1, 2)

    def forward(self, x, memory, counts):  # (B, T, D), (B, R, D), (B, T or 1, R)
        q = self.split_heads(self.query(x))  # (B, H, T, K)
        k, v = self.split_heads(self.key(memory)), self.split_heads(self.value(memory))
        # How often a row counts: log 1 = 0 changes nothing, log 0 = -inf hides it.
        bias = counts.log().unsqueeze(1)  # (B, 1, T or 1, R)
        # Eq. (1).  Algorithm 1, lines 6-8: c exp(e) = exp(e + log c).
        weights = (q @ k.mT / q.size(-1) ** 0.5 + bias).softmax(-1)  # (B, H, T, R)
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
        self.embedding = nn.Embedding(V, D, padding_idx=PAD)  # D21: source, target and output
        self.encoder = nn.ModuleList([EncoderLayer()])
        self.decoder = nn.ModuleList([DecoderLayer()])
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.xavier_uniform_(weight)
        nn.init.normal_(self.embedding.weight, std=D**-0.5)
        self.l0drop = nn.ModuleList([L0Drop()] if has_gates else [])

    def embed(self, tokens):  # (B, T)
        rates = 10_000 ** -(torch.arange(0, D, 2) / D)  # (D/2,)
        angles = torch.arange(tokens.size(1)).unsqueeze(-1) * rates  # (T, D/2)
        positions = torch.cat([angles.sin(), angles.cos()], -1)  # (T, D)
        return self.embedding(tokens) * D**0.5 + positions

    def encode(self, source):  # (B, S) -> (B, S, D), (B, S), (B, S)
        states = self.encoder[0](self.embed(source), (source != PAD).float().unsqueeze(1))
        return self.l0drop[0](states) if self.l0drop else (states, torch.ones(source.shape), None)

    def decode(self, target, states, counts):  # (B, T), (B, R, D), (B, R)
        y = self.decoder[0](self.embed(target), states, counts.unsqueeze(1))
        return F.linear(y, self.embedding.weight)  # (B, T, V)

    def forward(self, source, target, keep):  # (B, S), (B, T), (B, S)
        states, _, log_alpha = self.encode(source)
        # Eq. (11): in training the decoder reads all gated encodings, closed ones as zeros.
        return self.decode(target, states, keep.float()), log_alpha


def objective(logits, target, log_alpha, keep, price):
    # Appendix A: label smoothing 0.1; nats per token (D2), of each sentence (B,).
    mle = F.cross_entropy(logits.mT, target, label_smoothing=0.1, reduction="none").mean(-1)
    # Eq. (12): a gate stays open only where its encoding saves more loss than it costs.
    return mle if log_alpha is None else mle + price * l0_penalty(log_alpha, keep)


# 3. Data, training, effect


def sentences(count, generator):
    """Sources of fillers, phrases like "the lake" and "." (B, S); inputs and targets (B, T)."""
    source = torch.randint(THE + 1, NOUN, (count, FILLERS + 2 * PHRASES), generator=generator)
    articles = torch.randint(A, THE + 1, (count, PHRASES), generator=generator)
    nouns = torch.randint(NOUN, V, (count, PHRASES), generator=generator)
    slots = torch.rand(count, FILLERS + PHRASES, generator=generator).topk(PHRASES).indices
    places = slots.sort().values + torch.arange(PHRASES)  # a phrase fills two places
    source = source.scatter(1, places, articles).scatter(1, places + 1, nouns)
    phrases = torch.stack([articles, nouns], -1).flatten(1)  # (B, T - 1)
    target_input, target = F.pad(phrases, (1, 0), value=BOS), F.pad(phrases, (0, 1), value=EOS)
    return F.pad(source, (0, 1), value=EOS), target_input, target


def is_article(source):
    return (source == A) | (source == THE)


def train(updates, base=None, has_gates=False, leaves_out=False, moments=(), test=None):
    """Train a model, from `base` if there is one, and measure it on `test` at these moments."""
    torch.manual_seed(seed)
    model, generator, history = Transformer(has_gates), torch.Generator().manual_seed(seed), {}
    if base:  # fine-tuning (Section 6); the gates are new
        model.load_state_dict(base.state_dict(), strict=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3 if base else 3e-3)
    for update in range(updates):
        if update in moments:
            history[update] = measure(model, test)
        source, target_input, target = sentences(32, generator)
        keep = ~is_article(source) if leaves_out else source != PAD  # D8
        logits, log_alpha = model.train()(source, target_input, keep)
        loss = objective(logits, target, log_alpha, keep, LAMBDA).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, history


def write(model, states, counts):
    """Greedy search from a memory: (B, T - 1) words."""
    written = torch.full((states.size(0), 1), BOS)
    for _ in range(2 * PHRASES):
        words = model.decode(written, states, counts)[:, -1:].argmax(-1)  # (B, 1)
        written = torch.cat([written, words], 1)
    return written[:, 1:]


class Measured(NamedTuple):
    gates: Tensor  # (B, S)
    written: Tensor  # (B, T - 1); the rest in per cent
    fillers_pruned: float
    articles_pruned: float
    nouns_pruned: float
    articles_right: float
    nouns_right: float


@torch.no_grad()
def measure(model, test, leaves_out=False, nouns_from=None):
    """Prune and write `test`; the nouns' encodings may come from other sources (B, S)."""
    source, _, target = test
    is_noun, is_filler = source >= NOUN, (source > THE) & (source < NOUN)
    states, gates, _ = model.eval().encode(source)
    if nouns_from is not None:
        other_states, other_gates, _ = model.encode(nouns_from)
        states = other_states.where(is_noun.unsqueeze(-1), states)
        gates = other_gates.where(is_noun, gates)
    keep = ~is_article(source) if leaves_out else source != PAD  # D8
    written = write(model, *compress(states, gates, keep))
    is_pruned = (gates == 0) | ~keep
    is_right = written == target[:, :-1]
    pruned = is_pruned[is_filler], is_pruned[is_article(source)], is_pruned[is_noun]
    right = is_right[:, ::2], is_right[:, 1::2]
    shares = [100 * each.float().mean().item() for each in (*pruned, *right)]
    return Measured(gates, written, *shares)


def show(results):
    print(f"{'per cent':26}pruned: fillers articles  nouns    right: articles  nouns")
    for name, m in results.items():
        pruned = f"{m.fillers_pruned:15.0f}{m.articles_pruned:9.0f}{m.nouns_pruned:7.0f}"
        print(f"{name:26}{pruned}{m.articles_right:19.0f}{m.nouns_right:7.0f}")


def main():
    check()
    torch.set_num_threads(1)
    test = sentences(500, torch.Generator().manual_seed(seed + 1000))
    early = AFTER // 8  # of 500: the gates have closed, nothing has moved yet
    base, _ = train(BEFORE)
    control, _ = train(AFTER, base)
    ruled, _ = train(AFTER, base, leaves_out=True)
    gated, history = train(AFTER, base, has_gates=True, moments=[early], test=test)
    results = {
        "no gates": measure(control, test),
        "articles left out": measure(control, test, leaves_out=True),
        "left out in training, too": measure(ruled, test, leaves_out=True),
        f"gates, update {early}": history[early],
        f"gates, update {AFTER}": measure(gated, test),
    }
    show(results)
    source, _, _ = test
    other = (A + THE - source).where(is_article(source), source)  # "a" for "the", "the" for "a"
    moved = [measure(model, test, nouns_from=other) for model in (control, gated)]
    print("Now the nouns' encodings alone are those of the sentences with the other articles:")
    before, after = (100 - m.articles_right for m in moved)
    print(f"{before:.0f} % of the articles change without gates, {after:.0f} % with.")


if __name__ == "__main__":
    main()
