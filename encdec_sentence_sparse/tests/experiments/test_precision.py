"""Precision and recall of words, each against a count by hand."""

import pytest

pytest.importorskip("shared")

from ...experiments.precision import measured


def test_half_of_the_words_are_right_and_two_thirds_of_the_reference_are_found():
    row = {"id": "1", "prediction": "bridges closed on Monday", "references": [["Two bridge closed ."], ["all wrong"]]}
    [found] = measured([row])
    assert found == row | {"precision": pytest.approx(50), "recall": pytest.approx(200 / 3), "words": 4}
