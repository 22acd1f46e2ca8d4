"""Decode under every selection of sentences and score: Tables 2, 3, 5, 6, and the numbers behind Figures 1, 2, 4, 5-8.

python -m encdec_sentence_sparse.evaluate runs/sparse-base runs/sparse-kl runs/sparse-apx --json m.json    # Tables 3, 6
python -m encdec_sentence_sparse.evaluate runs/sparse-base runs/sparse-0.1 runs/sparse-1 --json m.json     # Tables 2, 5
python -m encdec_sentence_sparse.evaluate runs/sparse-base --modes ideal mean_key --r 5 1 2 10 --share-beams

All is compared with the first run under full attention: give the base model there. Without --modes each run is decoded
under those that the tables have for its task.
"""

import argparse
import csv
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedTokenizerBase, logging
from transformers.modeling_outputs import BaseModelOutput

from shared import rouge
from shared.data import Example, load, write_jsonl

from .model import SentenceSparseBart
from .selection import MODES, PHI, Selection, SentenceAttention
from .sentences import RULES, make_splitter
from .text import encode
from .train import TrainConfig, load_run, pad, read_config, write_json

# D20: rouge-score (the paper: pyrouge). Papers' ROUGE-L is that over sentences.
METRICS = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}
DECODING = {
    "paper": dict(num_beams=4, length_penalty=2.0, min_length=50, max_length=200, no_repeat_ngram_size=3),  # A.3 and
    # released code, which has the three numbers that A.3 does not
    "toy": dict(num_beams=4, length_penalty=1.0, min_length=0, max_length=128, no_repeat_ngram_size=0),
}
TASK_MODES = {  # what the tables and Figure 2 show of a run, besides "full"
    "base": ("ideal", "random", "mean_key", "model_free"),
    "sparse": ("ideal", "random"),
    "kl": ("approx",),
    "integrated": ("approx",),
}
VARIANTS = {"ideal": "Int-Idl", "approx": "Int-Apx", "mix": "Int-Mix"}
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Document(NamedTuple):
    """A source as the model reads it."""

    ids: list[int]  # (S,)
    sentence_ids: list[int]  # (S,)
    salient: list[bool] | None  # (N,) of the model's sentences; None = unknown
    was_cut: bool


class Run(NamedTuple):
    """A trained model and the documents that it reads."""

    name: str
    model: SentenceSparseBart
    tokenizer: PreTrainedTokenizerBase
    config: TrainConfig
    documents: list[Document]


class Batch(NamedTuple):
    """Encoded documents of like length."""

    numbers: list[int]  # (B,) places of the documents
    states: Tensor  # (B, S, D)
    attention_mask: Tensor  # (B, S)
    sentence_ids: Tensor  # (B, S)

    def source(self) -> dict:
        """Arguments of `generate` and `forward`; a new object each time."""
        states = BaseModelOutput(last_hidden_state=self.states)
        return dict(encoder_outputs=states, attention_mask=self.attention_mask, sentence_ids=self.sentence_ids)


class Decoded(NamedTuple):
    """What a run made of all documents under one selection."""

    summaries: list[list[int]]  # token ids
    salient_recall: np.ndarray  # (documents,) percentages; NaN = unknown
    retained: list[np.ndarray]  # (N,) of each document, see `retained_attention`; empty unless in mode "full"
    seconds: float  # of `generate`, without the encoder


# Reading runs


def read_run(name: str, examples: Sequence[Example], flags: argparse.Namespace) -> Run:
    """A run of this package, or a BART of transformers by its folder or name.

    Raises:
        ValueError: not such a run or model; documents that are not split into sentences.
    """
    model, tokenizer, config, splitter = load_run(name, flags.sentences)
    if splitter.rule == "given" and all(len(example.document) == 1 for example in examples):
        raise ValueError(f"the documents of {flags.data} are not split into sentences, and {name} does not split them")
    positions = model.config.max_position_embeddings
    is_run = config.model != name  # what is no run has no length of its own
    longest = min(config.max_source, positions) if is_run else positions
    if flags.generation["max_length"] > positions:
        raise ValueError(
            f"--max-length is {flags.generation['max_length']}, {name} has {positions} positions: lower it"
        )
    documents = []
    for example in examples:
        encoded = encode(tokenizer, example.document, longest, splitter)
        salient = salient_sentences(example, encoded.sentence_ids, tokenizer, longest)
        documents.append(Document(encoded.ids, encoded.sentence_ids, salient, encoded.was_cut))
    model = model.to(flags.device, PRECISIONS[flags.precision]).eval()
    return Run(Path(name).name, model, tokenizer, config, documents)


def salient_sentences(
    example: Example, sentence_ids: Sequence[int], tokenizer: PreTrainedTokenizerBase, longest: int
) -> list[bool] | None:
    """(N,) which of the model's sentences hold a token of a sentence that the corpus calls salient; None = unknown."""
    if example.salient is None:
        return None
    given = encode(tokenizer, example.document, longest, make_splitter("given", eos="last"))
    if not given.was_cut and given.sentence_ids[-1] + 1 != len(example.salient):
        return None  # a sentence without a token: which marks are whose cannot be told
    found = [False] * (sentence_ids[-1] + 1)
    for token, ours, theirs in zip(given.ids, sentence_ids, given.sentence_ids, strict=True):
        found[ours] |= example.salient[theirs] and token != tokenizer.eos_token_id
    return found


def selections_of(run: Run, flags: argparse.Namespace) -> list[Selection]:
    """Under which selections a run is decoded, "full" first.

    Tables show the first r of --r, which has the other phi and --share-beams, too. Figures 2 and 4 show all.

    Raises:
        ValueError: mode "approx" for a run without an approximator.
    """
    modes = [mode for mode in flags.modes or TASK_MODES[run.config.task] if mode != "full"]
    if "approx" in modes and run.model.sentence_encoder is None:
        raise ValueError(f"{run.name} has no approximator: leave mode 'approx' out, or give a run of --task kl")
    lengths = flags.r[:1] if run.config.task == "sparse" and not flags.modes else flags.r
    found = [Selection("full", flags.r[0])]
    for mode in modes:
        at_first = Selection(mode, flags.r[0], seed=flags.seed)
        found += [replace(at_first, r=r) for r in lengths]
        found += [replace(at_first, phi=phi) for phi in PHI if mode == "model_free" and phi != at_first.phi]
        found += [replace(at_first, share_beams=True)] if flags.share_beams and mode != "random" else []
    return found


def system_name(run: str, selection: Selection) -> str:
    """RUN.MODE.rR, also a file name."""
    if selection.mode == "full":
        return f"{run}.full"
    mode = f"model_free-{selection.phi}" if selection.mode == "model_free" else selection.mode
    return f"{run}.{mode}.r{selection.r}" + (".shared" if selection.share_beams else "")


# Decoding


def batches(run: Run, batch_size: int) -> Iterator[Batch]:
    """All documents, encoded in batches of like length, the shortest first."""
    model, device = run.model, run.model.device
    by_length = sorted(range(len(run.documents)), key=lambda i: len(run.documents[i].ids))
    for start in range(0, len(by_length), batch_size):
        numbers = by_length[start : start + batch_size]
        documents = [run.documents[i] for i in numbers]
        ids = pad([document.ids for document in documents], model.config.pad_token_id, device)
        attention_mask = pad([[1] * len(document.ids) for document in documents], 0, device)
        sentence_ids = pad([document.sentence_ids for document in documents], -1, device)
        states = model.get_encoder()(input_ids=ids, attention_mask=attention_mask)[0]
        yield Batch(numbers, states, attention_mask, sentence_ids)


@torch.inference_mode()
def decode(
    run: Run, selections: Sequence[Selection], batch_size: int = 32, progress: bool = False, **generation
) -> list[Decoded]:
    """Decode all documents under each selection. Each document is encoded once.

    Args:
        generation: arguments of `generate`, such as num_beams and max_length.
    """
    count = len(run.documents)
    found = [Decoded([[]] * count, np.full(count, np.nan), [np.ones(0)] * count, 0.0) for _ in selections]
    total = len(selections) * -(-count // batch_size)
    with tqdm(total=total, desc=run.name, unit="batch", disable=not progress) as bar:
        for batch in batches(run, batch_size):
            for place, selection in enumerate(selections):
                found[place] = decode_batch(run, batch, selection, found[place], generation)
                bar.update()
    return found


def decode_batch(run: Run, batch: Batch, selection: Selection, found: Decoded, generation: dict) -> Decoded:
    """`found` with the batch's summaries in their places."""
    run.model.selection = selection
    started = time.perf_counter()
    rows = run.model.generate(**batch.source(), do_sample=False, **generation)  # (B, 1 + T)
    seconds = time.perf_counter() - started
    for i, row in zip(batch.numbers, rows.tolist(), strict=True):
        found.summaries[i] = row
    is_known = all(run.documents[i].salient is not None for i in batch.numbers)
    # Which subset the beams shared cannot be told from the best one alone.
    if not selection.share_beams and (is_known or selection.mode == "full"):
        record, is_step = read_again(run.model, batch, rows)
        if is_known:
            marks = pad([run.documents[i].salient for i in batch.numbers], False, rows.device)
            found.salient_recall[batch.numbers] = salient_recall(record, is_step, marks)
        if selection.mode == "full":
            curves = retained_attention(record, is_step)
            for i, curve in zip(batch.numbers, curves, strict=True):
                found.retained[i] = curve[: run.documents[i].sentence_ids[-1] + 1]
    return found._replace(seconds=found.seconds + seconds)


def read_again(model: SentenceSparseBart, batch: Batch, rows: Tensor) -> tuple[list[SentenceAttention], Tensor]:
    """What each layer attended to while writing the best summaries, and (B, T) which steps are real."""
    record: list[SentenceAttention] = []
    model(**batch.source(), decoder_input_ids=rows[:, :-1], record=record)
    return record, rows[:, 1:] != model.config.pad_token_id


def mean_over_steps(values: Tensor, is_step: Tensor) -> Tensor:
    """Mean over layers and real steps: (layers, B, T, ...) and (B, T) -> (B, ...)."""
    weights = (is_step / is_step.sum(1, keepdim=True).clamp_min(1)).to(values.dtype)  # (B, T)
    return torch.einsum("bt...,bt->b...", values.mean(0), weights)


def salient_recall(record: Sequence[SentenceAttention], is_step: Tensor, salient: Tensor) -> np.ndarray:
    """How many of the salient sentences are among the selected, in percent of what r sentences can hold.

    At each layer and step |selected and salient| / min(|selected|, |salient|); mean over layers and the steps of the
    best summary; 100 for a document without salient sentences.

    Args:
        record: of all layers; is_step: (B, T); salient: (B, N) bool.
    Returns:
        (B,)
    """
    keep = torch.stack([each.keep for each in record])  # (layers, B, T, N)
    hits = (keep & salient.unsqueeze(1)).sum(-1)
    possible = torch.minimum(keep.sum(-1), salient.sum(-1, keepdim=True))  # (layers, B, T)
    share = (hits / possible.clamp_min(1)).masked_fill(possible == 0, 1.0)
    return 100 * mean_over_steps(share, is_step).cpu().numpy()


def retained_attention(record: Sequence[SentenceAttention], is_step: Tensor) -> np.ndarray:
    """Figure 1: sum of the attention weights of the 1, 2, ..., N most salient sentences: (B, N), rising to 1.

    A.4: heads are averaged before the summation. D21: then the mean over layers and the steps of the own summary.
    """
    weights = torch.stack([each.exact.float().mean(1) for each in record])  # (layers, B, T, N)
    return mean_over_steps(weights.sort(-1, descending=True).values.cumsum(-1), is_step).cpu().numpy()


def mean_curve(curves: Sequence[np.ndarray]) -> list[float]:
    """Mean of curves of different lengths; beyond its last sentence a document retains everything."""
    longest = max(map(len, curves))
    return np.mean([np.pad(curve, (0, longest - len(curve)), constant_values=1.0) for curve in curves], 0).tolist()


@torch.inference_mode()
def attention_map(run: Run, number: int, generation: dict) -> dict:
    """Figures 5-8: attention of full decoding on one document, averaged over heads (Appendix E), D21: and layers."""
    [batch] = batches(run._replace(documents=[run.documents[number]]), 1)
    run.model.selection = Selection("full")
    rows = run.model.generate(**batch.source(), do_sample=False, **generation)
    record, _ = read_again(run.model, batch, rows)
    maps = {kind: torch.stack([getattr(each, kind).float() for each in record]) for kind in ("word", "exact")}
    rounded = {kind: values.mean((0, 2))[0].cpu().numpy().round(5).tolist() for kind, values in maps.items()}
    source, target = (run.tokenizer.convert_ids_to_tokens(ids) for ids in (run.documents[number].ids, rows[0, 1:]))
    return {"source": source, "target": target, "sentence_ids": run.documents[number].sentence_ids} | rounded


# Scores


def split_sentences(text: str) -> list[str]:
    """Sentences of an output, for ROUGE-Lsum: cut after . ! or ? and a blank."""
    return re.split(r"(?<=[.!?])\s+", text.strip())


def read_summaries(run: Run, summaries: Sequence[Sequence[int]]) -> list[str]:
    """Token ids -> texts."""
    return [" ".join(text.split()) for text in run.tokenizer.batch_decode(summaries, skip_special_tokens=True)]


def score(texts: Sequence[str], examples: Sequence[Example], recall: np.ndarray) -> dict[str, np.ndarray]:
    """(n,) percentages of every text: F1 of METRICS, and "salient_recall" where it is known of all."""
    values = rouge.score([split_sentences(text) for text in texts], [example.references for example in examples])
    found = {metric: values[metric] for metric in METRICS}
    return found if np.isnan(recall).any() else found | {"salient_recall": recall}


def summarise(values: np.ndarray) -> dict[str, float]:
    """Mean and 95 % bootstrap interval."""
    return dict(zip(("mean", "low", "high"), rouge.bootstrap_interval(values), strict=True))


def difference(scores: dict[str, np.ndarray], baseline: dict[str, np.ndarray]) -> dict[str, dict]:
    """For every metric of METRICS the mean difference, its 95 % interval and p; examples are paired."""
    found = {}
    for metric in METRICS:
        p = rouge.paired_test(scores[metric], baseline[metric], "bootstrap", samples=2000)
        found[metric] = summarise(scores[metric] - baseline[metric]) | {"p": p}
    return found


def evaluate(flags: argparse.Namespace, examples: Sequence[Example]) -> tuple[dict, dict[str, list[str]]]:
    """Every number in one JSON object, and the predictions of every system."""
    metrics = {"data": flags.data, "split": flags.split, "examples": len(examples), "generation": flags.generation}
    metrics |= {
        "r": flags.r,
        "seed": flags.seed,
        "signature": rouge.signature(len(examples)),
        "runs": {},
        "systems": {},
    }
    predictions, first = {}, None
    for name in flags.runs:
        run = read_run(name, examples, flags)
        selections = selections_of(run, flags)
        found = decode(run, selections, flags.batch_size, sys.stderr.isatty(), **flags.generation)
        metrics["runs"][run.name] = describe(run) | {"retained": mean_curve(found[0].retained)}
        if flags.map is not None and not predictions:
            metrics["runs"][run.name]["map"] = attention_map(run, flags.map, flags.generation)
        full = None
        for selection, decoded in zip(selections, found, strict=True):
            system = system_name(run.name, selection)
            predictions[system] = read_summaries(run, decoded.summaries)
            scores = score(predictions[system], examples, decoded.salient_recall)
            full, first = full or scores, first or scores
            metrics["systems"][system] = {"run": run.name, "mode": selection.mode, "r": selection.r} | {
                "phi": selection.phi if selection.mode == "model_free" else None,
                "share_beams": selection.share_beams,
                "seconds": decoded.seconds,
                "scores": {metric: summarise(values) for metric, values in scores.items()},
                "to_first": difference(scores, first),
                "to_full": difference(scores, full),
            }
        print(f"{run.name}: {len(selections)} systems decoded", file=sys.stderr, flush=True)
    return metrics, predictions


def describe(run: Run) -> dict:
    """How a run was trained and what it reads."""
    config = run.config
    return {
        "task": config.task,
        "gamma": config.gamma if config.task == "sparse" else 0.0,
        "sentence_encoder": getattr(run.model.config, "sentence_encoder", None),
        "select": config.select if config.task == "integrated" else None,
        "r_train": config.r if config.task == "integrated" else None,
        "sources_cut": sum(document.was_cut for document in run.documents),
        "mean_tokens": float(np.mean([len(document.ids) for document in run.documents])),
        "mean_sentences": float(np.mean([document.sentence_ids[-1] + 1 for document in run.documents])),
    }


# Tables


def title(metrics: dict, row: dict) -> str:
    """A system as the paper calls it."""
    run = metrics["runs"][row["run"]]
    trained = {
        "base": "Vanilla",
        "sparse": f"L_A-tuned, gamma {run['gamma']:g}",
        "kl": "KL-only",
        "integrated": f"{VARIANTS.get(run['select'])}, r {run['r_train']} in training",
    }[run["task"]]
    encoder = f" ({run['sentence_encoder']})" if run["sentence_encoder"] else ""
    mode = f"model_free ({row['phi']})" if row["phi"] else row["mode"]
    return f"{trained}{encoder} | {mode}{', beams share' if row['share_beams'] else ''}"


def table_rows(metrics: dict, number: int) -> list[dict]:
    """The systems of a table of the paper, at the first r; none where a run that it needs is missing.

    Table 2: base and sparse-tuned runs under full, ideal and random. Table 3: random, ideal, and all learned ones.
    Table 5: random alone, of base and sparse-tuned runs. Table 6: ideal, the best learned one by its R-1 here (as in
    the paper), random, model-free; beyond the paper the mean key, and a choice that the beams share.
    """
    runs, r = metrics["runs"], metrics["r"][0]
    rows = [{"system": name} | row for name, row in metrics["systems"].items() if row["r"] == r]

    def pick(tasks: Sequence[str], modes: Sequence[str], shared: bool = False) -> list[dict]:
        of_tasks = [row for row in rows if runs[row["run"]]["task"] in tasks and row["mode"] in modes]
        return [row for row in of_tasks if shared or not row["share_beams"]]

    full, chosen = pick(["base"], ["full"]), pick(["base"], ["ideal", "random"])
    learned = pick(["kl", "integrated"], ["approx"])
    tuned = pick(["sparse"], ["full", "ideal", "random"])
    if number == 2:
        return full + chosen + tuned if tuned and chosen else []
    if number == 3:
        return full + chosen + learned if learned else []
    if number == 5:
        return pick(["base", "sparse"], ["random"]) if tuned else []
    best = sorted(learned, key=lambda row: row["scores"]["rouge1"]["mean"])[-1:]
    ours = pick(["base"], ["ideal", "random", "mean_key", "model_free"], shared=True)
    shared = [row for row in pick(["kl", "integrated"], ["approx"], True) if row["share_beams"] and best]
    shared = [row for row in shared if row["run"] == best[0]["run"]]
    return full + ours + best + shared if any(row["phi"] for row in ours) else []


def table_lines(metrics: dict, number: int) -> list[str]:
    """A table in Markdown, or no lines.

    Differences are those of R-1 to the first run's full attention; in Tables 2 and 5 to the run's own, which says how
    much a selection costs a model.
    """
    rows, against = table_rows(metrics, number), "to_full" if number in (2, 5) else "to_first"
    if not rows:
        return []
    columns = METRICS | {"salient_recall": "salient recall"}
    known = [metric for metric in columns if any(metric in row["scores"] for row in rows)]
    names = " | ".join(columns[metric] for metric in known)
    whose = "own" if against == "to_full" else "first"
    lines = [f"| system | selection | r | {names} | R-1 minus {whose} full |", "|---" * (4 + len(known)) + "|"]
    for row in rows:
        cells = [interval(row["scores"][metric]) if metric in row["scores"] else "-" for metric in known]
        gap, r = interval(row[against]["rouge1"], "+"), "all" if row["mode"] == "full" else row["r"]
        lines.append(f"| {title(metrics, row)} | {r} | {' | '.join(cells)} | {gap} |")
    return lines


def interval(value: dict[str, float], sign: str = "") -> str:
    """12.34 [11.00, 13.00]"""
    return "{mean:{sign}.2f} [{low:{sign}.2f}, {high:{sign}.2f}]".format(sign=sign, **value)


def print_tables(metrics: dict, numbers: Sequence[int]) -> None:
    """The tables that can be made; if none, all systems."""
    tables = {number: table_lines(metrics, number) for number in numbers}
    for number, lines in tables.items():
        print(f"Table {number}", *lines, "", sep="\n") if lines else print(f"Table {number}: its runs were not given\n")
    width = max(map(len, metrics["systems"]))
    for name, row in metrics["systems"].items():
        print(f"{name:{width}}", *(interval(row["scores"][metric]) for metric in row["scores"]), sep="  ")
    print(f"(columns: {', '.join(METRICS.values())}, salient recall where known; 95 % bootstrap intervals)")
    cut = max(run["sources_cut"] for run in metrics["runs"].values())
    print(f"{metrics['examples']} examples, {cut} cut; {metrics['signature']}")


def flat(name: str, metrics: dict, row: dict) -> dict[str, object]:
    """A system as one line of a CSV."""
    found = {"system": name} | {key: value for key, value in row.items() if not isinstance(value, dict)}
    found |= {
        key: value
        for key, value in metrics["runs"][row["run"]].items()
        if key in ("task", "gamma", "sentence_encoder", "select", "r_train")
    }
    for group in ("scores", "to_first", "to_full"):
        for metric, values in row[group].items():
            start = metric if group == "scores" else f"{metric} {group}"
            found |= {start if key == "mean" else f"{start} {key}": value for key, value in values.items()}
    return found


def write_tables(metrics: dict, folder: Path, numbers: Sequence[int]) -> None:
    """systems.csv, and table_N.csv for each table that can be made."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"table_{number}": [row["system"] for row in table_rows(metrics, number)] for number in numbers}
    for name, systems in (files | {"systems": list(metrics["systems"])}).items():
        rows = [flat(system, metrics, metrics["systems"][system]) for system in systems]
        columns = list(dict.fromkeys(column for row in rows for column in row))
        if rows:
            with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns, restval="")
                writer.writeheader()
                writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)


# Command line


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The flags; raises ValueError for what does not go together."""
    parser = argparse.ArgumentParser("python -m encdec_sentence_sparse.evaluate", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("runs", nargs="+", help="run folders, folders of transformers, or names; the base model first")
    add("--modes", nargs="+", choices=MODES, help="for all runs; default: those of the tables, by each run's task")
    add("--r", type=int, nargs="+", default=[5], help="sentences to attend to; the first is that of the tables")
    add("--share-beams", action="store_true", help="also one choice for all beams of a document, at the first r")
    add("--tables", type=int, nargs="+", default=[2, 3, 5, 6], choices=[2, 3, 5, 6], help="default: all")
    add("--map", type=int, metavar="N", help="keep the first run's attention on example N (from 0), for Figures 5-8")
    add("--data", help="default: the first run's")
    add("--split", default="test")
    add("--limit", type=int, help="first N examples only (A.2: 2,000 in Figures 2 and 4)")
    add("--sentences", default="given", choices=RULES, help="how documents are split for a BART that is no run")
    add("--seed", type=int, default=0, help="of the random selection")
    add("--decoding", default="toy", choices=list(DECODING), help="generation flags, of A.3 or for toy")
    of_preset = "default: that of --decoding"
    add("--beam", dest="num_beams", type=int, help=of_preset)
    add("--length-penalty", type=float, help=of_preset)
    for name in ("min_length", "max_length", "no_repeat_ngram_size"):
        add("--" + name.replace("_", "-"), type=int, help=of_preset)
    add("--batch-size", type=int, default=32)
    add("--precision", default="float32", choices=list(PRECISIONS))
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--json", type=Path, help="write every number here; encdec_sentence_sparse.figures reads it")
    add("--csv", type=Path, help="folder for systems.csv and table_N.csv")
    add("--predictions", type=Path, help="folder for a JSONL of each system")
    flags = parser.parse_args(arguments)
    given = {name: getattr(flags, name) for name in DECODING["toy"] if getattr(flags, name) is not None}
    flags.generation = DECODING[flags.decoding] | given
    check(flags)
    flags.data = flags.data or default_data(flags.runs[0])
    return flags


def default_data(run: str) -> str:
    """The data that a run was trained on."""
    if not (Path(run) / "log.jsonl").exists():
        raise ValueError(f"{run} is not a run of encdec_sentence_sparse.train that knows its data: give --data")
    return read_config(run).data


def check(flags: argparse.Namespace) -> None:
    """Raise ValueError for flags that do not go together."""
    if len({Path(name).name for name in flags.runs}) < len(flags.runs):
        raise ValueError("two runs have folders of the same name; rename one")
    if min(flags.r) < 1:
        raise ValueError(f"--r {min(flags.r)}: at least 1 sentence must be attended to")
    if flags.json and flags.json.is_dir():
        raise ValueError(f"{flags.json} is a folder; name a file")
    for folder in filter(None, (flags.csv, flags.predictions)):
        if folder.is_file():
            raise ValueError(f"{folder} is a file; name a folder")
    if flags.device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(f"--device {flags.device}, but torch finds no GPU here: leave the flag out")
    if flags.generation["num_beams"] < 1 or flags.batch_size < 1:
        raise ValueError("--beam and --batch-size must be at least 1")
    if flags.generation["max_length"] < 2:
        raise ValueError("--max-length must be at least 2: the start token and a token")


def main(arguments: Sequence[str] | None = None) -> None:
    """Evaluate; bad input ends the program with one line that says what is wrong."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        flags = parse(arguments)
        examples = load(flags.data, flags.split, flags.limit)
        if flags.map is not None and not 0 <= flags.map < len(examples):
            raise ValueError(f"--map {flags.map}: there are {len(examples)} examples, counted from 0")
        metrics, predictions = evaluate(flags, examples)
    except (ValueError, ImportError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped")
    print_tables(metrics, flags.tables)
    if flags.json:
        flags.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(flags.json, metrics)
    if flags.csv:
        write_tables(metrics, flags.csv, flags.tables)
    for name, texts in predictions.items() if flags.predictions else ():
        flags.predictions.mkdir(parents=True, exist_ok=True)
        rows = zip(examples, texts, strict=True)
        output = ({"id": e.id, "prediction": text, "reference": e.target} for e, text in rows)
        write_jsonl(flags.predictions / f"{name}.jsonl", output)


if __name__ == "__main__":
    main()
