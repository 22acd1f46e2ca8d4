"""The paper's tables, as rows of the numbers that `evaluate` gives, and the curve of Figure 1."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from .selection import SentenceAttention

METRICS = {"rouge1": "R-1", "rouge2": "R-2", "rougeLsum": "R-L"}  # D20: rouge-score (the paper: pyrouge)
TABLES = {  # what a run of each task is decoded under, and the paper's tables that show it
    "base": {"full": "2, 3", "ideal": "2, 3", "random": "2, 3, 5", "mean_key": "", "model_free": "6"},
    "sparse": {"full": "2", "ideal": "2", "random": "2, 5"},
    "kl": {"full": "", "approx": "3, 6"},
    "integrated": {"full": "", "approx": "3, 6"},
}
VARIANTS = {"ideal": "Int-Idl", "approx": "Int-Apx", "mix": "Int-Mix"}


def title(run: dict) -> str:
    """A run as the paper calls it."""
    trained = {
        "base": "Vanilla",
        "sparse": f"L_A-tuned, gamma {run['gamma']:g}",
        "kl": "KL-only",
        "integrated": f"{VARIANTS.get(run['select'])}, r {run['r_train']}",
    }[run["task"]]
    return trained + (f", {run['sentence_encoder']}" if run["sentence_encoder"] else "")


def system_rows(metrics: dict) -> list[dict]:
    """All systems, with the tables of the paper that have them."""
    rows = []
    for name, row in metrics["systems"].items():
        run = metrics["runs"][row["run"]]
        known = {"system": name, "the paper's": title(run), "table": TABLES[run["task"]].get(row["mode"], "")}
        scores = {shown: row[metric] for metric, shown in METRICS.items()}
        rows.append(known | scores | {"R-1 minus first full": row["difference"], "R-1 minus own full": row["cost"]})
    return rows


def length_rows(metrics: dict) -> list[dict]:
    """Table 4: what the runs read."""
    rows = []
    for name, run in metrics["runs"].items():
        lengths = {"N": run["source_tokens"], "N1": run["source_sentences"], "M": run["target_tokens"]}
        rows.append({"run": name} | lengths | {"N/M": lengths["N"] / lengths["M"], "cut": run["sources_cut"]})
    return rows


def retained_attention(record: Sequence[SentenceAttention], is_step: Tensor) -> np.ndarray:
    """Figure 1: sum of the attention weights of the 1, 2, ..., N most salient sentences: (B, N), rising to 1.

    A.4: heads are averaged before the summation. D21: then the mean over layers and the steps of the own summary.
    """
    weights = torch.stack([layer.exact.float().mean(1) for layer in record])  # (layers, B, T, N)
    sums = weights.sort(-1, descending=True).values.cumsum(-1).mean(0)  # (B, T, N)
    shares = is_step / is_step.sum(1, keepdim=True).clamp_min(1)  # (B, T)
    return torch.einsum("btn,bt->bn", sums, shares).cpu().numpy()
