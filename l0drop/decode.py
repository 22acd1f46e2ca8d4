"""From documents to outputs: what evaluate.py and predict.py share."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from .loading import Run
from .search import generate
from .text import Item


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
        prune: Algorithm 1; False attends to all gated states, with the same outputs.
        search: beam, length_penalty, extra_length; the run's, or pretrained model's, where None or not given.
    """
    search = {name: value for name, value in search.items() if value is not None}
    if not run.config.model:  # a pretrained model has its own values
        search = {name: getattr(run.config, name) for name in ("beam", "length_penalty", "extra_length")} | search
    by_length = sorted(range(len(items)), key=lambda i: len(items[i].source))
    for start in range(0, len(items), batch_size):
        indices = by_length[start : start + batch_size]
        batch = run.collate([items[i] for i in indices])
        rule_keep = batch.rule_keep if run.config.pattern != "none" else None
        decoder = run.model.generate if run.config.model else partial(generate, run.model)
        hypotheses, encoding, _ = decoder(batch.source, rule_keep, prune, **search)
        closed = [gates == 0 for gates in encoding.gates] or [~batch.rule_keep]
        for row, i in enumerate(indices):
            tokens = [token for token in hypotheses.tokens[row].tolist() if token not in run.model.special]
            pruned = [layer[row, : len(items[i].source)].tolist() for layer in closed]
            yield i, Output(tokens, hypotheses.scores[row].item(), pruned)


def decode_all(run: Run, items: Sequence[Item], *options, **search) -> list[Output]:
    """`decode` in the items' order."""
    return [output for _, output in sorted(decode(run, items, *options, **search))]
