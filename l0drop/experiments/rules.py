"""The rules of Section 7 in place of gates, and the types of source units of Figure 5.

python -m l0drop.experiments.rules train --rule pos --out runs/pos --init runs/base --stanza FOLDER
python -m l0drop.experiments.rules predict runs/pos --data FOLDER --out pos.jsonl

Tags come with a corpus, or from Stanza, whose models lie in its own folder or in --stanza. A unit
is one subword or character; the final </s> is none of the types, and no rule drops it (D9).
"""

import functools
import itertools
import json
import re
import sys
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenizers import Encoding as Tokens
from tokenizers import Tokenizer
from torch import Tensor

from shared.data import Example
from shared.run import load_weights, one_line_errors, parse, read_config, read_flags

from .. import loading, predict
from ..config import PRESETS, TrainConfig
from ..gates import Memory, compress, dense_memory
from ..loading import Run
from ..model import Encoding, Share, Transformer
from ..text import Item
from .training import train

DROPPED = 10**6  # D8: a source token whose id is raised by this is dropped by a rule

# Footnote 9.  A tag belongs to a group if it starts with one of these: NN covers NNS and NNP.
GROUPS = {
    "function": ("CC", "IN", "RP", "TO", "UH", "DT", "WP"),
    "content": ("MD", "JJ", "NN", "RB", "VB"),
    "punctuation": ("-LRB-", "-RRB-", "HYPH", "NFP", "``", "''", ",", ".", ":"),
}
UNIT_TYPES = ("BPEH", "BPEO", *GROUPS, "other")  # the curves of Figure 5

# Section 7: the 100 most frequent words cover 46.3 % of the training source, those beyond rank 452
# about 40.0 %.
SHARES = {"freq": 0.463, "inv_freq": 0.40}


def unit_types(words: Sequence[int], tags: Sequence[str]) -> list[str]:
    """Type of every unit of a source, from the index of its word and that word's tag (Section 6).

    The first piece of a cut word is "BPEH", the others are "BPEO"; a whole word has its tag's
    group.
    """
    pieces = Counter(words)
    types = []
    for place, (word, tag) in enumerate(zip(words, tags, strict=True)):
        group = next((group for group, starts in GROUPS.items() if tag.startswith(starts)), "other")
        piece = "BPEO" if word in words[:place] else "BPEH"
        types.append(group if pieces[word] == 1 else piece)
    return types


def keep_pos(types: Sequence[str], tags: Sequence[str]) -> list[bool]:
    """POS rule: drop function words, punctuation, BPEO, and words tagged MD or EX."""
    keep = []
    for kind, tag in zip(types, tags, strict=True):
        is_dropped_word = kind != "BPEH" and tag in ("MD", "EX")
        keep.append(kind not in ("function", "punctuation", "BPEO") and not is_dropped_word)
    return keep


# From texts to tags


def source_types(
    encoding: Tokens, ends: Sequence[int], tags: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Unit type and tag of every source token, EOS not included, from one source of `tag_sources`.

    A unit's tag is that of the word in which it begins, or of the next one; "": none, as a
    pretrained model's <s>.
    """
    unit_tags = []
    for word, (start, _) in zip(encoding.word_ids, encoding.offsets, strict=True):
        place = bisect(ends, start)
        unit_tags.append("" if word is None or place == len(tags) else tags[place])
    return unit_types(encoding.word_ids, unit_tags), unit_tags


def tag_sources(examples: Sequence[Example], folder: str = "") -> list[tuple[list[int], list[str]]]:
    """Where the words of each source end, and their Penn tags: the corpus' own, or Stanza's."""
    tagged = []
    if all(example.pos for example in examples):
        for example in examples:
            ends = [word.end() for word in re.finditer(r"\S+", example.source)]
            tagged.append((ends, sum(example.pos, [])))
        return tagged
    for document in stanza_pipeline(folder).bulk_process([example.source for example in examples]):
        tokens = list(document.iter_tokens())
        ends = [token.end_char for token in tokens]
        tagged.append((ends, [token.words[0].xpos for token in tokens]))
    return tagged


@functools.cache
def stanza_pipeline(folder: str):
    """Stanza's English tagger; ValueError: no models."""
    import stanza

    options = {"processors": "tokenize,pos", "download_method": None, "verbose": False}
    try:
        return stanza.Pipeline("en", **options | ({"dir": folder} if folder else {}))
    except Exception as error:  # Stanza raises several types of its own
        raise ValueError(
            "no English models: stanza.download('en', processors='tokenize,pos'), or --stanza"
        ) from error


# Runs


def attendable(encoding: Encoding) -> Tensor:
    """(B, S) what the decoder may attend to: behind gates all tokens, behind a rule some."""
    # D8: what a rule drops is not attended to, and no dummy stands for it. It has no log alpha.
    return encoding.keep if encoding.log_alpha else encoding.keep & (encoding.gates[-1] > 0)


class RuledTransformer(Transformer):
    """A Transformer; without gates some of its source ids are raised by DROPPED."""

    dropped: Collection[int] = ()  # units that a frequency rule drops

    def encode(self, source: Tensor, hold_open: bool = False) -> Encoding:
        encoding = super().encode(source % DROPPED, hold_open)
        return encoding if self.l0drop else encoding._replace(gates=[(source < DROPPED).float()])

    def dense(self, encoding: Encoding) -> Memory:
        return dense_memory(encoding.states, attendable(encoding))

    def pruned(self, encoding: Encoding) -> Memory:
        return compress(encoding.states, encoding.gates[-1], attendable(encoding))


def kept(run: Run, examples: Sequence[Example], items: Sequence[Item]) -> list[list[bool]]:
    """Which tokens of each source the rule of a run keeps."""
    if run.config.rule == "group":  # the odd positions 1, 3, 5, ...
        return [[place % 2 == 0 for place in range(len(item.source))] for item in items]
    if run.config.rule == "pos":
        tagged = zip(examples, tag_sources(examples, run.config.stanza), strict=True)
        return [
            keep_pos(*source_types(run.tokenizer.encode(example.source), *tags))
            for example, tags in tagged
        ]
    return [[token not in run.model.dropped for token in item.source] for item in items]


def drop(run: Run, examples: Sequence[Example], items: list[Item]) -> list[Item]:
    """The same items, in which what the rule drops, never the end (D9), is raised by DROPPED."""
    for item, keep in zip(items, kept(run, examples, items), strict=True):
        for place, is_kept in zip(range(len(item.source) - 1), keep, strict=False):
            if not is_kept:
                item.source[place] += DROPPED
    return items


class RuleRun(Run):
    """A run whose encodings are dropped by the rule that its config names."""

    def encode(self, examples: Sequence[Example]) -> list[Item]:
        return drop(self, examples, super().encode(examples))

    def write_files(self, folder: Path) -> None:
        super().write_files(folder)
        (folder / "rule.json").write_text(json.dumps(sorted(self.model.dropped)))


@dataclass(frozen=True)
class RuleConfig(TrainConfig):
    """A run's config with a rule."""

    # In place of the gates (Section 7, Table 2).
    rule: Literal["none", "pos", "freq", "inv_freq", "group"] = "none"
    # Share of the training sources' tokens that freq and inv_freq drop; 0: as in Section 7.
    share: Share = 0.0
    # Folder of Stanza models for sources without tags; empty: Stanza's own folder.
    stanza: str = ""

    def check(self) -> None:
        super().check()
        if self.rule != "none" and self.l0drop != "none":
            raise ValueError(f"--rule {self.rule} takes the place of the gates: add --l0drop none")


def dropped_units(
    config: RuleConfig, examples: Sequence[Example], tokenizer: Tokenizer
) -> frozenset[int]:
    """D5: token ids that a frequency rule drops; none by other rules.

    They are the most frequent ones (Inv Freq: the rarest, first those that no source has) that
    together cover at most the rule's share of the training sources' tokens.
    """
    if config.rule not in SHARES:
        return frozenset()
    counts = Counter(dict.fromkeys(range(tokenizer.get_vocab_size()), 0))
    for encoding in tokenizer.encode_batch([example.source for example in examples]):
        counts.update(encoding.ids)
    ranking = sorted(counts, key=lambda unit: (-counts[unit], unit))
    if config.rule == "inv_freq":
        ranking.reverse()
    covered = itertools.accumulate(counts[unit] for unit in ranking)
    most = (config.share or SHARES[config.rule]) * counts.total()
    return frozenset(unit for unit, cover in zip(ranking, covered, strict=True) if cover <= most)


def ruled(base: Transformer, dropped: Collection[int]) -> RuledTransformer:
    """A model with a rule, in eval mode, with the weights of another one."""
    model = RuledTransformer(base.config).eval()
    model.load_state_dict(base.state_dict())
    model.dropped = frozenset(dropped)
    return model


def begin(config: RuleConfig, examples: Sequence[Example]) -> RuleRun:
    """As `loading.begin`, with the rule, whose frequencies are those of the training sources."""
    run = loading.begin(config, examples)
    model = ruled(run.model, dropped_units(config, examples, run.tokenizer))
    return RuleRun(config, model, run.tokenizer, run.first_step)


def load_run(folder: str | Path) -> RuleRun:
    """As `loading.load_run`, of a run with a rule."""
    folder = Path(folder)
    config = read_config(folder, RuleConfig)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    start = json.loads((folder / "start.json").read_text())
    model = loading.new_model(config, tokenizer)
    load_weights(model, folder / "model.safetensors")
    model = ruled(model, json.loads((folder / "rule.json").read_text()))
    return RuleRun(config, model, tokenizer, start["first_step"])


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> None:
    command, *flags = (sys.argv[1:] if arguments is None else arguments) or [""]
    if command == "train":
        train(*parse(flags, RuleConfig, PRESETS, __doc__), begin, "rules")
    elif command == "predict":
        options = read_flags(predict.Options, flags, __doc__)
        predict.answer(options, load_run(options.run))
    elif command in ("-h", "--help"):
        print(__doc__, "Flags: train --help, predict --help", sep="\n")
    else:
        raise ValueError("begin with train or predict, then their flags, or --help")


if __name__ == "__main__":
    main()
