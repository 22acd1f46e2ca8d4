"""The end of the README's demo: masks by the tagger against none, and one story told right because of them.

python -m head_masking.experiments.demo runs/hm runs/hm-tagger
"""

import sys

from shared.data import load

from ..decode import Setting, decode, encode, find_heads, read_documents, tag
from ..loading import load_run
from .sweep import score

LEAST = 10  # points of ROUGE-1 that the masks must gain


def main(summarizer: str, tagger: str, limit: int = 100) -> None:
    """Decode the first test stories without masks, with the tagger's and with the oracle's."""
    run, selector = load_run(summarizer, "summarizer"), load_run(tagger, "tagger")
    examples = load(selector.config.data, "test", limit)
    tagged, heads = {"tagger": tag(selector, [example.source for example in examples])}, find_heads("top", run)
    documents = read_documents(run, examples, tagged, oracle=True, min_run=selector.config.min_run)
    settings = {"plain": Setting()} | {kind: Setting(kind, heads) for kind in ("tagger", "oracle")}
    texts = {name: [""] * len(examples) for name in settings}
    for name, i, _, text in decode(run, documents, settings, encode(run.model, documents), num_beams=1):
        texts[name][i] = text
    shown = first_told_right(examples, texts)
    print("story:    ", examples[shown].source)
    print("may see:  ", seen(examples[shown].source, documents[shown]))
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


def seen(source: str, document) -> str:
    """The words that the masked heads may look at."""
    words = zip(document.offsets, document.masks["tagger"], strict=True)
    return "".join(source[slice(*place)] + " " for place, is_kept in words if is_kept)


if __name__ == "__main__":
    main(*sys.argv[1:])
