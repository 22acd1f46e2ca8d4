"""Translate or summarise texts or a data set with a run; with references it ends with a table of
scores.

echo "Ein Mann schläft." | python -m l0drop.predict runs/l0 --show-pruned
python -m l0drop.predict runs/l0 notes.txt --out notes.jsonl
python -m l0drop.predict runs/l0 --data toy --split test --out l0.jsonl
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from shared.data import Example
from shared.run import DecodingFlags, find_device, in_windows, one_line_errors, read_flags
from shared.score import system_name, write_outputs

from .config import LENGTH_PENALTY, Length, Positive
from .loading import Run, load_run
from .search import generate
from .text import Item


@dataclass
class Options(DecodingFlags):
    """The command line."""

    # auto: BLEU where source and target are one string each (D16).
    metric: Literal["auto", "bleu", "rouge"] = "auto"
    # Print each source, its pruned words in [brackets], before its output.
    show_pruned: bool = False
    beam: Positive = 4  # Hypotheses of the search (Appendix A).
    # Of the search; none: 0.6, for characters 1.0.
    length_penalty: Annotated[float, (0, 10)] | None = None
    max_length: Length | None = None  # Longest output in tokens; none: its source and 50 (D7).


class Decoded(NamedTuple):
    """A decoded document."""

    tokens: list[int]  # EOS and PAD included
    pruned: list[list[bool]]  # (L0Drop layers, S): which source encodings were dropped


def decode(run: Run, items: Sequence[Item], **search) -> list[Decoded]:
    """Decode a batch; `search` as in `search.generate`."""
    search = {"length_penalty": LENGTH_PENALTY[run.config.units]} | search
    hypotheses, encoding, _ = generate(run.model, run.collate(items).source, **search)
    closed = [gates == 0 for gates in encoding.gates] or [encoding.keep & False]
    rows = zip(
        items,
        hypotheses.tokens.tolist(),
        zip(*(layer.tolist() for layer in closed), strict=True),
        strict=True,
    )
    return [
        Decoded(tokens, [layer[: len(item.source)] for layer in layers])
        for item, tokens, layers in rows
    ]


def predict(
    run: Run, examples: Sequence[Example], batch_size: int = 32, decode: Callable = decode, **search
) -> Iterator[dict]:
    """Decode documents in their order and yield a `row` of each; `search` as in
    `search.generate`.
    """
    decoded = in_windows(
        examples,
        run.encode,
        lambda item: len(item.source),
        lambda items: decode(run, items, **search),
        batch_size,
    )
    for example, (item, output) in zip(examples, decoded, strict=True):
        yield row(run, example, item, output)


def row(run: Run, example: Example, item: Item, output: Decoded) -> dict:
    """A line of output: prediction, source with the pruned words in brackets, and [pruned,
    encodings].

    "pruned" is of the output, "pruned_layer_1" and so on of the layers before it; </s> counts as an
    encoding (D9).
    """
    names = [*(f"pruned_layer_{n}" for n in range(1, len(output.pruned))), "pruned"]
    special = run.model.pad, run.model.bos, run.model.eos
    text = run.tokenizer.decode([token for token in output.tokens if token not in special])
    return {
        "id": example.id,
        "prediction": " ".join(text.split()),
        "source": bracket_pruned(run, example.source, output.pruned[-1][:-1]),
        **{
            name: [sum(layer), len(layer)] for name, layer in zip(names, output.pruned, strict=True)
        },
        "was_cut": item.was_cut,
    }


def bracket_pruned(run: Run, source: str, pruned: Sequence[bool]) -> str:
    """The source, as it was written, in brackets the words of which every token is pruned; what was
    cut is left out.
    """
    encoding, text, end, is_open = run.tokenizer.encode(source), "", 0, False
    tokens = list(zip(encoding.word_ids, encoding.offsets, pruned, strict=False))
    kept = {word for word, _, is_pruned in tokens if not is_pruned}
    ends = {word: stop for word, (_, stop), _ in tokens}  # of each word, the end of its last token
    for word, stop in ends.items():
        part = source[end:stop]
        letters = part.lstrip(" ")
        if is_open and word in kept:
            text, is_open = text + "]", False
        text += part[: len(part) - len(letters)]  # blanks stay outside the bracket
        if letters and word not in kept and not is_open:
            text, is_open = text + "[", True
        text, end = text + letters, stop
    return text + "]" * is_open


def metric_of(examples: Sequence[Example]) -> str:
    """BLEU where source and target are one string each, as in translation; else ROUGE (D16)."""
    return (
        "bleu"
        if all(len(example.document + example.summary) == 2 for example in examples)
        else "rouge"
    )


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    run = load_run(options.run)
    write(run, options.read(run.config.data), options)


def write(run: Run, examples: Sequence[Example], options: Options, **search) -> None:
    """Decode and write what the command line asks for; `search` as in `predict`."""
    run.model.to(find_device(options.device))
    flags = {
        name: getattr(options, name)
        for name in ("batch_size", "beam", "length_penalty", "max_length")
    }
    search |= {name: value for name, value in flags.items() if value is not None}
    # a blank line stays one
    rows = predict(run, [example for example in examples if example.document], **search)
    settings = {
        "system": options.system or system_name(options.run.name, run.config.seed),
        "seed": run.config.seed,
    }
    settings |= {"metric": metric_of(examples) if options.metric == "auto" else options.metric}
    line = (
        (lambda row: f"source: {row['source']}\noutput: {row['prediction']}")
        if options.show_pruned
        else None
    )
    write_outputs(
        rows, examples, out=options.out, overwrite=options.overwrite, line=line, **settings
    )


if __name__ == "__main__":
    main()
