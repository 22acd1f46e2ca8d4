"""Table 4: lengths of whole documents, whatever the model reads of them."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("shared")

from shared.data import load

from ...experiments.lengths import lengths
from ...loading import Run, begin
from ..test_train import DATA, TINY


def test_d28_nothing_is_cut_and_special_tokens_do_not_count():
    """D28: neither `<s>` and `</s>` as tokens, nor `</s>` as a sentence."""
    examples = load(DATA)
    run = begin(replace(TINY, max_source=9, max_target=5), examples)
    whole = Run(replace(run.config, max_source=9999, max_target=9999), *run[1:]).encode(examples)
    found = lengths(run, examples)
    assert found["N"] == pytest.approx(np.mean([len(item.ids) - 2 for item in whole]))
    assert found["N1"] == pytest.approx(np.mean([item.sentence_ids[-1] for item in whole]))
    assert found["M"] == pytest.approx(np.mean([len(item.target) - 2 for item in whole]))
    assert found["N/M"] == pytest.approx(found["N"] / found["M"])
