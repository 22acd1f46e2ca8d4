"""Figures: what is drawn are the numbers of the files."""

import numpy as np
import pytest

pytest.importorskip("shared")
pytest.importorskip("matplotlib")

from ...experiments.figures import CHOICES, TRAINED, draw_map, growth, over_r


def scores() -> dict[str, np.ndarray]:
    """Two seeds of each system, r not in order."""
    found = {"base.full": [90.0, 92.0]}
    levels = {"base.ideal": 80, "base.random": 10, "base.mean_key": 60, "kl.approx": 70}
    for r in (5, 2, 10):
        for system, at in levels.items():
            found[f"{system}.r{r}"] = [at + r, at + r + 2.0]
        for trained, run in {2: "apx-r2", 5: "apx", 10: "apx-r10"}.items():
            found[f"{run}.approx.r{r}"] = [95.0 - abs(trained - r)] * 2
        found[f"control.approx.r{r}"] = [94.0, 94.0]
    return {system: np.array(values) for system, values in found.items()}


def curves_of(figure) -> dict[str, list]:
    """Label -> places and values of each curve with bars."""
    curves = {}
    for container in figure.axes[0].containers:
        line = container.lines[0]
        curves[container.get_label()] = [line.get_xdata().tolist(), line.get_ydata().tolist()]
    return curves


def test_figure_2_has_the_mean_over_seeds_of_each_choice_by_rising_r():
    figure = over_r(scores(), CHOICES, "", "")
    assert curves_of(figure)["integrated (Int-Apx)"][1] == [92, 95, 90]
    for label, at in {"ideal": 80, "learned (KL-only)": 70, "mean key": 60, "random": 10}.items():
        means = pytest.approx([at + r + 1 for r in (2, 5, 10)])
        assert curves_of(figure)[label] == [[2, 5, 10], means]
    dotted = [line for line in figure.axes[0].lines if line.get_linestyle() == ":"]
    assert [line.get_ydata()[0] for line in dotted] == [91.0]


def test_figure_4_has_the_difference_to_r_5_in_training():
    found = curves_of(over_r(scores(), TRAINED, "", "", minus="apx.approx"))
    assert found["r 2 in training"][1] == [3, -3, -3] and found["r 5"][1] == [0, 0, 0]
    assert found["r 10"][1] == [-5, -5, 5] and found["all (control)"][1] == [2, -1, 4]


def test_a_map_of_words_becomes_one_of_sentences():
    """A sentence has the sum of its words' weights; lines stand where sentences begin."""
    words = np.random.default_rng(0).dirichlet(np.ones(6), size=3)
    figure = draw_map(words, ["Ġa", "b", "</s>"], [0, 0, 0, 1, 2, 2])
    left, right = figure.axes[:2]
    assert np.array_equal(left.images[0].get_array(), words)
    expected = np.stack([words[:, :3].sum(1), words[:, 3], words[:, 4:].sum(1)], 1)
    np.testing.assert_allclose(right.images[0].get_array(), expected)
    assert [line.get_xdata()[0] for line in left.lines] == [2.5, 3.5]
    assert [label.get_text() for label in right.get_yticklabels()] == ["a", "b", "</s>"]


def test_the_growth_is_that_of_the_smallest_r_of_each_length():
    rows = []
    for length, scale in (("4000", 2), ("800", 1)):
        for side, value in (("approx 30, gru", 9), ("approx 5, gru", 3), ("approx 5, mean", 4)):
            rows.append({"length": length, "side": side, "x shared_median": value * scale})
        rows.append({"length": length, "side": "generate", "x shared_median": 0.5 * scale})
    for row in rows:
        row |= {"x shared_low": row["x shared_median"], "x shared_high": row["x shared_median"]}
    curves = curves_of(growth(rows))
    assert curves["learned map, GRU (the paper's)"] == [[800, 4000], [3, 6]]
    assert curves["learned map, mean pooling"][1] == [4, 8]
    assert curves["generate of transformers"][1] == [0.5, 1]
