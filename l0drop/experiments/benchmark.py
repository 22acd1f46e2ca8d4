"""What pruning and sharing save: whole decodes, all sides in one run, against the engines that people use.

python -m l0drop.experiments.benchmark --csv results.csv                      # hours; --quick: seconds, does it run
python -m l0drop.experiments.benchmark --runs runs/longer-1 runs/l0-0.8-1     # Table 1: decodes of trained runs

A decode is encoder, gates, compression and beam search, without --runs of ten sources with random weights of the
paper's size and gates that close the paper's share of the positions. Peers: `generate` of `transformers` and, where it
is installed, CTranslate2, with a BART of our sizes, all in float32; "packed": each weight is laid out once as oneDNN
wants it. A number is the median over the rounds, a ratio the median of the ratios within rounds, each with its interval
(`timing.spread`). On the CPU seconds are CPU seconds of one thread.
"""

import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from shared.data import Example, load, open_output, write_csv
from shared.rouge import table
from shared.run import find_device, one_line_errors, read_flags
from shared.timing import spread, time_rounds

from ..config import Positive
from ..gates import Memory
from ..loading import Run, load_run
from ..model import ModelConfig, Projected, Transformer
from ..predict import decode
from ..search import Generation, generate

BEAM = 4  # Appendix A
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
    runs: tuple[Path, ...] = ()  # Trained runs to time in place of random weights; ratios refer to the first.
    split: str = "test"  # Split of the data of the first run.
    repeats: Positive = 7  # Rounds, at least 3.
    csv: Path | None = None  # File for every number.
    overwrite: bool = False  # Replace that file.
    quick: bool = False  # Take a tiny model and sources: does it run, nothing more.
    device: str = "cpu"  # Device of torch; packed weights and CTranslate2 are for the CPU alone.


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


@torch.inference_mode()
def generate_expanded(model: Transformer, source: Tensor, beam: int, **options) -> Generation:
    """As `generate`, with a copy of keys and values for each beam, as ordinary decoders have it."""
    project = model.project

    def expanded(memory: Memory) -> list[Projected]:
        return [Projected(*(tensor.repeat_interleave(beam, 0) for tensor in layer)) for layer in project(memory)]

    model.project = expanded  # shadows the method
    try:
        return generate(model, source, beam=beam, **options)
    finally:
        del model.project


def make_sides(config: ModelConfig, shape: Shape, device: str = "cpu") -> dict[str, Callable]:
    """Name -> a whole decode, which returns the tokens of an output."""
    source = torch.randint(4, config.vocabulary, (shape.sources, shape.length))
    source[:, -1] = 2  # </s> of both
    bart, model = make_bart(config), Transformer(config).eval()
    fix_gates(model, close_gates(shape).to(device))
    tokens, words, source = shape.tokens, [[f"w{i}" for i in row] for row in source.tolist()], source.to(device)

    def make(engine: str, *how: str) -> Callable[[], int]:
        if engine == "CTranslate2":
            translator = make_translator(copy.deepcopy(bart))
            lengths = {"min_decoding_length": tokens, "max_decoding_length": tokens, "max_input_length": 0}
            translate = partial(translator.translate_batch, words, max_batch_size=0, beam_size=BEAM, **lengths)
            return lambda: len(translate()[0].hypotheses[0])
        if engine == "generate":
            twin = copy.deepcopy(bart).to(device)
            if "packed" in how:
                pack(twin)
            lengths = {"min_new_tokens": tokens, "max_new_tokens": tokens, "forced_eos_token_id": None}
            decode = torch.inference_mode()(partial(twin.generate, source, num_beams=BEAM, do_sample=False, **lengths))
            return lambda: decode().size(1) - 1
        twin = copy.deepcopy(model).to(device)
        if "packed" in how:
            pack_transformer(twin)
        lengths = {"extra_length": tokens - shape.length, "min_length": tokens}
        decoder = generate if engine == "shared" else generate_expanded
        decode = partial(decoder, twin, source, prune="pruned" in how, beam=BEAM, **lengths)
        return lambda: decode().hypotheses.tokens.size(1)

    names = SIDES if device == "cpu" else [name for name in SIDES if "packed" not in name and name != "CTranslate2"]
    if not find_spec("ctranslate2"):
        print("CTranslate2 is not installed (pip install ctranslate2): its row is left out")
        names = [name for name in names if name != "CTranslate2"]
    return {name: make(*name.split(", ")) for name in names}


def decode_all(run: Run, examples: Sequence[Example]) -> list:
    """All outputs of a run, the tokenising of the texts included."""
    return list(decode(run, examples))


def ratios(seconds: dict[str, np.ndarray], peers: tuple[str, ...]) -> list[dict]:
    """A row per side: seconds, and how many times faster than each peer it is."""
    rows = []
    for side, own in seconds.items():
        row = {"side": side, "seconds": spread(own)}
        rows.append(row | {f"x {peer}": spread(seconds[peer] / own) for peer in peers if peer in seconds})
    return rows


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    find_device(options.device)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config, rows, rounds = ModelConfig(**TINY if options.quick else {}), [], (options.repeats, 0, options.device)
    with open_output(options.csv, options.overwrite) as file:
        if options.runs:
            runs = {path.name: load_run(path) for path in options.runs}
            examples, sides = load(next(iter(runs.values())).config.data, options.split), {}
            for name, run in runs.items():
                run.model.to(options.device)
                sides[name] = partial(decode_all, run, examples)
            rows = ratios(time_rounds(sides, *rounds), tuple(sides)[:1])
        for shape in (
            [] if options.runs else [QUICK] if options.quick else [SHAPES[length] for length in options.shapes]
        ):
            sides = make_sides(config, shape, options.device)
            lengths = {name: decode() for name, decode in sides.items()}
            assert set(lengths.values()) == {shape.tokens}, lengths
            timed = ratios(time_rounds(sides, *rounds), ("generate", "CTranslate2", "expanded"))
            rows += [{"S": shape.length, "T": shape.tokens} | row for row in timed]
        print(table(rows))
        if options.csv:
            run = {"device": options.device, "repeats": options.repeats}
            write_csv(file, [row | run | {"torch": torch.__version__} for row in rows])


if __name__ == "__main__":
    main()
