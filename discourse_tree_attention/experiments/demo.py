"""The end of the README's demo: a test story and its extract, the reference, and how often tree and no tree are right.

python -m discourse_tree_attention.experiments.demo runs/discourse-none runs/discourse-tree
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from shared.data import load

from ..decode import extract_all
from ..documents import make_documents, prepare
from ..evaluate import evaluate, load_runs
from ..run import Positive, Share, check_fields, one_line_errors, read_flags
from ..selection import join_units


@dataclass
class Options:
    """The command line."""

    without: tyro.conf.Positional[Path]  # the run that reads no tree
    tree: tyro.conf.Positional[Path]  # the run that does
    limit: Positive = 100  # test stories
    least: Share = 0.2  # of the stories more must be right with trees than without


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.demo", description=__doc__)
    check_fields(options)
    runs = load_runs([options.without, options.tree])
    examples = load(runs[options.tree.name].config.data, "test", options.limit)
    without, tree = (evaluate(runs, examples)["systems"][name]["rouge1"]["mean"] for name in runs)
    right, texts = {}, {}
    for name, run in runs.items():
        documents = make_documents(examples, run.config)
        texts[name] = extract_all(run.model, prepare(documents, run.config, run.encoder, cache=""), run.config)
        # Right are exactly the clauses that the oracle takes: the facts that the summary tells.
        best = [join_units(d.units, d.sentence, d.labels.nonzero()[0]) for d in documents]
        right[name] = [i for i, text in enumerate(texts[name]) if text == best[i]]
    seen, blind = right[options.tree.name], right[options.without.name]
    shown = next((i for i in seen if i not in blind), 0)
    print("story:     ", " / ".join(documents[shown].units))
    print("no tree:   ", " ".join(texts[options.without.name][shown]))
    print("prediction:", " ".join(texts[options.tree.name][shown]))
    print("reference: ", examples[shown].target)
    counts = f"{len(seen)} of {len(examples)} stories with trees, {len(blind)} without"
    print(f"exactly the main facts extracted: {counts}; ROUGE-1 {tree:.1f}, without {without:.1f}")
    if len(seen) - len(blind) < options.least * len(examples) or tree <= without:
        raise ValueError("the effect does not show: train longer, or on more stories")


if __name__ == "__main__":
    main()
