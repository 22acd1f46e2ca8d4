"""Decode under every selection of sentences and score: Tables 2-6, and the numbers behind Figures 1, 2, 4, 5-8.

python -m encdec_sentence_sparse.evaluate runs/sparse-base runs/sparse-kl runs/sparse-apx --json m.json    # Tables 3, 6
python -m encdec_sentence_sparse.evaluate runs/sparse-base runs/sparse-0.1 runs/sparse-1 --json m.json     # Tables 2, 5
python -m encdec_sentence_sparse.evaluate runs/sparse-base --modes ideal mean_key --r 5 1 2 10 --share-beams

All is compared with the first run under full attention: give the base model there. Without --modes each run is decoded
under those that the tables have for its task.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

import numpy as np
import torch
import tyro
from torch import Tensor
from tqdm import tqdm
from transformers.modeling_outputs import BaseModelOutput

from shared import rouge
from shared.data import Example, check_outputs, in_sentences, load, split_sentences, write_csv, write_json
from shared.timing import find_device

from .run import one_line_errors
from .selection import MODES, PHI, Selection, SentenceAttention
from .sentences import RULES, Splitter
from .text import Item, collate, encode, pad, tokenize
from .train import Run, load_run_or_bart, make_splitter, quiet

# D20: rouge-score (the paper: pyrouge). Papers' ROUGE-L is that over sentences.
METRICS = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L", "salient_recall": "salient recall"}
DECODING = {  # A.3 and, for the lengths and the trigrams, the released configurations
    "own": {},  # the model's own generation settings
    "paper": dict(num_beams=4, length_penalty=2.0, min_length=50, max_length=200, no_repeat_ngram_size=3),
    "paper-arxiv": dict(num_beams=4, length_penalty=2.0, min_length=56, max_length=400, no_repeat_ngram_size=3),
    "paper-podcast": dict(num_beams=4, length_penalty=2.0, min_length=56, max_length=144, no_repeat_ngram_size=3),
}
TASK_MODES = {  # what the tables and Figure 2 show of a run, besides "full"
    "base": ("ideal", "random", "mean_key", "model_free"),
    "sparse": ("ideal", "random"),
    "kl": ("approx",),
    "integrated": ("approx",),
}
TABLES = {  # of the paper: the modes of each task, and what makes it that table
    2: ({"base": ("full", "ideal", "random"), "sparse": ("full", "ideal", "random")}, ("task", "sparse")),
    3: ({"base": ("full", "ideal", "random"), "kl": ("approx",), "integrated": ("approx",)}, ("mode", "approx")),
    5: ({"base": ("random",), "sparse": ("random",)}, ("task", "sparse")),
    6: ({"base": MODES, "kl": ("approx",), "integrated": ("approx",)}, ("mode", "model_free")),
}
VARIANTS = {"ideal": "Int-Idl", "approx": "Int-Apx", "mix": "Int-Mix"}
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[str, ...]]  # run folders, or BARTs (folder or hub name); the base model first
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "test"
    limit: int | None = None  # first N examples only (A.2: 2,000 in Figures 2 and 4)
    json: Path | None = None  # write every number here; encdec_sentence_sparse.figures reads it
    csv: Path | None = None  # write a row per system here
    predictions: Path | None = None  # folder for the outputs, a .jsonl per system
    modes: tuple[Literal[MODES], ...] = ()  # for all runs; default: those of the tables, by each run's task
    r: tuple[int, ...] = (5,)  # sentences to attend to; the first is that of the tables
    share_beams: bool = False  # D13: also one choice for all beams of a document, at the first r
    tables: tuple[Literal[tuple(TABLES)], ...] = tuple(TABLES)  # which to print
    map: int | None = None  # keep the first run's attention on example N (from 0), for Figures 5-8
    sentences: Literal[("", *RULES)] = ""  # how documents are split for a BART; default: as for the first run beside it
    seed: int = 0  # of the random selection
    decoding: Literal[tuple(DECODING)] = "own"  # "own": the model's generation settings; the others: A.3, per corpus
    beam: int | None = None  # default: that of --decoding, as the four that follow
    length_penalty: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    no_repeat_ngram_size: int | None = None
    batch_size: int = 32  # documents decoded at a time
    precision: Literal[tuple(PRECISIONS)] = "float32"
    device: str = "cpu"


class Corpus(NamedTuple):
    """Documents as a run reads them."""

    examples: Sequence[Example]
    items: list[Item]
    salient: list[list[bool] | None]  # (N,) of the model's sentences; None = unknown


class EncodedBatch(NamedTuple):
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

    texts: list[str]
    salient_recall: np.ndarray  # (documents,) percentages; NaN = unknown
    retained: list[np.ndarray]  # (N,) of each document, see `retained_attention`; empty unless in mode "full"
    seconds: float  # of `generate`, without the encoder


# What is decoded


def read_corpus(run: Run, examples: Sequence[Example]) -> Corpus:
    """Examples as a run reads them; by the rule "given" whole-string documents are split, each by itself (D8)."""
    examples = in_sentences(examples) if run.splitter.rule == "given" else list(examples)
    items = [encode(run.tokenizer, example.document, run.config.max_source, run.splitter) for example in examples]
    salient = [salient_sentences(run, example, item) for example, item in zip(examples, items, strict=True)]
    return Corpus(examples, items, salient)


def salient_sentences(run: Run, example: Example, item: Item) -> list[bool] | None:
    """(N,) which of the model's sentences hold a token of a sentence that the corpus calls salient; None = unknown."""
    if example.salient is None:
        return None
    given = encode(run.tokenizer, example.document, run.config.max_source, Splitter("given", eos="last"))
    if not given.was_cut and given.sentence_ids[-1] + 1 != len(example.salient):
        return None  # a sentence without a token: which marks are whose cannot be told
    salient = [False] * (item.sentence_ids[-1] + 1)
    for token, ours, theirs in zip(given.ids, item.sentence_ids, given.sentence_ids, strict=True):
        salient[ours] |= example.salient[theirs] and token != run.tokenizer.eos_token_id
    return salient


def selections_of(
    name: str, run: Run, modes: Sequence[str], rs: Sequence[int], share_beams: bool, seed: int
) -> dict[str, Selection]:
    """Under which selections a run is decoded, by the system's name, "full" first.

    Tables show the first r, which has the other phi and shared beams, too. Figures 2 and 4 show all.

    Raises:
        ValueError: mode "approx" for a run without an approximator.
    """
    chosen = [mode for mode in modes or TASK_MODES[run.config.task] if mode != "full"]
    if "approx" in chosen and run.model.sentence_encoder is None:
        raise ValueError(f"{name} has no approximator: leave mode 'approx' out, or give a run of --task kl")
    lengths = rs[:1] if run.config.task == "sparse" and not modes else rs
    selections = [Selection("full", rs[0])]
    for mode in chosen:
        at_first = Selection(mode, rs[0], seed=seed)
        selections += [replace(at_first, r=r) for r in lengths]
        selections += [replace(at_first, phi=phi) for phi in PHI if mode == "model_free" and phi != at_first.phi]
        selections += [replace(at_first, share_beams=True)] if share_beams and mode != "random" else []
    return {system_name(name, selection): selection for selection in selections}


def system_name(run: str, selection: Selection) -> str:
    """RUN.MODE.rR, also a file name."""
    if selection.mode == "full":
        return f"{run}.full"
    mode = f"model_free-{selection.phi}" if selection.mode == "model_free" else selection.mode
    return f"{run}.{mode}.r{selection.r}" + (".shared" if selection.share_beams else "")


# Decoding


def batches(run: Run, items: Sequence[Item], batch_size: int) -> Iterator[EncodedBatch]:
    """All documents, encoded in batches of like length, the shortest first."""
    by_length = sorted(range(len(items)), key=lambda i: len(items[i].ids))
    for start in range(0, len(by_length), batch_size):
        numbers = by_length[start : start + batch_size]
        joined = collate([items[i] for i in numbers], run.model.config.pad_token_id)
        ids, attention_mask, sentence_ids = (tensor.to(run.model.device) for tensor in joined[:3])
        states = run.model.get_encoder()(input_ids=ids, attention_mask=attention_mask)[0]
        yield EncodedBatch(numbers, states, attention_mask, sentence_ids)


@torch.inference_mode()
def decode(
    run: Run,
    corpus: Corpus,
    selections: Sequence[Selection],
    batch_size: int = 32,
    files: Sequence[TextIO] = (),
    **generation,
) -> list[Decoded]:
    """Decode all documents under each selection. Each document is encoded once.

    Args:
        files: one per selection; gets the predictions as they come.
        generation: arguments of `generate`, such as num_beams and max_length, in place of the model's own.
    """
    count = len(corpus.items)
    decoded = [Decoded([""] * count, np.full(count, np.nan), [np.ones(0)] * count, 0.0) for _ in selections]
    with tqdm(total=len(selections) * -(-count // batch_size), unit="batch", leave=False) as bar:
        for batch in batches(run, corpus.items, batch_size):
            for place, selection in enumerate(selections):
                decoded[place] = decode_batch(run, corpus, batch, selection, decoded[place], generation)
                for i in batch.numbers if files else ():
                    example, text = corpus.examples[i], decoded[place].texts[i]
                    row = {"id": example.id, "prediction": text, "reference": example.target}
                    print(json.dumps(row, ensure_ascii=False), file=files[place], flush=True)
                bar.update()
    return decoded


def decode_batch(
    run: Run, corpus: Corpus, batch: EncodedBatch, selection: Selection, decoded: Decoded, generation: dict
) -> Decoded:
    """`decoded` with the batch's outputs in their places."""
    run.model.selection = selection
    started = time.perf_counter()
    rows = run.model.generate(**batch.source(), do_sample=False, **generation)  # (B, 1 + T)
    seconds = time.perf_counter() - started
    texts = run.tokenizer.batch_decode(rows, skip_special_tokens=True)
    for i, text in zip(batch.numbers, texts, strict=True):
        decoded.texts[i] = " ".join(text.split())
    is_known = all(corpus.salient[i] is not None for i in batch.numbers)
    # Which subset the beams shared cannot be told from the best one alone.
    if not selection.share_beams and (is_known or selection.mode == "full"):
        record, is_step = read_again(run, batch, rows)
        if is_known:
            marks = pad([corpus.salient[i] for i in batch.numbers], 0).bool().to(rows.device)
            decoded.salient_recall[batch.numbers] = salient_recall(record, is_step, marks)
        if selection.mode == "full":
            curves = retained_attention(record, is_step)
            for i, curve in zip(batch.numbers, curves, strict=True):
                decoded.retained[i] = curve[: corpus.items[i].sentence_ids[-1] + 1]
    return decoded._replace(seconds=decoded.seconds + seconds)


def read_again(run: Run, batch: EncodedBatch, rows: Tensor) -> tuple[list[SentenceAttention], Tensor]:
    """What each layer attended to while writing the best summaries, and (B, T) which steps are real."""
    record: list[SentenceAttention] = []
    run.model(**batch.source(), decoder_input_ids=rows[:, :-1], record=record)
    return record, rows[:, 1:] != run.model.config.pad_token_id


# Measures


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
    keep = torch.stack([layer.keep for layer in record])  # (layers, B, T, N)
    hits = (keep & salient.unsqueeze(1)).sum(-1)
    possible = torch.minimum(keep.sum(-1), salient.sum(-1, keepdim=True))  # (layers, B, T)
    share = (hits / possible.clamp_min(1)).masked_fill(possible == 0, 1.0)
    return 100 * mean_over_steps(share, is_step).cpu().numpy()


def retained_attention(record: Sequence[SentenceAttention], is_step: Tensor) -> np.ndarray:
    """Figure 1: sum of the attention weights of the 1, 2, ..., N most salient sentences: (B, N), rising to 1.

    A.4: heads are averaged before the summation. D21: then the mean over layers and the steps of the own summary.
    """
    weights = torch.stack([layer.exact.float().mean(1) for layer in record])  # (layers, B, T, N)
    return mean_over_steps(weights.sort(-1, descending=True).values.cumsum(-1), is_step).cpu().numpy()


def mean_curve(curves: Sequence[np.ndarray]) -> list[float]:
    """Mean of curves of different lengths; beyond its last sentence a document retains everything."""
    longest = max(map(len, curves))
    return np.mean([np.pad(curve, (0, longest - len(curve)), constant_values=1.0) for curve in curves], 0).tolist()


@torch.inference_mode()
def attention_map(run: Run, item: Item, **generation) -> dict:
    """Figures 5-8: attention of full decoding on one document, averaged over heads (Appendix E), D21: and layers."""
    [batch] = batches(run, [item], 1)
    run.model.selection = Selection("full")
    rows = run.model.generate(**batch.source(), do_sample=False, **generation)
    record, _ = read_again(run, batch, rows)
    maps = {kind: torch.stack([getattr(layer, kind).float() for layer in record]) for kind in ("word", "exact")}
    rounded = {kind: values.mean((0, 2))[0].cpu().numpy().round(5).tolist() for kind, values in maps.items()}
    source, target = (run.tokenizer.convert_ids_to_tokens(ids) for ids in (item.ids, rows[0, 1:]))
    return {"source": source, "target": target, "sentence_ids": item.sentence_ids} | rounded


# Evaluation


def evaluate(
    runs: dict[str, Run],
    examples: Sequence[Example],
    modes: Sequence[str] = (),
    r: Sequence[int] = (5,),
    share_beams: bool = False,
    seed: int = 0,
    batch_size: int = 32,
    map_example: int | None = None,
    predictions: Path | None = None,
    **generation,
) -> dict:
    """Decode and score runs on the same examples.

    Args:
        runs: the first is the one whose full attention all are compared with.
        modes, r, share_beams, seed: as in `selections_of`.
        map_example: keep the first run's attention on this example.
        predictions: folder for SYSTEM.jsonl with the outputs, written as they come.
        generation: arguments of `generate`, in place of each model's own.
    Returns:
        every number in one JSON object.
    """
    rouge.check_references(examples)
    selections = {name: selections_of(name, run, modes, r, share_beams, seed) for name, run in runs.items()}
    for name, run in runs.items():
        settings = check_generation(name, run, generation)
    metrics = {"examples": len(examples), "generation": settings, "r": list(r), "seed": seed}
    metrics |= {"signature": rouge.signature(len(examples)), "runs": {}, "systems": {}}
    references, first = [example.references for example in examples], None
    for name, run in runs.items():
        corpus, full = read_corpus(run, examples), None
        with ExitStack() as stack:
            paths = [predictions / f"{system}.jsonl" for system in selections[name]] if predictions else []
            files = [stack.enter_context(path.open("w", encoding="utf-8")) for path in paths]
            results = decode(run, corpus, list(selections[name].values()), batch_size, files, **generation)
        metrics["runs"][name] = describe(run, corpus) | {"retained": mean_curve(results[0].retained)}
        if map_example is not None and first is None:
            metrics["runs"][name]["map"] = attention_map(run, corpus.items[map_example], **generation)
        for (system, selection), result in zip(selections[name].items(), results, strict=True):
            scores = rouge.score([split_sentences(text) for text in result.texts], references)
            scores["salient_recall"] = result.salient_recall
            known = {metric: scores[metric] for metric in METRICS if not np.isnan(scores[metric]).any()}
            first, full = (scores["rouge1"] if best is None else best for best in (first, full))
            metrics["systems"][system] = {
                "run": name,
                "mode": selection.mode,
                "r": selection.r,
                "phi": selection.phi if selection.mode == "model_free" else None,
                "share_beams": selection.share_beams,
                "seconds": result.seconds,
                **{metric: rouge.interval(values) for metric, values in known.items()},
                "difference": rouge.difference(scores["rouge1"], first),  # R-1, to the first run's full attention
                "cost": rouge.difference(scores["rouge1"], full),  # R-1, to the own full attention
            }
    return metrics


def check_generation(name: str, run: Run, generation: dict) -> dict:
    """The settings that a run is decoded with; ValueError where they contradict each other or the model."""
    own = {key: getattr(run.model.generation_config, key, None) for key in DECODING["paper"]}
    settings = {key: value for key, value in (own | generation).items() if value is not None}
    longest, positions = settings.get("max_length", 20), run.model.config.max_position_embeddings
    if not max(2, settings.get("min_length", 0)) <= longest <= positions:
        limits = f"at least 2 and --min-length, and at most {positions}, the positions of {name}"
        raise ValueError(f"--max-length is {longest}; it must be {limits}")
    if settings.get("num_beams", 1) < 1:
        raise ValueError(f"--beam is {settings['num_beams']}; it must be at least 1")
    return settings


def describe(run: Run, corpus: Corpus) -> dict:
    """How a run was trained and what it reads; Table 4: N, N1 and M."""
    config, tokens = run.config, [len(item.ids) for item in corpus.items]
    targets = [len(tokenize(run.tokenizer, example.target, 10**6)[0]["input_ids"]) for example in corpus.examples]
    return {
        "task": config.task,
        "seed": config.seed,
        "gamma": config.gamma if config.task == "sparse" else 0.0,
        "sentence_encoder": getattr(run.model.config, "sentence_encoder", None),
        "select": config.select if config.task == "integrated" else None,
        "r_train": config.r if config.task == "integrated" else None,
        "sources_cut": sum(item.was_cut for item in corpus.items),
        "source_tokens": float(np.mean(tokens)),
        "source_sentences": float(np.mean([item.sentence_ids[-1] + 1 for item in corpus.items])),
        "target_tokens": float(np.mean(targets)),
    }


# Tables


def table_rows(metrics: dict, number: int) -> list[dict]:
    """The systems of a table of the paper, at the first r; none where a run that it needs is missing.

    Differences are of R-1: in Tables 2 and 5 to the run's own full attention, else to the first run's.
    """
    tasks, (key, value) = TABLES[number]
    rows = [{"task": metrics["runs"][row["run"]]["task"]} | row for row in metrics["systems"].values()]
    rows = [row for row in rows if row["r"] == metrics["r"][0] and row["mode"] in tasks.get(row["task"], ())]
    rows = [row for row in rows if number == 6 or not (row["share_beams"] or row["phi"])]
    if not any(row[key] == value for row in rows):
        return []
    against, whose = ("cost", "own") if number in (2, 5) else ("difference", "first")
    return [
        {"system": title(metrics["runs"][row["run"]], row), "r": "all" if row["mode"] == "full" else row["r"]}
        | {shown: row[metric] for metric, shown in METRICS.items() if metric in row}
        | {f"R-1 minus {whose} full": row[against]}
        for row in rows
    ]


def title(run: dict, row: dict) -> str:
    """A system as the paper calls it."""
    trained = {
        "base": "Vanilla",
        "sparse": f"L_A-tuned, gamma {run['gamma']:g}",
        "kl": "KL-only",
        "integrated": f"{VARIANTS.get(run['select'])}, r {run['r_train']} in training",
    }[run["task"]]
    encoder = f" ({run['sentence_encoder']})" if run["sentence_encoder"] else ""
    mode = f"model_free ({row['phi']})" if row["phi"] else row["mode"]
    return f"{trained}{encoder}, {mode}{', beams share' if row['share_beams'] else ''}"


def report(metrics: dict, numbers: Sequence[int] = tuple(TABLES)) -> str:
    """The tables that can be made, all systems, and Table 4: what the runs read."""
    tables = [f"Table {number}\n{rouge.table(rows)}" for number in numbers if (rows := table_rows(metrics, number))]
    systems = [
        {"system": name} | {shown: row[metric] for metric, shown in METRICS.items() if metric in row}
        for name, row in metrics["systems"].items()
    ]
    names = {"source_tokens": "N", "source_sentences": "N1", "target_tokens": "M", "sources_cut": "cut"}
    read = []
    for name, run in metrics["runs"].items():
        ratio = {"N/M": run["source_tokens"] / run["target_tokens"]}
        read.append({"run": name} | {shown: run[key] for key, shown in names.items()} | ratio)
    last = f"{metrics['examples']} examples, 95 % intervals; {metrics['signature']}"
    return "\n\n".join([*tables, f"All systems\n{rouge.table(systems)}", f"Table 4\n{rouge.table(read)}", last])


# Command line


def load_runs(options: Options) -> dict[str, Run]:
    """The runs by their folders' names; a BART reads what the first run beside it does, unless flags say otherwise."""
    if not options.runs:
        raise ValueError("give at least one run folder or BART")
    if len({Path(name).name for name in options.runs}) < len(options.runs):
        raise ValueError("two runs have folders of the same name; rename one")
    runs = {name: load_run_or_bart(name, options.sentences or "given") for name in options.runs}
    trained = [run.config for name, run in runs.items() if run.config.model != name]
    for name, run in runs.items():
        if run.config.model == name and trained:
            taken = ("data",) if options.sentences else ("data", "sentences", "eos", "sentence_end")
            config = replace(run.config, **{key: getattr(trained[0], key) for key in taken})
            runs[name] = run._replace(config=config, splitter=make_splitter(config, run.tokenizer))
    for run in runs.values():
        run.model.to(find_device(options.device), PRECISIONS[options.precision])
    return {Path(name).name: run for name, run in runs.items()}


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.evaluate", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    quiet()
    if min(*options.r, options.batch_size) < 1:
        raise ValueError("--r and --batch-size must be at least 1")
    runs = load_runs(options)
    configs = [run.config for run in runs.values()]
    if not options.data and all(config.model in options.runs for config in configs):
        raise ValueError(f"{options.runs[0]} is not a run that knows its data: give --data")
    data = options.data or configs[0].data
    examples = load(data, options.split, options.limit)
    if options.map is not None and not 0 <= options.map < len(examples):
        raise ValueError(f"--map {options.map}: there are {len(examples)} examples, counted from 0")
    chosen = dict(modes=options.modes, r=options.r, share_beams=options.share_beams, seed=options.seed)
    systems = [system for name, run in runs.items() for system in selections_of(name, run, *chosen.values())]
    outputs = [options.predictions / f"{system}.jsonl" for system in systems] if options.predictions else []
    check_outputs(options.json, options.csv, *outputs)
    flags = {"num_beams": options.beam} | {name: getattr(options, name) for name in [*DECODING["paper"]][1:]}
    generation = DECODING[options.decoding] | {name: value for name, value in flags.items() if value is not None}
    metrics = {"data": data, "split": options.split} | evaluate(
        runs, examples, **chosen, batch_size=options.batch_size, map_example=options.map,
        predictions=options.predictions, **generation,
    )  # fmt: skip
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        rows = []
        for system, row in metrics["systems"].items():
            trained = {k: v for k, v in metrics["runs"][row["run"]].items() if k not in ("retained", "map")}
            rows.append({"system": system} | trained | row)
        write_csv(options.csv, rows)
    print(report(metrics, options.tables))


if __name__ == "__main__":
    main()
