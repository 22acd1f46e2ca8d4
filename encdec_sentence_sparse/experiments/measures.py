"""Where full attention is while a run writes its summaries: Figures 1 and, as a map, 5 to 8.

python -m encdec_sentence_sparse.experiments.measures runs/base runs/sparse --csv figure_1.csv
"""

from pathlib import Path

import numpy as np
import torch
import tyro
from tqdm import tqdm

from shared.data import load, open_output, write_csv
from shared.run import one_line_errors

from ..loading import Run, load_run
from ..predict import decode
from ..text import Item
from . import figures


@torch.inference_mode()
def read_again(run: Run, item: Item, **source) -> tuple[torch.Tensor, list[int]]:
    """Saliency while a document's best summary is written, (layers, H, T, N), and its tokens."""
    [tokens] = decode(run, [item])
    record = []
    target = torch.tensor([tokens[:-1]], device=run.model.device)
    source = run.collate([item]).source() | source
    run.model(**source, decoder_input_ids=target, record=record)
    return torch.stack([layer.exact[0] for layer in record]), tokens


def retained_attention(exact: torch.Tensor) -> np.ndarray:
    """Figure 1: attention that the 1, 2, ..., N most salient sentences hold: (N,), rising to 1.

    A.4: heads are averaged before the summation. D21: then the mean over layers and the steps of
    the own summary.
    """
    return exact.mean(1).sort(-1, descending=True).values.cumsum(-1).mean((0, 1)).cpu().numpy()


def retained_curve(run: Run, items: list[Item]) -> list[float]:
    """Figure 1: the mean over documents of `retained_attention`."""
    curves = []
    for item in tqdm(items, disable=None, leave=False):
        exact, _ = read_again(run, item)
        curves.append(retained_attention(exact))
    # Beyond its last sentence a document retains everything.
    shares = np.ones((len(curves), max(map(len, curves))), dtype="float32")
    for row, curve in zip(shares, curves, strict=True):
        row[: len(curve)] = curve
    return shares.mean(0).tolist()


def attention_map(run: Run, item: Item) -> tuple[np.ndarray, list[str]]:
    """Figures 5-8: (T, S) attention, mean over heads (Appendix E), D21: and layers; T's tokens."""
    words = torch.arange(len(item.ids), device=run.model.device).unsqueeze(0)  # as sentences
    exact, tokens = read_again(run, item, sentence_ids=words)
    return exact.mean((0, 1)).cpu().numpy(), run.tokenizer.convert_ids_to_tokens(tokens[1:])


def main(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    csv: Path | None = None,
    map: Path | None = None,
    split: str = "test",
    limit: int | None = None,
    overwrite: bool = False,
) -> None:
    """Write Figure 1's curves as CSV; or with --map the last document's map by the last run.

    The PNG of --map is replaced if it is there.
    """
    if map:
        run = load_run(runs[-1])
        item = run.encode(load(run.config.data, split, limit))[-1]
        figures.draw_map(*attention_map(run, item), item.sentence_ids).savefig(map, dpi=150)
        return
    rows = []
    with open_output(csv, overwrite) as file:
        for path in runs:
            run = load_run(path)
            items = run.encode(load(run.config.data, split, limit))
            for r, share in enumerate(retained_curve(run, items), start=1):
                rows.append({"run": path.name, "r": r, "share": share})
        write_csv(file, rows)


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
