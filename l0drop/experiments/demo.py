"""The end of the README's demo: one test story, pruned, predicted, beside its reference, and the effect in one line.

python -m l0drop.experiments.demo runs/l0-base runs/l0
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from shared.data import load

from ..decode import decode_all
from ..evaluate import evaluate, load_runs
from ..predict import bracket_pruned
from ..run import Positive, check_fields, one_line_errors, read_flags


@dataclass
class Options:
    """The command line."""

    base: tyro.conf.Positional[Path]  # the run without gates
    pruned: tyro.conf.Positional[Path]  # the run with gates
    limit: Positive = 100  # test stories
    least: float = 30.0  # of the encodings must be pruned, %
    most: float = 5.0  # ROUGE-1 may fall by so much


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.demo", description=__doc__)
    check_fields(options)
    runs = load_runs([options.base, options.pruned], "cpu")
    run = runs[options.pruned.name]
    examples = load(run.config.data, "test", options.limit)
    base, pruned = evaluate(runs, examples, metric="rougeLsum")["systems"].values()
    outputs = decode_all(run, run.encode(examples))
    texts = [run.tokenizer.decode(output.tokens) for output in outputs]
    right = [i for i, example in enumerate(examples) if texts[i] == example.target]
    shown = right[0] if right else 0
    print("story:     ", bracket_pruned(run.tokenizer, examples[shown].source, outputs[shown].pruned[-1][:-1]))
    print("prediction:", texts[shown])
    print("reference: ", examples[shown].target)
    scores = f"ROUGE-1 {pruned['rouge1']['mean']:.1f}, without pruning {base['rouge1']['mean']:.1f}"
    exact = f"{len(right)} of {len(examples)} summaries exact"
    print(f"{pruned['sparsity']:.0f} % of the encodings pruned: {scores}; {exact}")
    fall = base["rouge1"]["mean"] - pruned["rouge1"]["mean"]
    if pruned["sparsity"] < options.least or fall > options.most or not right:
        raise ValueError("the effect does not show: train longer, or choose another lambda")


if __name__ == "__main__":
    main()
