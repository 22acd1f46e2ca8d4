"""What sentence selection buys: whole summaries by every side in one run, and what the sentence encoders cost.

python -m encdec_sentence_sparse.experiments.benchmark --models base --lengths 800 --csv runs/benchmark.csv

Random weights of BART's sizes, documents of the lengths of Table 4 (CNN/DailyMail and arXiv, the latter cut), float32:

    generate       BART in `generate` as it is
    shared         ours, mode "full": one copy of keys and values per source, the beams as queries to it
    approx R       ours with a selection of R sentences by the learned map, with each sentence encoder; gru is the
                   paper's own system
    mean_key R     ours with a selection by the mean key of each sentence

"End to end" is a sum of parts that were timed apart: the encoder (LoBART's beyond 1,024 tokens), the sentence encoder
and the decode from encoder states. Every side runs once a round, each round in another order; a number is the median
over the rounds, a ratio the median of the ratios within rounds, with its interval (`spread`).
"""

import copy
import math
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
import transformers
import tyro
from torch import Tensor, nn
from transformers import BartForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from shared.data import open_output, write_csv
from shared.run import find_device, one_line_errors
from shared.score import in_columns

from ..approximator import KINDS, SentenceEncoder
from ..model import SentenceSparseBart, add_approximator, bart_config
from ..selection import Selection
from ..sentences import sentences_of
from .lobart import make_local
from .mean_key import use_mean_keys

MODELS = {  # vocabulary, width, feed-forward width, heads, layers
    "base": (50265, 768, 3072, 12, 6),
    "large": (50265, 1024, 4096, 16, 12),
    "tiny": (60, 16, 32, 2, 2),
}
SENTENCES = {800: 29, 4000: 120}  # S: N; any other length has a sentence per 30 words
BEAMS = 4  # of every summary


def config_of(name: str) -> transformers.BartConfig:
    return bart_config(*MODELS[name], 4096, forced_eos_token_id=None)


def make_models(name: str, device: torch.device) -> tuple[nn.Module, SentenceSparseBart]:
    """A BART and ours with the same weights, in eval mode; ours with the cheapest sentence encoder."""
    ours, bart = SentenceSparseBart(config_of(name)), BartForConditionalGeneration(config_of(name))
    add_approximator(ours, "mean")
    bart.load_state_dict(ours.state_dict(), strict=False)
    return bart.to(device).eval(), ours.to(device).eval()


def make_source(length: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """(1, S) tokens and sentence ids of a document in sentences of random lengths."""
    rng, count = np.random.default_rng(0), SENTENCES.get(length, length // 30)
    ends = np.sort(rng.choice(np.arange(1, length), count - 1, replace=False))
    ids = torch.from_numpy(np.searchsorted(ends, np.arange(length), side="right")).unsqueeze(0)
    return torch.randint(4, vocabulary, ids.shape), ids


def make_sides(
    models: tuple[nn.Module, SentenceSparseBart], length: int, new_tokens: int, read: tuple[int, ...]
) -> dict[str, Callable]:
    """Encoder, sentence encoders, and a whole decode from encoder states by each side, of `new_tokens` tokens."""
    bart, ours = models
    tokens, sentence_ids = (part.to(ours.device) for part in make_source(length, ours.config.vocab_size))
    encoder, attention_mask = copy.deepcopy(bart), torch.ones_like(tokens)
    if length > 1024:
        make_local(encoder)
    parts: dict[str, Callable] = {"encoder": partial(encoder.get_encoder(), input_ids=tokens)}
    states = parts["encoder"]()[0]
    sentences = sentences_of(sentence_ids, attention_mask, states.dtype)
    for kind in KINDS:
        parts[kind] = partial(SentenceEncoder(kind, states.size(-1)).to(states).eval(), states, sentences)
    search = dict(num_beams=BEAMS, do_sample=False, min_new_tokens=new_tokens, max_new_tokens=new_tokens)

    def decode(model: nn.Module, **more) -> int:
        outputs = BaseModelOutput(states)
        return model.generate(encoder_outputs=outputs, attention_mask=attention_mask, **more, **search).size(1) - 1

    parts["generate"] = partial(decode, bart)
    parts["shared"] = partial(decode, ours, sentence_ids=sentence_ids)
    by_mean = use_mean_keys(copy.deepcopy(ours))
    for r in read:
        selected = dict(sentence_ids=sentence_ids, selection=Selection("approx", r))
        parts[f"approx {r}"] = partial(decode, ours, **selected)
        parts[f"mean_key {r}"] = partial(decode, by_mean, **selected)
    return parts


def time_rounds(sides: dict[str, Callable], repeats: int = 7, device: str = "cpu") -> dict[str, np.ndarray]:
    """Seconds of each side, (repeats,), after a round that does not count; each round begins with another side.

    On one thread of the CPU they are CPU seconds, which other work beside lengthens least. CUDA returns from a call
    early, so the clock waits for it.
    """
    is_cuda, names = torch.device(device).type == "cuda", list(sides)
    clock = time.process_time if not is_cuda and torch.get_num_threads() == 1 else time.perf_counter
    wait = torch.cuda.synchronize if is_cuda else lambda: None
    seconds = {name: np.zeros(1 + repeats) for name in names}
    for number in range(1 + repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            wait()
            start = clock()
            sides[name]()
            wait()
            seconds[name][number] = clock() - start
    return {name: values[1:] for name, values in seconds.items()}


def spread(values: np.ndarray) -> dict[str, float]:
    """Median and its interval of 95 % or more, by ranks: of up to 8 rounds the lowest and the highest."""
    ordered, n = np.sort(values), len(values)
    outside = np.cumsum([math.comb(n, k) for k in range(n)]) / 2.0**n  # the median is below the lowest, the second, ...
    rank = max(int((2 * outside <= 0.05).sum()), 1)
    return {"mean": float(np.median(ordered)), "low": float(ordered[rank - 1]), "high": float(ordered[-rank])}


def shown(value: object) -> str:
    """A number with its interval, or what else stands in a row."""
    return "{mean:.2f} [{low:.2f}, {high:.2f}]".format(**value) if isinstance(value, dict) else str(value)


def rows_of(seconds: dict[str, np.ndarray]) -> list[dict]:
    """A row per side, of approx one per sentence encoder: the decode, and end to end how many times as fast it is."""
    whole = {}
    for side in seconds.keys() - {"encoder", *KINDS}:
        for kind in KINDS if side.startswith("approx") else [""]:
            whole[f"{side}, {kind}".rstrip(", ")] = seconds["encoder"] + seconds.get(kind, 0.0) + seconds[side]
    rows = [{"side": part, "seconds": spread(seconds[part])} for part in ("encoder", *KINDS)]
    for name in sorted(whole):
        decode = seconds[name.partition(",")[0]]
        row = {"side": name, "seconds": spread(decode), "decode x shared": spread(seconds["shared"] / decode)}
        row |= {"end to end": spread(whole[name])}
        rows.append(row | {f"x {other}": spread(whole[other] / whole[name]) for other in ("generate", "shared")})
    return rows


@torch.inference_mode()
def main(
    models: tuple[str, ...] = ("base", "large"),
    lengths: tuple[int, ...] = (800, 4000),
    tokens: int = 67,
    r: tuple[int, ...] = (5, 10),
    repeats: int = 7,
    device: str = "cpu",
    csv: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Time all sides on one thread, print a table, write it as CSV."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    used = dict(beams=BEAMS, tokens=tokens, device=device, threads=1, repeats=repeats, torch=torch.__version__)
    with open_output(csv, overwrite) as file:
        rows = []
        for name, length in product(models, lengths):
            sides = make_sides(make_models(name, find_device(device)), length, tokens, r)
            shape = {"model": name, "length": length}
            rows += [shape | row for row in rows_of(time_rounds(sides, repeats, device=device))]
        print(in_columns([{name: shown(value) for name, value in row.items()} for row in rows]))
        if csv:
            write_csv(file, [row | used | {"transformers": transformers.__version__} for row in rows])


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
