"""Summarise plain text, a document per line, with the attention of some heads on what a tagger holds to be salient.

python -m head_masking.predict runs/hm-base story.txt --tagger runs/hm-tagger --both
python -m head_masking.predict facebook/bart-large-cnn notes.txt --keep-words storm Norwick --out notes.jsonl
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import transformers
import tyro
from tqdm import tqdm

from shared.data import Example, check_outputs, read_texts
from shared.timing import find_device

from .evaluate import read_summaries, tag_all
from .labels import Labels, Tagged, kind_of, read_documents
from .oracle import word_spans
from .run import one_line_errors
from .sweep import Setting, decode, encode, find_heads
from .train import Run, load_run, load_summarizer

DEFAULT_LABELS = Labels()


@dataclass
class Options:
    """The command line."""

    model: tyro.conf.Positional[str]  # a run, or the folder or name of an encoder-decoder of transformers
    files: tyro.conf.Positional[tuple[Path, ...]] = ()  # text, a document per line, or .jsonl; none: standard input
    tagger: Path | None = None  # run of a tagger: masked heads see the words that it selects
    keep_words: tuple[str, ...] = ()  # or: masked heads see these words
    heads: str = "top"  # what to mask: 1:0-3,2:1,3, "top" (layer, all heads), or a data set of Appendix B
    threshold: float | None = None  # decision boundary in [0, 1); default: the tagger's own
    min_keep: int = 5  # tokens that a masked head sees, at least (released code: 5)
    both: bool = False  # print the summary without masks, too, and what was kept
    out: Path | None = None  # a line per document, or .jsonl with all that is known; none: standard output
    batch_size: int = 8  # documents decoded at a time; outputs do not depend on it
    device: str = "cpu"


def predict(
    run: Run,
    examples: Iterable[Example],
    tagger: Run | None = None,
    keep_words: Sequence[str] = (),
    heads: str = "top",
    labels: Labels = DEFAULT_LABELS,
    both: bool = False,
    batch_size: int = 8,
) -> Iterator[dict]:
    """Summarise documents in their order, as they come, under the model's own generation settings.

    Args:
        tagger: what masked heads may see; without it `keep_words`; without both no head is masked.
        both: decode without masks, too.
    Yields:
        of each document id, prediction, kept (the words that masked heads see), plain (with `both`), was_cut.
    """
    examples, heads = iter(examples), find_heads(heads, run.model)
    while batch := list(islice(examples, batch_size)):
        tagged = {}
        if tagger:
            tagged = {"tagger": tag_all(tagger, batch)}
        elif keep_words:
            tagged = {"tagger": (0.5, [mark_words(example.source, keep_words) for example in batch])}
        documents, offsets, _ = read_documents(run.tokenizer, run.config.max_source, batch, labels, tagged, False)
        setting = Setting(kind_of("tagger"), heads) if tagged else Setting("plain")
        [encoded] = encode(run.model, documents, batch_size)
        masked = read_summaries(run, decode(run.model, documents, encoded, setting))
        plain = read_summaries(run, decode(run.model, documents, encoded, Setting("plain"))) if both else masked
        place = {number: row for row, number in enumerate(encoded.numbers)}
        for i, example in enumerate(batch):
            keep = documents[i].keep.get(setting.kind, [False] * len(offsets[i]))
            kept = [span for span, is_kept in zip(offsets[i], keep, strict=True) if is_kept]
            row = {"id": example.id, "prediction": masked[place[i]], "kept": words_at(example.source, kept)}
            row |= {"plain": plain[place[i]]} if both else {}
            yield row | {"was_cut": max(end for _, end in offsets[i]) < len(example.source.rstrip())}


def mark_words(text: str, words: Sequence[str]) -> Tagged:
    """Score 1 for the words of a text that are among `words`, in any case of letters."""
    spans, wanted = word_spans(text), {word.lower() for word in words}
    return Tagged([float(text[start:end].lower() in wanted) for start, end in spans], spans)


def words_at(text: str, kept: Sequence[tuple[int, int]]) -> list[str]:
    """The words of a text of which a kept token is a piece."""
    return [text[a:b] for a, b in word_spans(text) if any(a < end and start < b for start, end in kept)]


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.predict", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    if options.tagger and options.keep_words:
        raise ValueError("--tagger and --keep-words both say what to keep: give one of the two")
    if options.batch_size < 1 or options.min_keep < 0:
        raise ValueError("--batch-size must be at least 1, --min-keep at least 0")
    if options.threshold is not None and not 0 <= options.threshold < 1:
        raise ValueError(f"--threshold is {options.threshold}; it must be in [0, 1)")
    device, run = find_device(options.device), load_summarizer(options.model)
    run.model.to(device)
    tagger = load_run(options.tagger, "tagger") if options.tagger else None
    if tagger:
        tagger.model.to(device)
        if options.threshold is not None:
            tagger.model.threshold.fill_(options.threshold)
    check_outputs(options.out)
    rows = predict(
        run, read_texts(options.files), tagger, options.keep_words, options.heads, Labels(min_keep=options.min_keep),
        options.both, options.batch_size,
    )  # fmt: skip
    with open(options.out, "w", encoding="utf-8") if options.out else nullcontext(sys.stdout) as file:
        for row in tqdm(rows, unit="document", disable=not options.out):
            if options.out and options.out.suffix == ".jsonl":
                line = json.dumps(row, ensure_ascii=False)
            else:
                both = f"plain:  {row.get('plain')}\nkept:   {' '.join(row['kept'])}\nmasked: "
                line = (both if options.both else "") + row["prediction"]
            print(line, file=file, flush=True)


if __name__ == "__main__":
    main()
