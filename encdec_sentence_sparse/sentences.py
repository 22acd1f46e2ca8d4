"""Where sentences begin and end: in characters, and in tokens.

Three rules: "given" (the data's own sentences), "nltk" (the paper's: NLTK's punkt model, or one trained on the training
documents where NLTK has no data), "eos-token" (the released code's: after every full-stop token).
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Span = tuple[int, int]  # first character and the one behind the last

RULES = ("given", "nltk", "eos-token")
ENDS = ("own", "last")
NO_PUNKT = "NLTK has no punkt model on this machine: give texts to train on, or: python -m nltk.downloader punkt_tab"


@dataclass(frozen=True)
class Splitter:
    """How documents are split. Make one with `make_splitter`."""

    rule: str = "given"  # one of RULES. D8: released code "eos-token", whatever the paper says
    eos: str = "own"  # D7: `</s>` is a sentence of its own (released code), or belongs to the "last"
    punkt: object = None  # NLTK's PunktSentenceTokenizer, with "nltk"
    eos_ids: tuple[int, ...] = ()  # tokens that end a sentence, with "eos-token"; `</s>` always does


def make_splitter(
    rule: str,
    texts: Iterable[str] | None = None,
    saved: dict | None = None,
    eos: str = "own",
    eos_ids: Sequence[int] = (),
) -> Splitter:
    """A splitter; nothing is downloaded.

    Args:
        texts: training documents, for "nltk" where NLTK's data is not on the machine.
        saved: a punkt model as `punkt_values` gives it; wins over both.
    Raises:
        ValueError: unknown rule; "nltk" without a model and without texts.
        ImportError: "nltk" without nltk.
    """
    if rule not in RULES:
        raise ValueError(f"sentences is {rule!r}; use one of {', '.join(RULES)}")
    if eos not in ENDS:
        raise ValueError(f"eos is {eos!r}; use one of {', '.join(ENDS)}")
    if rule == "eos-token" and not eos_ids:
        raise ValueError("the rule 'eos-token' needs eos_ids: the ids of the tokens that end a sentence")
    return Splitter(rule, eos, make_punkt(texts, saved) if rule == "nltk" else None, tuple(eos_ids))


def make_punkt(texts: Iterable[str] | None, saved: dict | None) -> object:
    """NLTK's PunktSentenceTokenizer: the saved model, or NLTK's English one, or one trained on the texts."""
    try:
        from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer, PunktTokenizer, PunktTrainer
    except ImportError:
        raise ImportError("the rule 'nltk' needs NLTK: pip install 'nltk>=3.9.1'") from None
    if saved is not None:
        parameters = PunktParameters()
        parameters.abbrev_types, parameters.sent_starters = set(saved["abbrev_types"]), set(saved["sent_starters"])
        parameters.collocations = {tuple(pair) for pair in saved["collocations"]}
        parameters.ortho_context.update(saved["ortho_context"])
        return PunktSentenceTokenizer(parameters)
    try:
        return PunktTokenizer("english")
    except LookupError:
        if not (texts := list(texts or ())):
            raise ValueError(NO_PUNKT) from None
    trainer = PunktTrainer()
    for text in texts:
        trainer.train(text, finalize=False)
    trainer.finalize_training()
    return PunktSentenceTokenizer(trainer.get_params())


def punkt_values(splitter: Splitter) -> dict:
    """A punkt model as plain lists and numbers for a JSON file, so that a run splits in the same way everywhere."""
    parameters = splitter.punkt._params  # NLTK has no public way to what it saves itself
    return {
        "abbrev_types": sorted(parameters.abbrev_types),
        "sent_starters": sorted(parameters.sent_starters),
        "collocations": sorted(map(list, parameters.collocations)),
        "ortho_context": dict(sorted(parameters.ortho_context.items())),
    }


def split_sentences(text: str, splitter: Splitter) -> list[Span]:
    """Sentences of a text by punkt, at least one whatever the text."""
    spans = [(start, end) for start, end in splitter.punkt.span_tokenize(text) if start < end]
    return spans or [(0, len(text))]


def given_spans(sentences: Sequence[str]) -> list[Span]:
    """Spans of sentences in their text, which is `" ".join(sentences)`."""
    spans, start = [], 0
    for sentence in sentences:
        spans.append((start, start + len(sentence)))
        start += len(sentence) + 1
    return spans


def token_sentence_ids(
    offsets: Sequence[Span], spans: Sequence[Span], is_special: Sequence[int], eos: str = "own"
) -> list[int]:
    """The sentence of each token: 0, 1, ... without gaps; sentences without a token are not counted.

    A token belongs to the sentence of its last character, and what stands between two sentences to the one before.
    `<s>` belongs to the first.

    Args:
        offsets: (S,) first character and end of each token.
        is_special: (S,) true for `<s>` and `</s>`.
        eos: of a `</s>` behind the text, see `Splitter`.
    """
    starts, found, before = [start for start, _ in spans], [], 0
    last_text = max((i for i, special in enumerate(is_special) if not special), default=-1)
    for i, ((_, end), special) in enumerate(zip(offsets, is_special, strict=True)):
        if not special:
            before = max(before, bisect_right(starts, end - 1) - 1)
        # D7: a sentence of its own, which counts toward r.
        found.append(len(spans) + i if special and i > last_text >= 0 and eos == "own" else before)
    return without_gaps(found)


def without_gaps(ids: Sequence[int]) -> list[int]:
    """Number what is in order anyhow 0, 1, ...: [2, 2, 5] -> [0, 0, 1]."""
    numbers = {sentence: number for number, sentence in enumerate(dict.fromkeys(ids))}
    return [numbers[sentence] for sentence in ids]


def eos_token_sentences(ids: Sequence[int], eos_ids: Sequence[int]) -> list[int]:
    """The sentence of each token by the released rule: one ends after every token of `eos_ids` and after `</s>` (2)."""
    found, sentence = [], 0
    for token in ids:
        found.append(sentence)
        sentence += token == 2 or token in eos_ids
    return found
