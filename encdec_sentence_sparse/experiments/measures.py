"""Where the attention is while a run writes its summaries, under full attention: Figures 1 and, as a map, 5 to 8.

python -m encdec_sentence_sparse.experiments.measures runs/base-0 runs/sparse1-0 --limit 400 --csv figure_1.csv
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
import tyro
from torch import Tensor
from tqdm import tqdm

from shared.data import Example, load, open_output, write_csv
from shared.run import in_windows, one_line_errors

from ..loading import Run, load_run
from ..predict import decode
from ..selection import SentenceAttention
from . import figures


@torch.inference_mode()
def read_again(run: Run, source: dict, tokens: Sequence[int]) -> tuple[list[SentenceAttention], Tensor]:
    """What each layer attended to while writing the best summary of a document, and (1, T) which steps are real."""
    record: list[SentenceAttention] = []
    rows = torch.tensor([tokens], device=run.model.device)
    run.model(**source, decoder_input_ids=rows[:, :-1], record=record)
    return record, rows[:, 1:] != run.model.config.pad_token_id


def retained_attention(record: Sequence[SentenceAttention], is_step: Tensor) -> np.ndarray:
    """Figure 1: attention that a document's 1, 2, ..., N most salient sentences hold together: (N,), rising to 1.

    A.4: heads are averaged before the summation. D21: then the mean over layers and the steps of the own summary.
    """
    weights = torch.stack([layer.exact.mean(1) for layer in record])[:, is_step]  # (layers, steps, N)
    return weights.sort(-1, descending=True).values.cumsum(-1).mean((0, 1)).cpu().numpy()


def retained_curve(run: Run, examples: Sequence[Example], batch_size: int = 32) -> list[float]:
    """Figure 1: the mean over documents of `retained_attention`."""
    curves = []
    decoded = in_windows(examples, run.encode, lambda item: len(item.ids), partial(decode, run), batch_size)
    for item, tokens in tqdm(decoded, total=len(examples), disable=None, leave=False):
        curves.append(retained_attention(*read_again(run, run.collate([item]).source(), tokens)))
    longest = max(map(len, curves))  # beyond its last sentence a document retains everything
    return np.mean([np.pad(curve, (0, longest - len(curve)), constant_values=1.0) for curve in curves], 0).tolist()


def attention_map(run: Run, example: Example) -> dict:
    """Figures 5-8: attention of full decoding on one document, averaged over heads (Appendix E), D21: and layers."""
    [item], rounded = run.encode([example]), {}
    [tokens] = decode(run, [item])
    source = run.collate([item]).source()
    words = torch.arange(len(item.ids), device=run.model.device).unsqueeze(0)  # each token its own sentence
    for kind, ids in (("word", words), ("exact", source["sentence_ids"])):
        record, _ = read_again(run, source | {"sentence_ids": ids}, tokens)
        values = torch.stack([layer.exact.float() for layer in record]).mean((0, 2))[0]  # (T, S) or (T, N)
        rounded[kind] = values.cpu().numpy().round(5).tolist()
    source, target = (run.tokenizer.convert_ids_to_tokens(list(ids)) for ids in (item.ids, tokens[1:]))
    return {"source": source, "target": target, "sentence_ids": list(item.sentence_ids)} | rounded


def main(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    csv: Path | None = None,
    map: Path | None = None,
    split: str = "test",
    limit: int | None = None,
    overwrite: bool = False,
) -> None:
    """Write Figure 1's curve of each run as CSV; or with --map a picture: the last document's map by the last run."""
    if map:
        run = load_run(runs[-1])
        figures.draw_map(attention_map(run, load(run.config.data, split, limit)[-1])).savefig(map, dpi=150)
        return
    rows = []
    with open_output(csv, overwrite) as file:
        for path in runs:
            run = load_run(path)
            curve = retained_curve(run, load(run.config.data, split, limit))
            rows += [{"run": path.name, "r": r, "share": share} for r, share in enumerate(curve, start=1)]
        write_csv(file, rows)


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
