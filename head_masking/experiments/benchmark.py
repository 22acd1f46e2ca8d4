"""What masks cost: `generate` with and without them, and the tagger's own time, in one run.

python -m head_masking.experiments.benchmark --csv speed.csv   # 10 CPU minutes
python -m head_masking.experiments.benchmark --quick           # seconds: does it run
python -m head_masking.experiments.benchmark --device cuda --precision bf16

A BART and a RoBERTa of base size with random weights. `generate` of transformers, which one would
use, is the plain side; "packed" has weights in oneDNN's layout (shared/pack.py), which gains too
little here for `predict` to use it.
"""

import copy
from collections.abc import Callable
from contextlib import nullcontext
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

from ..config import Positive
from ..heads import all_heads, find_heads
from ..masking import Heads, mask_heads
from ..tagger import Tagger

BEAM = 5  # Appendix A
KEPT = 0.3  # share of the tokens that masked heads see
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Shape(NamedTuple):
    documents: int  # B
    length: int  # S
    tokens: int  # T, of each summary


SHAPES = [Shape(1, 100, 20), Shape(1, 400, 20), Shape(1, 1000, 20)]
QUICK = Shape(2, 20, 4)
TINY_BART = dict(
    d_model=24, encoder_layers=1, decoder_layers=2, encoder_ffn_dim=16, decoder_ffn_dim=16,
    encoder_attention_heads=2, decoder_attention_heads=2,
)  # fmt: skip
TINY_ROBERTA = dict(
    hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
BASE_BART = dict(
    d_model=768, encoder_layers=6, decoder_layers=6, encoder_ffn_dim=3072, decoder_ffn_dim=3072,
    encoder_attention_heads=12, decoder_attention_heads=12,
)  # fmt: skip


@dataclass
class Options:
    """The command line."""

    device: str = "cpu"  # Device of torch.
    precision: Literal["float32", "bf16", "fp16"] = "float32"  # Of the forward pass.
    threads: Positive = 1  # Of the CPU; with one the seconds are CPU seconds.
    repeats: Positive = 5  # Rounds: each runs each side once.
    csv: Path | None = None  # File for all numbers.
    overwrite: bool = False  # Replace that file.
    quick: bool = False  # Tiny models and documents: does it run, nothing more.


def models(quick: bool) -> tuple[nn.Module, Tagger]:
    """A BART and a tagger with random weights."""
    from transformers import BartConfig, BartForConditionalGeneration, RobertaConfig, RobertaModel

    words = {"vocab_size": 100} if quick else {}
    bart = BartConfig(**(TINY_BART if quick else BASE_BART), **words)
    roberta = RobertaConfig(
        **(TINY_ROBERTA if quick else {}), **words, max_position_embeddings=514, type_vocab_size=1
    )
    encoder = RobertaModel(roberta, add_pooling_layer=False)
    return BartForConditionalGeneration(bart).eval(), Tagger(encoder).eval()


@torch.inference_mode()
def write(
    bart: nn.Module, autocast, ids: Tensor, tokens: int, heads: Heads | None, keep: Tensor
) -> int:
    """Summaries of exactly so many new tokens; returns their length with the start token."""
    real = torch.ones_like(ids)
    lengths = {"min_new_tokens": tokens, "max_new_tokens": tokens}
    with autocast, nullcontext() if heads is None else mask_heads(bart, heads, keep):
        return bart.generate(ids, attention_mask=real, num_beams=BEAM, **lengths).size(1)


@torch.inference_mode()
def tag(tagger: Tagger, autocast, ids: Tensor) -> Tensor:
    """The probability of each token."""
    with autocast:
        return tagger(ids, torch.ones_like(ids).bool()).sigmoid()


def sides(bart, tagger, packed, shape: Shape, autocast, device) -> dict[str, Callable]:
    """A function for each side; the first one is what the others are compared with."""
    vocabulary = bart.config.vocab_size
    ids = torch.randint(4, vocabulary, (shape.documents, shape.length), device=device)
    keep = torch.rand(ids.shape, device=device) < KEPT
    keep[:, 0] = True
    every = all_heads(bart)
    top = find_heads("top", bart)
    decode = partial(write, autocast=autocast, ids=ids, tokens=shape.tokens, keep=keep)
    functions = {
        "generate": partial(decode, bart, heads=None),
        "masks on the top layer": partial(decode, bart, heads=top),
        "masks on all layers": partial(decode, bart, heads=every),
        "tagger": partial(tag, tagger, autocast, ids),
    }
    if packed:
        functions["generate, packed"] = partial(decode, packed[0], heads=None)
        functions["masks on the top layer, packed"] = partial(decode, packed[0], heads=top)
        functions["tagger, packed"] = partial(tag, packed[1], autocast, ids)
    return functions


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    device, dtype = find_device(options.device), DTYPES[options.precision]
    autocast = torch.autocast(device.type, dtype, enabled=dtype != torch.float32)
    own = [model.to(device) for model in models(options.quick)]
    packed = [copy.deepcopy(model) for model in own]
    if dtype != torch.float32 or not all([pack(model, least_gain=0.0) for model in packed]):
        packed = []
    repeats = 1 if options.quick else options.repeats
    used = {"device": options.device, "precision": options.precision, "threads": options.threads}
    used |= {"repeats": repeats, "torch": torch.__version__}
    rows = []
    with open_output(options.csv, options.overwrite) as file:
        for shape in [QUICK] if options.quick else SHAPES:
            functions = sides(*own, packed, shape, autocast, device)
            times = time_rounds(functions, repeats, device=options.device)
            plain = times["generate"].seconds
            for side, measured in times.items():
                seconds = spread(measured.seconds)
                ratio = spread(measured.seconds / plain)
                row = shape._asdict() | {"side": side, "seconds": seconds, "x generate": ratio}
                rows.append(row | {"peak_bytes": measured.peak} | used)
                print(
                    f"{shape.length:5} tokens  {side:30}{seconds['median']:8.3f} s  "
                    f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}] of generate",
                    flush=True,
                )
        if options.csv:
            write_csv(file, rows)


if __name__ == "__main__":
    main()
