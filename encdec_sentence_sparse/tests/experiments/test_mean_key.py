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
    queries = attention.scaled_queries(hidden).detach()
    keys = attention.split(attention.k_proj(states)).detach()
    for document, head in np.ndindex(2, 4):
        own = [n for n in IDS[document] if n >= 0]
        words = keys[document, head, : len(own)].numpy()
        expected = reference.mean_key(queries[document, head, 2].numpy(), words, own)
        scores = found[document, head, 2, : len(expected)].detach().numpy()
        np.testing.assert_allclose(scores, expected, atol=1e-10)
    memory = attention.project(states, sentences, Selection("approx", 2))
    keep = attention.select(hidden, queries, memory, sentences, Selection("approx", 2), range(7))
    best = found.mean(1).topk(2).indices
    assert torch.equal(keep, torch.zeros_like(keep).scatter(-1, best, True))


def test_a_run_with_a_map_is_refused(runs, capsys):
    with pytest.raises(SystemExit):
        mean_key.main([str(runs / "kl-0"), "--data", DATA])
    assert "has a learned map: give the run that it started from" in capsys.readouterr().err
