"""The end of the README's demo: one test story, its summary beside the reference, and the effect in one line.

python -m encdec_sentence_sparse.experiments.demo runs/sparse runs/sparse-kl
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from shared.data import load

from ..evaluate import decode_all, evaluate
from ..loading import load_run
from ..run import Positive, check_fields, one_line_errors, read_flags
from ..selection import Selection


@dataclass
class Options:
    """The command line."""

    base: tyro.conf.Positional[Path]  # the base run
    learned: tyro.conf.Positional[Path]  # a run of --task kl or integrated that started from it
    limit: Positive = 60  # test stories
    r: Positive = 2  # sentences that each step attends to
    most: float = 3.0  # ROUGE-1 that the learned choice may lose to all sentences
    least: float = 10.0  # and must be above the random choice


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.demo", description=__doc__)
    check_fields(options)
    base, learned = load_run(options.base), load_run(options.learned)
    examples, r = load(base.config.data, "test", options.limit), options.r
    found = evaluate({"base": base}, examples, modes=("ideal", "random"), r=(r,))
    systems = found["systems"] | evaluate({"learned": learned}, examples, modes=("approx",), r=(r,))["systems"]
    names = "base.full", f"base.ideal.r{r}", f"base.random.r{r}", f"learned.approx.r{r}"
    full, ideal, random, approx = (systems[name]["rouge1"]["mean"] for name in names)
    [texts] = decode_all(learned, learned.encode(examples), {"learned": Selection("approx", r)}, examples)
    right = [i for i, example in enumerate(examples) if texts[i] == example.target]
    shown = right[0] if right else 0
    print("story:     ", examples[shown].source)
    print("prediction:", texts[shown])
    print("reference: ", examples[shown].target)
    sentences = found["runs"]["base"]["source_sentences"]
    scores = f"{approx:.1f}; all sentences {full:.1f}, ideally chosen {ideal:.1f}, at random {random:.1f}"
    exact = f"{len(right)} of {len(examples)} summaries exact"
    print(f"{r} of {sentences:.0f} sentences at each step, chosen by the learned map: ROUGE-1 {scores}; {exact}")
    if approx < full - options.most or approx < random + options.least or not right:
        raise ValueError("the effect does not show: train longer")


if __name__ == "__main__":
    main()
