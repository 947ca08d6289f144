"""How the vectors of a model grow and change from layer to layer."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..arrays import Array
from ..errors import LengthError
from ..interpret import LayerStatistics
from .style import FAR, are_far_apart, log_scale, new_figure, styled, titled, token_ticks
from .theme import colors

WRITTEN_UP_TO = 8
"""Values are written above the bars of at most this many layers."""


@styled
def layer_curves(statistics: Sequence[LayerStatistics], *, title: str = "Layer outputs") -> Figure:
    """Draw what leaves each layer: the range and spread of its values, their size, and what each block changed.

    Where a few values are far larger than the others, the scale is logarithmic, and the title of the panel says so.
    """
    if not statistics:
        raise LengthError("there are no layers to draw", hint="pass layer_statistics(trace)")
    figure = new_figure(9.8, 3.9)
    values, size, change = figure.subplots(1, 3, width_ratios=[1.25, 1, 1])
    _spread(values, statistics)
    rms, moved = (np.array([getattr(row, name) for row in statistics]) for name in ("rms", "change"))
    _bars(size, rms, colors().green, first=0, title="size: rms of the values")
    _bars(change, moved, colors().orange, first=1, title="change: relative to the input")
    for ax, room in ((values, 3.0), (size, 2.3), (change, 2.3)):
        token_ticks(ax.xaxis, [row.name for row in statistics], room=room)
        ax.set_xlim(-0.6, len(statistics) - 0.4)
    figure.legend(*values.get_legend_handles_labels(), loc="outside lower left", ncols=2, borderaxespad=1.0)
    sizes = ", ".join(f"{row.name} {row.rms:.3g}" for row in statistics)
    words = f"mean, spread, range and relative change of each layer. Root mean squares: {sizes}."
    return titled(figure, title, words)


def _spread(ax: Axes, statistics: Sequence[LayerStatistics]) -> None:
    x = np.arange(len(statistics))
    names = ("mean", "std", "minimum", "maximum")
    mean, std, low, high = (np.array([getattr(row, name) for row in statistics]) for name in names)
    ax.grid(visible=True, axis="y")
    ax.vlines(x, low, high, color=colors().sky, linewidth=1.5, label="minimum to maximum")
    broad = float(np.clip(100 / len(x), 2.5, 5))  # narrower than the gaps between many layers
    ax.vlines(x, mean - std, mean + std, color=colors().blue, linewidth=broad, alpha=0.75, label="mean ± std")
    ax.plot(x, mean, "o", color=colors().page, markersize=3.5, markeredgecolor=colors().blue)
    ax.margins(y=0.1)
    ax.set_title("values")
    largest = max(float(np.abs(low).max()), float(np.abs(high).max()))
    if 0 < FAR * float(np.median(std)) < largest or are_far_apart(std):
        linear = 10.0 ** round(math.log10(max(float(std.min()), largest / 1e6)))
        ax.set_yscale("symlog", linthresh=linear)
        ax.set_title(f"values\n(log scale beyond ±{linear:g})")


def _bars(ax: Axes, heights: Array, color: str, *, first: int, title: str) -> None:
    """Draw one bar for each layer from the `first` on."""
    ax.grid(visible=True, axis="y")
    shown = heights[first:]
    bars = ax.bar(np.arange(first, len(heights)), shown, color=color, width=0.55)
    if are_far_apart(shown):
        log_scale(ax)
        title += "\n(log scale)"
    ax.margins(y=0.15)
    ax.set_title(title)
    if len(heights) <= WRITTEN_UP_TO:
        ax.bar_label(bars, fmt="%.2f" if shown.max(initial=0) < 100 else "%.0f", padding=3, fontsize=8)
