"""What masking costs: decodes with and without masked heads, all sides measured in one run.

python -m head_masking.experiments.benchmark --csv benchmark.csv

Models of the shapes of bart-base and bart-large with random weights decode documents of random tokens, whole decodes
with the encoder in them, to a fixed number of tokens: plain; all heads of layer 1 masked, the paper's choice for
CNN/DailyMail; all heads of all layers masked, each document with labels of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import torch
import tyro
from torch import Tensor, nn

from shared import rouge
from shared.data import check_outputs, write_csv
from shared.timing import find_device, keep_memory, spread, time_rounds

from ..decode import all_heads
from ..masking import mask_heads
from ..run import Positive, Range, check_fields, one_line_errors, read_flags

if TYPE_CHECKING:
    from transformers import BartForConditionalGeneration

BEAM, LENGTH, TOKENS = 4, 800, 60  # beams; tokens of a document, of a summary
SALIENT = 0.2  # share of the tokens that masked heads see
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SHAPES = {  # layers of the encoder, and as many of the decoder; width; heads; vocabulary
    "bart-base": (6, 768, 12, 50_265),
    "bart-large": (12, 1024, 16, 50_265),
    "quick": (2, 16, 4, 100),
}


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    shapes: tuple[Literal[tuple(SHAPES)], ...] = ("bart-base", "bart-large")
    batches: tuple[Positive, ...] = (1, 4)  # documents decoded together
    repeats: Annotated[int, Range(3, 10**6)] = 7  # rounds, at least 3
    quick: bool = False  # a tiny model and short texts: does it run? The numbers mean nothing
    device: str = "cpu"  # or cuda, mps
    precision: Literal[tuple(DTYPES)] = "float32"
    csv: Path | None = None  # write the table here


def make_model(shape: str, positions: int) -> "BartForConditionalGeneration":
    """A BART with random weights, in eval mode."""
    from transformers import BartConfig, BartForConditionalGeneration

    layers, width, heads, vocabulary = SHAPES[shape]
    sizes = {"layers": layers, "attention_heads": heads, "ffn_dim": 4 * width}
    sizes = {f"{side}_{name}": size for name, size in sizes.items() for side in ("encoder", "decoder")}
    sizes |= {"vocab_size": vocabulary, "d_model": width, "max_position_embeddings": positions}
    return BartForConditionalGeneration(BartConfig(forced_eos_token_id=None, **sizes)).eval()


def sides(model: nn.Module, ids: Tensor, keep: Tensor, tokens: int) -> dict[str, Callable]:
    """Whole decodes of so many tokens, by name; in the plain one nothing of ours runs."""
    settings = {"num_beams": BEAM, "do_sample": False, "min_new_tokens": tokens, "max_new_tokens": tokens}
    generate = partial(model.generate, ids, attention_mask=torch.ones_like(ids), **settings)

    def masked(heads: dict) -> Tensor:
        with mask_heads(model, heads, keep):
            return generate()

    every = all_heads(model)
    return {"plain": generate, "one layer": partial(masked, {1: every[1]}), "all layers": partial(masked, every)}


def measure(shape: str, batch: int, length: int, tokens: int, options: Options) -> list[dict[str, object]]:
    """All sides at one shape and batch size."""
    device = find_device(options.device)
    model = make_model(shape, max(length, tokens + 2)).to(device, DTYPES[options.precision])
    ids = torch.randint(4, model.config.vocab_size, (batch, length)).to(device)
    keep = (torch.rand(batch, length).argsort(-1) < max(round(SALIENT * length), 1)).to(device)
    seconds = time_rounds(sides(model, ids, keep, tokens), options.repeats, device=device)
    about = {"shape": shape, "batch": batch, "rounds": options.repeats, "S": length, "T": tokens, "beam": BEAM}
    about |= {"device": options.device, "precision": options.precision}
    plain = seconds["plain"]
    return [
        about | {"side": side, "seconds": spread(own), "over_plain": spread(own / plain)}
        for side, own in seconds.items()
    ]


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.benchmark", description=__doc__)
    check_fields(options)
    import transformers

    find_device(options.device)
    check_outputs(options.csv)
    keep_memory()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    shapes, sizes = (("quick",), (16, 4)) if options.quick else (options.shapes, (LENGTH, TOKENS))
    rows = [row for shape in shapes for batch in options.batches for row in measure(shape, batch, *sizes, options)]
    if options.csv:
        write_csv(options.csv, rows)
    print(rouge.table(rows))
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    print(f"seconds of a whole decode, one thread, median of {options.repeats} rounds and its interval; {versions}")


if __name__ == "__main__":
    main()
