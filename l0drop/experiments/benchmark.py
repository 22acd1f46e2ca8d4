"""What pruning and sharing save: whole decodes on one thread, all sides in one run, against engines that people use.

python -m l0drop.experiments.benchmark --csv results.csv      # hours; --quick: seconds, does it run

A decode is encoder, gates, compression and beam search of ten sources, with random weights of the paper's size and
gates that close the paper's share of the positions. Peers: `generate` of `transformers` and, where it is installed,
CTranslate2, with a BART of our sizes, all in float32; "packed": each weight is laid out once as oneDNN wants it. A
number is the median over the rounds in CPU seconds, a ratio the median of the ratios within rounds, each with its
interval (`timing.spread`).
"""

import copy
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from shared.data import open_output, write_csv
from shared.rouge import table
from shared.run import one_line_errors, read_flags
from shared.timing import spread, time_rounds

from ..config import Positive
from ..gates import Memory
from ..model import ModelConfig, Projected, Transformer
from ..search import generate

BEAM = 4  # Appendix A
PAPER_SIZES = dict(vocabulary=32_000, width=512, feed_forward=2048, heads=8, encoder_layers=6, decoder_layers=6)
TINY = dict(vocabulary=100, width=16, feed_forward=32, heads=2, encoder_layers=1, decoder_layers=1)  # for --quick
SIDES = (  # engine, then what it does; "expanded" is the ordinary decoder: keys and values once per beam
    "generate", "generate, packed", "expanded", "expanded, pruned", "shared", "shared, packed", "shared, pruned",
    "shared, pruned, packed", "CTranslate2",
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


@dataclass
class Options:
    """The command line."""

    shapes: tuple[Literal[400, 2048], ...] = (400, 2048)  # Source lengths.
    repeats: Positive = 7  # Rounds, at least 3.
    csv: Path | None = None  # File for every number.
    overwrite: bool = False  # Replace that file.
    quick: bool = False  # Take a tiny model and sources: does it run, nothing more.


class PackedLinear(nn.Module):
    """An `nn.Linear` on the CPU with its weight in oneDNN's own layout, for inference."""

    def __init__(self, weight: Tensor, bias: Tensor | None):
        super().__init__()
        # No public function packs: torch.utils.mkldnn lays out the weight anew in each call. 64 rows of input: others
        # work, more slowly.
        self.weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), 64), bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


def pack(module: nn.Module) -> None:
    """Put a packed one in the place of every `nn.Linear` within."""
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            setattr(module, name, PackedLinear(child.weight, child.bias))
        else:
            pack(child)


def pack_transformer(model: Transformer) -> None:
    """Pack all but the gates' predictor."""
    pack(model.encoder)
    pack(model.decoder)
    model.output_product = PackedLinear(model.embedding.weight, None).forward  # shadows the method


def fix_gates(model: Transformer, gates: Tensor) -> None:
    """Give the model's L0Drop layer these gates (B, S), whatever the states."""
    model.l0drop[0].forward = lambda states: (gates.unsqueeze(-1).to(states.dtype) * states, gates, gates)


def close_gates(shape: Shape) -> Tensor:
    """(B, S) gates of 0 and 1: exactly `sparsity` of all positions are closed, of each source about as many."""
    gates = torch.ones(shape.sources * shape.length)
    gates[torch.randperm(gates.numel())[: round(shape.sparsity * gates.numel())]] = 0
    return gates.view(shape.sources, shape.length)


def make_bart(config: ModelConfig):
    """A BART of the sizes of our model, random weights, in eval mode."""
    from transformers import BartConfig, BartForConditionalGeneration

    return BartForConditionalGeneration(BartConfig(
        vocab_size=config.vocabulary, d_model=config.width, activation_function="relu", max_position_embeddings=4096,
        encoder_layers=config.encoder_layers, encoder_ffn_dim=config.feed_forward, encoder_attention_heads=config.heads,
        decoder_layers=config.decoder_layers, decoder_ffn_dim=config.feed_forward, decoder_attention_heads=config.heads,
    )).eval()  # fmt: skip


def make_translator(bart):
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
        path = ctranslate2.converters.TransformersConverter(folder).convert(f"{folder}/engine")
        return ctranslate2.Translator(path, compute_type="float32", inter_threads=1, intra_threads=1)


def expand(model: Transformer) -> None:
    """Make the model copy keys and values for each beam, as ordinary decoders do."""
    project = model.project

    def expanded(memory: Memory) -> list[Projected]:
        return [Projected(*(tensor.repeat_interleave(BEAM, 0) for tensor in layer)) for layer in project(memory)]

    model.project = expanded  # shadows the method


def make_side(name: str, bart, model: Transformer, source: Tensor, tokens: int) -> Callable[[], int]:
    """A whole decode by one of SIDES, which returns the tokens of an output."""
    engine, *how = name.split(", ")
    if engine == "CTranslate2":
        words = [[f"w{i}" for i in row] for row in source.tolist()]
        lengths = {"min_decoding_length": tokens, "max_decoding_length": tokens, "max_input_length": 0}
        translator = make_translator(copy.deepcopy(bart))
        translate = partial(translator.translate_batch, words, max_batch_size=0, beam_size=BEAM, **lengths)
        return lambda: len(translate()[0].hypotheses[0])
    if engine == "generate":
        twin = copy.deepcopy(bart)
        if "packed" in how:
            pack(twin)
        lengths = {"min_new_tokens": tokens, "max_new_tokens": tokens, "forced_eos_token_id": None}
        decode = torch.inference_mode()(partial(twin.generate, source, num_beams=BEAM, do_sample=False, **lengths))
        return lambda: decode().size(1) - 1
    twin = copy.deepcopy(model)
    if "packed" in how:
        pack_transformer(twin)
    if engine == "expanded":
        expand(twin)
    lengths = {"extra_length": tokens - source.size(1), "min_length": tokens}
    decode = partial(generate, twin, source, prune="pruned" in how, beam=BEAM, **lengths)
    return lambda: decode().hypotheses.tokens.size(1)


def ratios(seconds: dict[str, np.ndarray], peers: tuple[str, ...]) -> list[dict]:
    """A row per side: seconds, and how many times faster than each peer it is."""
    rows = []
    for side, own in seconds.items():
        row = {"side": side, "seconds": spread(own)}
        rows.append(row | {f"x {peer}": spread(seconds[peer] / own) for peer in peers if peer in seconds})
    return rows


def time_shape(config: ModelConfig, shape: Shape, repeats: int) -> list[dict]:
    """A row per side."""
    source = torch.randint(4, config.vocabulary, (shape.sources, shape.length))
    source[:, -1] = 2  # </s> of both
    bart, model = make_bart(config), Transformer(config).eval()
    fix_gates(model, close_gates(shape))
    names = [name for name in SIDES if name != "CTranslate2" or find_spec("ctranslate2")]
    sides = {name: make_side(name, bart, model, source, shape.tokens) for name in names}
    assert {decode() for decode in sides.values()} == {shape.tokens}
    timed = ratios(time_rounds(sides, repeats, 0), ("generate", "CTranslate2", "expanded"))
    return [{"S": shape.length, "T": shape.tokens} | row for row in timed]


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = ModelConfig(**TINY if options.quick else PAPER_SIZES)
    shapes = [QUICK] if options.quick else [SHAPES[length] for length in options.shapes]
    with open_output(options.csv, options.overwrite) as file:
        rows = [row for shape in shapes for row in time_shape(config, shape, options.repeats)]
        print(table(rows))
        if options.csv:
            run = {"device": "cpu", "repeats": options.repeats, "torch": torch.__version__}
            write_csv(file, [row | run for row in rows])


if __name__ == "__main__":
    main()
