"""Masks of whole sentences: the first three, and the three to which a tagger's words give the highest mean score.

python -m head_masking.experiments.bbc.sentences RUN DATA SPLIT HEADS TAGGER ... > rows.jsonl     rows for shared.score

Systems: RUN, without masks; RUN+words, masked by what a tagger selects; RUN+best, RUN+lead, RUN+linear, masked by its
best three sentences, by the first three and by those of linear.py; RUN+oracle. Then what masks them by itself: words,
best-3, lead-3, linear-3. Seeds: the taggers'. Where HEADS is "none" nothing is decoded.
"""

import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence

import numpy as np

from shared import pretrained
from shared.data import Example, load
from shared.score import system_name

from ...heads import find_heads, write_heads
from ...labels import Tagged, by_tagger, selected_words, tagging_counts
from ...loading import Summarizer, load_model, load_run, name_of
from ...oracle import Span, word_spans
from ...predict import decode, encode, read_documents, tag
from ..sweep import Kept, Setting
from .linear import fit

MASKS = "words", "best", "linear", "lead", "oracle"


def spans_of(sentences: list[str]) -> list[Span]:
    """Where the sentences stand in the document as one string."""
    ends = np.cumsum([len(sentence) + 1 for sentence in sentences])
    return [(int(end) - len(sentence) - 1, int(end) - 1) for sentence, end in zip(sentences, ends, strict=True)]


def best(tagged: Tagged, sentences: list[str], count: int = 3) -> list[int]:
    """The sentences whose tokens have the highest mean score, in their order."""
    means = []
    for start, end in spans_of(sentences):
        scores = [s for s, (a, b) in zip(tagged.scores, tagged.offsets, strict=True) if start <= a < b <= end]
        means.append(np.mean(scores) if scores else 0.0)
    return sorted(np.argsort(means, kind="stable")[::-1][:count].tolist())


def whole(sentences: list[str], chosen: list[int]) -> Tagged:
    """What a tagger would say that selects these sentences."""
    text, spans = " ".join(sentences), [spans_of(sentences)[i] for i in chosen]
    words = word_spans(text)
    return Tagged([float(any(a <= start < b for a, b in spans)) for start, _ in words], words, 0.5)


def read_kept(run: Summarizer, examples: Sequence[Example], tagged: Mapping[str, Sequence[Tagged]]) -> Kept:
    """What masked heads may see: by the oracle, and by each of these selectors."""
    documents = read_documents(run, examples)
    kept = {"oracle": read_documents(run, examples, oracle=True)}
    for kind, marks in tagged.items():
        triples = zip(examples, marks, documents, strict=True)
        kept[kind] = [document._replace(keep=by_tagger(e.source, one, document)) for e, one, document in triples]
    return kept


def parser() -> ArgumentParser:
    """The command line."""
    known = ArgumentParser(description=__doc__)
    for name in ("run", "data", "split", "heads"):
        known.add_argument(name)
    known.add_argument("tagger", nargs="+")
    known.add_argument("--threshold", type=float, help="of the taggers' words; default: each tagger's own")
    known.add_argument("--data-of-linear", default="", help="what the linear selector learns from; default: DATA")
    known.add_argument("--masks", nargs="+", default=["none", *MASKS], help="of which outputs are decoded")
    known.add_argument("--limit", type=int)
    known.add_argument("--max-length", type=int, default=160)
    known.add_argument("--no-repeat-ngram-size", type=int, default=3)
    known.add_argument("--beam", type=int)
    return known


def main(arguments: list[str] | None = None) -> None:
    """Print a row for each document, system and tagger; what depends on no tagger stands once for each of them."""
    options = parser().parse_args(arguments)
    run, examples = load_model(options.run), load(options.data, options.split, options.limit)
    taggers = [load_run(path) for path in options.tagger]
    seeds, name = [tagger.config.seed for tagger in taggers], system_name(name_of(options.run), run.seed)

    def show(i: int, system: str, text: str, seed: int, **more) -> None:
        row = {"id": examples[i].id, "prediction": text, "references": examples[i].references}
        print(json.dumps(row | {"system": system, "seed": seed} | more), flush=True)

    tagged, first, pick = {}, [[0, 1, 2] for _ in examples], fit(load(options.data_of_linear or options.data, "train"))
    of_linear = [pick(example.document) for example in examples]
    for seed, tagger in zip(seeds, taggers, strict=True):
        if options.threshold is not None:
            tagger.model.threshold.fill_(options.threshold)
        words = tag(tagger, [example.source for example in examples])
        top = [best(one, example.document) for one, example in zip(words, examples, strict=True)]
        tagged[f"words {seed}"] = words
        for kind, picks in (("best", top), ("linear", of_linear), ("lead", first)):
            tagged[f"{kind} {seed}"] = [whole(e.document, chosen) for e, chosen in zip(examples, picks, strict=True)]
            for i, chosen in enumerate(picks):
                text = "\n".join(examples[i].document[n] for n in chosen)
                show(i, f"{kind}-3", text, seed, **counts(tagged[f"{kind} {seed}"][i], examples[i]))
        for i, one in enumerate(words):
            show(i, "words", selected_words(examples[i].source, one), seed, **counts(one, examples[i]))
    if options.heads == "none":
        return
    heads = find_heads(options.heads, run.model)
    kinds = [k for k in tagged if k.startswith(("words", "best")) or k.endswith(f" {seeds[0]}")]
    settings = {"none": Setting()} | {k: Setting(k, heads) for k in (*kinds, "oracle")}
    settings = {k: setting for k, setting in settings.items() if k.split(" ")[0] in options.masks}
    generation = dict(max_length=options.max_length, no_repeat_ngram_size=options.no_repeat_ngram_size)
    pretrained.generation(run.model, run.max_target, num_beams=options.beam, **generation)
    kept = read_kept(run, examples, tagged)
    for encoded in encode(run, kept["oracle"]):
        for key, setting in settings.items():
            kind, _, seed = key.partition(" ")
            system = name if kind == "none" else f"{name}+{kind}"
            summaries = decode(run, encoded, setting.context(run, encoded, kept))
            for i, tokens in zip(encoded.numbers, summaries, strict=True):
                for s in [int(seed)] if kind in ("words", "best") else seeds:
                    show(i, system, run.text(tokens), s, heads=write_heads(setting.heads))


def counts(one: Tagged, example: Example) -> dict:
    """How well a selector finds the oracle's tokens."""
    return {k: v for k, v in tagging_counts(one, example.source, example.target).items() if k != "f1_of_all"}


if __name__ == "__main__":
    main()
