"""The rules of Section 7 in place of gates, and the six types of source units that they and Figure 5 are built on.

python -m l0drop.experiments.rules train --rule pos --out runs/pos --init runs/base --stanza FOLDER
python -m l0drop.experiments.rules predict runs/pos --data FOLDER --out pos.jsonl

Tags come with a corpus, or from Stanza, whose models lie in its own folder or in --stanza. A unit is one subword or
character; the final </s> is none of the types, and no rule drops it (D9).
"""

import functools
import itertools
import json
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from tokenizers import Encoding as Tokens
from tokenizers import Tokenizer
from torch import Tensor

from shared.data import Example
from shared.run import one_line_errors, parse, read_flags, setup

from .. import loading
from .. import predict as core
from ..config import PRESETS, TrainConfig, held_open
from ..gates import Memory, compress, dense_memory
from ..loading import Run
from ..model import Encoding, Share, Transformer
from ..sparsity import SparsityControl
from ..text import Item
from ..train import adam, lengths, report, save_average, update

DROPPED = 10**6  # D8: a source token whose id is raised by this is dropped by a rule

Span = tuple[int, int, str]  # first character, end (exclusive), Penn tag of a token

# Footnote 9.  A tag belongs to a group if it starts with one of these: NN covers NNS and NNP, VB covers VBD.
FUNCTION_TAGS = ("CC", "IN", "RP", "TO", "UH", "DT", "WP")
CONTENT_TAGS = ("MD", "JJ", "NN", "RB", "VB")
PUNCTUATION_TAGS = ("-LRB-", "-RRB-", "HYPH", "NFP", "``", "''", ",", ".", ":")
UNIT_TYPES = ("BPEH", "BPEO", "function", "content", "punctuation", "other")  # the curves of Figure 5
EASY_TAGS = ("MD", "EX")  # what the POS rule drops beyond function words, punctuation and BPEO
RULES = ("none", "pos", "freq", "inv_freq", "group")  # Table 2

# Section 7: the 100 most frequent words cover 46.3 % of the training source, those beyond rank 452 about 40.0 %.
SHARES = {"freq": 0.463, "inv_freq": 0.40}


def tag_group(tag: str) -> str:
    """Group of a Penn tag: "function", "content", "punctuation" or "other" (footnote 9)."""
    for group, tags in (("function", FUNCTION_TAGS), ("content", CONTENT_TAGS), ("punctuation", PUNCTUATION_TAGS)):
        if tag.startswith(tags):
            return group
    return "other"


def unit_types(words: Sequence[int], tags: Sequence[str]) -> list[str]:
    """Type of every unit of a source, from the index of its word and that word's tag (Section 6): first and other
    pieces of a cut word are "BPEH" and "BPEO", a whole word has the group of its tag."""
    pieces, types = Counter(words), []
    for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
        piece = "BPEO" if word in words[:place] else "BPEH"
        types.append(tag_group(tag) if pieces[word] == 1 else piece)
    return types


def tags_of_units(starts: Sequence[int], spans: Sequence[Span]) -> list[str]:
    """Tag of every unit: that of the token which its first character lies in; ValueError where it lies in none."""
    tags = [next((tag for first, end, tag in spans if first <= start < end), None) for start in starts]
    if None in tags:
        raise ValueError(f"no part-of-speech tag covers character {starts[tags.index(None)]} of a source")
    return tags


def keep_pos(types: Sequence[str], tags: Sequence[str]) -> list[bool]:
    """POS rule: drop function words, punctuation, BPEO, and words tagged MD or EX."""
    dropped, pairs = ("function", "punctuation", "BPEO"), zip(types, tags, strict=True)
    return [kind not in dropped and (kind == "BPEH" or tag not in EASY_TAGS) for kind, tag in pairs]


def dropped_by_frequency(sources: Sequence[Sequence[int]], share: float, rarest: bool = False) -> set[int]:
    """D5: units that the Freq rule drops, the most frequent as long as together they cover at most `share` of the
    corpus; with `rarest` those of Inv Freq."""
    counts = Counter(unit for source in sources for unit in source)
    ranking = sorted(counts, key=lambda unit: (-counts[unit], unit), reverse=rarest)
    covered = itertools.accumulate(counts[unit] for unit in ranking)
    return {unit for unit, cover in zip(ranking, covered, strict=True) if cover <= share * counts.total()}


# From texts to tags


def label_spans(words: Sequence[str], tags: Sequence[str]) -> list[Span]:
    """(start, end, tag) of each word in the text that joining them by blanks gives."""
    ends = itertools.accumulate(len(word) + 1 for word in words)
    return [(end - len(word) - 1, end - 1, tag) for end, word, tag in zip(ends, words, tags, strict=True)]


def source_types(encoding: Tokens, source: str, spans: list[Span]) -> tuple[list[str], list[str]]:
    """Unit type and tag of every source token, EOS not included."""
    starts = [start + source[start:end][:1].isspace() for start, end in encoding.offsets]  # after its leading blank
    words, tags = encoding.word_ids, tags_of_units(starts, spans)
    tags = ["" if word is None else tag for word, tag in zip(words, tags, strict=True)]  # "": a pretrained model's <s>
    return unit_types(words, tags), tags


def tag_sources(examples: Sequence[Example], folder: str = "") -> list[list[Span]]:
    """(start, end, Penn tag) of each source's tokens: from the corpus where it has tags, else from Stanza."""
    if all(example.pos for example in examples):
        return [label_spans(example.source.split(" "), sum(example.pos, [])) for example in examples]
    nlp = stanza_pipeline(folder)
    from stanza import Document

    documents = nlp.bulk_process([Document([], text=each.source) for each in examples])
    return [[(t.start_char, t.end_char, t.words[0].xpos) for s in d.sentences for t in s.tokens] for d in documents]


@functools.cache
def stanza_pipeline(folder: str):
    """Stanza's English tagger; ValueError: no models."""
    import stanza

    options = {"processors": "tokenize,pos", "download_method": None, "verbose": False}
    try:
        return stanza.Pipeline("en", **options | ({"dir": folder} if folder else {}))
    except Exception as error:  # Stanza raises several types of its own
        raise ValueError("no English models: stanza.download('en', processors='tokenize,pos'), or --stanza") from error


# Runs


def memory_of(encoding: Encoding, prune: bool) -> Memory:
    """What the decoder attends to behind gates, as in `Transformer`, or behind a rule, which has no log alpha."""
    states, keep, gates, log_alpha = encoding
    if not log_alpha:
        keep = keep & (gates[-1] > 0)  # D8: what a rule drops is not attended to, and no dummy stands for it
    return compress(states, gates[-1], keep) if prune else dense_memory(states, keep)


class RuledTransformer(Transformer):
    """A Transformer without gates, some of whose source ids are raised by DROPPED."""

    def encode(self, source: Tensor, hold_open: bool = False) -> Encoding:
        return super().encode(source % DROPPED)._replace(gates=[(source < DROPPED).float()])

    def dense(self, encoding: Encoding) -> Memory:
        return memory_of(encoding, prune=False)

    def pruned(self, encoding: Encoding) -> Memory:
        return memory_of(encoding, prune=True)


class RuleRun(NamedTuple):
    """A `loading.Run` whose encodings are dropped by the rule that its config names."""

    config: "RuleConfig"
    model: RuledTransformer
    tokenizer: Tokenizer
    first_step: int = 0
    dropped: frozenset[int] = frozenset()  # units that a frequency rule drops

    collate = Run.collate

    def encode(self, examples: Sequence[Example]) -> list[Item]:
        """As `Run.encode`, and what the rule drops is raised by DROPPED."""
        keeps = kept_by_rule(self, examples, self.tokenizer.encode_batch([each.source for each in examples]))
        items = []
        for item, keep in zip(Run.encode(self, examples), keeps, strict=True):
            kept = [*keep[: len(item.source) - 1], True]
            source = [token + DROPPED * (not is_kept) for token, is_kept in zip(item.source, kept, strict=True)]
            items.append(item._replace(source=array("i", source)))
        return items

    def write_files(self, folder: Path) -> None:
        Run.write_files(self, folder)
        (folder / "rule.json").write_text(json.dumps(sorted(self.dropped)))


def kept_by_rule(run: RuleRun, examples: Sequence[Example], encodings: Sequence[Tokens]) -> list[list[bool]]:
    """Which tokens of each source the rule keeps."""
    if run.config.rule == "group":  # the odd positions 1, 3, 5, ...
        return [[index % 2 == 0 for index in range(len(each.ids))] for each in encodings]
    if run.config.rule == "pos":
        tagged = zip(encodings, examples, tag_sources(examples, run.config.stanza), strict=True)
        return [keep_pos(*source_types(encoding, each.source, spans)) for encoding, each, spans in tagged]
    return [[token not in run.dropped for token in encoding.ids] for encoding in encodings]


def dropped_units(examples: Sequence[Example], tokenizer: Tokenizer, rule: str, share: float = 0.0) -> frozenset[int]:
    """Token ids that a frequency rule drops, counted on the training sources; empty for other rules. 0: as SHARES."""
    if rule not in SHARES:
        return frozenset()
    sources = [encoding.ids for encoding in tokenizer.encode_batch([example.source for example in examples])]
    dropped = dropped_by_frequency(sources, share or SHARES[rule], rarest=rule == "inv_freq")
    if rule == "inv_freq":  # what the training sources lack is rarest of all
        dropped |= set(range(tokenizer.get_vocab_size())).difference(*sources)
    return frozenset(dropped)


@dataclass(frozen=True)
class RuleConfig(TrainConfig):
    """A run's config with a rule."""

    rule: Literal[RULES] = "none"  # What drops encodings in place of gates (Section 7).
    share: Share = 0.0  # Share of the training sources' tokens that freq and inv_freq drop; 0: as in Section 7.
    stanza: str = ""  # Folder of Stanza models for sources without tags; empty: Stanza's own folder.

    def check(self) -> None:
        super().check()
        if self.rule != "none" and self.l0drop != "none":
            raise ValueError(f"--rule {self.rule} takes the place of the gates: add --l0drop none")


def with_rule(run: Run, dropped: frozenset[int]) -> RuleRun:
    """A run of the core with a rule."""
    model = RuledTransformer(run.model.config)
    model.load_state_dict(run.model.state_dict())
    return RuleRun(run.config, model.train(run.model.training), run.tokenizer, run.first_step, dropped)


def begin(config: RuleConfig, examples: Sequence[Example]) -> RuleRun:
    """As `loading.begin`, with the rule, whose frequencies are those of the training sources."""
    run = loading.begin(config, examples)
    return with_rule(run, dropped_units(examples, run.tokenizer, config.rule, config.share))


def load_run(folder: str | Path) -> RuleRun:
    """As `loading.load_run`, of a run with a rule."""
    return with_rule(loading.load_run(folder, RuleConfig), frozenset(json.loads(Path(folder, "rule.json").read_text())))


def train(config: RuleConfig, out: Path, resume: bool, begin: Callable, load_run: Callable, reader: str) -> None:
    """As `train.train`, of other runs, which `reader` decodes."""
    control = SparsityControl(config.target_sparsity, held_open(config))
    options = {"final": "model.safetensors", "checkpoints": config.average_last, "control": vars(control)}
    made = setup(config, out, resume, begin, load_run, adam, lengths, **options)
    with made.folder as folder:
        update(made, control)
        report(made.run, made.validation, folder, save_average(folder, config), reader)


def command(
    arguments: Sequence[str] | None, config_type, begin: Callable, load_run: Callable, write: Callable, doc: str
):
    """`train ...` or `predict ...` of a kind of run; `write` as `predict.write`."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name == "train":
        reader = begin.__globals__["__spec__"].name + " predict"
        train(*parse(rest, config_type, PRESETS, doc), begin, load_run, reader)
    elif name == "predict":
        options = read_flags(core.Options, rest, doc)
        run = load_run(options.run)
        write(run, options.read(run.config.data), options)
    elif name in ("-h", "--help"):
        print(doc, "Further flags: train --help, predict --help", sep="\n")
    else:
        raise ValueError("begin with train or predict, then their flags, or --help")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    command(arguments, RuleConfig, begin, load_run, core.write, __doc__)


if __name__ == "__main__":
    main()
