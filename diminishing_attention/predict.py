"""Summarise texts or a data set.

The table has, in percent, repetition1 to 5: n-grams that stand before in the output,
novel1 to 4: that the source lacks, and lead_: ROUGE with the source's first sentences.

echo "A storm hit Norwick. Nobody was hurt." | python -m diminishing_attention.predict runs/pg-dim
python -m diminishing_attention.predict runs/pg-dim notes.txt --out notes.jsonl
python -m diminishing_attention.predict runs/pg-dim --data toy --split test --out dim.jsonl   # ends
    with the scores
python -m shared.score dim.jsonl more.jsonl                                               # systems
    side by side
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from shared import rouge
from shared.data import Example, in_sentences
from shared.run import DecodingFlags, find_device, in_windows, one_line_errors, read_flags
from shared.score import in_lines, system_name, write_outputs

from .config import DECODING, Positive
from .loading import Run, load_run, text_of
from .search import beam_search
from .text import Item, ngrams, split_words


@dataclass
class Options(DecodingFlags):
    """The command line."""

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
        preset = DECODING[self.decoding]
        flags = {name: getattr(self, name) for name in preset} | {
            "trigram_blocking": self.trigram_blocking or None
        }
        return preset | {name: value for name, value in flags.items() if value is not None}

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
    """Share of the n-grams, 0-1, that do not stand in the source (Figure 3, Section 4.4); without
    n-grams 0.
    """
    # D11: 1 minus the overlap that Figure 3's caption defines.
    grams, known = ngrams(words, n), set(ngrams(source, n))
    return sum(gram not in known for gram in grams) / len(grams) if grams else 0.0


def measure(text: str, document: Sequence[str], lead: int = 3) -> dict[str, float]:
    """The paper's own numbers of one output: words, and in percent repetition, novelty and overlap
    with the lead.
    """
    words, source = split_words(text), split_words(" ".join(document))
    row = {"words": len(words)}
    row |= {f"repetition{n}": 100 * repetition_ratio(words, n) for n in range(1, 6)}  # Figure 2
    row |= {f"novel{n}": 100 * novel_share(words, source, n) for n in range(1, 5)}  # Figure 3
    # Table 3
    return row | {f"lead_{name}": value for name, value in overlap(text, document[:lead]).items()}


def overlap(text: str, sentences: Sequence[str]) -> dict[str, list[float]]:
    """ROUGE of a text with some sentences, as shares, whose whole is 0 where they have no word."""
    whole = int(any(map(str.isalnum, "".join(sentences))))
    values = rouge.score([in_lines(text)], [[list(sentences)]])
    return {name: [float(value[0]) / 100, whole] for name, value in values.items()}


def predict(
    run: Run, examples: Sequence[Example], batch_size: int = 16, lead: int = 3, **search
) -> Iterator[dict]:
    """Decode documents in their order; yields a dict for each, for `shared.score`.

    Args:
        examples: documents in sentences.
        lead: first sentences of a document, whose overlap with the output is measured.
        search: beam, length_penalty, ...: as in `search.beam_search`.
    """
    # D17: Table 4's rows are three settings of these, each a call of its own.
    # D21: <unk> is never written
    search["never"] = run.tokenizer.pad_token_id, run.tokenizer.unk_token_id

    def decode(items: Sequence[Item]) -> list[list[int]]:
        # D10: a blocked trigram is of tokens, in BERTSum of word pieces.
        return beam_search(run.model, run.collate(items), **search).tokens

    outputs = in_windows(examples, run.encode, lambda item: len(item.source), decode, batch_size)
    for example, (item, tokens) in zip(examples, outputs, strict=True):
        text = text_of(run.config).decode(run.tokenizer, item, tokens)
        row = {"id": example.id, "prediction": text, "was_cut": item.was_cut}
        yield row | measure(text, example.document, lead)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run = load_run(options.run)
    run.model.to(find_device(options.device))
    examples = in_sentences(options.read(run.config.data))
    # a blank line in is a blank line out
    documents = [example for example in examples if example.document]
    rows = predict(run, documents, options.batch_size, options.lead, **options.search())
    system, seed = options.system or system_name(options.run.name, run.config.seed), run.config.seed
    texts = {"out": options.out, "overwrite": options.overwrite}
    write_outputs(
        rows, examples, system, seed, line=lambda row: row["prediction"].replace("\n", " "), **texts
    )


if __name__ == "__main__":
    main()
