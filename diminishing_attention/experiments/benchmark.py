"""What training and decoding of the pointer-generator cost: all sides measured in one run.

python -m diminishing_attention.experiments.benchmark --csv benchmark.csv

A training step is forward, backward, clipping and Adagrad on random documents of full length:

    plain loop        a distribution over V + E words at every step, in the manner of the public PyTorch
                      pointer-generators, with the source projected at every step
    projected once    the same, with the source projected once
    ours              `PointerGenerator`; with DimAttn, DyDimAttn, or coverage

and beam search decodes documents together, or one after the other, to a fixed number of tokens. Seconds are medians
with their interval (`timing.spread`); on one thread of the CPU they are CPU seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor, nn

from shared import rouge
from shared.data import check_outputs, write_csv
from shared.timing import find_device, keep_memory, peak_bytes, spread, time_rounds

from ..diminishing import Diminishing
from ..model import PointerGenerator, PointerGeneratorConfig
from ..run import Positive, Range, Size, check_fields, one_line_errors, read_flags
from ..search import beam_search
from ..text import BOS, PAD, UNK, Batch, Item, collate

UNKNOWN = 10  # unknown words of a document


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line; sizes default to the paper's."""

    hidden: Size = 256
    embedding: Size = 128
    vocabulary: Annotated[int, Range(5, 10**6)] = 50_000
    source: Positive = 400  # tokens
    target: Annotated[int, Range(2, 10**6)] = 100  # tokens
    batch_size: Positive = 8
    documents: Positive = 16  # decoded
    beam: Positive = 6
    decode_tokens: Positive = 20
    threads: Positive = 1
    repeats: Annotated[int, Range(3, 10**6)] = 7  # timed rounds, at least 3
    warmup: int = 1  # rounds before them that are not timed
    device: str = "cpu"
    quick: bool = False  # small sizes, to see that it runs: no claim
    csv: Path | None = None  # write a row per side here


QUICK = dict(hidden=32, embedding=16, vocabulary=500, source=40, target=10, batch_size=4, documents=4, repeats=3)


def plain_losses(model: PointerGenerator, batch: Batch, project_once: bool = False) -> Tensor:
    """`PointerGenerator.forward` without coverage, (B,), as the public ones have it."""
    source, past = model.start(batch)
    losses = []
    for t, tokens in enumerate(batch.target_in.unbind(1)):
        if not (project_once or t == 0):
            source = source._replace(features=model.encoder.project(source.states))
        step, past = model.decoder(model.decoder.embed(tokens), source, past)
        p = model.distribution(step, source).gather(1, batch.target_out[:, t : t + 1]).squeeze(1)
        losses.append(-torch.log(p + model.config.epsilon) * batch.keep_target[:, t])
    return torch.stack(losses, 1).sum(1) / batch.keep_target.sum(1)


SIDES = {  # of a training step: what the model has, and what gives its losses
    "plain loop": ({}, plain_losses),
    "projected once": ({}, partial(plain_losses, project_once=True)),
    "ours": ({}, PointerGenerator.forward),
    "ours + DimAttn": ({"diminishing": Diminishing("dim")}, PointerGenerator.forward),
    "ours + DyDimAttn": ({"diminishing": Diminishing("dydim")}, PointerGenerator.forward),
    "ours + coverage": ({"coverage": True}, PointerGenerator.forward),
}


def make_batch(documents: int, options: Options) -> Batch:
    """Random words; every document has UNKNOWN unknown ones, and each third target word is copied from it."""
    items = []
    for _ in range(documents):
        source = torch.randint(4, options.vocabulary, (options.source,))
        extended = torch.cat([options.vocabulary + torch.arange(UNKNOWN), source[UNKNOWN:]])[: options.source]
        target = torch.randint(4, options.vocabulary, (options.target,))
        target[::3] = extended[torch.randint(options.source, target[::3].shape)]
        source[:UNKNOWN], known = UNK, torch.where(target < options.vocabulary, target, UNK)
        rows = source.tolist(), extended.tolist(), ["word"] * UNKNOWN, [BOS, *known[:-1].tolist()], target.tolist()
        items.append(Item(*rows, was_cut=False))
    return collate(items, options.device)


def make_model(options: Options, **system) -> PointerGenerator:
    """A new model, the same for all systems but for the coverage's parameters."""
    torch.manual_seed(0)
    config = PointerGeneratorConfig(options.vocabulary, options.embedding, options.hidden, **system)
    return PointerGenerator(config).to(options.device)


def make_update(model: PointerGenerator, losses: Callable, batch: Batch) -> Callable[[], None]:
    """One training step with See et al.'s optimiser."""
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.15, initial_accumulator_value=0.1)

    def update() -> None:
        losses(model, batch).mean().backward()
        for part in model.parts():
            nn.utils.clip_grad_norm_(part, 2.0)
        optimizer.step()
        optimizer.zero_grad()

    return update


def training_sides(options: Options) -> dict[str, Callable[[], object]]:
    """Training steps of the plain loops and of our systems."""
    batch = make_batch(options.batch_size, options)
    return {name: make_update(make_model(options, **system), losses, batch) for name, (system, losses) in SIDES.items()}


def decoding_sides(options: Options) -> dict[str, Callable[[], object]]:
    """Beam search over all documents together, and one by one."""
    model, batch = make_model(options, diminishing=Diminishing("dydim")).eval(), make_batch(options.documents, options)
    length = options.decode_tokens
    search = partial(beam_search, model, beam=options.beam, length_penalty=1.5, trigram_blocking=True,
                     min_length=length, max_length=length, never=(PAD, UNK))  # fmt: skip
    alone = [Batch(*(tensor[row : row + 1] for tensor in batch[:-1]), batch.extra) for row in range(options.documents)]
    return {"together": partial(search, batch), "one by one": lambda: [search(one) for one in alone]}


def measure(options: Options) -> list[dict]:
    """A row per side: seconds, peak memory, and its time over that of the baseline, within rounds."""
    rows = []
    for sides, baseline in ((training_sides(options), "ours"), (decoding_sides(options), "together")):
        seconds = time_rounds(sides, options.repeats, options.warmup, options.device)
        for name, side in sides.items():
            row = {"side": name, "seconds": spread(seconds[name]), "peak_mib": peak_bytes(side, options.device) / 2**20}
            rows.append(row | {"baseline": baseline, "times_baseline": spread(seconds[name] / seconds[baseline])})
    return rows


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.benchmark", description=__doc__)
    check_fields(options)
    if options.quick:
        options = replace(options, **QUICK)
    find_device(options.device)
    check_outputs(options.csv)
    keep_memory()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = measure(options)
    print(rouge.table(rows))
    if options.csv:
        run = {name: value for name, value in asdict(options).items() if name not in ("csv", "quick")}
        write_csv(options.csv, [row | run | {"torch": torch.__version__} for row in rows])


if __name__ == "__main__":
    main()
