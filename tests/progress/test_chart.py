"""Curves drawn with characters."""

import pytest

from glassformer.progress.screen import MOST, ROWS, Curve, chart


def curve_of(values, first=1):
    curve = Curve()
    for step, value in enumerate(values, first):
        curve.add(step, value)
    return curve


def drawn(values, width, dots=(), **settings):
    return [row.plain for row in chart(curve_of(values), dots, width, **settings)]


def test_bars_rise_with_the_values_and_dots_stand_at_their_steps():
    *rows, axis = drawn([8, 7, 6, 5, 4, 3, 2, 1], 16, [(1, 1.0), (8, 8.0)])
    assert rows[0] == " 8.0000┤█▂     ●"
    assert rows[-1] == " 1.0000┤●█████▇▁"
    assert [len(row) for row in rows] == [16] * ROWS
    assert axis.strip() == "1      8"
    assert drawn([], 20) == []
    assert "".join(drawn([2, 1], 60, ascii_only=True)).isascii()


def test_few_values_fill_the_width_and_many_are_averaged():
    assert drawn([2, 1], 12)[0] == " 2.0000┤███ "
    assert drawn([1, 3] * 500, 18)[ROWS - 1].startswith(" 2.0000┤")


def test_values_that_reach_far_are_drawn_by_their_logarithm():
    *rows, _ = drawn([10.0, 1.0, 0.1, 0.01, 0.001], 13)
    assert [len(row[8:].rstrip()) for row in rows] == [1, 2, 3, 4, 5]


def test_a_curve_keeps_no_more_than_its_stretches_however_long_it_is():
    curve = curve_of(range(10 * MOST))
    steps, values = zip(*curve.points(), strict=True)
    assert MOST / 2 <= len(steps) <= MOST
    assert list(values) == sorted(values)
    assert sum(values) / len(values) == pytest.approx((10 * MOST - 1) / 2, rel=0.01)
    assert (curve.first, curve.last) == (1, 10 * MOST)


def test_steps_that_were_left_out_go_on_as_the_one_before():
    curve = Curve()
    curve.add(1, 5.0)
    curve.add(4, 2.0)
    assert next(chart(curve, (), 12)).plain == " 5.0000┤███ "
