"""The method of "Attention Head Masking for Inference Time Content Selection in Abstractive
Summarization" in one file. Cao and Wang, NAACL 2021: https://aclanthology.org/2021.naacl-main.397/

The old way. A decoder learns in one go what to write about and how to write it. After training
nothing can steer it: if it picks what does not matter, it must be trained again on other summaries.
The idea. A decoder looks at the source through several heads in each layer. At inference alone,
what does not matter is hidden from chosen heads: minus infinity on their logits. So the summary is
about the words that are left, and no weight was changed. Which heads? Each by itself first: how
much better is a summary if it sees the right words alone, than if it sees all alike? Then sets of
the best ones are tried on validation data.

In the paper: ROUGE-1 of BART-large rises by 1.35 on CNN/Daily Mail, by 0.52 on the New York Times,
not on XSum. With 30,000 documents and masks it is better than with all 287,000 and none. The right
words help most at the top of its 12 layers; under a tagger's guesses layers 1 and 3 did best.

Here a document is four facts, who does what. Its summary repeats two of them, drawn at random, so
no model can know which; an oracle reads the true summary. Expect: without masks half of what is
written is wanted, by chance; nearly all where the chosen heads see the wanted facts alone; nearly
nothing where they see the other two. Left out: Section 5's tagger; the sum of parts (Section 4.2);
what heads look at (Section 4.3); beam search. D1, D2, D3, D10, D11: see PAPER.md. The names are
those of transformers. `python one.py` needs torch (without numpy torch warns) and 25 CPU seconds.
Dims: B documents, S source words, T summary words, H heads, D width, K = D / H, V vocabulary.
"""

from difflib import SequenceMatcher

import torch
from torch import nn
from torch.nn import functional as F

seed = 0
FACTS, WANTED = 4, 2  # of a document; of its summary
PEOPLE = "Ann Bob Cleo Dan Eva Finn Gia Hal".split()
DEEDS = "paints sleeps sings runs reads cooks swims digs".split()
D, H, LAYERS, FEED_FORWARD = 64, 4, 2, 128
UPDATES, BATCH, RATE = 600, 128, 3e-3
VALIDATION, TEST = 200, 300  # documents by which heads are chosen; held out

PAD, START, END = range(3)
WORDS = ["", "", ".", "", *PEOPLE, *DEEDS]
V = len(WORDS)
K = D // H
POSITIONS = 2 * FACTS + 1  # words of a document, its end included
NONE = torch.zeros(LAYERS, H, dtype=torch.bool)  # True = a chosen head; row 0: the bottom layer


def check():
    """ValueError for constants that contradict each other."""
    if min(LAYERS, H, FEED_FORWARD, UPDATES, BATCH, VALIDATION, TEST, RATE) <= 0 or D % H:
        raise ValueError("sizes, counts and RATE must be above 0, and D a multiple of H")
    if not 0 < WANTED < FACTS <= min(len(PEOPLE), len(DEEDS)):
        raise ValueError("need 0 < WANTED < FACTS, and at least FACTS people and deeds")


# The paper's idea: what is hidden from which head


def head_mask(keep, is_chosen):
    """m-tilde of Eq. (1): 0 where a head may look, minus infinity where a chosen head must not."""
    hidden = ~keep[:, None, None] & is_chosen[:, None, None]  # (B, H, 1, S)
    return torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))


def attend(q, k, v, m, m_tilde=0.0, is_uniform=None):
    """Cross-attention of H heads: q (B, H, T, K), k and v (B, H, S, K) -> (B, H, T, K)."""
    logits = q @ k.transpose(-1, -2) / K**0.5  # (B, H, T, S)
    # Section 4.1's baseline: equal weights select nothing. D10: on these heads alone
    if is_uniform is not None:
        logits = logits.masked_fill(is_uniform[:, None, None], 0.0)
    # Eq. (1): inside the softmax, so that the weights of the words that are left still sum to 1
    weights = (logits + m + m_tilde).softmax(-1)  # (B, H, T, S)
    return weights @ v


def longest_common_runs(source, summary):
    """Section 4.1's oracle: what the summary takes. D3: runs; "subsequences" may have gaps."""
    source, summary = list(source), list(summary)
    marked = [False] * len(source)
    while True:
        i, j, length = SequenceMatcher(None, source, summary, autojunk=False).find_longest_match()
        if not length:
            return marked
        marked[i : i + length] = [True] * length
        source[i : i + length] = [-1] * length  # equal to no word
        summary[j : j + length] = [-2] * length


def effect(score, keep, chosen):
    """Section 4.1: r_ora - r_uni; score(...) writes and compares, see `main`."""
    return score(keep, masked=chosen) - score(uniform=chosen)


def select_heads(score, keep, effects):
    """Section 5: within a layer heads join, largest effect first; the best set of any layer.

    The paper adds four at a time, and a tagger's masks judge. D11: never the empty set.
    """
    most = float("-inf")
    for layer, of_layer in enumerate(effects, start=1):
        best_first = sorted(range(H), key=lambda head: -of_layer[head])
        scores = []
        for count in range(1, H + 1):
            chosen = heads(layer, best_first[:count])
            scores.append(score(keep, masked=chosen))
            if scores[-1] > most:
                best, most = chosen, scores[-1]
        show(f"layer {layer}, its best 1 to {H} heads: wanted, %", scores)
    return best


# A BART


class Attention(nn.Module):
    """H heads; only the decoder's second attention, on the source, is ever masked."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(D, D) for _ in range(4))

    def forward(self, x, memory, m, **changes):
        q = self.q_proj(x).unflatten(-1, (H, K)).transpose(1, 2)  # (B, H, T, K)
        k = self.k_proj(memory).unflatten(-1, (H, K)).transpose(1, 2)  # (B, H, S, K)
        v = self.v_proj(memory).unflatten(-1, (H, K)).transpose(1, 2)  # (B, H, S, K)
        output = attend(q, k, v, m, **changes)
        return self.out_proj(output.transpose(1, 2).flatten(-2))  # (B, T, D)


class Layer(nn.Module):
    """Post-norm, as BART has it; a decoder's layer looks at `memory`, too."""

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
        self.embed_positions = nn.Embedding(POSITIONS + 2, D)  # BART never uses the first two rows
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
        """keep (B, S): what heads `masked` (LAYERS, H) may see; those `uniform` see all alike."""
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
    """Documents (count, 2 FACTS + 1) and summaries (count, 2 WANTED + 1), both with the end."""
    people = torch.rand(count, len(PEOPLE)).argsort(-1)[:, :FACTS] + WORDS.index(PEOPLE[0])
    deeds = torch.rand(count, len(DEEDS)).argsort(-1)[:, :FACTS] + WORDS.index(DEEDS[0])
    facts = torch.stack([people, deeds], -1)  # (count, FACTS, 2)
    chosen = torch.rand(count, FACTS).argsort(-1)[:, :WANTED].sort(-1).values
    summary = facts[torch.arange(count).unsqueeze(-1), chosen]  # (count, WANTED, 2)
    return F.pad(facts.flatten(1), (0, 1), value=END), F.pad(summary.flatten(1), (0, 1), value=END)


def loss_of(bart, source, target):
    """Cross-entropy of the summary's words."""
    inputs = F.pad(target[:, :-1], (1, 0), value=START)  # (B, T)
    return F.cross_entropy(bart(source, inputs).flatten(0, 1), target.flatten())


def train(bart, loss_of=loss_of):
    """No mask is ever seen in training."""
    optimizer = torch.optim.Adam(bart.parameters(), lr=RATE, betas=(0.9, 0.98))
    for update in range(1, UPDATES + 1):
        # up, constant, down
        optimizer.param_groups[0]["lr"] = RATE * min(update / 50, 1, (UPDATES + 1 - update) / 150)
        loss = loss_of(bart, *documents(BATCH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 200 == 0 or update == UPDATES:
            print(f"{update} updates: loss {loss.item():.2f}")


@torch.no_grad()
def write(bart, source, keep=None, **changes):
    """The likeliest word, again and again: (B, 2 WANTED)."""
    inputs = torch.full((len(source), 1), START)
    for _ in range(2 * WANTED):
        logits = bart(source, inputs, keep, **changes)[:, -1]  # (B, V)
        inputs = torch.cat([inputs, logits.argmax(-1, keepdim=True)], 1)
    return inputs[:, 1:]


def share_of(written, text):
    """Of the facts written, who and what, how many are facts of the text, in %."""
    facts = written.unflatten(1, (-1, 2))  # (B, WANTED, 2)
    known = text[:, :-1].unflatten(1, (-1, 2))  # (B, facts, 2)
    is_equal = (facts.unsqueeze(2) == known.unsqueeze(1)).all(-1)  # (B, WANTED, facts)
    return 100 * is_equal.any(-1).float().mean().item()


def heads(layer, chosen):
    """(LAYERS, H) True at these heads of a layer; the bottom layer is 1."""
    is_chosen = NONE.clone()
    is_chosen[layer - 1, list(chosen)] = True
    return is_chosen


def oracle_keep(source, target):
    """(B, S) True at the words that the summary takes."""
    pairs = zip(source[:, :-1].tolist(), target[:, :-1].tolist(), strict=True)
    # D1: the end is hidden
    return torch.tensor([[*longest_common_runs(*pair), False] for pair in pairs])


def with_errors(keep, source, share):
    """What a selector lets see that is wrong in this share of the words; D2: some word stays."""
    guessed = (keep ^ (torch.rand(keep.shape) < share)) & (source != END)
    return torch.where(guessed.any(-1, keepdim=True), guessed, keep)


def show(name, values):
    """A line of a table."""
    print(f"{name:42}", *(f"{value:8.0f}" for value in values))


def main():
    check()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    bart = Bart()
    train(bart)

    source, target = documents(VALIDATION)
    keep = oracle_keep(source, target)

    def score(keep=None, **changes):
        return share_of(write(bart, source, keep, **changes), target)

    print("\nThe right words for each head; an effect without gain is the fall of its baseline")
    effects, plain = [], score()
    for layer in range(1, LAYERS + 1):
        single = [heads(layer, [head]) for head in range(H)]
        effects.append([effect(score, keep, chosen) for chosen in single])
        show(f"layer {layer}, effect, over equal weights", effects[-1])
        show(f"layer {layer}, gain over no masks", [score(keep, masked=c) - plain for c in single])
    best = select_heads(score, keep, effects)

    source, target = documents(TEST)
    keep = oracle_keep(source, target)
    others = ~keep & (source != END)  # the control: the words of the facts that are not wanted
    rows = {
        "no heads": (keep, NONE),
        "all of layer 1, the bottom": (keep, heads(1, range(H))),
        f"chosen: {best.sum()} of layer {best.any(-1).nonzero().item() + 1}": (keep, best),
        "the same, a fifth of the words wrong": (with_errors(keep, source, 0.2), best),
        "the same, the unwanted words": (others, best),
    }
    print(f"\n{'Masked; held-out documents':42}{'wanted, %':>9}{'true, %':>9}")
    shares = []
    for name, (seen, masked) in rows.items():
        written = write(bart, source, seen, masked=masked)
        shares.append(share_of(written, target))
        show(name, (shares[-1], share_of(written, source)))
    low, high = min(shares), max(shares)
    print(f"The same weights: by what heads may see, {low:.0f} to {high:.0f} % is wanted.")


if __name__ == "__main__":
    main()
