"""What L0Drop costs and saves: decoding time, memory and training time, all sides in one run (Table 1, "Time").

python -m l0drop.benchmark

Three decoders of the paper's size with random weights, beam 4, ten sources:

    generate   a BART of `transformers` through `generate`; pruned through bart.py
    expanded   ours with the memory repeated for every beam: the ordinary decoder, the paper's baseline
    shared     ours with one memory per source, which its beams share

each over three memories, from gates that close exactly the paper's share of the positions, spread at random:

    dense      all S positions, zeros included
    pruned     Algorithm 1
    short      of a source that simply has as many positions as the pruned memory has rows: no dummy, no counts

A step is the median time from one token to the next, ours with half the output in its past, `generate`'s with none,
which flatters it. A whole decode of T tokens is put together from what is measured in the same round:
encoder + first token (which gates, compresses and projects the memory) + (T - 1) steps, for at S 2048 `generate` needs
minutes. Both implementations' encoders are the same computation: ours is timed, and counted for all. Memory is the most
that a decoder, encoder not included, holds at a time.
"""

import argparse
import csv
import statistics
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch
import transformers
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from shared.timing import Timing, compare, ratio

from .bart import counted_attention
from .gates import Memory, compress, dense_memory
from .model import ModelConfig, Past, Transformer, objective
from .search import beam_search

BEAM, STEPS = 4, 8
SIDES = [(decoder, memory) for decoder in ("generate", "expanded", "shared") for memory in ("dense", "pruned", "short")]
SIDES.remove(("generate", "short"))


class Shape(NamedTuple):
    sources: int  # B
    length: int  # S
    sparsity: float  # share of closed gates
    tokens: int  # T


SHAPES = {  # Table 1 and Appendix A: batch 10, summaries of 63 and 121 words, here at 1.3 subwords a word
    400: Shape(10, 400, 0.476, 80),  # CNN/Daily Mail
    2048: Shape(10, 2048, 0.715, 160),  # WikiSum
}
QUICK = Shape(2, 24, 0.5, 20)
TINY = dict(vocabulary=100, width=16, feed_forward=32, heads=2, encoder_layers=1, decoder_layers=1)  # for --quick


class Speed(NamedTuple):
    """One side at one shape; each Timing has the rounds of all the others."""

    rows: int  # R of the memory
    step: Timing
    whole: Timing


class Halfway:
    """Stands in for a Transformer in `beam_search`: its hypotheses are `context` tokens long from the start."""

    def __init__(self, model: Transformer, rows: int, context: int):
        self.model, self.config, self.past = model, model.config, [Past() for _ in model.decoder]
        zeros = model.embedding.weight.new_zeros(rows, self.config.heads, context, self.config.width // self.config.heads)
        for layer in self.past:
            layer.extend(zeros, zeros)

    def decode(self, target: Tensor, memory: list, past: list[Past] | None = None) -> tuple[Tensor, list[Past]]:
        return self.model.decode(target, memory, past or self.past)


class Clock:
    """Reads the time whenever a decoder begins a token."""

    def __init__(self, layer: nn.Module, device: torch.device):
        self.device, self.times = device, []
        layer.register_forward_pre_hook(self.read)

    def read(self, *_) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.times.append(perf_counter())

    def step(self) -> float:
        """Median seconds a token since the last call; without the first, in which `generate` projects its memory."""
        times, self.times = self.times[1:], []
        return statistics.median(after - before for before, after in zip(times, times[1:], strict=False))


def make_models(
    quick: bool, device: torch.device, dtype: torch.dtype
) -> tuple[Transformer, BartForConditionalGeneration]:
    """Our model and a BART of the same sizes, random weights, in eval mode."""
    config = ModelConfig(**TINY if quick else {})
    bart = BartConfig(
        vocab_size=config.vocabulary, d_model=config.width, activation_function="relu", max_position_embeddings=4096,
        encoder_layers=config.encoder_layers, encoder_ffn_dim=config.feed_forward, encoder_attention_heads=config.heads,
        decoder_layers=config.decoder_layers, decoder_ffn_dim=config.feed_forward, decoder_attention_heads=config.heads,
    )  # fmt: skip
    with torch.device(device):
        models = Transformer(config), BartForConditionalGeneration(bart)
    return tuple(model.to(device, dtype).eval() for model in models)


def close_gates(shape: Shape) -> Tensor:
    """(B, S) gates of 0 and 1: exactly `sparsity` of all positions are closed, of each source about as many."""
    gates = torch.ones(shape.sources * shape.length)
    gates[torch.randperm(gates.numel())[: round(shape.sparsity * gates.numel())]] = 0
    return gates.view(shape.sources, shape.length)


def remember(states: Tensor, gates: Tensor, memory: str) -> Memory:
    """Memory "dense", "pruned" or "short" of encoder outputs (B, S, D) and gates (B, S)."""
    keep = torch.ones_like(gates, dtype=torch.bool)
    if memory == "short":
        rows = 1 + int(gates.sum(-1).max())
        return dense_memory(states[:, :rows], keep[:, :rows])
    gated = states * gates.unsqueeze(-1).to(states.dtype)
    return dense_memory(gated, keep) if memory == "dense" else compress(gated, gates, keep)


def search_ours(model: Transformer, memory: Memory, share: bool, context: int) -> None:
    """STEPS + 2 tokens by `beam_search`."""
    sources = memory.states.size(0)
    if not share:  # as `generate` does: the states are repeated, then projected
        memory = Memory(*(tensor.repeat_interleave(BEAM, 0) for tensor in memory))
    limits = torch.full((sources,), STEPS + 2, device=memory.states.device)
    halfway = Halfway(model, sources * BEAM, context)
    beam_search(halfway, model.project(memory), limits, BEAM, min_length=STEPS + 2)


def search_bart(bart: BartForConditionalGeneration, memory: Memory, counted: bool) -> None:
    """STEPS + 2 tokens by `generate`."""
    attend = memory.log_counts.isfinite().long()
    with counted_attention(bart, memory.log_counts) if counted else nullcontext():
        bart.generate(
            encoder_outputs=BaseModelOutput(memory.states), attention_mask=attend, num_beams=BEAM, do_sample=False,
            min_new_tokens=STEPS + 2, max_new_tokens=STEPS + 2, forced_eos_token_id=None,
        )  # fmt: skip


@torch.inference_mode()
def decode_speed(models: tuple, shape: Shape, repeats: int, device: torch.device) -> dict[tuple[str, str], Speed]:
    """Time all SIDES, interleaved, at one shape."""
    model, bart = models
    source = torch.randint(4, model.config.vocabulary, (shape.sources, shape.length), device=device)
    gates, states = close_gates(shape).to(device), model.encode(source).states
    clocks = {"generate": Clock(bart.get_decoder().layers[0], device)}
    clocks["expanded"] = clocks["shared"] = Clock(model.decoder[0], device)
    steps: dict[tuple, list[float]] = {side: [] for side in SIDES}

    def run(side: tuple[str, str]) -> None:
        decoder, memory = side[0], remember(states, gates, side[1])
        if decoder == "generate":
            search_bart(bart, memory, counted=side[1] == "pruned")
        else:
            search_ours(model, memory, decoder == "shared", shape.tokens // 2)
        steps[side].append(clocks[decoder].step())

    functions: dict = {side: lambda side=side: run(side) for side in SIDES}
    encoder = compare({"encoder": lambda: model.encode(source)}, repeats, 0, device, memory=False)["encoder"]
    timings, speeds = compare(functions, repeats, 0, device), {}
    for side in SIDES:
        step, tries = steps[side][:repeats], timings[side]  # the last run was for memory
        rest = shape.tokens - 1 - (STEPS + 1)  # steps of a whole decode that were not run
        whole = [a + b + rest * c for a, b, c in zip(encoder.times, tries.times, step, strict=True)]
        rows = remember(states, gates, side[1]).states.size(1)
        speeds[side] = Speed(rows, summary(side, step, None), summary(side, whole, tries.peak_bytes))
    return speeds


def summary(name: object, times: list[float], peak_bytes: int | None) -> Timing:
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return Timing(name, middle, high - low, len(times), peak_bytes, tuple(times))


def train_speed(quick: bool, repeats: int, device: torch.device, dtype: torch.dtype) -> dict[str, Timing]:
    """Whole training steps (forward, loss, backward, Adam) with and without the layer: 4 sources of 400, 80 tokens."""
    functions: dict[str, Callable[[], object]] = {}
    source, target = (torch.randint(4, 100, (4, length), device=device) for length in ((24, 8) if quick else (400, 80)))
    for name, l0drop in (("without L0Drop", "none"), ("with L0Drop", "output")):
        model = Transformer(ModelConfig(l0drop=l0drop, **TINY if quick else {})).to(device).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98))

        def update(model=model, optimizer=optimizer) -> None:
            with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
                logits, encoding = model(source, target)
            objective(logits, target, encoding, l0_weight=0.3).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        functions[name] = update
    return compare(functions, repeats, 1, device, memory=False)


def table(shape: Shape, speeds: dict[tuple[str, str], Speed]) -> list[dict[str, object]]:
    """One row per side; "step_x_generate": how many times faster than the dense memory in `generate`, by medians."""
    rows = []
    for (decoder, memory), speed in speeds.items():
        row: dict[str, object] = {"S": shape.length, "T": shape.tokens, "sparsity": shape.sparsity}
        row |= {"decoder": decoder, "memory": memory, "R": speed.rows}
        row |= {"step_ms": 1e3 * speed.step.median, "step_iqr_ms": 1e3 * speed.step.iqr}
        row |= {"whole_s": speed.whole.median, "whole_iqr_s": speed.whole.iqr}
        row["peak_mib"] = speed.whole.peak_bytes / 2**20
        for baseline in ("generate", "expanded", "shared"):
            dense = speeds[baseline, "dense"]
            row[f"step_x_{baseline}"] = dense.step.median / speed.step.median
            row[f"whole_x_{baseline}"] = dense.whole.median / speed.whole.median
        rows.append({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
    return rows


def print_table(rows: list[dict[str, object]]) -> None:
    names = [name for name in rows[0] if name not in ("S", "T", "sparsity")]
    print("\nS {S}, {T} tokens, {sparsity:.1%} pruned; x_NAME: times faster than NAME, dense".format(**rows[0]))
    for row in [dict(zip(names, names, strict=True)), *rows]:
        print("  ".join(f"{row[name]:>{max(len(name), 8)}}" for name in names))


def reading(shape: Shape, speeds: dict[tuple[str, str], Speed]) -> str:
    """What is the pruning's gain and what is the sharing's, in words."""

    def times(slow: tuple[str, str], fast: tuple[str, str]) -> str:
        step, whole = (getattr(speeds[slow], x).median / getattr(speeds[fast], x).median for x in ("step", "whole"))
        return f"{step:.2f}x a step, {whole:.2f}x the whole decode"

    steps = {side: speed.step for side, speed in speeds.items()}
    lines = [f"S {shape.length}, {shape.sparsity:.1%} pruned:"]
    for decoder in ("generate", "expanded", "shared"):
        lines.append(f"pruning's gain in the decoder '{decoder}': {times((decoder, 'dense'), (decoder, 'pruned'))}.")
    for memory in ("dense", "pruned"):
        lines.append(f"sharing's gain, memory {memory}: {times(('expanded', memory), ('shared', memory))}.")
    both = times(("generate", "dense"), ("shared", "pruned"))
    lines.append(f"both, and no re-ordering of the memory, over `generate` at full memory: {both}.")
    for decoder in ("expanded", "shared"):
        middle, spread = ratio(steps, (decoder, "pruned"), (decoder, "short"))
        lines.append(f"a pruned step over one of a source that short, '{decoder}': {middle:.3f} (IQR {spread:.3f}).")
    return "\n  ".join(lines)


def write_csv(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), restval="")
        writer.writeheader()
        writer.writerows(rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m l0drop.benchmark", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="rounds, at least 3 (default 5)")
    parser.add_argument("--shapes", type=int, nargs="+", default=list(SHAPES), choices=list(SHAPES), metavar="S")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "benchmark.csv")
    parser.add_argument("--quick", action="store_true", help="tiny model and source: does it run, nothing more")
    args = parser.parse_args(arguments)
    if args.repeats < 3:
        parser.error(f"--repeats is {args.repeats}; a median needs at least 3")
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    device, dtype = torch.device(args.device), getattr(torch, args.dtype)
    models, rows, readings = make_models(args.quick, device, dtype), [], []
    decode_speed(models, QUICK, 3, device)  # warm-up
    for shape in [QUICK] if args.quick else [SHAPES[length] for length in args.shapes]:
        speeds = decode_speed(models, shape, args.repeats, device)
        rows += table(shape, speeds)
        readings.append(reading(shape, speeds))
        print_table(rows[-len(speeds) :])
    del models
    training = train_speed(args.quick, args.repeats, device, dtype)
    for name, timing in training.items():
        milliseconds = {"step_ms": round(1e3 * timing.median, 3), "step_iqr_ms": round(1e3 * timing.iqr, 3)}
        rows.append({"decoder": "training", "memory": name, **milliseconds})
    middle, spread = ratio(training, "with L0Drop", "without L0Drop")
    readings.append(f"A training step with L0Drop takes {middle:.3f} times one without (IQR {spread:.3f}).")
    print("\n" + "\n".join(readings))
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    run = {"device": args.device, "dtype": args.dtype, "threads": args.threads, "repeats": args.repeats, **versions}
    write_csv(args.csv, [row | run for row in rows])


if __name__ == "__main__":
    main()
