# %% [markdown]
# # A network learns which words need not be read
# A decoder that translates or summarises looks back, at every step, at the encoding of every source word.
# Can the network itself find out which encodings nobody needs, and drop them before the decoder starts?
#
# Paper: [On Sparsifying Encoder Outputs in Sequence-to-Sequence Models](https://aclanthology.org/2021.findings-acl.255/),
# Zhang, Titov & Sennrich (2021).

# %%
import sys

sys.path.insert(0, "..")  # the notebook lies in the package's folder

import matplotlib.pyplot as plt
import torch

from l0drop import (
    L0Drop,
    ModelConfig,
    Transformer,
    compress,
    dense_memory,
    expected_gates,
    l0_penalty,
    objective,
    open_probability,
    sample_gates,
)

torch.set_num_threads(1)
torch.set_printoptions(precision=3, sci_mode=False)
seed = 0
torch.manual_seed(seed)

SPECIAL = ["", "", ".", ""]  # padding, start, end, unknown: the ids that the package reserves
FILLER = "the a of to in and is it on at as by or so an if".split()
NOUNS = (
    "lake wolf king ship tree gold horse river tower bread knife storm crown apple glass stone ghost paper moon bell"
)
WORDS = SPECIAL + FILLER + NOUNS.split()  # a vocabulary of 40
FIRST, END, LENGTH, WANTED = 20, 2, 20, 4  # the first noun, the full stop, words, nouns


def sentences(count, generator):
    """Sources (count, 21): 4 content words among 16 words of filler. Targets (count, 5): the content words. Both end."""
    filler = torch.randint(len(SPECIAL), FIRST, (count, LENGTH), generator=generator)
    content = torch.randint(FIRST, len(WORDS), (count, WANTED), generator=generator)
    places = torch.rand(count, LENGTH, generator=generator).topk(WANTED).indices.sort().values
    end = torch.full((count, 1), END)
    return torch.cat([filler.scatter(1, places, content), end], 1), torch.cat([content, end], 1)


source, target = (rows[0].tolist() for rows in sentences(1, torch.Generator().manual_seed(seed)))
axes = plt.figure(figsize=(8, 2.2), layout="constrained").gca()
for step, word in enumerate(target):
    x = 4 + 3 * step
    axes.text(x, -0.08, WORDS[word], ha="center", va="top", color="tab:blue", weight="bold")
    for place, other in enumerate(source):
        axes.plot([place, x], [1, 0], color="tab:blue" if other == word else "0.8", zorder=1 + (other == word), lw=1)
for place, word in enumerate(source):
    axes.text(place, 1.08, WORDS[word], ha="center", size=8, weight="bold" if word >= FIRST else "normal")
axes.set(
    ylim=(-0.3, 1.3), title=f"To write {len(target)} tokens, a decoder reads {len(source)} encodings at every step"
)
axes.axis("off")
plt.show()

# %% [markdown]
# The task of this lesson: read 20 words and a full stop, write the four nouns and a full stop. Nobody tells the network
# which of its 40 words are nouns. Guess: how many of the 21 encodings can go before it makes more mistakes?
#
# ## 1. A gate for every encoding
# The encoder turns word $i$ into a vector $x_i$, its *encoding*. A *gate* $g_i$ between 0 and 1 multiplies it. A gate of
# 0 is closed: the encoding is pruned. A learned vector $w$ looks at the encoding and says how open the gate should be:
# $\log\alpha_i$, a large number for open, a negative one for closed.
# $$\mathrm{L0Drop}(x_i) = g_i x_i \quad (4) \qquad \log\alpha_i = x_i w^T \quad (9)$$
# When the trained network is used, the gate is a curve that is cut off at 0 and at 1. Here $\sigma$ is the sigmoid,
# $\sigma(z) = 1 / (1 + e^{-z})$, and $\epsilon = 0.1$ says how far the curve is stretched beyond 0 and 1:
# $$\hat g_i = \min(1, \max(0, \sigma(\log\alpha_i)(1 + 2\epsilon) - \epsilon)) \quad (13)$$
# Take $w = (1, -1)$ and the encodings $(4, 0)$, $(1, 1)$, $(0, 4)$. Which one is pruned?

# %%
layer = L0Drop(2, bias=False).eval()
layer.predictor.weight.data = torch.tensor([[1.0, -1.0]])
gated, gates, log_alpha = layer(torch.tensor([[[4.0, 0.0], [1.0, 1.0], [0.0, 4.0]]]))
print("log alpha ", log_alpha[0].tolist())
print("gates     ", gates[0].tolist())
print("gated     ", gated[0].tolist())

# %% [markdown]
# The third: $\sigma(-4) = 0.018$, and $0.018 \cdot 1.2 - 0.1$ is below 0. In the middle $0.5 \cdot 1.2 - 0.1 = 0.5$.
#
# ## 2. Gates that roll dice
# A closed gate hides its word: training would never see that the word was needed. So in training every gate is drawn at
# random, and $\log\alpha_i$ only loads the dice. Draw $u$ between 0 and 1. $\beta = 2/3$, the *temperature*, pushes the
# sample $s_i$ towards 0 and 1. Then stretch it and cut it off, as before:
# $$s_i = \sigma\Big(\big(\log\tfrac{u}{1-u} + \log\alpha_i\big) / \beta\Big) \quad (6) \qquad
# g_i = \min(1, \max(0, s_i (1 + 2\epsilon) - \epsilon)) \quad (7, 8)$$
# For $\log\alpha_i = 0$ and $u = 0.2$: $u/(1-u) = 1/4$, its power $1/\beta = 1.5$ is $1/8$, so $s_i = 1/9$ and $g_i = 0.033$.
# What happens at $u = 0.1$, where $s_i = 1/28$?

# %%
print(sample_gates(torch.zeros(5), uniform=torch.tensor([0.1, 0.2, 0.5, 0.8, 0.9])))

# %% [markdown]
# It is closed, exactly. How often does that happen? The chance $p(g_i = 0)$ has a closed form, so the number of gates
# that we expect to be open is a sum that can be made smaller by training, no dice needed:
# $$p(g_i = 0) = \sigma\big(\beta \log\tfrac{\epsilon}{1 + \epsilon} - \log\alpha_i\big) \qquad
# L_0 = \sum_i 1 - p(g_i = 0) \quad (10)$$
# For $\log\alpha_i = 0$ a gate is open with chance $1 / (1 + 11^{-2/3}) = 0.832$. Two views: the formula, and 100,000 draws.

# %%
log_alpha = torch.tensor([[-4.0, -1.0, 0.0, 4.0]])
draws = sample_gates(log_alpha.expand(100_000, -1))
print("gate in use   ", expected_gates(log_alpha)[0])
print("chance of open", open_probability(log_alpha)[0])
print("drawn open    ", (draws > 0).float().mean(0))
print("L0, their sum ", l0_penalty(log_alpha, torch.ones(1, 4, dtype=torch.bool), "sum"))
assert torch.allclose((draws > 0).float().mean(0), open_probability(log_alpha)[0], atol=0.01)

# %% [markdown]
# Training now makes two things small at once: the usual loss of the words that are written, $L_\mathrm{MLE}$, and the
# number of open gates. $\lambda$ is the price of an open gate (`objective` below; it takes means over tokens for sums):
# $$L = L_\mathrm{MLE} + \lambda L_0 \quad (12)$$
#
# ## 3. Pruned rows need no place
# Attention compares the decoder's query $q$ with every row, and a pruned row is all zeros. So all pruned rows get the same
# weight, and *one* zero row that counts $c$ times can stand for them (Algorithm 1). With $e_i$ for row $i$ times $q$:
# $$a_i = c_i \exp(e_i) / \textstyle\sum_k c_k \exp(e_k)$$
# Four rows of one number, $q = 1$: three zeros and $\log 3$. The weights are $1, 1, 3, 1$ over 6. What if one row counts 3?

# %%
rows, is_word = torch.tensor([1.0, 1.0, 3.0, 1.0]).log().view(1, 4, 1), torch.ones(1, 4, dtype=torch.bool)
dense = dense_memory(rows, is_word)  # all rows, each counts once
short = compress(rows, torch.tensor([[0.0, 0.0, 1.0, 0.0]]), is_word)  # the gates: only the third row is open
for name, memory in {"all rows   ": dense, "Algorithm 1": short}.items():
    logits = memory.states[..., 0] + memory.log_counts  # e_i + log c_i, as c exp(e) = exp(e + log c)
    print(name, "counts", memory.log_counts.exp()[0], "weights", logits.softmax(-1)[0])

# %% [markdown]
# Two rows instead of four, and $\log 3$ keeps its weight of one half. The zeros share the other half.
#
# ## 4. The effect
# Two Transformers of one encoder and one decoder layer start from the same weights and see the same sentences. One has
# gates. They are held open for 300 updates, until the decoder can read. Then they roll, and $\lambda = 1$.
# Guess: how many of the 16 words of filler go, how many of the nouns, and does that cost mistakes?


# %%
def start_after(target):
    """What the decoder reads while it learns to write `target`: a start symbol (id 1), then all tokens but the last."""
    return torch.cat([torch.ones_like(target[:, :1]), target[:, :-1]], 1)


@torch.no_grad()
def measure(model, rule_keep=None):
    """Percentages on 500 new sentences: pruned filler, pruned nouns, tokens told right after the right ones before."""
    source, target = sentences(500, torch.Generator().manual_seed(seed + 1000))
    logits, encoding = model.eval()(source, start_after(target), rule_keep)
    is_pruned = encoding.gates[-1] == 0 if encoding.gates else source < 0  # no id is: nothing is pruned
    is_pruned = is_pruned if rule_keep is None else ~rule_keep
    is_filler, is_noun = (source >= len(SPECIAL)) & (source < FIRST), source >= FIRST
    shares = is_pruned[is_filler], is_pruned[is_noun], logits.argmax(-1) == target
    return [100 * share.float().mean().item() for share in shares]


def train(gates, price=1.0, held_open=300, updates=800):
    torch.manual_seed(seed)
    sizes = dict(vocabulary=len(WORDS), width=32, feed_forward=64, heads=2, encoder_layers=1, decoder_layers=1)
    model = Transformer(ModelConfig(**sizes, residual_dropout=0.0, attention_dropout=0.0, l0drop=gates))
    optimizer, generator = torch.optim.Adam(model.parameters(), 3e-3), torch.Generator().manual_seed(seed)
    print(f"{'with gates' if model.l0drop else 'without gates'}:  update  filler pruned  nouns pruned  tokens right")
    for update in range(updates):
        for layer in model.train().l0drop:
            layer.held_open = update < held_open
        source, target = sentences(32, generator)
        logits, encoding = model(source, start_after(target))
        loss = objective(logits, target, encoding, price * (update >= held_open)).mean()  # Eq. (12)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (update + 1) % 100 == 0:
            print("{:22}{:13.0f} %{:12.0f} %{:12.0f} %".format(update + 1, *measure(model)))
    return model


control, model = train("none"), train("output")

# %% [markdown]
# Nobody named the nouns: a gate that stays closed saves its price, and only a noun's absence costs more than that.
# Is the choice any good? A second control keeps 4 *random* rows for the decoder without gates, as many as the nouns.

# %%
at_random = torch.rand(500, LENGTH + 1).argsort(-1) < WANTED  # True at 4 places of each sentence
results = {"without gates": measure(control), "with gates": measure(model), "4 random rows": measure(control, at_random)}
print(f"{'':14}filler pruned  nouns pruned  tokens right")
for system, shares in results.items():
    print("{:14}{:11.0f} %{:12.0f} %{:12.0f} %".format(system, *shares))
filler, nouns, right = results["with gates"]
assert filler > 90 and nouns < 10
assert right > 85 and right > results["without gates"][2] - 5
assert results["4 random rows"][2] < 60

# %% [markdown]
# Two views again, now in the trained network: the decoder reads all 21 rows with their zeros, or Algorithm 1's few.

# %%
source, target = sentences(500, torch.Generator().manual_seed(seed + 1000))
with torch.no_grad():
    encoding = model.encode(source)
    zeros, few = (model.make_memory(encoding, prune=prune) for prune in (False, True))
    logits = [model.decode(start_after(target), model.project(memory))[0] for memory in (zeros, few)]
print(f"{zeros.states.size(1)} rows or {few.states.size(1)}: the logits differ by {(logits[0] - logits[1]).abs().max():.0e}")
assert few.states.size(1) < 10 and torch.allclose(*logits, atol=1e-4)

# %% [markdown]
# ## 5. The picture that stays

# %% tags=["picture"]
axes = plt.figure(figsize=(8, 3.2), layout="constrained").gca()
outputs = generate(model, source[:7]).hypotheses.tokens  # written from the rows that are left, nothing given
for line, (words, gates, output, wanted) in enumerate(zip(source, encoding.gates[-1], outputs, target)):
    column = 0
    for word, gate in zip(words, gates):
        style = {"color": "0.75"} if gate == 0 else {"color": "black", "weight": "bold"}
        axes.text(column, line, WORDS[word], family="monospace", size=9, **style)
        column += len(WORDS[word]) + 1
    column = 74
    for place, word in enumerate(output.tolist()[:WANTED]):
        colour = "tab:blue" if word == wanted[place] else "tab:red"
        axes.text(column, line, WORDS[word], family="monospace", size=9, color=colour)
        column += len(WORDS[word]) + 1
axes.text(0, -1, "source: grey is pruned, black is what the decoder reads", size=9)
axes.text(74, -1, "it writes", size=9, color="tab:blue")
axes.set(xlim=(0, 97), ylim=(6.5, -1.7), title="Gates learned which words the decoder need not read")
axes.axis("off")
plt.show()
