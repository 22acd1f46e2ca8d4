"""What a tree says about its units without a network."""

from types import SimpleNamespace

import numpy as np
import pytest

from ..salience import probe, promotion, tree_scalars
from .test_matrices import FIVE, FOUR, some_tree


def document(tree, name="d", labels=(), units=4):
    sentence = np.array([0, 0, 2, 2, 2])
    return SimpleNamespace(id=name, tree=tree, labels=np.array(labels), units=[""] * units, edu_sentence=sentence)


def test_promotion_is_that_of_marcu():
    """An EDU is in the promotion set of each node above it as long as it is Nucleus there; the highest one counts."""
    np.testing.assert_array_equal(promotion(FIVE), [0, -3, -2, -1, -1])
    np.testing.assert_array_equal(promotion(FOUR), [0, 0, 0, -2])


def test_scalars_are_promotion_depth_dependents_and_level_sum():
    scalars = [[0, 4, 5, 11], [-3, 4, 0, 11], [-2, 3, 0, 9], [-1, 3, 0, 8], [-1, 3, 0, 8]]
    np.testing.assert_array_equal(tree_scalars(document(FIVE), "edu"), scalars)
    # Of a sentence the greatest among its EDUs; one without EDUs comes last.
    expected = [[0, 4, 5, 11], [-4, 2, -1, 7], [-1, 3, 0, 9], [-4, 2, -1, 7]]
    np.testing.assert_array_equal(tree_scalars(document(FIVE), "sentence"), expected)


def test_probe_is_the_most_likely_under_its_ridge():
    """At the best weights the gradient of the log-likelihood is the ridge's; it does not see what it is tested on."""
    rng = np.random.default_rng(0)
    trees = [some_tree(seed, 12)[0] for seed in range(8)]
    training = [
        document(tree, str(n), rng.random(12) < 0.2 + 0.6 * (promotion(tree) == 0)) for n, tree in enumerate(trees)
    ]
    found = probe(training, training, "edu")
    x = np.concatenate([np.insert(tree_scalars(d, "edu"), 0, 1, axis=1) for d in training])
    scores, labels = np.concatenate(list(found.values())), np.concatenate([d.labels for d in training])
    weights = np.linalg.lstsq(x, scores)[0]
    np.testing.assert_allclose(x.T @ (labels - 1 / (1 + np.exp(-scores))), weights, atol=1e-6)
    assert list(found) == list("01234567") and weights[0] == pytest.approx(scores[0] - x[0, 1:] @ weights[1:])
    alone = probe(training[1:], [document(trees[0], "new")], "edu")
    assert np.abs(alone["new"] - found["0"]).max() > 1e-3
