"""The rules of Section 7 in place of gates, and the six types of source units that they and Figure 5 are built on.

python -m l0drop.experiments.rules train --rule pos --out runs/pos --init runs/base --stanza FOLDER
python -m l0drop.experiments.rules predict runs/pos --data FOLDER --out pos.jsonl
python -m l0drop.experiments.rules predict runs/l0 --data FOLDER --stanza FOLDER    # any run: what is pruned, by type

Tags come with a corpus, or from Stanza, whose models lie in its own folder or in --stanza. A unit is one subword or
character; the final </s> is none of the types, and no rule drops it (D9).
"""

import functools
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenizers import Encoding, Tokenizer

from shared.data import Example, read
from shared.run import one_line_errors, parse, read_flags

from .. import loading
from .. import predict as core
from ..config import PRESETS, TrainConfig
from ..loading import Run
from ..train import train

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
    """Type of every unit of a source, from the index of its word and that word's tag (Section 6).

    Pieces of a segmented word are "BPEH" (its first) and "BPEO" (the others) whatever the word's tag; an unsegmented
    word has the group of its tag.
    """
    pieces, seen, types = Counter(words), set(), []
    for word, tag in zip(words, tags, strict=True):
        if pieces[word] == 1:
            types.append(tag_group(tag))
        else:
            types.append("BPEO" if word in seen else "BPEH")
        seen.add(word)
    return types


def tags_of_units(starts: Sequence[int], spans: Sequence[Span]) -> list[str]:
    """Tag of every unit: that of the token which its first character lies in; ValueError where it lies in none."""
    tags = [next((tag for first, end, tag in spans if first <= start < end), None) for start in starts]
    if None in tags:
        where = starts[tags.index(None)]
        raise ValueError(f"no part-of-speech tag covers character {where}; the tokens must cover the whole source")
    return tags


def keep_pos(types: Sequence[str], tags: Sequence[str]) -> list[bool]:
    """POS rule: drop function words, punctuation, BPEO, and words tagged MD or EX."""
    dropped, pairs = ("function", "punctuation", "BPEO"), zip(types, tags, strict=True)
    return [kind not in dropped and (kind == "BPEH" or tag not in EASY_TAGS) for kind, tag in pairs]


def dropped_by_frequency(sources: Sequence[Sequence[int]], share: float, rarest: bool = False) -> set[int]:
    """Units that the Freq rule drops (the most frequent), or with `rarest` the Inv Freq rule (the rarest).

    D5: units are taken from that end of the ranking for as long as together they cover at most `share` of the corpus;
    the paper's ranks (100, 452) belong to its own corpus and vocabulary.
    """
    counts = Counter(unit for source in sources for unit in source)
    ranking = sorted(counts, key=lambda unit: (-counts[unit], unit), reverse=rarest)
    budget, dropped = share * counts.total(), set()
    for unit in ranking:
        budget -= counts[unit]
        if budget < 0:
            break
        dropped.add(unit)
    return dropped


# From texts to tags


def label_spans(pieces: Sequence[str], labels: Sequence) -> list[Span]:
    """(start, end, label) of each piece in the text that joining them by blanks gives."""
    spans, end = [], 0
    for piece, label in zip(pieces, labels, strict=True):
        spans.append((end, end + len(piece), label))
        end += len(piece) + 1
    return spans


def source_types(encoding: Encoding, source: str, spans: list[Span]) -> tuple[list[str], list[str]]:
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
    """Stanza's English tagger; ValueError or ImportError says how to get it."""
    try:
        import stanza
    except ImportError as error:
        raise ImportError("sources without tags need Stanza: pip install stanza") from error
    options = {"processors": "tokenize,pos", "download_method": None, "verbose": False}
    options |= {"dir": folder} if folder else {}
    try:
        return stanza.Pipeline("en", **options)
    except Exception as error:  # Stanza raises several types of its own
        download, where = "stanza.download('en', processors='tokenize,pos')", folder or "its default folder"
        message = f'no Stanza English models in {where}: run python -c "import stanza; {download}" or --stanza FOLDER'
        raise ValueError(message) from error


# Runs


class Rule:
    """What `Run.rule` wants: which encodings of each source are kept."""

    def __init__(self, name: str, dropped: set[int], stanza: str = ""):
        self.name, self.dropped, self.stanza = name, dropped, stanza

    def __call__(self, examples: Sequence[Example], encodings: Sequence[Encoding]) -> list[list[bool]]:
        if self.name == "group":  # the odd positions 1, 3, 5, ...
            return [[position % 2 == 1 for position in range(1, len(each.ids) + 1)] for each in encodings]
        if self.name == "pos":
            tagged = zip(encodings, examples, tag_sources(examples, self.stanza), strict=True)
            return [keep_pos(*source_types(encoding, each.source, spans)) for encoding, each, spans in tagged]
        return [[token not in self.dropped for token in encoding.ids] for encoding in encodings]


def dropped_units(examples: Sequence[Example], tokenizer: Tokenizer, rule: str) -> set[int]:
    """Token ids that a frequency rule drops, counted on the training sources; empty for other rules."""
    if rule not in SHARES:
        return set()
    sources = [encoding.ids for encoding in tokenizer.encode_batch([example.source for example in examples])]
    dropped = dropped_by_frequency(sources, SHARES[rule], rarest=rule == "inv_freq")
    if rule == "inv_freq":  # what the training sources lack is rarest of all
        dropped |= set(range(tokenizer.get_vocab_size())).difference(*sources)
    return dropped


@dataclass(frozen=True)
class RuleConfig(TrainConfig):
    """A run's config with a rule."""

    rule: Literal[RULES] = "none"  # What drops encodings in place of gates (Section 7).
    stanza: str = ""  # Folder of Stanza models for sources without tags; empty: Stanza's own folder.

    def check(self) -> None:
        super().check()
        if self.rule != "none" and self.l0drop != "none":
            raise ValueError(f"--rule {self.rule} takes the place of the gates: add --l0drop none")


class RuleRun(Run):
    """A run whose encodings are dropped by a rule."""

    reader = "experiments.rules predict"

    def write_files(self, folder: Path) -> None:
        super().write_files(folder)
        (folder / "rule.json").write_text(json.dumps(sorted(self.rule.dropped) if self.rule else []))


def with_rule(run: Run, dropped: set[int]) -> Run:
    """The run with the rule that its config names."""
    config = run.config
    return run if config.rule == "none" else run._replace(rule=Rule(config.rule, dropped, config.stanza))


def begin(config: RuleConfig, examples: Sequence[Example]) -> RuleRun:
    """As `loading.begin`, with the rule, whose frequencies are those of the training sources."""
    run = RuleRun(*loading.begin(config, examples))
    return with_rule(run, dropped_units(examples, run.tokenizer, config.rule))


def load_run(folder: str | Path) -> RuleRun:
    """As `loading.load_run`, of a run with a rule or without."""
    run = RuleRun(*loading.load_run(folder, RuleConfig))
    return with_rule(run, read_dropped(folder))


def read_dropped(folder: str | Path) -> set[int]:
    """What `RuleRun.write_files` wrote; a run of the core has none."""
    path = Path(folder, "rule.json")
    return set(json.loads(path.read_text()) if path.exists() else [])


# The command


@dataclass
class Options(core.Options):
    """The command line of predict."""

    stanza: str = ""  # Folder of Stanza models, to count by type what is pruned of sources without tags (Figure 5).


def predict(run: Run, examples: Sequence[Example], stanza: str = "", **options) -> Iterator[dict]:
    """As the core's, and where the sources have tags or `stanza` is given, [pruned, units] of every type (Figure 5)."""
    outputs, is_tagged = core.decode(run, examples, **options), stanza or all(example.pos for example in examples)
    tagged = tag_sources(examples, stanza) if is_tagged else [None] * len(examples)
    for example, output, spans in zip(examples, outputs, tagged, strict=True):
        row = core.row(run, example, output)
        if spans:
            types, _ = source_types(run.tokenizer.encode(example.source), example.source, spans)
            row |= count_by_type(output.pruned[-1], types)
        yield row


def count_by_type(pruned: Sequence[bool], types: Sequence[str]) -> dict[str, list[int]]:
    """[pruned, units] of every type; the last encoding, that of </s>, has none, and what was cut is not counted."""
    counts: dict = {f"pruned_{name}": [0, 0] for name in UNIT_TYPES}
    for is_pruned, name in zip(pruned[:-1], types, strict=False):
        counts[f"pruned_{name}"][0] += is_pruned
        counts[f"pruned_{name}"][1] += 1
    return counts


def command(arguments: Sequence[str] | None, config_type: type, begin: Callable, load: Callable, doc: str) -> None:
    """`train ...` or `predict ...` of a kind of run."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    if name == "train":
        train(*parse(rest, config_type, PRESETS, doc), begin=begin, read=load)
    elif name == "predict":
        options = read_flags(Options, rest, doc)
        run, examples = load(options.run), read(options.files, options.data, options.split, options.limit)
        if options.stanza and run.rule:
            run.rule.stanza = options.stanza
        core.write(run, examples, options, functools.partial(predict, stanza=options.stanza))
    elif name in ("-h", "--help"):
        print(doc)
    else:
        raise ValueError(f"{doc.splitlines()[0]} Begin with train or predict, then their flags, or --help")


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    command(arguments, RuleConfig, begin, load_run, __doc__)


if __name__ == "__main__":
    main()
