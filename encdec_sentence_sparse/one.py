"""The whole paper in one file: Manakul & Gales (2021), "Sparsity and Sentence Structure in
Encoder-Decoder Attention of
Summarization Systems", EMNLP, https://aclanthology.org/2021.emnlp-main.739/

For every word that it writes, a decoder attends to all words of the source. Here each layer attends
to the words of the r sentences that get most of its attention. To know these it would have to read
all words first, so a map is trained to name them from one vector a sentence. Integrated training is
a loss here, not run: its gain varied by seed.

B documents, S source tokens, N sentences of J tokens, T target steps, H heads, K head width, D = H
K width, V symbols.

`python one.py`, 27 CPU seconds: a small BART learns to copy three of eight sentences, reading all;
then a map learns to choose the sentence of each step. The last lines compare choices. D1, D2, ...:
deviations (PAPER.md).
"""

import copy

import torch
import torch.nn.functional as F
from torch import nn

seed = 0
# a word is one letter; the four blanks are BART's special tokens
SYMBOLS = "    .!abcdefghijklmnopqrstuvwxyz"
END, STOP, MARK, LETTER, V = (
    2,
    SYMBOLS.index("."),
    SYMBOLS.index("!"),
    SYMBOLS.index("a"),
    len(SYMBOLS),
)
N, J, T = 8, 6, 15  # sentences of a document, tokens of a sentence, words of a summary
# model width, heads, width inside the feed-forward layers, head width
D, H, INNER, K = 64, 4, 128, 16
EPSILON = 1e-8  # D10: inside every logarithm of an attention weight

# 1. The idea. What sentences get: saliency, and the r that get most
# The old way: each step's query meets every word of every sentence. On news (870 tokens in, 67 out)
# these are 58,000 products a head. They cannot be made at once: each step waits for the word
# before. 5 of 29 sentences leave 10,000.


# (B, H, T, K), (B, H, S, K), bool that broadcasts to (B, 1, T, S)
def word_attention(queries, keys, keep):
    # Eq. (2) and, with the words of r sentences alone, Eq. (3): the kept weights sum to 1 (D12).
    return (queries @ keys.mT).masked_fill(~keep, float("-inf")).softmax(-1)  # (B, H, T, S)


def saliency(weights):  # (B, H, T, S)
    # Eq. (4): a sentence is as salient as its words together; the softmax over words has divided by
    # Z_m already.
    return weights.unflatten(-1, (N, -1)).sum(-1)  # (B, H, T, N)


# (B, T, N), heads already averaged (A.4): all heads of a layer read the same sentences
def top_r(scores, r):
    # Eq. (6): a yes or no for each sentence, so no gradient passes.
    # (B, T, N)
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, scores.topk(r, -1).indices, True)


# The map: what sentences will get, from one vector for each


class SentenceEncoder(nn.Module):
    """A bidirectional GRU of two layers that reads each sentence once, whatever is written
    later.
    """

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(D, D, num_layers=2, bidirectional=True, batch_first=True)
        self.projection = nn.Linear(2 * D, D)  # D3: not in the paper, but in its released code
        for weight in self.parameters():
            nn.init.xavier_normal_(weight) if weight.dim() > 1 else nn.init.zeros_(weight)

    def forward(self, states):  # (B, S, D); D4: the encoder's states, not the keys of each layer
        words = states.unflatten(1, (N, -1)).flatten(0, 1)  # (B N, J, D)
        # Eq. (10): the forward state at the last word and the backward state at the first have both
        # read it all.
        _, last = self.gru(words)  # (4, B N, D)
        # (B, N, D)
        return self.projection(torch.cat([last[-2], last[-1]], -1)).unflatten(0, (-1, N))


def approximate_attention(queries, sentence_keys):  # (B, H, T, K), (B, H, N, K)
    # Eq. (7): one product for each sentence in the place of one for each word.
    return (queries @ sentence_keys.mT).softmax(-1)  # (B, H, T, N)


# Training the map to imitate saliency


def sharpen(exact, temperature=0.5):  # (B, H, T, N)
    # Eq. (15): each share squared, so the largest stands out: the map learns which sentence wins.
    return ((exact + EPSILON).log() / temperature).softmax(-1)


def kl_loss(record):  # for each layer the pair (exact, approximate), (B, H, T, N) each
    pairs = [(sharpen(exact), approximate) for exact, approximate in record]
    # Eq. (11): how many nats the map is off; D5: a mean over layers, heads and steps.
    return (
        torch.stack([t * ((t + EPSILON).log() - (a + EPSILON).log()) for t, a in pairs])
        .sum(-1)
        .mean()
    )


def objective(phase, cross_entropy, record):  # phase: "base", "kl" or "integrated"
    if phase != "integrated":
        return cross_entropy if phase == "base" else kl_loss(record)
    # Eq. (12): the decoder has to write with what the map lets it read, and the map has to follow
    # the decoder. Eq. (13), (14): one backward pass (D23). L_xent reaches the decoder alone,
    # because of Eq. (6); L_KL reaches both.
    return cross_entropy + 0.2 * kl_loss(record)  # lambda, A.5


# 2. The smallest BART around it, normalised after each sublayer; its parts have BART's names


def split(x):  # (B, L, D)
    return x.unflatten(-1, (H, K)).transpose(1, 2)  # (B, H, L, K). D1: sentence keys likewise


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(D, D) for _ in range(4))

    def project(self, x, memory):  # (B, T, D), (B, S, D)
        return (
            split(self.q_proj(x)) * K**-0.5,
            split(self.k_proj(memory)),
            split(self.v_proj(memory)),
        )

    def output(self, weights, values):  # (B, H, T, S), (B, H, S, K)
        return self.out_proj((weights @ values).transpose(1, 2).flatten(2))  # (B, T, D)

    def forward(self, x, keep):  # to x itself; keep: (T, T)
        queries, keys, values = self.project(x, x)
        return self.output(word_attention(queries, keys, keep), values)


class SentenceSparseAttention(Attention):
    """Encoder-decoder attention of one layer, with maps W^Q and W^K of its own."""

    def add_sentence_maps(self):
        # A.1: they begin as the maps for words, so that a sentence's vector is seen as a word would
        # be.
        self.sentence_q, self.sentence_k = copy.deepcopy(self.q_proj), copy.deepcopy(self.k_proj)

    def forward(self, x, states, vectors, mode, r):  # (B, T, D), (B, S, D), (B, N, D)
        queries, keys, values = self.project(x, states)
        weights = word_attention(queries, keys, torch.tensor(True))  # (B, H, T, S)
        scores = {
            "full": None,
            "ideal": saliency(weights),
            "random": torch.rand(len(x), 1, x.size(1), N),
        }
        if vectors is not None:
            # Eq. (8), (9): f1 of the decoder's state (D4) and f2 of the sentence's vector, in a
            # space of their own.
            maps = split(self.sentence_q(x)) * K**-0.5, split(self.sentence_k(vectors))
            scores["approx"] = approximate_attention(*maps)  # (B, H, T, N)
        if mode != "full":
            # (B, T, S)
            keep = top_r(scores[mode].mean(1), r).repeat_interleave(states.size(1) // N, -1)
            # As a mask this saves nothing; the package's fast_attention.py reads the kept words
            # alone.
            weights = word_attention(queries, keys, keep.unsqueeze(1))
        return self.output(weights, values), (scores["ideal"], scores.get("approx"))


class Layer(nn.Module):
    def __init__(self, is_decoder):
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = Attention(), nn.LayerNorm(D)
        if is_decoder:
            self.encoder_attn, self.encoder_attn_layer_norm = (
                SentenceSparseAttention(),
                nn.LayerNorm(D),
            )
        self.fc1, self.fc2, self.final_layer_norm = (
            nn.Linear(D, INNER),
            nn.Linear(INNER, D),
            nn.LayerNorm(D),
        )

    # (B, L, D), (L, L), and in the decoder states, vectors, mode, r
    def forward(self, x, keep, *source):
        x, attended = self.self_attn_layer_norm(x + self.self_attn(x, keep)), None
        if source:
            context, attended = self.encoder_attn(x, *source)
            x = self.encoder_attn_layer_norm(x + context)
        return self.final_layer_norm(x + self.fc2(F.gelu(self.fc1(x)))), attended


class Side(nn.Module):  # BART's encoder or decoder
    def __init__(self, layers, is_decoder):
        super().__init__()
        self.embed_positions, self.layernorm_embedding = nn.Embedding(N * J + 2, D), nn.LayerNorm(D)
        self.layers = nn.ModuleList(Layer(is_decoder) for _ in range(layers))
        self.is_decoder = is_decoder

    def forward(self, x, *source):  # (B, L, D)
        keep = torch.ones(x.size(1), x.size(1), dtype=torch.bool)
        keep = keep.tril() if self.is_decoder else keep  # a step sees what is written so far
        positions = self.embed_positions.weight[2 : 2 + x.size(1)]  # BART's begin at 2
        x, record = self.layernorm_embedding(x + positions), []
        for layer in self.layers:
            x, attended = layer(x, keep, *source)
            record.append(attended)
        return x, record


class Bart(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared, self.encoder, self.decoder = nn.Embedding(V, D), Side(1, False), Side(2, True)
        self.sentence_encoder = None
        for name, weight in self.named_parameters():
            if "norm" not in name:
                nn.init.normal_(weight, std=0.1) if weight.dim() > 1 else nn.init.zeros_(weight)

    def add_approximator(self):
        self.sentence_encoder = SentenceEncoder()
        for layer in self.decoder.layers:
            layer.encoder_attn.add_sentence_maps()

    def forward(self, source, target_input, mode="full", r=1):  # (B, S), (B, T)
        states, _ = self.encoder(self.shared(source))  # (B, S, D)
        vectors = self.sentence_encoder(states) if self.sentence_encoder else None  # (B, N, D)
        x, record = self.decoder(self.shared(target_input), states, vectors, mode, r)  # (B, T, D)
        return F.linear(x, self.shared.weight), record  # (B, T, V)


# 3. Data, training, effect


def documents(count):
    """Sources (count, 48): 8 sentences of 5 letters, of which 3 end with "!"; targets (count, 15):
    the letters of these
    3; and what the decoder reads, the targets one step later behind </s> (D19).
    """
    words = torch.randint(LETTER, V, (count, N, J - 1))
    marked = torch.rand(count, N).topk(3).indices.sort().values  # (count, 3)
    ends = torch.full((count, N, 1), STOP).scatter(1, marked.unsqueeze(-1), MARK)
    target = words[torch.arange(count).unsqueeze(-1), marked].flatten(1)
    return torch.cat([words, ends], 2).flatten(1), F.pad(target, (1, -1), value=END), target


def train(model, parameters, updates, phase, mode="full", r=1, rate=3e-3):
    model.requires_grad_(False)
    parameters = [parameter.requires_grad_(True) for parameter in parameters]
    optimizer = torch.optim.Adam(parameters, rate)
    for _ in range(updates):
        source, target_input, target = documents(32)
        logits, record = model(source, target_input, mode, r)
        loss = objective(phase, F.cross_entropy(logits.mT, target), record)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def written_right(model, test, mode, r):
    """Percentage of right letters, written greedily; every layer and step chooses its r
    sentences.
    """
    source, _, target = test
    written = torch.full((len(source), 1), END)
    for _ in range(T):
        logits, _ = model(source, written, mode, r)
        written = torch.cat([written, logits[:, -1:].argmax(-1)], 1)  # (B, 1 + step)
    return 100 * (written[:, 1:] == target).float().mean().item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model, test = Bart(), documents(200)
    train(model, model.parameters(), 600, "base")
    model.add_approximator()
    # Section 4.3, KL-only: theta~, the sentence encoder with W^Q and W^K of each layer, learns
    # alone.
    train(
        model,
        [weight for name, weight in model.named_parameters() if "sentence_" in name],
        60,
        "kl",
    )
    print(f"{'per cent of letters right; each step reads':46}1 of 8   2 of 8")
    names = {"full": "all sentences", "ideal": "those with the most attention, read to know"}
    names |= {"approx": "those of the learned map", "random": "random sentences"}
    right = {mode: [written_right(model, test, mode, r) for r in (1, 2)] for mode in names}
    for mode, (one, two) in right.items():
        print(f"{names[mode]:46}{one:6.0f}{two:9.0f}")
    to_ideal, to_chance = (right["approx"][1] - right[mode][1] for mode in ("ideal", "random"))
    print(
        f"With 2 of 8 the map has {to_ideal:+.0f} points against the ideal choice, "
        f"{to_chance:+.0f} against chance."
    )


if __name__ == "__main__":
    main()
