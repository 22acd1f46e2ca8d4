"""Decode, score and time runs: the tables of the paper.

python -m l0drop.evaluate runs/l0                                # one run
python -m l0drop.evaluate runs/base runs/l0 --repeats 7          # Table 1, against the first run
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from tqdm import tqdm

from shared import rouge
from shared.data import Example, check_outputs, load, split_sentences, write_csv, write_json
from shared.timing import find_device, spread, time_rounds

from . import patterns
from .config import TrainConfig
from .decode import Output, decode, decode_all
from .loading import Run, load_run
from .run import Positive, Range, check_fields, one_line_errors, read_config, read_flags
from .text import dialogue_kinds, is_dialogue, label_spans, source_types, tag_sources, unit_starts

SAMPLES = 1000  # of the tests and intervals of BLEU


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders; differences and speed-up refer to the first
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "test"
    limit: Positive | None = None  # first N examples only
    json: Path | None = None  # write every number here
    csv: Path | None = None  # write a row per system here
    predictions: Path | None = None  # folder for the outputs, a .jsonl per run
    repeats: Positive = 1  # timed decodes; at least 3 to report a median
    dense: bool = False  # attend to all gated states instead of Algorithm 1's memory
    metric: Literal["auto", "bleu", "rougeLsum"] = "auto"  # auto: BLEU where document and summary are one string each
    stanza: str = ""  # folder of Stanza models, to count sparsity by type on sources without tags
    batch_size: Positive = 32  # sources per batch (Table 1: 32 and 10)
    beam: Positive | None = None  # default: the run's
    length_penalty: Annotated[float, Range(0, 10)] | None = None  # default: the run's
    device: str = "cpu"


def save_each(
    outputs: Iterable[tuple[int, Output]], run: Run, examples: Sequence[Example], path: Path | None
) -> Iterator[tuple[int, Output]]:
    """Hand on what `decode` yields, with progress; each prediction is in the file at `path` as soon as it is there."""
    with open(path, "w", encoding="utf-8") if path else nullcontext() as file:
        for i, output in tqdm(outputs, total=len(examples), leave=False):
            if file:
                row = {"id": examples[i].id, "prediction": run.tokenizer.decode(output.tokens)}
                print(json.dumps(row | {"reference": examples[i].target}, ensure_ascii=False), file=file, flush=True)
            yield i, output


def sparsity(outputs: Sequence[Output]) -> list[float]:
    """Percentage of source encodings pruned in each L0Drop layer, EOS counted as an encoding (Section 6)."""
    layers = zip(*(output.pruned for output in outputs), strict=True)
    return [100 * sum(map(sum, layer)) / sum(map(len, layer)) for layer in layers]


def sparsity_by_label(outputs: Sequence[Output], labels: Sequence[Sequence[str]]) -> dict[str, float]:
    """Percentage of the encodings with each label that the last layer prunes; EOS and what was cut need no label."""
    pruned, total = Counter(), Counter()
    for output, row in zip(outputs, labels, strict=True):
        for is_pruned, label in zip(output.pruned[-1][:-1], row, strict=False):  # without EOS
            pruned[label] += is_pruned
            total[label] += 1
    return {label: 100 * pruned[label] / total[label] for label in total}


def labels_of(run: Run, examples: Sequence[Example], tags: Sequence | None = None) -> dict[str, list[list[str]]]:
    """A label for every source token, as far as `tags` (of `tag_sources`) and the data know it; EOS not included.

    Returns:
        "type": one of patterns.UNIT_TYPES (Figure 5); "kind": that of the sentence it stands in, known on toy, or that
        of the word in a dialogue, where every turn is "Name: text" (`text.dialogue_kinds`).
    """
    tokenizer, labels = run.tokenizer, {}
    if tags:
        pairs = zip(examples, tags, strict=True)
        labels["type"] = [source_types(tokenizer, example.source, spans)[0] for example, spans in pairs]
    if all(example.kinds for example in examples):
        pairs = [(unit_starts(tokenizer, e.source), label_spans(e.document, e.kinds)) for e in examples]
        labels["kind"] = [patterns.tags_of_units(starts, spans) for starts, spans in pairs]
    elif tags and all(is_dialogue(example.document) for example in examples):
        pairs = zip(examples, tags, strict=True)
        labels["kind"] = [dialogue_kinds(tokenizer, example.document, spans) for example, spans in pairs]
    return labels


def bleu(predictions: dict[str, Sequence[str]], examples: Sequence[Example]) -> tuple[dict[str, dict], str]:
    """Corpus BLEU by sacrebleu (D16) of several systems, their differences from the first, and the signature.

    Interval: percentile bootstrap over sentences. p: approximate randomisation, two-sided (`rouge.paired_test`).

    Returns:
        per system "bleu" {mean, low, high} and "difference" {difference, low, high, p}, None for the first system.
    """
    from sacrebleu.metrics import BLEU

    metric, rng, counts, systems = BLEU(), np.random.default_rng(0), {}, {}
    references = [[[" ".join(reference)] for reference in example.references] for example in examples]
    for name, texts in predictions.items():
        parts = [metric.corpus_score([text], own) for text, own in zip(texts, references, strict=True)]
        counts[name] = np.array([[*part.counts, *part.totals, part.sys_len, part.ref_len] for part in parts])
    first = next(iter(counts.values()))
    draws = [rng.integers(len(examples), size=len(examples)) for _ in range(SAMPLES)]
    swaps = [rng.random((len(examples), 1)) < 0.5 for _ in range(SAMPLES)]
    base = np.array([corpus_bleu(first[draw]) for draw in draws])
    for name, own in counts.items():
        score, resampled = corpus_bleu(own), np.array([corpus_bleu(own[draw]) for draw in draws])
        systems[name] = {"bleu": with_interval("mean", score, resampled), "difference": None}
        if own is not first:
            observed = score - corpus_bleu(first)
            pairs = ((np.where(swap, first, own), np.where(swap, own, first)) for swap in swaps)
            sampled = np.array([corpus_bleu(one) - corpus_bleu(other) for one, other in pairs])
            p = (1 + int((abs(sampled) >= abs(observed) - 1e-9).sum())) / (1 + SAMPLES)
            systems[name]["difference"] = with_interval("difference", observed, resampled - base) | {"p": p}
    return systems, str(metric.get_signature())


def corpus_bleu(counts: np.ndarray) -> float:
    """BLEU of sentences from their (n, 10) matches and n-grams of orders 1 to 4, length and reference length."""
    from sacrebleu.metrics import BLEU

    total = counts.sum(0)
    return BLEU.compute_bleu(total[:4].tolist(), total[4:8].tolist(), *total[8:].tolist(), smooth_method="exp").score


def with_interval(name: str, value: float, samples: np.ndarray) -> dict[str, float]:
    """A number with the 95 % percentile interval of its resamples."""
    low, high = np.quantile(samples, [0.025, 0.975])
    return {name: value, "low": float(low), "high": float(high)}


def rouge_l(predictions: dict[str, Sequence[str]], examples: Sequence[Example]) -> tuple[dict[str, dict], str]:
    """ROUGE-1, 2 and L of several systems, their differences from the first in ROUGE-L, and the signature.

    ROUGE-L is over sentences (Lsum): what the paper's ROUGE-1.5.5 calls ROUGE-L.

    Returns:
        per system {"rouge1", "rouge2", "rougeLsum", "difference"}, the last None for the first system.
    """
    # A reference that is one string is cut into sentences as the predictions are.
    references = [[split_sentences(r[0]) if len(r) == 1 else r for r in example.references] for example in examples]
    systems, first = {}, None
    for name, texts in predictions.items():
        values = rouge.score([split_sentences(text) for text in texts], references)
        systems[name] = {metric: rouge.interval(values[metric]) for metric in ("rouge1", "rouge2", "rougeLsum")}
        systems[name]["difference"] = None if first is None else rouge.difference(values["rougeLsum"], first)
        first = values["rougeLsum"] if first is None else first
    return systems, rouge.signature(len(examples))


def evaluate(
    runs: dict[str, Run],
    examples: Sequence[Example],
    repeats: int = 1,
    prune: bool = True,
    batch_size: int = 32,
    stanza: str = "",
    metric: str = "auto",
    predictions: Path | None = None,
    **search,
) -> dict:
    """Decode and score runs, by name, on the same examples; every number in one JSON object.

    Args: as the flags of Options say; prune, search: as in `decode`.
    """
    if metric == "auto":
        metric = "bleu" if all(len(example.document + example.summary) == 2 for example in examples) else "rougeLsum"
    if metric == "rougeLsum":
        rouge.check_references(examples)
    tags = tag_sources(examples, stanza) if stanza or all(example.pos for example in examples) else None
    decodes, systems, texts = {}, {}, {}
    for name, run in runs.items():
        items, started = run.encode(examples, stanza), time.perf_counter()
        decodes[name] = partial(decode_all, run, items, batch_size, prune, **search)
        path = predictions and predictions / f"{name}.jsonl"
        ready = save_each(decode(run, items, batch_size, prune, **search), run, examples, path)
        outputs = [output for _, output in sorted(ready)]
        seconds, gated = time.perf_counter() - started, run.config.l0drop != "none"
        systems[name] = {"seed": run.config.seed, "lambda": run.config.l0_weight if gated else None, "seconds": seconds}
        layers, labels = sparsity(outputs), labels_of(run, examples, tags)
        systems[name] |= {"sparsity": layers[-1], "sparsity_by_layer": layers}
        systems[name] |= {f"sparsity_by_{key}": sparsity_by_label(outputs, labels[key]) for key in labels}
        systems[name]["sources_cut"] = sum(item.was_cut for item in items)
        texts[name] = [run.tokenizer.decode(output.tokens) for output in outputs]
    if repeats >= 3:
        device = next(run.model.parameters()).device
        for name, seconds in time_rounds(decodes, repeats, 0, device).items():
            systems[name] |= {"seconds": np.median(seconds), "rounds": spread(seconds)}
    quality, signature = (bleu if metric == "bleu" else rouge_l)(texts, examples)
    first = next(iter(systems.values()))["seconds"]
    for name, system in systems.items():
        system |= quality[name] | {"speed_up": first / system["seconds"]}
    settings = {"examples": len(examples), "repeats": repeats, "algorithm_1": prune, "batch_size": batch_size}
    return {"metric": metric, "signature": signature} | settings | {"systems": systems}


def table(metrics: dict) -> str:
    """Table 1 (and 2): time, speed-up, sparsity, quality; then sparsity by type and kind."""
    names = {"seconds": "seconds", "speed_up": "speed-up", "sparsity": "sparsity %", "bleu": "BLEU", "rouge1": "R-1",
             "rouge2": "R-2", "rougeLsum": "R-L", "difference": "difference"}  # fmt: skip
    systems = metrics["systems"].items()
    rows = [{"system": name} | {names[key]: s[key] for key in names if key in s} for name, s in systems]
    tables = [rouge.table(rows)]
    for key in ("sparsity_by_type", "sparsity_by_kind"):
        rows = [{"sparsity %": name} | s[key] for name, s in systems if s["sparsity"] and key in s]
        tables += [rouge.table(rows)] if rows else []
    repeats = metrics["repeats"]
    timing = f"median of {repeats} decodes" if repeats >= 3 else "one decode, no claim: --repeats 7 for medians"
    return "\n\n".join([*tables, f"{metrics['examples']} examples; seconds: {timing}; {metrics['signature']}"])


def load_runs(paths: Sequence[Path], device: str) -> dict[str, Run]:
    """Runs on a device, by the names of their folders; ValueError where two have the same name."""
    runs = {path.name: load_run(path) for path in paths}
    if len(runs) < len(paths):
        raise ValueError("two runs have folders of the same name; rename one")
    for run in runs.values():
        run.model.to(find_device(device))
    return runs


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.evaluate", description=__doc__)
    check_fields(options)
    if not options.runs:
        raise ValueError("give at least one run folder")
    outputs = [options.predictions / f"{path.name}.jsonl" for path in options.runs] if options.predictions else []
    data = options.data or read_config(options.runs[0], TrainConfig).data
    check_outputs(options.json, options.csv, *outputs, inputs=[data, *options.runs])
    runs = load_runs(options.runs, options.device)
    examples = load(data, options.split, options.limit)
    metrics = {"data": data, "split": options.split} | evaluate(
        runs, examples, options.repeats, not options.dense, options.batch_size, options.stanza, options.metric,
        options.predictions, beam=options.beam, length_penalty=options.length_penalty,
    )  # fmt: skip
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        write_csv(options.csv, [{"system": name} | system for name, system in metrics["systems"].items()])
    print(table(metrics))
    if cut := sum(system["sources_cut"] for system in metrics["systems"].values()):
        print(f"{cut} sources were cut to --max-source tokens", file=sys.stderr)


if __name__ == "__main__":
    main()
