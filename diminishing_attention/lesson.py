# %% [markdown]
# # Attention that counts for less where it has been before
# A network that writes a summary looks at its source anew before each word, and may tell the same
# thing twice. Does it stop if a second look at a word counts for less than the first? This is the
# idea of [Resurrecting Submodularity in Neural Abstractive
# Summarization](https://arxiv.org/abs/1911.03014v2), 2020.
# %%
import importlib
import json
import random
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
diminishing, one = (
    importlib.import_module(f"{folder.name}.{name}") for name in ("diminishing", "one")
)
Diminishing = diminishing.Diminishing
torch.set_num_threads(1)
seed = 0
one.seed = seed
# %% [markdown]
# ## Submodular: the more there is, the less one more adds
# Before each word that it writes, a decoder spreads its **attention** over the words of the source;
# the shares add up to 1. A value F of the looks S at a source word is **submodular** if it has
# *diminishing returns*: a further look v adds no more to many looks than to few of them.
#
# $$F(S + v) - F(S) \;\ge\; F(T + v) - F(T) \qquad \text{for } S \text{ within } T$$
#
# Such is $F(S) = \log(1 + \text{sum of } S)$. Guess: what does each of four looks of 0.6 add?
# %%
sums, grid = torch.tensor([0, 0.6, 1.2, 1.8, 2.4]), torch.linspace(0, 2.6, 50)
axes = plt.figure(figsize=(6, 2.4), layout="constrained").gca()
axes.plot(grid, grid.log1p(), color="grey")
axes.step(sums, sums.log1p(), color="C1", where="post")
for x, y, gain in zip(sums[1:], sums[1:].log1p(), sums.log1p().diff(), strict=True):
    axes.text(x + 0.03, y - gain / 2, f"+{gain:.2f}", va="center", color="C1")
axes.set(
    title="Submodular: four looks of 0.6, each adds less", xlabel="sum of the looks", ylabel="F"
)
plt.show()
assert (sums.log1p().diff().diff() < 0).all()
# %% [markdown]
# ## What a look is worth
# $a_i^t$ is the share of source word i at step t, and $A_i^t$ are all its looks up to step t.
# **DimAttn**, the paper's idea, puts in the place of a look what it adds, which by submodularity
# falls from look to look:
#
# $$F(A_i^t) = \log\Big(1 + \sum_{t'=0}^{t} a_i^{t'}\Big) \qquad \mathrm{DimAttn}_i^t = F(A_i^t) - F(A_i^{t-1})$$
#
# Three words receive 0.6, 0.3 and 0.1 at each of four steps. Guess: does the first word stay ahead?
# %%
attention = torch.tensor([[0.6, 0.3, 0.1]] * 4)  # four steps (rows), three words (columns)
dim = Diminishing("dim").sequence(attention)
print("DimAttn:", *(row.numpy().round(2) for row in dim))
# Eq. 11: the gains add up to F
assert torch.allclose(dim.cumsum(0), diminishing.effective_coverage(attention))
# the first word stays ahead of the second, the second of the third
assert (dim.diff(dim=-1) < 0).all()
# %% [markdown]
# It does: the words come closer, but a word that always has the larger share keeps it. What DimAttn
# lowers is a *sharp look that comes back*. Now the first and the second word are looked at sharply,
# then all three. Guess: who is first?
# %%
attention = torch.tensor([[0.90, 0.05, 0.05], [0.05, 0.90, 0.05], [0.40, 0.35, 0.25]])
dim = Diminishing("dim").sequence(attention)
for shares, gain in zip(attention, dim, strict=True):
    print(shares.numpy(), "counts", gain.numpy().round(2))
assert attention[2].argmin() == 2 and dim[2].argmax() == 2
# %% [markdown]
# The third: its share is the smallest, but nobody has looked at it yet. A share is the chance of a
# word to be the most important one at a step. So the largest share that it has had, P, says whether
# it *ever* was. The paper's second mechanism, **DyDimAttn**, diminishes such a word more from then
# on: P weighs a stronger $f_1 = \sqrt{x + 1}$, whose gains are smaller, 1 - P the one above,
# $f_2 = \log(x + 1)$.
#
# $$P_i^t = \max A_i^t \qquad P\,[F_1(A_i^t) - F_1(A_i^{t-1})] + (1 - P)\,[F_2(A_i^t) - F_2(A_i^{t-1})]$$
#
# One word is looked at with 0.2, 0.6 and 0.2. Guess: is DyDimAttn at the last step nearer to sqrt
# or to log?
# %%
attention, P = torch.tensor([[0.2], [0.6], [0.2]]), torch.tensor([[0.2], [0.6], [0.6]])
dims = {
    "log": Diminishing("dim"),
    "sqrt": Diminishing("dim", f="sqrt"),
    "DyDimAttn": Diminishing("dydim"),
}
gains = {name: mechanism.sequence(attention) for name, mechanism in dims.items()}
print("gains:", *(f"\n{name:9} {gain.flatten().numpy().round(3)}" for name, gain in gains.items()))
assert torch.allclose(gains["DyDimAttn"], P * gains["sqrt"] + (1 - P) * gains["log"])
to_sqrt, to_log = gains["DyDimAttn"][2] - gains["sqrt"][2], gains["log"][2] - gains["DyDimAttn"][2]
assert to_sqrt < to_log, (
    "a word that has been the most important one is diminished nearly as by sqrt"
)
# %% [markdown]
# Nearer to sqrt: at step 2 the word became the most important one, and P = 0.6 keeps that.
#
# ## Does a network repeat itself less?
# Source: four round trips, `rome lima .` Summary: each trip once, **from either end and in any
# order**: `rome lima rome .` or `lima rome lima .` So no word says what is left to tell: only
# memory does. The texts, a network that writes words or copies them, and its training stand in
# `one.py`, which is the paper's method in one file.
# %%
source, target = one.draw(1, random.Random(seed))
for text in (source, target):
    print(" ".join(one.WORDS[word] for word in text[0]))
# %% [markdown]
# A network learns without a mechanism, not to the end; then, as in the paper, a little with
# DimAttn. Beside it: the **control**, trained equally long without one; the older **coverage**,
# which needs a parameter and a loss on looking again; the control with **blocking**, which writes
# no three words twice. Guess: who tells a trip again least often?
# %%
sources, targets = one.draw(300, random.Random(f"lesson {seed}"))
before = one.train(400, 8e-3)
networks = {
    name: one.train(80, 2e-3, before, kind)
    for name, kind in {"control": "none", "DimAttn": "dim"}.items()
}
networks["coverage"] = one.train(80, 2e-3, before, "coverage")
written = {name: one.write(network, sources) for name, network in networks.items()}
written["blocking"] = one.write(networks["control"], sources, blocking=True)
measured = {name: one.measure(words, targets) for name, (words, _) in written.items()}
again, told = ({name: both[i] for name, both in measured.items()} for i in (0, 1))
for name in written:
    print(
        f"{name:8} {again[name]:3.0f} % of its sentences tell a trip again, {told[name]:3.0f} % of "
        f"the trips told"
    )
few = (
    f"DimAttn tells fewer trips again than the control: {again['DimAttn']:.0f} against "
    f"{again['control']:.0f} %"
)
assert again["DimAttn"] < again["control"] - 7, few
more = f"DimAttn tells more trips: {told['DimAttn']:.0f} %, the control {told['control']:.0f}"
assert told["DimAttn"] > max(told["control"], told["blocking"]) + 7, (
    f"{more}, blocking {told['blocking']:.0f} %"
)
# %% [markdown]
# DimAttn tells few trips again, and so more of them at all. Coverage does as well (over ten seeds
# within three points), with a parameter and a loss of its own. **Blocking** tells as many trips as
# the control: it forbids words, not trips. Here is a text in which the control tells a trip again.
# Guess: what does its sharpest look at the trip count then?
# %% tags=["picture"]
trips = {name: [one.trips(text) for text in words.tolist()] for name, (words, _) in written.items()}
text = next(
    i for i in range(300) if len({*trips["control"][i]}) < 4 and len({*trips["DimAttn"][i]}) == 4
)
trip = max(trips["control"][text], key=trips["control"][text].count)
tellings = [4 * i for i, each in enumerate(trips["control"][text]) if each == trip]
words, attention = (part[text] for part in written["control"])
names, city = [one.WORDS[word] for word in words], int(words[tellings[0]])
place = sources[text].tolist().index(city)
figure, (left, *panels) = plt.subplots(
    1, 3, figsize=(9, 3.2), width_ratios=[6, 2, 2], layout="constrained"
)
for number, (name, mechanism) in enumerate(
    {"softmax": Diminishing(), "DimAttn": dims["log"]}.items()
):
    weights = mechanism.sequence(attention)[:, place]
    left.plot(weights, "o-", markersize=4, color=f"C{number}", label=name)
    print(
        f"{name:8} sharpest look at '{one.WORDS[city]}':",
        *(f"{weights[t : t + 4].max():.2f}" for t in tellings),
    )
left.legend(loc="upper center", ncols=2)
left.set_xticks(range(len(names)), names, rotation=60)
left.set(
    ylabel=f"weight of '{one.WORDS[city]}'",
    xlabel="words that the control writes",
    ylim=(-0.05, 1.3),
)
titles = "sentences that tell\na trip again, %", "trips told, %"
for panel, title, values in zip(panels, titles, (again, told), strict=True):
    panel.bar_label(
        panel.barh([*values], [*values.values()], color=["C0", "C1", "C4", "C2"]), fmt=" %.0f"
    )
    panel.set(title=title, xticks=[], xlim=(0, 1.3 * max(values.values())), ylim=(3.5, -0.5))
figure.suptitle(
    f"At the second telling a look at '{one.WORDS[city]}' is sharp again; diminished, it counts "
    f"for less"
)
plt.show()
# %% [markdown]
# The second time the look is sharp again. Diminished, it counts for less.
#
# **We chose this task because it shows the effect.** Where a summary names each city once, we saw
# no clear gain.
#
# ## At full size
# On news the paper reports 2.6 ROUGE-1 more with DimAttn, 3.0 with DyDimAttn, 2.4 with coverage.
# Here (`RESULTS.md`, held-out texts, one search for all; intervals over texts) DimAttn gains 2.1
# [1.5, 2.7] on long summaries of dialogues and 0.8 [0.4, 1.2] on titles. Short summaries of
# dialogues change by -0.3 [-0.8, 0.1], extracts of news by -1.0 [-1.6, -0.4]. No gain of DyDimAttn
# is measurable. Coverage has the higher mean on each of them, and on long summaries blocking, too.
#
# ## Try (then the asserts and the picture may not hold)
# 1. DyDimAttn: `"dydim"` for `"dim"`. <details><summary>Answer</summary> Much the same. </details>
# 2. No updates more: 0 for 80. <details><summary>Answer</summary> DimAttn then tells fewer trips
#    again than the same network without it, but more than after its 80 updates: it works at once,
#    and better once the network has learned what its gains are worth. </details>
# 3. Trips in the source's order, `trips` for `rng.sample(trips, TRIPS)` in `one.py`.
#    <details><summary>Answer</summary>
#    Nobody tells a trip again: the order says what is left. </details>
# %% tags=["learn"]
twice = " and ".join(sorted(trip))
captions = {
    "control": f"Without a mechanism the trip of {twice} is told again: the looks at it are sharp "
    f"again.",
    "DimAttn": "With DimAttn each trip is told once: a look counts for less, the more a city was "
    "looked at before.",
}
tables = []
for name, caption in captions.items():
    words, weights = (part[text] for part in written[name])
    cities = [i for i, word in enumerate(sources[text]) if word != one.DOT]
    flags = [
        int(i // 4 < 4 and trips[name][text][i // 4] in trips[name][text][: i // 4])
        for i in range(one.T)
    ]
    tables.append({
        "title": f"{name}: what each look counts for, word by word",
        "rows": [one.WORDS[sources[text][i]] for i in cities],
        "columns": [one.WORDS[word] for word in words],
        "values": [[round(float(x), 2) for x in weights[:, i]] for i in cities],
        "beside": {"told again": flags},
        "caption": caption,
    })  # fmt: skip
print(json.dumps(tables))
