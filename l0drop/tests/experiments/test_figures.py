"""Figures: what they measure, against hand-computed cases, and what the command writes."""

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from safetensors.torch import load_file, save_file  # noqa: E402

from shared.data import load  # noqa: E402

from ... import evaluate  # noqa: E402
from ...decode import decode_all  # noqa: E402
from ...experiments import figures  # noqa: E402
from ...experiments.measures import (  # noqa: E402
    attention_maps,
    encode_all,
    mean_entropies,
    places_in_words,
    recorded,
    summed_attention,
)
from ...loading import load_run
from ...model import EOS  # noqa: E402
from ...text import Item  # noqa: E402
from ...train import train  # noqa: E402
from ..test_train import SMALL  # noqa: E402

DATA = "toy:count=12,seed=9"  # other stories than the runs are trained on
EXAMPLES = 5


@pytest.fixture
def items():
    """Sources of 6, 3 and 4 tokens."""
    sources = [[5, 9, 11, 4, 7, EOS], [8, 6, EOS], [10, 12, 13, EOS]]
    return [Item(source, [EOS], [True] * len(source), False) for source in sources]


OUTPUTS = [[9, 4, 17], [6], [20, 21, 5, 8]]  # what a decoder might have said to them, without </s>


# Measures


def test_summed_attention_by_hand():
    """Figures 1 and 7, D12: columns are summed, pruned source words left out, their share of all attention told."""
    maps = [torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]]), torch.tensor([[0.75, 0.25]])]
    everything, share = summed_attention(maps, [[False] * 3, [False] * 2])
    np.testing.assert_allclose(everything, [0.6, 0.6, 0.8, 0.75, 0.25], rtol=1e-6)
    assert share == 0
    retained, share = summed_attention(maps, [[False, True, False], [False, True]])
    np.testing.assert_allclose(retained, [0.6, 0.8, 0.75], rtol=1e-6)
    assert share == pytest.approx((0.6 + 0.25) / 3)  # of three target words' attention


def test_attention_maps_are_means_over_heads_and_layers(make_model, items):
    """Caption of Figure 1: all cross-attentions, in a ragged batch as alone; the model reads its own output."""
    model = make_model(l0drop="none")
    maps = list(attention_maps(model, items, OUTPUTS))
    for item, output, weights in zip(items, OUTPUTS, maps, strict=True):
        expected = cross_attention_by_hooks(model, torch.tensor([item.source]), torch.tensor([[1, *output]]))
        torch.testing.assert_close(weights, expected, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def cross_attention_by_hooks(model, source, target_input) -> torch.Tensor:
    """softmax(Q K^T / sqrt(K)) from the inputs of every cross-attention, head by head."""
    seen, handles = [], []
    for layer in model.decoder:
        handles.append(layer.cross_attention.register_forward_hook(lambda m, i, o: seen.append((m, i[0], i[1]))))
    model(source, target_input)
    for handle in handles:
        handle.remove()
    maps = []
    for module, x, keys in seen:
        size = keys.size(-1)
        for head in range(module.heads):
            query = module.query(x)[0, :, head * size : (head + 1) * size]
            maps.append((query @ keys[0, head].T / math.sqrt(size)).softmax(-1))
    return torch.stack(maps).mean(0)


def test_attention_on_pruned_words_is_the_dummys(make_model, items):
    """D12: what the maps say of pruned words adds up to what Algorithm 1's dummy receives."""
    model = make_model()
    with torch.no_grad():  # the median gate is on the edge of closing
        locations = [model.encode(torch.tensor([item.source])).log_alpha[-1] for item in items]
        model.l0drop[-1].predictor.bias -= torch.cat(locations, 1).median() + 2.4
    pruned, _ = encode_all(model, items)
    assert any(row.any() and not row.all() for row in pruned)
    for item, output, closed in zip(items, OUTPUTS, pruned, strict=True):
        [weights] = attention_maps(model, [item], [output])
        torch.testing.assert_close(weights.sum(-1), torch.ones(len(output) + 1))
        memory = model.make_memory(model.encode(torch.tensor([item.source])))
        layers = [layer.cross_attention for layer in model.decoder]
        with torch.inference_mode(), recorded(layers) as seen:
            model.decode(torch.tensor([[1, *output]]), model.project(memory))
        compressed = torch.stack([layer.mean(1)[0] for layer in seen]).mean(0)  # (T, 1 + retained)
        dummies = int(closed.any())
        torch.testing.assert_close(weights[:, ~closed], compressed[:, dummies:], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(weights[:, closed].sum(-1), compressed[:, :dummies].sum(-1), rtol=1e-4, atol=1e-5)


def test_encoder_entropy_is_of_the_heads_mean_in_the_last_layer(make_model, items):
    """Figure 8: without queries attention is uniform over the real tokens, whatever the padding; then not any more."""
    model = make_model(l0drop="none")
    before = encode_all(model, items)[1]
    attention = model.encoder[-1].attention
    with torch.no_grad():
        attention.query.weight.zero_()
        attention.query.bias.zero_()
    pruned, entropies = encode_all(model, items)
    for row, item, old in zip(entropies, items, before, strict=True):
        np.testing.assert_allclose(row, math.log(len(item.source)), rtol=1e-5)
        assert (old < row - 1e-3).any()
    assert not np.concatenate(pruned).any()  # a baseline prunes nothing
    with torch.no_grad():  # one of four heads looks at one of three tokens: the mean is (1/2, 1/4, 1/4) in some order
        attention.query.bias[:4] = 1000.0
    [row] = encode_all(model, items[1:2])[1]
    np.testing.assert_allclose(row, 1.5 * math.log(2), rtol=1e-4)


def test_mean_entropies_by_hand():
    """Figure 8: over the words of the corpus, not over sentences; NaN where a kind has no word."""
    entropies = [np.array([1.0, 2.0, 3.0]), np.array([5.0])]
    assert mean_entropies(entropies, [np.array([False, True, False]), np.array([False])]) == (3.0, 2.0)
    retained, pruned = mean_entropies(entropies, [np.zeros(3, dtype=bool), np.zeros(1, dtype=bool)])
    assert retained == 11 / 4 and math.isnan(pruned)


def test_places_in_words_by_hand():
    """Figure 6: first 0, last 1; the space symbol has no place; a word of one character is both first and last."""
    characters, words = list("▁abcdef▁ab.▁x"), [0] * 7 + [1] * 3 + [2] + [3] * 2
    assert places_in_words(characters, words) == [
        "space", "0.0-0.2", "0.2-0.4", "0.4-0.6", "0.6-0.8", "0.8-1.0", "0.8-1.0",
        "space", "0.0-0.2", "0.8-1.0", "alone", "space", "alone",
    ]  # fmt: skip


# The command


def read_csv(path) -> list[dict]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A baseline and two L0Drop runs, hardly trained, with gates drawn at random so that some are closed."""
    folder, small = tmp_path_factory.mktemp("runs"), replace(SMALL, steps=2, average_last=1, extra_length=0)
    train(replace(small, l0drop="none"), folder / "base")
    train(replace(small, l0_weight=0.2), folder / "l0")
    train(replace(small, l0_weight=0.9, units="char", max_source=90), folder / "char")
    for seed, name in enumerate(("l0", "char")):
        weights = load_file(folder / name / "model.safetensors")
        torch.manual_seed(seed)
        weights["l0drop.0.predictor.weight"] = 2 * torch.randn(1, SMALL.width)
        save_file(weights, folder / name / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def drawn(runs, tmp_path_factory):
    """All that `evaluate` and `figures` write for the baseline and one L0Drop run; and what `figures` prints."""
    out = tmp_path_factory.mktemp("figures")
    common = ["--data", DATA, "--limit", str(EXAMPLES)]
    evaluate.main([str(runs / "base"), str(runs / "l0"), *common, "--json", str(out / "m.json")])
    given = ["--run", str(runs / "l0"), "--baseline", str(runs / "base")]
    figures.main([str(out / "m.json"), *given, *common, "--out", str(out / "drawn")])
    return SimpleNamespace(out=out / "drawn", metrics=json.loads((out / "m.json").read_text()))


@pytest.fixture
def panels(monkeypatch):
    """The panels of the figure that a drawing function saved last, and its rows."""
    saved = {}
    monkeypatch.setattr(figures, "save_figure", lambda out, name, figure, rows: saved.update(figure=figure, rows=rows))
    return lambda: (saved["figure"].axes, saved["rows"])


@pytest.fixture
def corpus(runs):
    """The baseline and the L0Drop run, their items, and their outputs."""

    def give(name):
        run = load_run(runs / name)
        items = run.encode(load(DATA, "test", EXAMPLES))
        return run, items, decode_all(run, items)

    return give


def test_every_figure_is_drawn_but_that_of_characters(drawn):
    """A PNG and a CSV for every figure whose inputs are there."""
    names = {"figure_1", "figure_2", "figure_3", "figure_4", "figure_5", "figure_5_kinds", "figure_7", "figure_8"}
    assert {path.name for path in drawn.out.iterdir()} == {name + end for name in names for end in (".png", ".csv")}
    for path in drawn.out.glob("*.png"):
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


def test_figure_1_counts_every_source_word_once(drawn, corpus):
    """All words are counted, and their mean is target words per source word, because each target word gives 1."""
    _, items, outputs = corpus("base")
    rows = read_csv(drawn.out / "figure_1.csv")
    source_words = sum(len(item.source) for item in items)
    target_words = sum(len(output.tokens) + 1 for output in outputs)
    assert sum(int(row["encodings"]) for row in rows) == source_words
    assert float(rows[0]["mean"]) == pytest.approx(target_words / source_words, rel=1e-3)
    assert float(rows[0]["attention_on_pruned"]) == 0 and float(rows[0]["sparsity"]) == 0
    assert (rows[0]["from"], rows[0]["to"], rows[-1]["from"], rows[-1]["to"]) == ("0", "0.1", "5", "inf")


def test_figure_7_counts_retained_source_words(drawn, corpus):
    """D12: retained words alone; mean times their number is what the pruned ones leave; the bins hold the share."""
    _, items, outputs = corpus("l0")
    rows = read_csv(drawn.out / "figure_7.csv")
    retained = sum(not closed for output in outputs for closed in output.pruned[-1])
    assert 0 < retained < sum(len(item.source) for item in items)
    assert sum(int(row["encodings"]) for row in rows) == retained
    target_words = sum(len(output.tokens) + 1 for output in outputs)
    left = target_words * (1 - float(rows[0]["attention_on_pruned"]))
    assert float(rows[0]["mean"]) * retained == pytest.approx(left, rel=1e-3)
    below = sum(int(row["encodings"]) for row in rows if float(row["to"]) < 0.65)
    assert float(rows[0]["share_below_0.6"]) == pytest.approx(below / retained, rel=1e-3)
    assert float(rows[0]["sparsity"]) == pytest.approx(drawn.metrics["systems"]["l0"]["sparsity"], rel=1e-3)


def test_figure_2_has_zeros_exactly_at_pruned_words(drawn):
    """Rows of the baseline sum to 1; those of L0Drop lack the dummy's weight, and only pruned words have 0."""
    rows = read_csv(drawn.out / "figure_2.csv")
    for name in ("base", "l0"):
        own = [row for row in rows if row["run"] == name]
        sums = np.zeros(1 + max(int(row["target_position"]) for row in own))
        for row in own:
            sums[int(row["target_position"])] += float(row["weight"])
        assert own[-1]["source"] == own[-1]["target"] == "</s>"
        if name == "base":
            np.testing.assert_allclose(sums, 1, rtol=1e-3)
            assert all(float(row["weight"]) > 0 for row in own)
        else:
            assert (sums < 0.999).all()
            assert all((float(row["weight"]) == 0) == (row["pruned"] == "1") for row in own)


def test_figure_3_is_a_probability_distribution(drawn):
    """Check values of the released code: mass .168178 at 0 and at 1; with the density between them it is 1."""
    rows = read_csv(drawn.out / "figure_3.csv")
    masses = {row["gate"]: float(row["point_mass"]) for row in rows if row["point_mass"]}
    assert masses == pytest.approx({"0": 0.168178, "1": 0.168178}, abs=1e-5)
    inside = [(float(r["gate"]), float(r["stretched"])) for r in rows if r["stretched"] and 0 < float(r["gate"]) < 1]
    density = np.mean([value for _, value in inside])  # over nearly all of (0, 1)
    assert density + sum(masses.values()) == pytest.approx(1, abs=0.01)
    outside = [row for row in rows if row["stretched"] and not -1e-6 <= float(row["gate"]) <= 1 + 1e-6]
    assert outside and all(row["binary_concrete"] == "nan" for row in outside)


def test_figures_4_and_5_show_the_metrics(drawn):
    """Every system with its lambda, the baseline without, by rising sparsity."""
    systems = drawn.metrics["systems"]
    four, five = read_csv(drawn.out / "figure_4.csv"), read_csv(drawn.out / "figure_5.csv")
    assert [(row["run"], row["lambda"], row["seed"]) for row in four] == [("base", "", "0"), ("l0", "0.2", "0")]
    for row in four:
        quality = systems[row["run"]]["rougeLsum"]
        assert [float(row[k]) for k in ("mean", "low", "high")] == pytest.approx(list(quality.values()), rel=1e-3)
    for label, value in systems["l0"]["sparsity_by_type"].items():
        assert float(five[1][label]) == pytest.approx(value, rel=1e-3)
    kinds = read_csv(drawn.out / "figure_5_kinds.csv")[1]
    assert float(kinds["filler"]) == pytest.approx(systems["l0"]["sparsity_by_kind"]["filler"], rel=1e-3)


def test_several_metrics_files_are_several_seeds(drawn, tmp_path):
    """Figure 4 has a row per system and file; a system without lambda, as a pattern's, has its name."""
    other = json.loads(json.dumps(drawn.metrics))
    other["systems"]["l0"] |= {"seed": 7, "lambda": None}
    files = [figures.read_metrics(drawn.out.parent / "m.json"), tmp_path / "b.json"]
    files[1].write_text(json.dumps(other))
    figures.figure_4(tmp_path, [figures.read_metrics(files[1]), files[0]])
    rows = read_csv(tmp_path / "figure_4.csv")
    assert [(row["run"], row["seed"]) for row in rows] == [("base", "0"), ("l0", "7"), ("base", "0"), ("l0", "0")]


def test_figure_8_splits_the_baseline_by_the_gates_of_the_run(drawn, corpus):
    """Both models' entropies, over the same words."""
    run, items, outputs = corpus("l0")
    [row] = read_csv(drawn.out / "figure_8.csv")
    closed = np.concatenate([output.pruned[-1] for output in outputs])
    for model, prefix in ((run.model, ""), (corpus("base")[0].model, "baseline_")):
        values = np.concatenate(encode_all(model, items)[1])
        assert float(row[prefix + "retained"]) == pytest.approx(values[~closed].mean(), rel=1e-3)
        assert float(row[prefix + "pruned"]) == pytest.approx(values[closed].mean(), rel=1e-3)


def test_figure_6_counts_every_character_once(runs, tmp_path, capsys):
    """Characters of the sources as cut, without </s>, each at one place; the other figures say what they lack."""
    figures.main(["--run", str(runs / "char"), "--data", DATA, "--limit", str(EXAMPLES), "--out", str(tmp_path)])
    rows = {row["place"]: row for row in read_csv(tmp_path / "figure_6.csv")}
    run = load_run(runs / "char")
    items = run.encode(load(DATA, "test", EXAMPLES))
    assert sum(int(row["characters"]) for row in rows.values()) == EXAMPLES * 89
    pruned, _ = encode_all(run.model, items)
    tokens, closed = np.concatenate([item.source for item in items]), np.concatenate(pruned)
    assert sum(int(row["pruned"]) for row in rows.values()) == closed[tokens != EOS].sum() > 0
    of_spaces = closed[tokens == run.tokenizer.token_to_id("▁")]
    assert int(rows["space"]["characters"]) == len(of_spaces)
    assert float(rows["space"]["rate"]) == pytest.approx(np.mean(of_spaces), rel=1e-3)
    printed = [Path(line).stem for line in capsys.readouterr().out.splitlines()]
    assert printed == ["figure_3", "figure_2", "figure_6", "figure_7", "figure_8"]


def test_bad_input_has_a_clear_error(runs, tmp_path, capsys):
    """Runs in the wrong place, runs that read other tokens, and metrics that are not."""
    out = ["--out", str(tmp_path), "--data", DATA, "--limit", "2"]
    l0, base, char = (str(runs / name) for name in ("l0", "base", "char"))
    (tmp_path / "m.json").write_text('{"metric": "bleu", "systems": {"other": {}}}')
    (tmp_path / "cut.json").write_text('{"metric": "bl')
    for arguments, message in (
        (["--run", base], "base has no L0Drop layer"),
        (["--run", l0, "--baseline", char], "char prunes"),
        (["--run", l0, char], "l0, char cut the source into different tokens"),
        (["--run", l0, l0], "two runs have folders of the same name"),
        (["--run", str(tmp_path / "none")], "is not a run folder"),
        ([str(tmp_path / "cut.json")], "cut.json is not what l0drop.evaluate --json writes"),
        ([str(tmp_path / "m.json")], "m.json is not what l0drop.evaluate --json writes"),
        ([str(tmp_path / "no.json")], "no.json is not what"),
    ):
        with pytest.raises(SystemExit):
            figures.main(arguments + out)
        assert re.search(f"error: .*{message}", capsys.readouterr().err)


@pytest.mark.parametrize(
    "change",
    [
        {"sparsity": None},
        {"sparsity": {}},
        {"sparsity": float("nan")},
        {"lambda": []},
        {"seed": "0"},
        {"bleu": {"mean": 1.0, "low": 0.5}},
        {"bleu": {"mean": 1.0, "low": "x", "high": 2.0}},
        {"sparsity_by_type": None},
        {"sparsity_by_kind": {"main": []}},
    ],
)
def test_metrics_with_one_wrong_value_are_named(tmp_path, change):
    row = {"seed": 0, "lambda": None, "sparsity": 1.0, "bleu": {"mean": 1.0, "low": 0.5, "high": 2.0}}
    about, path = {"metric": "bleu", "data": "d", "split": "test", "examples": 2}, tmp_path / "m.json"
    path.write_text(json.dumps(about | {"systems": {"a": row}}))
    assert figures.read_metrics(path)["systems"][0]["run"] == "a"
    for systems in ({"a": row | change}, {}, [], None):
        path.write_text(json.dumps(about | {"systems": systems}))
        with pytest.raises(ValueError, match="m.json is not what l0drop.evaluate --json writes"):
            figures.read_metrics(path)


# What the axes show is what the rows say


def test_bars_of_figures_1_and_7_are_shares_of_the_retained(panels, corpus, tmp_path):
    run, items, _ = corpus("l0")
    figures.figure_1_or_7(tmp_path, 7, "l0", run, items, "toy")
    [axes], rows = panels()
    heights, counts = [bar.get_height() for bar in axes.patches], [row["encodings"] for row in rows]
    assert sum(heights) == pytest.approx(100)
    assert heights == pytest.approx([100 * count / sum(counts) for count in counts])
    assert [bar.get_x() for bar in axes.patches] == pytest.approx([row["from"] for row in rows])
    assert "target tokens" in axes.get_xlabel() and axes.get_ylabel().endswith("%")


def test_figure_2_marks_the_pruned_tokens_red(panels, corpus, tmp_path):
    (base, items, _), (l0, *_) = corpus("base"), corpus("l0")
    figures.figure_2(tmp_path, {"base": base, "l0": l0}, items)
    axes, rows = panels()
    for panel in axes[:2]:
        for place, label in enumerate(panel.get_xticklabels()):
            row = next(row for row in rows if row["source_position"] == place)
            assert label.get_text() == row["source"]
            assert label.get_color() == ("red" if row["pruned"] else "black")


def test_figure_4_has_sparsity_on_x_and_the_interval_as_bars(panels, drawn, tmp_path):
    figures.figure_4(tmp_path, [figures.read_metrics(drawn.out.parent / "m.json")])
    [axes], rows = panels()
    [container] = axes.containers
    line, _, [bars] = container.lines
    assert list(line.get_xdata()) == [row["sparsity"] for row in rows]
    assert list(line.get_ydata()) == [row["mean"] for row in rows]
    for segment, row in zip(bars.get_segments(), rows, strict=True):
        assert segment[:, 1] == pytest.approx([row["low"], row["high"]])
    assert "sparsity" in axes.get_xlabel() and "95 % interval" in axes.get_ylabel()


def test_figure_5_has_a_curve_per_type_over_the_overall_sparsity(panels, drawn, tmp_path):
    metrics = figures.read_metrics(drawn.out.parent / "m.json")
    figures.figure_5(tmp_path, "figure_5", metrics, "sparsity_by_type", figures.UNIT_TYPES)
    [axes], rows = panels()
    for line in axes.lines[:-1]:
        assert list(line.get_xdata()) == [row["sparsity"] for row in rows]
        assert list(line.get_ydata()) == [row.get(line.get_label(), math.nan) for row in rows]
    assert len(axes.lines) > 3 and axes.get_xlabel().startswith("sparsity, % of all")


def test_figure_6_has_a_bar_per_place(panels, runs, tmp_path):
    run, examples = load_run(runs / "char"), load(DATA, "test", EXAMPLES)
    figures.figure_6(tmp_path, "char", run, examples, run.encode(examples), "toy")
    [above, below], rows = panels()
    inside = [row for row in rows if row["place"][0].isdigit()]
    total = sum(row["pruned"] for row in inside)
    assert [bar.get_height() for bar in above.patches] == pytest.approx([100 * r["pruned"] / total for r in inside])
    assert [bar.get_height() for bar in below.patches] == pytest.approx([100 * r["rate"] for r in rows])


def test_figure_8_has_sparsity_on_x_and_entropy_on_y(panels, corpus, runs, tmp_path):
    (base, items, _), (l0, *_) = corpus("base"), corpus("l0")
    figures.figure_8(tmp_path, {"l0": l0}, base, items, "toy")
    axes, [row] = panels()
    for panel, kind in zip(axes, ("retained", "pruned"), strict=True):
        assert kind in panel.get_title()
        for line, column in zip(panel.lines, (kind, f"baseline_{kind}"), strict=True):
            assert (list(line.get_xdata()), list(line.get_ydata())) == ([row["sparsity"]], [row[column]])
    assert axes[1].get_xlabel().startswith("sparsity") and axes[0].get_ylabel() == "entropy, nats"
