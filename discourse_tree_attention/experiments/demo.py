"""The end of the README's demo: a test story and its extract, the reference, and how often tree and no tree are right.

python -m discourse_tree_attention.experiments.demo runs/discourse-none runs/discourse-tree
"""

from pathlib import Path

import tyro

from shared import rouge

from ..loading import load, load_run
from ..predict import predict, score_all, summary


def main(without: tyro.conf.Positional[Path], tree: tyro.conf.Positional[Path], least: float = 0.2) -> None:
    """Compare a run that reads no tree with one that does; at least this share of stories more must be right."""
    examples = load(load_run(tree).config.data, "test", 100)
    texts, right, values = {}, {}, {}
    for name in (without, tree):
        run = load_run(name)
        texts[name] = [row["prediction"] for row in predict(run, examples)]
        # Right are exactly the clauses that the oracle takes: the facts of the summary.
        documents = [document for document, _ in score_all(run, examples)]
        best = [summary(document, document.labels.nonzero()[0]) for document in documents]
        right[name] = [i for i, text in enumerate(texts[name]) if text == best[i]]
        values[name] = rouge.score(texts[name], [example.references for example in examples])["rouge1"].mean()
    shown = next((i for i in right[tree] if i not in right[without]), 0)
    print("story:     ", " / ".join(documents[shown].units))
    print("no tree:   ", " ".join(texts[without][shown]))
    print("prediction:", " ".join(texts[tree][shown]))
    print("reference: ", examples[shown].target)
    counts = f"{len(right[tree])} of {len(examples)} stories with trees, {len(right[without])} without"
    print(f"exactly the main facts extracted: {counts}; ROUGE-1 {values[tree]:.1f}, without {values[without]:.1f}")
    if len(right[tree]) - len(right[without]) < least * len(examples) or values[tree] <= values[without]:
        raise SystemExit("the effect does not show: train longer, or on more stories")


if __name__ == "__main__":
    tyro.cli(main)
