"""The toy corpus: short seeded stories whose truth is known.

A story is a list of sentences of four kinds:

    main    a fact that the summary takes: "officials confirmed that Mara Kelman opened 12 halls in
        Marwick ."
    detail  a fact of the same form that the summary leaves out ("residents guessed that ..."), or a
        remark on a fact
    repeat  a fact, main or not, told again: "12 halls in Marwick were unveiled by Mara Kelman ,
        officials verified ."
    filler  scenery: "rain fell all morning , while the shops stayed open ."

The summary has a sentence per main fact, in the order of first mention; it copies names, number,
object and place and rewords the rest: "in Marwick 12 halls were inaugurated by Mara Kelman .".
Which facts are main the text shows through the source's verb (as far as `signal` goes), and through
nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np

from .run import check

SPLITS = {"train": 4000, "validation": 500, "test": 500}  # how many stories each has
CERTAIN = "confirmed announced verified".split()  # the summary takes what a source confirmed ...
UNCERTAIN = "claimed guessed suspected".split()  # ... and leaves what it guessed
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
NUMBERS = "two three four five six seven eight nine 11 12 14 15 18 20 25 30 40 50 60 75".split()
SYLLABLES = "Mar Kel Bren Tol Jas Win Cor Lan Dor Sel Har Nev".split()
NAME_ENDS = {  # a name is one of SYLLABLES and one of these
    "first": "a in o ia en is ette us".split(),
    "last": "man son well sen ley kins croft berg".split(),
    "place": "wick ton ford bury dale ham port mouth".split(),
}
VERBS = (  # told/also told/in the summary
    "opened/unveiled/inaugurated repaired/mended/restored bought/purchased/acquired "
    "painted/coloured/decorated built/erected/constructed sold/auctioned/traded"
).split()
OBJECTS = "bridges schools halls towers markets gardens stations libraries hotels theatres".split()
SOURCES = "officials residents reporters".split()
REASONS = (
    "the old ones had closed,the town had doubled,visitors had complained,the budget had changed"
).split(",")
SCENERY = (
    "rain fell all morning,the shops stayed open,the streets were quiet,"
    "a band played in the square,children waved small flags,the buses ran late,"
    "coffee was free,the river looked calm"
).split(",")

FIRST_MENTION = "{source} {cue} that {first} {last} {verb} {number} {objects} in {place}"
FIRST_MENTIONS = [FIRST_MENTION + end for end in (" .", " on {day} .", " , because {reason} .")]
RETELLINGS = (
    "{number} {objects} in {place} were {verb} by {first} {last} , {source} {cue} .",
    "{source} {cue} that {number} {objects} were {verb} in {place} by {first} {last} .",
    "in {place} {first} {last} {verb} {number} {objects} , {source} {cue} .",
)
REMARKS = [
    "{last} had planned it for {number} years .",
    "{number} people helped {last} .",
    "the work took {number} weeks , and {last} thanked the crew .",
]
FILLERS = ["{one} .", "{one} , and {two} .", "{one} , while {two} ."]
SUMMARY = "in {place} {number} {objects} were {summary_verb} by {first} {last} ."

# Penn tags of the words of the templates; VBD becomes VBN after "had" and "were" (`tag`).
WORDS_BY_TAG = {
    "CC": ["and"],
    "CD": NUMBERS,
    "DT": "the a all".split(),
    "PRP": ["it"],
    "RB": "late far away".split(),
    ",": [","],
    ".": ["."],
    "IN": "that in on by because while for at".split(),
    "JJ": "old open quiet small free calm".split(),
    "NN": "town budget work crew rain morning band square coffee river".split(),
    "NNS": "ones visitors years weeks people shops streets children flags buses".split(),
    "VBD": (
        "had was were closed doubled complained changed planned took thanked helped fell stayed "
        "played waved ran looked"
    ).split(),
}
WORDS_BY_TAG["NNS"] += OBJECTS + SOURCES
WORDS_BY_TAG["VBD"] += CERTAIN + UNCERTAIN + "/".join(VERBS).split("/")
TAGS = {word: tag for tag, words in WORDS_BY_TAG.items() for word in words}


@dataclass(frozen=True)
class ToyConfig:
    """The knobs of the toy corpus, with their ranges."""

    min_sentences: Annotated[int, (8, 40)] = 8  # Shortest story in sentences.
    max_sentences: Annotated[int, (8, 40)] = 12  # Longest story in sentences.
    min_facts: Annotated[int, (2, 4)] = 2  # Fewest main facts, that is, sentences of the summary.
    max_facts: Annotated[int, (2, 4)] = 3  # Most main facts.
    # Facts that the summary leaves out; fewer where a story is too short.
    other_facts: Annotated[int, (1, 6)] = 3
    # Share of facts whose source tells the truth; other sources are shuffled.
    signal: Annotated[float, (0, 1)] = 1.0
    # Chance that a fact is told again; and again, up to three times.
    repetition: Annotated[float, (0, 1)] = 0.2
    # Length of each list of names, most of the vocabulary to copy.
    names: Annotated[int, (10, 96)] = 50
    seed: int = 0  # Of all draws.
    count: int = 0  # Stories of a split; 0: those of SPLITS.


def read_knobs(knobs: str) -> ToyConfig:
    """The config of "signal=0.7,seed=3"; ValueError: an unknown knob, or one out of its range."""
    kinds = {knob.name: type(knob.default) for knob in fields(ToyConfig)}
    try:
        pairs = [knob.split("=") for knob in knobs.split(",") if knob]
        config = ToyConfig(**{name: kinds[name](value) for name, value in pairs})
        check(config)
        for of in ("sentences", "facts"):
            low, high = getattr(config, f"min_{of}"), getattr(config, f"max_{of}")
            if low > high:
                raise ValueError(f"min_{of} {low} is above max_{of} {high}")
    except (KeyError, ValueError) as error:
        names = ", ".join(f"{name} ({kind.__name__})" for name, kind in kinds.items())
        raise ValueError(f"toy: {error}; knobs, as in toy:seed=1,count=9: {names}") from None
    return config


def generate(split: str, config: ToyConfig) -> Iterator[dict]:
    """Yields the stories of a split, as rows of JSON lines; ValueError: there is no such split.

    Story i depends on the config and i alone, not on how many there are.
    """
    if split not in SPLITS:
        raise ValueError(f"toy: no split {split!r}; splits: {', '.join(SPLITS)}")
    place = list(SPLITS).index(split)
    for i in range(config.count or SPLITS[split]):
        rng = np.random.default_rng([config.seed, place, i])
        yield {"id": f"toy-{split}-{i:05d}"} | story(config, rng)


def story(config: ToyConfig, rng: np.random.Generator) -> dict:
    """Makes one story; all text is tokens joined by single blanks.

    The same rng with another `signal` gives the same story but for the sources' verbs.
    """
    rng, cue_rng = rng.spawn(2)  # what is told, the verbs of the sources
    length = int(rng.integers(config.min_sentences, config.max_sentences + 1))
    facts = draw_facts(config, length, rng, cue_rng)
    told = tell(facts, config, length, rng, cue_rng)
    told += [fill(facts, rng) for _ in range(length - len(told))]
    told.sort(key=lambda sentence: sentence[0])
    document = [text for _, text, _ in told]
    return {
        "document": document,
        "summary": [SUMMARY.format(**fact) for fact in facts if fact["main"]],
        "pos": [tag(text.split()) for text in document],
        "salient": [is_salient for _, _, is_salient in told],
    }


def draw_facts(
    config: ToyConfig, length: int, rng: np.random.Generator, cue_rng: np.random.Generator
) -> list[dict]:
    """Draws main and other facts in order of first mention.

    No two in a story share a name, place or number.
    """
    mains = int(rng.integers(config.min_facts, config.max_facts + 1))
    main = rng.permutation(np.arange(min(mains + config.other_facts, length)) < mains)
    certain = main.copy()
    loose = np.flatnonzero(cue_rng.random(len(main)) >= config.signal)
    certain[loose] = certain[cue_rng.permutation(loose)]  # so that as many are certain as before
    slots = {}
    for part, ends in NAME_ENDS.items():
        names = []
        for i in range(config.names):
            turns, place = divmod(i, len(SYLLABLES))
            names.append(SYLLABLES[place] + ends[(i + turns) % len(ends)])
        slots[part] = rng.permutation(names).tolist()
    slots["number"] = rng.permutation(NUMBERS).tolist()
    facts = []
    positions = np.sort(rng.uniform(0, 0.5, len(main)))  # in the first half of a story
    for i, position in enumerate(positions):
        *verbs, summary_verb = pick(VERBS, rng).split("/")
        fact = {"main": bool(main[i]), "position": position, "summary_verb": summary_verb}
        fact["cues"] = CERTAIN if certain[i] else UNCERTAIN
        fact["verbs"] = rng.permutation(verbs).tolist()
        fact["objects"] = pick(OBJECTS, rng)
        fact["day"] = pick(DAYS, rng)
        facts.append(fact | {slot: words[i] for slot, words in slots.items()})
    return facts


def tell(facts: list[dict], config: ToyConfig, length: int, rng, cue_rng) -> list[tuple]:
    """Tells the facts, then some again, up to `length` sentences: (position, text, is salient)."""
    told = [mention(fact, 0, fact["position"], rng, cue_rng) for fact in facts]
    for i in rng.permutation(len(facts)):
        for times in range(1, len(RETELLINGS) + 1):
            if len(told) == length or rng.random() >= config.repetition:
                break
            position = rng.uniform(facts[i]["position"], 1)
            told.append(mention(facts[i], times, position, rng, cue_rng))
    return told


def mention(fact: dict, times: int, position: float, rng, cue_rng) -> tuple[float, str, bool]:
    """Tells a fact that was told `times` times before: at first as it is, then in other words."""
    template = RETELLINGS[times - 1] if times else pick(FIRST_MENTIONS, rng)
    slots = fact | {"verb": fact["verbs"][times % 2], "cue": pick(fact["cues"], cue_rng)}
    slots |= {"source": pick(SOURCES, rng), "reason": pick(REASONS, rng)}
    return position, template.format(**slots), fact["main"]


def fill(facts: list[dict], rng: np.random.Generator) -> tuple[float, str, bool]:
    """A remark just after one of the facts, or scenery anywhere; neither is salient."""
    if rng.random() < 0.3:
        fact, template = pick(facts, rng), pick(REMARKS, rng)
        remark = template.format(last=fact["last"], number=pick(NUMBERS, rng))
        return fact["position"] + 1e-9, remark, False
    one, two = rng.permutation(SCENERY).tolist()[:2]
    return rng.random(), pick(FILLERS, rng).format(one=one, two=two), False


def pick(options: list, rng: np.random.Generator) -> Any:
    """One of the options, each as likely as the others."""
    return options[rng.integers(len(options))]


def tag(tokens: list[str]) -> list[str]:
    """Penn tags of a sentence of the toy corpus."""
    tags = ["NNP" if token[0].isupper() else TAGS[token] for token in tokens]
    for i in range(1, len(tokens)):
        if tags[i] == "VBD" and tokens[i - 1] in ("had", "were"):
            tags[i] = "VBN"
    return tags
