"""Curves drawn with characters."""

import pytest

from glassformer.progress.screen import MOST, Curve, chart


def curve_of(values, first=1):
    curve = Curve()
    for step, value in enumerate(values, first):
        curve.add(step, value)
    return curve


def drawn(values, width, dots=(), **settings):
    return [row.plain for row in chart(curve_of(values), dots, width, **settings)]


def test_bars_draw_the_course_of_few_many_and_far_values():
    assert drawn([8, 7, 6, 5, 4, 3, 2, 1], 16, height=1) == [" 8.0000┤█▇▆▅▄▃▂▁"]
    assert drawn([4, 3, 2, 1], 12, height=2) == [" 4.0000┤█▃  ", " 1.0000┤██▆▁"]
    assert drawn([], 20) == []
    assert drawn([2, 1], 12, height=1) == [" 2.0000┤██▁▁"]
    assert curve_of([1, 3] * 50).columns(10) == [2.0] * 10
    near = drawn([1.0, 0.1, 0.01, 0.001], 12, height=1)
    assert near == [" 1.0000┤█▆▃▁"]


def test_a_curve_keeps_no_more_than_its_stretches_and_goes_on_over_gaps():
    curve = curve_of(range(10 * MOST))
    assert curve.size == 16
    columns = curve.columns(8)
    assert columns == sorted(columns)
    assert sum(columns) / 8 == pytest.approx((10 * MOST - 1) / 2, rel=0.01)
    assert (curve.first, curve.last) == (1, 10 * MOST)

    curve = Curve()
    curve.add(1, 5.0)
    curve.add(4, 2.0)
    assert curve.columns(4) == [5.0, 5.0, 5.0, 2.0]
