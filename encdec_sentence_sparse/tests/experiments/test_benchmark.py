"""The benchmark runs, has all its sides, and its arithmetic is right. No test depends on how fast anything is."""

import copy
import csv

import numpy as np
import pytest
import torch

pytest.importorskip("shared")

from ...approximator import KINDS, SentenceEncoder
from ...experiments import benchmark
from ...experiments.benchmark import (
    PARTS,
    Options,
    Shape,
    decode_rows,
    main,
    make_models,
    make_sides,
    make_source,
    part_rows,
)
from ...experiments.cost import attention_costs
from ...experiments.precision import convert, packs_bfloat16
from ...selection import Selection
from ...sentences import sentences_of

CPU = torch.device("cpu")
SIDES = ["generate", "shared", "approx r2", "mean_key r2"]
SHAPE = Shape("tiny", "float32", 24, 2, 3, 6)


@pytest.fixture
def sides():
    """Of the tiny models, without CTranslate2, and what they produced so far."""
    models, made = make_models("tiny", "float32", CPU), []
    for model in models:
        generate = model.generate
        model.generate = lambda *a, generate=generate, **k: made.append(generate(*a, **k)) or made[-1]
    functions = make_sides(models, SHAPE, Options(r=(2,), device="none"))[1]
    return functions, models[1], made


def test_every_side_has_its_row(tmp_path):
    """approx has a row per sentence encoder; CTranslate2 is there where it is installed."""
    path = tmp_path / "new" / "benchmark.csv"
    shapes = ["--sources", "2", "--r", "2", "--tokens", "4", "5", "--beams", "4", "--precision", "float32", "int8"]
    main(["--quick", *shapes, "--repeats", "3", "--csv", str(path)])
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    sides = ["generate", "shared", *(f"approx r2, {kind}" for kind in KINDS), "mean_key r2"]
    for precision in ("float32", "int8"):
        for tokens in ("4", "5"):
            found = [row for row in rows if (row["precision"], row["tokens"]) == (precision, tokens)]
            assert [row["side"] for row in found if row["side"] != "CTranslate2"] == [*PARTS, *sides]
            parts, wholes = found[: len(PARTS)], found[len(PARTS) :]
            assert all(float(row["end to end_mean"]) > 0 for row in wholes) and float(wholes[0]["x generate_mean"]) == 1
            assert all(float(row["seconds_mean"]) > 0 for row in parts)
            costs = attention_costs(16, 2, 24, 6, 4 * int(tokens), 2)
            found = {row["side"]: float(row["10^9 multiplications"]) for row in parts[1:]}
            assert found == pytest.approx(
                {part: cost["10^9 multiplications"] for part, cost in costs.items()}, rel=1e-4
            )


def test_sides_can_be_left_out_but_for_the_shared_cache(tmp_path):
    main(
        ["--quick", "--sides", "approx", "--r", "2", "--beams", "1", "--repeats", "3", "--csv", str(tmp_path / "b.csv")]
    )
    rows = list(csv.DictReader((tmp_path / "b.csv").open(encoding="utf-8")))
    assert [row["side"] for row in rows] == [*PARTS, "shared", *(f"approx r2, {kind}" for kind in KINDS)]
    assert float(rows[-1]["x shared_mean"]) > 0 and "x generate_mean" not in rows[-1]


def test_all_sides_decode_as_many_tokens_and_the_full_ones_the_same(sides):
    functions, _, made = sides
    assert list(functions) == SIDES and {decode() for decode in functions.values()} == {6}
    assert torch.equal(made[0], made[1])


def test_selection_of_a_side_reaches_the_model(sides):
    functions, ours, _ = sides
    for side, selection in (("shared", Selection("full")), ("approx r2", Selection("approx", 2))):
        functions[side]()
        assert ours.selection == selection


def test_sources_are_ragged_and_valid():
    tokens, sentence_ids = make_source(SHAPE._replace(sources=3))
    sentences = sentences_of(sentence_ids, (sentence_ids >= 0).long())
    assert (sentence_ids >= 0).sum(1).tolist() == [24, 23, 22] and tokens.shape == sentence_ids.shape
    assert sentences.exists.sum(1).tolist() == [6, 6, 6]


@pytest.mark.parametrize(("precision", "tolerance"), [("packed", 1e-5), ("bf16", 0.1), ("int8", 0.1)])
def test_models_of_other_precisions_compute_nearly_the_same(precision, tolerance):
    """And not exactly: a conversion that does nothing would fail."""
    if precision == "bf16" and not packs_bfloat16():
        with pytest.raises(ValueError, match="this CPU cannot pack bfloat16 weights: use float32 or int8"):
            make_models("tiny", precision, CPU)
        return
    ids = torch.randint(4, 60, (2, 7))
    torch.manual_seed(3)
    exact = make_models("tiny", "float32", CPU)[1]
    torch.manual_seed(3)
    other = make_models("tiny", precision, CPU)[1]
    expected, found = (model(ids, decoder_input_ids=ids).logits.float() for model in (exact, other))
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)
    assert precision == "packed" or not torch.equal(found, expected)
    kinds = {type(module).__name__ for module in other.modules()}
    assert (
        "Linear" not in kinds or precision == "int8" and any("quantized" in type(m).__module__ for m in other.modules())
    )


def test_sentence_encoders_have_the_precision_of_the_models():
    """The GRU, too: in int8 nearly the same vectors, faster."""
    gru = make_sides(make_models("tiny", "int8", CPU), SHAPE._replace(precision="int8"), Options())[0]["gru"]
    assert "quantized" in type(gru.func.gru).__module__
    exact, (states, sentences) = SentenceEncoder("gru", 16).eval(), gru.args
    found, expected = convert(copy.deepcopy(exact), "int8")(states, sentences), exact(states, sentences)
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0)
    assert not torch.equal(found, expected)


def test_ratios_are_medians_within_rounds():
    """A machine that is slow in one round slows both sides down; end to end encoder and sentence encoder count."""
    slow, half = np.array([1.0, 2.0, 4.0]), np.array([0.5, 1.5, 2.0])
    seconds = {"encoder": np.ones(3), "gru": np.full(3, 0.5), "mean": np.zeros(3), "attention": np.full(3, 0.1)}
    seconds |= {"generate": slow, "shared": slow, "approx r2": half, "approx r9": slow, "CTranslate2": slow + 1}
    rows = {row["side"]: row for row in decode_rows(SHAPE, seconds)}
    row = rows["approx r2, gru"]
    assert row["decode x shared"] == {"mean": 2.0, "low": 2 / 1.5, "high": 2.0} and row["decode"]["mean"] == 1.5
    assert row["pays after"] == {"mean": 6.0, "low": 1.5, "high": 6.0}  # 0.5 s, of which 6 tokens save 0.5, 0.5, 2
    assert row["end to end"] == {"mean": 3.0, "low": 2.0, "high": 3.5}
    assert row["x shared"]["mean"] == pytest.approx(1.0) and row["x shared"]["high"] == pytest.approx(5 / 3.5)
    assert rows["approx r2, mean"]["x generate"]["high"] == pytest.approx(5 / 3)
    assert rows["approx r9, mean"]["pays after"]["low"] == np.inf and "pays after" not in rows["shared"]
    assert rows["CTranslate2"]["end to end"]["mean"] == 3 and rows["shared"]["x CTranslate2"]["mean"] == 1


@pytest.mark.parametrize("flags", [["--repeats", "2"], ["--tokens", "0"], ["--r", "0"], ["--lengths", "59", "99"]])
def test_bad_flags(flags, capsys):
    with pytest.raises(SystemExit):
        main(["--quick", *flags])
    assert f"{flags[0]} is {flags[1]}; it must be a whole number from" in capsys.readouterr().err


def test_both_sides_have_the_precision_and_long_documents_a_local_encoder(monkeypatch):
    """BART, which `generate` runs, is converted as ours is; beyond 1,024 words the encoder attends locally."""
    for model in make_models("tiny", "int8", CPU):
        assert any("quantized" in type(module).__module__ for module in model.modules())
    seen, config_of = [], benchmark.bart_config
    monkeypatch.setattr(benchmark, "bart_config", lambda *a, **k: seen.append(k) or config_of(*a, **k))
    models, options = make_models("tiny", "float32", CPU), Options(r=(2,), sides=("approx",))
    for length, window in ((24, None), (1024, None), (1025, 1024)):
        seen.clear()
        make_sides(models, SHAPE._replace(length=length, sources=1, tokens=2), options)
        assert [given["attention_window"] for given in seen if "attention_window" in given] == [window]


def test_shares_of_the_encoder_are_parts_over_the_encoder():
    """A part that takes half as long as the encoder has the share 0.5."""
    seconds = {part: np.full(3, 0.5) for part in PARTS} | {"encoder": np.full(3, 1.0)}
    rows = {row["side"]: row["share of the encoder"]["mean"] for row in part_rows(SHAPE, 2, seconds)}
    assert rows == dict.fromkeys(PARTS, 0.5) | {"encoder": 1.0}


def test_nothing_is_written_without_a_file(monkeypatch):
    """The committed results stay as they are, whatever is measured."""
    monkeypatch.setattr(benchmark, "decoding", lambda *a: [{"side": "x"}])
    monkeypatch.setattr(benchmark, "write_csv", lambda *a: pytest.fail("it was written"))
    main(["--quick"])
