"""Memory of 20,000 documents of CNN/DM's size (Table 1): python -m discourse_tree_attention.experiments.memory"""

import random
from types import SimpleNamespace

from shared.timing import resident_bytes

from ..config import TrainConfig
from ..documents import Document, document_matrix, make_document
from ..trees import Node, join, leaves
from .formats import write_dis

DOCUMENTS, EDUS, WORDS = 20_000, 70, 8
ROLES = [(True, False), (False, True), (True, True)]
CONFIG = TrainConfig(attention="c_tree_nuclearity")


def random_tree(first: int, last: int, nucleus: bool | None = None) -> Node:
    if first == last:
        return Node(first, last, nucleus, text=" ".join(random.choices(["rain", "wind", "sun"], k=WORDS)))
    cut, (left, right) = random.randrange(first, last), random.choice(ROLES)
    return join([random_tree(first, cut, left), random_tree(cut + 1, last, right)], nucleus)


def random_document() -> Document:
    """70 EDUs in 35 sentences, with their tree."""
    tree = random_tree(1, EDUS)
    texts = [leaf.text for leaf in leaves(tree)]
    sentences = [f"{first} {second}" for first, second in zip(texts[::2], texts[1::2], strict=True)]
    return make_document(SimpleNamespace(id="", document=sentences, references=[], tree=write_dis(tree)), CONFIG)


def main() -> None:
    before = resident_bytes()
    documents = [random_document() for _ in range(DOCUMENTS)]
    print(f"{(resident_bytes() - before) / DOCUMENTS / 1000:.1f} kB a document with its tree")
    matrices = [document_matrix(document, CONFIG) for document in documents]
    print(f"{(resident_bytes() - before) / DOCUMENTS / 1000:.1f} kB with its matrix; {len(matrices):,} documents")


if __name__ == "__main__":
    main()
