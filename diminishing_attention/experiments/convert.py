"""Checkpoints of the public code, `pointer_summarizer` and PreSumm -> a run, from which train --init goes on.

python -m diminishing_attention.experiments.convert pointer_summarizer model_230000 --out runs/released
python -m diminishing_attention.experiments.convert presumm model_step_148000.pt --out runs/released
python -m diminishing_attention.train --out runs/dim --init runs/released --diminishing dim --steps 10000

Beside a model of pointer_summarizer lies the file `vocab` of its data. The files are pickles, which could run code when
they are opened: here they are read with `weights_only=True`, and what they hold beside tensors (flags, optimisers)
comes as empty objects. Weights, and nothing else, are taken over.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import tyro
from safetensors.torch import save_model
from torch import Tensor, nn
from torch.serialization import safe_globals

from ..bertsum.bert_text import load_pretrained
from ..bertsum.encoder import new_bert
from ..config import PRESETS, TrainConfig
from ..loading import Run, make_model
from ..run import check_fields, holds_run, one_line_errors, read_flags, write_config
from ..text import SPECIAL, Vocabulary

NAMES = {  # patterns of the names there, and ours, tried in turn; no name: dropped
    "pointer_summarizer": (
        (r"^encoder\.W_h\.", "encoder.project."), (r"^reduce\.reduce_h\.", "reduce.hidden."),
        (r"^reduce\.reduce_c\.", "reduce.cell."), (r"attention_network\.W_c\.", "coverage."),
        (r"attention_network\.decode_proj\.", "query."), (r"attention_network\.v\.", "score."),
        (r"^decoder\.x_context\.", "decoder.merge."), (r"^(decoder\.lstm\.\w+)_l0$", r"\1"),
        (r"^decoder\.p_gen_linear\.", "decoder.switch."), (r"^decoder\.out1\.", "decoder.inner."),
        (r"^decoder\.out2\.", "decoder.output."),
    ),
    "presumm": (
        (r".*(pos_emb\.pe|\.mask|position_ids)$|^generator\.0\.weight$", ""),  # constants; the embedding, once more
        (r"^bert\.model\.", "encoder."), (r"^generator\.0\.bias$", "output_bias"),
        (r"^decoder\.embeddings\.", "embedding."), (r"^decoder\.layer_norm\.", "norm."),
        (r"^decoder\.transformer_layers\.", "layers."), (r"\.layer_norm_1\.", ".self_norm."),
        (r"\.layer_norm_2\.", ".cross_norm."), (r"\.self_attn\.", ".self_attention."),
        (r"\.context_attn\.", ".cross_attention."), (r"\.linear_query\.", ".query."), (r"\.linear_keys\.", ".key."),
        (r"\.linear_values\.", ".value."), (r"\.final_linear\.", ".output."),
        (r"\.feed_forward\.layer_norm\.", ".feed_forward.norm."), (r"\.w_1\.", ".inner."), (r"\.w_2\.", ".outer."),
    ),
}  # fmt: skip
IGNORED = ("argparse.Namespace", "models.optimizers.Optimizer", "torch.optim.adam.Adam", "torch.optim.adagrad.Adagrad")


class Ignored:
    """Takes the place of an object that is not needed."""


class Checkpoint(NamedTuple):
    """What a run needs."""

    preset: str
    values: dict  # fields of TrainConfig beside the preset's
    weights: dict[str, Tensor]  # under our names
    tokenizer: object
    bert: object = None  # the encoder's configuration of transformers


def load_safely(path: Path) -> dict:
    """The content of a checkpoint; ValueError where it is none, or wants code to run."""
    stand_ins = [(Ignored, name) for name in IGNORED]
    stand_ins += [(lambda *arguments: {}, "collections.defaultdict"), (dict, "builtins.dict")]
    try:
        with safe_globals(stand_ins):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # as many types as there are kinds of damage
        said = re.split(r"In PyTorch|This is an internal|Please", str(error))[0][:200]  # not torch's advice to trust it
        raise ValueError(f"{path} is cut off, or holds more than weights: {said or type(error).__name__}") from None


def rename(weights: dict[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Weights under our names."""
    renamed = {}
    for name, tensor in weights.items():
        for pattern, ours in NAMES[kind]:
            name = re.sub(pattern, ours, name)
        renamed[name] = tensor
    return {name: tensor for name, tensor in renamed.items() if name}


def read(kind: str, path: Path, encoder: str) -> Checkpoint:
    """A checkpoint of NAMES' kind; ValueError: another file, one without what lies beside it, or another size."""
    if not path.is_file():
        raise ValueError(f"{path} is not a file")
    try:
        return read_presumm(path, encoder) if kind == "presumm" else read_pointer_summarizer(path)
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what {kind} saves: it lacks {error}") from None


def fill(model: nn.Module, weights: dict[str, Tensor], name: str) -> None:
    """Load all weights; ValueError where names or sizes differ."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{name} does not fit: {str(error)[:200]}") from None


def read_pointer_summarizer(path: Path) -> Checkpoint:
    """What training/train.py of pointer_summarizer saves; the file `vocab` of its data lies beside it."""
    parts = load_safely(path)
    names = {f"{part}.{name}": tensor for part in ("encoder", "reduce", "decoder")
             for name, tensor in parts[f"{part}_state_dict"].items()}  # fmt: skip
    weights = rename(names, "pointer_summarizer")
    size, embedding = (weights["encoder.embedding.weight"].size(axis) for axis in (0, 1))
    try:
        words = path.with_name("vocab").read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.with_name('vocab')} is not UTF-8 ({error}): convert it first") from None
    words = [line.split()[0] for line in words if len(line.split()) == 2][: size - len(SPECIAL)]
    if len(words) < size - len(SPECIAL):
        raise ValueError(f"{path.with_name('vocab')} has {len(words)} words, {path} has {size} with the special ones")
    # Theirs are <unk> 0, <pad> 1, <s> 2, </s> 3; ours <pad> 0, <unk> 1.
    for name in (name for name in weights if "embedding" in name or "output" in name):
        weights[name] = weights[name][[1, 0, *range(2, size)]]
    values = {"vocabulary": size, "embedding": embedding, "hidden": len(weights["reduce.hidden.weight"]),
              "coverage": "decoder.coverage.weight" in weights}  # fmt: skip
    return Checkpoint("paper", values, weights, Vocabulary([*SPECIAL, *words]))


def read_presumm(path: Path, encoder: str) -> Checkpoint:
    """A BertSumExtAbs of PreSumm; `encoder` has the configuration and the WordPieces of its BERT (8 decoder heads)."""
    weights = rename(load_safely(path)["model"], "presumm")
    bert = load_pretrained("AutoConfig", encoder)
    positions = bert.max_position_embeddings = len(weights["encoder.embeddings.position_embeddings.weight"])
    values = {"encoder": encoder, "positions": positions, "max_source": min(512, positions),
              "decoder_layers": sum(name.endswith("self_norm.bias") for name in weights),
              "feed_forward": len(weights["layers.0.feed_forward.inner.bias"])}  # fmt: skip
    return Checkpoint("paper-bertsum-abs", values, weights, load_pretrained("AutoTokenizer", encoder), bert)


@dataclass
class Options:
    """The command line."""

    kind: tyro.conf.Positional[Literal["pointer_summarizer", "presumm"]]
    file: tyro.conf.Positional[Path]  # checkpoint
    out: Path  # run folder to write
    encoder: str = "bert-base-uncased"  # of presumm: the configuration and the WordPieces of its BERT, name or folder


def convert(kind: str, file: Path, out: Path, encoder: str = "") -> None:
    """Write a checkpoint as the run folder `out`; ValueError: what `read` and `fill` refuse, or `out` is there."""
    holds_run(out, resume=False)
    checkpoint = read(kind, file, encoder)
    config = TrainConfig(**PRESETS[checkpoint.preset] | checkpoint.values)
    model = make_model(config, checkpoint.tokenizer, checkpoint.bert and new_bert(checkpoint.bert))
    fill(model, checkpoint.weights, str(file))
    unfinished = out.with_name(f"{out.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    Run(config, model, checkpoint.tokenizer).write_files(unfinished)
    save_model(model, str(unfinished / "model.safetensors"))
    write_config(unfinished, config)
    os.replace(unfinished, out)


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, prog=f"python -m {__package__}.convert", description=__doc__)
    check_fields(options)
    convert(options.kind, options.file, options.out, options.encoder)
    print(f"{options.out}: the weights of {options.file}, and nothing else of it")
    print(f"next: python -m {__package__.rpartition('.')[0]}.train --out ... --init {options.out} --diminishing dim")


if __name__ == "__main__":
    main()
