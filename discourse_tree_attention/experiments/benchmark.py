"""What each attention costs: an update and scoring, side by side, with parameters beside the times.

python -m discourse_tree_attention.experiments.benchmark --csv times.csv     # --quick: seconds
python -m discourse_tree_attention.experiments.benchmark --device cuda --precision bf16
python -m discourse_tree_attention.experiments.benchmark --released ext_summ_disco_tree_attn

Models have the paper's default sizes, eight documents and random vectors. "matrices" makes what the
tree model reads, from random trees. A row: seconds, and how many times as fast as one learned head
and as the released code's own model within a round; the median of rounds, the lowest and highest.
"""

import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from shared.data import open_output, write_csv
from shared.run import find_device, one_line_errors, read_flags
from shared.timing import spread, time_rounds

from ..config import Positive
from ..matrices import c_tree_nuclearity
from ..model import ModelConfig, Summarizer, count_parameters, extraction_loss
from ..trees import Node

DOCUMENTS = 8
ONE_HEAD = "dot product, 1 head"
SIDES = {
    ONE_HEAD: dict(attention="dot"),
    "dot product, 8 heads": dict(attention="dot", heads=8),
    "Dense": dict(attention="dense"),
    "Learned Random": dict(attention="learned_random"),
    "tree": dict(attention="c_tree_nuclearity"),
    "no attention": dict(attention="none"),
}
RELEASED = {ONE_HEAD: "self-attention", "tree": "tree", "no attention": "none"}


@dataclass
class Options:
    """The command line."""

    device: str = "cpu"  # Device of torch.
    # Of the forward pass, by autocast.
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    threads: Positive = 1  # Of the CPU; on one they are CPU seconds.
    units: tuple[Positive, ...] = (50, 200, 500)  # Of a document.
    rounds: Positive = 5  # After one that does not count.
    released: Path | None = None  # A clone of Wendy-Xiao/ext_summ_disco_tree_attn, as three sides.
    quick: bool = False  # A small model, to see that it runs.
    csv: Path | None = None  # File to write; none: standard output.
    overwrite: bool = False  # Replace that file.


class Released(nn.Module):
    """The released document encoder under the MLP, called as its own `models.py` does."""

    def __init__(self, config: ModelConfig, attention: str):
        super().__init__()
        from doc_encoder import Encoder  # of --released

        K, inner = config.head_width, config.feed_forward
        self.encoder = Encoder(2, 1, K, K, config.width, inner, 0.1, attention_type=attention)
        self.classifier = Summarizer(config).classifier

    def forward(self, units: Tensor, keep: Tensor, matrix: Tensor) -> Tensor:
        states = self.encoder(units, keep.float(), tree_attn=matrix)
        return self.classifier(states).squeeze(-1)


def random_tree(start: int, end: int, nucleus: bool | None = None) -> Node:
    """A tree over the EDUs start, ..., end - 1, cut at random places."""
    if end == start + 1:
        return Node(start, end, nucleus)
    cut = random.randint(start + 1, end - 1)
    left, right = random.choice([(True, False), (False, True), (True, True)])
    return Node(start, end, nucleus, (random_tree(start, cut, left), random_tree(cut, end, right)))


def time_units(options: Options, count: int) -> list[dict]:
    """Rows of documents of `count` units."""
    device = find_device(options.device)
    width = 32 if options.quick else 768
    trees = [random_tree(0, count) for _ in range(DOCUMENTS)]

    def matrices() -> Tensor:
        return torch.stack([torch.from_numpy(c_tree_nuclearity(tree)) for tree in trees])

    matrix = matrices().to(device)
    units = torch.randn(DOCUMENTS, count, width, device=device)
    keep = torch.ones(DOCUMENTS, count, dtype=torch.bool, device=device)
    labels = torch.rand(DOCUMENTS, count, device=device) < 0.1
    models = {}
    for side, changes in SIDES.items():
        models[side] = Summarizer(ModelConfig(width=width, **changes))
        if options.released and side in RELEASED:
            config = models[side].config
            models[f"released, {side}"] = Released(config, RELEASED[side])
    functions = {}
    for side, model in models.items():
        model.to(device)
        forward = in_precision(model, options.precision, device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)

        def update(model=model, forward=forward, optimizer=optimizer):
            model.train()
            loss = extraction_loss(forward(units, keep, matrix).float(), labels, keep)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        @torch.inference_mode()
        def score(model=model, forward=forward):
            model.eval()
            return forward(units, keep, matrix)

        functions["update", side] = update
        functions["scoring", side] = score
    functions["matrices", "tree"] = matrices
    times = time_rounds(functions, options.rounds, device=device)
    rows = []
    for (work, side), took in times.items():
        attention = every = ""
        if isinstance(models[side], Summarizer):
            attention, every = count_parameters(models[side])
        row = {"units": count, "work": work, "side": side, "attention_parameters": attention}
        row |= {"parameters": every, "precision": options.precision, "device": str(device)}
        row |= zip(("seconds", "low", "high"), spread(took.seconds).values(), strict=True)
        for peer, names in (
            (ONE_HEAD, ("times_one_head", "times_low", "times_high")),
            (f"released, {side}", ("times_released", "released_low", "released_high")),
        ):
            if (work, peer) in times:
                ratio = spread(times[work, peer].seconds / took.seconds)
                row |= zip(names, ratio.values(), strict=True)
        rows.append(row | {"peak_bytes": took.peak})
    return rows


def in_precision(model: nn.Module, precision: str, device: torch.device):
    """The model's forward pass, under autocast where it is not float32."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)

    def forward(*inputs):
        with torch.autocast(device.type, dtype, enabled=dtype is not None):
            return model(*inputs)

    return forward


@one_line_errors
def main(arguments=None) -> None:
    options = read_flags(Options, arguments, __doc__)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    random.seed(0)
    if options.released:
        sys.path.insert(0, str(options.released))
    rows = []
    with open_output(options.csv, options.overwrite) as file:
        for count in (4, 9) if options.quick else options.units:
            rows += time_units(options, count)
        write_csv(file, rows)


if __name__ == "__main__":
    main()
