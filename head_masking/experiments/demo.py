"""The end of the README's demo: masks by the tagger against none, and one story told right because of them.

python -m head_masking.experiments.demo runs/hm runs/hm-tagger
"""

import sys
from functools import partial

from shared import pretrained
from shared.data import load

from ..heads import find_heads
from ..loading import load_model, load_run
from ..predict import predict, read_documents
from .sweep import score

LEAST = 10  # points of ROUGE-1 that the masks must gain


def main(summarizer: str, tagger: str, limit: int = 100) -> None:
    """Decode the first test stories without masks, with the tagger's and with the oracle's."""
    run, selector = load_model(summarizer), load_run(tagger)
    pretrained.generation(run.model, run.max_target, num_beams=1)
    examples = load(selector.config.data, "test", limit)
    top, min_run = find_heads("top", run.model), selector.config.min_run
    masked = list(predict(run, examples, partial(read_documents, run, tagger=selector), top, both=True))
    oracle = list(predict(run, examples, partial(read_documents, run, oracle=True, min_run=min_run), top))
    texts = {"plain": [row["plain"] for row in masked], "tagger": [row["prediction"] for row in masked]}
    texts["oracle"] = [row["prediction"] for row in oracle]
    shown = first_told_right(examples, texts)
    print("story:    ", examples[shown].source)
    print("may see:  ", masked[shown]["kept"])
    print("no masks: ", texts["plain"][shown])
    print("masked:   ", texts["tagger"][shown])
    print("reference:", examples[shown].target)
    means = {name: score(own, examples)["rouge1"].mean() for name, own in texts.items()}
    exact = {name: sum(t == e.target for t, e in zip(own, examples, strict=True)) for name, own in texts.items()}
    print(
        f"ROUGE-1 without masks {means['plain']:.1f}, by the tagger's {means['tagger']:.1f}, "
        f"by the oracle's {means['oracle']:.1f}; {exact['plain']} of {len(examples)} summaries exact without masks, "
        f"{exact['tagger']} with the tagger's"
    )
    if means["tagger"] < means["plain"] + LEAST or texts["tagger"][shown] != examples[shown].target:
        sys.exit("error: the effect does not show: train longer")


def first_told_right(examples, texts: dict[str, list[str]]) -> int:
    """The first story that is told right with the tagger's masks and not without."""
    masked = enumerate(zip(examples, texts["tagger"], texts["plain"], strict=True))
    return next((i for i, (example, own, plain) in masked if own == example.target != plain), 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
