"""Curves against the length of a sequence."""

import pytest

from glassformer.errors import ShapeError
from glassformer.plots import LengthCurve, length_curves, save

CURVES = [
    LengthCurve("dense", [128, 256], [0.01, 0.04], [1e6, 4e6], 2.0),
    LengthCurve("window", [128, 256, 512], [0.005, 0.01, 1.02], [1e5, 2e5, 4e5]),
]


def test_time_and_memory_stand_side_by_side_on_logarithmic_scales(tmp_path):
    figure = length_curves(CURVES)
    time, memory = figure.axes
    assert {time.get_xscale(), time.get_yscale(), memory.get_yscale()} == {"log"}
    assert [line.get_label() for line in time.lines] == ["dense: time like $T^{2.00}$", "window"]
    assert [list(line.get_ydata()) for line in memory.lines] == [[1e6, 4e6], [1e5, 2e5, 4e5]]
    assert "dense takes 0.04 s at 256 positions" in figure.get_label()
    assert save(figure, tmp_path / "lengths.png").stat().st_size > 1000


def test_the_panels_say_what_was_measured():
    assert [ax.get_title() for ax in length_curves(CURVES).axes] == ["time", "memory"]
    (ax,) = length_curves([curve._replace(bytes=()) for curve in CURVES], time="time, forward").axes
    assert ax.get_title() == "time, forward"


def test_curves_with_too_few_numbers_are_refused():
    with pytest.raises(ShapeError, match="dense has 2 lengths but 1 times and 0 sizes"):
        length_curves([LengthCurve("dense", [1, 2], [0.1])])
