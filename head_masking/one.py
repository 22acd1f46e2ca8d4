"""Attention Head Masking for Inference Time Content Selection in Abstractive Summarization, in one file.

Shuyang Cao and Lu Wang (2021), NAACL: https://aclanthology.org/2021.naacl-main.397/

The idea. A trained summariser decides what to write about by looking at the source, through several heads in each layer
of its decoder. At inference alone, the words that do not matter are hidden from chosen heads: minus infinity on their
logits. So the summary is about the words that are left, and no weight was changed. Which heads select the content is
measured, head by head: how much better is a summary if this head sees the right words alone, than if it sees all alike?

Dims: B documents, S source words, T summary words, H heads, D width, K = D / H width of a head, V vocabulary.

    python one.py        # needs torch alone; 20 CPU seconds

A document is four facts, who does what. Its summary repeats two of them, drawn at random, so no model can know which.
Expect: without masks half of what is written is wanted, by chance. With masks on the top layer nearly all of it is;
with the same masks on the bottom layer less. The names of the network's parts are BART's in transformers, so that its
weights fit. Left out: the tagger of Section 5, which says what matters where the true summary is not known; here an
oracle reads it. D1, D3, D10: see PAPER.md.
"""

from difflib import SequenceMatcher

import torch
from torch import nn
from torch.nn import functional as F

seed = 0
FACTS, WANTED = 4, 2  # of a document; of its summary
PEOPLE = "Ann Bob Cleo Dan Eva Finn Gia Hal".split()
DEEDS = "paints sleeps sings runs reads cooks swims digs".split()
WORDS = ["", "", ".", "", *PEOPLE, *DEEDS]
PAD, START, END = 0, 1, 2
V, D, H, LAYERS, FEED_FORWARD, POSITIONS = len(WORDS), 64, 4, 2, 128, 16
K = D // H
NONE = torch.zeros(LAYERS, H, dtype=torch.bool)  # heads: True = chosen; layer 0 is the bottom one
UPDATES, BATCH, RATE = 600, 128, 3e-3


# The paper's idea: what is hidden from which head


def head_mask(keep, is_chosen):
    """m-tilde of Eq. (1): 0 where a head may look, minus infinity at words that a chosen head must not see."""
    hidden = ~keep[:, None, None] & is_chosen[:, None, None]  # (B, H, 1, S)
    return torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))


def attend(q, k, v, m, m_tilde=0.0, is_uniform=None):
    """Cross-attention of H heads: q (B, H, T, K), k and v (B, H, S, K) -> (B, H, T, K), and the weights."""
    logits = q @ k.transpose(-1, -2) / K**0.5  # (B, H, T, S)
    if is_uniform is not None:  # Section 4.1's baseline: equal weights select nothing. D10: on these heads alone
        logits = logits.masked_fill(is_uniform[:, None, None], 0.0)
    # Eq. (1): added before the softmax, so that the weights of the words that are left still sum to 1
    weights = (logits + m + m_tilde).softmax(-1)  # (B, H, T, S)
    return weights @ v, weights


def longest_common_runs(source, summary):
    """Section 4.1's oracle: the words that the summary takes. D3: runs, not the paper's longest common subsequences."""
    source, summary, marked = list(source), list(summary), [False] * len(source)
    while True:
        i, j, length = SequenceMatcher(None, source, summary, autojunk=False).find_longest_match()
        if not length:
            return marked
        marked[i : i + length] = [True] * length
        source[i : i + length], summary[j : j + length] = [-1] * length, [-2] * length  # equal to no word


def effect(score, keep, chosen):
    """Section 4.1: r_ora - r_uni, what the choice of words by some heads is worth; the paper's score is ROUGE."""
    return score(keep, masked=chosen) - score(uniform=chosen)


# A BART


class Attention(nn.Module):
    """H heads; only the decoder's second attention, on the source, is ever masked."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x, memory, m, **changes):
        projections = (self.q_proj(x), self.k_proj(memory), self.v_proj(memory))
        q, k, v = (p.unflatten(-1, (H, K)).transpose(1, 2) for p in projections)  # (B, H, T or S, K)
        output, self.weights = attend(q, k, v, m, **changes)
        return self.out_proj(output.transpose(1, 2).flatten(-2))  # (B, T, D)


class Layer(nn.Module):
    """Post-norm, as BART has it: each part is added to its input, then normed. A decoder's looks at `memory`, too."""

    def __init__(self, has_memory):
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = Attention(), nn.LayerNorm(D)
        if has_memory:
            self.encoder_attn, self.encoder_attn_layer_norm = Attention(), nn.LayerNorm(D)
        self.fc1, self.fc2 = nn.Linear(D, FEED_FORWARD), nn.Linear(FEED_FORWARD, D)
        self.final_layer_norm = nn.LayerNorm(D)

    def forward(self, x, own, memory=None, m=0.0, **changes):
        x = self.self_attn_layer_norm(x + self.self_attn(x, x, own))  # (B, T, D)
        if memory is not None:
            x = self.encoder_attn_layer_norm(x + self.encoder_attn(x, memory, m, **changes))
        return self.final_layer_norm(x + self.fc2(F.gelu(self.fc1(x))))


class Stack(nn.Module):
    """Positions and layers of the encoder or the decoder."""

    def __init__(self, has_memory):
        super().__init__()
        self.embed_positions = nn.Embedding(POSITIONS + 2, D)  # BART's first two rows are never used
        self.layernorm_embedding = nn.LayerNorm(D)
        self.layers = nn.ModuleList(Layer(has_memory) for _ in range(LAYERS))

    def embed(self, words):
        return self.layernorm_embedding(words + self.embed_positions.weight[2 : 2 + words.size(1)])


class Bart(nn.Module):
    """source (B, S) -> memory (B, S, D); with inputs (B, T) -> logits (B, T, V)."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Embedding(V, D)  # of sources, summaries and logits
        self.encoder, self.decoder = Stack(has_memory=False), Stack(has_memory=True)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.1)  # BART's 0.02 is for large widths
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, source, inputs, keep=None, masked=NONE, uniform=NONE):
        """keep (B, S): what the heads `masked` (LAYERS, H) may see; the heads `uniform` look at all words alike."""
        m = torch.zeros(source.shape).masked_fill(source == PAD, float("-inf"))[:, None, None]  # (B, 1, 1, S)
        memory = self.encoder.embed(self.shared(source))  # (B, S, D)
        for layer in self.encoder.layers:
            memory = layer(memory, m)
        T = inputs.size(1)
        causal = torch.full((T, T), float("-inf")).triu(1)
        x = self.decoder.embed(self.shared(inputs))  # (B, T, D)
        for layer, is_masked, is_uniform in zip(self.decoder.layers, masked, uniform, strict=True):
            m_tilde = 0.0 if keep is None else head_mask(keep, is_masked)
            x = layer(x, causal, memory, m, m_tilde=m_tilde, is_uniform=is_uniform)
        return x @ self.shared.weight.T  # (B, T, V)


# Data, loss, training, writing


def documents(count):
    """Documents (count, 9) and summaries (count, 5), both with the end."""
    people, deeds = (torch.rand(count, 8).argsort(-1)[:, :FACTS] + first for first in (4, 12))
    facts = torch.stack([people, deeds], -1)  # (count, 4, 2)
    chosen = torch.rand(count, FACTS).argsort(-1)[:, :WANTED].sort(-1).values
    summary = facts[torch.arange(count).unsqueeze(-1), chosen].flatten(1)
    end = torch.full((count, 1), END)
    return torch.cat([facts.flatten(1), end], 1), torch.cat([summary, end], 1)


def loss_of(bart, source, target, **changes):
    """Cross-entropy of the summary's words."""
    inputs = torch.cat([torch.full((len(target), 1), START), target[:, :-1]], 1)  # (B, T)
    return F.cross_entropy(bart(source, inputs, **changes).flatten(0, 1), target.flatten())


def train(loss, parameters, say=print):
    """`loss(documents, summaries)` goes down; no mask is ever seen in training."""
    optimizer = torch.optim.Adam(parameters, lr=RATE, betas=(0.9, 0.98))
    for update in range(1, UPDATES + 1):
        optimizer.param_groups[0]["lr"] = RATE * min(update / 50, 1, (UPDATES + 1 - update) / 150)  # up, constant, down
        value = loss(*documents(BATCH))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if update % 200 == 0:
            say(f"{update} updates: loss {value.item():.2f}")


@torch.no_grad()
def write(bart, source, keep=None, **changes):
    """The likeliest word, four times: (B, 4)."""
    inputs = torch.full((len(source), 1), START)
    for _ in range(2 * WANTED):
        logits = bart(source, inputs, keep, **changes)[:, -1]  # (B, V)
        inputs = torch.cat([inputs, logits.argmax(-1, keepdim=True)], 1)
    return inputs[:, 1:]


def share_of(written, text):
    """Of the facts written, who and what, how many are facts of the text, in %."""
    facts, known = written.unflatten(1, (-1, 2)), text[:, :-1].unflatten(1, (-1, 2))  # (B, facts, 2)
    return 100 * (facts.unsqueeze(2) == known.unsqueeze(1)).all(-1).any(-1).float().mean().item()


def heads(layer, *chosen):
    """(LAYERS, H) True at these heads of a layer; the bottom layer is 1."""
    places = torch.tensor([H * (layer - 1) + head for head in chosen])
    return NONE.flatten().index_fill(0, places, True).unflatten(0, (LAYERS, H))


def oracle_keep(source, target):
    """(B, S) True at the words that the summary takes."""
    pairs = zip(source[:, :-1].tolist(), target[:, :-1].tolist(), strict=True)
    return torch.tensor([[*longest_common_runs(*pair), False] for pair in pairs])  # D1: the end is hidden


def main():
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    bart = Bart()
    train(lambda source, target: loss_of(bart, source, target), bart.parameters())
    every = range(H)
    source, target = documents(200)  # to measure heads
    keep = oracle_keep(source, target)

    def score(keep=None, **changes):
        return share_of(write(bart, source, keep, **changes), target)

    print(f"\n{'effect, in points, of':22}", *(f"head {head}" for head in every), "all four", sep="   ")
    for layer in range(1, LAYERS + 1):
        row = [effect(score, keep, heads(layer, *chosen)) for chosen in (*([head] for head in every), every)]
        print(f"layer {layer:<16}", *(f"{value:6.0f}" for value in row), sep="   ")

    source, target = documents(300)  # held out
    keep = oracle_keep(source, target)
    print(f"\n{'masked heads':22}{'wanted facts, %':>18}{'true facts, %':>18}")
    masks = {"none": NONE, "all of the bottom layer": heads(1, *every), "all of the top layer": heads(2, *every)}
    for name, chosen in masks.items():
        written = write(bart, source, keep, masked=chosen)
        print(f"{name:24}{share_of(written, target):16.0f}{share_of(written, source):18.0f}")
    print("The same weights each time. What the top layer may see decides what is written; the bottom layer does less.")


if __name__ == "__main__":
    main()
