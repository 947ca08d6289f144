"""A figure keeps the theme it was drawn in."""

import pytest
from matplotlib.colors import to_rgb

from glassformer.plots import THEMES, loss_curve, save, themed
from glassformer.plots.style import colors

METRICS = [{"step": i, "loss": 2 / (i + 1), "val_loss": 1.0, "accuracy": 0.5} for i in range(30)]


def test_a_figure_keeps_its_theme_when_saved_and_a_theme_ends_even_after_an_error(tmp_path):
    with themed("dark"):
        figure = loss_curve(METRICS)
    save(figure, tmp_path / "dark.png")
    assert figure.get_facecolor()[:3] == to_rgb(THEMES["dark"].page)
    labels = [label for ax in figure.axes for label in (*ax.get_xticklabels(), *ax.get_yticklabels())]
    assert {label.get_color() for label in labels} == {THEMES["dark"].ink}
    assert colors().name == "light"

    with pytest.raises(ZeroDivisionError), themed("dark"):
        _ = 1 / 0
    assert colors().name == "light"
