"""Heads and thresholds on validation articles: gain in ROUGE over no masks, of every setting that is named.

python -m head_masking.experiments.bbc.choose RUN DATA TAGGER OUT.csv SETTING ... [--beam 1] [--limit 64]

A setting is KIND@HEADS: 0.2@top, words above 0.2; own@3:0-5, at the tagger's own threshold; best@3:0-5, its three best
sentences; lead@..., the first three; linear@..., those of linear.py; oracle@.... TAGGER may be "none". What was decoded
once is kept beside OUT.csv.
"""

from argparse import ArgumentParser
from pathlib import Path

from shared import pretrained
from shared.data import load, write_csv

from ...heads import find_heads, write_heads
from ...loading import load_model, load_run
from ...predict import decode, encode, tag
from ..sweep import Scores, Setting, Sweep, interval, score
from .linear import fit
from .sentences import best, read_kept, whole


def parser() -> ArgumentParser:
    """The command line."""
    known = ArgumentParser(description=__doc__)
    for name in ("run", "data", "tagger", "csv"):
        known.add_argument(name)
    known.add_argument("settings", nargs="+")
    known.add_argument("--limit", type=int, default=64)
    known.add_argument("--beam", type=int, default=1)
    known.add_argument("--max-length", type=int, default=160)
    return known


def main(arguments: list[str] | None = None) -> None:
    """Decode what is not known yet, print and write the table."""
    options = parser().parse_args(arguments)
    run, examples = load_model(options.run), load(options.data, "validation", options.limit)
    wanted = [setting.split("@") for setting in options.settings]
    pick, tagged = fit(load(options.data, "train")), {}
    if options.tagger != "none":
        own = tag(load_run(options.tagger), [example.source for example in examples])
        tagged["own"] = own
        tagged["best"] = [whole(e.document, best(one, e.document)) for e, one in zip(examples, own, strict=True)]
        for kind, _ in wanted:
            if kind[0].isdigit():
                tagged[kind] = [one._replace(threshold=float(kind)) for one in own]
    tagged["linear"] = [whole(e.document, pick(e.document)) for e in examples]
    tagged["lead"] = [whole(e.document, [0, 1, 2]) for e in examples]
    kept = read_kept(run, examples, tagged)
    batches = list(encode(run, kept["oracle"]))
    generation = dict(num_beams=options.beam, max_length=options.max_length, no_repeat_ngram_size=3)
    pretrained.generation(run.model, run.max_target, **generation)

    def measure(setting: Setting) -> Scores:
        texts = [""] * len(examples)
        for encoded in batches:
            summaries = decode(run, encoded, setting.context(run, encoded, kept))
            for i, tokens in zip(encoded.numbers, summaries, strict=True):
                texts[i] = run.text(tokens)
        return score(texts, examples)

    about = repr((options.run, options.tagger, options.data, options.limit, generation))
    sweep = Sweep(Path(options.csv).with_suffix(".jsonl"), measure, about)
    settings = [Setting(kind, find_heads(heads, run.model)) for kind, heads in wanted]
    plain, rows = sweep.run([Setting()])[0], []
    for setting in (Setting(), *settings):
        [values] = sweep.run([setting])
        row = {"masks": setting.kind, "heads": write_heads(setting.heads)}
        row |= {"beam": options.beam, "articles": len(examples)}
        for metric in ("rouge1", "rouge2"):
            row |= {metric: values[metric].mean(), f"{metric}_gain": interval(values[metric] - plain[metric])}
        rows.append(row)
        gain = row["rouge1_gain"]
        shown = f"{gain['mean']:+.1f} [{gain['low']:.1f}, {gain['high']:.1f}]"
        print(f"{setting.kind:8} {row['heads']:20} {row['rouge1']:.1f} {row['rouge2']:.1f}  {shown}", flush=True)
    with open(options.csv, "w", encoding="utf-8", newline="") as file:
        write_csv(file, rows)


if __name__ == "__main__":
    main()
