"""The numbers that the figures draw, from CSVs as sweep.py and shared.score write them."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("shared")

from ...experiments import figures


def interval(mean: float, column: str) -> dict:
    ends = {"mean": mean, "low": mean - 1, "high": mean + 2}
    return {f"{column}_{end}": f"{value}" for end, value in ends.items()}


def row(layer: int, head: int, uniform: float, plain: float) -> dict:
    known = {"system": "run (seed 0) on toy", "layer": f"{layer}", "head": f"{head}"}
    return known | interval(uniform, "over_uniform") | interval(plain, "over_plain")


def test_heat_maps_have_the_bottom_layer_at_the_bottom_and_one_scale():
    """White is no effect; dark means the same in each panel."""
    figure = figures.effects(
        [row(1, 0, -4.0, 1.0), row(1, 1, 1.0, 0.5), row(2, 0, 2.0, 3.0), row(2, 1, 0.0, 0.0)]
    )
    images = [axes.images[0] for axes in figure.axes if axes.images]
    np.testing.assert_array_equal(images[0].get_array(), [[-4, 1], [2, 0]])
    np.testing.assert_array_equal(images[1].get_array(), [[1, 0.5], [3, 0]])
    assert [(i.origin, i.norm.vmin, i.norm.vmax) for i in images] == [("lower", -4, 4)] * 2
    titles = [axes.get_title() for axes in figure.axes[:2]]
    assert titles == ["run, over uniform attention", "run, over no masks"]


def test_the_cost_of_masks_is_drawn_by_length():
    rows = [
        {"side": side, "length": f"{n}", "seconds_median": f"{n / 100}"}
        | {"seconds_low": f"{n / 200}", "seconds_high": f"{n / 50}"}
        for side in [*figures.SIDES, "another"]
        for n in (1000, 100, 400)
    ]
    [axes] = figures.speed(rows).axes
    assert [line.get_label() for line in axes.containers] == list(figures.SIDES)
    for container in axes.containers:
        line = container[0]
        assert [*zip(*line.get_data(), strict=True)] == [(100, 1), (400, 4), (1000, 10)]


def test_figures_3_and_7_draw_steps_and_parts_of_layers_sorted_as_numbers():
    """Of twelve layer 12 is the top one, in whatever order the rows come."""
    layers = (10, 2, 12, 1, 9)
    rows = [
        {"side": "left", "layer": f"{i}", "count": n} | interval(i * n, "over_uniform")
        for i in layers
        for n in (1, 2)
    ]
    for side, more in (("together", 0.5), ("parts", 0.25)):
        for i in layers:
            right = {"side": f"right, {side}", "layer": f"{i}"}
            rows.append(right | interval(i + more, "over_uniform"))
    left, right = figures.synergy([{"system": "run (seed 0)"} | each for each in rows]).axes
    assert [tuple(line.get_ydata()) for line in left.lines] == [(1, 2), (12, 24)]
    assert [text.get_text() for text in left.texts] == ["layer 1", "layer 12"]
    sorted_layers = (1, 2, 9, 10, 12)
    heights = [i + more for i in sorted_layers for more in (0.5, 0.25)]
    assert [bar.get_height() for bar in right.patches] == heights
    blue = [bar.get_facecolor() != right.patches[0].get_facecolor() for bar in right.patches]
    assert blue == [False] * 2 + [True] * 8
    names = [text.get_text().replace("\n", " ") for text in right.get_xticklabels()]
    assert names == [f"layer {i} {part}" for i in sorted_layers for part in ("together", "sum")]
    cells = figures.effects([row(i, 0, i, i) for i in (10, 2, 9, 1)]).axes[0].images[0]
    assert cells.get_array().ravel().tolist() == [1, 2, 9, 10]


def test_figure_5_draws_means_over_seeds_with_and_without_masks():
    """From a table of seeds, and from one in which each seed is a system.

    Differences and other rows stay away.
    """
    seeds = {
        "adapted-1000": "3 5",
        "adapted-100-0": "1",
        "adapted-100-1": "2",
        "adapted-1000+oracle": "9",
        "adapted-1000+tagger-1000": "6 8",
        "adapted-100-0+tagger-100-0 1:2": "4",
    }
    rows = []
    for system, values in seeds.items():
        known = {"system": system, "seeds": values, "minus": "", "metric": "rouge1"}
        others = [known | change | {"seeds": "99"} for change in ({"minus": "x"}, {"metric": "y"})]
        rows += [known, *others]
    lines = {line.get_label(): line.get_data() for line in figures.sizes(rows).axes[0].lines}
    assert [*zip(*lines["no masks"], strict=True)] == [(100, 1.5), (1000, 4)]
    assert [*zip(*lines["masked"], strict=True)] == [(100, 4), (1000, 7)]
