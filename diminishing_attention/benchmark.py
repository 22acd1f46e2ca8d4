"""What training and decoding of the pointer-generator cost: all sides measured in one run.

python -m diminishing_attention.benchmark

A training step is forward, backward, clipping and Adagrad on random documents of full length:

    plain loop        a distribution over V + E words at every step, softmax, scatter_add and log, in the manner of the
                      public PyTorch pointer-generators, with the source projected at every step
    projected once    the same, with the source projected once
    ours              `PointerGenerator`; with DimAttn, DyDimAttn, or coverage
    matrix products   nothing but the large products of a step, forward and backward; tanh: its T B S 2H tanh

and beam search decodes documents together, or one after the other, to a fixed number of tokens.
"""

import argparse
import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from shared.timing import Timing, compare, ratio

from .diminishing import Diminishing
from .model import PointerGenerator, PointerGeneratorConfig, masked_softmax
from .search import beam_search
from .text import PAD, UNK, Batch

SYSTEMS = {
    "ours": {},
    "ours + DimAttn": {"diminishing": Diminishing("dim")},
    "ours + DyDimAttn": {"diminishing": Diminishing("dydim")},
    "ours + coverage": {"coverage": True},
}
UNKNOWN = 10  # unknown words of a document


class PlainLoop(nn.Module):
    """The pointer-generator without coverage as one writes it down, on the parameters of one of ours."""

    def __init__(self, model: PointerGenerator, project_once: bool = False):
        super().__init__()
        self.encoder, self.reduce, self.decoder = model.encoder, model.reduce, model.decoder
        self.config, self.project_once = model.config, project_once

    def forward(self, batch: Batch) -> Tensor:
        """The loss of `PointerGenerator.forward`, a scalar."""
        states, features, last = self.encoder(batch.source, batch.keep)
        hidden, cell = self.reduce(*last)
        context, losses = states.new_zeros(len(states), states.size(-1)), []
        decoder = self.decoder
        for t in range(batch.target_in.size(1)):
            x = decoder.merge(torch.cat([context, decoder.embedding(batch.target_in[:, t])], 1))
            hidden, cell = decoder.lstm(x, (hidden, cell))
            if not self.project_once and t:
                features = self.encoder.project(states)
            inner = features + decoder.query(torch.cat([hidden, cell], 1)).unsqueeze(1)
            attention = masked_softmax(decoder.score(torch.tanh(inner)).squeeze(2), batch.keep)
            context = torch.bmm(attention.unsqueeze(1), states).squeeze(1)
            p_gen = torch.sigmoid(decoder.switch(torch.cat([context, hidden, cell, x], 1)))
            words = F.softmax(decoder.output(decoder.inner(torch.cat([hidden, context], 1))), dim=1)
            words = torch.cat([p_gen * words, words.new_zeros(len(words), batch.extra)], 1)
            words = words.scatter_add(1, batch.extended_source, (1 - p_gen) * attention)
            target = words.gather(1, batch.target_out[:, t : t + 1]).squeeze(1)
            losses.append(-torch.log(target + self.config.epsilon) * batch.keep_target[:, t])
        return (torch.stack(losses, 1).sum(1) / batch.keep_target.sum(1)).mean()


def make_batch(documents: int, flags: argparse.Namespace) -> Batch:
    """Random words; every document has UNKNOWN unknown ones, and each third target word is copied from it."""
    source = torch.randint(4, flags.vocabulary, (documents, flags.source))
    extended = source.clone()
    unknown = min(UNKNOWN, flags.source)
    extended[:, :unknown] = flags.vocabulary + torch.arange(unknown)
    source[:, :unknown] = UNK
    target = torch.randint(4, flags.vocabulary, (documents, flags.target))
    target[:, ::3] = extended[:, torch.randint(flags.source, (target[:, ::3].size(1),))]
    target_in = F.pad(target[:, :-1], (1, 0), value=2).masked_fill(F.pad(target[:, :-1], (1, 0)) >= flags.vocabulary, 1)
    keep, keep_target = torch.ones_like(source).bool(), torch.ones_like(target).bool()
    tensors = (tensor.to(flags.device) for tensor in (source, extended, keep, target_in, target, keep_target))
    return Batch(*tensors, unknown)


def make_model(flags: argparse.Namespace, **system) -> PointerGenerator:
    """A new model, the same for all systems but for the coverage's parameters."""
    torch.manual_seed(0)
    config = PointerGeneratorConfig(flags.vocabulary, flags.embedding, flags.hidden, **system)
    return PointerGenerator(config).to(flags.device)


def make_update(model: PointerGenerator, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """One training step with See et al.'s optimiser."""
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.15, initial_accumulator_value=0.1)

    def update() -> None:
        loss().backward()
        for part in model.children():
            nn.utils.clip_grad_norm_(part.parameters(), 2.0)
        optimizer.step()
        optimizer.zero_grad()

    return update


def system_sides(flags: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """Training steps of our systems."""
    batch, sides = make_batch(flags.batch, flags), {}
    for name, system in SYSTEMS.items():
        model = make_model(flags, **system)
        sides[name] = make_update(model, lambda model=model: model(batch).total)
    return sides


def training_sides(flags: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """Training steps of the plain loops and ours, and the parts of ours."""
    batch, sides = make_batch(flags.batch, flags), {}
    for name, project_once in (("plain loop", False), ("projected once", True)):
        model = make_model(flags)
        sides[name] = make_update(model, partial(PlainLoop(model, project_once), batch))
    model = make_model(flags)
    sides["ours"] = make_update(model, lambda model=model: model(batch).total)
    model = make_model(flags)
    sides |= {"encoder": partial(model.start, batch), "forward": partial(model, batch)}
    sides["forward, backward"] = lambda: model(batch).total.backward()
    return sides | {"matrix products": products(flags), "tanh": tanh(flags)}


def products(flags: argparse.Namespace) -> Callable[[], None]:
    """The large products of a step: output layer, source projection, and what the encoder's LSTM reads and carries."""
    words, positions, width = flags.batch * flags.target, flags.batch * flags.source, 2 * flags.hidden
    shapes = [(words, flags.hidden, flags.vocabulary), (positions, width, width)]
    shapes += [(positions, flags.embedding, 4 * width), (positions, flags.hidden, 4 * width)]
    made = [[torch.randn(size, device=flags.device) for size in ((n, k), (k, m), (n, m))] for n, k, m in shapes]

    def run() -> None:
        for left, right, gradient in made:
            torch.mm(left, right)
            torch.mm(gradient, right.t())
            torch.mm(left.t(), gradient)

    return run


def tanh(flags: argparse.Namespace) -> Callable[[], None]:
    """Equation 3's tanh of all steps, forward alone, in place."""
    values = torch.randn(flags.batch, flags.source, 2 * flags.hidden, device=flags.device)

    def run() -> None:
        for _ in range(flags.target):
            values.tanh_()

    return run


def decoding_sides(flags: argparse.Namespace) -> dict[str, Callable[[], object]]:
    """Beam search over all documents together, and one by one."""
    model, batch = make_model(flags, diminishing=Diminishing("dydim")).eval(), make_batch(flags.documents, flags)
    length = flags.decode_tokens
    search = partial(beam_search, model, beam=flags.beam, length_penalty=1.5, trigram_blocking=True,
                     min_length=length, max_length=length, never=(PAD, UNK))  # fmt: skip
    alone = [Batch(*(tensor[row : row + 1] for tensor in batch[:-1]), batch.extra) for row in range(flags.documents)]
    return {"together": partial(search, batch), "one by one": lambda: [search(one) for one in alone]}


def rows_of(timings: dict[str, Timing], baseline: str) -> list[dict[str, object]]:
    """A row per side: median, spread, peak memory, and the baseline's time over the side's within rounds."""
    rows = []
    for name, timing in timings.items():
        middle, spread = ratio(timings, baseline, name)
        row = {"side": name, "median_s": timing.median, "iqr_s": timing.iqr, "peak_mib": timing.peak_bytes / 2**20}
        rows.append(row | {"baseline": baseline, "speed_up": middle, "speed_up_iqr": spread})
    return rows


def reading(training: dict[str, Timing], systems: dict[str, Timing], decoding: dict[str, Timing]) -> str:
    """The ratios in words."""
    lines = [f"A training step takes {training['ours'].median:.2f} s, by medians within rounds:"]
    for name in ("plain loop", "projected once"):
        slower, memory = ratio(training, name, "ours")[0], training[name].peak_bytes / training["ours"].peak_bytes
        lines.append(f"  {name}: {slower:.2f} times ours in time, {memory:.2f} times in memory")
    for name in list(SYSTEMS)[1:]:
        cost, spread = ratio(systems, name, "ours")
        lines.append(f"  {name}: {100 * (cost - 1):+.1f} % of a step (IQR {100 * spread:.1f})")
    median = {name: timing.median for name, timing in training.items()}
    parts = {
        "encoder": median["encoder"],
        "decoder and loss": median["forward"] - median["encoder"],
        "backward": median["forward, backward"] - median["forward"],
        "clipping and Adagrad": median["ours"] - median["forward, backward"],
    }
    lines.append(
        "  where it goes: " + ", ".join(f"{name} {100 * s / median['ours']:.0f} %" for name, s in parts.items())
    )
    floor = median["matrix products"] + median["tanh"]
    lines.append(f"  the large products and tanh alone: {100 * floor / median['ours']:.0f} % of it")
    lines.append(
        f"Beam search together: {ratio(decoding, 'one by one', 'together')[0]:.2f} times as fast as one by one"
    )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m diminishing_attention.benchmark", description=__doc__.splitlines()[0])
    sizes = {
        "hidden": 256, "embedding": 128, "vocabulary": 50_000, "source": 400, "target": 100, "batch": 8,
        "documents": 16, "beam": 6, "decode_tokens": 20, "threads": 1, "repeats": 5,
    }  # fmt: skip
    for name, value in sizes.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value, help=f"(default {value})")
    parser.add_argument("--warmup", type=int, default=1, help="rounds before them that are not timed")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "benchmark.csv")
    flags = parser.parse_args(arguments)
    for name, least in (dict.fromkeys(sizes, 1) | {"vocabulary": 5, "target": 2, "repeats": 3}).items():
        if getattr(flags, name) < least:
            parser.error(f"--{name.replace('_', '-')} is {getattr(flags, name)}; it must be at least {least}")
    torch.set_num_threads(flags.threads)
    torch.manual_seed(0)
    device = torch.device(flags.device)
    training = compare(training_sides(flags), flags.repeats, flags.warmup, device)
    # By themselves: what runs just before a side leaves it a warm or a cold memory, and must be alike for all.
    systems = compare(system_sides(flags), flags.repeats, flags.warmup, device)
    decoding = compare(decoding_sides(flags), flags.repeats, flags.warmup, device)
    print(reading(training, systems, decoding))
    run = {name: getattr(flags, name) for name in [*sizes, "device"]} | {"torch": torch.__version__}
    flags.csv.parent.mkdir(parents=True, exist_ok=True)
    with flags.csv.open("w", newline="", encoding="utf-8") as file:
        rows = [*rows_of(training, "ours"), *rows_of(systems, "ours")[1:], *rows_of(decoding, "one by one")]
        writer = csv.DictWriter(file, [*rows[0], *run])
        writer.writeheader()
        writer.writerows(
            {k: round(v, 4) if isinstance(v, float) else v for k, v in (row | run).items()} for row in rows
        )


if __name__ == "__main__":
    main()
