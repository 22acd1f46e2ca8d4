"""Beam search against enumeration, a slow search, and re-scoring; each source by itself; blocking."""

import itertools

import pytest
import torch

from ..model import PointerGenerator
from ..search import beam_search, block_trigrams
from ..text import BOS, EOS, PAD, UNK, Batch, Item, collate

SYSTEMS = [("none", {}), ("none", {"coverage": True}), ("dim", {}), ("dydim", {})]
NEVER = (PAD, UNK)


def rescore(model: PointerGenerator, item: Item, sequences: list[list[int]]) -> list[float]:
    """Sum of the log-probabilities of outputs of one document, by teacher forcing."""
    rows = [
        item._replace(target_in=[BOS, *(UNK if n >= model.vocabulary else n for n in s)], target_out=[*s, EOS])
        for s in sequences
    ]
    batch = collate(rows)
    with torch.no_grad():
        log_p = model.target_log_p(model.run(batch), batch)
    return (log_p * batch.keep_target).sum(1).tolist()


def normed(log_p: float, length: int, alpha: float = 0.0, average: bool = False) -> float:
    return log_p / (length if average else ((5 + length) / 6) ** alpha)


@pytest.fixture
def make_small(make_pointer):
    """A model with a vocabulary of 260 of which only the end and four words can be written, and its document.

    The fifth word is an unknown one of the document. A beam of full width then sees every output.
    """

    def make(kind: str, seed: int, words: int = 4, **config) -> tuple[PointerGenerator, Item]:
        model = make_pointer(kind, seed, vocabulary=260, **config)
        with torch.no_grad():
            model.decoder.output.bias[list(set(range(260)) - {EOS, *range(4, 4 + words)})] = -1e4
            model.decoder.output.bias[EOS] -= 1.0
        ids = [4, UNK, 5, 4, UNK]
        return model, Item(ids, [4, 260, 5, 4, 260], ["zorn"], [BOS], [EOS], False)

    return make


@pytest.mark.parametrize(("kind", "config"), SYSTEMS)
@pytest.mark.parametrize("search", [{}, {"length_penalty": 1.5}, {"average": True}, {"min_length": 3}], ids=str)
def test_full_width_equals_enumeration_of_a_five_word_vocabulary(make_small, kind, config, search):
    for seed in range(2):
        model, item = make_small(kind, seed, **config)
        alive = [4, 5, 6, 7, 260]
        every = [list(s) for n in range(4) for s in itertools.product(alive, repeat=n)]
        norms = {"alpha": search.get("length_penalty", 0.0), "average": search.get("average", False)}
        values = {
            tuple(s): normed(log_p, len(s) + 1, **norms)
            for s, log_p in zip(every, rescore(model, item, every), strict=True)
            if len(s) + 1 >= search.get("min_length", 0)
        }
        best = max(values, key=values.get)
        found = beam_search(model, collate([item]), beam=125, max_length=4, never=NEVER, **search)
        assert found.tokens == [list(best)] and found.scores.item() == pytest.approx(values[best], abs=1e-5)


@pytest.mark.parametrize(("kind", "config"), SYSTEMS)
def test_a_batch_is_its_documents_one_by_one_and_scores_hold_under_teacher_forcing(make_pointer, items, kind, config):
    """Scores, not only tokens: with a coverage that did not follow its beam, most tokens would still be right."""
    moved = 0
    for seed in range(3):
        model = make_pointer(kind, seed, epsilon=0.0, **config)  # decoding has no epsilon
        arguments = dict(beam=3, max_length=9, min_length=6, length_penalty=1.0, trigram_blocking=True, never=NEVER)
        together = beam_search(model, collate(items), **arguments)
        for row, item in enumerate(items):
            alone = beam_search(model, collate([item]), **arguments)
            assert together.tokens[row] == alone.tokens[0] and 5 <= len(alone.tokens[0]) <= 8
            assert together.scores[row].item() == pytest.approx(alone.scores.item(), abs=1e-5)
            want = normed(rescore(model, item, alone.tokens)[0], len(alone.tokens[0]) + 1, 1.0)
            assert alone.scores.item() == pytest.approx(want, abs=1e-4)
            moved += alone.tokens != beam_search(model, collate([item]), **arguments | {"beam": 1}).tokens
    assert moved > 2  # the beams mattered


class Chain(torch.nn.Module):
    """A model of fixed probabilities: the next token depends on the last one alone."""

    bos, eos = 0, 1

    def __init__(self, log_p: torch.Tensor):
        super().__init__()
        self.log_p, self.vocabulary, self.calls = log_p, len(log_p), []

    def start(self, batch):
        return batch.source, Rows(torch.arange(len(batch.source)))

    def step(self, tokens, source, state):
        self.calls.append((source, state.rows))
        return self.log_p[tokens].clone(), state


class Rows:
    """A state that knows which source a row belongs to."""

    def __init__(self, rows):
        self.rows = rows

    def reorder(self, rows):
        return Rows(self.rows[rows])


def chain_batch(sources: int) -> Batch:
    return Batch(torch.zeros(sources, 3, dtype=torch.long), *[None] * 5, 0)


def test_states_stay_with_their_source_and_sources_are_not_copied():
    torch.manual_seed(1)
    log_p = torch.randn(7, 7).log_softmax(-1)
    log_p[:, 1] -= 3
    model, batch = Chain(log_p).eval(), chain_batch(3)
    beam_search(model, batch, beam=4, max_length=8)
    assert len(model.calls) > 3
    for source, rows in model.calls:
        assert source is batch.source and rows.tolist() == [0] * 4 + [1] * 4 + [2] * 4


def test_limit_where_nothing_can_end():
    model = Chain(torch.full((4, 4), 0.25).log()).eval()
    model.log_p[:, 1] = -torch.inf
    found = beam_search(model, chain_batch(2), beam=2, max_length=5)
    assert found.tokens == [[], []] and found.scores.tolist() == [-torch.inf] * 2
    model.log_p[2:, 1] = 0.0  # the end is certain after any token, but not at once
    found = beam_search(model, chain_batch(1), beam=2, max_length=5)
    assert len(found.tokens[0]) == 1


def test_d16_the_search_goes_on_while_a_longer_output_can_win():
    """With alpha 1.5 a finished short output is beaten by a longer one; without, it is not."""
    log_p = torch.full((4, 4), -torch.inf)
    log_p[0, 1], log_p[0, 2] = torch.tensor([0.55, 0.45]).log()
    log_p[2, 3] = log_p[3, 1] = 0.0
    model = Chain(log_p).eval()
    assert beam_search(model, chain_batch(1), beam=2).tokens == [[]]
    long = beam_search(model, chain_batch(1), beam=2, length_penalty=1.5)
    assert long.tokens == [[2, 3]]
    assert long.scores.item() == pytest.approx(torch.tensor(0.45).log().item() / (8 / 6) ** 1.5, abs=1e-6)
    assert beam_search(model, chain_batch(1), beam=2, average=True).tokens == [[2, 3]]


def slow_released(log_p: torch.Tensor, beam: int, min_length: int) -> tuple[list[int], float]:
    """pointer_summarizer's search: the best continuations in their order are results or go on, until there are W."""
    hypotheses, results = [([0], 0.0)], []
    for _ in range(59):
        every = [([*h, w], s + log_p[h[-1], w].item()) for h, s in hypotheses for w in range(1, len(log_p))]
        hypotheses = []
        for tokens, score in sorted(every, key=lambda pair: -pair[1]):
            if tokens[-1] != 1:
                hypotheses.append((tokens, score))
            elif len(tokens) - 1 >= min_length:
                results.append((tokens, score))
            if beam in (len(hypotheses), len(results)):
                break
        if len(results) == beam:
            break
    score, tokens = max((score / len(tokens), tokens) for tokens, score in results)
    return tokens[1:-1], score


def test_d16_d21_the_released_search_ends_with_its_first_outputs_and_its_mean_counts_the_start():
    torch.manual_seed(2)
    outputs, ours = [], []
    for trial in range(12):
        logits = 2 * torch.randn(9, 9)
        logits[1:, 1] = 3.5  # or the released search may not end
        log_p = logits.log_softmax(-1)
        model, options = Chain(log_p).eval(), dict(beam=3, min_length=trial % 4, max_length=60, average=True)
        tokens, score = slow_released(log_p, 3, trial % 4)
        found = beam_search(model, chain_batch(2), released=True, **options)
        assert found.tokens == [tokens] * 2 and found.scores.tolist() == pytest.approx([score] * 2, rel=1e-5)
        outputs.append(tokens)
        ours.append(beam_search(model, chain_batch(1), **options).tokens[0])
    assert sum(map(len, outputs)) < sum(map(len, ours))  # the exact search goes on


def test_d10_blocking_is_of_tokens_and_of_each_hypothesis_by_itself():
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, 7, (40, 9), generator=generator)
    log_p = torch.zeros(40, 9)
    block_trigrams(log_p, tokens)
    for row, history in enumerate(tokens.tolist()):
        seen = {tuple(history[i : i + 3]) for i in range(len(history) - 2)}
        want = [(*history[-2:], word) in seen for word in range(9)]
        assert log_p[row].isinf().tolist() == want and not log_p.isnan().any()
    assert 20 < log_p.isinf().sum() < 120
    short = torch.zeros(1, 9)
    block_trigrams(short, torch.tensor([[4, 4]]))
    assert not short.any()


def test_never_and_lengths(make_pointer, batch):
    model = make_pointer(seed=2)
    for never in ((PAD,), (PAD, UNK), (PAD, UNK, 4, 5, 6, 7, 8, 9)):
        found = beam_search(model, batch, beam=5, min_length=5, max_length=7, never=never)
        assert all(4 <= len(tokens) <= 6 for tokens in found.tokens)
        assert not {BOS, EOS, *never} & set(sum(found.tokens, []))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(beam=20), "beam is 20; it must be from 1 to the vocabulary's 19 tokens"),
        (dict(length_penalty=-0.1), "length_penalty is -0.1; it must be at least 0"),
        (dict(max_length=0), "max_length is 0; it must be at least 1"),
        (dict(max_length=4, min_length=5), "max_length is 4; it must be at least 1 and min_length = 5"),
    ],
)
def test_bad_arguments_are_refused(make_pointer, batch, arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        beam_search(make_pointer(), batch, **arguments)
    with pytest.raises(ValueError, match="call model.eval"):
        beam_search(make_pointer().train(), batch)
