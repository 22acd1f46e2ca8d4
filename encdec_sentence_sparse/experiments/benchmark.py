"""What sentence selection buys: whole summaries by every side in one run, and what the sentence encoders cost.

python -m encdec_sentence_sparse.experiments.benchmark --models base --lengths 800 --csv runs/benchmark.csv

Random weights of BART's sizes, documents of the lengths of Table 4 (CNN/DailyMail and arXiv, the latter cut), float32:

    generate       BART in `generate` as it is
    shared         ours, mode "full": one copy of keys and values per source, the beams as queries to it
    approx         ours with a selection of R sentences by the learned map, with each sentence encoder; gru is the
                   paper's own system
    mean_key       ours with a selection by the mean key of each sentence
    CTranslate2    its engine of the same BART, where it is installed; it has no local attention

A decode starts from encoder states and makes `--tokens` tokens. "End to end" is a sum of parts that were timed apart:
the encoder (LoBART's beyond 1,024 tokens), the sentence encoder and the decode. Every side runs once a round, each
round in another order; a number is the median over the rounds, a ratio the median of the ratios within rounds, with its
interval (`timing.spread`). On one thread of the CPU seconds are CPU seconds.
"""

import copy
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import transformers
import tyro
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import BartForConditionalGeneration, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutput

from shared.data import open_output, write_csv
from shared.rouge import table
from shared.run import find_device, one_line_errors
from shared.timing import spread, time_rounds

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
SIDES = ("generate", "approx", "mean_key", "CTranslate2")


class Shape(NamedTuple):
    model: str
    length: int  # S
    beams: int
    tokens: int
    r: int


def config_of(name: str, **more) -> transformers.BartConfig:
    return bart_config(*MODELS[name], 4096, forced_eos_token_id=None, **more)


def make_models(name: str, device: torch.device) -> tuple[nn.Module, SentenceSparseBart]:
    """A BART and ours with the same weights, in eval mode; ours with the cheapest sentence encoder."""
    ours, bart = SentenceSparseBart(config_of(name)), BartForConditionalGeneration(config_of(name))
    add_approximator(ours, "mean")
    bart.load_state_dict(ours.state_dict(), strict=False)
    return bart.to(device).eval(), ours.to(device).eval()


def make_source(shape: Shape) -> tuple[Tensor, Tensor]:
    """(1, S) tokens and sentence ids of a document in sentences of random lengths."""
    rng, count = np.random.default_rng(0), SENTENCES.get(shape.length, shape.length // 30)
    ends = np.sort(rng.choice(np.arange(1, shape.length), count - 1, replace=False))
    ids = torch.from_numpy(np.searchsorted(ends, np.arange(shape.length), side="right")).unsqueeze(0)
    return torch.randint(4, MODELS[shape.model][0], ids.shape), ids


def make_translator(name: str, threads: int):
    """CTranslate2's engine of a BART of the same sizes; ImportError without the package."""
    import ctranslate2

    config = config_of(name)
    # Fields that its converter still reads.
    config.update({"normalize_before": False, "normalize_embedding": True, "add_final_layer_norm": False})
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(config.vocab_size)}, unk_token="w3"))
    special = dict(bos_token="w0", pad_token="w1", eos_token="w2", unk_token="w3")
    with tempfile.TemporaryDirectory() as folder:
        BartForConditionalGeneration(config).save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
        path = ctranslate2.converters.TransformersConverter(folder).convert(f"{folder}/engine")
        return ctranslate2.Translator(path, compute_type="float32", inter_threads=1, intra_threads=threads)


def make_sides(models: tuple, shape: Shape, sides: tuple[str, ...] = SIDES, threads: int = 1) -> dict[str, Callable]:
    """Encoder, sentence encoders, and a whole decode from encoder states by each side."""
    bart, ours = models
    tokens, sentence_ids = (tensor.to(ours.device) for tensor in make_source(shape))
    encoder = BartForConditionalGeneration(config_of(shape.model)).to(ours.device).eval()
    if shape.length > 1024:
        make_local(encoder)
    parts: dict[str, Callable] = {"encoder": partial(encoder.get_encoder(), input_ids=tokens)}
    states = parts["encoder"]()[0]
    sentences = sentences_of(sentence_ids, torch.ones_like(tokens), states.dtype)
    for kind in KINDS:
        parts[kind] = partial(SentenceEncoder(kind, states.size(-1)).to(states).eval(), states, sentences)
    search = dict(num_beams=shape.beams, do_sample=False, min_new_tokens=shape.tokens, max_new_tokens=shape.tokens)
    attention_mask = torch.ones_like(tokens)

    def decode(model: nn.Module, **more) -> int:
        outputs = BaseModelOutput(states)
        return model.generate(encoder_outputs=outputs, attention_mask=attention_mask, **more, **search).size(1) - 1

    if "generate" in sides:
        parts["generate"] = partial(decode, bart)
    parts["shared"] = partial(decode, ours, sentence_ids=sentence_ids)
    selected = dict(sentence_ids=sentence_ids, selection=Selection("approx", shape.r))
    if "approx" in sides:
        parts["approx"] = partial(decode, ours, **selected)
    if "mean_key" in sides:
        parts["mean_key"] = partial(decode, use_mean_keys(copy.deepcopy(ours)), **selected)
    if "CTranslate2" in sides and ours.device.type == "cpu":
        try:
            parts["CTranslate2"] = partial(by_ctranslate2, make_translator(shape.model, threads), tokens, shape)
        except ImportError:
            print("CTranslate2 is not installed (pip install ctranslate2): its rows are left out")
    return parts


def by_ctranslate2(translator, tokens: Tensor, shape: Shape) -> int:
    """Encoder and decode by CTranslate2."""
    limits = dict(min_decoding_length=shape.tokens, max_decoding_length=shape.tokens, max_input_length=0)
    words = [[f"w{i}" for i in tokens[0].tolist()]]
    return len(translator.translate_batch(words, beam_size=shape.beams, **limits)[0].hypotheses[0])


def rows_of(shape: Shape, seconds: dict[str, np.ndarray]) -> list[dict]:
    """A row per side, of approx one per sentence encoder: the decode, and end to end how many times as fast it is."""
    nothing, whole = np.zeros_like(seconds["encoder"]), {}
    for side in seconds.keys() - {"encoder", *KINDS}:
        for kind in KINDS if side == "approx" else [""]:
            before = nothing if side == "CTranslate2" else seconds["encoder"] + seconds.get(kind, nothing)
            whole[f"{side}, {kind}".rstrip(", ")] = before + seconds[side]
    rows = [{"side": part} | shape._asdict() | {"seconds": spread(seconds[part])} for part in ("encoder", *KINDS)]
    for name in sorted(whole):
        row = {"side": name} | shape._asdict() | {"seconds": spread(seconds[name.partition(",")[0]])}
        row |= {"decode x shared": spread(seconds["shared"] / seconds[name.partition(",")[0]])}
        row |= {"end to end": spread(whole[name])}
        others = [other for other in ("generate", "shared") if other in whole]
        rows.append(row | {f"x {other}": spread(whole[other] / whole[name]) for other in others})
    return rows


@torch.inference_mode()
def main(
    models: tuple[str, ...] = ("base", "large"),
    lengths: tuple[int, ...] = (800, 4000),
    tokens: tuple[int, ...] = (24,),
    beams: int = 4,
    r: int = 10,
    repeats: int = 7,
    sides: tuple[str, ...] = SIDES,
    threads: int = 1,
    device: str = "cpu",
    csv: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Time all sides, print a table, write it as CSV."""
    transformers.logging.disable_progress_bar()  # of the engine's conversion
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    used = dict(device=device, threads=threads, repeats=repeats, torch=torch.__version__)
    used |= {"transformers": transformers.__version__}
    with open_output(csv, overwrite) as file:
        rows = []
        for name in models:
            pair = make_models(name, find_device(device))
            for length, count in product(lengths, tokens):
                shape = Shape(name, length, beams, count, r)
                seconds = time_rounds(make_sides(pair, shape, sides, threads), repeats, device=device)
                rows += rows_of(shape, seconds)
        print(table(rows))
        if csv:
            write_csv(file, [row | used for row in rows])


if __name__ == "__main__":
    one_line_errors(lambda arguments: tyro.cli(main, args=arguments))()
