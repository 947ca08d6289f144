"""Marks along an axis that do not touch each other, and scales on which nothing is flattened."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ..arrays import Array
from .labels import text_width

GAP = 1.3
"""The room of a label along the axis, as a multiple of the label."""

FAR = 30.0
"""Values whose sizes differ by more than this factor are drawn on a logarithmic scale."""
LEAP = 10.0
"""So are values of which one is larger than the median by this factor."""


def round_numbers(most: int = 9, *, integer: bool = False) -> MaxNLocator:
    """Return what places at most so many marks at 1, 2, 5, 10, … or their like, such as 0.2, 0.4, 0.6."""
    return MaxNLocator(most, integer=integer, steps=[1, 2, 5, 10])


def token_ticks(axis: Any, labels: Sequence[str], *, room: float) -> None:
    """Write labels at 0, 1, … along an axis of `room` inches.

    Under a horizontal axis where some label is wider than its place, labels of several characters stand upright.
    Where even lines of small type do not fit, only every second, third, … label is written.
    """
    place = room * 72 / max(len(labels), 1)
    size = float(np.clip(0.72 * place, 5.5, 8.5))
    widths = [text_width(label, size) for label in labels]
    crowded = axis.axis_name == "x" and any(GAP * width > place for width in widths)
    upright = [crowded and len(label) > 1 for label in labels]
    lying = [width for width, turn in zip(widths, upright, strict=True) if not turn]
    extent = size if axis.axis_name == "y" or any(upright) else 0.0
    extent = max(extent, *lying) if axis.axis_name == "x" and lying else extent
    step = max(1, math.ceil(GAP * extent / place))
    _write(axis, labels, step, size)
    for text, turn in zip(axis.get_ticklabels(), upright[::step], strict=False):
        text.set_rotation(90 if turn else 0)


def number_ticks(axis: Any, labels: Sequence[str], *, room: float, size: float = 8.5) -> None:
    """Write numbers at 0, 1, … along an axis of `room` inches: all, or every second, fifth, tenth, … of them."""
    place = room * 72 / max(len(labels), 1)
    extent = max((text_width(label, size) for label in labels), default=0.0) if axis.axis_name == "x" else size
    steps = (unit * 10**power for power in range(8) for unit in (1, 2, 5))
    _write(axis, labels, next(step for step in steps if step * place >= GAP * extent), size)


def spread_out(places: Sequence[float], labels: Sequence[str], *, size: float = 8.5) -> list[int]:
    """Return which of some labels can stand at their places, in points along an axis, without touching each other."""
    kept: list[int] = []
    end = -math.inf
    for number in np.argsort(places, kind="stable").tolist():
        half = GAP * text_width(labels[number], size) / 2
        if places[number] - half >= end:
            kept.append(number)
            end = places[number] + half
    return kept


def _write(axis: Any, labels: Sequence[str], step: int, size: float) -> None:
    axis.set_ticks(range(0, len(labels), step), labels[::step], fontsize=size)
    axis.set_tick_params(length=0 if step == 1 else 2.5, pad=2)


def are_far_apart(values: Array) -> bool:
    """Tell whether the largest of positive values would flatten the others on an even scale."""
    values = np.asarray(values, dtype=np.float64)
    found = values[np.isfinite(values) & (values > 0)]
    if not len(found) or len(found) < np.size(values):
        return False
    return bool(found.max() > FAR * found.min() or found.max() > LEAP * np.median(found))


def log_scale(ax: Any, values: Array) -> None:
    """Give the vertical axis a logarithmic scale for positive values, with numbers as people write them."""
    low, high = float(np.min(values)), float(np.max(values))
    decades = math.log10(high / low)
    ax.set_yscale("log")
    ax.set_ylim(low / 1.35, high * 1.7)
    subs = (1.0, 2.0, 5.0) if decades < 2 else (1.0, 3.0) if decades < 4 else (1.0,)
    ax.yaxis.set_major_locator(LogLocator(subs=subs, numticks=8))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(number_text))


def signed_log_scale(ax: Any, even: float, largest: float) -> None:
    """Give the vertical axis a scale that is even up to ±`even`, a power of ten, and logarithmic up to ±`largest`."""
    ax.set_yscale("symlog", linthresh=even)
    decades = max(1, math.floor(math.log10(largest / even)))
    powers = [even * 10.0**decade for decade in range(0, decades + 1, math.ceil(decades / 3))]
    ax.yaxis.set_major_locator(FixedLocator([*(-power for power in reversed(powers)), 0.0, *powers]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(number_text))


def number_text(value: float, _: Any = None) -> str:
    """Write a number the way people read it: 0.02, −1,500, 2e+07."""
    return (f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.3g}").replace("-", "−")
