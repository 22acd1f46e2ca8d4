"""What a mechanism costs: updates and beam searches of both networks, all sides in one run.

python -m diminishing_attention.experiments.benchmark --csv speed.csv   # 40 CPU minutes
python -m diminishing_attention.experiments.benchmark --quick           # seconds: does it run
python -m diminishing_attention.experiments.benchmark --released CLONE --device cuda

Random weights of the paper's sizes. CLONE is https://github.com/atulkum/pointer_summarizer, on
which the paper builds: its model makes the same updates, and decodes a document at a time, as its
decode.py does. "packed" is what `predict` does (shared/pack.py).
"""

import copy
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from shared.data import open_output, write_csv
from shared.pack import pack
from shared.run import find_device, one_line_errors, read_flags
from shared.timing import spread, time_rounds

from .. import text
from ..bertsum import bert_text
from ..bertsum.bertsum import BertSumExtAbs
from ..config import PAPER, PRESETS, Positive, TrainConfig
from ..diminishing import Diminishing
from ..model import PointerGenerator
from ..search import beam_search
from ..train import CLIP, make_optimizer

BEAM = 4  # See et al.
EXTRA = 20  # unknown words of a document
MECHANISMS = {"plain": "none", "DimAttn": "dim", "DyDimAttn": "dydim"}
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Shape(NamedTuple):
    documents: int  # B
    length: int  # S
    tokens: int  # T, of each summary


POINTER = [Shape(8, 100, 40), Shape(8, 400, 40), Shape(8, 800, 40)]  # Section 4.2: 400 to 800
BERTSUM = [Shape(1, 512, 20)]
TINY = {"vocabulary": 60, "hidden": 8}
TINY_BERT = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 1, "intermediate_size": 16}
TINY_BERT |= {"num_attention_heads": 8}


@dataclass
class Options:
    """The command line."""

    device: str = "cpu"  # Device of torch.
    precision: Literal["float32", "bf16", "fp16"] = "float32"  # Of the forward pass.
    threads: Positive = 1  # Of the CPU; with one the seconds are CPU seconds.
    repeats: Positive = 5  # Rounds: each runs each side once.
    released: Path | None = None  # A clone of pointer_summarizer.
    csv: Path | None = None  # File for all numbers.
    overwrite: bool = False  # Replace that file.
    quick: bool = False  # Tiny models and documents: does it run, nothing more.


def optimizer_of(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """That of train.py, with a rate that hardly changes a model."""
    optimizer = make_optimizer(model, config)
    for group in optimizer.param_groups:
        group["lr"] = 1e-6
    return optimizer


def update(model: nn.Module, optimizer, autocast, batch: NamedTuple) -> None:
    """One update, as train.py makes it."""
    with autocast:
        loss = model.train()(batch).mean()
    loss.backward()
    if isinstance(model, PointerGenerator):
        for part in model.parts():
            nn.utils.clip_grad_norm_(part, CLIP)
    optimizer.step()
    optimizer.zero_grad()


def search(model: nn.Module, autocast, batch: NamedTuple, tokens: int) -> int:
    """A beam search; returns the length of an output."""
    with autocast:
        found = beam_search(model.eval(), batch, BEAM, min_length=tokens, max_length=tokens)
    return len(found.tokens[0]) + 1  # its end


class Released:
    """The pointer-generator of pointer_summarizer, with the batch and the optimiser of ours."""

    def __init__(self, folder: Path, config: TrainConfig, autocast, batch: text.Batch):
        sys.path.insert(0, str(folder))
        from data_util import config as settings

        settings.use_gpu = batch.source.is_cuda
        settings.vocab_size, settings.hidden_dim = config.vocabulary, config.hidden
        settings.emb_dim = config.hidden // 2
        from training_ptr_gen.model import Model

        model = Model()
        self.parts = nn.ModuleList([model.encoder, model.reduce_state, model.decoder])
        self.optimizer = optimizer_of(self.parts, config)
        self.config, self.autocast, self.batch = config, autocast, batch

    def start(self, source: Tensor):
        """What its decoder reads of documents (B, S), and the state before the first word."""
        encoder, reduce_state, _ = self.parts
        lengths = torch.full((len(source),), source.size(1))
        states, features, last = encoder(self.known(source), lengths)
        mask, zeros = torch.ones_like(states[..., 0]), states.new_zeros(len(source), EXTRA)
        context = states.new_zeros(len(source), states.size(-1))
        return (states, features, mask), zeros, reduce_state(last), context

    def known(self, words: Tensor) -> Tensor:
        return words.masked_fill(words >= self.config.vocabulary, text.UNK)

    def update(self) -> None:
        """One update, as its train.py makes it."""
        batch = self.batch
        self.parts.train()
        losses = []
        with self.autocast:
            read, zeros, state, context = self.start(batch.source)
            coverage = torch.zeros_like(read[2])
            for step, word in enumerate(batch.target_in.T):
                p, state, context, _, _, _ = self.parts[2](
                    *(self.known(word), state, *read, context, zeros, batch.source, coverage, step)
                )
                wanted = batch.target_out[:, step : step + 1]
                losses.append(-torch.log(p.gather(1, wanted).squeeze(1) + 1e-12))
            loss = torch.stack(losses, 1).mean(1).mean()
        loss.backward()
        for part in self.parts:
            nn.utils.clip_grad_norm_(part.parameters(), CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.inference_mode()
    def search(self) -> int:
        """Its beams are the rows of a batch: a document at a time."""
        self.parts.eval()
        tokens = self.batch.target_in.size(1)
        for source in self.batch.source:
            source = source.expand(BEAM, -1)
            read, zeros, state, context = self.start(source)
            words, scores = source.new_full((BEAM,), text.BOS), read[0].new_zeros(BEAM, 1)
            coverage = torch.zeros_like(read[2])
            for step in range(tokens):
                p, state, context, _, _, coverage = self.parts[2](
                    *(self.known(words), state, *read, context, zeros, source, coverage, step)
                )
                best, choices = torch.log(p).topk(2 * BEAM)
                scores, places = (scores + best).flatten().topk(BEAM)
                rows = places // (2 * BEAM)
                words, scores = choices.flatten()[places], scores.unsqueeze(1)
                state = tuple(part[:, rows] for part in state)
                context, coverage = context[rows], coverage[rows]
        return tokens


def pointer_sides(shape: Shape, options: Options, device, autocast) -> dict[str, dict]:
    """Of updates and searches a function for each side of the pointer-generator."""
    config = TrainConfig(**PAPER | (TINY if options.quick else {}))
    words = config.vocabulary + EXTRA
    source = torch.randint(4, words, (shape.documents, shape.length), device=device)
    target = torch.randint(4, words, (shape.documents, shape.tokens), device=device)
    start = target.new_full((shape.documents, 1), text.BOS)
    keep, keep_target = torch.ones_like(source).bool(), torch.ones_like(target).bool()
    target_in = torch.cat([start, target[:, :-1]], 1)
    batch = text.Batch(source, keep, target_in, target, keep_target, EXTRA)
    sizes = config.vocabulary, config.hidden // 2, config.hidden
    models = {
        name: PointerGenerator(*sizes, Diminishing(kind)) for name, kind in MECHANISMS.items()
    }
    models["coverage"] = PointerGenerator(*sizes, Diminishing(), coverage=True)
    sides = {"update": {}, "search": {}}
    for name, model in models.items():
        model.to(device)
        optimizer = optimizer_of(model, config)
        sides["update"][name] = partial(update, model, optimizer, autocast, batch)
        sides["search"][name] = partial(search, model, autocast, batch, shape.tokens)
    packed = copy.deepcopy(models["DimAttn"])
    if pack(packed, least_gain=0.0):  # measured whatever one product gains
        sides["search"]["DimAttn, packed"] = partial(search, packed, autocast, batch, shape.tokens)
    if options.released:
        released = Released(options.released, config, autocast, batch)
        sides["update"]["pointer_summarizer"] = released.update
        sides["search"]["pointer_summarizer"] = released.search
    return sides


def bertsum_sides(shape: Shape, options: Options, device, autocast) -> dict[str, dict]:
    """The same of BERTSum, on a BERT of random weights."""
    from transformers import BertConfig, BertModel

    bert = BertConfig(**TINY_BERT if options.quick else {})  # the defaults are BERT-base's
    decoder = {"layers": 2, "feed_forward": 16} if options.quick else {}
    source = torch.randint(5, bert.vocab_size, (shape.documents, shape.length), device=device)
    target = torch.randint(5, bert.vocab_size, (shape.documents, shape.tokens), device=device)
    keep, keep_target = torch.ones_like(source).bool(), torch.ones_like(target).bool()
    batch = bert_text.Batch(source, 0 * source, keep, target, target, keep_target)
    special = bert_text.TargetIds(1, 2, 3, 0)
    config = TrainConfig(**PRESETS["paper-bertsum-abs"])
    model = BertSumExtAbs(BertModel(bert), special, Diminishing(), **decoder).to(device)
    packed = copy.deepcopy(model)
    optimizer = optimizer_of(model, config)
    sides = {"update": {}, "search": {}}
    for name, kind in MECHANISMS.items():
        of_update, of_search = (optimizer, autocast, batch), (autocast, batch, shape.tokens)
        sides["update"][name] = partial(switched, kind, model, update, *of_update)
        sides["search"][name] = partial(switched, kind, model, search, *of_search)
    if pack(packed, least_gain=0.0):  # measured whatever one product gains
        sides["search"]["DimAttn, packed"] = partial(switched, "dim", packed, search, *of_search)
    return sides


def switched(kind: str, model: BertSumExtAbs, work, *arguments):
    """Work of the one BERTSum with this mechanism: three of them would need 9 GB."""
    model.layers[-1].diminishing = Diminishing(kind)
    return work(model, *arguments)


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    device, dtype = find_device(options.device), DTYPES[options.precision]
    autocast = torch.autocast(device.type, dtype, enabled=dtype != torch.float32)
    repeats = 1 if options.quick else options.repeats
    networks = {"pointer-generator": (pointer_sides, POINTER), "BERTSum": (bertsum_sides, BERTSUM)}
    used = {"device": options.device, "precision": options.precision, "threads": options.threads}
    used |= {"repeats": repeats, "torch": torch.__version__}
    rows = []
    with open_output(options.csv, options.overwrite) as file:
        for network, (make_sides, shapes) in networks.items():
            for shape in [Shape(2, 20, 5)] if options.quick else shapes:
                for work, sides in make_sides(shape, options, device, autocast).items():
                    known = {"network": network, "work": work, **shape._asdict()}
                    times = time_rounds(sides, repeats, device=options.device)
                    for side, own in times.items():
                        seconds = spread(own.seconds)
                        ratio = spread(own.seconds / times["plain"].seconds)
                        rows.append(known | {"side": side, "seconds": seconds, "x plain": ratio})
                        rows[-1] |= {"peak_bytes": own.peak} | used
                        print(
                            f"{network:18}{work:7}{shape.length:4} tokens  {side:19}"
                            f"{seconds['median']:8.3f} s  {ratio['median']:.2f} "
                            f"[{ratio['low']:.2f}, {ratio['high']:.2f}] of plain",
                            flush=True,
                        )
        if options.csv:
            write_csv(file, rows)


if __name__ == "__main__":
    main()
