"""Where the attention is while a run writes its summaries: the numbers of Figures 1 and 5 to 8, under full attention.

python -m encdec_sentence_sparse.experiments.measures runs/base runs/sparse-1 --limit 400 --map 0 --json attention.json
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from torch import Tensor
from tqdm import tqdm

from shared.data import check_outputs, in_sentences, load, write_json
from shared.timing import find_device

from ..decode import check_generation, decode, encode_batch, given_settings
from ..loading import Run, load_run, name_of
from ..run import Positive, check_fields, one_line_errors, read_flags
from ..selection import Selection, SentenceAttention
from ..text import Item


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    runs: tyro.conf.Positional[tuple[Path, ...]]  # run folders
    json: Path  # write the numbers here; experiments.figures --attention reads it
    data: str = ""  # anything shared.data.load takes; default: the first run's
    split: str = "test"
    limit: Positive | None = None  # first N examples only
    map: int = 0  # of the first run: attention on example N (from 0), for Figures 5-8
    no_repeat_ngram_size: int | None = None  # default: the model's own
    batch_size: Positive = 32  # documents decoded at a time
    device: str = "cpu"


@torch.inference_mode()
def read_again(run: Run, source: dict, rows: Tensor) -> tuple[list[SentenceAttention], Tensor]:
    """What each layer attended to while writing the best summaries, and (B, T) which steps are real."""
    record: list[SentenceAttention] = []
    run.model(**source, decoder_input_ids=rows[:, :-1], record=record)
    return record, rows[:, 1:] != run.model.config.pad_token_id


def retained_attention(record: Sequence[SentenceAttention], is_step: Tensor) -> np.ndarray:
    """Figure 1: sum of the attention weights of the 1, 2, ..., N most salient sentences: (B, N), rising to 1.

    A.4: heads are averaged before the summation. D21: then the mean over layers and the steps of the own summary.
    """
    weights = torch.stack([layer.exact.float().mean(1) for layer in record])  # (layers, B, T, N)
    sums = weights.sort(-1, descending=True).values.cumsum(-1).mean(0)  # (B, T, N)
    shares = is_step / is_step.sum(1, keepdim=True).clamp_min(1)  # (B, T)
    return torch.einsum("btn,bt->bn", sums, shares).cpu().numpy()


def retained_curve(run: Run, items: Sequence[Item], batch_size: int = 32, **generation) -> list[float]:
    """Figure 1: the mean over documents of `retained_attention`."""
    curves = []
    for summaries in tqdm(decode(run, items, [Selection()], batch_size, **generation), leave=False):
        source = encode_batch(run, [items[i] for i in summaries.documents])
        curves += [*retained_attention(*read_again(run, source, summaries.rows))]
    longest = max(map(len, curves))  # beyond its last sentence a document retains everything
    padded = [np.pad(curve, (0, longest - len(curve)), constant_values=1.0) for curve in curves]
    return np.mean(padded, 0).tolist()


def attention_map(run: Run, item: Item, **generation) -> dict:
    """Figures 5-8: attention of full decoding on one document, averaged over heads (Appendix E), D21: and layers."""
    [summaries], rounded = decode(run, [item], [Selection()], 1, **generation), {}
    source = encode_batch(run, [item])
    words = torch.arange(len(item.ids), device=run.model.device).unsqueeze(0)  # each token its own sentence
    for kind, ids in (("word", words), ("exact", source["sentence_ids"])):
        record, _ = read_again(run, source | {"sentence_ids": ids}, summaries.rows)
        values = torch.stack([layer.exact.float() for layer in record]).mean((0, 2))[0]  # (T, S) or (T, N)
        rounded[kind] = values.cpu().numpy().round(5).tolist()
    source, target = (run.tokenizer.convert_ids_to_tokens(ids) for ids in (item.ids, summaries.rows[0, 1:]))
    return {"source": source, "target": target, "sentence_ids": item.sentence_ids} | rounded


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.measures", description=__doc__)
    check_fields(options)
    if not options.runs:
        raise ValueError("give at least one run folder")
    runs = {name_of(path): load_run(path) for path in options.runs}
    if len(runs) < len(options.runs):
        raise ValueError("two runs have folders of the same name; rename one")
    data = options.data or next(iter(runs.values())).config.data
    check_outputs(options.json, inputs=[data, *options.runs])
    examples, generation = load(data, options.split, options.limit), given_settings(options)
    if options.map >= len(examples):
        raise ValueError(f"--map {options.map}: there are {len(examples)} examples, counted from 0")
    metrics = {"data": data, "split": options.split, "examples": len(examples), "runs": {}}
    for name, run in runs.items():
        run.model.to(find_device(options.device))
        check_generation(name, run, generation)
        items = run.encode(in_sentences(examples) if run.config.sentences == "given" else examples)
        row = {"task": run.config.task, "seed": run.config.seed, "gamma": run.config.gamma}
        row["retained"] = retained_curve(run, items, options.batch_size, **generation)
        if not metrics["runs"]:
            row["map"] = attention_map(run, items[options.map], **generation)
        metrics["runs"][name] = row
    write_json(options.json, metrics)
    for name, row in metrics["runs"].items():
        shares = ", ".join(f"{row['retained'][r - 1]:.2f}" for r in (1, 2, 5, 10) if r <= len(row["retained"]))
        print(f"{name}: the most salient 1, 2, 5, 10 sentences hold {shares} of the attention")


if __name__ == "__main__":
    main()
