"""Decode with masked heads and score: Tables 1 and 3, Figure 5, and the taggers by themselves.

python -m head_masking.evaluate runs/hm-base --tagger runs/hm-tagger --heads 1:0-3 --oracle

python -m head_masking.evaluate runs/hm-base --data toy:domain=nature --tagger runs/t100 runs/t1000 --predictions out

python -m head_masking.evaluate --tagger runs/hm-tagger --data aclsum

The systems are each summariser, the same with "+oracle" and "+TAGGER", and each tagger, whose summary is the words that
it selects. Runs NAME-0, NAME-1, ... of the seeds 0, 1, ... are one system, NAME.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from tqdm import tqdm

try:
    from shared import rouge
except ModuleNotFoundError:
    sys.exit("error: the commands need the repository's folder `shared` beside this package")
from shared.data import Example, load, open_output
from shared.run import one_line_errors, read_flags
from shared.score import report, score, system_name
from shared.timing import find_device

from .config import Boundary, Positive
from .decode import Setting, decode, encode, find_heads, read_documents, tag, write_heads
from .labels import selected_words, tagging_counts
from .loading import Run, is_run, load_run, load_summarizer, name_of, positions_of
from .masking import PAPER_DECODING


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[str, ...]] = ()  # Summarisers: runs, folders or names of transformers' models.
    tagger: tuple[Path, ...] = ()  # Runs of taggers, each of which masks each summariser.
    heads: str = ""  # Heads to mask: 1:0-3,2:1,3 or "top" or data of Appendix B; default: each model's own (D14).
    oracle: bool = False  # Also mask by labels made from the reference.
    data: str = ""  # Anything that shared.data.load takes; default: the first run's data.
    split: str = "test"  # Split of the data.
    limit: Positive | None = None  # First N documents only.
    min_run: Positive | None = None  # Shortest run of words that the oracle labels; default: the first tagger's, or 1.
    min_keep: int = 5  # Tokens that a masked head sees, at least (released code: 5).
    threshold: Boundary | None = None  # Decision boundary; default: each tagger's own.
    decoding: Literal["own", "cnn_dailymail", "nyt", "xsum"] = "own"  # The model's settings, or those of Appendix A.
    beam: Positive | None = None  # Beams; default: those of --decoding.
    max_length: Positive | None = None  # Tokens of a summary, at most; default: those of --decoding.
    no_repeat_ngram_size: int | None = None  # Length of token sequences that never come twice; default: of --decoding.
    batch_size: Positive = 32  # Documents decoded together.
    device: str = "cpu"  # Device: cpu, cuda or mps.
    predictions: Path | None = None  # Folder for the outputs, RUN.jsonl for each summariser and each tagger.
    csv: Path | None = None  # File for the table as CSV.
    overwrite: bool = False  # Replace the files of --predictions and --csv if they exist.

    def check(self) -> None:
        """ValueError for flags that do not go together."""
        if not self.runs and not self.tagger:
            raise ValueError("give the run of a summariser, or --tagger RUN")
        if len({*map(name_of, [*self.runs, *self.tagger])}) < len(self.runs) + len(self.tagger):
            raise ValueError("two runs have folders of the same name; rename one")
        if not self.data and not is_run(first := [*self.runs, *self.tagger][0]):
            raise ValueError(f"{first} is not a run of {__package__}.train that knows its data: give --data")

    def generation(self) -> dict[str, float]:
        """Arguments of `generate`."""
        flags = dict(num_beams=self.beam, max_length=self.max_length, no_repeat_ngram_size=self.no_repeat_ngram_size)
        return PAPER_DECODING.get(self.decoding, {}) | {k: v for k, v in flags.items() if v is not None}


def load_runs(options: Options) -> tuple[dict[str, Run], dict[str, Run]]:
    """The summarisers and taggers that the flags name, by the names of their folders, on the device; or ValueError."""
    device, longest = find_device(options.device), options.generation().get("max_length", 0)
    summarizers = {name_of(name): load_summarizer(name) for name in options.runs}
    taggers = {name_of(path): load_run(path, "tagger") for path in options.tagger}
    for run in (*summarizers.values(), *taggers.values()):
        run.model.to(device)
    if places := [positions_of(run.model) for run in summarizers.values() if positions_of(run.model) < longest]:
        raise ValueError(f"--max-length is {longest}, the model has {places[0]} positions: lower it")
    for run in taggers.values() if options.threshold is not None else ():
        run.model.threshold.fill_(options.threshold)
    return summarizers, taggers


def evaluate(
    summarizers: Mapping[str, Run],
    examples: Sequence[Example],
    taggers: Mapping[str, Run] = {},
    heads: str = "",
    oracle: bool = False,
    min_run: int = 1,
    min_keep: int = 5,
    batch_size: int = 32,
    **generation,
) -> Iterator[dict]:
    """Outputs without masks, with oracle masks and with those of taggers, as they come: Tables 1 and 3, Figure 5.

    Args:
        heads: as --heads.
        oracle: mask by labels from the reference, too, of runs of at least `min_run` words.
        generation: arguments of `generate`; what is not given is the model's own.
    Yields:
        rows of `shared.score`; those of a tagger with its counts against the oracle labels.
    """
    rouge.check_references(examples)
    tagged = {name: tag(run, [e.source for e in examples], batch_size) for name, run in taggers.items()}
    for name, of_all in tagged.items():
        report_cut(name, of_all)
        for example, of_one in zip(examples, of_all, strict=True):
            counts = tagging_counts(of_one, example.source, example.target, min_run)
            words = selected_words(example.source, of_one)
            yield row_of(example, words, name, taggers[name]) | counts | {"threshold": of_one.threshold}
    for name, run in summarizers.items():
        chosen = find_heads(heads, run) if heads or oracle or taggers else {}
        masks = {f"system:{tagger}": of_all for tagger, of_all in tagged.items()}
        documents = read_documents(run, examples, masks, oracle, min_run, min_keep)
        report_cut(name, documents)
        kinds = {"": "plain"} | ({"oracle": "oracle"} if oracle else {}) | {t: f"system:{t}" for t in taggers}
        settings = {suffix: Setting(kind, {} if kind == "plain" else chosen) for suffix, kind in kinds.items()}
        batches = tqdm(encode(run.model, documents, batch_size), "decoding", unit="batch", disable=None)
        for suffix, i, _, text in decode(run, documents, settings, batches, **generation):
            row = row_of(examples[i], text, name, run, suffix, taggers.get(suffix))
            yield row | {"heads": write_heads(settings[suffix].heads)}


def row_of(example: Example, text: str, name: str, run: Run, suffix: str = "", tagger: Run | None = None) -> dict:
    """A row of `shared.score`: systems are called as their runs, without the seed."""
    system = system_name(name, run.config.seed)
    if suffix:
        system += "+" + (system_name(suffix, tagger.config.seed) if tagger else suffix)
    row = {"id": example.id, "prediction": text, "references": example.references}
    return row | {"system": system, "seed": run.config.seed, "run": name}


def report_cut(name: str, documents: Sequence) -> None:
    """Say how many documents a run read only in part."""
    if cut := sum(document.was_cut for document in documents):
        print(f"{cut} documents were cut to the --max-source of {name}", file=sys.stderr)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    summarizers, taggers = load_runs(options)
    first = next(iter([*summarizers.values(), *taggers.values()]))
    examples = load(options.data or first.config.data, options.split, options.limit)
    min_run = options.min_run or next((run.config.min_run for run in taggers.values()), 1)
    with ExitStack() as stack:
        names = [*summarizers, *taggers] if options.predictions else []
        paths = {name: options.predictions / f"{name}.jsonl" for name in names}
        files = {name: stack.enter_context(open_output(path, options.overwrite)) for name, path in paths.items()}
        csv = stack.enter_context(open_output(options.csv, options.overwrite)) if options.csv else None
        rows = []
        for row in evaluate(
            summarizers, examples, taggers, options.heads, options.oracle, min_run, options.min_keep,
            options.batch_size, **options.generation(),
        ):  # fmt: skip
            rows.append(row)
            if files:
                print(json.dumps(row, ensure_ascii=False), file=files[row["run"]], flush=True)
        plain = [system_name(name, run.config.seed) for name, run in summarizers.items()]
        report(score(rows, minus=[*dict.fromkeys(plain)]), csv)


if __name__ == "__main__":
    main()
