"""Beam search against a slow search and re-scoring; each source by itself; blocking."""

import pytest
import torch

from .. import model as network
from ..model import PointerGenerator
from ..search import beam_search, block_trigrams
from ..text import BOS, EOS, PAD, UNK, Batch, Item, collate

SYSTEMS = [("none", {}), ("none", {"coverage": True}), ("dim", {}), ("dydim", {})]
NEVER = (PAD, UNK)


def rescore(model: PointerGenerator, item: Item, sequences: list[list[int]]) -> list[float]:
    """Sum of the log-probabilities of outputs of one document, by teacher forcing."""
    batch = collate([item._replace(target=[BOS, *s, EOS]) for s in sequences])
    with torch.no_grad():
        log_p = model.target_log_p(model.run(batch), batch)
    return (log_p * batch.keep_target).sum(1).tolist()


def normed(log_p: float, length: int, alpha: float = 0.0) -> float:
    """Wu et al.; for the penalty 0 the mean of the tokens (See et al.)."""
    return log_p / (((5 + length) / 6) ** alpha if alpha else length)


@pytest.mark.parametrize(("kind", "config"), SYSTEMS)
def test_a_batch_is_its_documents_one_by_one_and_scores_hold_under_teacher_forcing(
    make_pointer, items, monkeypatch, kind, config
):
    """Scores, too: where a coverage does not follow its beam most tokens are right still."""
    monkeypatch.setattr(network, "EPSILON", 0.0)  # decoding has none
    moved = 0
    for seed in range(3):
        model = make_pointer(kind, seed, **config)
        arguments = dict(beam=3, min_length=6, max_length=9, length_penalty=1.0, never=NEVER)
        arguments |= dict(trigram_blocking=True)
        together = beam_search(model, collate(items), **arguments)
        for row, item in enumerate(items):
            alone = beam_search(model, collate([item]), **arguments)
            assert together.tokens[row] == alone.tokens[0] and 5 <= len(alone.tokens[0]) <= 8
            assert not {BOS, EOS, *NEVER} & set(alone.tokens[0])
            assert together.scores[row].item() == pytest.approx(alone.scores.item(), abs=1e-5)
            want = normed(rescore(model, item, alone.tokens)[0], len(alone.tokens[0]) + 1, 1.0)
            assert alone.scores.item() == pytest.approx(want, abs=1e-4)
            greedy = beam_search(model, collate([item]), **arguments | {"beam": 1})
            moved += alone.tokens != greedy.tokens
    assert moved > 2  # the beams mattered


class Chain(torch.nn.Module):
    """A model of fixed probabilities: the next token depends on the last one alone."""

    bos, eos = 0, 1

    def __init__(self, log_p: torch.Tensor):
        super().__init__()
        self.log_p, self.vocabulary = log_p, len(log_p)

    def start(self, batch):
        return batch.source, self

    def step(self, tokens, source, past):
        return self.log_p[tokens].clone(), past

    def reorder(self, rows):
        return self


def slow_search(
    log_p, beam: int, alpha: float, min_length: int, max_length: int
) -> tuple[list[int], float]:
    """D16 on lists, to the longest length: the best output of a chain and its score."""
    hypotheses, results = [([], 0.0)], []
    for length in range(1, max_length + 1):
        every = [
            ([*tokens, word], score + of_word)
            for tokens, score in hypotheses
            for word, of_word in enumerate(log_p[tokens[-1] if tokens else 0])
            if word != 0 and (word != 1 or length >= max(min_length, 2))
            and (word == 1 or length < max_length)
        ]  # fmt: skip
        best = sorted(every, key=lambda pair: -pair[1])[: 2 * beam]
        ended = [pair for pair in best if pair[0][-1] == 1]
        results += [(normed(score, length, alpha), tokens[:-1]) for tokens, score in ended]
        hypotheses = [pair for pair in best if pair[0][-1] != 1][:beam]
    score, tokens = max(results)
    return tokens, score


@pytest.mark.parametrize("norms", [{}, {"length_penalty": 0.6}, {"length_penalty": 1.5}], ids=str)
def test_d16_the_search_equals_lists(norms):
    torch.manual_seed(3)
    lengths = set()
    two = Batch(torch.zeros(2, 3, dtype=torch.long), *[None] * 4, 0)
    for trial in range(30):
        logits = 1.5 * torch.randn(9, 9)
        logits[:, 1] -= trial % 5 - 1
        log_p, beam, min_length = logits.log_softmax(-1), trial % 4 + 1, trial % 3 * 2
        options = dict(beam=beam, min_length=min_length, max_length=8, **norms)
        found = beam_search(Chain(log_p).eval(), two, **options)
        alpha = norms.get("length_penalty", 0.0)
        tokens, score = slow_search(log_p.tolist(), beam, alpha, min_length, 8)
        assert found.tokens == [tokens] * 2
        assert found.scores.tolist() == pytest.approx([score] * 2, rel=1e-5)
        lengths.add(len(tokens))
    assert len(lengths) > 3 and 0 not in lengths


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


def test_bad_arguments_are_refused(make_pointer, batch):
    for arguments in (
        dict(beam=20),
        dict(length_penalty=-0.1),
        dict(max_length=1),
        dict(max_length=4, min_length=5),
    ):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            beam_search(make_pointer(), batch, **arguments)
    with pytest.raises(ValueError, match="eval mode"):
        beam_search(make_pointer().train(), batch)
