"""A selector of sentences: logistic regression on where a sentence stands and which words it repeats."""

import math
import re
from collections import Counter
from collections.abc import Callable

import torch
from torch.nn import functional as F

COMMON = 0.25  # words in more than this share of the training articles count for nothing


def words(text: str) -> list[str]:
    """Words in lower case, as ROUGE splits them."""
    return re.findall("[a-z0-9]+", text.lower())


def features(document: list[str], df: Counter, articles: int) -> torch.Tensor:
    """(N, 21) numbers of the sentences: places, lengths, repeated words, digits, capitals, quotation marks.

    Args:
        df: of each word, how many of the training articles have it.
        articles: how many these are.
    """
    content = [[w for w in words(sentence) if df[w] <= COMMON * articles] for sentence in document]
    count = Counter(word for sentence in content for word in sentence)
    rows = []
    for i, (sentence, rare) in enumerate(zip(document, content, strict=True)):
        repeated, total = sum(count[w] > 1 for w in rare), sum(count[w] for w in rare)
        rarity = sum(math.log(articles / max(df[w], 1)) for w in rare)
        sizes = [len(words(sentence)), len(rare), total, total / max(len(rare), 1), repeated, rarity]
        kinds = [len(re.findall(r"\b\d", sentence)), len(re.findall(r"\b[A-Z]", sentence)), '"' in sentence]
        rows.append([*(i == place for place in range(10)), i / len(document), len(document), *sizes, *kinds])
    return torch.tensor(rows, dtype=torch.float)


def fit(examples: list) -> Callable[[list[str]], list[int]]:
    """The function document -> the places of its three best sentences, learned from `salient`."""
    df = Counter(word for e in examples for word in {*words(e.source)})
    x = torch.cat([features(e.document, df, len(examples)) for e in examples])
    y = torch.tensor([float(s) for e in examples for s in e.salient])
    mean, spread = x.mean(0), x.std(0) + 1e-6
    torch.manual_seed(0)
    layer = torch.nn.Linear(x.shape[1], 1)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=200)

    def loss():
        optimizer.zero_grad()
        value = F.binary_cross_entropy_with_logits(layer((x - mean) / spread)[:, 0], y)
        value += 1e-3 * layer.weight.square().sum()
        value.backward()
        return value

    optimizer.step(loss)

    @torch.no_grad()
    def pick(document: list[str]) -> list[int]:
        scores = layer((features(document, df, len(examples)) - mean) / spread)[:, 0]
        return sorted(scores.argsort(descending=True)[:3].tolist())

    return pick
