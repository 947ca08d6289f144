"""Colors of both themes: words and lines stand out from the page, and a figure keeps the theme it was drawn in."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from glassformer.plots import THEMES, loss_curve, save, themed
from glassformer.plots.theme import colors, ink_on, weight_colors


def contrast(one, other):
    """The contrast of two colors, from 1 to 21, as WCAG defines it."""
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def luminance(color):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


METRICS = [{"step": i, "loss": 2 / (i + 1), "val_loss": 1.0, "accuracy": 0.5} for i in range(30)]
SERIES = ("blue", "sky", "orange", "green", "vermilion", "purple", "gray", "brown")


@pytest.mark.parametrize("theme", THEMES.values(), ids=THEMES)
def test_words_and_series_stand_out_from_the_page(theme):
    page = to_rgb(theme.page)
    assert contrast(to_rgb(theme.ink), page) > 7
    assert contrast(to_rgb(theme.quiet), page) > 4.5
    for name in SERIES:
        assert contrast(to_rgb(getattr(theme, name)), page) > 3, name


@pytest.mark.parametrize("theme", THEMES)
def test_numbers_in_cells_read_well_on_every_color(theme):
    with themed(theme):
        ramp = weight_colors()
    for weight in np.linspace(0, 1, 41):
        assert contrast(to_rgb(ink_on(ramp(weight))), ramp(weight)) > 3.8


def test_a_figure_keeps_its_theme_when_it_is_saved_outside(tmp_path):
    with themed("dark"):
        figure = loss_curve(METRICS)
    save(figure, tmp_path / "dark.png")
    assert figure.get_facecolor()[:3] == to_rgb(THEMES["dark"].page)
    labels = [label for ax in figure.axes for label in (*ax.get_xticklabels(), *ax.get_yticklabels())]
    assert {label.get_color() for label in labels} == {THEMES["dark"].ink}
    assert colors().name == "light"


def test_a_theme_ends_even_after_an_error():
    with pytest.raises(ZeroDivisionError), themed("dark"):
        _ = 1 / 0
    assert colors().name == "light"
