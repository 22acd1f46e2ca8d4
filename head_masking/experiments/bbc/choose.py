"""Heads and thresholds on 64 validation articles: gain in ROUGE over no masks, of every setting that is named.

python -m head_masking.experiments.bbc.choose RUN DATA TAGGER OUT.csv SETTING ... [--beam 1]

A setting is KIND@HEADS: 0.2@top, words above 0.2; own@3:0-5, at the tagger's own threshold; best@3:0-5, its three best
sentences; lead@..., the first three; linear@..., those of linear.py; oracle@.... TAGGER may be "none".
"""

from argparse import ArgumentParser

from shared import pretrained
from shared.data import load, write_csv
from shared.run import one_line_errors

from ...heads import find_heads, write_heads
from ...loading import load_model, load_run
from ...predict import read_documents
from ..sweep import interval, measuring
from .linear import fit
from .sentences import LENGTH, masked_by, selections, whole

ARTICLES = 64


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    """Decode, and write the table."""
    parser = ArgumentParser(description=__doc__)
    for name in ("run", "data", "tagger", "csv"):
        parser.add_argument(name)
    parser.add_argument("settings", nargs="+")
    parser.add_argument("--beam", type=int, default=1)
    options = parser.parse_args(arguments)
    run, examples = load_model(options.run), load(options.data, "validation", ARTICLES)
    words = []
    if options.tagger != "none":
        words = load_run(options.tagger).tag([example.source for example in examples])
    chosen = selections(examples, fit(load(options.data, "train")), words)
    tagged = {kind: [whole(e.document, own) for e, own in zip(examples, chosen[kind], strict=True)] for kind in chosen}
    tagged["own"] = words
    wanted = [setting.split("@") for setting in options.settings]
    for kind, _ in wanted:
        if kind[0].isdigit():
            tagged[kind] = [one._replace(threshold=float(kind)) for one in words]
    kept = {"oracle": read_documents(run, examples, oracle=True)}
    for kind, marks in tagged.items():
        if marks:
            kept[kind] = masked_by(run, dict(zip([e.id for e in examples], marks, strict=True)), examples)
    generation = dict(num_beams=options.beam, max_length=LENGTH, no_repeat_ngram_size=3)
    pretrained.generation(run.model, run.max_target, **generation)
    measure, rows = measuring(run, examples, kept), []
    plain = measure("plain", {})
    for kind, heads in [("plain", {}), *((kind, find_heads(heads, run.model)) for kind, heads in wanted)]:
        values, row = measure(kind, heads), {"masks": kind, "heads": write_heads(heads)}
        row |= {"beam": options.beam, "articles": len(examples)}
        for metric in ("rouge1", "rouge2"):
            row |= {metric: values[metric].mean(), f"{metric}_gain": interval(values[metric] - plain[metric])}
        rows.append(row)
    with open(options.csv, "w", encoding="utf-8", newline="") as file:
        write_csv(file, rows)


if __name__ == "__main__":
    main()
