"""The end of the README's demo: one test story, its summary beside the reference, and the effect in one line.

python -m encdec_sentence_sparse.experiments.demo runs/sparse runs/sparse-kl
"""

from pathlib import Path

import tyro

from shared.data import load
from shared.run import one_line_errors
from shared.score import score

from ..loading import load_run
from ..predict import predict
from ..selection import Selection
from .mean_key import use_mean_keys


def main(base: tyro.conf.Positional[Path], learned: tyro.conf.Positional[Path], limit: int = 60, r: int = 2) -> None:
    """Decode test stories with a base run and a run of --task kl that started from it."""
    summariser, mapped = load_run(base), load_run(learned)
    examples = load(summariser.config.data, "test", limit)
    rows = []
    for system in ("full", "ideal", "random", "mean keys", "learned map"):
        if system == "mean keys":
            use_mean_keys(summariser.model)
        run = mapped if system == "learned map" else summariser
        selection = Selection(system if system in ("full", "ideal", "random") else "approx", r)
        for example, row in zip(examples, predict(run, examples, selection=selection, batch_size=32), strict=True):
            rows.append(row | {"system": system, "seed": 0, "references": example.references})
    scores = {row["system"]: row["value"] for row in score(rows) if row["metric"] == "rouge1" and not row["minus"]}
    texts = [row["prediction"] for row in rows if row["system"] == "learned map"]
    exact = sum(text == example.target for text, example in zip(texts, examples, strict=True))
    print(f"story:      {examples[0].source}\nprediction: {texts[0]}\nreference:  {examples[0].target}")
    print(f"{exact} of {len(examples)} summaries are exactly right; in the others a name or a number is wrong")
    others = (
        "all sentences {full:.1f}, ideally chosen {ideal:.1f}, at random {random:.1f}, by mean keys {mean keys:.1f}"
    )
    chosen = f"{r} of {rows[0]['sentences']} sentences at each step, chosen by the learned map"
    print(f"{chosen}: ROUGE-1 {scores['learned map']:.1f}; {others.format(**scores)}")
    if scores["learned map"] < max(scores["full"] - 3, scores["random"] + 10):
        raise ValueError("the effect does not show: train longer")


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
