"""Other number formats and packed weights: what stays equal, and how near the others come."""

import csv
from types import SimpleNamespace

import pytest
import torch
from torch import nn

pytest.importorskip("shared")

from ...experiments import precision as module
from ...experiments.precision import PRECISIONS, PackedLinear, convert, packs_bfloat16
from ...model import ModelConfig, Transformer
from ...search import generate


def skip_without(precision: str) -> None:
    if precision == "bf16" and not packs_bfloat16():
        with pytest.raises(ValueError, match="this CPU cannot pack bfloat16 weights: use float32 or int8"):
            convert(Transformer(ModelConfig(30, 8, 8, 2, 1, 1)), "bf16")
        pytest.skip("this CPU has no bfloat16: one line says so")


def test_packed_weights_give_the_same_numbers():
    """With and without bias, in float32 and bfloat16, for other numbers of rows than they are laid out for."""
    kinds = [(torch.float32, 1e-5)] + [(torch.bfloat16, 2e-2)] * packs_bfloat16()
    for dtype, tolerance in kinds:
        for bias in (True, False):
            linear = nn.Linear(24, 40, bias).to(dtype)
            packed = PackedLinear(linear.weight, linear.bias)
            for rows in ((3,), (2, 5), (200,)):
                x = torch.randn(*rows, 24, dtype=dtype)
                torch.testing.assert_close(packed(x), linear(x), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_decoding_at_every_precision(make_model, ragged, targets, precision):
    """Logits near those of the plain float32 model; packed float32 as near as rounding goes; searches end."""
    skip_without(precision)
    plain, other = make_model(3)(ragged, targets)[0], convert(make_model(3), precision)
    difference = (other(ragged, targets)[0] - plain).abs()
    assert difference.max() < 1e-4 if precision == "float32" else 0 < difference.mean() < 0.15 * plain.std()
    assert generate(other, ragged, extra_length=4, min_length=4).hypotheses.scores.isfinite().all()


@pytest.mark.parametrize("precision", ["float32", "bf16", "int8"])
def test_every_product_but_the_gates_is_swapped(make_model, ragged, precision):
    """Encoder, decoder and the output; the predictor of the gates stays, so that what is pruned does not change."""
    skip_without(precision)
    model = convert(make_model(3), precision)
    left = [name for name, module in model.named_modules() if type(module) is nn.Linear]
    assert left == ["l0drop.0.predictor"]
    assert "output_product" in vars(model)
    assert type(convert(make_model(3), precision, pack=False).decoder[0].cross_attention.query) is not PackedLinear


def test_int8_is_for_the_cpu(make_model):
    with pytest.raises(ValueError, match="^int8 is for the CPU"):
        convert(make_model(3).to("meta"), "int8")


def test_each_run_is_scored_at_each_precision_from_its_own_weights(tmp_path, monkeypatch, capsys):
    """Rows by run and precision, the metric under its name; no conversion is of a model that was converted before."""

    class FakeRun(SimpleNamespace):
        def _replace(self, model):
            return FakeRun(model=model)

    seen = {}
    runs = {name: FakeRun(model=[name], config=SimpleNamespace(data="d")) for name in ("a", "b")}
    metrics = {"metric": "bleu", "systems": {n: {"bleu": {"mean": 1.5, "low": 1, "high": 2}} for n in runs}}
    monkeypatch.setattr(module, "load_runs", lambda paths, device: seen.update(paths=paths, device=device) or runs)
    monkeypatch.setattr(module, "read_config", lambda path, _: runs["a"].config)
    monkeypatch.setattr(module, "load", lambda *source: seen.update(source=source) or ["examples"])
    monkeypatch.setattr(module, "convert", lambda model, precision: model.append(precision) or model)
    scored = []
    monkeypatch.setattr(
        module, "evaluate", lambda found, _: scored.append([run.model for run in found.values()]) or metrics
    )
    out = tmp_path / "p.csv"
    flags = ["--split", "validation", "--limit", "3", "--precisions", "float32", "int8", "--csv", str(out)]
    module.main(["a", "b", *flags])
    assert scored == [[["a", "float32"], ["b", "float32"]], [["a", "int8"], ["b", "int8"]]]
    assert seen["source"] == ("d", "validation", 3) and seen["device"] == "cpu"
    rows = [(row["system"], row["precision"], row["bleu_mean"]) for row in csv.DictReader(out.open())]
    assert rows == [("a", "float32", "1.5"), ("b", "float32", "1.5"), ("a", "int8", "1.5"), ("b", "int8", "1.5")]
    assert "| a " in capsys.readouterr().out
