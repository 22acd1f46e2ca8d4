# %% [markdown]
# # A network learns which words its decoder need not read
# A decoder looks, at every step, at the encoding of every source word. Can the network find out
# which encodings nobody needs, and drop them before? By Zhang et al. (2021),
# [here](https://aclanthology.org/2021.findings-acl.255/).
# %%
import importlib
import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch

# a notebook runs in its folder
folder = Path(__file__).resolve().parent if "__file__" in globals() else Path.cwd()
(folder / "one.py").exists() or sys.exit(
    "this lesson wants the folder it came from: open it where one.py lies"
)
sys.path.insert(0, str(folder.parent))
l0drop = importlib.import_module(folder.name)  # the package, whatever its folder is called
# the paper in one file: task, Transformer, training
one = importlib.import_module(f"{folder.name}.one")
torch.set_num_threads(1)
seed = 0
one.seed, WORDS = seed, one.WORDS
test = one.sentences(500, torch.Generator().manual_seed(seed + 1000))
source, written, target = test
print(
    "source:",
    *(WORDS[word] for word in source[0]),
    "  target:",
    *(WORDS[word] for word in target[0]),
)
# %% [markdown]
# The task: read 20 words and a full stop; write the four nouns, each with its article, and a full
# stop. Nobody tells the network which words it needs. Guess: how many of the 21 encodings can go
# before it makes mistakes? 13?
# ## 1. A gate for every encoding
# The encoder turns word $i$ into a vector $x_i$, its *encoding*. A *gate* $g_i$ between 0 and 1
# multiplies it. At 0 the gate is closed: the encoding is *pruned*. A learned vector $w$ says how
# open the gate of an encoding is, by a number $\log\alpha_i$, large for open, negative for closed:
# $$\mathrm{L0Drop}(x_i) = g_i x_i \quad (4) \qquad\qquad \log\alpha_i = x_i w^T \quad (9)$$
# After training it is a sigmoid, $\sigma(z) = 1 / (1 + e^{-z})$, stretched by $\epsilon = 0.1$
# beyond 0 and 1, cut off:
# $$\hat g_i = \min(1, \max(0, \sigma(\log\alpha_i)(1 + 2\epsilon) - \epsilon)) \quad (13)$$
# Take $w = (1, -1)$ and the encodings $(4, 0)$, $(1, 1)$, $(0, 4)$. Which one is pruned?
# %%
layer = l0drop.L0Drop(2, bias=False).eval()
layer.predictor.weight.data = torch.tensor([[1.0, -1.0]])
gated, gates, log_alpha = layer(torch.tensor([[[4.0, 0.0], [1.0, 1.0], [0.0, 4.0]]]))
print("log alpha", log_alpha[0].tolist(), " gates", gates[0].tolist(), " gated", gated[0].tolist())
# %% [markdown]
# The third: $\sigma(-4) = 0.018$, and $0.018 \cdot 1.2 - 0.1$ is below 0. For the second, $0.5
# \cdot 1.2 - 0.1 = 0.5$.
# ## 2. Gates that roll dice
# Behind a gate that is always closed, training would never see that the word was needed. So
# training *draws* each gate, and $\log\alpha_i$ loads the dice. Draw $u$ between 0 and 1. A
# *temperature* $\beta = 2/3$ pushes the sample $s_i$ towards 0 and 1. Stretch it and cut it off as
# before:
# $$s_i = \sigma\Big(\big(\log\tfrac{u}{1-u} + \log\alpha_i\big) / \beta\Big) \quad (6) \qquad
# g_i = \min(1, \max(0, s_i (1 + 2\epsilon) - \epsilon)) \quad (7, 8)$$
# Let $\log\alpha_i = 0$. For $u = 0.2$ we have $u/(1-u) = 1/4$, to the power $1/\beta = 1.5$ that
# is $1/8$, so $s_i = 1/9$ and $g_i = 0.033$. For $u = 0.1$ we have $s_i = 1/28$. Is that gate
# closed?
# %%
print(l0drop.sample_gates(torch.zeros(5), uniform=torch.tensor([0.1, 0.2, 0.5, 0.8, 0.9])))
# %% [markdown]
# Closed, exactly. We know the chance $p(g_i = 0)$ of that, and so the number of gates that we
# expect to be open:
# $$p(g_i = 0) = \sigma\big(\beta \log\tfrac{\epsilon}{1 + \epsilon} - \log\alpha_i\big) \qquad
# L_0 = \sum_i 1 - p(g_i = 0) \quad (10)$$
# For $\log\alpha_i = 0$ a gate is open with chance $1 / (1 + 11^{-2/3}) = 0.832$. Two views:
# formula, 100,000 draws.
# %%
log_alpha = torch.tensor([[-4.0, -1.0, 0.0, 4.0]])
formula, draws = (
    l0drop.open_probability(log_alpha)[0],
    l0drop.sample_gates(log_alpha.expand(100_000, -1)) > 0,
)
print("chance of open", formula, " drawn open", draws.float().mean(0))
gap = (draws.float().mean(0) - formula).abs().max().item()
assert gap < 0.01, f"the formula's chance of an open gate and the draws' differ by {gap:.3f}"
# %% [markdown]
# Training lowers the loss of the written words, $L_\mathrm{MLE}$, and the number of open gates, at
# $\lambda$ for each (the code takes means over tokens instead of sums):
# $$L = L_\mathrm{MLE} + \lambda L_0 \quad (12)$$
# ## 3. Pruned rows need no room
# Attention multiplies the decoder's *query* with each row; $e_i$ is the result for row $i$. All
# pruned rows are zeros, so all get the same weight $a_i$. *One* zero row that counts $c$ times can
# stand for them (Algorithm 1):
# $$a_i = c_i \exp(e_i) / \textstyle\sum_k c_k \exp(e_k)$$
# Four rows of one number, and the query is 1: $\log 3$ and three zeros. The weights are 3, 1, 1, 1,
# divided by 6. Now one zero row counts 3. What does $\log 3$ get?
# %%
# keep: no padding
rows, keep = torch.tensor([3.0, 1.0, 1.0, 1.0]).log().view(1, 4, 1), torch.ones(1, 4) > 0
for memory in (
    l0drop.dense_memory(rows, keep),
    l0drop.compress(rows, torch.tensor([[1.0, 0.0, 0.0, 0.0]]), keep),
):
    logits = memory.states[..., 0] + memory.log_counts  # c exp(e) = exp(e + log c)
    print("counts", memory.log_counts.exp()[0].tolist(), " weights", logits.softmax(-1)[0])

# %% [markdown]
# One half, as before, from two rows instead of four.
# ## 4. The effect
# As in the paper's fine-tuning, a trained Transformer goes on with gates. Here each begins at 0.22,
# since $\log\alpha_i = -1$, and $\lambda = 2$ (the paper's is at most 1.5). Filler costs nothing to
# prune. The articles? Closing their four gates of 21 saves $2 \cdot 4/21 = 0.38$. If the decoder
# then guesses them (2 choices, 4 of 9 words), it loses $4/9 \cdot \ln 2 = 0.31$: worth it. Guessing
# nouns (16 choices) loses $4/9 \cdot \ln 16 = 1.23$: not worth it. Guess: when the encodings of all
# articles are gone, how many articles will be written right? Half?
# %%
moments = (0, 20, 30, 40, 60, 80, 120, 160, 200, 300, 400)
base, _ = one.train(400)
model, history = one.train(500, base, has_gates=True, moments=moments, test=test)
history[500] = one.measure(model, test)
one.show({f"update {update}": measured for update, measured in history.items()})
by_chance = min(measured.articles_right for measured in history.values())
# %% [markdown]
# When their encodings go, the articles are right by chance. Then the encoder finds another way: the
# information is *rerouted*. Or was it there all the time? The *control* is the same model without
# gates, trained equally long. In the second row its decoder may not read the articles' encodings.
# In the rows "exchanged" the nouns' encodings, and no others, are from the same sentence with "a"
# for "the" and "the" for "a". Guess: which articles will then be written?
# %%
control, _ = one.train(500, base)
other = (one.A + one.THE - source).where(one.is_article(source), source)
results = {
    "no gates": one.measure(control, test),
    "articles left out": one.measure(control, test, leaves_out=True),
    "no gates, exchanged": one.measure(control, test, nouns_from=other),
    "gates": one.measure(model, test),
    "gates, exchanged": one.measure(model, test, nouns_from=other),
}
one.show(results)
filler, articles, nouns = results["gates"][2:5]
_, left_out, unmoved, right, moved = (each.articles_right for each in results.values())
assert nouns + 50 < min(filler, articles), (
    f"pruned: {filler:.0f} % fillers, {articles:.0f} articles, {nouns:.0f} nouns"
)
assert right > by_chance + 24, (
    f"articles right: {right:.0f} % in the end, {by_chance:.0f} when they were pruned"
)
assert right > left_out + 24, (
    f"articles that are not read: {right:.0f} % right with gates, {left_out:.0f} without"
)
assert unmoved > moved + 50, (
    f"articles as before, nouns exchanged: {moved:.0f} % with gates, {unmoved:.0f} without"
)
# %% [markdown]
# The model that was trained with gates writes articles whose encodings it does not read. It reads
# them from the nouns: with the exchanged encodings it writes the other articles. So 17 of 21
# encodings can go, not 13. (Training does it: one that is trained while the articles are left out
# by rule learns it, too, as the end of `one.py` shows. In the paper such rules do as well on
# translations, and worse on summaries.)
# ## 5. The picture that stays
# %% tags=["picture"]
gates, output = history[500][:2]
states, _, _ = model.encode(source)  # all rows, or Algorithm 1's few
memories = (states, torch.ones(source.shape)), one.compress(states, gates, source > 0)
dense, few = (model.decode(written, *memory).detach() for memory in memories)
rows, difference = memories[1][0].size(1), (dense - few).abs().max().item()
print("rows:", source.size(1), rows, f" largest difference: {difference:.6f}")
assert rows < 12 and difference < 1e-4, (
    f"{rows} rows give what 21 give: the logits differ by {difference:.6f}"
)
axes = plt.figure(figsize=(8, 3.2), layout="constrained").gca()
for number in range(5):
    read, wrong = gates[number] > 0, output[number] != target[number, :8]
    is_article = output[number] <= one.THE
    colours = {
        "tab:orange": is_article & ~wrong,
        "tab:blue": ~is_article & ~wrong,
        "tab:red": wrong,
    }
    lines = (0, source[number], {"0.75": ~read, "black": read}), (0.8, output[number], colours)
    for y, words, shown_in in lines:
        for colour, shown in shown_in.items():
            text = [
                WORDS[w] if is_shown else " " * len(WORDS[w])
                for w, is_shown in zip(words, shown, strict=True)
            ]
            axes.text(
                0,
                2 * number + y,
                " ".join(text),
                family="monospace",
                size=8.5,
                color=colour,
                weight="bold",
            )
axes.set_title(
    "Articles are pruned (grey) and yet written (orange): the nouns' encodings carry them", size=10
)
axes.set(xlim=(0, 92), ylim=(9.4, -1))
axes.axis("off")
plt.show()
# %% [markdown]
# Of 21 encodings the decoder reads those of the four nouns, and writes their articles, too.
# At full size, WikiSum (Table 1): 71.5 % pruned, ROUGE-L 38.75 (39.20 without), 1.65 times as fast.
# ## Try (the asserts hold for the settings above)
# 1. `one.LAMBDA = 0.3`, where guessing an article never pays. <details><summary>Answer</summary>
#    The fillers go, the articles stay; in one seed of five they went as well, and were right all
#    the same. </details>
# 2. `one.train(900, has_gates=True)`: gates from scratch. <details><summary>Answer</summary>
#    All gates close before it has learned to read; half of the articles are right by chance.
#    </details>
# 3. `one.LAMBDA = 6.0`. <details><summary>Answer</summary> All gates close at once, those of the
#    nouns, too, before the encoder can move anything. </details>
# %% tags=["learn"]
read, spoken = [WORDS[word] for word in source[0]], [WORDS[word] for word in target[0, :8]]


def attention(model, number=0):
    """Figure 2: cross-attention (8, 21) of a test sentence, mean over heads."""
    layer, states = model.decoder[0], model.encode(source[[number]])[0]
    y = model.embed(written[[number]])
    y = layer.norms[0](y + layer.self_attention(y, y, torch.ones(1, y.size(1), y.size(1)).tril()))
    parts = (layer.cross_attention.query(y), layer.cross_attention.key(states))
    q, k = (part.unflatten(-1, (one.H, -1)).transpose(1, 2) for part in parts)
    return (q @ k.mT / q.size(-1) ** 0.5).softmax(-1).mean(1)[0, :8]


def table(title, rows, columns, values, **more):
    return {
        "title": title,
        "rows": rows,
        "columns": columns,
        "values": [[round(x, 2) for x in row] for row in values],
    } | more


sentence = torch.stack([measured.gates[0] for measured in history.values()], 1)
locations = [-4, -2, 0, 2, 4]
beside = {
    "articles written right": [round(each.articles_right / 100, 2) for each in history.values()]
}
caption = (
    "While the gates of fillers and articles close, half of the articles are right, by chance. "
)
caption += "In the end nearly all are right: the encodings of the nouns carry them."
drawn = [one.sample_gates(torch.full((20_000,), float(at))) for at in locations]
bins = [
    [(g == 0), *((g > low / 4) & (g <= low / 4 + 0.25) & (g < 1) for low in range(4)), g == 1]
    for g in drawn
]
tables = [table("The gates of one sentence while it is "
                "trained", read, [*history],
                sentence.tolist(), beside=beside, caption=caption)]  # fmt: skip
for name, each in {"without gates": control, "with gates": model}.items():
    tables.append(
        table(
            f"What the decoder attends to {name} (Figure 2)", spoken, read, attention(each).tolist()
        )
    )
shares = [[each.float().mean().item() for each in row] for row in bins]
columns = ["0", "to 1/4", "to 1/2", "to 3/4", "below 1", "1"]
tables.append(
    table("Drawn gates: how often which value, by log alpha (Figure 3)", locations, columns, shares)
)
print(json.dumps(tables))
