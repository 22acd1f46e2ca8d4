"""Decode under many settings of masked heads: which heads select content, and which to mask (Sections 4.1, 4.2, 5).

A `Sweep` keeps the scores of every setting in a file, line by line, and never decodes a setting twice, also when it was
killed and started again.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from .loading import Run
from .masking import PAPER_HEADS, Heads, cross_attentions, mask_heads, uniform_heads
from .text import Document, by_length, pad

Scores = dict[str, np.ndarray]  # metric -> (n,) a value per document, or a difference of two


class Setting(NamedTuple):
    """What is done to the cross-attention."""

    kind: str  # "plain": nothing; "uniform": uniform weights; else the labels to mask by: "oracle", "system:NAME"
    heads: str = ""  # as `write_heads` writes them, so that equal heads are equal text


def write_heads(heads: Heads) -> str:
    """{3: [0, 1, 2, 5], 4: [1]} -> "3:0-2,5,4:1", the form that --heads reads."""
    parts = []
    for layer, chosen in sorted(heads.items()):
        ordered = sorted(set(chosen))
        runs = [list(run) for _, run in groupby(ordered, key=lambda head: head - ordered.index(head))]
        texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
        parts += [f"{layer}:{','.join(texts)}"] if texts else []
    return ",".join(parts)


def read_heads(text: str) -> dict[int, list[int]]:
    """The inverse of `write_heads`; a part without a layer belongs to that before it. ValueError for other text."""
    heads: dict[int, set[int]] = {}
    layer = None
    try:
        for part in text.split(","):
            before, colon, chosen = part.rpartition(":")
            layer = int(before) if colon else layer
            first, dash, last = chosen.partition("-")
            numbers = range(int(first), int(last if dash else first) + 1)
            if layer is None or not numbers:
                raise ValueError
            heads.setdefault(layer, set()).update(numbers)
    except ValueError:
        raise ValueError(f"heads {text!r}: write LAYER:HEADS, layers from 1, heads from 0, e.g. 1:0-3,2:1,3") from None
    return {layer: sorted(chosen) for layer, chosen in heads.items()}


def all_heads(model: nn.Module) -> dict[int, list[int]]:
    """Every layer of a model's decoder with all its heads."""
    cross_attentions(model, {})  # refuses a model that has none
    layers = model.get_decoder().layers
    return {number: list(range(layer.encoder_attn.num_heads)) for number, layer in enumerate(layers, start=1)}


def find_heads(text: str, model: nn.Module) -> str:
    """--heads as a Setting has it: LAYER:HEADS, a data set of Appendix B, or "top": all heads of the top layer."""
    top, heads = list(all_heads(model).items())[-1]
    heads = {top: heads} if text == "top" else PAPER_HEADS.get(text) or read_heads(text)
    cross_attentions(model, heads)
    return write_heads(heads)


def default_heads(run: Run) -> str:
    """The data set of Appendix B whose heads are masked in a run's model, or "top"."""
    is_large = list(all_heads(run.model).values()) == 12 * [list(range(16))]
    # D14: where Appendix B names no heads, those of the top layer.
    return run.config.data if is_large and run.config.data in PAPER_HEADS else "top"


# Decoding


Batch = tuple[list[int], Tensor, Tensor]  # numbers of documents; (B, S) True at real tokens; (B, S, D) states


@torch.inference_mode()
def encode(model: nn.Module, documents: Sequence[Document], batch_size: int = 32) -> Iterator[Batch]:
    """Encode documents once for all settings, those of like length together; what the caller does not keep is freed."""
    rows = [document.ids for document in documents]
    for numbers, ids, keep in by_length(rows, batch_size, model.config.pad_token_id, model.device):
        yield numbers, keep, model.get_encoder()(input_ids=ids, attention_mask=keep.long()).last_hidden_state


def masked_as(model: nn.Module, documents: Sequence[Document], setting: Setting) -> AbstractContextManager:
    """The context in which the model decodes these documents as the setting says."""
    if setting.kind == "plain" or not setting.heads:
        return nullcontext()
    heads = read_heads(setting.heads)
    if setting.kind == "uniform":
        return uniform_heads(model, heads)
    return mask_heads(model, heads, pad([d.keep[setting.kind] for d in documents], False).to(model.device))


@torch.inference_mode()
def decode(
    run: Run, documents: Sequence[Document], settings: Mapping[str, Setting], batches: Iterable[Batch], **generation
) -> Iterator[tuple[str, int, list[int], str]]:
    """Summaries as they come; each batch is decoded under all settings before the next one is asked for.

    Args:
        generation: arguments of `generate`, such as num_beams; what is not given is the model's own.
    Yields:
        name of the setting; number of the document; token ids from the decoder's start token on, without padding; text.
    """
    for numbers, keep, states in batches:
        for name, setting in settings.items():
            memory = BaseModelOutput(last_hidden_state=states)  # a new one, for `generate` repeats it for the beams
            with masked_as(run.model, [documents[i] for i in numbers], setting):
                rows = run.model.generate(
                    encoder_outputs=memory, attention_mask=keep.long(), do_sample=False, **generation
                ).tolist()
            for i, row in zip(numbers, rows, strict=True):
                while row[-1] == run.model.config.pad_token_id:
                    row.pop()
                yield name, i, row, " ".join(run.tokenizer.decode(row, skip_special_tokens=True).split())


def settings_of(name: str, taggers: Iterable[str], heads: str, oracles: Iterable[str]) -> dict[str, Setting]:
    """The rows of Table 1 (and 3): baseline, oracle masking if asked for, masking by each tagger."""
    settings = {name: Setting("plain")} | {f"{name}+{kind}": Setting(kind, heads) for kind in oracles}
    return settings | {f"{name}+{tagger}": Setting(f"system:{tagger}", heads) for tagger in taggers}


def collect(
    decoded: Iterable, settings: Iterable[str], examples: Sequence, folder: Path | None = None
) -> dict[str, list[str]]:
    """What `decode` yields -> a text per example, by setting; written to SETTING.jsonl of a folder as it comes."""
    texts = {name: [""] * len(examples) for name in settings}
    with ExitStack() as stack:
        paths = {name: folder / f"{name}.jsonl" for name in texts if folder}
        files = {name: stack.enter_context(open(path, "w", encoding="utf-8")) for name, path in paths.items()}
        for name, i, _, text in decoded:
            texts[name][i] = text
            if files:
                row = {"id": examples[i].id, "prediction": text, "reference": examples[i].target}
                print(json.dumps(row, ensure_ascii=False), file=files[name], flush=True)
    return texts


# The file of results


class Sweep:
    """Scores by setting, from a file if it holds them, else by decoding.

    Args:
        path: the file; lines that are cut off or of something else do not count.
        measure: setting -> scores; it decodes.
        depends: kind of setting -> a checksum of all that its results depend on.
    """

    def __init__(self, path: Path, measure: Callable[[Setting], Scores], depends: Mapping[str, int] = {}):
        self.path, self.measure, self.depends, self.known = path, measure, depends, {}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for line in text.splitlines():
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                row = json.loads(line)
                scores = {metric: np.array(values, dtype=float) for metric, values in row["scores"].items()}
                self.known[row["kind"], row["heads"], row["depends"]] = scores
        if text and not text.endswith("\n"):
            path.write_text(text + "\n", encoding="utf-8")

    def run(self, settings: Iterable[Setting], title: str = "") -> list[Scores]:
        """Scores of the settings, in their order; what the file does not hold yet is decoded and written to it."""
        from tqdm import tqdm

        settings = list(settings)
        keys = {setting: (*setting, self.depends.get(setting.kind, 0)) for setting in settings}
        missing = [setting for setting, key in keys.items() if key not in self.known]
        for setting in tqdm(missing, title, unit="setting", disable=not missing):
            scores = self.known[keys[setting]] = self.measure(setting)
            row = dict(zip(("kind", "heads", "depends"), keys[setting], strict=True))
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                print(json.dumps(row | {"scores": {m: values.tolist() for m, values in scores.items()}}), file=file)
        return [self.known[keys[setting]] for setting in settings]


def checksums(run: Run, examples: Sequence, documents: Sequence[Document], generation: dict) -> dict[str, int]:
    """Kind of setting -> a checksum of the weights, texts, references, masks and flags that its results depend on."""
    weights = sum(weight.detach().double().abs().sum().item() for weight in run.model.parameters())
    common = [weights, generation, run.model.generation_config.to_diff_dict(), [d.ids for d in documents]]
    common += [example.references for example in examples]
    masks = {kind: [document.keep[kind] for document in documents] for kind in documents[0].keep}
    kinds = {"plain": None, "uniform": None} | masks
    return {kind: crc32(json.dumps([common, keep], default=str).encode()) for kind, keep in kinds.items()}


# What the paper makes of it


def sample(examples: Sequence, count: int, seed: int = 0) -> list:
    """Section 4: `count` random examples, in their order; all if there are no more."""
    chosen = np.random.default_rng(seed).choice(len(examples), min(count, len(examples)), replace=False)
    return [examples[i] for i in sorted(chosen)]


def refuse_overlap(chosen_on: Sequence, tested_on: Sequence) -> None:
    """ValueError if heads would be chosen on documents that are then tested."""
    if same := {example.source for example in chosen_on} & {example.source for example in tested_on}:
        raise ValueError(
            f"--select would choose heads on {len(same)} documents that are then tested: give another "
            "--analysis-split or --split, or a folder with validation.jsonl and test.jsonl"
        )


Effects = Mapping[tuple[int, int], Scores]  # (layer, head) -> what `gains` has of this head alone


def gains(sweep: Sweep, sets_of_heads: Sequence[Heads], title: str = "") -> list[Scores]:
    """r_ora - r_uni for every set of heads and every document: oracle masks, uniform weights on the same heads.

    D10, the other reading of an improvement: "over_plain" in F1, "recall_over_plain", both over the model as it is.
    """
    texts = [write_heads(heads) for heads in sets_of_heads]
    plain, *scores = sweep.run(
        [Setting("plain"), *(Setting(kind, text) for text in texts for kind in ("oracle", "uniform"))], title
    )
    return [
        {metric: oracle[metric] - uniform[metric] for metric in oracle}
        | {"over_plain": oracle["rouge1"] - plain["rouge1"]}
        | {"recall_over_plain": oracle["rouge1_recall"] - plain["rouge1_recall"]}
        for oracle, uniform in zip(scores[::2], scores[1::2], strict=True)
    ]


def content_selection_effects(sweep: Sweep, heads: Heads) -> Effects:
    """The content selection effect of each head by itself (Section 4.1; Figures 2 and 6): the mean of r_ora - r_uni."""
    pairs = [(layer, head) for layer, chosen in heads.items() for head in chosen]
    of_heads = gains(sweep, [{layer: [head]} for layer, head in pairs], "effects of single heads")
    return dict(zip(pairs, of_heads, strict=True))


def ranked(effects: Effects) -> dict[int, list[int]]:
    """The heads of each layer, that of the largest mean effect on ROUGE-1 first, of equal ones the lower."""
    order = sorted(effects, key=lambda place: (place[0], -effects[place]["rouge1"].mean(), place[1]))
    return {layer: [head for _, head in places] for layer, places in groupby(order, key=lambda place: place[0])}


def synergy(sweep: Sweep, effects: Effects) -> dict[tuple[int, tuple[int, ...]], Scores]:
    """Heads added one by one in the order of their individual effect, layer by layer (Section 4.2; Figures 3, 7).

    Returns:
        (layer, heads in the order in which they were added) -> what `gains` has of them together.
    """
    sets = [(layer, tuple(order[: n + 1])) for layer, order in ranked(effects).items() for n in range(len(order))]
    return dict(zip(sets, gains(sweep, [{layer: heads} for layer, heads in sets], "heads together"), strict=True))


def sum_of_parts(effects: Effects, layer: int) -> Scores:
    """The sum of the individual effects of a layer's heads, for every document (Section 4.2; right of Figure 3)."""
    parts = [values for (of_layer, _), values in effects.items() if of_layer == layer]
    return {metric: sum(part[metric] for part in parts) for metric in parts[0]}


def select_heads(
    sweep: Sweep, effects: Effects, labels: str = "system", group: int = 4
) -> tuple[str, dict[str, Scores]]:
    """Greedy head selection of Section 5: at every layer mask the 4, 8, 12, ... heads of the largest effect.

    D11: layer by layer, and without the model as it is among the candidates.

    Args:
        labels: kind of labels to mask by.
        group: how many heads are added at a time; 4 in the paper.
    Returns:
        the heads with the largest ROUGE-1 + ROUGE-2 F1, of equal sets the one tried first (bottom layer, fewest
        heads); and the scores of all that was tried.
    """
    candidates = []
    for layer, order in ranked(effects).items():
        counts = [*range(group, len(order), group), len(order)]
        candidates += [write_heads({layer: order[:count]}) for count in counts]
    scores = sweep.run([Setting(labels, text) for text in candidates], "choice of heads")
    tried = dict(zip(candidates, scores, strict=True))
    return max(tried, key=lambda text: tried[text]["rouge1"].mean() + tried[text]["rouge2"].mean()), tried
