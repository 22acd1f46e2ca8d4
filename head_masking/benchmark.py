"""What masking costs, and what encoding each document once saves: all sides measured in one run.

python -m head_masking.benchmark

Models of the shapes of bart-base and bart-large with random weights decode documents of random tokens, whole decodes
with the encoder in them, to a fixed number of tokens:

    plain        `generate` as it is
    one layer    all heads of layer 1 masked, the paper's choice for CNN/DailyMail
    all layers   all heads of all layers masked, each document with labels of its own

and a sweep decodes a few settings at beam 1 (Appendix A) with the encoder once, or once for each setting.
"""

import argparse
import csv
import statistics
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import transformers
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration

from shared.timing import Timing, compare, ratio

from .masking import mask_heads
from .sweep import Decoder, Document, Setting, all_heads, write_heads

BEAM = 4
SALIENT = 0.2  # share of the tokens that masked heads see
SETTINGS = 4  # settings that the sweep of the benchmark decodes


class Shape(NamedTuple):
    """Sizes of a BART."""

    layers: int  # of the encoder, and as many of the decoder
    width: int
    heads: int
    vocabulary: int = 50_265


SHAPES = {"bart-base": Shape(6, 768, 12), "bart-large": Shape(12, 1024, 16), "quick": Shape(2, 16, 4, 100)}


def make_model(shape: Shape, positions: int, device: torch.device, dtype: torch.dtype) -> BartForConditionalGeneration:
    """A BART with random weights, in eval mode."""
    config = BartConfig(
        vocab_size=shape.vocabulary, d_model=shape.width, max_position_embeddings=positions,
        encoder_layers=shape.layers, encoder_attention_heads=shape.heads, encoder_ffn_dim=4 * shape.width,
        decoder_layers=shape.layers, decoder_attention_heads=shape.heads, decoder_ffn_dim=4 * shape.width,
        forced_eos_token_id=None,
    )  # fmt: skip
    with torch.device(device):
        return BartForConditionalGeneration(config).to(dtype).eval()


def make_documents(batch: int, length: int, vocabulary: int) -> list[Document]:
    """Random tokens, of which SALIENT may be attended to."""
    documents = []
    for _ in range(batch):
        keep = torch.zeros(length, dtype=torch.bool)
        keep[torch.randperm(length)[: max(round(SALIENT * length), 1)]] = True
        ids = torch.randint(4, vocabulary, (length,))
        documents.append(Document(ids.tolist(), {"oracle": keep.tolist()}))
    return documents


def fixed(tokens: int) -> dict[str, int]:
    """Arguments of `generate` that make every summary so many tokens long."""
    return {"min_new_tokens": tokens, "max_new_tokens": tokens}


def sides(model: nn.Module, documents: list[Document], tokens: int) -> dict[str, partial]:
    """The decodes to be compared, by name."""
    ids = torch.tensor([document.ids for document in documents], device=model.device)
    keep = torch.tensor([document.keep["oracle"] for document in documents], device=model.device)
    every = all_heads(model)
    chosen = {"plain": {}, "one layer": {1: every[1]}, "all layers": every}
    return {name: partial(decode, model, ids, heads, keep, tokens) for name, heads in chosen.items()}


@torch.inference_mode()
def decode(model: nn.Module, ids: torch.Tensor, heads: dict, keep: torch.Tensor, tokens: int) -> torch.Tensor:
    """Encode and decode; without heads, nothing of ours runs."""
    generate = partial(
        model.generate, ids, attention_mask=torch.ones_like(ids), num_beams=BEAM, do_sample=False, **fixed(tokens)
    )
    if not heads:
        return generate()
    with mask_heads(model, heads, keep):
        return generate()


def sweep_sides(model: nn.Module, documents: list[Document], tokens: int) -> dict[str, partial]:
    """A sweep over SETTINGS heads with the encoder once per document, with the encoder in every setting, and parts."""
    settings = [Setting("oracle", write_heads({1: [head]})) for head in range(SETTINGS)]
    make = partial(Decoder, model, documents, len(documents), num_beams=1, **fixed(tokens))

    def once() -> None:
        decoder = make()
        for setting in settings:
            decoder.decode(setting)

    def each_time() -> None:
        for setting in settings:
            make().decode(setting)

    return {"encoder": make, "encoded once": once, "encoded each time": each_time}


def row_of(name: str, timings: dict[str, Timing], baseline: str) -> dict[str, object]:
    """Median, spread, and how many times the baseline's it is: by medians, and within rounds."""
    timing, (middle, spread) = timings[name], ratio(timings, name, baseline)
    by_medians = timing.median / timings[baseline].median
    return {"side": name, "median_s": timing.median, "iqr_s": timing.iqr, "ratio_of_medians": by_medians} | {
        "ratio_within_rounds": middle, "ratio_iqr": spread
    }  # fmt: skip


def saving(timings: dict[str, Timing], settings: int) -> float:
    """The factor that encoding once saves in a sweep of so many settings, from what was measured with SETTINGS."""
    encode = statistics.median(timings["encoder"].times)
    setting = timings["encoded once"].median - encode
    return settings * (encode + setting / SETTINGS) / (encode + settings * setting / SETTINGS)


def measure(shape_name: str, batch: int, flags: argparse.Namespace) -> list[dict[str, object]]:
    """All sides at one shape and batch size."""
    device, dtype, shape = torch.device(flags.device), getattr(torch, flags.dtype), SHAPES[shape_name]
    model = make_model(shape, max(flags.length, flags.tokens + 2), device, dtype)
    documents = make_documents(batch, flags.length, shape.vocabulary)
    what = {"shape": shape_name, "batch": batch, "S": flags.length, "T": flags.tokens}
    rows = []
    masking = compare(sides(model, documents, flags.tokens), flags.repeats, flags.warmup, device, memory=False)
    rows += [what | {"beam": BEAM} | row_of(name, masking, "plain") for name in masking]
    sweep = compare(sweep_sides(model, documents, flags.tokens), flags.repeats, flags.warmup, device, memory=False)
    rows += [what | {"beam": 1} | row_of(name, sweep, "encoded once") for name in sweep]
    heads = 2 * shape.layers * shape.heads  # oracle and uniform
    for name in ("one layer", "all layers"):
        cost = 100 * (masking[name].median / masking["plain"].median - 1)
        print(f"{shape_name}, batch {batch}, beam {BEAM}: {name} masked costs {cost:+.1f} % of a whole decode")
    factor = sweep["encoded each time"].median / sweep["encoded once"].median
    print(
        f"{shape_name}, batch {batch}: encoding once makes a sweep of {SETTINGS} settings {factor:.2f} times as fast, "
        f"by calculation the {heads} of Figure 2 {saving(sweep, heads):.2f} times",
        flush=True,
    )
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m head_masking.benchmark", description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", default=["bart-base", "bart-large"], choices=list(SHAPES))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4], help="documents decoded together")
    parser.add_argument("--length", type=int, default=800, help="tokens of a document")
    parser.add_argument("--tokens", type=int, default=60, help="of a summary")
    parser.add_argument("--repeats", type=int, default=7, help="rounds, at least 3")
    parser.add_argument("--warmup", type=int, default=1, help="rounds before them that are not timed")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "benchmark.csv")
    flags = parser.parse_args(arguments)
    for name, least in {"repeats": 3, "length": 1, "tokens": 1, "threads": 1}.items():
        if getattr(flags, name) < least:
            parser.error(f"--{name} is {getattr(flags, name)}; it must be at least {least}")
    if min(flags.batches) < 1:
        parser.error(f"--batches is {min(flags.batches)}; a batch has at least 1 document")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(flags.threads)
    torch.manual_seed(0)
    rows = [row for shape in flags.shapes for batch in flags.batches for row in measure(shape, batch, flags)]
    run = {"device": flags.device, "dtype": flags.dtype, "threads": flags.threads, "repeats": flags.repeats}
    run |= {"torch": torch.__version__, "transformers": transformers.__version__}
    flags.csv.parent.mkdir(parents=True, exist_ok=True)
    with flags.csv.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0], *run])
        writer.writeheader()
        writer.writerows(
            {k: round(v, 4) if isinstance(v, float) else v for k, v in (row | run).items()} for row in rows
        )


if __name__ == "__main__":
    main()
