"""What sentence selection buys: whole summaries by every side in one run, and what the sentence encoders cost.

python -m encdec_sentence_sparse.experiments.benchmark --csv runs/benchmark.csv
python -m encdec_sentence_sparse.experiments.benchmark --models base --precision packed int8   # CTranslate2
python -m encdec_sentence_sparse.experiments.benchmark --models base --tokens 24 96 192 --sides approx
python -m encdec_sentence_sparse.experiments.benchmark --models base --table-1 --appendix-b  # growth

Random weights of BART's sizes, documents of the lengths of Table 4 (CNN/DailyMail and arXiv, the latter cut):

    generate       BART in `generate` as it is
    shared         ours, mode "full": one copy of keys and values per source, the beams as queries to it
    MODE rR        ours with selection of R sentences: the learned query map (approx, with each sentence encoder; gru is
                   the paper's own system) or the mean key of each sentence (mean_key)
    CTranslate2    its engine of the same BART, where it is installed, at float32 and int8; it has no local attention

A decode starts from encoder states and makes `--tokens` tokens. End to end are the encoder (LoBART's beyond 1,024
tokens), the sentence encoder and the decode; "pays after" so many tokens a sentence encoder has won its time back.
Attention's parts, of all layers and tokens at the first r, stand beside their cost by Section 4.1. Every side runs
once a round, each round in another order; a number is the median over the rounds, a ratio the median of the ratios
within rounds, with its interval (`timing.spread`). On one thread of the CPU seconds are CPU seconds; freed memory stays
with the process for all sides.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
import transformers
import tyro
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor, nn
from transformers import BartForConditionalGeneration, PreTrainedTokenizerFast
from transformers.modeling_outputs import BaseModelOutput

from shared.data import check_outputs, write_csv
from shared.rouge import table
from shared.timing import find_device, keep_memory, spread, time_rounds

from ..approximator import KINDS, SentenceEncoder
from ..model import SentenceSparseBart, add_approximator, bart_config
from ..run import Positive, Range, check_fields, one_line_errors, read_flags
from ..selection import Selection
from ..sentences import sentences_of
from .cost import appendix_b, attention_costs, attention_parts, table_1
from .precision import PRECISIONS, convert

MODELS = {  # vocabulary, width, feed-forward width, heads, layers
    "base": (50265, 768, 3072, 12, 6),
    "large": (50265, 1024, 4096, 16, 12),
    "tiny": (60, 16, 32, 2, 2),
}
SENTENCES = {800: 29, 4000: 120, 24: 6}  # S: N; 24 is for --quick; any other has a sentence per 30 words
SIDES = ("generate", "approx", "mean_key", "CTranslate2")
PARTS = ("encoder", *KINDS, "sentence level", "word level", "all words")


@tyro.conf.configure(tyro.conf.FlagCreatePairsOff)
@dataclass
class Options:
    """The command line."""

    models: tuple[Literal["base", "large"], ...] = ("base", "large")
    lengths: tuple[Annotated[int, Range(60, 4096)], ...] = (
        800,
        4000,
    )  # words; CNN/DailyMail and arXiv
    beams: tuple[Positive, ...] = (1, 4)
    sources: tuple[Positive, ...] = (1,)  # documents decoded at a time
    r: tuple[Positive, ...] = (5, 10, 30)  # sentences to attend to
    tokens: tuple[Positive, ...] = (24,)  # of a summary
    repeats: Annotated[int, Range(3, 1000)] = 7  # timed rounds
    sides: tuple[Literal[SIDES], ...] = SIDES  # beside shared, which always runs
    precision: tuple[Literal[PRECISIONS], ...] = ("float32",)  # packed: float32, weights laid out for oneDNN
    threads: Positive = 1
    device: Literal["cpu", "cuda"] = "cpu"
    csv: Path | None = None  # write all rows here
    quick: bool = False  # a tiny model: shows that all sides run, nothing more
    table_1: bool = False  # instead: time by summary length in three modes
    appendix_b: bool = False  # instead: time by both lengths, six coefficients


class Shape(NamedTuple):
    model: str
    precision: str
    length: int  # S of the longest document
    sources: int  # B
    beams: int
    tokens: int

    @property
    def sentences(self) -> int:
        return SENTENCES.get(self.length, self.length // 30)


def make_models(name: str, precision: str, device: torch.device) -> tuple[nn.Module, SentenceSparseBart]:
    """A BART and ours with the same weights, in eval mode; ours with the cheapest sentence encoder."""
    config = bart_config(*MODELS[name], 4096, forced_eos_token_id=None)
    ours = SentenceSparseBart(config)
    add_approximator(ours, "mean")
    bart = BartForConditionalGeneration(bart_config(*MODELS[name], 4096, forced_eos_token_id=None))
    bart.load_state_dict(ours.state_dict(), strict=False)
    return tuple(convert(model.to(device).eval(), precision) for model in (bart, ours))


def make_translator(name: str, precision: str, threads: int):
    """CTranslate2's engine of a BART of the same sizes; ImportError without the package."""
    import ctranslate2

    config = bart_config(*MODELS[name], 4096, forced_eos_token_id=None)
    # Fields that its converter still reads.
    config.update({"normalize_before": False, "normalize_embedding": True, "add_final_layer_norm": False})
    words = Tokenizer(WordLevel({f"w{i}": i for i in range(config.vocab_size)}, unk_token="w3"))
    special = dict(bos_token="w0", pad_token="w1", eos_token="w2", unk_token="w3")
    with tempfile.TemporaryDirectory() as folder:
        BartForConditionalGeneration(config).save_pretrained(folder)
        PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained(folder)
        kind = "int8" if precision == "int8" else "float32"
        path = ctranslate2.converters.TransformersConverter(folder).convert(f"{folder}/engine", quantization=kind)
        return ctranslate2.Translator(path, compute_type=kind, inter_threads=1, intra_threads=threads)


def make_source(shape: Shape) -> tuple[Tensor, Tensor]:
    """(B, S) tokens and sentence ids of documents of S, 0.95 S, 0.9 S ... tokens in sentences of random lengths."""
    rng = np.random.default_rng(0)
    ids = torch.full((shape.sources, shape.length), -1)
    for document in range(shape.sources):
        length = round(shape.length * (1 - 0.05 * document))
        sentences = round(shape.sentences * length / shape.length)
        ends = np.sort(rng.choice(np.arange(1, length), sentences - 1, replace=False))
        ids[document, :length] = torch.from_numpy(np.searchsorted(ends, np.arange(length), side="right"))
    return torch.randint(4, MODELS[shape.model][0], ids.shape), ids


# Sides


def make_sides(models: tuple, shape: Shape, options: Options) -> tuple[dict[str, Callable], dict[str, Callable]]:
    """The parts of a summary (attention's at the first r), and a whole decode from encoder states, by side."""
    bart, ours = models
    tokens, sentence_ids = (tensor.to(ours.device) for tensor in make_source(shape))
    attention_mask = (sentence_ids >= 0).long()
    config = bart_config(*MODELS[shape.model], 4096, attention_window=1024 if shape.length > 1024 else None)
    encoder = convert(SentenceSparseBart(config).get_encoder().to(ours.device).eval(), shape.precision)
    read = partial(encoder, input_ids=tokens, attention_mask=attention_mask)
    states = read()[0]
    sentences = sentences_of(sentence_ids, attention_mask, states.dtype)
    parts = {"encoder": read}
    for kind in KINDS:
        sentence_encoder = convert(SentenceEncoder(kind, config.d_model).to(states).eval(), shape.precision)
        parts[kind] = partial(sentence_encoder, states, sentences)
    ours.selection = Selection("approx", min(options.r[0], shape.sentences - 1))
    cache, hidden = ours.project(states, sentence_ids, attention_mask), torch.randn_like(states[:, : shape.beams])
    parts |= attention_parts(ours, cache, hidden, shape.tokens)
    flags = dict(num_beams=shape.beams, do_sample=False, min_new_tokens=shape.tokens, max_new_tokens=shape.tokens)

    def decode(model: nn.Module, selection: Selection | None = None) -> int:
        given = {} if selection is None else {"sentence_ids": sentence_ids}
        ours.selection = selection
        outputs = BaseModelOutput(states)
        return model.generate(encoder_outputs=outputs, attention_mask=attention_mask, **given, **flags).size(1) - 1

    sides = {"generate": partial(decode, bart)} if "generate" in options.sides else {}
    sides["shared"] = partial(decode, ours, Selection("full"))
    for mode, r in product([mode for mode in ("approx", "mean_key") if mode in options.sides], options.r):
        sides[f"{mode} r{r}"] = partial(decode, ours, Selection(mode, r))
    if "CTranslate2" in options.sides and shape.precision in ("float32", "int8") and options.device == "cpu":
        try:
            engine = make_translator(shape.model, shape.precision, options.threads)
            sides["CTranslate2"] = partial(by_ctranslate2, engine, tokens, attention_mask, shape)
        except ImportError:
            print("CTranslate2 is not installed (pip install ctranslate2): its rows are left out")
    return parts, sides


def by_ctranslate2(translator, tokens: Tensor, attention_mask: Tensor, shape: Shape) -> int:
    """Encoder and decode by CTranslate2."""
    lengths = attention_mask.sum(1).tolist()
    words = [[f"w{i}" for i in row[:length]] for row, length in zip(tokens.tolist(), lengths, strict=True)]
    limits = dict(min_decoding_length=shape.tokens, max_decoding_length=shape.tokens, max_input_length=0)
    results = translator.translate_batch(words, beam_size=shape.beams, max_batch_size=0, **limits)
    return len(results[0].hypotheses[0])


# Measuring


def part_rows(shape: Shape, r: int, seconds: dict[str, np.ndarray]) -> list[dict]:
    """A row per part, its seconds beside its cost by Section 4.1, for one document."""
    _, width, _, _, layers = MODELS[shape.model]
    numbers = (shape.length, shape.sentences, shape.tokens * shape.beams, min(r, shape.sentences - 1))
    costs, rows = attention_costs(width, layers, *numbers), []
    for part in PARTS:
        row = {"side": part} | shape._asdict() | {"seconds": spread(seconds[part])} | costs.get(part, {})
        rows.append(row | {"share of the encoder": spread(seconds[part] / seconds["encoder"])})
    return rows


def decode_rows(shape: Shape, seconds: dict[str, np.ndarray]) -> list[dict]:
    """A row per side, of approx one per sentence encoder: the decode, and end to end how many times as fast it is."""
    decodes = {side: values for side, values in seconds.items() if side not in PARTS}
    whole = {}
    for side, values in decodes.items():
        for kind in KINDS if side.startswith("approx") else [None]:
            before = 0 if side == "CTranslate2" else seconds["encoder"] + (seconds[kind] if kind else 0)
            whole[f"{side}, {kind}" if kind else side] = before + values
    rows = []
    for name, values in whole.items():
        decode = decodes[name.partition(",")[0]]
        row = shape._asdict() | {"side": name, "decode": None if name == "CTranslate2" else spread(decode)}
        row["decode x shared"] = spread(decodes["shared"] / decode) if row["decode"] else None
        gain = (decodes["shared"] - decode) / shape.tokens
        if kind := name.partition(", ")[2]:
            row["pays after"] = spread(np.divide(seconds[kind], gain, out=np.full_like(gain, np.inf), where=gain > 0))
        row["end to end"] = spread(values)
        others = [other for other in ("generate", "shared", "CTranslate2") if other in whole]
        rows.append(row | {f"x {other}": spread(whole[other] / values) for other in others})
    return rows


@torch.inference_mode()
def decoding(options: Options) -> list[dict]:
    """Rows of all shapes, and of what runs once per document beside the decoder."""
    rows = []
    for name, precision in product(["tiny"] if options.quick else options.models, options.precision):
        models = make_models(name, precision, find_device(options.device))
        lengths = [24] if options.quick else options.lengths
        for length, sources, beams, tokens in product(lengths, options.sources, options.beams, options.tokens):
            shape = Shape(name, precision, length, sources, beams, tokens)
            parts, sides = make_sides(models, shape, options)
            made = {side: decode() for side, decode in sides.items()}
            assert set(made.values()) == {tokens}, made
            seconds = time_rounds(parts | sides, options.repeats, device=options.device)
            for new in (part_rows(shape, options.r[0], seconds), decode_rows(shape, seconds)):
                print(table(new), "\n", flush=True)
                rows += new
    return rows


def time_growth(options: Options) -> list[dict]:
    """--table-1 and --appendix-b: the fits, printed, and the times beside them."""
    targets = [4, 6, 8, 10] if options.quick else list(range(50, 301, 50))
    sources = [8, 16, 24] if options.quick else list(range(256, 1025, 192))
    measure, rows = partial(time_rounds, repeats=options.repeats, device=options.device), []
    for name, precision in product(["tiny"] if options.quick else options.models, options.precision):
        bart = make_models(name, precision, find_device(options.device))[0]
        for task in (table_1, appendix_b):
            if getattr(options, task.__name__):
                new = [{"model": name} | row for row in task(bart, sources, targets, measure)]
                shown = [row for row in new if not row["table"].endswith("times")]
                print(table([{k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in shown]))
                rows += new
    return rows


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.benchmark", description=__doc__)
    check_fields(options)
    find_device(options.device)
    check_outputs(options.csv)
    keep_memory()
    transformers.logging.disable_progress_bar()  # of the engine's conversion
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows = (time_growth if options.table_1 or options.appendix_b else decoding)(options)
    used = {name: getattr(options, name) for name in ("device", "threads", "repeats")}
    used |= {"torch": torch.__version__, "transformers": transformers.__version__}
    if options.csv:
        write_csv(options.csv, [row | used for row in rows])


if __name__ == "__main__":
    main()
