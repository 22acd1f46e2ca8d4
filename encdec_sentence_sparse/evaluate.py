"""Decode under every selection of sentences and score: Tables 2-6, and the numbers behind Figures 1, 2, 4, 5-8.

python -m encdec_sentence_sparse.evaluate runs/sparse-base runs/sparse-kl runs/sparse-apx --json m.json    # Tables 3, 6
python -m encdec_sentence_sparse.evaluate runs/sparse-base runs/sparse-0.1 runs/sparse-1 --json m.json     # Tables 2, 5
python -m encdec_sentence_sparse.evaluate runs/sparse-base --modes ideal mean_key --r 5 1 2 10

All is compared with the first run under full attention: give the base model there. Without --modes each run is decoded
under those that the paper's tables have for its task.
"""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TextIO

import numpy as np
import torch
import tyro
from torch import Tensor
from tqdm import tqdm
from transformers.modeling_outputs import BaseModelOutput

from shared import rouge
from shared.data import Example, check_outputs, load, split_sentences, write_csv, write_json
from shared.timing import find_device

from .model import load_model
from .run import one_line_errors
from .selection import MODES, PHI, Selection, SentenceAttention
from .sentences import RULES
from .tables import METRICS, TABLES, length_rows, retained_attention, system_rows
from .text import Item, collate, tokenize
from .train import Run, TrainConfig, encode_examples, load_run, quiet

RELEASED = dict(num_beams=4, length_penalty=2.0, no_repeat_ngram_size=3)  # A.3; released configurations
DECODING = {
    "own": {},  # the model's own generation settings
    "paper": RELEASED | dict(min_length=50, max_length=200),
    "paper-xsum": RELEASED | dict(min_length=11, max_length=62),  # D27: the lengths of facebook/bart-large-xsum
    "paper-arxiv": RELEASED | dict(min_length=56, max_length=400),
    "paper-podcast": RELEASED | dict(min_length=56, max_length=144),
}
FLAGS = {"beam": "num_beams"} | {name: name for name in DECODING["paper"] if name != "num_beams"}
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
    modes: tuple[Literal[MODES], ...] = ()  # for all runs; default: those of the paper's tables, by each run's task
    r: tuple[int, ...] = (5,)  # sentences to attend to; sparse-tuned runs and other phi have the first alone
    share_beams: bool = False  # D13: one choice for all beams of a document (released code)
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


def load_run_or_bart(name: str, sentences: str = "given") -> Run:
    """`load_run` of a run folder; else a BART of transformers, which reads as many tokens as it can."""
    saved = Path(name, "config.json")
    if saved.is_file() and '"package"' in saved.read_text(encoding="utf-8", errors="replace"):
        return load_run(name)
    model, tokenizer = load_model(name)
    positions = model.config.max_position_embeddings
    return Run(TrainConfig(model=name, sentences=sentences, max_source=positions), model, tokenizer)


def selections_of(
    name: str, run: Run, modes: Sequence[str], rs: Sequence[int], share_beams: bool, seed: int
) -> dict[str, Selection]:
    """Under which selections a run is decoded, by the system's name (RUN.MODE.rR, also a file's), "full" first."""
    chosen = [mode for mode in modes or TABLES[run.config.task] if mode != "full"]
    if "approx" in chosen and run.model.sentence_encoder is None:
        raise ValueError(f"{name} has no approximator: leave mode 'approx' out, or give a run of --task kl")
    selections = {f"{name}.full": Selection("full", rs[0])}
    for mode in chosen:
        for r in rs[:1] if run.config.task == "sparse" and not modes else rs:
            for phi in PHI if mode == "model_free" and r == rs[0] else ["elu"]:
                label = f"{mode}-{phi}" if mode == "model_free" else mode
                selections[f"{name}.{label}.r{r}"] = Selection(mode, r, phi, share_beams, seed)
    return selections


def encode_batch(run: Run, items: Sequence[Item]) -> dict:
    """Documents side by side, encoded: arguments of `generate` and `forward`."""
    source = collate(items, run.model.config.pad_token_id).to(run.model.device).source()
    encoder = run.model.get_encoder()
    states = encoder(input_ids=source.pop("input_ids"), attention_mask=source["attention_mask"])[0]
    return source | {"encoder_outputs": BaseModelOutput(states)}


@torch.inference_mode()
def decode(
    run: Run,
    items: Sequence[Item],
    selections: Sequence[Selection],
    batch_size: int = 32,
    files: Sequence[TextIO] = (),
    examples: Sequence[Example] = (),
    **generation,
) -> tuple[list[list[str]], list[float]]:
    """Decode all documents under each selection. Each document is encoded once, in batches of like length.

    Args:
        files: one per selection; gets the predictions as they come, with the ids and references of `examples`.
    Returns:
        the texts of each selection; Figure 1, the mean over documents of `retained_attention` in mode "full".
    """
    texts, curves = [[""] * len(items) for _ in selections], []
    by_length = sorted(range(len(items)), key=lambda i: len(items[i].ids))
    for start in tqdm(range(0, len(items), batch_size), unit="batch", leave=False):
        numbers = by_length[start : start + batch_size]
        source = encode_batch(run, [items[i] for i in numbers])
        for place, selection in enumerate(selections):
            run.model.selection = selection
            rows = run.model.generate(**source, do_sample=False, **generation)  # (B, 1 + T)
            if selection.mode == "full":
                curves += [*retained_attention(*read_again(run, source, rows))]
            for i, text in zip(numbers, run.tokenizer.batch_decode(rows, skip_special_tokens=True), strict=True):
                texts[place][i] = " ".join(text.split())
                if files:
                    row = {"id": examples[i].id, "prediction": texts[place][i], "reference": examples[i].target}
                    print(json.dumps(row, ensure_ascii=False), file=files[place], flush=True)
    longest = max(map(len, curves), default=0)  # beyond its last sentence a document retains everything
    padded = [np.pad(curve, (0, longest - len(curve)), constant_values=1.0) for curve in curves]
    return texts, np.mean(padded, 0).tolist() if padded else []


def read_again(run: Run, source: dict, rows: Tensor) -> tuple[list[SentenceAttention], Tensor]:
    """What each layer attended to while writing the best summaries, and (B, T) which steps are real."""
    record: list[SentenceAttention] = []
    run.model(**source, decoder_input_ids=rows[:, :-1], record=record)
    return record, rows[:, 1:] != run.model.config.pad_token_id


@torch.inference_mode()
def attention_map(run: Run, item: Item, **generation) -> dict:
    """Figures 5-8: attention of full decoding on one document, averaged over heads (Appendix E), D21: and layers."""
    source, run.model.selection = encode_batch(run, [item]), Selection("full")
    rows = run.model.generate(**source, do_sample=False, **generation)
    words, rounded = torch.arange(len(item.ids), device=rows.device).unsqueeze(0), {}  # each token its own sentence
    for kind, ids in (("word", words), ("exact", source["sentence_ids"])):
        record, _ = read_again(run, source | {"sentence_ids": ids}, rows)
        values = torch.stack([layer.exact.float() for layer in record]).mean((0, 2))[0]  # (T, S) or (T, N)
        rounded[kind] = values.cpu().numpy().round(5).tolist()
    source, target = (run.tokenizer.convert_ids_to_tokens(ids) for ids in (item.ids, rows[0, 1:]))
    return {"source": source, "target": target, "sentence_ids": item.sentence_ids} | rounded


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
    """Decode and score runs on the same examples; every number in one JSON object.

    Args:
        runs: the first is the one whose full attention all are compared with.
        map_example: keep the first run's attention on this example.
        predictions: folder for SYSTEM.jsonl with the outputs, written as they come.
        generation: arguments of `generate`, in place of each model's own.
    """
    rouge.check_references(examples)
    selections = {name: selections_of(name, run, modes, r, share_beams, seed) for name, run in runs.items()}
    settings = [check_generation(name, run, generation) for name, run in runs.items()]
    metrics = {"examples": len(examples), "generation": settings[0], "seed": seed, "share_beams": share_beams}
    metrics |= {"signature": rouge.signature(len(examples)), "runs": {}, "systems": {}}
    references, first = [example.references for example in examples], None
    for name, run in runs.items():
        items, full = list(encode_examples(examples, run)), None
        with ExitStack() as stack:
            paths = [predictions / f"{system}.jsonl" for system in selections[name]] if predictions else []
            files = [stack.enter_context(path.open("w", encoding="utf-8")) for path in paths]
            chosen = list(selections[name].values())
            texts, retained = decode(run, items, chosen, batch_size, files, examples, **generation)
        metrics["runs"][name] = describe(run, examples, items) | {"retained": retained}
        if map_example is not None and first is None:
            metrics["runs"][name]["map"] = attention_map(run, items[map_example], **generation)
        for (system, selection), outputs in zip(selections[name].items(), texts, strict=True):
            scores = rouge.score([split_sentences(text) for text in outputs], references)
            first, full = (scores["rouge1"] if best is None else best for best in (first, full))
            row = {"run": name, "mode": selection.mode, "r": selection.r}
            row["phi"] = selection.phi if selection.mode == "model_free" else None
            row |= {metric: rouge.interval(scores[metric]) for metric in METRICS}
            row["difference"] = rouge.difference(scores["rouge1"], first)  # R-1, to the first run's full attention
            row["cost"] = rouge.difference(scores["rouge1"], full)  # R-1, to the own full attention
            metrics["systems"][system] = row
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


def describe(run: Run, examples: Sequence[Example], items: Sequence[Item]) -> dict:
    """How a run was trained and what it reads; Table 4: N, N1 and M."""
    config, is_integrated = run.config, run.config.task == "integrated"
    targets = [len(tokenize(run.tokenizer, example.target, 10**6)[0]["input_ids"]) for example in examples]
    return {
        "task": config.task,
        "seed": config.seed,
        "gamma": config.gamma if config.task == "sparse" else 0.0,
        "sentence_encoder": getattr(run.model.config, "sentence_encoder", None),
        "select": config.select if is_integrated else None,
        "r_train": config.r if is_integrated else None,
        "sources_cut": sum(item.was_cut for item in items),
        "source_tokens": float(np.mean([len(item.ids) for item in items])),
        "source_sentences": float(np.mean([item.sentence_ids[-1] + 1 for item in items])),
        "target_tokens": float(np.mean(targets)),
    }


def load_runs(options: Options) -> dict[str, Run]:
    """The runs by their folders' names; a BART reads what the first run beside it does, unless flags say otherwise."""
    if not options.runs:
        raise ValueError("give at least one run folder or BART")
    if len({Path(name).name for name in options.runs}) < len(options.runs):
        raise ValueError("two runs have folders of the same name; rename one")
    runs = {name: load_run_or_bart(name, options.sentences or "given") for name in options.runs}
    trained = [run.config for name, run in runs.items() if run.config.model != name]
    taken = ("data",) if options.sentences else ("data", "sentences")
    for name, run in runs.items():
        if run.config.model == name and trained:
            config = replace(run.config, **{key: getattr(trained[0], key) for key in taken})
            runs[name] = run._replace(config=config)
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
    check_outputs(
        options.json, options.csv, *(options.predictions / f"{s}.jsonl" for s in systems if options.predictions)
    )
    flags = {name: getattr(options, flag) for flag, name in FLAGS.items()}
    generation = DECODING[options.decoding] | {name: value for name, value in flags.items() if value is not None}
    metrics = {"data": data, "split": options.split} | evaluate(
        runs, examples, **chosen, batch_size=options.batch_size, map_example=options.map,
        predictions=options.predictions, **generation,
    )  # fmt: skip
    if options.json:
        write_json(options.json, metrics)
    if options.csv:
        hidden = ("retained", "map")
        runs = {name: {k: v for k, v in run.items() if k not in hidden} for name, run in metrics["runs"].items()}
        write_csv(options.csv, [{"system": s} | runs[row["run"]] | row for s, row in metrics["systems"].items()])
    print(f"Tables 2, 3, 5, 6\n{rouge.table(system_rows(metrics))}\n\nTable 4\n{rouge.table(length_rows(metrics))}\n")
    print(f"{len(examples)} examples, 95 % intervals; {metrics['signature']}")


if __name__ == "__main__":
    main()
