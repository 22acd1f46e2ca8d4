"""The toy corpus is what it says: rules written here read the stories, and the declared truth must agree."""

import math
import re

import pytest

from shared.toy import CERTAIN, VERBS, ToyConfig, generate

PENN = set(
    "CC CD DT EX FW IN JJ JJR JJS LS MD NN NNS NNP NNPS PDT POS PRP PRP$ RB RBR RBS RP SYM TO UH VB VBD VBG VBN VBP "
    "VBZ WDT WP WP$ WRB , . : `` ''".split()
)
SUMMARY_VERB = {told: verbs.split("/")[2] for verbs in VERBS for told in verbs.split("/")[:2]}
FIRST_MENTION = re.compile(r"\w+ (\w+) that ([A-Z]\w+ [A-Z]\w+) (\w+) (\w+) (\w+) in ([A-Z]\w+) ")
CORPORA = [
    ToyConfig(),
    ToyConfig(repetition=0.6, signal=0.5, tree_signal=0.5),
    ToyConfig(min_sentences=40, max_sentences=40, min_facts=4, max_facts=4, other_facts=6, repetition=1.0),
    ToyConfig(max_sentences=8, min_facts=4, max_facts=4, other_facts=6, names=10),
]


def summarise(document):
    """The rule: a sentence per fact that a source confirmed, announced or verified, in the order of first mention."""
    summary = []
    for sentence in document:
        fact = FIRST_MENTION.match(sentence)
        if fact and fact[1] in CERTAIN:
            _, who, verb, number, things, place = fact.groups()
            summary.append(f"in {place} {number} {things} were {SUMMARY_VERB[verb]} by {who} .")
    return summary


def exact_share(stories):
    """Share of the stories whose summary the rule writes word by word."""
    return sum(summarise(story["document"]) == story["summary"] for story in stories) / len(stories)


def read_dis(text):
    """A `.dis` tree as (label, first, last, relation, children or text), by recursive descent over exact lines."""
    lines = text.splitlines(keepends=True)
    assert "".join(lines) == text and text.endswith("\n)\n")

    def node(depth):
        line, indent = lines.pop(0), "  " * depth
        start = rf"{indent}\( (Root|Nucleus|Satellite) "
        if leaf := re.fullmatch(start + r"\(leaf (\d+)\) \(rel2par (\S+)\) \(text _!(.+)_!\) \)\n", line):
            return leaf[1], int(leaf[2]), int(leaf[2]), leaf[3], leaf[4]
        relation = r"()" if depth == 0 else r"\(rel2par (\S+)\)"
        inner = re.fullmatch(start + r"\(span (\d+) (\d+)\) " + relation + r"\n", line)
        assert inner, line
        children = node(depth + 1), node(depth + 1)
        assert lines.pop(0) == f"{indent})\n"  # two children and no more
        return inner[1], int(inner[2]), int(inner[3]), inner[4], children

    root = node(0)
    assert not lines and root[0] == "Root"
    return root


def nodes(node):
    """The node and all below, from the left."""
    yield node
    if not isinstance(node[4], str):
        for child in node[4]:
            yield from nodes(child)


def promoted_edus(node):
    """Numbers of the EDUs that nuclei alone lead to."""
    if node[0] == "Satellite":
        return set()
    return {node[1]} if isinstance(node[4], str) else promoted_edus(node[4][0]) | promoted_edus(node[4][1])


def sentence_spans(story):
    """First and last EDU (from 1) of each sentence."""
    spans, rest, first = [], list(story["edus"]), 1
    for sentence in story["document"]:
        count = next(n for n in range(1, 4) if " ".join(rest[:n]) == sentence)
        spans.append((first, first + count - 1))
        rest, first = rest[count:], first + count
    assert not rest
    return spans


def promoted_sentences(story):
    """Reads the tree alone: True for a sentence with an EDU that nuclei alone lead to."""
    edus = promoted_edus(read_dis(story["tree"]))
    return [any(first <= edu <= last for edu in edus) for first, last in sentence_spans(story)]


def told_facts(story):
    """(person, is its source certain, is it main) of each fact, from the text and the kinds."""
    rows = zip(story["document"], story["kinds"], strict=True)
    matches = [(FIRST_MENTION.match(sentence), kind) for sentence, kind in rows]
    return [(match[2], match[1] in CERTAIN, kind == "main") for match, kind in matches if match]


def chance_score(pairs):
    """By how many standard deviations more marks than by chance fall on the truth: (marks, truth), bool lists each."""
    surplus = variance = 0.0
    for marks, truth in pairs:
        n, k, m = len(marks), sum(marks), sum(truth)
        surplus += sum(a and b for a, b in zip(marks, truth, strict=True)) - k * m / n
        variance += k * m / n * (1 - m / n) * (n - k) / (n - 1)  # hypergeometric
    return surplus / math.sqrt(variance)


@pytest.fixture(scope="module", params=CORPORA, ids=["default", "half", "long", "crowded"])
def stories(request):
    return generate("train", 60, request.param)


# ---- seeds


def test_a_story_depends_on_seed_split_and_number_alone():
    assert generate("test", 3) == generate("test", 9)[:3]
    assert generate("test", 3) != generate("test", 3, seed=1)
    assert generate("test", 0) == []


# ---- what a story is


def test_edus_tile_the_sentences(stories):
    for story in stories:
        assert all(1 <= last - first + 1 <= 3 for first, last in sentence_spans(story))
        for text in story["document"] + story["summary"] + story["edus"]:
            assert type(text) is str and text == " ".join(text.split())
    lengths = {last - first + 1 for story in stories for first, last in sentence_spans(story)}
    assert {2, 3} <= lengths <= {1, 2, 3}


def test_tree_is_a_binary_dis_tree_over_the_edus(stories):
    for story in stories:
        tree = list(nodes(read_dis(story["tree"])))
        assert [node[4] for node in tree if isinstance(node[4], str)] == story["edus"]
        assert tree[0][1:3] == (1, len(story["edus"]))
        for _, first, last, _, below in tree:
            if not isinstance(below, str):
                left, right = below
                assert (left[1], left[2] + 1, right[2]) == (first, right[1], last)
                if (left[0], right[0]) == ("Nucleus", "Nucleus"):
                    assert left[3] == right[3] == "joint-list"
                else:
                    nucleus, satellite = (left, right) if left[0] == "Nucleus" else (right, left)
                    assert (nucleus[0], satellite[0]) == ("Nucleus", "Satellite")
                    assert nucleus[3] == "span" and satellite[3] not in ("span", "joint-list")
        assert set(sentence_spans(story)) <= {node[1:3] for node in tree}  # each sentence is a subtree


def test_tags_are_penn_tags_one_a_token(stories):
    for story in stories:
        for sentence, tags in zip(story["document"], story["pos"], strict=True):
            for token, tag in zip(sentence.split(), tags, strict=True):
                assert tag in PENN and (tag == "NNP") == token[0].isupper()
            pairs = zip(["", *sentence.split()], tags, strict=False)
            assert all(tag != "VBD" for before, tag in pairs if before in ("had", "were"))


def test_salient_tokens_are_what_the_summary_copies(stories):
    for story in stories:
        summary = [set(sentence.split()) for sentence in story["summary"]]
        marked = set()
        rows = zip(story["document"], story["salient"], story["salient_tokens"], story["kinds"], strict=True)
        for sentence, salient, marks, kind in rows:
            tokens = [token for token, mark in zip(sentence.split(), marks, strict=True) if mark]
            assert salient == bool(tokens) and (kind in ("main", "repeat") if salient else kind != "main")
            marked |= set(tokens)
            if salient:  # all six slots, of one fact; the verb is reworded, the others are copied
                copied = [token for token in tokens if token not in SUMMARY_VERB]
                assert len(tokens) == 6 and len(copied) == 5
                assert any(set(copied) <= words for words in summary)
        frame = {"in", "were", "by", "."} | set(SUMMARY_VERB.values())
        assert set().union(*summary) - frame <= marked
        assert not set(SUMMARY_VERB.values()) & marked
        assert story["kinds"].count("main") == len(story["summary"])
        assert set(story["kinds"]) <= {"main", "repeat", "detail", "filler"}


# ---- the knobs


@pytest.mark.parametrize("knobs", [{}, {"max_sentences": 40, "max_facts": 4, "repetition": 0.5, "tree_signal": 0.0}])
def test_summary_is_a_function_of_the_text_at_full_signal(knobs):
    stories = generate("test", 200, ToyConfig(**knobs))
    assert exact_share(stories) == 1.0
    assert {len(story["summary"]) for story in stories} <= {2, 3, 4}
    for story in stories:  # there is something to choose: facts of the same form that the rule must leave
        facts = told_facts(story)
        assert 0 < sum(certain for _, certain, _ in facts) < len(facts)
        assert all(certain == main for _, certain, main in facts)


def test_not_without_signal_does_the_text_tell():
    stories = generate("train", 400, ToyConfig(signal=0.0))
    facts = [told_facts(story) for story in stories]
    assert exact_share(stories) < 0.3 < exact_share(generate("train", 400, ToyConfig(signal=0.6))) < 0.8
    assert abs(chance_score([([c for _, c, _ in f], [m for _, _, m in f]) for f in facts])) < 5
    assert all(sum(c for _, c, _ in f) == sum(m for _, _, m in f) for f in facts)  # shuffled, not lost
    first = [([i == 0 for i in range(len(f))], [m for _, _, m in f]) for f in facts]
    assert abs(chance_score(first)) < 5  # nor does the place
    # Nor does the repetition.
    again = [[any(who in text for text in repeats(story)) for who, _, _ in told_facts(story)] for story in stories]
    assert abs(chance_score([(told, [m for _, _, m in f]) for told, f in zip(again, facts, strict=True)])) < 5


def repeats(story):
    """The sentences that tell a fact again."""
    return [sentence for sentence, kind in zip(story["document"], story["kinds"], strict=True) if kind == "repeat"]


def test_tree_tells_the_salient_sentences_at_full_tree_signal():
    for config in (ToyConfig(signal=0.0), ToyConfig(max_sentences=40, repetition=0.7)):
        for story in generate("test", 100, config):
            assert promoted_sentences(story) == story["salient"]
            edus = promoted_edus(read_dis(story["tree"]))  # and the clauses: the fact, not its source or reason
            assert all(story["edus"][edu - 1].split()[-2:] != ["confirmed", "."] for edu in edus)
            assert len(edus) == sum(story["salient"])


def test_not_without_tree_signal_does_the_tree_tell():
    pairs = [(promoted_sentences(s), s["salient"]) for s in generate("test", 300, ToyConfig(tree_signal=0.0))]
    assert abs(chance_score(pairs)) < 5
    assert all(sum(promoted) == sum(salient) for promoted, salient in pairs)
    half = [(promoted_sentences(s), s["salient"]) for s in generate("test", 300, ToyConfig(tree_signal=0.5))]
    exact = sum(promoted == salient for promoted, salient in half) / len(half)
    assert chance_score(half) > 10 and 0.02 < exact < 0.6


@pytest.mark.parametrize(
    "knobs, says",
    [
        ({"min_sentences": 20, "max_sentences": 19}, r"max_sentences is 19; .* from 20 to 40"),
        ({"max_facts": 2.5}, r"max_facts is 2.5; give a whole number"),
        ({"tree_signal": float("nan")}, r"tree_signal is nan"),
    ],
)
def test_bad_knobs_are_refused(knobs, says):
    with pytest.raises(ValueError, match="ToyConfig." + says):
        ToyConfig(**knobs)
    with pytest.raises(ValueError, match="toy split 'dev' does not exist; choose one of train, validation, test"):
        generate("dev")
