"""The toy corpus: short seeded stories whose truth is known.

A story is a list of sentences of four kinds; " / " parts its clauses (EDUs).

    main    a fact that the summary takes: "officials confirmed that / Mara Kelman opened 12 halls in Marwick ."
    detail  a fact of the same form that the summary leaves out ("residents guessed that / ..."), or a remark on a fact
    repeat  a fact, main or not, told again: "12 halls in Marwick were unveiled by Mara Kelman , / officials verified ."
    filler  scenery: "rain fell all morning , / while the shops stayed open ."

The summary has a sentence per main fact, in the order of first mention; it copies names, number, object and place and
rewords the rest: "in Marwick 12 halls were inaugurated by Mara Kelman .". Which facts are main the text shows through
the source's verb (as far as `signal` goes), the tree through nuclearity (as far as `tree_signal` goes), nothing else.
"""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

SPLITS = {"train": 4000, "validation": 500, "test": 500}  # split: number of stories when no count is asked for
CERTAIN = "confirmed announced verified".split()  # the summary takes what a source confirmed ...
UNCERTAIN = "claimed guessed suspected".split()  # ... and leaves what it guessed
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
NUMBERS = "two three four five six seven eight nine 11 12 14 15 18 20 25 30 40 50 60 75".split()
NAME_ENDS = {  # a name is one of SYLLABLES and one of these
    "first": "a in o ia en is ette us".split(),
    "last": "man son well sen ley kins croft berg".split(),
    "place": "wick ton ford bury dale ham port mouth".split(),
}
CONTENT = ("first", "last", "verb", "number", "objects", "place")  # the slots of a fact that the summary takes

# Templates. "@relation clause" is a clause with its relation to the nucleus of the sentence, which is "@span clause".
FIRST_MENTION = "@attribution-positive {source} {cue} that @span {first} {last} {verb} {number} {objects} in {place}"
FIRST_MENTIONS = [FIRST_MENTION + end for end in (" .", " on {day} .", " , @causal-cause because {reason} .")]
RETELLINGS = (
    "@span {number} {objects} in {place} were {verb} by {first} {last} , @attribution-positive {source} {cue} .",
    "@attribution-positive {source} {cue} that @span {number} {objects} were {verb} in {place} by {first} {last} .",
    "@span in {place} {first} {last} {verb} {number} {objects} , @attribution-positive {source} {cue} .",
)
FILLERS = ["@span {one} " + end for end in (".", ", @joint-list and {two} .", ", @adversative-contrast while {two} .")]
SUMMARY = "in {place} {number} {objects} were {summary_verb} by {first} {last} ."


EARLY = 0.5  # facts are first told in this first part of a story
SYLLABLES = "Mar Kel Bren Tol Jas Win Cor Lan Dor Sel Har Nev".split()  # begins of names
VERBS = (  # told/also told/in the summary
    "opened/unveiled/inaugurated repaired/mended/restored bought/purchased/acquired painted/coloured/decorated "
    "built/erected/constructed sold/auctioned/traded"
).split()
OBJECTS = "bridges schools halls towers markets gardens stations libraries hotels theatres".split()
SOURCES = "officials residents reporters".split()
REASONS = [
    "the old ones had closed", "the town had doubled", "visitors had complained", "the budget had changed",
]  # fmt: skip
REMARKS = [
    "@span {last} had planned it for {number} years .",
    "@span {number} people helped {last} .",
    "@span the work took {number} weeks , @joint-list and {last} thanked the crew .",
]
SCENERY = [
    "rain fell all morning", "the shops stayed open", "the streets were quiet", "a band played in the square",
    "children waved small flags", "the buses ran late", "coffee was free", "the river looked calm",
]  # fmt: skip

# Penn tags of the words of the templates; VBD becomes VBN after "had" and "were" (`tag`).
WORDS_BY_TAG = {
    "CC": "and", "CD": " ".join(NUMBERS), "DT": "the a all", "PRP": "it", "RB": "late far away", ",": ",", ".": ".",
    "IN": "that in on by because while for at",
    "JJ": "old open quiet small free calm", "NN": "town budget work crew rain morning band square coffee river",
    "NNS": " ".join(["ones visitors years weeks people shops streets children flags buses", *OBJECTS, *SOURCES]),
    "VBD": " ".join(["had was were closed doubled complained changed planned took thanked helped fell stayed played",
                     "waved ran looked", *CERTAIN, *UNCERTAIN, *re.split("[ /]", " ".join(VERBS))]),
}  # fmt: skip
TAGS = {word: tag for tag, words in WORDS_BY_TAG.items() for word in words.split()}


@dataclass(frozen=True)
class ToyConfig:
    """The knobs of the toy corpus. A value out of range is a ValueError."""

    min_sentences: int = 8  # Shortest story in sentences, 8-40.
    max_sentences: int = 12  # Longest story in sentences, min_sentences-40.
    min_facts: int = 2  # Fewest main facts, that is, sentences of the summary, 2-4.
    max_facts: int = 3  # Most main facts, min_facts-4.
    other_facts: int = 3  # Facts of the same form that the summary leaves out, 1-6; fewer where a story is too short.
    signal: float = 1.0  # Share of facts whose source tells the truth; the other sources are shuffled. 0-1.
    tree_signal: float = 1.0  # Share of sentences whose place in the tree tells the truth; the rest is shuffled. 0-1.
    repetition: float = 0.2  # Chance that a fact, main or not, is told again; and again, up to three times. 0-1.
    names: int = 50  # Length of each list of names (first, last, place), most of the vocabulary to copy, 10-96.

    def __post_init__(self) -> None:
        bounds = {"min_sentences": (8, 40), "max_sentences": (self.min_sentences, 40), "min_facts": (2, 4)}
        bounds |= {"max_facts": (self.min_facts, 4), "other_facts": (1, 6), "names": (10, 96)}
        bounds |= dict.fromkeys(("signal", "tree_signal", "repetition"), (0, 1))
        for field, (low, high) in bounds.items():
            value, number = getattr(self, field), type(getattr(ToyConfig, field))
            if isinstance(value, bool) or not isinstance(value, (int, number)) or not low <= value <= high:
                kind = "a whole number" if number is int else "a number"
                raise ValueError(f"ToyConfig.{field} is {value!r}; give {kind} from {low} to {high}")


class Sentence(NamedTuple):
    clauses: list[tuple[str, str]]  # (relation, text)
    kind: str
    content: set[str]  # words that the summary takes; none: not salient


def make_sentence(kind: str, template: str, content: tuple[str, ...] = (), **slots: str) -> Sentence:
    """Fills a template and cuts it into clauses; `content` names the slots that the summary takes."""
    clauses = [tuple(clause.strip().split(" ", 1)) for clause in template.format(**slots).split("@")[1:]]
    return Sentence(clauses, kind, {slots[slot] for slot in content})


def pick(options: list, rng: np.random.Generator) -> Any:
    return options[rng.integers(len(options))]


def name_list(part: str, size: int) -> list[str]:
    """`size` different names of a kind (first, last, place), each a syllable and an ending."""
    starts, ends = SYLLABLES, NAME_ENDS[part]
    return [starts[i % len(starts)] + ends[(i + i // len(starts)) % len(ends)] for i in range(size)]


def shuffle_loose(marks: list[bool], signal: float, rng: np.random.Generator) -> list[bool]:
    """Each mark stays with probability `signal`; the others are shuffled, so that as many are True as before."""
    marks = np.array(marks)
    loose = np.flatnonzero(rng.random(len(marks)) >= signal)
    marks[loose] = marks[rng.permutation(loose)]
    return marks.tolist()


def draw_facts(config: ToyConfig, length: int, rng: np.random.Generator, cue_rng: np.random.Generator) -> list[dict]:
    """Draws main and other facts in order of first mention; no two in a story share a name, place or number."""
    mains = int(rng.integers(config.min_facts, config.max_facts + 1))
    main = rng.permutation(np.arange(min(mains + config.other_facts, length)) < mains)
    certain = shuffle_loose(main, config.signal, cue_rng)
    slots = {part: rng.permutation(name_list(part, config.names)).tolist() for part in NAME_ENDS}
    slots["number"] = rng.permutation(NUMBERS).tolist()
    facts = []
    for i, position in enumerate(np.sort(rng.uniform(0, EARLY, len(main)))):
        *verbs, summary_verb = pick(VERBS, rng).split("/")
        fact = {"main": bool(main[i]), "cues": CERTAIN if certain[i] else UNCERTAIN, "position": position}
        fact |= {"verbs": rng.permutation(verbs).tolist(), "summary_verb": summary_verb}
        fact |= {"objects": pick(OBJECTS, rng), "day": pick(DAYS, rng)}
        facts.append(fact | {slot: words[i] for slot, words in slots.items()})
    return facts


def mention(fact: dict, times: int, rng: np.random.Generator, cue_rng: np.random.Generator) -> Sentence:
    """Tells a fact that has been told `times` times before: at first as it is, then in other words."""
    template = RETELLINGS[times - 1] if times else pick(FIRST_MENTIONS, rng)
    kind = "repeat" if times else "main" if fact["main"] else "detail"
    slots = fact | {"verb": fact["verbs"][times % 2], "cue": pick(fact["cues"], cue_rng)}
    slots |= {"source": pick(SOURCES, rng), "reason": pick(REASONS, rng)}
    return make_sentence(kind, template, CONTENT if fact["main"] else (), **slots)


def filling(facts: list[dict], rng: np.random.Generator) -> tuple[float, Sentence]:
    """A remark just after one of the facts, or scenery anywhere: (position in the story, sentence)."""
    if rng.random() < 0.3:
        fact, template = pick(facts, rng), pick(REMARKS, rng)
        return fact["position"] + 1e-9, make_sentence("detail", template, last=fact["last"], number=pick(NUMBERS, rng))
    one, two = rng.permutation(SCENERY).tolist()[:2]
    return rng.random(), make_sentence("filler", pick(FILLERS, rng), one=one, two=two)


def tell(facts: list[dict], config: ToyConfig, length: int, rng, cue_rng) -> list[Sentence]:
    """Tells the facts, some of them again, and fills up to `length` sentences."""
    told = [(fact["position"], mention(fact, 0, rng, cue_rng)) for fact in facts]
    for i in rng.permutation(len(facts)):
        for times in range(1, len(RETELLINGS) + 1):
            if len(told) == length or rng.random() >= config.repetition:
                break
            told.append((rng.uniform(facts[i]["position"], 1), mention(facts[i], times, rng, cue_rng)))
    told += [filling(facts, rng) for _ in range(length - len(told))]
    return [sentence for _, sentence in sorted(told, key=lambda pair: pair[0])]


def sentence_tree(relations: list[str], first: int) -> tuple | int:
    """Joins the clauses of a sentence, the first of which is EDU number `first`, around its nucleus.

    A tree is an EDU number (leaf) or (left tree, right tree, nuclearity "NS" | "SN" | "NN", relation).
    """
    nucleus = relations.index("span")
    tree = first + nucleus
    for i in range(nucleus + 1, len(relations)):
        tree = (tree, first + i, "NN" if relations[i] == "joint-list" else "NS", relations[i])
    for i in reversed(range(nucleus)):
        tree = (first + i, tree, "SN", relations[i])
    return tree


def document_tree(trees: list, promoted: list[bool], rng: np.random.Generator) -> tuple | int:
    """Joins sentence trees: the promoted ones stand high, and from the root nuclei alone lead to them and no others."""
    if len(trees) == 1:
        return trees[0]
    where = np.flatnonzero(promoted).tolist()
    cuts = where[1:] or [max(where[0], 1)] if where else list(range(1, len(trees)))  # part the promoted ones first
    cut = pick(cuts, rng)
    left, right = any(promoted[:cut]), any(promoted[cut:])
    nuclearity = "NN" if left and right else "NS" if left else "SN" if right else pick(["NN", "NS", "SN"], rng)
    relation = "joint-list" if nuclearity == "NN" else pick(["elaboration-additional", "context-background"], rng)
    left_tree = document_tree(trees[:cut], promoted[:cut], rng)
    return left_tree, document_tree(trees[cut:], promoted[cut:], rng), nuclearity, relation


def end_of(tree: tuple | int, side: int) -> int:
    """Number, from 1, of the first (side 0) or last (side 1) EDU of a tree."""
    return tree + 1 if isinstance(tree, int) else end_of(tree[side], side)


def write_dis(tree: tuple | int, edus: list[str], label: str = "Root", relation: str = " ", indent: str = "") -> str:
    """A tree in the `.dis` format of RST-DT and GUM, one node a line, two spaces a level."""
    if isinstance(tree, int):
        return f"{indent}( {label} (leaf {tree + 1}){relation} (text _!{edus[tree]}_!) )\n"
    text = f"{indent}( {label} (span {end_of(tree, 0)} {end_of(tree, 1)}){relation}\n"
    for child, role in zip(tree[:2], tree[2], strict=True):
        to_parent = tree[3] if role == "S" or tree[2] == "NN" else "span"
        child_label = "Nucleus" if role == "N" else "Satellite"
        text += write_dis(child, edus, child_label, f" (rel2par {to_parent})", indent + "  ")
    return f"{text}{indent})\n"


def tag(tokens: list[str]) -> list[str]:
    """Penn tags of a sentence of the toy corpus."""
    tags = ["NNP" if token[0].isupper() else TAGS[token] for token in tokens]
    for i in range(1, len(tokens)):
        if tags[i] == "VBD" and tokens[i - 1] in ("had", "were"):
            tags[i] = "VBN"
    return tags


def story(config: ToyConfig, rng: np.random.Generator, name: str = "toy") -> dict:
    """Makes one story: the fields of `shared.data.Example`, all text being tokens joined by single spaces.

    The same rng with another `signal` or `tree_signal` gives the same story but for the sources' verbs, or the tree.
    """
    rng, cue_rng, tree_rng = rng.spawn(3)  # what is told, the verbs of the sources, the tree
    length = int(rng.integers(config.min_sentences, config.max_sentences + 1))
    facts = draw_facts(config, length, rng, cue_rng)
    sentences = tell(facts, config, length, rng, cue_rng)
    edus, trees = [], []
    for sentence in sentences:
        trees.append(sentence_tree([relation for relation, _ in sentence.clauses], len(edus)))
        edus += [text for _, text in sentence.clauses]
    salient = [bool(sentence.content) for sentence in sentences]
    promoted = shuffle_loose(salient, config.tree_signal, tree_rng)
    document = [" ".join(text for _, text in sentence.clauses) for sentence in sentences]
    return {
        "id": name,
        "document": document,
        "summary": [SUMMARY.format(**fact) for fact in facts if fact["main"]],
        "edus": edus,
        "tree": write_dis(document_tree(trees, promoted, tree_rng), edus),
        "pos": [tag(text.split()) for text in document],
        "salient": salient,
        "salient_tokens": [[t in s.content for t in d.split()] for d, s in zip(document, sentences, strict=True)],
        "kinds": [sentence.kind for sentence in sentences],
    }


def generate(split: str, count: int | None = None, config: ToyConfig = ToyConfig(), seed: int = 0) -> list[dict]:
    """Makes the first `count` stories of a split (default: see SPLITS); story i depends on the rest and i alone.

    Raises:
        ValueError: unknown split, negative count or seed.
    """
    if split not in SPLITS:
        raise ValueError(f"toy split {split!r} does not exist; choose one of {', '.join(SPLITS)}")
    count = SPLITS[split] if count is None else count
    if min(count, seed) < 0:
        raise ValueError(f"toy count is {count} and seed is {seed}; give 0 or more")
    streams = (np.random.default_rng([seed, list(SPLITS).index(split), i]) for i in range(count))
    return [story(config, rng, f"toy-{split}-{i:05d}") for i, rng in enumerate(streams)]
