"""Vectors of a model: how they change from layer to layer, and those of positions."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ..core.arrays import Array
from ..core.errors import LengthError, ShapeError
from ..interpret import MARKED_DISTANCES, LayerStatistics, Similarity
from . import charts, style
from .style import colors, styled

WRITTEN_UP_TO = 8
"""Values are written above the bars of at most this many layers."""


@styled
def layer_curves(statistics: Sequence[LayerStatistics], *, title: str = "Layer outputs") -> Figure:
    """Draw what leaves each layer: the range and spread of its values, their size, and what each block changed.

    Where a few values are far larger than the others, the scale is logarithmic, and the title of the panel says so.
    """
    if not statistics:
        raise LengthError("there are no layers to draw", hint="pass layer_statistics(run)")
    figure = style.new_figure(9.8, 3.9)
    values, size, change = figure.subplots(1, 3, width_ratios=[1.25, 1, 1])
    _spread(values, statistics)
    rms, moved = (np.array([getattr(row, name) for row in statistics]) for name in ("rms", "change"))
    _bars(size, rms, colors().green, first=0, title="size: rms of the values")
    _bars(change, moved, colors().orange, first=1, title="change: relative to the input")
    for ax, room in ((values, 3.0), (size, 2.3), (change, 2.3)):
        ax.grid(visible=True, axis="y")
        style.token_ticks(ax.xaxis, [row.name for row in statistics], room=room)
        ax.set_xlim(-0.6, len(statistics) - 0.4)
    figure.legend(*values.get_legend_handles_labels(), loc="outside lower left", ncols=2, borderaxespad=1.0)
    sizes = ", ".join(f"{row.name} {row.rms:.3g}" for row in statistics)
    words = f"mean, spread, range and relative change of each layer. Root mean squares: {sizes}."
    return style.titled(figure, title, words)


def _spread(ax: Axes, statistics: Sequence[LayerStatistics]) -> None:
    x = np.arange(len(statistics))
    names = ("mean", "std", "minimum", "maximum")
    mean, std, low, high = (np.array([getattr(row, name) for row in statistics]) for name in names)
    ax.vlines(x, low, high, color=colors().sky, linewidth=1.5, label="minimum to maximum")
    broad = float(np.clip(100 / len(x), 2.5, 5))  # narrower than the gaps between many layers
    ax.vlines(x, mean - std, mean + std, color=colors().blue, linewidth=broad, alpha=0.75, label="mean ± std")
    ax.plot(x, mean, "o", color=colors().page, markersize=3.5, markeredgecolor=colors().blue)
    ax.margins(y=0.1)
    ax.set_title("values")
    largest = max(float(np.abs(low).max()), float(np.abs(high).max()))
    if 0 < 30 * float(np.median(std)) < largest or style.are_far_apart(std):
        linear = 10.0 ** round(math.log10(max(float(std.min()), largest / 1e6)))
        ax.set_yscale("symlog", linthresh=linear)
        ax.set_title(f"values\n(log scale beyond ±{linear:g})")


def _bars(ax: Axes, heights: Array, color: str, *, first: int, title: str) -> None:
    """Draw one bar for each layer from the `first` on."""
    shown = heights[first:]
    texts = [f"{value:.2f}" if shown.max() < 100 else f"{value:.0f}" for value in shown]
    charts.bars(ax, shown, color, first=first, texts=texts if len(heights) <= WRITTEN_UP_TO else ())
    is_logarithmic = style.are_far_apart(shown)
    if is_logarithmic:
        style.log_scale(ax)
    ax.set_title(f"{title}\n(log scale)" if is_logarithmic else title)


@styled
def position_heat_map(table: Array, *, title: str = "Positional encoding") -> Figure:
    """Draw a table (N, D) of positional encodings: a row for each position, a column for each feature."""
    table = np.asarray(table, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        raise ShapeError(f"a table of positions has shape (N, D), got {table.shape}", hint="pass position_table(...)")
    figure = style.new_figure(7.2, float(np.clip(0.05 * len(table) + 2.2, 2.6, 6)))
    ax = figure.subplots()
    # A few outliers must not bleach the rest: the scale then ends at the 99.5th percentile.
    most, largest = float(np.quantile(np.abs(table), 0.995)), float(np.abs(table).max())
    limit = (largest if largest <= 1.2 * most else most) or 1.0
    norm = Normalize(-limit, limit)
    image = charts.heat_map(ax, table, style.signed_colors(), norm, interpolation="nearest")
    ax.spines[:].set_visible(False)
    ax.set(xlabel="feature", ylabel="position")
    style.whole_ticks(ax.xaxis, ax.yaxis)
    cut = float(np.mean(np.abs(table) > limit))
    words = f"value: ±{limit:.2g}" + (f" ({100 * cut:.1f} % beyond)" if cut else "")
    charts.color_bar(figure, ax, image, words, extend="both" if cut else "neither")
    sizes = f"{len(table)} positions by {table.shape[1]} features"
    return style.titled(figure, title, f"heat map of {sizes}, colors from −{limit:.2g} to {limit:.2g}.")


@styled
def similarity_curve(similarity: Similarity, *, title: str = "Similarity by distance") -> Figure:
    """Draw the cosine similarity of two positions against their distance, with the range over all pairs."""
    figure = style.new_figure(7.2, 3.8)
    ax = figure.subplots()
    ax.axhline(0, color=colors().quiet, linewidth=0.8)
    ax.fill_between(similarity.distance, similarity.low, similarity.high, color=colors().sky, alpha=0.3, linewidth=0)
    charts.curve(ax, similarity.distance, similarity.mean, colors().blue)
    values = similarity.at(MARKED_DISTANCES)
    ax.scatter([*values], [*values.values()], s=36, color=colors().vermilion, edgecolors=colors().page, zorder=3)
    # Beside the curve, because dots at 1 and 5 stand too close together for words between them.
    listed = [f"k = {k}: {round(value, 2) + 0.0:.2f}" for k, value in values.items()]  # + 0.0: never −0.00
    ax.text(1.02, 1, "\n".join(listed), transform=ax.transAxes, va="top", color=colors().vermilion, linespacing=1.7)
    ax.set(xlabel="distance k between two positions", ylabel="cosine similarity")
    ax.set_ylim(min(-0.05, float(np.min(similarity.low)) - 0.08), 1.15)
    ax.set_xlim(left=-0.02 * max(len(similarity.distance), 10))
    style.whole_ticks(ax.xaxis)
    words = ", ".join(f"{value:.3f} at distance {k}" for k, value in values.items())
    said = f"the mean cosine similarity of positional encodings is {words or '1 at distance 0'}."
    return style.titled(figure, title, said)
