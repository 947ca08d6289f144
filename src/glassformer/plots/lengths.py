"""What something costs against the length of a sequence: time, memory, and the powers by which they grow."""

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullLocator

from ..errors import ShapeError
from .style import new_figure, styled, titled
from .theme import colors

MARKERS = "osD^vX"


class LengthCurve(NamedTuple):
    """One curve: seconds and bytes at each length; bytes may be left empty."""

    name: str
    lengths: Sequence[int]
    seconds: Sequence[float]
    bytes: Sequence[float] = ()
    exponent: float | None = None  # of the time


@styled
def length_curves(
    curves: Sequence[LengthCurve],
    *,
    title: str = "Attention and the length of a sequence",
    time: str = "time",
    memory: str = "memory",
) -> Figure:
    """Draw time and, where it is known, memory against the length, all on logarithmic scales.

    On them a power of the length is a straight line, and its exponent the slope. `time` and `memory` are the titles of
    the panels: say what was measured, such as "time, forward and backward".
    """
    for curve in curves:
        if len(curve.seconds) != len(curve.lengths) or len(curve.bytes) not in (0, len(curve.lengths)):
            have = f"{len(curve.lengths)} lengths but {len(curve.seconds)} times and {len(curve.bytes)} sizes"
            raise ShapeError(f"{curve.name} has {have}", hint="give one of each for every length")
    has_memory = any(curve.bytes for curve in curves)
    figure = new_figure(10.4 if has_memory else 6.2, 4.3)
    axes = figure.subplots(1, 2 if has_memory else 1, squeeze=False)[0]
    _panel(axes[0], curves, "seconds", "s")
    axes[0].set_title(time)
    if has_memory:
        _panel(axes[1], curves, "bytes", "B")
        axes[1].set_title(memory)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, max(1, len(labels))))
    words = [
        f"{curve.name} takes {curve.seconds[-1]:.3g} s at {curve.lengths[-1]:,} positions"
        for curve in curves
        if len(curve.lengths)
    ]
    return titled(figure, title, f"{'; '.join(words) or 'nothing was measured'}.")


def _panel(ax: Axes, curves: Sequence[LengthCurve], what: str, unit: str) -> None:
    ax.grid(visible=True)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    for number, curve in enumerate(curves):
        values = getattr(curve, what)
        if len(values):
            color, marker = colors().series[number % len(colors().series)], MARKERS[number % len(MARKERS)]
            # Thinner and thinner, so that curves that agree are all visible.
            width, size = max(3.6 - 0.6 * number, 1), max(9.0 - number, 4)
            ax.plot(
                curve.lengths, values, color=color, linewidth=width, marker=marker, markersize=size,
                markeredgecolor=colors().page, label=_label(curve),
            )  # fmt: skip
    ax.xaxis.set_major_formatter("{x:,.0f}")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(EngFormatter(unit))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("positions T")


def _label(curve: LengthCurve) -> str:
    return curve.name if curve.exponent is None else f"{curve.name}: time like $T^{{{curve.exponent:.2f}}}$"
