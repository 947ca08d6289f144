"""A curve drawn with characters: bars for the training loss, dots for evaluations."""

import math
from collections.abc import Sequence

import numpy as np
from rich.text import Text

MOST = 512
"""The most points of a curve, so that memory does not grow with the number of steps."""
HEIGHT = 6
LABELS = 7
"""Columns for the numbers on the left."""
BAR, DOT = "cyan", "bold magenta"
LEVELS = (" ▁▂▃▄▅▆▇█", "┤", "●")
ASCII_LEVELS = (" .:#", "|", "o")
"""Characters from empty to full, the edge, and a dot; the second set for terminals that show ASCII only."""
FAR = 10
"""A curve is drawn on a log scale when its largest value is this many times its smallest."""


class Curve:
    """A figure over the steps, averaged over intervals of equal length."""

    def __init__(self) -> None:
        self.first, self.last, self.size = 0, 0, 1
        self._sums, self._counts = np.zeros(MOST), np.zeros(MOST)

    def add(self, step: int, value: float) -> None:
        """Take in the value of a step; steps come in order, with gaps allowed."""
        self.first, self.last = self.first or step, step
        while (place := (step - self.first) // self.size) >= MOST:
            self.size *= 2  # neighboring intervals are merged
            empty = np.zeros(MOST // 2)
            self._sums, self._counts = (np.append(x[::2] + x[1::2], empty) for x in (self._sums, self._counts))
        self._sums[place] += value
        self._counts[place] += 1

    def columns(self, width: int) -> list[float]:
        """Return `width` means over equal parts of the curve; an empty list for an empty curve."""
        found: list[float] = []
        used = (self.last - self.first) // self.size + 1
        for column in range(width if self.first else 0):
            begin = column * used // width
            part = slice(begin, max(begin + 1, (column + 1) * used // width))
            count = self._counts[part].sum()
            # An interval whose steps were all refused repeats the one before.
            found.append(float(self._sums[part].sum() / count) if count else found[-1])
        return found


def chart(
    curve: Curve, dots: Sequence[tuple[int, float]], width: int, *, height: int = HEIGHT, ascii_only: bool = False
) -> list[Text]:
    """Draw a curve and dots in rows of `width` columns, with the highest and the lowest value on the left.

    The curve spans the width from its first step to its last. Values are finite.
    """
    levels, edge, dot = ASCII_LEVELS if ascii_only else LEVELS
    inside = width - LABELS - 1
    values = curve.columns(inside)
    if not values:
        return []
    low, high = limits(values, dots)
    parts = len(levels) - 1
    heights = [_height(value, low, high, height * parts) for value in values]
    places = set()
    for step, value in dots:
        column = min((step - curve.first) * (inside - 1) // max(curve.last - curve.first, 1), inside - 1)
        places.add((column, (_height(value, low, high, height * parts) - 1) // parts))
    rows = []
    for row in reversed(range(height)):
        label = high if row == height - 1 else low if row == 0 else None
        text = Text(f"{'' if label is None else short(label):>{LABELS}}{edge}", style="dim", no_wrap=True)
        bars = [levels[min(max(reached - row * parts, 0), parts)] for reached in heights]
        marked = [column for column in range(inside) if (column, row) in places]
        for column in marked:
            bars[column] = dot
        text.append("".join(bars), style=f"not dim {BAR}")
        for column in marked:
            text.stylize(DOT, LABELS + 1 + column, LABELS + 2 + column)
        rows.append(text)
    return rows


def is_logarithmic(low: float, high: float) -> bool:
    """Tell whether values between these two are drawn on a log scale."""
    return low > 0 and high > FAR * low


def limits(values: Sequence[float], dots: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Return the lowest and the highest of all values."""
    seen = [*values, *(value for _, value in dots)]
    return min(seen), max(seen)


def _height(value: float, low: float, high: float, most: int) -> int:
    """Return the height of a value, from 1 to `most`."""
    if is_logarithmic(low, high):
        value, low, high = math.log(value), math.log(low), math.log(high)
    return 1 if high <= low else 1 + round((value - low) / (high - low) * (most - 1))


def short(value: float) -> str:
    """Write a number in at most seven columns: 1.8702, 0.0002, 12.35, 3.1e-05."""
    if value and not 1e-4 <= abs(value) < 1e5:
        return f"{value:.1e}"
    return f"{value:.{4 if abs(value) < 10 else 2 if abs(value) < 1000 else 0}f}"
