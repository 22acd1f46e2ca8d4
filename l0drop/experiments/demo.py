"""The end of the README's demo: one test story, pruned, predicted, beside its reference, and the effect in one line.

python -m l0drop.experiments.demo runs/l0-longer runs/l0
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from shared.data import load
from shared.run import one_line_errors, read_flags
from shared.score import score

from ..decode import decode_all
from ..evaluate import evaluate
from ..loading import load_run
from ..predict import bracket_pruned


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
    rows = [*evaluate(control, examples, "control"), *evaluate(run, examples, "gates")]
    value = {(row["system"], row["metric"]): row["value"] for row in score(rows) if not row["minus"]}
    outputs = decode_all(run, run.encode(examples))
    texts = [run.tokenizer.decode(output.tokens) for output in outputs]
    right = [i for i, example in enumerate(examples) if texts[i] == example.target]
    wrong = [i for i in range(len(examples)) if i not in right]
    for i in (right[:1] + wrong[:1])[:2]:  # one that came out right, one that did not
        print("story:     ", bracket_pruned(run.tokenizer, examples[i].source, outputs[i].pruned[-1][:-1]))
        print("prediction:", texts[i])
        print("reference: ", examples[i].target)
    sparsity, quality, without = value["gates", "pruned"], value["gates", "rouge1"], value["control", "rouge1"]
    exact = f"{len(right)} of {len(examples)} summaries exact"
    print(f"{sparsity:.0f} % of the encodings pruned: ROUGE-1 {quality:.1f}, without pruning {without:.1f}; {exact}")
    if sparsity < 30 or quality < without - 5:
        raise ValueError("the effect does not show: train longer, or choose another lambda")


if __name__ == "__main__":
    main()
