"""Summarise texts or a data set.

The table has, in percent, repetition1 to 5: n-grams that stand before in the output,
novel1 to 4: that the source lacks, and lead_: ROUGE with the source's first sentences.

echo "A storm hit Norwick. Nobody was hurt." | python -m diminishing_attention.predict runs/pg-dim
python -m diminishing_attention.predict runs/pg-dim notes.txt --out notes.jsonl
python -m diminishing_attention.predict runs/pg-dim --data toy --split test --out dim.jsonl
python -m shared.score dim.jsonl more.jsonl   # systems side by side
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from shared import rouge
from shared.data import Example, in_sentences, read
from shared.pack import pack
from shared.run import find_device, one_line_errors, read_flags
from shared.score import in_lines, system_name, write_outputs

from .config import DECODING, Positive
from .loading import Run, load_run, text_of
from .search import beam_search
from .text import ngrams, split_words

WINDOW = 512  # documents that are sorted by length, so that a batch has hardly any padding


@dataclass
class Options:
    """The command line."""

    run: tyro.conf.Positional[Path]  # Run folder.
    # Text, a document a line, or .jsonl; none: standard input.
    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    data: str = ""  # In place of files: anything that shared.data.load takes.
    # Split of the data (none: test); without --data, of the data that the run was trained on.
    split: str = ""
    limit: Positive | None = None  # First documents only.
    # .jsonl for all that is known of each document, else a line each; none: standard output.
    out: Path | None = None
    overwrite: bool = False  # Replace that file.
    system: str = ""  # Name in the table; none: the folder's, without its seed.
    batch_size: Positive = 16  # Documents decoded at a time; outputs do not depend on it.
    device: str = "cpu"  # Device of torch.
    words: rouge.Words = "rouge-score"  # Of ROUGE: English, or those of any script.
    # First sentences of a document whose overlap with the output is measured (Table 3).
    lead: Positive = 3
    # Search of a preset; the five flags that follow win over it.
    decoding: Literal[tuple(DECODING)] = "tiny"
    beam: Positive | None = None  # Open hypotheses of a document.
    # alpha of Wu et al.; 0 = the mean of the tokens.
    length_penalty: Annotated[float, (0, 10)] | None = None
    trigram_blocking: bool = False  # Write no trigram twice.
    min_length: int | None = None  # Fewest tokens of an output, the end included.
    # Most tokens of an output, the end included.
    max_length: Annotated[int, (2, 10**6)] | None = None

    def search(self) -> dict:
        """Values for `search.beam_search`: those of --decoding, unless a flag is given."""
        values = dict(DECODING[self.decoding])
        for name in ("beam", "length_penalty", "min_length", "max_length"):
            if getattr(self, name) is not None:
                values[name] = getattr(self, name)
        if self.trigram_blocking:
            values["trigram_blocking"] = True
        return values

    def check(self) -> None:
        """ValueError for values that contradict each other."""
        least, most = self.search()["min_length"], self.search()["max_length"]
        if most < least:
            raise ValueError(f"--max-length is {most}; it must be at least --min-length {least}")


def repetition_ratio(words: Sequence[str], n: int) -> float:
    """Duplicate n-grams / n-grams (Figure 2), 0-1. A text without n-grams repeats nothing: 0."""
    # D11: every occurrence after the first is a duplicate.
    grams = ngrams(words, n)
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def novel_share(words: Sequence[str], source: Sequence[str], n: int) -> float:
    """Share of the n-grams, 0-1, that the source lacks (Figure 3, Section 4.4); of none 0."""
    # D11: 1 minus the overlap that Figure 3's caption defines.
    grams, known = ngrams(words, n), set(ngrams(source, n))
    return sum(gram not in known for gram in grams) / len(grams) if grams else 0.0


def measure(
    text: str, document: Sequence[str], lead: int = 3, words: rouge.Words = "rouge-score"
) -> dict[str, float]:
    """The paper's own numbers of an output: words, repetition, novelty, overlap with the lead.

    In percent; `words` are ROUGE's.
    """
    own, source = split_words(text), split_words(" ".join(document))
    row = {"words": len(own)}
    row |= {f"repetition{n}": 100 * repetition_ratio(own, n) for n in range(1, 6)}  # Figure 2
    row |= {f"novel{n}": 100 * novel_share(own, source, n) for n in range(1, 5)}  # Figure 3
    # Table 3
    values = overlap(text, document[:lead], words)
    return row | {f"lead_{name}": value for name, value in values.items()}


def overlap(text: str, sentences: Sequence[str], words: rouge.Words) -> dict[str, list[float]]:
    """ROUGE of a text with some sentences, as shares: [share, whole].

    The whole is 0 where the sentences have no word or ROUGE does not read them.
    """
    lead = " ".join(sentences)
    is_read = any(map(str.isalnum, lead))
    if words == "rouge-score" and rouge.share_unread(lead) > 0.02:
        is_read = False
    values = rouge.score([in_lines(text)], [[list(sentences)]], words)
    shares = {name: float(value[0]) / 100 for name, value in values.items()}
    return {name: [share * is_read, int(is_read)] for name, share in shares.items()}


def predict(
    run: Run,
    examples: Sequence[Example],
    batch_size: int = 16,
    lead: int = 3,
    words: rouge.Words = "rouge-score",
    **search,
) -> Iterator[dict]:
    """Decode documents in their order; yields a dict for each, for `shared.score`.

    Args:
        examples: documents in sentences.
        lead: first sentences of a document, whose overlap with the output is measured.
        words: ROUGE's.
        search: beam, length_penalty, ...: as in `search.beam_search`.
    """
    # D17: Table 4's rows are three settings of these, each a call of its own.
    # D21: <unk> is never written
    search["never"] = run.tokenizer.pad_token_id, run.tokenizer.unk_token_id
    for start in range(0, len(examples), WINDOW):
        window = examples[start : start + WINDOW]
        items = run.encode(window)
        order = sorted(range(len(items)), key=lambda place: len(items[place].source))
        outputs = {}
        for first in range(0, len(items), batch_size):
            places = order[first : first + batch_size]
            batch = run.collate([items[place] for place in places])
            # D10: a blocked trigram is of tokens, in BERTSum of word pieces.
            hypotheses = beam_search(run.model, batch, **search)
            outputs |= zip(places, hypotheses.tokens, strict=True)
        for place, (example, item) in enumerate(zip(window, items, strict=True)):
            text = text_of(run.config).decode(run.tokenizer, item, outputs[place])
            row = {"id": example.id, "prediction": text, "was_cut": item.was_cut}
            yield row | measure(text, example.document, lead, words)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run = load_run(options.run)
    data = options.data or (run.config.data if options.split else "")
    examples = in_sentences(read(options.files, data, options.split or "test", options.limit))
    run.model.to(find_device(options.device))
    is_packed = pack(run.model)  # last: a packed model can only decode
    documents = [example for example in examples if example.document]  # a blank line stays one
    words = options.words
    write_outputs(
        predict(run, documents, options.batch_size, options.lead, words, **options.search()),
        examples,
        system=options.system or system_name(options.run.name, run.config.seed),
        seed=run.config.seed,
        out=options.out,
        overwrite=options.overwrite,
        words=words,
    )
    if is_packed:
        print("decoded with packed weights (shared/pack.py)", file=sys.stderr)


if __name__ == "__main__":
    main()
