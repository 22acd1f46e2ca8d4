"""Attention Head Masking for Inference Time Content Selection in Abstractive Summarization, in one
file.

Shuyang Cao and Lu Wang (2021), NAACL: https://aclanthology.org/2021.naacl-main.397/

The old way. A decoder learns in one go what to write about and how to write it. After training
nothing can steer it: if it picks what does not matter, it must be trained again, on other
summaries. The idea. A decoder looks at the source through several heads in each layer. At inference
alone, what does not matter is
hidden from chosen heads: minus infinity on their logits. So the summary is about the words that are
left, and no weight was changed. Which heads? Each by itself first: how much better is a summary if
it sees the right words alone, than if it sees all alike? Then sets of the best ones are tried on
validation data.

Dims: B documents, S source words, T summary words, H heads, D width, K = D / H width of a head, V
vocabulary.

A document is four facts, who does what. Its summary repeats two of them, drawn at random, so no
model can know which.
Expect: without masks half of what is written is wanted, by chance; nearly all where the chosen
heads see the wanted facts alone; nearly nothing where they see the other two. Left out: Section 5's
tagger, which guesses what matters; here an oracle reads the true summary. The names are those of
transformers. D1, D3, D10, D11: see PAPER.md. `python one.py` needs torch alone and takes 20 CPU
seconds.
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
V, D, H, K, LAYERS, FEED_FORWARD, POSITIONS = len(WORDS), 64, 4, 16, 2, 128, 16
# heads: True = chosen; the first row is layer 1, the bottom one
NONE = torch.zeros(LAYERS, H, dtype=torch.bool)
UPDATES, BATCH, RATE = 600, 128, 3e-3


# The paper's idea: what is hidden from which head


def head_mask(keep, is_chosen):
    """m-tilde of Eq. (1): 0 where a head may look, minus infinity at words that a chosen head must
    not see.
    """
    hidden = ~keep[:, None, None] & is_chosen[:, None, None]  # (B, H, 1, S)
    return torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))


def attend(q, k, v, m, m_tilde=0.0, is_uniform=None):
    """Cross-attention of H heads: q (B, H, T, K), k and v (B, H, S, K) -> (B, H, T, K), and the
    weights.
    """
    logits = q @ k.transpose(-1, -2) / K**0.5  # (B, H, T, S)
    # Section 4.1's baseline: equal weights select nothing. D10: on these heads alone
    if is_uniform is not None:
        logits = logits.masked_fill(is_uniform[:, None, None], 0.0)
    # Eq. (1): added before the softmax, so that the weights of the words that are left still sum to
    # 1
    weights = (logits + m + m_tilde).softmax(-1)  # (B, H, T, S)
    return weights @ v, weights


def longest_common_runs(source, summary):
    """Section 4.1's oracle: the words that the summary takes.

    D3: runs; the paper's "subsequences" may have gaps.
    """
    source, summary, marked = list(source), list(summary), [False] * len(source)
    while True:
        i, j, length = SequenceMatcher(None, source, summary, autojunk=False).find_longest_match()
        if not length:
            return marked
        marked[i : i + length] = [True] * length
        # equal to no word
        source[i : i + length], summary[j : j + length] = [-1] * length, [-2] * length


def effect(score, keep, chosen):
    """Section 4.1: r_ora - r_uni. score(keep, masked=, uniform=) writes and compares: see `main`;
    paper: ROUGE.
    """
    return score(keep, masked=chosen) - score(uniform=chosen)


def select_heads(score, keep, effects):
    """Section 5: a layer's heads join, largest effect first; the best set of all layers.

    D11: never the empty set.
    """
    sets = []
    for layer, of_layer in enumerate(effects, start=1):
        best_first = sorted(range(H), key=lambda head: -of_layer[head])
        sets += [heads(layer, *best_first[:count]) for count in range(1, H + 1)]
    return max(sets, key=lambda chosen: score(keep, masked=chosen))


# A BART


class Attention(nn.Module):
    """H heads; only the decoder's second attention, on the source, is ever masked."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x, memory, m, **changes):
        projections = (self.q_proj(x), self.k_proj(memory), self.v_proj(memory))
        # (B, H, T or S, K)
        q, k, v = (p.unflatten(-1, (H, K)).transpose(1, 2) for p in projections)
        output, self.weights = attend(q, k, v, m, **changes)
        return self.out_proj(output.transpose(1, 2).flatten(-2))  # (B, T, D)


class Layer(nn.Module):
    """Post-norm, as BART has it: each part is added to its input, then normed.

    A decoder's looks at `memory`, too.
    """

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
        # BART's first two rows are never used
        self.embed_positions = nn.Embedding(POSITIONS + 2, D)
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
        """keep (B, S): what the heads `masked` (LAYERS, H) may see; the heads `uniform` look at all
        words alike.
        """
        if keep is not None and not (keep & (source != PAD)).any(-1).all():
            raise ValueError("keep hides all words of a document: the softmax over nothing is NaN")
        # (B, 1, 1, S)
        m = torch.zeros(source.shape).masked_fill(source == PAD, float("-inf"))[:, None, None]
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
    summary = facts[torch.arange(count).unsqueeze(-1), chosen]  # (count, 2, 2)
    return [F.pad(part.flatten(1), (0, 1), value=END) for part in (facts, summary)]


def loss_of(bart, source, target):
    """Cross-entropy of the summary's words."""
    inputs = F.pad(target[:, :-1], (1, 0), value=START)  # (B, T)
    return F.cross_entropy(bart(source, inputs).flatten(0, 1), target.flatten())


def train(loss, parameters):
    """`loss(documents, summaries)` goes down; no mask is ever seen in training."""
    optimizer = torch.optim.Adam(parameters, lr=RATE, betas=(0.9, 0.98))
    for update in range(1, UPDATES + 1):
        # up, constant, down
        optimizer.param_groups[0]["lr"] = RATE * min(update / 50, 1, (UPDATES + 1 - update) / 150)
        value = loss(*documents(BATCH))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if update % 200 == 0:
            print(f"{update} updates: loss {value.item():.2f}")


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
    # (B, facts, 2)
    facts, known = written.unflatten(1, (-1, 2)), text[:, :-1].unflatten(1, (-1, 2))
    return 100 * (facts.unsqueeze(2) == known.unsqueeze(1)).all(-1).any(-1).float().mean().item()


def heads(layer, *chosen):
    """(LAYERS, H) True at these heads of a layer; the bottom layer is 1."""
    return torch.tensor(
        [[row == layer and head in chosen for head in range(H)] for row in range(1, LAYERS + 1)]
    )


def oracle_keep(source, target):
    """(B, S) True at the words that the summary takes."""
    pairs = zip(source[:, :-1].tolist(), target[:, :-1].tolist(), strict=True)
    # D1: the end is hidden
    return torch.tensor([[*longest_common_runs(*pair), False] for pair in pairs])


def main():
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    bart = Bart()
    train(lambda source, target: loss_of(bart, source, target), bart.parameters())
    source, target = documents(200)  # validation data: heads are measured and chosen on it
    keep = oracle_keep(source, target)

    def score(keep=None, **changes):
        return share_of(write(bart, source, keep, **changes), target)

    effects = [
        [effect(score, keep, heads(layer, head)) for head in range(H)]
        for layer in range(1, LAYERS + 1)
    ]
    for layer, of_layer in enumerate(effects, start=1):
        print(
            f"layer {layer}, effects of heads 0 to {H - 1}, in points:",
            *(f"{value:.0f}" for value in of_layer),
        )
    chosen = select_heads(score, keep, effects)
    print(
        "chosen:",
        ", ".join(f"layer {layer + 1} head {head}" for layer, head in chosen.nonzero().tolist()),
    )

    source, target = documents(300)  # held out
    keep = oracle_keep(source, target)
    wrong = ~keep & (source != END)  # the control: the words of the other two facts
    rows = [
        ("none", keep, NONE),
        ("bottom layer", keep, heads(1, *range(H))),
        ("top layer", keep, heads(2, *range(H))),
    ]
    rows += [("chosen heads", keep, chosen), ("the same, wrong words", wrong, chosen)]
    print(f"\n{'masked':24}{'wanted facts, %':>18}{'true facts, %':>18}")
    shares = []
    for name, seen, masked in rows:
        written = write(bart, source, seen, masked=masked)
        shares.append(share_of(written, target))
        print(f"{name:24}{shares[-1]:18.0f}{share_of(written, source):18.0f}")
    print(
        f"The same weights each time: by what heads may see, {min(shares):.0f} to "
        f"{max(shares):.0f} % is wanted."
    )


if __name__ == "__main__":
    main()
