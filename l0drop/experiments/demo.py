"""The end of the README's demo: one test story, pruned, predicted, beside its reference, and the effect in one line.

python -m l0drop.experiments.demo runs/l0-longer runs/l0
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from shared.data import load
from shared.run import one_line_errors, read_flags
from shared.score import score

from ..loading import load_run
from ..predict import predict


@dataclass
class Options:
    """The command line."""

    control: tyro.conf.Positional[Path]  # Run without gates, trained equally long.
    pruned: tyro.conf.Positional[Path]  # Run with gates.
    limit: int = 100  # Test stories.


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    control, run = load_run(options.control), load_run(options.pruned)
    examples = load(run.config.data, "test", options.limit)
    rows = {"control": list(predict(control, examples)), "gates": list(predict(run, examples))}
    known = [
        row | {"system": system, "seed": 0, "references": example.references}
        for system in rows
        for row, example in zip(rows[system], examples, strict=True)
    ]
    value = {(row["system"], row["metric"]): row["value"] for row in score(known) if not row["minus"]}
    pairs = list(zip(rows["gates"], examples, strict=True))
    right = [pair for pair in pairs if pair[0]["prediction"] == pair[1].target]
    wrong = [pair for pair in pairs if pair not in right]
    for row, example in (right[:1] + wrong[:1])[:2]:  # one that came out right, one that did not
        print("story:     ", row["source"])
        print("prediction:", row["prediction"])
        print("reference: ", example.target)
    sparsity, quality, without = value["gates", "pruned"], value["gates", "rouge1"], value["control", "rouge1"]
    exact = f"{len(right)} of {len(examples)} summaries exact"
    print(f"{sparsity:.0f} % of the encodings pruned: ROUGE-1 {quality:.1f}, without pruning {without:.1f}; {exact}")
    if sparsity < 30 or quality < without - 5:
        raise ValueError("the effect does not show: train longer, or choose another lambda")


if __name__ == "__main__":
    main()
