"""What sentence selection buys: decoding time of four sides in one run, and what the sentence encoders cost.

python -m encdec_sentence_sparse.benchmark --csv runs/benchmark.csv
python -m encdec_sentence_sparse.benchmark --models base --table-1 --appendix-b      # how time grows with the lengths

Random weights of BART's sizes, documents of the lengths of Table 4 (CNN/DailyMail and arXiv, the latter cut):

    generate    BART in `generate` as it is
    in place    the same, but keys and values of the source are not moved when beams change places
    shared      ours, mode "full": one copy of keys and values per source, the beams as queries to it
    MODE rR     ours with selection: the learned query map (approx, with each sentence encoder; gru is the paper's own
                system) or the mean key of each sentence (mean_key), per beam as in the paper or one choice for all
                beams (+ one choice; released code), R sentences

A decode starts from encoder states and makes `--tokens` tokens. A step is the median time from one token to the next.
End to end are the encoder, the sentence encoder (both timed by themselves, being the same for all) and the decode.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Literal, NamedTuple

import numpy as np
import torch
import transformers
import tyro
from torch import Tensor, nn
from transformers import BartConfig, BartForConditionalGeneration, DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from shared import rouge
from shared.data import check_outputs, write_csv
from shared.timing import Timing, compare, find_device, ratio

from .approximator import KINDS, SentenceEncoder
from .cost import fit_quadratic, fit_surface
from .model import SentenceSparseBart, add_approximator
from .run import one_line_errors
from .selection import Selection, sentences_of

MODELS = {  # width, layers, heads, feed-forward width, vocabulary
    "base": (768, 6, 12, 3072, 50265),
    "large": (1024, 12, 16, 4096, 50265),
    "tiny": (16, 2, 2, 32, 60),
}
WINDOW = {"base": 1024, "large": 1024, "tiny": 8}  # LoBART's, for documents longer than 1024
SENTENCES = {800: 29, 4000: 120, 24: 6}  # S: N; 24 is for --quick
PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Options:
    """The command line."""

    models: tuple[Literal["base", "large"], ...] = ("base", "large")
    lengths: tuple[Literal[800, 4000], ...] = (800, 4000)  # words of a document; CNN/DailyMail and arXiv
    beams: tuple[int, ...] = (1, 4)
    sources: tuple[int, ...] = (1,)  # documents decoded at a time
    r: tuple[int, ...] = (5, 10, 30)  # sentences to attend to
    tokens: int = 24  # of a summary
    repeats: int = 5  # timed rounds, at least 3
    threads: int = 1
    precision: Literal[tuple(PRECISIONS)] = "float32"
    device: str = "cpu"
    csv: Path | None = None  # write all rows here
    quick: bool = False  # a tiny model: shows that all sides run, nothing more
    table_1: bool = False  # instead: time by summary length in three modes
    appendix_b: bool = False  # instead: time by both lengths, six coefficients


class Shape(NamedTuple):
    model: str
    length: int  # S of the longest document
    beams: int
    sources: int  # B


class Source(NamedTuple):
    states: Tensor  # (B, S, D) as from an encoder
    attention_mask: Tensor  # (B, S)
    sentence_ids: Tensor  # (B, S)


class InPlaceCache(EncoderDecoderCache):
    """transformers' cache, which keeps a copy of the source per beam, without moving those copies."""

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.self_attention_cache.reorder_cache(beam_idx)


class Clock:
    """Reads the time whenever a decoder begins a token, as in l0drop/benchmark.py."""

    def __init__(self, layer: nn.Module, device: torch.device):
        self.device, self.times = device, []
        layer.register_forward_pre_hook(self.read)

    def read(self, *_) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.times.append(perf_counter())

    def step(self) -> float:
        """Median seconds per token since the last call, without the first, in which `generate` projects the source."""
        times, self.times = self.times[1:], []
        return statistics.median(after - before for before, after in zip(times, times[1:], strict=False))


def make_config(name: str) -> BartConfig:
    width, layers, heads, feed_forward, vocabulary = MODELS[name]
    return BartConfig(
        vocab_size=vocabulary, d_model=width, max_position_embeddings=4096, forced_eos_token_id=None,
        encoder_layers=layers, encoder_attention_heads=heads, encoder_ffn_dim=feed_forward,
        decoder_layers=layers, decoder_attention_heads=heads, decoder_ffn_dim=feed_forward,
    )  # fmt: skip


def make_models(name: str, device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, SentenceSparseBart]:
    """A BART and ours with the same weights, in eval mode; ours with the cheapest sentence encoder."""
    ours = SentenceSparseBart(make_config(name))
    add_approximator(ours, "mean")
    bart = BartForConditionalGeneration(make_config(name))
    bart.load_state_dict(ours.state_dict(), strict=False)
    return bart.to(device, dtype).eval(), ours.to(device, dtype).eval()


def make_source(shape: Shape, device: torch.device, dtype: torch.dtype) -> Source:
    """Documents of S, 0.95 S, 0.9 S ... tokens in sentences of random lengths."""
    rng = np.random.default_rng(0)
    ids = torch.full((shape.sources, shape.length), -1)
    for document in range(shape.sources):
        length = round(shape.length * (1 - 0.05 * document))
        sentences = round(SENTENCES[shape.length] * length / shape.length)
        ends = np.sort(rng.choice(np.arange(1, length), sentences - 1, replace=False))
        ids[document, :length] = torch.from_numpy(np.searchsorted(ends, np.arange(length), side="right"))
    states = torch.randn(*ids.shape, MODELS[shape.model][0])
    return Source(states.to(device, dtype), (ids >= 0).long().to(device), ids.to(device))


def sides(models: tuple, shape: Shape, source: Source, tokens: int, rs: list[int]) -> dict[str, Callable[[], object]]:
    """A whole decode from encoder states, by side."""
    bart, ours = models
    flags = dict(
        num_beams=shape.beams, do_sample=False, min_new_tokens=tokens, max_new_tokens=tokens,
        attention_mask=source.attention_mask,
    )  # fmt: skip

    def theirs(in_place: bool) -> None:
        cache = InPlaceCache(*(DynamicCache(config=bart.config) for _ in range(2)))
        given = dict(past_key_values=cache) if in_place else {}
        bart.generate(encoder_outputs=BaseModelOutput(source.states), **given, **flags)

    def shared(selection: Selection) -> None:
        ours.selection = selection
        ours.generate(encoder_outputs=BaseModelOutput(source.states), sentence_ids=source.sentence_ids, **flags)

    found = {"generate": partial(theirs, False)}
    if shape.beams > 1:
        found["in place"] = partial(theirs, True)
    found["shared"] = partial(shared, Selection("full"))
    for mode, r in product(("approx", "mean_key"), rs):
        found[f"{mode} r{r}"] = partial(shared, Selection(mode, r))
        if shape.beams > 1:
            found[f"{mode} r{r} + one choice"] = partial(shared, Selection(mode, r, share_beams=True))
    return found


class Measured(NamedTuple):
    step: Timing
    whole: Timing


def summary(times: list[float]) -> Timing:
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return Timing("", middle, high - low, len(times), None, tuple(times))


@torch.inference_mode()
def decode_speed(
    models: tuple, shape: Shape, tokens: int, rs: Sequence[int], repeats: int, device: torch.device, dtype: torch.dtype
) -> dict[str, Measured]:
    """Time all sides at one shape, interleaved."""
    source = make_source(shape, device, dtype)
    clocks = [Clock(model.get_decoder().layers[0], device) for model in models]
    functions = sides(models, shape, source, tokens, rs)
    steps: dict[str, list[float]] = {side: [] for side in functions}

    def run(side: str) -> None:
        functions[side]()
        steps[side].append(clocks[0 if side in ("generate", "in place") else 1].step())

    whole = compare({side: partial(run, side) for side in functions}, repeats, 1, device)
    return {side: Measured(summary(steps[side][1 : 1 + repeats]), whole[side]) for side in functions}  # after warm-up


@torch.inference_mode()
def encoder_speed(
    models: tuple, shape: Shape, repeats: int, device: torch.device, dtype: torch.dtype
) -> dict[str, Timing]:
    """The encoder (LoBART's where BART's positions end), the sentence encoders, and the mean keys of all layers."""
    config = make_config(shape.model)
    if shape.length > 1024 or shape.model == "tiny":
        config.attention_window = WINDOW[shape.model]
    source, (_, ours) = make_source(shape, device, dtype), models
    encoder = SentenceSparseBart(config).get_encoder().to(device, dtype).eval()
    tokens = torch.randint(4, config.vocab_size, source.sentence_ids.shape, device=device)
    sentences = sentences_of(source.sentence_ids, source.attention_mask, dtype)
    functions = {"encoder": partial(encoder, input_ids=tokens, attention_mask=source.attention_mask)}
    for kind in KINDS:
        sentence_encoder = SentenceEncoder(kind, config.d_model).to(device, dtype).eval()
        functions[kind] = partial(sentence_encoder, source.states, sentences)

    def project(mode: str) -> list:
        return [attention.project(source.states, sentences, Selection(mode)) for attention in ours.attentions]

    functions |= {"keys and values": partial(project, "full"), "and mean keys": partial(project, "mean_key")}
    return compare(functions, repeats, 1, device, memory=False)


def decode_rows(shape: Shape, tokens: int, measured: dict[str, Measured], parts: dict[str, Timing]) -> list[dict]:
    """A row per side, of approx one per sentence encoder; X_x_shared: how many times faster than side `shared`.

    Ratios of steps and of whole decodes are medians of those within rounds; end to end, ratios of medians.
    """
    rows, encoder = [], parts["encoder"].median
    for side, (step, whole) in measured.items():
        for kind in KINDS if side.startswith("approx") else [None]:
            total = encoder + whole.median + (parts[kind].median if kind else 0.0)
            row = {**shape._asdict(), "sentences": SENTENCES[shape.length], "tokens": tokens}
            row |= {"side": f"{side}, {kind}" if kind else side, "step_ms": 1e3 * step.median, "whole_s": whole.median}
            row |= {"whole_iqr_s": whole.iqr, "end_to_end_s": total, "peak_mib": whole.peak_bytes / 2**20}
            for baseline in ("generate", "shared"):
                for part in Measured._fields:
                    pair = {name: getattr(measured[name], part) for name in (baseline, side)}
                    row[f"{part}_x_{baseline}"], row[f"{part}_x_{baseline}_iqr"] = ratio(pair, baseline, side)
                row[f"end_to_end_x_{baseline}"] = (encoder + measured[baseline].whole.median) / total
            rows.append(row)
    return rows


def decoding(options: Options, device: torch.device, dtype: torch.dtype) -> list[dict]:
    """Rows of all shapes, and of what runs once per document beside the decoder."""
    rows = []
    for name in ["tiny"] if options.quick else options.models:
        models = make_models(name, device, dtype)
        for length, sources in product([24] if options.quick else options.lengths, options.sources):
            shape = Shape(name, length, 1, sources)
            parts = encoder_speed(models, shape, max(3, options.repeats // 2), device, dtype)
            once = [
                {"table": "encoders", "model": name, "length": length, "sources": sources, "part": part}
                | {"seconds": timing.median, "share": timing.median / parts["encoder"].median}
                for part, timing in parts.items()
            ]
            print(rouge.table([{key: row[key] for key in [*row][1:]} for row in once]), flush=True)
            rows += once
            for beams in options.beams:
                shape = shape._replace(beams=beams)
                measured = decode_speed(models, shape, options.tokens, options.r, options.repeats, device, dtype)
                decoded = decode_rows(shape, options.tokens, measured, parts)
                shown = ("model", "length", "beams", "side", "step_ms", "whole_s", "whole_x_generate", "whole_x_shared",
                         "end_to_end_x_generate", "end_to_end_x_shared", "peak_mib")  # fmt: skip
                print(rouge.table([{key: row[key] for key in shown} for row in decoded]), flush=True)
                rows += [{"table": "decode"} | row for row in decoded]
    return rows


# Table 1 and Appendix B: how time grows with the lengths of source and summary


def operating_modes(bart: nn.Module, source: int, target: int) -> dict[str, Callable[[], object]]:
    """The three modes of Section 3 on one random document: N = source, M = target tokens.

    D22: without dropout; inference is greedy, with a cache. Times are medians (the paper: the mean of 100 passes).
    """
    tokens = partial(torch.randint, 4, bart.config.vocab_size, device=bart.device)
    document, summary = tokens((1, source)), tokens((1, target))

    def forward_and_backward() -> None:
        bart(input_ids=document, labels=summary).loss.backward()
        bart.zero_grad(set_to_none=True)

    @torch.no_grad()
    def forward() -> None:
        bart(input_ids=document, labels=summary)

    def inference() -> None:
        bart.generate(document, num_beams=1, do_sample=False, min_new_tokens=target, max_new_tokens=target)

    return {"forward+backward": forward_and_backward, "forward": forward, "inference": inference}


def table_1(bart: nn.Module, source: int, targets: Sequence[int], repeats: int) -> tuple[list[dict], list[dict]]:
    """Table 1: Eq. (1) through the median times of each mode. Rows of the table, and of the times."""
    functions = {(m, t): function for t in targets for m, function in operating_modes(bart, source, t).items()}
    timings = compare(functions, repeats, 1, bart.device, memory=False)
    rows, times = [], [{"mode": m, "N": source, "M": t, "seconds": timings[m, t].median} for m, t in functions]
    for mode in dict.fromkeys(mode for mode, _ in functions):
        fit = fit_quadratic(targets, [timings[mode, target].median for target in targets])
        _, linear, square = fit.normalised
        row = {"mode": mode, "N": source, "c1_s": fit.coefficients[0], "c2/c1_1e-3": 1e3 * linear}
        rows.append(row | {"c3/c1_1e-6": 1e6 * square, "r_squared": fit.r_squared})
    return rows, times


def appendix_b(
    bart: nn.Module, sources: Sequence[int], targets: Sequence[int], repeats: int
) -> tuple[list[dict], list[dict]]:
    """Appendix B: six coefficients of the time of a forward and backward pass. A row, and rows of the times."""
    places = list(product(sources, targets))
    functions = {(n, m): operating_modes(bart, n, m)["forward+backward"] for n, m in places}
    timings = compare(functions, repeats, 1, bart.device, memory=False)
    seconds = [timings[place].median for place in places]
    fit = fit_surface([m for _, m in places], [n for n, _ in places], seconds)
    row = {"c1_s": fit.coefficients[0], "r_squared": fit.r_squared}
    row |= {f"c{number}/c1": value for number, value in enumerate(fit.normalised, start=1)}
    return [row], [{"N": n, "M": m, "seconds": s} for (n, m), s in zip(places, seconds, strict=True)]


def time_growth(options: Options, device: torch.device, dtype: torch.dtype) -> list[dict]:
    """--table-1 and --appendix-b: the fits, printed, and the times beside them."""
    targets = [4, 6, 8, 10] if options.quick else list(range(50, 301, 50))
    sources = [8, 16, 24] if options.quick else list(range(256, 1025, 192))
    rows = []
    for name in ["tiny"] if options.quick else options.models:
        bart = BartForConditionalGeneration(make_config(name)).to(device, dtype).eval()
        tasks = {"table_1": partial(table_1, bart, sources[-1]), "appendix_b": partial(appendix_b, bart, sources)}
        for task, measure in tasks.items():
            if getattr(options, task):
                fits, times = measure(targets, options.repeats)
                shown = [{k: f"{v:.4g}" if isinstance(v, float) else v for k, v in fit.items()} for fit in fits]
                print(rouge.table([{"model": name} | row for row in shown]))
                for table, measured in ((task, fits), (f"{task}_times", times)):
                    rows += [{"table": table, "model": name} | row for row in measured]
    return rows


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = tyro.cli(
        Options, prog=f"python -m {__package__}.benchmark", description=__doc__, args=arguments,
        config=(tyro.conf.FlagCreatePairsOff,),
    )  # fmt: skip
    if options.repeats < 3 or options.tokens < 4 or min(*options.r, *options.beams, *options.sources) < 1:
        raise ValueError("need 3 repeats, 4 tokens, and r, beams and sources of at least 1")
    device, dtype = find_device(options.device), PRECISIONS[options.precision]
    check_outputs(options.csv)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = (time_growth if options.table_1 or options.appendix_b else decoding)(options, device, dtype)
    used = {name: getattr(options, name) for name in ("device", "precision", "threads", "repeats")}
    used |= {"torch": torch.__version__, "transformers": transformers.__version__}
    if options.csv:
        write_csv(options.csv, [row | used for row in rows])


if __name__ == "__main__":
    main()
