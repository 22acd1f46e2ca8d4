"""Decode, score and time runs: the tables of the paper.

python -m l0drop.evaluate runs/l0                                # one run
python -m l0drop.evaluate runs/base runs/l0 --repeats 7          # Table 1, against the first run
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

import numpy as np
import tyro
from sacrebleu.metrics import BLEU
from tqdm import tqdm

from shared import rouge
from shared.data import Example, check_outputs, load, split_sentences, write_csv, write_json
from shared.timing import compare, find_device

from . import patterns
from .model import EOS, PAD
from .precision import PRECISIONS, convert
from .run import one_line_errors
from .search import generate
from .text import Item, collate, encode_examples, label_spans, source_types, tag_sources, unit_starts
from .train import Run, load_run

SAMPLES = 1000  # of the tests and intervals of BLEU


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders; differences and speed-up refer to the first
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "test"
    limit: int | None = None  # first N examples only
    json: Path | None = None  # write every number here
    csv: Path | None = None  # write a row per system here
    predictions: Path | None = None  # folder for the outputs, a .jsonl per run
    repeats: int = 1  # timed decodes; at least 3 to report a median
    dense: bool = False  # attend to all gated states instead of Algorithm 1's memory
    metric: Literal["auto", "bleu", "rougeLsum"] = "auto"  # auto: BLEU where document and summary are one string each
    stanza: str = ""  # folder of Stanza models, to count sparsity by type on sources without tags
    batch_size: int = 32  # sources per batch (Table 1: 32 and 10)
    beam: int | None = None  # default: the run's
    length_penalty: float | None = None  # default: the run's
    precision: Literal[PRECISIONS] = "float32"  # of decoding; float32 and bf16 are packed on the CPU
    device: str = "cpu"


class Output(NamedTuple):
    """What decoding one example gave."""

    tokens: list[int]  # without EOS
    score: float  # length-normalised log-probability
    pruned: list[list[bool]]  # (L0Drop layers, S): which source encodings were dropped; without gates, by the pattern


def decode(
    run: Run, items: Sequence[Item], batch_size: int = 32, prune: bool = True, **search
) -> Iterator[tuple[int, Output]]:
    """Decode items in batches of similar length; yields (index, output) as they are done.

    Args:
        prune: Algorithm 1; False attends to all gated states. The outputs are the same.
        search: beam, length_penalty, extra_length; the run's own values by default.
    """
    config, device = run.config, run.model.embedding.weight.device
    options = {name: getattr(config, name) for name in ("beam", "length_penalty", "extra_length")} | search
    by_length = sorted(range(len(items)), key=lambda i: len(items[i].source))
    for start in range(0, len(items), batch_size):
        indices = by_length[start : start + batch_size]
        batch = collate([items[i] for i in indices], device)
        rule_keep = batch.rule_keep if config.pattern != "none" else None
        hypotheses, encoding, _ = generate(run.model, batch.source, rule_keep, prune, **options)
        closed = [gates == 0 for gates in encoding.gates] or [~batch.rule_keep]
        for row, i in enumerate(indices):
            tokens = [token for token in hypotheses.tokens[row].tolist() if token not in (PAD, EOS)]
            pruned = [layer[row, : len(items[i].source)].tolist() for layer in closed]
            yield i, Output(tokens, hypotheses.scores[row].item(), pruned)


# Measures


def sparsity(outputs: Sequence[Output]) -> list[float]:
    """Percentage of source encodings pruned in each L0Drop layer, EOS counted as an encoding (Section 6)."""
    layers = zip(*(output.pruned for output in outputs), strict=True)
    return [100 * sum(map(sum, layer)) / sum(map(len, layer)) for layer in layers]


def sparsity_by_label(outputs: Sequence[Output], labels: Sequence[Sequence[str]]) -> dict[str, float]:
    """Percentage of the encodings with each label that the last layer prunes.

    Args:
        labels: one per source token, EOS and what was cut off not needed.
    """
    pruned, total = defaultdict(int), defaultdict(int)
    for output, example_labels in zip(outputs, labels, strict=True):
        for is_pruned, label in zip(output.pruned[-1][:-1], example_labels, strict=False):  # without EOS
            pruned[label] += is_pruned
            total[label] += 1
    return {label: 100 * pruned[label] / total[label] for label in total}


def type_labels(run: Run, examples: Sequence[Example], stanza: str = "") -> list[list[str]]:
    """Type of every source token: one of patterns.UNIT_TYPES (Figure 5)."""
    spans = tag_sources(examples, stanza)
    return [source_types(run.tokenizer, e.source, s)[0] for e, s in zip(examples, spans, strict=True)]


def kind_labels(run: Run, examples: Sequence[Example]) -> list[list[str]]:
    """Kind of sentence that every source token stands in: what the toy corpus knows and real data does not."""
    return [
        patterns.tags_of_units(unit_starts(run.tokenizer, e.source), label_spans(e.document, e.kinds)) for e in examples
    ]


def bleu(predictions: dict[str, Sequence[str]], examples: Sequence[Example]) -> tuple[dict[str, dict], str]:
    """Corpus BLEU by sacrebleu (D16) of several systems, their differences from the first, and the signature.

    Interval: percentile bootstrap over sentences. p: approximate randomisation, two-sided (`rouge.paired_test`).

    Returns:
        per system {"bleu": {mean, low, high}, "difference": {difference, low, high, p}}, None for the first one's.
    """
    metric, rng = BLEU(), np.random.default_rng(0)
    references = [[" ".join(reference) for reference in example.references] for example in examples]
    counts = {}
    for name, texts in predictions.items():
        parts = [metric.corpus_score([text], [[r] for r in rs]) for text, rs in zip(texts, references, strict=True)]
        counts[name] = np.array([[*part.counts, *part.totals, part.sys_len, part.ref_len] for part in parts])
    first = next(iter(counts.values()))
    draws = [rng.integers(len(examples), size=len(examples)) for _ in range(SAMPLES)]
    swaps = [rng.random((len(examples), 1)) < 0.5 for _ in range(SAMPLES)]
    base = np.array([corpus_bleu(first[draw]) for draw in draws])
    systems = {}
    for name, own in counts.items():
        score, resampled = corpus_bleu(own), np.array([corpus_bleu(own[draw]) for draw in draws])
        systems[name] = {"bleu": with_interval("mean", score, resampled), "difference": None}
        if own is not first:
            observed = score - corpus_bleu(first)
            sampled = [
                corpus_bleu(np.where(swap, first, own)) - corpus_bleu(np.where(swap, own, first)) for swap in swaps
            ]
            p = (1 + sum(abs(sample) >= abs(observed) - 1e-9 for sample in sampled)) / (1 + SAMPLES)
            systems[name]["difference"] = with_interval("difference", observed, resampled - base) | {"p": p}
    return systems, str(metric.get_signature())


def corpus_bleu(counts: np.ndarray) -> float:
    """BLEU of sentences from their (n, 10) matches and n-grams of orders 1 to 4, length and reference length."""
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


# The tables


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
    """Decode and score runs on the same examples.

    Args:
        runs: the first is the one that speed-up and differences of the others refer to.
        repeats: timed decodes of every run, interleaved; with fewer than 3 the time is that of one decode.
        prune, batch_size, search: as in `decode`.
        stanza: folder of Stanza models, to count sparsity by type on sources without tags.
        metric: "bleu", "rougeLsum", or "auto": BLEU where every document and summary is one piece of text.
        predictions: folder for NAME.jsonl with the outputs of each run, written as they come.
    Returns:
        every number in one JSON object.
    """
    if metric == "auto":
        metric = "bleu" if all(len(example.document + example.summary) == 2 for example in examples) else "rougeLsum"
    if metric == "rougeLsum":
        rouge.check_references(examples)
    decodes, systems, texts = {}, {}, {}
    for name, run in runs.items():
        config = run.config
        items = encode_examples(
            examples, run.tokenizer, config.max_source, config.max_target, config.pattern, run.dropped,
            stanza or config.stanza,
        )  # fmt: skip
        decodes[name] = partial(decode_all, run, items, batch_size, prune, **search)
        started = time.perf_counter()
        with open(predictions / f"{name}.jsonl", "w", encoding="utf-8") if predictions else nullcontext() as file:
            outputs = decodes[name](examples, file)
        seconds, gated = time.perf_counter() - started, config.l0drop != "none"
        systems[name] = {"seed": config.seed, "lambda": config.l0_weight if gated else None, "seconds": seconds}
        systems[name] |= count_pruned(run, examples, outputs, stanza)
        systems[name]["sources_cut"] = sum(item.was_cut for item in items)
        texts[name] = [run.tokenizer.decode(output.tokens) for output in outputs]
    if repeats >= 3:
        for name, timing in compare(decodes, repeats=repeats, warmup=0, memory=False).items():
            systems[name] |= {"seconds": timing.median, "seconds_iqr": timing.iqr}
    quality, signature = (bleu if metric == "bleu" else rouge_l)(texts, examples)
    fastest = next(iter(systems.values()))["seconds"]
    for name, system in systems.items():
        system |= quality[name] | {"speed_up": fastest / system["seconds"]}
    settings = {"examples": len(examples), "repeats": repeats, "algorithm_1": prune, "batch_size": batch_size}
    return {"metric": metric, "signature": signature} | settings | {"systems": systems}


def decode_all(
    run: Run,
    items: Sequence[Item],
    batch_size: int,
    prune: bool,
    examples: Sequence[Example] = (),
    file: TextIO | None = None,
    **search,
) -> list[Output]:
    """`decode` in the items' order; with `file`, each example's prediction is written there as it comes."""
    outputs: list[Output] = [None] * len(items)
    progress = tqdm(
        decode(run, items, batch_size, prune, **search), total=len(items), disable=not examples, leave=False
    )
    for i, output in progress:
        outputs[i] = output
        if file:
            row = {
                "id": examples[i].id,
                "prediction": run.tokenizer.decode(output.tokens),
                "reference": examples[i].target,
            }
            print(json.dumps(row, ensure_ascii=False), file=file, flush=True)
    return outputs


def count_pruned(run: Run, examples: Sequence[Example], outputs: Sequence[Output], stanza: str) -> dict:
    """Sparsity overall, by layer, and by the labels that are known, in %."""
    layers = sparsity(outputs)
    counts = {"sparsity": layers[-1], "sparsity_by_layer": layers}
    if stanza or all(example.pos for example in examples):
        counts["sparsity_by_type"] = sparsity_by_label(outputs, type_labels(run, examples, stanza))
    if all(example.kinds for example in examples):
        counts["sparsity_by_kind"] = sparsity_by_label(outputs, kind_labels(run, examples))
    return counts


def table(metrics: dict) -> str:
    """Table 1 (and 2): time, speed-up, sparsity, quality; then sparsity by type and kind."""
    names = {"bleu": "BLEU", "rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L", "difference": "difference"}
    rows = [
        {"system": name, "seconds": system["seconds"], "speed-up": system["speed_up"], "sparsity %": system["sparsity"]}
        | {title: system[key] for key, title in names.items() if key in system}
        for name, system in metrics["systems"].items()
    ]
    tables = [rouge.table(rows)]
    for key in ("sparsity_by_type", "sparsity_by_kind"):
        rows = [{"sparsity %": n} | s[key] for n, s in metrics["systems"].items() if s["sparsity"] and key in s]
        tables += [rouge.table(rows)] if rows else []
    repeats = metrics["repeats"]
    timing = f"median of {repeats} decodes" if repeats >= 3 else "one decode, no claim: --repeats 7 for medians"
    return "\n\n".join([*tables, f"{metrics['examples']} examples; seconds: {timing}; {metrics['signature']}"])


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.evaluate", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    runs = {path.name: load_run(path) for path in options.runs}
    if len(runs) < len(options.runs):
        raise ValueError("two runs have folders of the same name; rename one")
    if not runs:
        raise ValueError("give at least one run folder")
    for run in runs.values():
        convert(run.model.to(find_device(options.device)), options.precision)
    data = options.data or next(iter(runs.values())).config.data
    examples = load(data, options.split, options.limit)
    outputs = [options.predictions / f"{name}.jsonl" for name in runs] if options.predictions else []
    check_outputs(options.json, options.csv, *outputs)
    given = {"beam": options.beam, "length_penalty": options.length_penalty}
    metrics = evaluate(
        runs, examples, options.repeats, not options.dense, options.batch_size, options.stanza, options.metric,
        options.predictions, **{name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    metrics = {"data": data, "split": options.split} | metrics
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        write_csv(options.csv, [{"system": name} | system for name, system in metrics["systems"].items()])
    print(table(metrics))


if __name__ == "__main__":
    main()
