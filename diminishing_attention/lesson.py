# %% [markdown]
# # Attention that counts for less where it has been before
# A network that writes a summary looks at its source anew before each word, and may tell the same thing twice.
# Does it stop if a second look at a word counts for less than the first?
#
# Paper: [Resurrecting Submodularity in Neural Abstractive Summarization](https://arxiv.org/abs/1911.03014v2), 2020.
# %%
import sys

sys.path.insert(0, "..")  # the notebook lies in the package's folder
import random
from types import SimpleNamespace

import matplotlib.pyplot as plt
import torch

from diminishing_attention.diminishing import Diminishing, DiminishingState, coverage_value, effective_coverage
from diminishing_attention.model import PointerGenerator, PointerGeneratorConfig
from diminishing_attention.search import beam_search
from diminishing_attention.text import BOS, PAD, SPECIAL, UNK, Vocabulary, collate, decode, encode_examples

torch.set_num_threads(1)
seed = 0
sums = torch.tensor([0, 0.6, 1.2, 1.8, 2.4])
axes = plt.figure(figsize=(6, 2.4), layout="constrained").gca()
axes.plot(torch.linspace(0, 2.6, 50), torch.linspace(0, 2.6, 50).log1p(), color="grey")
axes.step(sums, sums.log1p(), color="C1", where="post")
for x, y, gain in zip(sums[1:], sums[1:].log1p(), sums.log1p().diff(), strict=True):
    axes.text(x + 0.03, y - gain / 2, f"+{gain:.2f}", va="center", color="C1")
axes.set(title="Four looks of 0.6 each: every one gains less", xlabel="attention so far", ylabel="coverage F")
plt.show()
# %% [markdown]
# ## What a look is worth
# Before each word that it writes, a decoder spreads its **attention** over the words of the source; the shares add up
# to 1. $a_i^t$ is the share of source word i at step t, and $A_i^t$ is all that i has received up to step t. The
# **coverage** F of a word is a function f of the sum of $A_i^t$ that grows ever more slowly: $f(x) = \log(x + 1)$ here.
#
# $$F(A_i^t) = f\Big(\sum_{t'=0}^{t} a_i^{t'}\Big) \qquad \mathrm{DimAttn}_i^t = F(A_i^t) - F(A_i^{t-1})$$
#
# **DimAttn**, what the coverage gains by the step (from 0, before the first), takes the place of the attention. Three
# words receive 0.6, 0.3 and 0.1 at each of four steps. Guess: what does the 0.6 count each time? Does it stay ahead?
# %%
attention = torch.tensor([[0.6, 0.3, 0.1]] * 4)  # four steps (rows), three words (columns)
dim = Diminishing("dim").sequence(attention)
for title, table in {"F": coverage_value(attention), "DimAttn": dim}.items():
    print(f"{title:7}", *(row.numpy().round(2) for row in table))
assert torch.allclose(dim.cumsum(0), effective_coverage(attention))  # Eq. 11: the gains add up to F
assert (dim.diff(dim=-1) < 0).all()  # the first word stays ahead of the second, the second of the third
# %% [markdown]
# 0.6 counts 0.47, 0.32, 0.24, 0.19: check $\log 1.6$, $\log 2.2 - \log 1.6$. It stays ahead, as any larger constant
# share does: all gains go to $1/t$. Log evens them out, it never swaps them. What it lowers is *sharp attention that
# comes back*. Now the first and the second word are looked at sharply, then all three. Guess: who comes out first?
# %%
attention = torch.tensor([[0.90, 0.05, 0.05], [0.05, 0.90, 0.05], [0.40, 0.35, 0.25]])
state, steps = DiminishingState.start((3,)), []
for shares in attention:  # a decoder goes step by step and carries the sums in its state
    gain, state = Diminishing("dim").step(shares, state)
    steps.append(gain)
    print(shares.numpy(), "counts", gain.numpy().round(2))
assert torch.allclose(torch.stack(steps), Diminishing("dim").sequence(attention))  # one by one = all at once
assert attention[2].argmin() == 2 and steps[2].argmax() == 2
# %% [markdown]
# The third: its share is the smallest, but nobody has looked at it yet. The paper's second mechanism, **DyDimAttn**,
# mixes $f_1(x) = \sqrt{x + 1}$ and $f_2(x) = \log(x + 1)$. P is the largest share that a word has had so far.
#
# $$P_i^t = \max A_i^t \qquad P\,[F_1(A_i^t) - F_1(A_i^{t-1})] + (1 - P)\,[F_2(A_i^t) - F_2(A_i^{t-1})]$$
#
# One word receives 0.2, then 0.6, then 0.2, so P is 0.2, 0.6, 0.6. Guess: how much less is the last 0.2 worth?
# %%
attention, P = torch.tensor([[0.2], [0.6], [0.2]]), torch.tensor([[0.2], [0.6], [0.6]])
dims = {"log": Diminishing("dim"), "sqrt": Diminishing("dim", f="sqrt"), "DyDimAttn": Diminishing("dydim")}
gains = {name: mechanism.sequence(attention) for name, mechanism in dims.items()}
for name in dims:
    print(f"{name:10}", gains[name].flatten().numpy().round(3))
assert torch.allclose(gains["DyDimAttn"], P * gains["sqrt"] + (1 - P) * gains["log"])
# %% [markdown]
# By half.
# ## Does a network repeat itself less?
# Source: four trips, home and goal, `rome lima .` Summary: each there and back, `rome lima rome .`, **in any order**:
# only memory says what is left to tell. The network (`model.py`) writes words or copies them, by its attention. First
# it learns without the mechanism until its loss is 0.36, not to the end; then, as in the paper, a little more with
# DimAttn, the control as long without. Guess: of the sentences that each writes, how many has it told before?
# %%
HOMES = "rome oslo bern kyiv riga bonn graz pisa cork york lodz brno nice bari faro vigo turku ghent essen lyon".split()
GOALS = "lima cairo delhi tokyo quito accra dakar hanoi seoul osaka perth miami utah chad laos cuba peru mali fiji iran"
vocabulary = Vocabulary([*SPECIAL, ".", *HOMES, *GOALS.split()])


def draw(count, rng):
    """Sources with their summaries, as numbers of words."""
    texts = []
    for _ in range(count):
        trips = list(zip(rng.sample(HOMES, 4), rng.sample(GOALS.split(), 4), strict=True))
        source = " ".join(f"{home} {goal} ." for home, goal in trips)
        rng.shuffle(trips)
        texts.append(SimpleNamespace(source=source, target=" ".join(f"{h} {goal} {h} ." for h, goal in trips)))
    return encode_examples(texts, vocabulary, max_source=99, max_target=99)


def train(model, updates, rate, rng, enough=0.0):
    optimizer, losses = torch.optim.Adam(model.train().parameters(), lr=rate), [9.0] * 20
    for _ in range(updates):
        optimizer.zero_grad()
        loss = model(collate(draw(32, rng))).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        if sum(losses := [*losses[1:], loss.item()]) < 20 * enough:
            break
    return model


def sentences(item, numbers):
    return decode(vocabulary, item, numbers).removesuffix(" .").split(" . ")


def write(model):
    """The best text that beam search finds for each source, in sentences."""
    found = beam_search(model.eval(), collate(tests), average=True, max_length=20, never=(PAD, UNK))
    return list(map(sentences, tests, found.tokens))


torch.manual_seed(seed)
tests = draw(300, random.Random(f"tests {seed}"))
wanted = [set(sentences(item, item.target_out)) for item in tests]
sizes, models, repeated, right = dict(vocabulary=len(vocabulary), embedding=32, hidden=48), {}, {}, {}
models["before"] = train(PointerGenerator(PointerGeneratorConfig(**sizes)), 2000, 4e-3, random.Random(seed), 0.36)
for name, kind in {"control": "none", "DimAttn": "dim"}.items():
    models[name] = PointerGenerator(PointerGeneratorConfig(**sizes, diminishing=Diminishing(kind)))
    models[name].load_state_dict(models["before"].state_dict())
    train(models[name], 60, 2e-3, random.Random(f"more {seed}"))
written = {name: write(model) for name, model in models.items()}
for name, told in written.items():
    repeated[name] = 1 - sum(len(set(text)) for text in told) / sum(map(len, told))
    right[name] = sum(len(trips & set(text)) for trips, text in zip(wanted, told, strict=True)) / 1200
    print(f"{name:8}{repeated[name]:4.0%} of its sentences told before, {right[name]:4.0%} of the trips told")
assert repeated["DimAttn"] < 0.6 * repeated["control"] and right["DimAttn"] > right["control"] + 0.03
# %% [markdown]
# DimAttn repeats far less, and tells more of the trips; so it was for the three seeds that we tried (0-2). Here is a
# text in which the control tells a trip twice. Guess: what does its home count when the second telling begins?
# %% tags=["picture"]
told, other = written["control"], written["DimAttn"]
text = next(i for i in range(300) if set(told[i]) < wanted[i] == set(other[i]))
trip = max(told[text], key=told[text].count)
home, (first, again, *_) = trip.split()[0], [4 * i for i, sentence in enumerate(told[text]) if sentence == trip]
place = tests[text].source.index(vocabulary.number[home])
words = " . ".join(told[text]).split()
numbers = torch.tensor([[BOS, *(vocabulary.number[word] for word in words[:-1])]])
attention = models["control"].run(collate([tests[text]])._replace(target_in=numbers)).attention[0].detach()
figure, (left, bars) = plt.subplots(1, 2, figsize=(8, 3.2), width_ratios=[6, 1], layout="constrained")
for number, (name, mechanism) in enumerate({"softmax": Diminishing(), **dims}.items()):
    weights = mechanism.sequence(attention)[:, place]
    left.plot(weights, "o-", markersize=4, color=f"C{number}")
    left.text(4.2, 0.95 - 0.12 * number, f"DimAttn, {name}" if name in ("log", "sqrt") else name, color=f"C{number}")
    print(f"{name:9} '{home}' counts {weights[first]:.2f} where it is first told, {weights[again]:.2f} where again")
left.set_xticks(range(len(words)), words, rotation=60)
left.set(ylabel=f"weight of '{home}'", xlabel="words that the control writes", ylim=(-0.05, 1.05))
heights = [100 * repeated["control"], 100 * repeated["DimAttn"]]
bars.bar_label(bars.bar(["control", "Dim-\nAttn"], heights, color=["C0", "C1"]), fmt="%.0f %%")
bars.set(title="sentences\ntold before", yticks=[], ylim=(0, 1.2 * heights[0]))
figure.suptitle(f"At the second telling softmax returns to '{home}'; diminished, the same look counts for less")
plt.show()
print("control:", *told[text], "\nDimAttn:", *other[text], sep=" | ")
# %% [markdown]
# A trip ends with a sharp look at its home, the word with which it begins: told again, it counts for less. **We chose
# this task among several, to show that**: with the home said only once, or trips hardly learned, we saw no clear gain.
# ## At full size
# In the paper (news) ROUGE-1 rises from 36.7 to 40.0, with DyDimAttn to 40.1; decoding and source length change, too.
# `train.py --init RUN --diminishing dim` is this second phase. On dialogues (SAMSum's test, three bases, intervals, all
# decoded alike; `RESULTS.md`) ours repeat less, too, but their ROUGE does not gain:
#
# | | repeated 3-grams, % | minus control | ROUGE-1 | minus control |
# |---|---|---|---|---|
# | control | 5.6 [5.0, 6.3] | | 36.4 [35.4, 37.5] | |
# | DimAttn | 0.8 [0.6, 1.0] | -4.8 [-5.4, -4.2] | 36.1 [35.1, 37.1] | -0.3 [-0.8, 0.1] |
# | DyDimAttn | 1.4 [1.2, 1.7] | -4.2 [-4.8, -3.6] | 34.4 [33.5, 35.3] | -2.0 [-2.7, -1.4] |
# ## Try (then the last assert and the picture may not hold)
# 1. DyDimAttn: `"DimAttn": "dydim"`. <details><summary>Answer</summary> Much the same: 2 % and 96 %. </details>
# 2. No updates more: 0 for 60. <details><summary>Answer</summary> 7 % against 23 %, told 65 and 72 %. </details>
# 3. In the source's order, no `rng.shuffle(trips)`. <details><summary>Answer</summary> Nobody repeats. </details>
