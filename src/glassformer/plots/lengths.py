"""What something costs against the length of a sequence: time, and memory, with the powers by which they grow."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator, NullLocator

from ..errors import ShapeError
from .style import new_figure, styled, titled
from .theme import colors
from .ticks import spread_out

COLORS = ("vermilion", "blue", "green", "purple", "orange", "gray")
MARKERS = "osD^vX"
PANEL = 4.2
"""The inches of a panel, about."""


class LengthCurve(NamedTuple):
    """One way of doing it: seconds and bytes at each length; bytes may be left empty."""

    name: str
    lengths: Sequence[int]
    seconds: Sequence[float]
    bytes: Sequence[float] = ()
    exponent: float | None = None  # of the time


@styled
def length_curves(curves: Sequence[LengthCurve], *, title: str = "Attention and the length of a sequence") -> Figure:
    """Draw time and, where it is known, memory against the length, all on logarithmic scales.

    On them a power of the length is a straight line, and its exponent the slope.
    """
    for curve in curves:
        if len(curve.seconds) != len(curve.lengths) or len(curve.bytes) not in (0, len(curve.lengths)):
            have = f"{len(curve.lengths)} lengths but {len(curve.seconds)} times and {len(curve.bytes)} sizes"
            raise ShapeError(f"{curve.name} has {have}", hint="give one of each for every length")
    has_memory = any(curve.bytes for curve in curves)
    figure = new_figure(10.4 if has_memory else 6.2, 4.3)
    axes = figure.subplots(1, 2 if has_memory else 1, squeeze=False)[0]
    _panel(axes[0], curves, "seconds", "s")
    axes[0].set_title("time, forward and backward")
    if has_memory:
        _panel(axes[1], curves, "bytes", "B")
        axes[1].set_title("memory beside the inputs")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, max(1, len(labels))))
    return titled(figure, title, f"{_words(curves)}.")


def _panel(ax: Axes, curves: Sequence[LengthCurve], what: str, unit: str) -> None:
    ax.grid(visible=True)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    for number, curve in enumerate(curves):
        values = getattr(curve, what)
        if len(values):
            color, marker = getattr(colors(), COLORS[number % len(COLORS)]), MARKERS[number % len(MARKERS)]
            # Thinner and thinner, so that curves that agree are all seen.
            width, size = max(3.6 - 0.6 * number, 1), max(9.0 - number, 4)
            line: dict[str, Any] = {"color": color, "linewidth": width, "marker": marker, "markersize": size}
            ax.plot(curve.lengths, values, markeredgecolor=colors().page, label=_label(curve), **line)
    lengths = sorted({length for curve in curves for length in curve.lengths})
    ax.xaxis.set_major_locator(FixedLocator(_written(lengths)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(EngFormatter(unit))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.tick_params(axis="y", labelcolor=colors().ink)
    ax.set_xlabel("positions T")


def _written(lengths: Sequence[int]) -> list[int]:
    """Return the lengths that have room for their number."""
    if len(lengths) < 2:
        return list(lengths)
    powers = [math.log2(length) for length in lengths]
    # A panel has a margin of a twentieth on each side.
    point = 0.9 * 72 * PANEL / (powers[-1] - powers[0])
    kept = spread_out([point * power for power in powers], [f"{length:,}" for length in lengths])
    return [lengths[number] for number in kept]


def _label(curve: LengthCurve) -> str:
    return curve.name if curve.exponent is None else f"{curve.name}: time like $T^{{{curve.exponent:.2f}}}$"


def _words(curves: Sequence[LengthCurve]) -> str:
    parts = []
    for curve in curves:
        grows = "" if curve.exponent is None else f", growing like the length to the power {curve.exponent:.2f}"
        if len(curve.lengths):
            parts.append(f"{curve.name} takes {curve.seconds[-1]:.3g} s at {curve.lengths[-1]:,} positions{grows}")
    return "; ".join(parts) or "nothing was measured"
