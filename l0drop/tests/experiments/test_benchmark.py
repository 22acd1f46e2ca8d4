"""What the benchmark times is right; test_scripts.py runs it. No test depends on how fast anything is."""

import numpy as np
import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("transformers")

from ...experiments import benchmark  # noqa: E402
from ...search import generate  # noqa: E402


def test_ratios_are_medians_within_rounds():
    seconds = {"generate": np.array([4.0, 8.0, 6.0]), "shared": np.array([1.0, 4.0, 1.0])}
    rows = {row["side"]: row for row in benchmark.ratios(seconds, ("generate", "CTranslate2"))}
    assert rows["shared"]["x generate"] == {"mean": 4.0, "low": 2.0, "high": 6.0}
    assert "x CTranslate2" not in rows["shared"]


def test_gates_close_exactly_the_share_of_table_1():
    """Table 1: 47.6 % on CNN/Daily Mail, 71.5 % on WikiSum; about as many in each source, but not the same."""
    for shape in benchmark.SHAPES.values():
        closed = benchmark.close_gates(shape) == 0
        assert closed.sum().item() == round(shape.sparsity * shape.sources * shape.length)
        assert len(set(closed.sum(-1).tolist())) > 1
    assert [shape[:3] for shape in benchmark.SHAPES.values()] == [(10, 400, 0.476), (10, 2048, 0.715)]
    assert benchmark.BEAM == 4


def test_packed_and_pruned_decode_what_the_plain_model_decodes(make_model):
    """Given gates decide what is pruned; every output has the length that is asked for."""
    source, outputs = torch.randint(4, 30, (2, 9)), []
    plain, packed, expanded = torch.nn.Module.eval, benchmark.pack_transformer, benchmark.expand
    for prune, change in ((False, plain), (True, plain), (True, packed), (True, expanded)):
        model = make_model(vocabulary=30)
        benchmark.fix_gates(model, (torch.arange(9) % 2).float().expand(2, 9))
        change(model)
        outputs.append(generate(model, source, prune=prune, beam=4, extra_length=-3, min_length=6))
    assert [output.memory_length for output in outputs] == [9, 5, 5, 5]
    (tokens, scores), *others = (output.hypotheses for output in outputs)
    for other in others:
        assert torch.equal(other.tokens, tokens) and tokens.size(1) == 6
        torch.testing.assert_close(other.scores, scores, rtol=0, atol=1e-4)
