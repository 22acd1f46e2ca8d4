"""Decode, score and time runs: the tables of the paper.

python -m l0drop.evaluate runs/l0                                # one run
python -m l0drop.evaluate runs/base runs/l0 --repeats 3          # Table 1, against the first run
"""

import argparse
import csv
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from tqdm import tqdm

from shared import rouge
from shared.data import Example, load, write_jsonl
from shared.timing import compare

from . import patterns
from .model import EOS, PAD
from .search import generate
from .text import Item, collate, encode_examples, label_spans, source_types, tag_sources, unit_starts
from .train import Run, load_run

PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Output(NamedTuple):
    """What decoding one example gave."""

    tokens: list[int]  # without EOS
    score: float  # length-normalised log-probability
    pruned: list[list[bool]]  # (L0Drop layers, S): which source encodings were dropped; without gates, by the pattern


def decode(
    run: Run, items: Sequence[Item], batch_size: int = 32, prune: bool = True, progress: bool = False, **search
) -> list[Output]:
    """Decode all items, in batches of similar length; results come back in the order of the items.

    Args:
        prune: Algorithm 1; False attends to all gated states. The outputs are the same.
        search: beam, length_penalty, extra_length; the run's own values by default.
    """
    config, device = run.config, run.model.embedding.weight.device
    options = {name: getattr(config, name) for name in ("beam", "length_penalty", "extra_length")} | search
    by_length = sorted(range(len(items)), key=lambda i: len(items[i].source))
    outputs: list[Output] = [None] * len(items)
    for start in tqdm(range(0, len(items), batch_size), disable=not progress, unit="batch", leave=False):
        chosen = by_length[start : start + batch_size]
        batch = collate([items[i] for i in chosen], device)
        rule_keep = batch.rule_keep if config.pattern != "none" else None
        hypotheses, encoding, _ = generate(run.model, batch.source, rule_keep, prune, **options)
        closed = [gates == 0 for gates in encoding.gates] or [~batch.rule_keep]
        for row, i in enumerate(chosen):
            tokens = [token for token in hypotheses.tokens[row].tolist() if token not in (PAD, EOS)]
            pruned = [layer[row, : len(items[i].source)].tolist() for layer in closed]
            outputs[i] = Output(tokens, hypotheses.scores[row].item(), pruned)
    return outputs


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


def type_labels(run: Run, examples: Sequence[Example], tagger: str = "") -> list[list[str]]:
    """Type of every source token: one of patterns.UNIT_TYPES (Figure 5)."""
    spans = tag_sources(examples, tagger)
    return [source_types(run.tokenizer, e.source, s)[0] for e, s in zip(examples, spans, strict=True)]


def kind_labels(run: Run, examples: Sequence[Example]) -> list[list[str]]:
    """Kind of sentence that every source token stands in: what the toy corpus knows and real data does not."""
    return [
        patterns.tags_of_units(unit_starts(run.tokenizer, e.source), label_spans(e.document, e.kinds)) for e in examples
    ]


def split_sentences(text: str) -> list[str]:
    """Sentences of an output, for ROUGE-Lsum: cut after . ! or ? and a blank."""
    return re.split(r"(?<=[.!?])\s+", text.strip())


def bleu(predictions: dict[str, Sequence[str]], examples: Sequence[Example]) -> tuple[dict[str, dict], str]:
    """Corpus BLEU of several systems by sacrebleu, and its signature.

    Returns:
        per system the score, its 95 % bootstrap interval, and the p-value of an approximate randomisation test
        against the first system (None for the first itself).
    """
    references = [[" ".join(reference) for reference in example.references] for example in examples]
    several = [[r[k] if k < len(r) else None for r in references] for k in range(max(map(len, references)))]
    signatures, scores = PairedTest(list(predictions.items()), {"BLEU": BLEU()}, several, "ar", n_ar_confidence=1000)()
    rows = {}
    for name, r in zip(predictions, scores["BLEU"], strict=True):
        # sacrebleu counts only differences larger than the observed one, so equal systems would get p near 0.
        p = 1.0 if rows and r.score == scores["BLEU"][0].score else r.p_value
        rows[name] = {"score": r.score, "low": r.mean - r.ci, "high": r.mean + r.ci, "p": p}
    return rows, str(signatures["BLEU"])


def rouge_l(predictions: dict[str, Sequence[str]], examples: Sequence[Example]) -> tuple[dict[str, dict], str]:
    """ROUGE-L of several systems, over sentences (what the paper's ROUGE-1.5.5 calls ROUGE-L), and its signature.

    Returns:
        per system the score, its 95 % bootstrap interval, and the p-value of a paired randomisation test against the
        first system (None for the first itself).
    """
    references = [example.references for example in examples]
    rows, first = {}, None
    for name, texts in predictions.items():
        values = rouge.score([split_sentences(text) for text in texts], references)["rougeLsum"]
        score, low, high = rouge.bootstrap_interval(values)
        p = None if first is None else rouge.paired_test(values, first)
        rows[name] = {"score": score, "low": low, "high": high, "p": p}
        first = values if first is None else first
    return rows, rouge.signature(len(examples))


# The tables


def evaluate(
    runs: dict[str, Run],
    examples: Sequence[Example],
    repeats: int = 1,
    prune: bool = True,
    batch_size: int = 32,
    tagger: str = "",
    metric: str = "auto",
    **search,
) -> tuple[dict, dict[str, list[str]]]:
    """Decode and score runs on the same examples.

    Args:
        runs: the first is the one that speed-up and significance of the others refer to.
        repeats: timed decodes of every run, interleaved; with fewer than 3 the time is that of one decode.
        prune, batch_size, search: as in `decode`.
        tagger: folder of Stanza models, to count sparsity by type on sources without tags.
        metric: "bleu", "rouge", or "auto": BLEU where every document and summary is one piece of text.
    Returns:
        every number in one JSON object, and the predictions of every run.
    """
    decodes, systems, predictions = {}, {}, {}
    for name, run in runs.items():
        config = run.config
        items = encode_examples(
            examples,
            run.tokenizer,
            config.max_source,
            config.max_target,
            config.pattern,
            run.dropped,
            tagger or config.tagger,
        )
        decodes[name] = partial(decode, run, items, batch_size, prune, **search)
        started = time.perf_counter()
        outputs = decodes[name](progress=True)
        systems[name] = {"seconds": time.perf_counter() - started} | count_pruned(run, examples, outputs, tagger)
        systems[name]["sources_cut"] = sum(item.source_was_cut for item in items)
        predictions[name] = [run.tokenizer.decode(output.tokens) for output in outputs]
    if repeats >= 3:
        for name, timing in compare(decodes, repeats=repeats, warmup=0, memory=False).items():
            systems[name] |= {"seconds": timing.median, "seconds_iqr": timing.iqr}
    if metric == "auto":
        metric = "bleu" if all(len(example.document + example.summary) == 2 for example in examples) else "rouge"
    quality, signature = (bleu if metric == "bleu" else rouge_l)(predictions, examples)
    for name, system in systems.items():
        system |= quality[name] | {"speed_up": systems[next(iter(systems))]["seconds"] / system["seconds"]}
    settings = {"examples": len(examples), "repeats": repeats, "algorithm_1": prune, "batch_size": batch_size}
    return {"metric": metric, "signature": signature} | settings | {"systems": systems}, predictions


def count_pruned(run: Run, examples: Sequence[Example], outputs: Sequence[Output], tagger: str) -> dict:
    """Sparsity overall, by layer, and by the labels that are known."""
    layers = sparsity(outputs)
    counts = {"sparsity": layers[-1], "sparsity_by_layer": layers}
    if tagger or all(example.pos for example in examples):
        counts["sparsity_by_type"] = sparsity_by_label(outputs, type_labels(run, examples, tagger))
    if all(example.kinds for example in examples):
        counts["sparsity_by_kind"] = sparsity_by_label(outputs, kind_labels(run, examples))
    return counts


def print_table(metrics: dict) -> None:
    """Table 1 (and 2): time, speed-up, sparsity, quality."""
    quality = {"bleu": "BLEU", "rouge": "ROUGE-L"}[metrics["metric"]]
    print(f"{'system':24} {'seconds':>8} {'speed-up':>9} {'sparsity':>9}   {quality:7} 95 % interval    p (first)")
    for name, system in metrics["systems"].items():
        p = "-" if system["p"] is None else f"{system['p']:.3f}"
        print(
            f"{name:24} {system['seconds']:8.2f} {system['speed_up']:8.2f}x {system['sparsity']:8.1f}%"
            f"   {system['score']:7.2f} [{system['low']:.2f}, {system['high']:.2f}]   {p}"
        )
    for name, system in metrics["systems"].items():
        for key in ("sparsity_by_type", "sparsity_by_kind"):
            if system["sparsity"] and key in system:
                parts = ", ".join(f"{label} {share:.1f}%" for label, share in sorted(system[key].items()))
                print(f"{name}, {key.replace('_', ' ')}: {parts}")
    timing = (
        f"median of {metrics['repeats']} decodes" if metrics["repeats"] >= 3 else "one decode, --repeats 3 for more"
    )
    print(f"{metrics['examples']} examples, time: {timing}; {metrics['signature']}")


def write_csv(metrics: dict, path: Path) -> None:
    """One row per system, one column per number; sparsity by type and kind as columns of their own."""
    rows = []
    for name, system in metrics["systems"].items():
        flat = {key: value for key, value in system.items() if not isinstance(value, (dict, list))}
        flat["sparsity_by_layer"] = " ".join(f"{value:.2f}" for value in system["sparsity_by_layer"])
        labelled = {**system.get("sparsity_by_type", {}), **system.get("sparsity_by_kind", {})}
        rows.append({"system": name} | flat | {f"sparsity {label}": value for label, value in sorted(labelled.items())})
    columns = list(dict.fromkeys(column for row in rows for column in row))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m l0drop.evaluate", description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run folders; speed-up and p refer to the first")
    parser.add_argument("--data", help="default: the first run's")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, help="first N examples only")
    parser.add_argument("--json", type=Path, help="write every number here")
    parser.add_argument("--csv", type=Path, help="write the table here")
    parser.add_argument("--predictions", type=Path, help="write JSONL here; with several runs, a folder of them")
    parser.add_argument("--repeats", type=int, default=1, help="timed decodes, at least 3 to report a median")
    parser.add_argument("--dense", action="store_true", help="attend to all gated states in place of Algorithm 1")
    parser.add_argument("--metric", default="auto", choices=["auto", "bleu", "rouge"])
    parser.add_argument("--tagger", default="", help="folder of Stanza models: count sparsity by type of unit")
    parser.add_argument("--batch-size", type=int, default=32, help="sources per batch (Table 1: 32 and 10)")
    parser.add_argument("--beam", type=int, help="default: the run's")
    parser.add_argument("--length-penalty", type=float, help="default: the run's")
    parser.add_argument("--precision", default="float32", choices=list(PRECISIONS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    flags = parser.parse_args(arguments)
    try:
        runs = {path.name: load_run(path) for path in flags.runs}
        if len(runs) < len(flags.runs):
            raise ValueError("two runs have folders of the same name; rename one")
        examples = load(flags.data or next(iter(runs.values())).config.data, flags.split, flags.limit)
        for run in runs.values():
            run.model.to(flags.device, PRECISIONS[flags.precision])
        given = {"beam": flags.beam, "length_penalty": flags.length_penalty}
        metrics, predictions = evaluate(
            runs,
            examples,
            flags.repeats,
            not flags.dense,
            flags.batch_size,
            flags.tagger,
            flags.metric,
            **{name: value for name, value in given.items() if value is not None},
        )
    except (ValueError, ImportError) as error:
        sys.exit(f"error: {error}")
    print_table(metrics)
    if flags.json:
        flags.json.write_text(json.dumps(metrics, indent=1) + "\n")
    if flags.csv:
        write_csv(metrics, flags.csv)
    if flags.predictions:
        for name, texts in predictions.items():
            path = flags.predictions if len(runs) == 1 else flags.predictions / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = zip(examples, texts, strict=True)
            write_jsonl(path, ({"id": e.id, "prediction": text, "reference": e.target} for e, text in rows))


if __name__ == "__main__":
    main()
