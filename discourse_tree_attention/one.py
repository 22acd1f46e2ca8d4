"""The paper's method in one file: Xiao, Huber & Carenini (2020), "Do We Really Need That Many
Parameters in Transformer for Extractive Summarization? Discourse Can Help!", CODI,
https://aclanthology.org/2020.codi-1.13

An extractive summariser scores the clauses of a text and takes the best. First the clauses attend
to each other, and a Transformer spends parameters to learn who attends to whom. Here the attention
is a fixed table for each text, read off its discourse tree, which joins clauses two by two and says
which of a pair matters more. Queries and keys go: half of the attention's parameters, 2 % of the
paper's model. B documents, N units (clauses; EDUs, elementary discourse units), D model width, K
head width.

In the paper (ROUGE-1 on news, EDUs) the learned head is first: 40.9, C-Tree 40.8, D-Tree 40.4, no
attention 39.9. Left out here: of Section 4.1 the post-editing (one root a sentence), of 3 Dense
and Random attention, of 5.1 the dependency restriction (a clause brings those that it hangs on);
BERT, oracle labels, dropout, warm-up.

`python one.py`, 20 CPU seconds: toy texts whose summary depends on the tree, in two ways. Labels
are made of the trees, so this shows what a matrix lets a model see, not what summaries are. The
last lines compare the paper's matrices with other texts' and with learned attention, trained
equally long. tests/test_one.py: the package is equal. D1, ...: PAPER.md.
"""

import random
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

seed = 0
# clauses of a text, width, width of the one head, feed-forward, layers
N, D, K, INNER, LAYERS = 8, 32, 32, 64, 2
UPDATES, TRAINING, TEST = 400, 1000, 400  # updates of a model, texts
ALARMING = "fire flood storm riot crash theft".split()
CALM = "market parade concert picnic harvest festival wedding regatta".split()
PLACES = "Oslo Lima Rome Kyiv Bonn Cork Nice Bath".split()
WORDS = [*ALARMING, *CALM, *PLACES]
if min(N, D, K, INNER, LAYERS, UPDATES, TRAINING, TEST) < 1 or N < 2 or D % 2:
    raise SystemExit("N is 2 or more, D even, each other size 1 or more")
if not (ALARMING and CALM and PLACES) or len({*WORDS}) < len(WORDS):
    raise SystemExit("each list holds a word, and no word stands twice")
VECTORS = torch.randn(len(WORDS), D, generator=torch.Generator().manual_seed(seed))

# 1. The idea: attention matrices A read off a tree; row i says what clause i pays attention to


class Node(NamedTuple):
    """Over the clauses start, ..., end - 1.

    Of two siblings one is the Nucleus, the other a Satellite or a Nucleus.
    """

    start: int
    end: int
    nucleus: bool | None = None  # True Nucleus, False Satellite, None root
    children: tuple = ()  # none (a clause) or two


def nodes(tree):
    """All nodes, children before their parent."""
    return [node for child in tree.children for node in nodes(child)] + [tree]


def dependency_parents(tree):
    """(N,) the clause on which each one depends; a root has itself."""
    main, parents = {}, torch.arange(tree.end)
    for node in nodes(tree):
        # Section 4.1: a clause stands for each constituent: its Nucleus's, of two the left one's.
        left, right = node.children or (None, None)
        main[node] = main[left if left.nucleus else right] if left else node.start
    for node in reversed(nodes(tree)):  # from the root down: inner Satellites win
        for child in node.children:
            if not child.nucleus:
                # Section 4.1: what lies in a Satellite depends on what stands for the pair.
                parents[child.start : child.end] = main[node]
    return parents  # D1: several roots where Nuclei meet at the top


def d_tree(tree):
    # Section 4.1, D-Tree: row = dependent, column = head; a clause attends to its parent alone.
    return F.one_hot(dependency_parents(tree), tree.end).float()  # (N, N)


def level_sum(tree, nuclearity=False):
    total = torch.zeros(tree.end, tree.end)
    for node in nodes(tree):
        # Section 4.2: the more levels at which one constituent holds both clauses, the closer they
        # are. Section 4.3: a Nucleus counts 2, a Satellite 1; the root, which is neither, 1 (D15).
        total[node.start : node.end, node.start : node.end] += (
            2 if nuclearity and node.nucleus else 1
        )
    return total  # (N, N), sum over the levels L of M^L


def normalize(matrix):
    # Section 3: what a unit pays adds up to 1.
    return matrix / matrix.sum(-1, keepdim=True)


def c_tree(tree):
    # Section 4.2, C-Tree: the shape of the tree alone.
    return normalize(level_sum(tree))


def c_tree_nuclearity(tree):
    # Section 4.3, C-Tree w/Nuc: clauses of a Nucleus are closer than those of a Satellite.
    return normalize(level_sum(tree, nuclearity=True))


def sentence_matrix(matrix, sentence):
    """Attention between sentences, (S, S); `sentence`, (N,), is the number of each clause's."""
    indicator = F.one_hot(sentence).float().T  # (S, N), the paper's I
    # Section 4.4: from the clauses' matrix; in the tree a sentence need not be a constituent.
    return normalize(indicator @ matrix @ indicator.T)  # D13: rows sum to 1 again


# 2. The smallest summariser around it (Figure 2)


# what the trees replace: 2 (D + 1) K parameters a layer; words do not tell it the tree
class DotProduct(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(D, K), nn.Linear(D, K)

    def forward(self, states):  # (B, N, D)
        # Section 3, "Dot Product"; D18: divided by sqrt(K).
        return (self.query(states) @ self.key(states).mT / K**0.5).softmax(-1)  # (B, N, N)


class Attention(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.kind, self.attend = kind, DotProduct() if kind == "dot" else None
        self.value, self.output = nn.Linear(D, K), nn.Linear(K, D)

    def forward(self, states, matrix):  # (B, N, D), (B, N, N)
        value = self.value(states)  # (B, N, K)
        if self.kind == "none":  # Section 5.1: A = I, a unit sees itself alone
            return self.output(value)
        # Section 3: X_out = A G(X). All that the paper changes is where A comes from.
        weights = self.attend(states) if self.attend else matrix  # (B, N, N)
        return self.output(weights @ value)  # (B, N, D)


class EncoderLayer(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.attention, self.attention_norm = Attention(kind), nn.LayerNorm(D)
        self.inner, self.outer, self.feed_forward_norm = (
            nn.Linear(D, INNER),
            nn.Linear(INNER, D),
            nn.LayerNorm(D),
        )

    def forward(self, states, matrix):  # (B, N, D)
        states = self.attention_norm(states + self.attention(states, matrix))
        return self.feed_forward_norm(states + self.outer(F.relu(self.inner(states))))  # (B, N, D)


class Summarizer(nn.Module):  # unit vectors -> a score for each unit
    def __init__(self, kind):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(kind) for _ in range(LAYERS))
        self.classifier = nn.Sequential(nn.Linear(D, 100), nn.ReLU(), nn.Linear(100, 1))  # D19

    def forward(self, units, matrix=None):  # (B, N, D), (B, N, N)
        rates = 10_000 ** (-torch.arange(0, D, 2) / D)  # (D/2,)
        angles = torch.arange(units.size(1)).unsqueeze(-1) * rates  # (N, D/2)
        # (B, N, D)  # D19
        states = units + torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
        for layer in self.layers:
            states = layer(states, matrix)
        # (B, N), log-odds that the summary takes the unit
        return self.classifier(states).squeeze(-1)


def extraction_loss(scores, labels, positive_weight):
    # Section 3, the MLP's sigmoid included; D19: summed over units; D12: units that the summary
    # takes are few.
    return F.binary_cross_entropy_with_logits(
        scores, labels, pos_weight=positive_weight, reduction="sum"
    )


def select(scores, count):
    # Section 5.1: the best units, in the order of the text: (N,) -> `count` indices.
    return scores.argsort(descending=True, stable=True)[:count].sort().values


# 3. Data: texts of N clauses, "fire Oslo / market Bonn / ...", random trees, two kinds of summary


class Documents(NamedTuple):
    trees: list
    units: torch.Tensor  # (count, N, D)
    labels: torch.Tensor  # (count, N) bool, what the summary takes


def random_tree(start=0, end=N, nucleus=None):
    if end == start + 1:
        return Node(start, end, nucleus)
    margin = max(1, (end - start) // 4)
    cut = random.randint(start + margin, end - margin)
    left, right = random.choice([(True, False), (False, True), (True, True)])
    return Node(start, end, nucleus, (random_tree(start, cut, left), random_tree(cut, end, right)))


def by_parent(tree):
    """Two of five clauses are alarming; the summary has those whose parent is (D-Tree's): (N,)."""
    alarming = torch.rand(N) < 0.4
    return alarming, alarming[dependency_parents(tree)]


def by_part(tree):
    """One clause is alarming; the summary is that of the root's two parts that holds it: (N,)."""
    place, cut = torch.randint(N, ()), tree.children[0].end
    return torch.arange(N) == place, (torch.arange(N) < cut) == (place < cut)


def documents(count, rule):
    """Each summary takes some clauses of its text, but not all."""
    trees, texts, labels = [], [], []
    while len(trees) < count:
        tree = random_tree()
        alarming, label = rule(tree)
        if 0 < label.sum() < N:
            words = [
                (random.choice(ALARMING if x else CALM), random.choice(PLACES)) for x in alarming
            ]
            texts.append([[WORDS.index(word) for word in clause] for clause in words])
            trees.append(tree)
            labels.append(label)
    # D9: for the frozen BERT of Section 3; a unit's vector is the sum of fixed random vectors of
    # its words.
    return Documents(trees, VECTORS[torch.tensor(texts)].sum(2), torch.stack(labels))


def train(kind, matrix_of, data, updates=UPDATES):
    model, matrices = Summarizer(kind), torch.stack([matrix_of(tree) for tree in data.trees])
    # the paper's rate rises and falls (D11)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    positive_weight = (~data.labels).sum() / data.labels.sum()  # D12
    for _ in range(updates):
        some = torch.randint(len(data.trees), (32,))
        scores = model(data.units[some], matrices[some])
        loss = extraction_loss(scores, data.labels[some].float(), positive_weight)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def found(model, matrix_of, data):
    """Per cent of the summaries' clauses that are among the model's best, as many as there are."""
    scores = model(data.units, torch.stack([matrix_of(tree) for tree in data.trees]))  # (count, N)
    right = 0
    for score, label in zip(scores, data.labels, strict=True):
        right += label[select(score, label.sum())].sum()
    return 100 * (right / data.labels.sum()).item()


class System(NamedTuple):
    kind: str
    matrix_of: object  # from a tree to its matrix


SYSTEMS = {
    "D-Tree": System("tree", d_tree),
    "C-Tree": System("tree", c_tree),
    "C-Tree w/Nuc": System("tree", c_tree_nuclearity),
    "other text's D-Tree": System("tree", lambda _: d_tree(random_tree())),
    "other text's C-Tree": System("tree", lambda _: c_tree(random_tree())),
    "learned (dot product)": System("dot", d_tree),  # it reads no tree
    "no attention": System("none", d_tree),
}
OF_THIS_TREE = ("D-Tree", "C-Tree", "C-Tree w/Nuc")


def count(module):
    return sum(weight.numel() for weight in module.parameters())


def main():
    torch.set_num_threads(1)
    random.seed(seed)
    torch.manual_seed(seed)
    training, test = {}, {}
    for rule in (by_parent, by_part):
        training[rule], test[rule] = documents(TRAINING, rule), documents(TEST, rule)
    print(f"{'per cent of the summary found':30}by parent  by part   parameters: attention, all")
    per_cent = {by_parent: {}, by_part: {}}
    for name, (kind, matrix_of) in SYSTEMS.items():
        models = {rule: train(kind, matrix_of, training[rule]) for rule in training}
        for rule, model in models.items():
            per_cent[rule][name] = found(model, matrix_of, test[rule])
        attention = sum(count(layer.attention) for layer in model.layers)
        row = f"{name:30}{per_cent[by_parent][name]:9.0f}{per_cent[by_part][name]:9.0f}"
        print(f"{row}{attention:21,}{count(model):8,}", flush=True)
    for tree, rule in (("D-Tree", by_parent), ("C-Tree w/Nuc", by_part)):
        others = {name: value for name, value in per_cent[rule].items() if name not in OF_THIS_TREE}
        best = max(others, key=others.get)
        print(f"{tree} finds {per_cent[rule][tree]:.0f}, {best}, the next, {others[best]:.0f}")
    print("In the paper the learned head is first: there what matters is in the words, too.")


if __name__ == "__main__":
    main()
