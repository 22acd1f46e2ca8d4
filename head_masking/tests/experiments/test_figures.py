"""The numbers that the figures draw, from CSVs as sweep.py and shared.score write them."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("shared")

from ...experiments import figures


def interval(mean: float, column: str) -> dict:
    return {
        f"{column}_mean": f"{mean}",
        f"{column}_low": f"{mean - 1}",
        f"{column}_high": f"{mean + 2}",
    }


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
    assert [axes.get_title() for axes in figure.axes[:2]] == [
        "run, over uniform attention",
        "run, over no masks",
    ]


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


def test_layers_are_sorted_as_numbers():
    """Of twelve, layer 12 is the top one, in whatever order the rows come."""
    steps = [
        {"system": "run", "side": side, "layer": f"{i}", "count": "1"} | interval(i, "over_uniform")
        for i in (10, 2, 12, 1, 9)
        for side in ("left", "right, together", "right, parts")
    ]
    left, right = figures.synergy(steps).axes
    assert [text.get_text() for text in left.texts] == ["layer 1", "layer 12"]
    assert [bar.get_height() for bar in right.patches] == [1, 1, 2, 2, 9, 9, 10, 10, 12, 12]
    blue = [bar.get_facecolor() != right.patches[0].get_facecolor() for bar in right.patches]
    assert blue == [False] * 2 + [True] * 8
    cells = figures.effects([row(i, 0, i, i) for i in (10, 2, 9, 1)]).axes[0].images[0]
    assert cells.get_array().ravel().tolist() == [1, 2, 9, 10]


def test_figures_3_and_7_draw_steps_and_parts():
    steps = [
        dict(side="left", layer=f"{i}", count=n) | interval(i * n, "over_uniform")
        for i in (1, 2)
        for n in (1, 2)
    ]
    parts = [
        dict(side=f"right, {side}", layer=layer) | interval(value, "over_uniform")
        for layer, side, value in (
            ("1", "together", 5),
            ("1", "parts", 4),
            ("2", "together", 9),
            ("2", "parts", 7),
        )
    ]
    figure = figures.synergy([{"system": "run (seed 0)"} | each for each in steps + parts])
    left, right = figure.axes
    assert [tuple(line.get_ydata()) for line in left.lines] == [(1, 2), (2, 4)]
    assert [text.get_text() for text in left.texts] == ["layer 1", "layer 2"]
    assert [bar.get_height() for bar in right.patches] == [5, 4, 9, 7]
    names = [text.get_text().replace("\n", " ") for text in right.get_xticklabels()]
    assert names == ["layer 1 together", "layer 1 sum", "layer 2 together", "layer 2 sum"]


def test_figure_5_draws_means_over_seeds_with_and_without_masks():
    """From a table of seeds, and from one in which each seed is a system.

    Differences and other rows stay away.
    """
    table = [
        ("adapted-1000", "3 5"),
        ("adapted-100-0", "1"),
        ("adapted-100-1", "2"),
        ("adapted-1000+oracle", "9"),
    ]
    table += [("adapted-1000+tagger-1000", "6 8"), ("adapted-100-0+tagger-100-0 1:2", "4")]
    rows = [
        {"system": system, "seeds": seeds, "minus": "", "metric": "rouge1"}
        for system, seeds in table
    ]
    rows += [
        each | change | {"seeds": "99"}
        for each in rows
        for change in ({"minus": "x"}, {"metric": "rouge2"})
    ]
    lines = [
        line
        for line in figures.sizes(rows).axes[0].lines
        if line.get_label() in ("no masks", "masked")
    ]
    assert [[*zip(*line.get_data(), strict=True)] for line in lines] == [
        [(100, 1.5), (1000, 4)],
        [(100, 4), (1000, 7)],
    ]
