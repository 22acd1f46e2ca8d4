"""The numbers that the figures draw, from CSVs as sweep.py writes them."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("shared")

from ...experiments import figures


def interval(mean: float, column: str) -> dict:
    return {f"{column}_mean": mean, f"{column}_low": mean - 1, f"{column}_high": mean + 2}


def row(layer: int, head: int, uniform: float, plain: float) -> dict:
    return (
        {"system": "run (seed 0) on toy", "layer": layer, "head": head}
        | interval(uniform, "over_uniform")
        | interval(plain, "over_plain")
    )


def test_heat_maps_have_the_bottom_layer_at_the_bottom_and_one_scale():
    """White is no effect; dark means the same in each panel."""
    figure = figures.effects([row(1, 0, -4.0, 1.0), row(1, 1, 1.0, 0.5), row(2, 0, 2.0, 3.0)])
    images = [axes.images[0] for axes in figure.axes if axes.images]
    np.testing.assert_array_equal(images[0].get_array().filled(99), [[-4, 1], [2, 99]])
    np.testing.assert_array_equal(images[1].get_array().filled(99), [[1, 0.5], [3, 99]])
    assert [(i.origin, i.norm.vmin, i.norm.vmax) for i in images] == [("lower", -4, 4)] * 2
    assert [axes.get_title() for axes in figure.axes[:2]] == ["run, over uniform attention", "run, over no masks"]


def test_figures_3_and_7_draw_steps_and_parts():
    steps = [
        dict(side="left", layer=layer, count=n) | interval(layer * n, "over_uniform")
        for layer in (1, 2)
        for n in (1, 2)
    ]
    parts = [
        dict(side=f"right, {side}", layer=layer) | interval(value, "over_uniform")
        for layer, side, value in ((1, "together", 5), (1, "parts", 4), (2, "together", 9), (2, "parts", 7))
    ]
    figure = figures.synergy([{"system": "run (seed 0)"} | each for each in steps + parts])
    left, right = figure.axes
    lines = {tuple(line.get_ydata()) for line in left.lines}
    assert {(1, 2), (2, 4)} <= lines and [text.get_text() for text in left.texts] == ["layer 1", "layer 2"]
    assert [bar.get_height() for bar in right.patches] == [5, 4, 9, 7]
    names = [text.get_text().replace("\n", " ") for text in right.get_xticklabels()]
    assert names == ["layer 1 together", "layer 1 sum", "layer 2 together", "layer 2 sum"]
