"""Which heads select content, what they look at, which to mask: Sections 4, 5, Figures 2-4, 6-10.

python -m head_masking.experiments.sweep runs/hm --tagger runs/tagger --data toy --out runs/heads
python -m head_masking.experiments.sweep runs/hm --effects --focus --data toy --out runs/analysis

OUT holds NAME.heads, the heads that are best for the run under the tagger's masks; effects.csv,
synergy.csv, focus.csv.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import numpy as np
import torch
import tyro
from tqdm import tqdm

from shared import pretrained
from shared.data import load, open_output, write_csv
from shared.rouge import Words, check_references, unicode_words
from shared.run import one_line_errors, read_flags
from shared.score import Measure as Numbers
from shared.score import describe

from ..config import Positive
from ..heads import all_heads, write_heads
from ..loading import Summarizer, load_model, load_run, name_of
from ..masking import PAPER_DECODING, Heads, uniform_heads
from ..oracle import WORD, overlaps, word_spans
from ..predict import decode, read_documents
from ..text import Document

SPLIT = "validation"  # heads are chosen on it
BATCH = 32  # documents decoded at a time
# begins of the Penn tags of nouns, verbs, adjectives and adverbs
CONTENT_TAGS = ("NN", "VB", "JJ", "RB")
Scores = dict[str, np.ndarray]  # metric -> (n,) a value for each document, or a difference of two
Effects = Mapping[tuple[int, int], Scores]  # (layer, head) -> what `gain` has of this head alone
Measure = Callable[..., Scores]  # kind, layer, heads -> what `measured` has of them


def measured(
    run: Summarizer,
    examples: Sequence,
    kept: Mapping,
    kind: str,
    layer: int = 1,
    heads: tuple[int, ...] = (),
    words: Words = "rouge-score",
) -> Scores:
    """What the model scores.

    Args:
        kept: "oracle" and "system" -> documents with what masked heads may see.
        kind: "plain", as it is; "uniform", with uniform weights on these heads of a layer; a kind
            of `kept`, which masks them.
    """
    chosen = {layer: heads}
    documents = kept.get(kind, kept["oracle"])
    uniform = chosen if kind == "uniform" else {}
    masked = chosen if kind in kept else None
    with uniform_heads(run.model, uniform):
        summaries = decode_all(run, documents, masked, name=f"{kind} {chosen}")
    return score([run.text(tokens) for tokens in summaries], examples, words)


def decode_all(
    run: Summarizer, documents: Sequence[Document], heads: Heads | None = None, name: str = "plain"
) -> list[list[int]]:
    """The tokens of every summary; batches are of documents of like length."""
    order = sorted(range(len(documents)), key=lambda place: len(documents[place].ids))
    summaries = {}
    for first in tqdm(range(0, len(order), BATCH), name, leave=False, disable=None):
        places = order[first : first + BATCH]
        tokens = decode(run.model, [documents[place] for place in places], heads=heads)
        summaries |= zip(places, tokens, strict=True)
    return [summaries[place] for place in range(len(documents))]


def score(texts: Sequence[str], examples: Sequence, words: Words = "rouge-score") -> Scores:
    """(n,) percentages of every text: F1 and recall of ROUGE-1, and ROUGE-1 + ROUGE-2 F1."""
    from rouge_score.rouge_scorer import RougeScorer

    tokenizer = SimpleNamespace(tokenize=unicode_words) if words == "unicode" else None
    scorer = RougeScorer(["rouge1", "rouge2"], use_stemmer=True, tokenizer=tokenizer)
    values = []
    for example, text in zip(examples, texts, strict=True):
        references = [" ".join(reference) for reference in example.references]
        best = scorer.score_multi(references, text)
        rouge1, rouge2 = best["rouge1"], best["rouge2"]
        values.append([rouge1.fmeasure, rouge1.recall, rouge2.fmeasure])
    rouge1, recall, rouge2 = 100 * np.array(values).T
    return {"rouge1": rouge1, "recall": recall, "rouge1+2": rouge1 + rouge2}


def sample(examples: Sequence, count: int) -> list:
    """Section 4: `count` random examples, in their order, always the same ones."""
    count = min(count, len(examples))
    chosen = np.random.default_rng(0).choice(len(examples), count, replace=False)
    return [examples[i] for i in sorted(chosen)]


def gain(measure: Measure, layer: int, heads: tuple[int, ...]) -> Scores:
    """r_ora - r_uni, for every document: oracle masks, and uniform weights, on the same heads.

    D10, the other reading: "rouge1_plain" and "recall_plain" are over the model as it is.
    """
    plain = measure("plain")
    oracle = measure("oracle", layer, heads)
    uniform = measure("uniform", layer, heads)
    over_plain = {f"{metric}_plain": oracle[metric] - plain[metric] for metric in oracle}
    return {metric: oracle[metric] - uniform[metric] for metric in oracle} | over_plain


def content_selection_effects(measure: Measure, heads: Heads) -> Effects:
    """The content selection effect of each head by itself (Section 4.1; Figures 2 and 6)."""
    return {
        (layer, head): gain(measure, layer, (head,))
        for layer, chosen in heads.items()
        for head in chosen
    }


def ranked(effects: Effects) -> dict[int, tuple[int, ...]]:
    """The heads of each layer, the largest mean effect on ROUGE-1 first (on ties, the lower)."""
    means = {place: values["rouge1"].mean() for place, values in effects.items()}
    heads = {}
    for layer, head in sorted(means, key=lambda place: (place[0], -means[place], place[1])):
        heads[layer] = *heads.get(layer, ()), head
    return heads


def sum_of_parts(effects: Effects, layer: int) -> Scores:
    """Section 4.2, right of Figure 3: the sum of a layer's single effects, for every document."""
    parts = [values for (of_layer, _), values in effects.items() if of_layer == layer]
    return {metric: sum(part[metric] for part in parts) for metric in parts[0]}


def synergy(measure: Measure, effects: Effects) -> list[dict]:
    """Section 4.2, Figures 3, 7: heads join one by one, F1; all, and the sum of parts, recall."""
    rows = []
    for layer, order in ranked(effects).items():
        for count, head in enumerate(order, start=1):
            together = gain(measure, layer, order[:count])
            row = {"side": "left", "layer": layer, "count": count, "added": head}
            rows.append(row | improvement(together))
        parts = sum_of_parts(effects, layer)
        minus = {metric: together[metric] - parts[metric] for metric in parts}
        sides = {"together": together, "parts": parts, "together minus parts": minus}
        for side, values in sides.items():
            rows.append({"side": f"right, {side}", "layer": layer} | improvement(values, "recall"))
    return rows


def improvement(values: Scores, metric: str = "rouge1") -> dict:
    """D10: means over uniform weights and over the plain model; 95 % intervals over documents."""
    row = {}
    for name, column in (("over_uniform", metric), ("over_plain", f"{metric}_plain")):
        own = describe(Numbers(values[column].reshape(1, -1, 1)), paired=False)
        row[name] = {"mean": own["value"], "low": own["low"], "high": own["high"]}
    return row


def attention_focus(
    run: Summarizer, examples: Sequence, documents: Sequence[Document]
) -> list[dict]:
    """Section 4.3: of every head how many % of its attendees are of each kind.

    An attendee is the word with the highest attention weight. D9: where a generated word has
    several pieces each of them counts.

    Returns:
        A row for each head: layer, head, the categories of `tally`; CONTENT if all examples have
        `pos`.
    """
    pieces, counts = 0, Counter()
    summaries = decode_all(run, documents)
    for example, document, summary in zip(examples, documents, summaries, strict=True):
        written = generated_words(run.tokenizer, summary)
        attended = attendees(run.model, document.ids, summary)
        counts.update(tally(attended, example, document, written))
        pieces += sum(word is not None for word in written)
    has_tags = all(example.pos for example in examples)
    kinds = [kind for kind in counts if has_tags or "content" not in kind]
    shares = {kind: 100 * counts[kind] / max(pieces, 1) for kind in kinds}
    rows = []
    for i, h in np.ndindex(shares["special"].shape):
        row = {"layer": i + 1, "head": h}
        rows.append(row | {kind: float(share[i, h]) for kind, share in shares.items()})
    return rows


@torch.inference_mode()
def attendees(model: torch.nn.Module, ids: Sequence[int], summary: Sequence[int]) -> np.ndarray:
    """(L, H, T) the source position to which the step that emits summary[t + 1] attends most."""
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")  # sdpa has no weights to return, and does not say so
    source, inputs = (torch.tensor([row], device=model.device) for row in (ids, summary[:-1]))
    weights = model(source, decoder_input_ids=inputs, output_attentions=True).cross_attentions
    model.set_attn_implementation(implementation)
    return torch.stack([layer[0].argmax(-1) for layer in weights]).cpu().numpy()


def generated_words(tokenizer, summary: Sequence[int]) -> list[str | None]:
    """(T,) the word of which each generated token is a piece, or None; the start token left out."""
    tokens = summary[1:]
    begins = [tokens[:count] for count in range(len(tokens) + 1)]
    texts = [tokenizer.decode(begin, skip_special_tokens=True) for begin in begins]
    ends = [len(text) for text in texts]
    spans = word_spans(texts[-1])
    words = [texts[-1][start:end].lower() for start, end in spans]
    pieces = overlaps(spans, list(zip(ends, ends[1:], strict=False)))
    return [words[of_token[0]] if of_token else None for of_token in pieces]


def tally(
    attended: np.ndarray, example, document: Document, written: Sequence[str | None]
) -> dict[str, np.ndarray]:
    """How often each head's attendee x is of each category while the word y is written.

    SALIENT: x is a word of the reference; CONTENT: by its part of speech; COPY: x is y; FIRST, LAST
    of the document; "special": no word, such as `<s>`. Words are compared in lower case; a y that
    is None is not counted.

    Args:
        attended: (L, H, T) positions, as of `attendees`; written: (T,) words.
    Returns:
        (L, H) of each category.
    """
    spans, reference = word_spans(example.source), {*WORD.findall(example.target.lower())}
    # One entry more, for tokens that are of no word: no category has it.
    names = np.array([*WORD.findall(example.source.lower()), None], dtype=object)
    is_salient = np.array([name in reference for name in names])
    tags = [tag for sentence in example.pos or [] for tag in sentence]
    tagged = zip(re.finditer(r"\S+", example.source), tags, strict=bool(example.pos))
    content = [match.span() for match, tag in tagged if tag.startswith(CONTENT_TAGS)]
    is_content = np.array([*map(bool, overlaps(content, spans)), False])
    words = overlaps(spans, document.offsets)
    word_of_token = np.array([of_token[0] if of_token else len(spans) for of_token in words])
    # a document that was cut ends before its last word
    seen = word_of_token[word_of_token < len(spans)]

    counted = [t for t, word in enumerate(written) if word is not None]
    word = word_of_token[attended[..., counted]]  # (L, H, steps)
    is_copy = names[word] == np.array([written[t] for t in counted], dtype=object)
    kinds = {
        "copy_salient": is_salient[word] & is_copy,
        "non_copy_salient": is_salient[word] & ~is_copy,
        "copy_content": is_content[word] & is_copy,
        "non_copy_content": is_content[word] & ~is_copy,
        "first": word == seen.min(),
        "last": word == seen.max(),
        "special": word == len(spans),
    }
    return {kind: found.sum(-1) for kind, found in kinds.items()}


def select_heads(measure: Measure, effects: Effects, group: int = 4) -> tuple[Heads, Scores]:
    """Greedy selection of Section 5: in every layer mask the 4, 8, 12, ... most effective heads.

    D11: layer by layer, and without the model as it is among the candidates.

    Returns:
        The heads with the largest ROUGE-1 + ROUGE-2 F1 under the tagger's masks (on ties, the set
        tried first), and their scores.
    """
    most = -np.inf
    for layer, order in ranked(effects).items():
        for count in [*range(group, len(order), group), len(order)]:
            heads = order[:count]
            scores = measure("system", layer, heads)
            if scores["rouge1+2"].mean() > most:
                most = scores["rouge1+2"].mean()
                best, best_scores = {layer: heads}, scores
    return best, best_scores


@dataclass
class Options:
    """The command line."""

    # A summariser: a run, a folder or name of a transformers' model.
    run: tyro.conf.Positional[str]
    out: Path  # Folder for the results.
    tagger: Path | None = None  # Run of a tagger, whose masks choose heads greedily (Section 5).
    effects: bool = False  # Measure single heads, and heads together (Figures 2, 3, 6, 7).
    # Count what the heads attend to (Figures 4, 8-10); CONTENT needs data with a field `pos`.
    focus: bool = False
    group: Positive = 4  # Heads that are added at a time (Section 5: 4).
    data: str = ""  # Anything that shared.data.load takes; none: what the run has learned from.
    documents: Positive = 1000  # Random documents of the validation split (Section 4: 1,000).
    # The model's settings, or those of Appendix A.
    decoding: Literal["own", "cnn_dailymail", "nyt", "xsum"] = "own"
    # So many tokens never come twice in a row; none: those of --decoding.
    no_repeat_ngram_size: int | None = None
    words: Words = "rouge-score"  # Of ROUGE: English, or those of any script.
    overwrite: bool = False  # Replace the results of --out if they exist.

    def generation(self) -> dict:
        """What is given of `generate`: one beam (Appendix A), for which no penalty counts."""
        settings = dict(PAPER_DECODING.get(self.decoding, {}))
        settings |= {"num_beams": 1, "length_penalty": None}
        if self.no_repeat_ngram_size is not None:
            settings["no_repeat_ngram_size"] = self.no_repeat_ngram_size
        return settings


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    options = read_flags(Options, arguments, __doc__)
    name = name_of(options.run)
    files = []
    if options.focus:
        files += ["focus.csv"]
    if options.effects:
        files += ["effects.csv", "synergy.csv"]
    if options.tagger:
        files += [f"{name}.heads"]
    for file in files:
        path = options.out / file
        if path.exists() and not options.overwrite:  # before hours of decoding
            raise ValueError(f"{path} exists: choose another --out, or add --overwrite")
    run = load_model(options.run)
    tagger = load_run(options.tagger) if options.tagger else None
    pretrained.generation(run.model, run.max_target, **options.generation())
    data = options.data or run.data
    examples = sample(load(data, SPLIT), options.documents)
    references = {example.id: example.references for example in examples}
    check_references(references, words=options.words)
    min_run = tagger.config.min_run if tagger else 1
    kept = {
        "oracle": read_documents(run, examples, oracle=True, min_run=min_run),
        "system": read_documents(run, examples, tagger),
    }
    # each setting is decoded once
    measure = cache(partial(measured, run, examples, kept, words=options.words))
    tables, effects = {}, {}
    if options.focus:
        tables["focus"] = attention_focus(run, examples, kept["oracle"])
    if options.effects or tagger:
        effects = content_selection_effects(measure, all_heads(run.model))
    if options.effects:
        tables["effects"] = [
            {"layer": layer, "head": head} | improvement(values)
            for (layer, head), values in effects.items()
        ]
        tables["synergy"] = synergy(measure, effects)
    said = f"{name} (seed {run.seed}) on {Path(data).name}, {len(examples)} {SPLIT} documents"
    system = {"system": said}
    for table, rows in tables.items():
        with open_output(options.out / f"{table}.csv", options.overwrite) as file:
            write_csv(file, [system | row for row in rows])
    if tagger:
        heads, masked = select_heads(measure, effects, options.group)
        is_worse = measure("plain")["rouge1+2"].mean() >= masked["rouge1+2"].mean()
        worse = "; without masks it did better (D11)" if is_worse else ""
        with open_output(options.out / f"{name}.heads", options.overwrite) as file:
            print(write_heads(heads), file=file)
        print(f"{name}: heads {write_heads(heads)}{worse}, {len(examples)} documents of {SPLIT}")


if __name__ == "__main__":
    main()
