"""What the benchmark times is right; test_scripts.py runs it.

No test depends on how fast anything is.
"""

from dataclasses import astuple
from functools import partial

import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("transformers")

from ...experiments import benchmark

QUICK = benchmark.QUICK


def test_gates_close_exactly_the_share_of_table_1():
    """Table 1: WMT14, CNN/Daily Mail, WikiSum; not the same number in each source."""
    shares = {100: 0.467, 400: 0.476, 2048: 0.715}
    for length, shape in benchmark.SHAPES.items():
        closed = benchmark.close_gates(shape) == 0
        assert closed.shape == (shape.sources, length)
        assert closed.sum().item() == round(shares[length] * shape.sources * length)
        assert shape.sources == 1 or len(set(closed.sum(-1).tolist())) > 1
    assert benchmark.BEAM == 4 and astuple(benchmark.SIZES)[:6] == (32_000, 512, 2048, 8, 6, 6)


def test_every_side_decodes_what_the_plain_model_decodes(make_model, monkeypatch):
    """The same tokens, and the memory that its name says: pruned, once or for each beam, packed."""
    base = make_model(vocabulary=100, width=16, feed_forward=32, heads=2)
    make = benchmark.Decoder

    def make_with_weights(config):
        model = make(base.config)
        model.load_state_dict(base.state_dict())
        return model

    monkeypatch.setattr(benchmark, "Decoder", make_with_weights)
    seen = {}
    generate = benchmark.generate

    def noted(*arguments, **options):
        seen[side] = generate(*arguments, **options)
        return seen[side]

    monkeypatch.setattr(benchmark, "generate", noted)
    sides = benchmark.decoders(benchmark.TINY, QUICK, benchmark.Options())
    rows = {}  # keys and values that the decoder reads: rows of a batch
    project = make.project

    def counted(model, memory):
        layers = project(model, memory)
        rows[side] = layers[0].keys.size(0)
        return layers

    monkeypatch.setattr(make, "project", counted)
    for side, decode in sides.items():  # noqa: B007  # `noted` and `counted` read it
        assert decode() == QUICK.tokens
    assert {side for side in sides if "packed" in side} == {
        "shared, pruned, packed",
        "generate, packed",
    }
    first = seen["expanded"]
    for name, generation in seen.items():
        assert torch.equal(generation.hypotheses.tokens, first.hypotheses.tokens)
        assert (generation.memory_length < QUICK.length) == ("pruned" in name)
        copies = benchmark.BEAM if name.startswith("expanded") else 1
        assert rows[name] == QUICK.sources * copies


def test_an_update_is_of_the_paper_s_objective():
    """Both sides change their weights; the one with gates changes those of the gates, too."""
    sides = benchmark.updates(benchmark.TINY, QUICK, benchmark.Options())
    assert list(sides) == ["update, no gates", "update, gates"]
    for name, side in sides.items():
        assert isinstance(side, partial)
        model = side.args[0]
        before = {key: value.clone() for key, value in model.state_dict().items()}
        side()
        changed = {key for key, value in model.state_dict().items() if (value != before[key]).any()}
        assert any(key.startswith("l0drop") for key in changed) == (name == "update, gates")
        assert "embedding.weight" in changed


def test_bf16_runs_and_a_missing_device_is_one_line(capsys):
    benchmark.main(["--quick", "--repeats", "1", "--precision", "bf16"])
    assert "update, gates" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        benchmark.main(["--quick", "--device", "nowhere"])
    assert "--device nowhere" in capsys.readouterr().err
