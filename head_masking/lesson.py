# %% [markdown]
# # Hide a word from the attention, and the model writes about another one
# A trained model writes summaries. Can we tell it *what* to write about, without training it again?
# Cao and Wang 2021: yes, if some attention heads may only see the words that matter.

# %%
import sys

sys.path.insert(0, "..")  # the notebook lies in the package's folder
import matplotlib.pyplot as plt
import torch
from transformers import BartConfig, BartForConditionalGeneration

from head_masking import keep_at_least, mask_heads, oracle_labels

torch.set_num_threads(1)
seed = 0
torch.manual_seed(seed)

figure, axes = plt.subplots(figsize=(8, 1.2))
for place, word in enumerate("Ann paints . Bob sleeps . Cleo sings .".split()):
    hidden = place in (3, 4, 5)
    axes.text(place, 0, word, color="lightgrey" if hidden else "black", ha="center", size=11)
axes.set(xlim=(-0.6, 8.6), ylim=(-1, 1), title="What will a summariser write if it cannot look at the grey words?")
axes.axis("off")
plt.show()

# %% [markdown]
# ## 1. Masking a head
# A decoder *head* compares its query $q$ with the key of every source word. The products are the *logits*; a softmax makes
# them weights that sum to 1. To hide a word, add $-\infty$ to its logit *inside* the softmax:
# $$\mathrm{softmax}(q K^T / \sqrt{d_k} + m + \tilde m) \quad (1)$$
# $m$ hides padding, as always. $\tilde m$ is the paper's: 0 at words to keep, $-\infty$ at the others. Three words with the
# logits 0, 0 and $\log 2$ have the weights 1/4, 1/4, 1/2. What is left if the third one is hidden?

# %%
logits = torch.tensor([0.0, 0.0, 2.0]).where(torch.tensor([True, True, False]), torch.tensor(2.0).log())
m_tilde = torch.tensor([0.0, 0.0, float("-inf")])
print("before", logits.softmax(-1).tolist(), " masked", (logits + m_tilde).softmax(-1).tolist())

# %% [markdown]
# ## 2. Which words matter?
# A *content selector* gives every word a score. Words above a threshold are kept; where hardly any is, the best
# `min_keep` ones, so that no head is left with nothing to see. To study the method, the *oracle* reads the true summary:
# it marks the longest runs of words that document and summary share.

# %%
scores = torch.tensor([[0.9, 0.1, 0.2, 0.7], [0.1, 0.2, 0.1, 0.3]])
print(keep_at_least(scores, threshold=0.5, min_keep=2).tolist())
document, summary = "a storm hit the town on Monday .", "storm hit town"
print([document[first:end] for first, end, marked in oracle_labels(document, summary) if marked])

# %% [markdown]
# ## 3. A model that cannot know what we want
# A document is five facts: a person and what she does, of 20 words each. The summary repeats two of the facts, *drawn at
# random*. No model can guess which; it learns to copy. It is a small BART with one encoder and two decoder layers.

# %%
FACTS, WANTED, START, END = 5, 2, 1, 2


def corpus(count):
    """Sources (count, 11), summaries (count, 5) with the end, and which source words the summary takes."""
    people, deeds = (torch.rand(count, 20).argsort(-1)[:, :FACTS] + first for first in (4, 24))
    facts = torch.stack([people, deeds], -1)  # (count, 5, 2)
    chosen = torch.rand(count, FACTS).argsort(-1)[:, :WANTED].sort(-1).values
    summary = facts[torch.arange(count).unsqueeze(-1), chosen].flatten(1)
    keep = torch.zeros(count, FACTS, dtype=torch.bool).scatter(1, chosen, True).repeat_interleave(2, 1)
    end = torch.full((count, 1), END)
    return torch.cat([facts.flatten(1), end], 1), torch.cat([summary, end], 1), torch.cat([keep, end < 0], 1)


sizes = dict(vocab_size=44, d_model=64, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=128, decoder_ffn_dim=128)
heads = dict(encoder_attention_heads=4, decoder_attention_heads=4, max_position_embeddings=16, dropout=0.0)
special = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=2)
bart = BartForConditionalGeneration(BartConfig(**sizes, **heads, **special, init_std=0.1))
optimizer = torch.optim.Adam(bart.parameters(), lr=1.5e-3)
for update in range(1, 701):
    source, target, _ = corpus(32)
    loss = bart(source, labels=target).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if update % 100 == 0:
        print(f"{update} updates: loss {loss.item():.2f}")

# %% [markdown]
# ## 4. Steer it
# Now masks, at inference only: all heads of both decoder layers see the words of the wanted facts alone. Beside it two
# controls: no mask, and a mask that keeps two facts which were drawn anew. How many of the wanted words are written?

# %%
bart.eval()
source, target, keep = corpus(300)
other = corpus(300)[2]
ALL = {layer: range(4) for layer in (1, 2)}


def write(mask):
    if mask is None:
        return bart.generate(source, max_new_tokens=6, do_sample=False)[:, 1:6]
    with mask_heads(bart, ALL, mask):
        return bart.generate(source, max_new_tokens=6, do_sample=False)[:, 1:6]


def share(written):
    """Of the words of the wanted facts, the share that is written, in per cent."""
    return 100 * (target[:, :-1].unsqueeze(-1) == written.unsqueeze(1)).any(-1).float().mean().item()


written = {"no mask": write(None), "two facts drawn anew": write(other), "the wanted facts": write(keep)}
rates = {name: share(tokens) for name, tokens in written.items()}
for name, rate in rates.items():
    print(f"heads see: {name:22} wanted words written: {rate:3.0f} %   (chance: 40 %)")
assert rates["the wanted facts"] > 75 and rates["no mask"] < 60 and rates["two facts drawn anew"] < 60
assert torch.equal(write(None), write(torch.ones_like(keep)))  # two views: to keep all is not to mask

# %% tags=["picture"]
NAMES = "Ann Bob Cleo Dan Eva Finn Gia Hal Ida Jon Kim Leo Mia Ned Ola Pam Quin Rob Sue Tom".split()
DEEDS = "paints sleeps sings runs reads cooks swims digs sews climbs rows skates fishes rides knits bakes writes dances"
WORDS = ["", "", "", ""] + NAMES + (DEEDS + " sails draws").split()
figure, axes = plt.subplots(figsize=(8, 3.2))
for row in range(5):
    for place, token in enumerate(source[row, :-1].tolist()):
        shown = dict(color="black", weight="bold") if keep[row, place] else dict(color="silver")
        axes.text(0.62 * place, -row, WORDS[token], ha="left", size=8, **shown)
    for column, name in ((6.6, "no mask"), (9.4, "the wanted facts")):
        text = " ".join(WORDS[token] for token in written[name][row].tolist() if token > 3)
        axes.text(column, -row, text, size=8, color="tab:orange" if name == "no mask" else "tab:blue")
for place, title in ((0, "document (black: what the heads may see)"), (6.6, "written without"), (9.4, "written with the mask")):
    axes.text(place, 1, title, size=9)
axes.set(xlim=(-0.1, 12.4), ylim=(-4.6, 1.6), title="The same model, the same document: the mask decides what is told")
axes.axis("off")
plt.show()

# %% [markdown]
# ## 5. At full size
# The paper masks heads of BART-large on CNN/Daily Mail by a tagger's scores and gains 1.35 ROUGE-1 (Table 1). Which heads
# to mask is found on validation data, `sweep.py`. What we found: `experiments/RESULTS.md`: masks help models that copy but
# do not know what matters, and not one that was trained on the same data.
#
# ## Try
# <details><summary>Mask layer 1 alone: ALL = {1: range(4)}. Does it still work?</summary>Change it and see how far the
# share falls: the paper finds the layers unequal, too.</details>
# <details><summary>Keep everything: is the output the same as without a mask?</summary>Yes, the last assert says so.</details>
