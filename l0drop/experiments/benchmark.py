"""What pruning and sharing save: whole decodes, all sides in one run, against the engines that people use.

python -m l0drop.experiments.benchmark --csv results.csv                      # hours; --quick: seconds, does it run

A decode is encoder, gates, compression and beam search of ten sources, with random weights of the paper's size and
gates that close the paper's share of the positions. Peers: `generate` of `transformers` and, where it is installed,
CTranslate2, with a BART of our sizes. A number is the median over the rounds, a ratio the median of the ratios within
rounds, each with its interval (`timing.spread`). On one thread of the CPU seconds are CPU seconds; freed memory stays
with the process for all sides.
"""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
import tyro
from torch import Tensor

from shared.data import check_outputs, write_csv
from shared.rouge import table
from shared.timing import find_device, keep_memory, spread, time_rounds

from ..model import ModelConfig, Transformer
from ..run import Positive, check_fields, one_line_errors, read_flags
from ..search import generate
from .precision import PRECISIONS, convert, packs_bfloat16, swap_linears

if TYPE_CHECKING:
    from transformers import BartForConditionalGeneration

BEAM = 4  # Appendix A
TINY = dict(vocabulary=100, width=16, feed_forward=32, heads=2, encoder_layers=1, decoder_layers=1)  # for --quick
SIDES = (  # engine, what it does, precision; "expanded" is the ordinary decoder: keys and values once per beam
    "generate", "generate, bf16", "expanded", "expanded, pruned", "shared", "shared, pruned", "shared, pruned, bf16",
)  # fmt: skip
CPU_SIDES = (
    "generate, packed", "generate, int8", "shared, packed", "shared, pruned, packed", "shared, int8",
    "shared, pruned, int8", "CTranslate2, float32", "CTranslate2, int8",
)  # fmt: skip


class Shape(NamedTuple):
    sources: int  # B
    length: int  # S
    sparsity: float  # share of closed gates
    tokens: int  # T


SHAPES = {  # Table 1 and Appendix A: batch 10; the share that L0Drop pruned
    400: Shape(10, 400, 0.476, 40),  # CNN/Daily Mail
    2048: Shape(10, 2048, 0.715, 20),  # WikiSum
}
QUICK = Shape(2, 24, 0.5, 8)


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    shapes: tuple[int, ...] = tuple(SHAPES)  # source lengths: 400, 2048
    repeats: Positive = 7  # rounds
    sides: tuple[str, ...] = ()  # names of sides; default: all
    csv: Path | None = None  # write every number here
    quick: bool = False  # tiny model and sources: does it run, nothing more
    threads: Positive = 1
    device: Literal["cpu", "cuda"] = "cpu"


def fix_gates(model: Transformer, gates: Tensor) -> None:
    """Give the model's L0Drop layer these gates (B, S), whatever the states."""
    model.l0drop[0].forward = lambda states: (gates.unsqueeze(-1).to(states.dtype) * states, gates, gates)


def close_gates(shape: Shape) -> Tensor:
    """(B, S) gates of 0 and 1: exactly `sparsity` of all positions are closed, of each source about as many."""
    gates = torch.ones(shape.sources * shape.length)
    gates[torch.randperm(gates.numel())[: round(shape.sparsity * gates.numel())]] = 0
    return gates.view(shape.sources, shape.length)


def make_bart(config: ModelConfig) -> "BartForConditionalGeneration":
    """A BART of the sizes of our model, random weights, in eval mode."""
    from transformers import BartConfig, BartForConditionalGeneration

    return BartForConditionalGeneration(BartConfig(
        vocab_size=config.vocabulary, d_model=config.width, activation_function="relu", max_position_embeddings=4096,
        encoder_layers=config.encoder_layers, encoder_ffn_dim=config.feed_forward, encoder_attention_heads=config.heads,
        decoder_layers=config.decoder_layers, decoder_ffn_dim=config.feed_forward, decoder_attention_heads=config.heads,
    )).eval()  # fmt: skip


def make_translator(bart: "BartForConditionalGeneration", precision: str, threads: int):
    """CTranslate2's engine of a BART."""
    import ctranslate2
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(bart.config.vocab_size)}
    special = {"bos_token": "w0", "pad_token": "w1", "eos_token": "w2", "unk_token": "w3"}
    with tempfile.TemporaryDirectory() as folder:
        old = {"normalize_before": False, "normalize_embedding": True}  # fields that its converter still reads
        bart.config.update(old | {"add_final_layer_norm": False, "add_bias_logits": False})
        bart.save_pretrained(folder)
        tokenizer = Tokenizer(models.WordLevel(words, unk_token="w3"))
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
        path = ctranslate2.converters.TransformersConverter(folder).convert(f"{folder}/engine", quantization=precision)
        return ctranslate2.Translator(path, compute_type=precision, inter_threads=1, intra_threads=threads)


def make_sides(config: ModelConfig, shape: Shape, options: Options) -> dict[str, Callable[[], int]]:
    """Name -> a whole decode, which returns the tokens of an output."""
    source = torch.randint(4, config.vocabulary, (shape.sources, shape.length))
    source[:, -1] = 2  # </s> of both
    bart, model, device = make_bart(config), Transformer(config).eval(), find_device(options.device)
    fix_gates(model, close_gates(shape).to(device))
    tokens, words, source = shape.tokens, [[f"w{i}" for i in row] for row in source.tolist()], source.to(device)

    def make(engine: str, *how: str) -> Callable[[], int]:
        precision = next((word for word in how if word in PRECISIONS), "float32")
        if engine == "CTranslate2":
            translator = make_translator(copy.deepcopy(bart), precision, options.threads)
            lengths = {"min_decoding_length": tokens, "max_decoding_length": tokens, "max_input_length": 0}
            translate = partial(translator.translate_batch, words, max_batch_size=0, beam_size=BEAM, **lengths)
            return lambda: len(translate()[0].hypotheses[0])
        if engine == "generate":
            twin = copy.deepcopy(bart).to(device, torch.bfloat16 if precision == "bf16" else torch.float32)
            if {"packed", "int8"} & set(how):
                swap_linears(twin, precision)
            lengths = {"min_new_tokens": tokens, "max_new_tokens": tokens, "forced_eos_token_id": None}
            decode = torch.inference_mode()(partial(twin.generate, source, num_beams=BEAM, do_sample=False, **lengths))
            return lambda: decode().size(1) - 1
        twin = convert(copy.deepcopy(model).to(device), precision, pack=bool({"packed", "bf16"} & set(how)))
        lengths = {"extra_length": tokens - shape.length, "min_length": tokens}
        decode = partial(generate, twin, source, None, "pruned" in how, engine == "shared", beam=BEAM, **lengths)
        return lambda: decode().hypotheses.tokens.size(1)

    names = SIDES + CPU_SIDES if device.type == "cpu" else SIDES
    if not find_spec("ctranslate2"):
        print("CTranslate2 is not installed (pip install ctranslate2): its rows are left out")
        names = tuple(name for name in names if "CTranslate2" not in name)
    if device.type == "cpu" and not packs_bfloat16():
        print("this CPU has no bfloat16: the rows of our own decoder in it are left out")
        names = tuple(name for name in names if "bf16" not in name or name.startswith("generate"))
    if unknown := set(options.sides) - set(names):
        raise ValueError(f"--sides {', '.join(unknown)}: choose from {', '.join(names)}")
    return {name: make(*name.split(", ")) for name in options.sides or names}


def decode_rows(shape: Shape, seconds: dict[str, np.ndarray]) -> list[dict]:
    """A row per side: seconds, and how many times faster than `generate` and CTranslate2 at its precision it is."""
    rows = []
    for name, own in seconds.items():
        engine = f"CTranslate2, {'int8' if 'int8' in name else 'float32'}"
        row = {"S": shape.length, "T": shape.tokens, "side": name, "seconds": spread(own)}
        for title, other in (("x generate", "generate"), ("x CTranslate2", engine), ("x expanded", "expanded")):
            row[title] = spread(seconds[other] / own) if other in seconds else None
        rows.append(row)
    return rows


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.benchmark", description=__doc__)
    check_fields(options)
    if options.repeats < 3:
        raise ValueError(f"--repeats is {options.repeats}; a median needs at least 3")
    if wrong := set(options.shapes) - set(SHAPES):
        raise ValueError(f"--shapes {wrong.pop()}: choose from {', '.join(map(str, SHAPES))}")
    find_device(options.device)
    check_outputs(options.csv)
    keep_memory()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config, rows = ModelConfig(**TINY if options.quick else {}), []
    for shape in [QUICK] if options.quick else [SHAPES[length] for length in options.shapes]:
        sides = make_sides(config, shape, options)
        lengths = {name: decode() for name, decode in sides.items()}
        assert set(lengths.values()) == {shape.tokens}, lengths
        rows += decode_rows(shape, time_rounds(sides, options.repeats, 0, options.device))
        print(table(rows[-len(sides) :]), "\n", flush=True)
    if options.csv:
        run = {"device": options.device, "threads": options.threads, "repeats": options.repeats}
        write_csv(options.csv, [row | run | {"torch": torch.__version__} for row in rows])


if __name__ == "__main__":
    main()
