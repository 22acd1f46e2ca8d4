"""Heads as text, as --heads reads and tables show them; the heads that are masked by default."""

from pathlib import Path

from torch import nn

from .checks import check_model
from .masking import PAPER_HEADS, Heads, cross_attentions


def write_heads(heads: Heads) -> str:
    """{3: [0, 1, 2, 5], 4: [1]} -> "3:0-2,5,4:1"; equal heads are equal text."""
    parts = []
    for layer, chosen in sorted(heads.items()):
        runs: list[list[int]] = []  # of heads that follow each other
        for head in sorted(set(chosen)):
            if runs and head == runs[-1][-1] + 1:
                runs[-1].append(head)
            else:
                runs.append([head])
        texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
        parts += [f"{layer}:{','.join(texts)}"] if texts else []
    return ",".join(parts)


def read_heads(text: str) -> dict[int, list[int]]:
    """The inverse of `write_heads`; a part without a layer belongs to the one before it.

    ValueError for other text.
    """
    heads: dict[int, set[int]] = {}
    layer = None
    try:
        for part in text.split(","):
            before, colon, chosen = part.rpartition(":")
            layer = int(before) if colon else layer
            first, dash, last = chosen.partition("-")
            numbers = range(int(first), min(int(last if dash else first) + 1, 10**4))
            if layer is None or not numbers:
                raise ValueError
            heads.setdefault(layer, set()).update(numbers)
    except ValueError:
        raise ValueError(
            f"heads {text!r}: write LAYER:HEADS, layers from 1, heads from 0, e.g. 1:0-3,2:1,3"
        ) from None
    return {layer: sorted(chosen) for layer, chosen in heads.items()}


def all_heads(model: nn.Module) -> dict[int, list[int]]:
    """Every layer of a model's decoder with all its heads."""
    check_model(model)
    layers = enumerate(model.get_decoder().layers, start=1)
    return {number: list(range(layer.encoder_attn.num_heads)) for number, layer in layers}


def find_heads(text: str, model: nn.Module, data: str = "", by_tagger: bool = False) -> Heads:
    """The heads that --heads names: LAYER:HEADS, a data set of Appendix B, or "top".

    "top" are all heads of the top layer.
    D14: where none are named, they are those of Appendix B for a tagger on a model that the paper
    masked, by its size and the `data` that it has learned. Else they are those of the top layer,
    which selects most where what is to be kept is known (Figure 2).
    """
    every = all_heads(model)
    is_large = list(every.values()) == 12 * [list(range(16))]
    if not text:
        corpus = Path(data).name  # a folder of NYT, which is licensed, is called nyt
        text = corpus if by_tagger and is_large and corpus in PAPER_HEADS else "top"
    top = max(every)
    heads = {top: every[top]} if text == "top" else PAPER_HEADS.get(text) or read_heads(text)
    cross_attentions(model, heads)  # refuses what the model has not
    return heads
