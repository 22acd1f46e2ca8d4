"""Measures of the laboratory against the slow restatement, and entmax in the place of softmax."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("shared")

from ...experiments.entmax import load_entmax, main, with_entmax
from ...experiments.measures import recorded, stretched_density
from ...loading import Run, load_run
from ...train import train
from .. import reference
from ..test_train import SMALL


@pytest.mark.parametrize("log_alpha", [-2.0, 0.0, 1.5])
def test_eq6_eq7_density_of_figure_3(log_alpha):
    """The stretched density holds p(g = 0) left of 0, p(g = 1) right of 1, and 1 in all; epsilon = 0 is Eq. (6)."""
    steps = 100_000
    point = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps * 1.2 - 0.1
    mass = stretched_density(point, log_alpha) * 1.2 / steps
    assert mass.sum().item() == pytest.approx(1, abs=1e-3)
    assert mass[point < 0].sum().item() == pytest.approx(reference.closed_probability(log_alpha), abs=1e-3)
    assert mass[point > 1].sum().item() == pytest.approx(reference.one_probability(log_alpha), abs=1e-3)
    unit = (point + 0.1) / 1.2
    binary = stretched_density(unit, log_alpha, epsilon=0.0)
    torch.testing.assert_close(binary / 1.2, stretched_density(point, log_alpha))


@pytest.fixture
def sparse(make_model) -> Run:
    pytest.importorskip("entmax")
    return with_entmax(Run(replace(SMALL, l0drop="none", width=16), make_model(l0drop="none"), None, set(), 0))


def test_entmax_attention_is_sparse(sparse, ragged, targets):
    """Correia et al.: weights sum to one, some real positions have exactly none, padding never has any."""
    model = sparse.model
    cross_attention = model.decoder[0].cross_attention
    with recorded([cross_attention]) as seen:
        logits, encoding = model(ragged, targets)
    torch.testing.assert_close(seen[0].sum(-1), torch.ones(4, 4, 6), rtol=0, atol=1e-4)
    assert (seen[0] == 0)[0].any() and (seen[0].transpose(1, 3)[~encoding.keep] == 0).all()
    logits.square().mean().backward()
    assert (cross_attention.entmax_alpha.grad != 0).any()
    torch.testing.assert_close(logits, model.train()(ragged, targets)[0], rtol=0, atol=1e-4)  # no dropout here
    cross_attention.dropout = 0.5
    assert (model(ragged, targets)[0] - logits).abs().max() > 1e-2
    assert torch.equal(logits, model.eval()(ragged, targets)[0])


def test_entmax_fine_tunes_a_baseline(tmp_path):
    """The run that Figure 2 draws: other weights than the baseline's; gates are refused."""
    pytest.importorskip("entmax")
    train(replace(SMALL, l0drop="none"), tmp_path / "base")
    main([str(tmp_path / "base"), "--out", str(tmp_path / "entmax"), "--steps", "3"])
    run, base = load_entmax(tmp_path / "entmax"), load_run(tmp_path / "base")
    after, before = run.model.state_dict(), base.model.state_dict()
    assert {name for name in after if name not in before} == {"decoder.0.cross_attention.entmax_alpha"}
    assert all(not torch.equal(after[name], before[name]) for name in before if "query.weight" in name)
    train(SMALL, tmp_path / "l0")
    with pytest.raises(ValueError, match="goes with a baseline"):
        with_entmax(load_run(tmp_path / "l0"))
