"""The control that compares queries with mean keys, against a loop."""

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...experiments import mean_key
from ...experiments.mean_key import use_mean_keys
from ...selection import Selection, sentences_of
from .. import reference
from ..conftest import rough_model
from ..test_equations import IDS
from ..test_train import DATA


def test_scores_are_those_of_mean_keys_counted_once_a_word():
    """Every head, a ragged batch; and the choice is made from them."""
    model = use_mean_keys(rough_model()).double().eval()
    attention, ids = model.attentions[1], torch.tensor(IDS)
    states, hidden = (torch.randn(2, length, 16, dtype=torch.float64) for length in (12, 7))
    sentences = sentences_of(ids, (ids >= 0).long(), torch.float64)
    sentences = sentences._replace(encoded=model.sentence_encoder(states, sentences))
    found = attention.approximate(hidden, attention.sentence_keys(sentences.encoded), sentences)
    queries, keys = (
        attention.scaled_queries(hidden).detach(),
        attention.split(attention.k_proj(states)).detach(),
    )
    for document, length in enumerate((12, 7)):
        for head in range(4):
            query, own = queries[document, head, 2].numpy(), keys[document, head, :length].numpy()
            expected = reference.mean_key(query, own, IDS[document][:length])
            np.testing.assert_allclose(
                found[document, head, 2, : len(expected)].detach().numpy(), expected, atol=1e-10
            )
    memory = attention.project(states, sentences, Selection("approx", 2))
    keep = attention.select(hidden, queries, memory, sentences, Selection("approx", 2), range(7))
    assert torch.equal(
        keep, torch.zeros_like(keep).scatter(-1, found.mean(1).topk(2).indices, True)
    )


def test_a_run_with_a_map_is_refused(runs, capsys):
    with pytest.raises(SystemExit):
        mean_key.main([str(runs / "kl-0"), "--data", DATA])
    assert "has a learned map: give the run that it started from" in capsys.readouterr().err
