"""The paper's method in one file: Manakul & Gales, EMNLP 2021, Sparsity and Sentence Structure in
Encoder-Decoder Attention of Summarization Systems, https://aclanthology.org/2021.emnlp-main.739/

For every word that it writes, a decoder attends to all words of the source. Here each layer attends
to the words of the r sentences that get most of its attention. To know these it would have to read
all words first, so a map is trained to name them from one vector a sentence.

In the paper: on news a BART that reads 5 of 29 sentences at a step loses 0.1 of 44.03 ROUGE-1 if
the ideal ones are chosen, 1.0 by the map alone, 0.3 after integrated training, 5.0 at random. Left
out here: how decoding time grows (Eq. 1), training for sparse attention (Eq. 5), a formula in the
map's place (Eq. 16-19). Integrated training (Eq. 12) is here and not run: its gain varied by seed.

`python one.py`, 27 CPU seconds: a small BART learns to copy three of eight sentences, reading all;
then a map learns to choose the sentence of each step. The last lines compare choices.
B documents, S source tokens, V symbols; D1, D2, ...: deviations (PAPER.md).
"""

import copy
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

N = 8  # sentences of a document
J = 6  # tokens of a sentence: its letters and the sign at its end
MARKED = 3  # sentences that are to be copied
D = 64  # width of the model
H = 4  # heads
INNER = 128  # width inside the feed-forward layers
UPDATES = 600  # of BART
MAP_UPDATES = 60  # of the map
READ = (1, 2)  # r: how many sentences a step reads, in each column of the table
seed = 0

T = MARKED * (J - 1)  # steps: the letters of a summary
K = D // H  # width of a head
SYMBOLS = "    .!abcdefghijklmnopqrstuvwxyz"  # a letter is a word; blanks: BART's special tokens
V = len(SYMBOLS)
END, STOP, MARK, LETTER = 2, SYMBOLS.index("."), SYMBOLS.index("!"), SYMBOLS.index("a")
EPSILON = 1e-8  # D10: inside every logarithm of an attention weight

# 1. The idea. What sentences get: saliency, and the r that get most
# The old way: each step's query meets every word of every sentence. On news (870 tokens in, 67 out)
# these are 870 * 67 = 58,000 products a head. They cannot be made at once: each step waits for the
# word before. The words of 5 of 29 sentences leave 10,000; the map adds 29 * 67 = 1,900 and a GRU
# that reads all 870 tokens. Products are not time: here full attention is faster (README.md).


def word_attention(queries, keys, keep):  # (B, H, T, K), (B, H, S, K), bool: (B, 1, T, S) or one
    # Eq. (2) and, with the words of r sentences alone, Eq. (3): the kept weights sum to 1 (D12).
    return (queries @ keys.mT).masked_fill(~keep, float("-inf")).softmax(-1)  # (B, H, T, S)


def saliency(weights):  # (B, H, T, S)
    # Eq. (4): a sentence is as salient as its words together; the softmax has divided by Z_m.
    return weights.unflatten(-1, (N, J)).sum(-1)  # (B, H, T, N)


def top_r(scores, r):  # (B, T, N), heads averaged (A.4): a layer's heads read the same sentences
    # Eq. (6): a yes or no for each sentence, so no gradient passes.
    best = scores.topk(r, -1).indices  # (B, T, r)
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, best, True)  # (B, T, N)


# The map: what sentences will get, from one vector for each


class SentenceEncoder(nn.Module):
    """A bidirectional GRU of two layers: it reads each sentence once, whatever is written later."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(D, D, num_layers=2, bidirectional=True, batch_first=True)
        self.projection = nn.Linear(2 * D, D)  # D3: not in the paper, but in its released code
        for weight in self.parameters():
            nn.init.xavier_normal_(weight) if weight.dim() > 1 else nn.init.zeros_(weight)

    def forward(self, states):  # (B, S, D); D4: the encoder's states, not the keys of each layer
        words = states.unflatten(1, (N, J)).flatten(0, 1)  # (B N, J, D)
        # Eq. (10): the forward state at the last word and the backward state at the first.
        _, last = self.gru(words)  # (4, B N, D)
        both = torch.cat([last[-2], last[-1]], -1)  # (B N, 2 D)
        return self.projection(both).unflatten(0, (-1, N))  # (B, N, D)


def approximate_attention(queries, sentence_keys):  # (B, H, T, K), (B, H, N, K)
    # Eq. (7): one product for each sentence in the place of one for each word.
    return (queries @ sentence_keys.mT).softmax(-1)  # (B, H, T, N)


# Training the map to imitate saliency


class SentenceAttention(NamedTuple):
    """What the sentences get in one layer, before any choice."""

    exact: Tensor  # (B, H, T, N) saliency
    approximate: Tensor | None  # (B, H, T, N) by the map; None: the model has none


def sharpen(exact, temperature=0.5):  # (B, H, T, N)
    # Eq. (15): each share squared, so the largest stands out: the map learns which sentence wins.
    return ((exact + EPSILON).log() / temperature).softmax(-1)


def kl_loss(record):  # of each layer its SentenceAttention
    layers = []
    for layer in record:
        target = sharpen(layer.exact)
        # Eq. (11): how many nats the map is off; D5: a mean over layers, heads and steps.
        nats = target * ((target + EPSILON).log() - (layer.approximate + EPSILON).log())
        layers.append(nats.sum(-1).mean())
    return torch.stack(layers).mean()


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
        queries = split(self.q_proj(x)) * K**-0.5
        return queries, split(self.k_proj(memory)), split(self.v_proj(memory))

    def output(self, weights, values):  # (B, H, T, S), (B, H, S, K)
        return self.out_proj((weights @ values).transpose(1, 2).flatten(2))  # (B, T, D)

    def forward(self, x, keep):  # to x itself; keep: (T, T)
        queries, keys, values = self.project(x, x)
        return self.output(word_attention(queries, keys, keep), values)


class SentenceSparseAttention(Attention):
    """Encoder-decoder attention of one layer, with maps W^Q and W^K of its own."""

    def add_sentence_maps(self):
        # A.1: they begin as the maps for words: a sentence's vector is seen as a word would be.
        self.sentence_q, self.sentence_k = copy.deepcopy(self.q_proj), copy.deepcopy(self.k_proj)

    def approximate(self, x, vectors):  # (B, T, D), (B, N, D)
        # Eq. (8), (9): f1 of the decoder's state (D4), f2 of the vector, in a space of their own.
        queries = split(self.sentence_q(x)) * K**-0.5
        return approximate_attention(queries, split(self.sentence_k(vectors)))  # (B, H, T, N)

    def scores(self, mode, attended):  # by which the r sentences are chosen
        if mode == "random":
            return torch.rand_like(attended.exact[:, :1])  # (B, 1, T, N), anew for each step
        return {"ideal": attended.exact, "approx": attended.approximate}[mode]  # (B, H, T, N)

    def forward(self, x, states, vectors, mode, r):  # (B, T, D), (B, S, D), (B, N, D) or None
        queries, keys, values = self.project(x, states)
        weights = word_attention(queries, keys, torch.tensor(True))  # (B, H, T, S)
        approximate = None if vectors is None else self.approximate(x, vectors)
        attended = SentenceAttention(saliency(weights), approximate)
        if mode != "full":
            keep = top_r(self.scores(mode, attended).mean(1), r)  # (B, T, N)
            # A mask saves nothing; the package's fast_attention.py reads the kept words alone.
            keep_words = keep.repeat_interleave(J, -1).unsqueeze(1)  # (B, 1, T, S)
            weights = word_attention(queries, keys, keep_words)
        return self.output(weights, values), attended


class Layer(nn.Module):
    def __init__(self, is_decoder):
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = Attention(), nn.LayerNorm(D)
        if is_decoder:
            self.encoder_attn = SentenceSparseAttention()
            self.encoder_attn_layer_norm = nn.LayerNorm(D)
        self.fc1, self.fc2 = nn.Linear(D, INNER), nn.Linear(INNER, D)
        self.final_layer_norm = nn.LayerNorm(D)

    def forward(self, x, keep, *source):  # (B, L, D), (L, L); decoder: states, vectors, mode, r
        x = self.self_attn_layer_norm(x + self.self_attn(x, keep))
        attended = None
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
        x = self.layernorm_embedding(x + positions)
        record = []
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


def documents(count):  # sources (B, S), what the decoder reads (B, T), targets (B, T)
    # Letters, and at a sentence's end "." or, in the MARKED ones that are to be copied, "!".
    words = torch.randint(LETTER, V, (count, N, J - 1))
    marked = torch.rand(count, N).topk(MARKED).indices.sort().values  # (B, MARKED)
    signs = torch.full((count, N, 1), STOP).scatter(1, marked.unsqueeze(-1), MARK)
    target = words[torch.arange(count).unsqueeze(-1), marked].flatten(1)
    # D19: the decoder reads </s> and then the target.
    return torch.cat([words, signs], 2).flatten(1), F.pad(target, (1, -1), value=END), target


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
def written_right(model, source, target, mode, r):
    """Percentage of letters right, written greedily; each layer and step chooses r sentences."""
    written = torch.full((len(source), 1), END)
    for _ in range(T):
        logits, _ = model(source, written, mode, r)
        written = torch.cat([written, logits[:, -1:].argmax(-1)], 1)  # (B, 1 + step)
    return 100 * (written[:, 1:] == target).float().mean().item()


def check():
    """Refuse constants that do not go together, before anything is trained."""
    assert min(N, D, H, INNER, UPDATES, MAP_UPDATES) > 0, "all sizes and updates are at least 1"
    assert J > 1, f"J is {J}: a sentence has a letter and a sign at least"
    assert 1 <= MARKED <= N, f"MARKED is {MARKED}: of {N} sentences 1 to {N} can be marked"
    assert D % H == 0, f"D is {D}: {H} heads want a multiple of {H}"
    assert READ and all(1 <= r <= N for r in READ), f"READ is {READ}: of {N} sentences, 1 to {N}"


def main():
    check()
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = Bart()
    source, _, target = documents(200)  # to test with
    train(model, model.parameters(), UPDATES, "base")
    model.add_approximator()
    # Section 4.3, KL-only: theta~, the sentence encoder and all W^Q and W^K, learns alone.
    approximator = [weight for name, weight in model.named_parameters() if "sentence_" in name]
    train(model, approximator, MAP_UPDATES, "kl")
    # The ideal choice is no upper bound: the map's may write more letters right.
    names = {"full": "all sentences", "ideal": "those with the most attention, read to know"}
    names |= {"approx": "those of the learned map", "random": "random sentences"}
    print(f"{'per cent of letters right; each step reads':45}", *(f"{r} of {N:<3}" for r in READ))
    right = {m: [written_right(model, source, target, m, r) for r in READ] for m in names}
    for mode, shares in right.items():
        print(f"{names[mode]:45}", *(f"{share:6.0f}  " for share in shares))
    to_ideal, to_chance = (right["approx"][-1] - right[mode][-1] for mode in ("ideal", "random"))
    print(
        f"With {READ[-1]} of {N} the map has {to_ideal:+.0f} points against the ideal choice, "
        f"{to_chance:+.0f} against chance."
    )


if __name__ == "__main__":
    main()
