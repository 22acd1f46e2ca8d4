"""What the benchmark times is right; test_scripts.py runs it.

No test depends on how fast anything is.
"""

from dataclasses import astuple

import pytest
import torch

pytest.importorskip("shared")

from ...experiments import benchmark  # noqa: E402


def test_gates_close_exactly_the_share_of_table_1():
    """Table 1: 47.6 % on CNN/Daily Mail, 71.5 % on WikiSum; about as many in each source, but not
    the same.
    """
    for sources, length, sparsity, _ in benchmark.SHAPES:
        closed = benchmark.close_gates(sources, length, sparsity) == 0
        assert closed.sum().item() == round(sparsity * sources * length)
        assert len(set(closed.sum(-1).tolist())) > 1
    assert [shape[:3] for shape in benchmark.SHAPES] == [(10, 400, 0.476), (10, 2048, 0.715)]
    assert benchmark.BEAM == 4 and astuple(benchmark.SIZES)[:6] == (32_000, 512, 2048, 8, 6, 6)


def test_every_side_decodes_what_the_plain_model_decodes(make_model):
    """Given gates decide what is pruned; every output has the length that is asked for."""
    source, base = torch.randint(4, 30, (2, 9)), make_model(vocabulary=30)
    model = benchmark.Decoder(base.config).eval()
    model.load_state_dict(base.state_dict())
    model.gates = (torch.arange(9) % 2).float().expand(2, 9)
    outputs = [benchmark.decode(model, source, 6, side) for side in benchmark.SIDES]
    assert [output.memory_length for output in outputs] == [9, 5, 9, 5]
    (tokens, scores), *others = (output.hypotheses for output in outputs)
    for other in others:
        assert torch.equal(other.tokens, tokens) and tokens.size(1) == 6
        torch.testing.assert_close(other.scores, scores, rtol=0, atol=1e-4)
