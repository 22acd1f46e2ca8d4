"""What sentence selection buys: whole summaries by every side in one run, and what the sentence
encoders cost.

python -m encdec_sentence_sparse.experiments.benchmark --csv runs/benchmark.csv

Random weights of BART-base's size, one document, beam 4, one thread, CPU seconds. Sides: `generate`
of transformers; ours under full attention ("shared"); ours with R sentences by the learned map
("approx R"), which with the GRU is the paper's system, or by mean keys. "End to end" is a sum of
parts that were timed apart: the encoder (LoBART's beyond 1,024 tokens), the sentence encoder and
the decode. A number is the median over rounds with the lowest and highest one.
"""

import copy
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
import tyro
from transformers import BartForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from shared.data import open_output, write_csv
from shared.run import one_line_errors

from ..approximator import KINDS, SentenceEncoder
from ..model import SentenceSparseBart, add_approximator, bart_config
from ..selection import Selection, sentences_of
from .lobart import make_local
from .mean_key import use_mean_keys

# vocabulary, widths, heads, layers
MODELS = {"base": (50265, 768, 3072, 12, 6), "tiny": (60, 16, 32, 2, 2)}
# Tokens and sentences of a document, tokens of a summary; r; rounds: CNN/DailyMail and arXiv (cut)
# of Table 4.
LENGTHS = {
    "base": ((800, 29, 67, (5, 10), 5), (4000, 120, 365, (10, 30), 3)),
    "tiny": ((60, 4, 5, (1, 2), 2),),
}


def make_models(name: str) -> tuple[BartForConditionalGeneration, SentenceSparseBart]:
    """A BART and ours with the same weights, in eval mode; ours with the cheapest sentence
    encoder.
    """
    config = bart_config(*MODELS[name], 4096, forced_eos_token_id=None)
    bart, ours = BartForConditionalGeneration(config), SentenceSparseBart(config)
    add_approximator(ours, "mean")
    bart.load_state_dict(ours.state_dict(), strict=False)
    return bart.eval(), ours.eval()


def make_sides(
    models: tuple, length: int, count: int, new_tokens: int, read: tuple[int, ...]
) -> dict:
    """Encoder, sentence encoders, and a whole decode from encoder states by each side, of
    `new_tokens` tokens.
    """
    bart, ours = models
    tokens = torch.randint(4, ours.config.vocab_size, (1, length))
    ends = np.random.default_rng(0).choice(np.arange(1, length), count - 1, replace=False)
    sentence_ids = torch.from_numpy(
        np.searchsorted(np.sort(ends), np.arange(length), side="right")
    ).unsqueeze(0)
    attention_mask = torch.ones_like(tokens)
    if length > 1024:
        make_local(bart)
    parts = {"encoder": partial(bart.get_encoder(), input_ids=tokens)}
    states = parts["encoder"]()[0]
    for kind in KINDS:
        encode = SentenceEncoder(kind, states.size(-1)).eval()
        parts[kind] = partial(encode, states, sentences_of(sentence_ids, attention_mask))

    def decode(model, **more) -> int:
        more |= dict(encoder_outputs=BaseModelOutput(states), attention_mask=attention_mask)
        lengths = dict(min_new_tokens=new_tokens, max_new_tokens=new_tokens)
        return model.generate(**more, **lengths, num_beams=4, do_sample=False).size(1) - 1

    parts["generate"] = partial(decode, bart)
    parts["shared"] = partial(decode, ours, sentence_ids=sentence_ids)
    by_mean = use_mean_keys(copy.deepcopy(ours))
    for r in read:
        selected = dict(sentence_ids=sentence_ids, selection=Selection("approx", r))
        parts[f"approx {r}"] = partial(decode, ours, **selected)
        parts[f"mean_key {r}"] = partial(decode, by_mean, **selected)
    return parts


def time_rounds(sides: dict, repeats: int) -> dict:
    """CPU seconds of each side, (repeats,), after a round that does not count; each round begins
    with another side.
    """
    names, seconds = list(sides), {name: np.zeros(1 + repeats) for name in sides}
    for number in range(1 + repeats):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            start = time.process_time()
            sides[name]()
            seconds[name][number] = time.process_time() - start
    return {name: values[1:] for name, values in seconds.items()}


def spread(values: np.ndarray) -> dict[str, float]:
    """Median, lowest and highest of the rounds."""
    return {
        "mean": float(np.median(values)),
        "low": float(values.min()),
        "high": float(values.max()),
    }


def rows_of(seconds: dict[str, np.ndarray]) -> list[dict]:
    """A row per side, of approx one per sentence encoder: the decode, and end to end how many times
    as fast it is.
    """
    rows = [{"side": part, "seconds": spread(seconds[part])} for part in ("encoder", *KINDS)]
    whole = {
        side: seconds["encoder"] + seconds[side] for side in seconds.keys() - {"encoder", *KINDS}
    }
    for side in [side for side in whole if side.startswith("approx")]:
        before = whole.pop(side)
        whole |= {f"{side}, {kind}": before + seconds[kind] for kind in KINDS}
    for name in sorted(whole):
        decode = seconds[name.partition(",")[0]]
        row = {
            "side": name,
            "seconds": spread(decode),
            "decode x shared": spread(seconds["shared"] / decode),
        }
        row |= {"end to end": spread(whole[name])}
        rows.append(
            row
            | {f"x {other}": spread(whole[other] / whole[name]) for other in ("generate", "shared")}
        )
    return rows


@torch.inference_mode()
def main(model: str = "base", csv: Path | None = None, overwrite: bool = False) -> None:
    """Time all sides at both lengths; write them as CSV."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with open_output(csv, overwrite) as file:
        rows = []
        for *sizes, repeats in LENGTHS[model]:
            used = {"model": model, "length": sizes[0], "tokens": sizes[2], "repeats": repeats}
            seconds = time_rounds(make_sides(make_models(model), *sizes), repeats)
            rows += [used | row for row in rows_of(seconds)]
        write_csv(file, rows)


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
