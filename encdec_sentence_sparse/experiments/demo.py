"""The end of the README's demo: one test story, its summary beside the reference, and the effect in one line.

python -m encdec_sentence_sparse.experiments.demo runs/sparse runs/sparse-kl
"""

from pathlib import Path

import tyro

from shared.data import load
from shared.run import one_line_errors
from shared.score import score

from ..evaluate import evaluate
from ..loading import load_run
from ..selection import Selection


def main(base: tyro.conf.Positional[Path], learned: tyro.conf.Positional[Path], limit: int = 60, r: int = 2) -> None:
    """Decode test stories with a base run and a run of --task kl that started from it."""
    summariser, mapped = load_run(base), load_run(learned)
    examples = load(summariser.config.data, "test", limit)
    modes = {mode: Selection(mode, r) for mode in ("full", "ideal", "mean_key", "random")}
    rows = evaluate(summariser, "base", examples, modes)
    rows += evaluate(mapped, "learned", examples, {"approx": Selection("approx", r)})
    scores = {row["system"]: row["value"] for row in score(rows) if row["metric"] == "rouge1" and not row["minus"]}
    texts = {row["id"]: row["prediction"] for row in rows if row["system"] == "learned.approx"}
    exact = sum(texts[example.id] == example.target for example in examples)
    print("story:     ", examples[0].source)
    print("prediction:", texts[examples[0].id])
    print("reference: ", examples[0].target)
    full, ideal, mean_key, random = (scores[f"base.{mode}"] for mode in modes)
    approx, sentences = scores["learned.approx"], rows[0]["source_sentences"]
    others = (
        f"all sentences {full:.1f}, ideally chosen {ideal:.1f}, by mean keys {mean_key:.1f}, at random {random:.1f}"
    )
    print(f"{r} of {sentences} sentences at each step, chosen by the learned map: ROUGE-1 {approx:.1f}; {others}")
    print(f"{exact} of {len(examples)} summaries are exactly right")
    if approx < full - 3 or approx < random + 10:
        raise ValueError("the effect does not show: train longer")


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
