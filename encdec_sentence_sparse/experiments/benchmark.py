"""What reading r sentences a step buys and costs: whole summaries by every side in one run.

python -m encdec_sentence_sparse.experiments.benchmark --csv runs/benchmark.csv    # or --quick

Random weights of BART-base's size, one document, beam 4. Sides: `generate` of transformers; ours
under full attention ("shared": one copy of the source for all beams); ours with r sentences by the
learned map ("approx r"), which with the GRU is the paper's system. "End to end" is a sum of parts
that were timed apart: the encoder (LoBART's beyond 1,024 tokens), the sentence encoder and the
decode. A number is the median over rounds, with its interval (`shared.timing.spread`).
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from transformers import BartForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from shared.data import open_output, write_csv
from shared.run import find_device, one_line_errors, read_flags
from shared.timing import Times, spread, time_rounds

from ..approximator import KINDS, SentenceEncoder
from ..model import SentenceSparseBart, add_approximator, bart_config
from ..selection import FULL, Selection, sentences_of
from .lobart import make_local

Count = Annotated[int, (1, 10**6)]
DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# vocabulary, widths, heads, layers
MODELS = {"base": (50265, 768, 3072, 12, 6), "tiny": (60, 16, 32, 2, 2)}


class Sizes(NamedTuple):
    """A document and its summary."""

    length: int  # tokens of the document
    sentences: int
    tokens: int  # of the summary
    read: tuple[int, ...]  # r


# Table 4's CNN/DailyMail and arXiv (cut), and what lies between.
LENGTHS = [Sizes(800, 29, 67, (5,)), Sizes(2000, 60, 150, (10,)), Sizes(4000, 120, 365, (10, 30))]
QUICK = [Sizes(60, 4, 5, (1, 2))]


@dataclass
class Options:
    """The command line."""

    csv: Path | None = None  # Where the rows go; none: standard output.
    overwrite: bool = False  # Replace that file.
    device: str = "cpu"  # Device of torch.
    precision: Literal[tuple(DTYPES)] = "float32"  # Of the weights and of all that is computed.
    threads: Count = 1  # Of the CPU; with 1 CPU seconds count, else those of the wall's clock.
    repeats: Count = 5  # Rounds.
    quick: bool = False  # A tiny model, a short text, two rounds: does it run?


def make_models(name: str) -> tuple[BartForConditionalGeneration, SentenceSparseBart]:
    """A BART and ours with the same weights, in eval mode; ours with the cheapest map."""
    config = bart_config(*MODELS[name], 4096, forced_eos_token_id=None)
    bart, ours = BartForConditionalGeneration(config), SentenceSparseBart(config)
    add_approximator(ours, "mean")
    bart.load_state_dict(ours.state_dict(), strict=False)
    return bart.eval(), ours.eval()


def make_sides(models: tuple, sizes: Sizes) -> dict:
    """Encoder, sentence encoders, and each side's whole decode from the encoder's states."""
    bart, ours = models
    tokens = torch.randint(4, ours.config.vocab_size, (1, sizes.length), device=ours.device)
    inside = np.arange(1, sizes.length)
    starts = np.sort(np.random.default_rng(0).choice(inside, sizes.sentences - 1, replace=False))
    ids = np.searchsorted(starts, np.arange(sizes.length), side="right")
    sentence_ids = torch.from_numpy(ids).unsqueeze(0).to(ours.device)
    attention_mask = torch.ones_like(tokens)
    if sizes.length > 1024:
        make_local(bart)
    parts = {"encoder": partial(bart.get_encoder(), input_ids=tokens)}
    states = parts["encoder"]()[0]
    for kind in KINDS:
        encode = SentenceEncoder(kind, states.size(-1)).to(states.device, states.dtype).eval()
        sentences = sentences_of(sentence_ids, attention_mask, states.dtype)
        parts[kind] = partial(encode, states, sentences)

    def decode(model, **more) -> int:
        output = model.generate(
            encoder_outputs=BaseModelOutput(states),
            attention_mask=attention_mask,
            min_new_tokens=sizes.tokens,
            max_new_tokens=sizes.tokens,
            num_beams=4,
            do_sample=False,
            **more,
        )
        return output.size(1) - 1

    parts["generate"] = partial(decode, bart)
    parts["shared"] = partial(decode, ours, sentence_ids=sentence_ids, selection=FULL)
    for r in sizes.read:
        selection = Selection("approx", r)
        parts[f"approx {r}"] = partial(decode, ours, sentence_ids=sentence_ids, selection=selection)
    return parts


def rows_of(times: dict[str, Times]) -> list[dict]:
    """A row per part and side, of approx one per sentence encoder; ratios are within rounds."""
    seconds = {name: part.seconds for name, part in times.items()}
    rows = [{"side": part, "seconds": spread(seconds[part])} for part in ("encoder", *KINDS)]
    whole = {}  # end to end
    for side in seconds.keys() - {"encoder", *KINDS}:
        if side.startswith("approx"):
            for kind in KINDS:
                whole[f"{side}, {kind}"] = seconds["encoder"] + seconds[kind] + seconds[side]
        else:
            whole[side] = seconds["encoder"] + seconds[side]
    for name in sorted(whole):
        decode = name.partition(",")[0]
        rows.append({
            "side": name,
            "seconds": spread(seconds[decode]),
            "decode x shared": spread(seconds["shared"] / seconds[decode]),
            "end to end": spread(whole[name]),
            "x generate": spread(whole["generate"] / whole[name]),
            "x shared": spread(whole["shared"] / whole[name]),
            "peak_bytes": times[decode].peak,
        })  # fmt: skip
    return rows


@one_line_errors
def main(arguments=None) -> None:
    options = read_flags(Options, arguments, __doc__)
    device = find_device(options.device)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    chosen = LENGTHS
    if options.quick:
        chosen, options.repeats = QUICK, 2
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    used = {"device": name, "precision": options.precision, "threads": options.threads}
    used |= {"torch": torch.__version__, "repeats": options.repeats}
    rows = []
    with open_output(options.csv, options.overwrite) as file, torch.inference_mode():
        for sizes in chosen:
            models = make_models("tiny" if options.quick else "base")
            models = [model.to(device, DTYPES[options.precision]) for model in models]
            times = time_rounds(make_sides(models, sizes), options.repeats, device=device)
            lengths = {"length": sizes.length, "tokens": sizes.tokens}
            rows += [used | lengths | row for row in rows_of(times)]
        write_csv(file, rows)


if __name__ == "__main__":
    main()
