"""What pruning costs and saves: whole decodes, and updates, beside what else one would use.

python -m l0drop.experiments.benchmark --csv speed.csv     # an hour; --quick: seconds, does it run
python -m l0drop.experiments.benchmark --device cuda --precision bf16

A decode is encoder, gates, compression and beam search, with random weights of the paper's size and
gates that close the paper's share of the positions. "expanded" is the ordinary decoder: it copies
keys and values for each beam; "packed" is what `predict` does where one product gains 1.5
(shared/pack.py). `generate` of transformers and CTranslate2 decode a BART of equal sizes. An update
is forward, backward and Adam.
"""

import copy
import tempfile
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from shared.data import open_output, write_csv
from shared.pack import pack
from shared.run import find_device, one_line_errors, read_flags
from shared.timing import spread, time_rounds

from ..config import PAPER, Positive, TrainConfig
from ..gates import Memory
from ..model import ModelConfig, Projected, Transformer, objective
from ..search import generate

BEAM = 4  # Appendix A
SIZES = TrainConfig(**PAPER | {"l0drop": "output"})  # Appendix A
TINY = ModelConfig(100, 16, 32, 2, 1, 1)  # for --quick
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Shape(NamedTuple):
    sources: int  # B; the paper's batches of summaries have 10
    length: int  # S
    sparsity: float  # share of closed gates (Table 1)
    tokens: int  # T, of each output
    has_update: bool  # at 2,048 an update needs 20 GB


SHAPES = {
    100: Shape(10, 100, 0.467, 40, True),  # WMT14's share
    400: Shape(10, 400, 0.476, 40, True),  # CNN/Daily Mail
    2048: Shape(1, 2048, 0.715, 40, False),  # WikiSum
}
QUICK = Shape(2, 24, 0.5, 8, True)


@dataclass
class Options:
    """The command line."""

    device: str = "cpu"  # Device of torch.
    precision: Literal["float32", "bf16", "fp16"] = "float32"  # Of torch's sides and CTranslate2.
    threads: Positive = 1  # Of the CPU; with one the seconds are CPU seconds.
    lengths: tuple[int, ...] = (100, 400, 2048)  # Of the sources, some of these.
    repeats: Positive = 5  # Rounds: each runs each side once.
    csv: Path | None = None  # File for all numbers.
    overwrite: bool = False  # Replace that file.
    quick: bool = False  # A tiny model and sources: does it run, nothing more.


class Decoder(Transformer):
    """A Transformer with given gates (B, S); keys and values in `copies`, for each beam or once."""

    gates: Tensor
    copies: int = 1

    def encode(self, source: Tensor, hold_open: bool = False):
        encoding = super().encode(source)
        gates = self.gates.to(encoding.states)
        return encoding._replace(states=gates.unsqueeze(-1) * encoding.states, gates=[gates])

    def project(self, memory: Memory) -> list[Projected]:
        layers = super().project(memory)
        return [
            Projected(*(part.repeat_interleave(self.copies, 0) for part in layer))
            for layer in layers
        ]


def close_gates(shape: Shape) -> Tensor:
    """(B, S) gates of 0 and 1: exactly `sparsity` of all positions are closed."""
    gates = torch.ones(shape.sources * shape.length)
    gates[torch.randperm(gates.numel())[: round(shape.sparsity * gates.numel())]] = 0
    return gates.view(shape.sources, shape.length)


def decode(model: Decoder, source: Tensor, shape: Shape, prune: bool) -> int:
    """A whole decode by this package; returns the tokens of an output."""
    lengths = {"extra_length": shape.tokens - shape.length, "min_length": shape.tokens}
    return generate(model, source, prune, beam=BEAM, **lengths).hypotheses.tokens.size(1)


@torch.inference_mode()
def decode_bart(bart, source: Tensor, shape: Shape) -> int:
    """The same by `generate` of transformers."""
    lengths = {"min_new_tokens": shape.tokens, "max_new_tokens": shape.tokens}
    outputs = bart.generate(source, num_beams=BEAM, do_sample=False, **lengths)
    return outputs.size(1) - 1  # without the start


def decode_ctranslate2(translator, source: Tensor, shape: Shape) -> int:
    """The same by CTranslate2."""
    words = [[f"w{token}" for token in row] for row in source.tolist()]
    lengths = {"min_decoding_length": shape.tokens, "max_decoding_length": shape.tokens}
    options = {"beam_size": BEAM, "max_input_length": 0, "max_batch_size": 0}
    return len(translator.translate_batch(words, **options, **lengths)[0].hypotheses[0])


def update(model: Transformer, optimizer, autocast, source: Tensor, target: Tensor) -> None:
    """One update, Eq. (12)."""
    with autocast:
        logits, encoding = model.train()(source, target)
    objective(logits, target, encoding, SIZES.l0_weight).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def make_bart(config: ModelConfig):
    """A BART of the sizes of our model, random weights, in eval mode."""
    from transformers import BartConfig, BartForConditionalGeneration

    sizes = {
        "vocab_size": config.vocabulary,
        "d_model": config.width,
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "encoder_ffn_dim": config.feed_forward,
        "decoder_ffn_dim": config.feed_forward,
        "encoder_attention_heads": config.heads,
        "decoder_attention_heads": config.heads,
        "max_position_embeddings": 4096,
        "activation_function": "relu",
        "forced_eos_token_id": None,
    }
    # Fields that the converter of CTranslate2 still asks for.
    old = {"normalize_before": False, "normalize_embedding": True}
    old |= {"add_final_layer_norm": False, "add_bias_logits": False}
    return BartForConditionalGeneration(BartConfig(**sizes, **old)).eval()


def make_translators(bart, compute_types: list[str], options: Options) -> dict:
    """CTranslate2's engines of a BART."""
    import ctranslate2
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    supported = ctranslate2.get_supported_compute_types(options.device)
    for kind in sorted(set(compute_types) - supported):
        print(f"without CTranslate2 in {kind}, which it does not support here")
    words = {f"w{number}": number for number in range(bart.config.vocab_size)}
    special = {"bos_token": "w0", "pad_token": "w1", "eos_token": "w2", "unk_token": "w3"}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w3"))
    where = {"device": options.device, "inter_threads": 1, "intra_threads": options.threads}
    with tempfile.TemporaryDirectory() as folder:
        bart.save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
        path = ctranslate2.converters.TransformersConverter(folder).convert(f"{folder}/engine")
        return {
            f"CTranslate2, {kind}": ctranslate2.Translator(path, compute_type=kind, **where)
            for kind in compute_types
            if kind in supported
        }


def decoders(config: ModelConfig, shape: Shape, options: Options) -> dict:
    """A function for each side that decodes."""
    device, dtype = find_device(options.device), DTYPES[options.precision]
    source = torch.randint(4, config.vocabulary, (shape.sources, shape.length))
    source[:, -1] = 2  # </s> of both models
    source = source.to(device)
    shared = Decoder(config).eval().to(device, dtype)
    shared.gates = close_gates(shape)
    expanded = copy.deepcopy(shared)
    expanded.copies = BEAM
    packed = copy.deepcopy(shared)
    bart = make_bart(config)
    translators = {}
    if find_spec("ctranslate2"):
        names = {"float32": "float32", "bf16": "bfloat16", "fp16": "float16"}
        translators = make_translators(bart, [names[options.precision], "int8"], options)
    bart = bart.to(device, dtype)
    packed_bart = copy.deepcopy(bart)

    sides = {
        "expanded": partial(decode, expanded, source, shape, False),
        "expanded, pruned": partial(decode, expanded, source, shape, True),
        "shared": partial(decode, shared, source, shape, False),
        "shared, pruned": partial(decode, shared, source, shape, True),
        "generate": partial(decode_bart, bart, source, shape),
    }
    # Measured whatever one product gains.
    if pack(packed, least_gain=0.0) and pack(packed_bart, least_gain=0.0):
        sides["shared, pruned, packed"] = partial(decode, packed, source, shape, True)
        sides["generate, packed"] = partial(decode_bart, packed_bart, source, shape)
    for name, translator in translators.items():
        sides[name] = partial(decode_ctranslate2, translator, source, shape)
    return sides


def updates(config: ModelConfig, shape: Shape, options: Options) -> dict:
    """A function for each side that trains."""
    device, dtype = find_device(options.device), DTYPES[options.precision]
    source = torch.randint(4, config.vocabulary, (shape.sources, shape.length), device=device)
    target = torch.randint(4, config.vocabulary, (shape.sources, shape.tokens), device=device)
    sides = {}
    for name, l0drop in {"update, no gates": "none", "update, gates": "output"}.items():
        model = Transformer(TrainConfig(**vars(config) | {"l0drop": l0drop})).to(device)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
        autocast = torch.autocast(device.type, dtype, enabled=dtype != torch.float32)
        sides[name] = partial(update, model, optimizer, autocast, source, target)
    return sides


def rows(sides: dict, shape: Shape, options: Options, peers: list[str]) -> list[dict]:
    """A row per side: seconds, and how many times as fast as each peer it is."""
    times = time_rounds(sides, options.repeats, warmup=0, device=options.device)
    found = []
    for side, own in times.items():
        row = {"B": shape.sources, "S": shape.length, "T": shape.tokens, "side": side}
        row["seconds"] = spread(own.seconds)
        for peer in peers:
            if peer in times:
                row[f"x {peer}"] = spread(times[peer].seconds / own.seconds)
        ratio = row[f"x {peers[0]}"]
        print(
            f"{shape.length:5} tokens  {side:24} {row['seconds']['median']:8.3f} s  "
            f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}] x {peers[0]}",
            flush=True,
        )
        found.append(row | {"peak_bytes": own.peak})
    return found


@one_line_errors
def main(arguments: list[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config = TINY if options.quick else SIZES
    if not find_spec("ctranslate2"):
        print("without CTranslate2: l0drop/experiments/benchmark.txt is not installed")
    shapes = [QUICK] if options.quick else [SHAPES[length] for length in options.lengths]
    machine = {name: getattr(options, name) for name in ("device", "precision", "threads")}
    machine |= {"repeats": options.repeats, "torch": torch.__version__}
    with open_output(options.csv, options.overwrite) as file:
        found = []
        for shape in shapes:
            sides = decoders(config, shape, options)
            # The warm-up, too.
            assert {side() for side in sides.values()} == {shape.tokens}, "outputs differ in length"
            peers = ["expanded", "generate", "CTranslate2, float32"]
            found += rows(sides, shape, options, peers)
            if shape.has_update:
                sides = updates(config, shape, options)
                for side in sides.values():
                    side()
                found += rows(sides, shape, options, ["update, no gates"])
        if options.csv:
            write_csv(file, [row | machine for row in found])


if __name__ == "__main__":
    main()
