"""How the vectors of a model grow and change from layer to layer."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..arrays import Array
from ..errors import LengthError
from ..interpret import LayerStatistics
from .style import BLUE, GREEN, ORANGE, QUIET, SKY, new_figure, styled, titled

WRITTEN_UP_TO = 8
"""Values are written above the bars of at most this many layers."""


@styled
def layer_curves(statistics: Sequence[LayerStatistics], *, title: str = "Layer outputs") -> Figure:
    """Draw what leaves each layer: the range and spread of its values, their size, and what each block changed."""
    if not statistics:
        raise LengthError("there are no layers to draw", hint="pass layer_statistics(trace)")
    names = [row.name for row in statistics]
    figure = new_figure(9.8, 3.6)
    values, size, change = figure.subplots(1, 3, width_ratios=[1.25, 1, 1])
    _spread(values, statistics)
    _bars(size, np.array([row.rms for row in statistics]), GREEN, first=0)
    _bars(change, np.array([row.change for row in statistics]), ORANGE, first=1)
    size.set_title("size: rms of the values")
    change.set_title("change: relative to the input")
    for ax in (values, size, change):
        _layer_ticks(ax, names)
    sizes = ", ".join(f"{row.name} {row.rms:.3g}" for row in statistics)
    words = f"mean, spread, range and relative change of each layer. Root mean squares: {sizes}."
    return titled(figure, title, words)


def _spread(ax: Axes, statistics: Sequence[LayerStatistics]) -> None:
    x = np.arange(len(statistics))
    names = ("mean", "std", "minimum", "maximum")
    mean, std, low, high = (np.array([getattr(row, name) for row in statistics]) for name in names)
    ax.grid(visible=True, axis="y")
    ax.vlines(x, low, high, color=SKY, linewidth=1.5, label="minimum to maximum")
    ax.vlines(x, mean - std, mean + std, color=BLUE, linewidth=5, alpha=0.75, label="mean ± std")
    ax.plot(x, mean, "o", color="white", markersize=3.5, markeredgecolor=BLUE)
    ax.margins(y=0.1)
    ax.set_title("values")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, fontsize=8.5, columnspacing=1)


def _bars(ax: Axes, heights: Array, color: str, *, first: int) -> None:
    """Draw one bar for each layer from the `first` on."""
    ax.grid(visible=True, axis="y")
    bars = ax.bar(np.arange(first, len(heights)), heights[first:], color=color, width=0.55)
    ax.set_ylim(0, 1.18 * max(float(heights.max()), 1e-9))
    if len(heights) <= WRITTEN_UP_TO:
        ax.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)


def _layer_ticks(ax: Axes, names: Sequence[str]) -> None:
    few = len(names) <= 3
    short = [name if few else name.replace("block ", "").replace("embedding", "emb.") for name in names]
    step = max(1, len(names) // 12)
    ax.set_xticks(range(0, len(names), step), short[::step])
    ax.set_xlim(-0.6, len(names) - 0.4)
    if not few:
        ax.set_xlabel("block", color=QUIET)
