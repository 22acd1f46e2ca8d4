"""What L0Drop saves and costs: decoding time, memory and training time, all sides in one run (Table 1, "Time").

python -m l0drop.benchmark

Three decoders of the paper's size with random weights, beam 4, ten sources:

    generate   a BART of `transformers` through its `generate`; pruned through bart.py
    expanded   ours with the memory repeated for every beam: the ordinary decoder, the paper's baseline
    shared     ours with one memory per source, which its beams share

each over three memories, from gates that close exactly the paper's share of the positions, chosen at random:

    dense      all S positions, zeros included
    pruned     Algorithm 1
    short      of a source that simply has as many positions as the pruned memory has rows: no dummy, no counts

A step is the median time from one token to the next: ours with half the output in its past, `generate`'s with none,
which flatters it. A whole decode of T tokens is put together from what the same round measured: encoder + first token
(in which the memory is gated, compressed and projected) + (T - 1) steps, because at S 2048 `generate` takes minutes.
The encoders are the same computation: ours is timed and counted for all. Memory is the most that a decoder holds.
"""

import argparse
import csv
import statistics
from contextlib import nullcontext
from functools import partial
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

BEAM = 4  # Appendix A
TOKENS = {"generate": 10, "expanded": 26, "shared": 26}  # decoded by each side in each round
SIDES = [(decoder, memory) for decoder in TOKENS for memory in ("dense", "pruned", "short")]
TINY = dict(vocabulary=100, width=16, feed_forward=32, heads=2, encoder_layers=1, decoder_layers=1)  # for --quick


class Shape(NamedTuple):
    sources: int  # B
    length: int  # S
    sparsity: float  # share of closed gates
    tokens: int  # T


SHAPES = {  # Table 1 and Appendix A: batch 10, summaries of 63 and 121 words, here at 1.3 subwords a word
    400: Shape(10, 400, 0.476, 80),  # CNN/Daily Mail
    2048: Shape(10, 2048, 0.715, 160),  # WikiSum
}
QUICK = Shape(2, 24, 0.5, 40)


class Speed(NamedTuple):
    rows: int  # R of the memory
    step: Timing
    whole: Timing


class Halfway:
    """Stands in for a Transformer in `beam_search`: its hypotheses are `context` tokens long from the start."""

    def __init__(self, model: Transformer, rows: int, context: int):
        self.model, self.config, self.past = model, model.config, [Past() for _ in model.decoder]
        heads, width = self.config.heads, self.config.width
        for layer in self.past:
            layer.extend(*model.embedding.weight.new_zeros(2, rows, heads, context, width // heads))

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
        """Median seconds per token since the last call; without the first, in which `generate` projects its memory."""
        times, self.times = self.times[1:], []
        return statistics.median(after - before for before, after in zip(times, times[1:], strict=False))


def make_models(quick: bool, device: torch.device, dtype: torch.dtype) -> list[nn.Module]:
    """Our model and a BART of the same sizes, random weights, in eval mode."""
    config = ModelConfig(**TINY if quick else {})
    bart = BartConfig(
        vocab_size=config.vocabulary, d_model=config.width, activation_function="relu", max_position_embeddings=4096,
        encoder_layers=config.encoder_layers, encoder_ffn_dim=config.feed_forward, encoder_attention_heads=config.heads,
        decoder_layers=config.decoder_layers, decoder_ffn_dim=config.feed_forward, decoder_attention_heads=config.heads,
    )  # fmt: skip
    return [model.to(device, dtype).eval() for model in (Transformer(config), BartForConditionalGeneration(bart))]


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


def search_ours(model: Transformer, memory: Memory, share: bool, tokens: int, context: int) -> None:
    """Project the memory and decode `tokens` more than `context` tokens."""
    sources, device = memory.states.size(0), memory.states.device
    if not share:  # as `generate` does: repeated, then projected
        memory = Memory(*(tensor.repeat_interleave(BEAM, 0) for tensor in memory))
    halfway, limits = Halfway(model, sources * BEAM, context), torch.full((sources,), tokens, device=device)
    beam_search(halfway, model.project(memory), limits, BEAM, min_length=tokens)


def search_bart(bart: BartForConditionalGeneration, memory: Memory, counted: bool, tokens: int) -> None:
    """The same by `generate`, from the first token on."""
    with counted_attention(bart, memory.log_counts) if counted else nullcontext():
        bart.generate(
            encoder_outputs=BaseModelOutput(memory.states), attention_mask=memory.log_counts.isfinite().long(),
            num_beams=BEAM, do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens, forced_eos_token_id=None,
        )  # fmt: skip


@torch.inference_mode()
def decode_speed(models: list, shape: Shape, repeats: int, device: torch.device) -> dict[tuple[str, str], Speed]:
    """Time all SIDES, interleaved, at one shape."""
    model, bart = models
    source = torch.randint(4, model.config.vocabulary, (shape.sources, shape.length), device=device)
    gates, states = close_gates(shape).to(device), model.encode(source).states
    ours, theirs = Clock(model.decoder[0], device), Clock(bart.get_decoder().layers[0], device)
    steps: dict[tuple[str, str], list[float]] = {side: [] for side in SIDES}

    def run(decoder: str, memory_name: str) -> None:
        memory = remember(states, gates, memory_name)
        if decoder == "generate":
            search_bart(bart, memory, memory_name == "pruned", TOKENS[decoder])
        else:
            search_ours(model, memory, decoder == "shared", TOKENS[decoder], shape.tokens // 2)
        steps[decoder, memory_name].append((theirs if decoder == "generate" else ours).step())

    encoder = compare({"encoder": partial(model.encode, source)}, repeats, 0, device, memory=False)["encoder"]
    parts, speeds = compare({side: partial(run, *side) for side in SIDES}, repeats, 0, device), {}
    for side in SIDES:
        step, rest = steps[side][:repeats], shape.tokens - TOKENS[side[0]]  # the last run was for memory
        whole = [a + b + rest * c for a, b, c in zip(encoder.times, parts[side].times, step, strict=True)]
        rows = remember(states, gates, side[1]).states.size(1)
        speeds[side] = Speed(rows, summary(step), summary(whole, parts[side].peak_bytes))
    return speeds


def summary(times: list[float], peak_bytes: int | None = None) -> Timing:
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return Timing("", middle, high - low, len(times), peak_bytes, tuple(times))


def train_speed(quick: bool, repeats: int, device: torch.device, dtype: torch.dtype) -> dict[str, Timing]:
    """Training steps (forward, loss, backward, Adam) with and without the layer: 4 sources of 400, targets of 80."""
    source, target = (torch.randint(4, 100, (4, length), device=device) for length in ((24, 8) if quick else (400, 80)))

    def update(model: Transformer, optimizer: torch.optim.Optimizer) -> None:
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            logits, encoding = model(source, target)
        objective(logits, target, encoding, l0_weight=0.3).mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    functions = {}
    for name, l0drop in (("without L0Drop", "none"), ("with L0Drop", "output")):
        model = Transformer(ModelConfig(l0drop=l0drop, **TINY if quick else {})).to(device).train()
        functions[name] = partial(update, model, torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98)))
    return compare(functions, repeats, 1, device, memory=False)


def table(shape: Shape, speeds: dict[tuple[str, str], Speed]) -> list[dict[str, object]]:
    """A row per side; step_x_shared: how many times faster than `shared` over the dense memory, by medians."""
    rows = []
    for (decoder, memory), (length, step, whole) in speeds.items():
        row = {"S": shape.length, "T": shape.tokens, "decoder": decoder, "memory": memory, "R": length}
        row |= {"step_ms": 1e3 * step.median, "step_iqr_ms": 1e3 * step.iqr}
        row |= {"whole_s": whole.median, "whole_iqr_s": whole.iqr, "peak_mib": whole.peak_bytes / 2**20}
        for baseline in TOKENS:
            dense = speeds[baseline, "dense"]
            row[f"step_x_{baseline}"] = dense.step.median / step.median
            row[f"whole_x_{baseline}"] = dense.whole.median / whole.median
        rows.append({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
    return rows


def reading(shape: Shape, speeds: dict[tuple[str, str], Speed]) -> str:
    """What is the pruning's gain and what is the sharing's, in words."""

    def gain(slow: tuple[str, str], fast: tuple[str, str]) -> str:
        step, whole = (
            getattr(speeds[slow], part).median / getattr(speeds[fast], part).median for part in Speed._fields[1:]
        )
        return f"{step:.2f}x a step, {whole:.2f}x the whole decode."

    lines = [f"\nS {shape.length}, {shape.tokens} tokens, {shape.sparsity:.1%} pruned:"]
    lines += [f"  pruning's gain in {name}: {gain((name, 'dense'), (name, 'pruned'))}" for name in TOKENS]
    for memory in ("dense", "pruned"):
        lines.append(f"  sharing's gain, {memory}: {gain(('expanded', memory), ('shared', memory))}")
    lines.append(
        f"  shared and pruned over generate at full memory: {gain(('generate', 'dense'), ('shared', 'pruned'))}"
    )
    for name in TOKENS:
        steps = {memory: speeds[name, memory].step for memory in ("pruned", "short")}
        lines.append(
            "  a pruned step in {} takes {:.3f} times a short one (IQR {:.3f})".format(name, *ratio(steps, *steps))
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m l0drop.benchmark", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="rounds, at least 3 (default 5)")
    parser.add_argument("--shapes", type=int, nargs="+", default=list(SHAPES), choices=list(SHAPES), help="S")
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
    device, dtype, rows = torch.device(args.device), getattr(torch, args.dtype), []
    models = make_models(args.quick, device, dtype)
    decode_speed(models, QUICK, 3, device)  # warm-up
    for shape in [QUICK] if args.quick else [SHAPES[length] for length in args.shapes]:
        speeds = decode_speed(models, shape, args.repeats, device)
        print(reading(shape, speeds), flush=True)
        rows += table(shape, speeds)
    training = train_speed(args.quick, args.repeats, device, dtype)
    print(
        "\nA training step takes {:.3f} times one without L0Drop (IQR {:.3f}).\n".format(
            *ratio(training, *reversed(training))
        )
    )
    for name, timing in training.items():
        step = {"step_ms": round(1e3 * timing.median, 3), "step_iqr_ms": round(1e3 * timing.iqr, 3)}
        rows.append({"decoder": "training", "memory": name} | step)
    for row in [{name: name for name in rows[0]}] + rows:
        print("  ".join(f"{row.get(name, ''):>{max(len(name), 8)}}" for name in rows[0]))
    run = {"device": args.device, "dtype": args.dtype, "threads": args.threads, "repeats": args.repeats}
    run |= {"torch": torch.__version__, "transformers": transformers.__version__}
    args.csv.parent.mkdir(parents=True, exist_ok=True)
    with args.csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0], *run], restval="")
        writer.writeheader()
        writer.writerows(row | run for row in rows)


if __name__ == "__main__":
    main()
