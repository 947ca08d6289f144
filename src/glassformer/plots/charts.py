"""The charts that figures are made of: heat maps with their color bar, curves, and bars."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..core.arrays import Array
from . import style
from .style import LETTER, colors

PAGE = (9.6, 5.9)
"""Inches that the maps of a figure take at most, across and down."""
NARROWEST = 4.6
"""Inches of the width of a figure of maps, at least: its title needs room."""
MOST_TEXTS = 800
"""Texts are written into the cells of maps of at most this many cells, where they can be read."""
FEW = 20
"""Points are marked on curves of fewer than this many."""
MOST_BARS = 100
"""More bars are drawn as one area."""


# --- heat maps -------------------------------------------------------------------------------------------------------


def map_panels(
    count: int,
    shape: tuple[int, int],
    cell: tuple[float, float],
    *,
    names: Sequence[str] = (),
    below: Sequence[str] = (),
    page: tuple[float, float] = PAGE,
) -> tuple[Figure, list[Axes], tuple[float, float]]:
    """Return a figure of `count` maps side by side and below each other, its axes, and the inches of a map.

    shape   rows and columns of a map; cell: the inches of a cell, across and down, which shrink if maps fill the page
    names   labels of the rows, which take room on the left; below: those of the columns, upright where they are long
    """
    width = min(max(shape[1] * cell[0], 1.3), page[0])
    height = min(max(shape[0] * cell[1], 0.6), page[1] - 0.3)
    best = 0, 0, 0.0
    for columns in range(1, count + 1):
        rows = math.ceil(count / columns)
        scale = min(1.0, (page[0] + 0.1) / (columns * (width + 0.1)), (page[1] - 0.3 * rows) / (rows * height))
        # Of columns that allow the same size, the most: figures are wider than high.
        if scale >= best[2] and math.ceil(count / rows) == columns:
            best = columns, rows, scale
    columns, rows, scale = best
    width, height = width * scale, height * scale
    letters, longest = 0.075, max(map(len, below), default=1)
    left = 0.4 + letters * max(map(len, names), default=4)
    foot = letters * longest if letters * longest > width / shape[1] else 0.15
    figure = style.new_figure(
        max(columns * width + left + 1.0, NARROWEST), max(rows * (height + 0.3) + 1.0 + foot, 2.2)
    )
    return figure, style.panels(figure, count, columns), (width, height)


def heat_map(
    ax: Axes,
    values: Array,
    ramp: Colormap,
    norm: Normalize,
    *,
    texts: Any = None,
    inches: tuple[float, float] = (math.inf, math.inf),
    **image: Any,
) -> Any:
    """Draw a matrix as colors, and texts into its cells, in letters that fit into a map of so many inches."""
    drawn = ax.imshow(values, cmap=ramp, norm=norm, **{"aspect": "auto", **image})
    rows, columns = np.shape(values)
    texts = np.array([] if texts is None or rows * columns > MOST_TEXTS else texts, dtype=object)
    lengths = [max(map(len, text.split("\n"))) for text in texts.ravel()]
    width, size = 72 * inches[0] / columns / LETTER, min(0.36 * 72 * inches[1] / rows, 8.5)
    if size < 4.6 or width < 4.6 * max(lengths, default=0):
        return drawn
    for (at, text), length in zip(np.ndenumerate(texts), lengths, strict=True):
        if text:
            # The text never leaves its cell, so the layout need not measure it, which takes longer than to draw it.
            place: dict[str, Any] = {"ha": "center", "va": "center", "in_layout": False}
            letters, ink = min(size, 0.95 * width / length), _ink_on(ramp(norm(values[at])))
            ax.text(at[1], at[0], text, fontsize=letters, color=ink, **place)
    return drawn


def _ink_on(color: Sequence[float]) -> str:
    """Return the text color with the higher contrast on a background, as WCAG defines contrast."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return style.THEMES["light"].ink if luminance > 0.217 else "white"


def color_bar(figure: Figure, axes: Any, image: Any, label: str = "", **settings: Any) -> None:
    """Explain the colors of an image by a bar that stays short beside a tall figure."""
    height = figure.get_figheight()
    length = min(2.4, 0.8 * height)
    shape: dict[str, Any] = {"shrink": min(1.0, length / max(height - 1.0, 0.5)), "aspect": length / 0.11, "pad": 0.02}
    bar = figure.colorbar(image, ax=axes, ticks=MaxNLocator(5, steps=[1, 2, 5, 10]), **shape, **settings)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8)
    bar.set_label(textwrap.fill(label, max(18, int(12 * height))), fontsize=8.5, color=colors().quiet)


# --- curves and bars -------------------------------------------------------------------------------------------------


def curve(ax: Axes, x: Any, y: Any, color: str, label: str | None = None, *, dots: bool = False, **line: Any) -> None:
    """Draw a curve over a grid, with dots where its points are few or each was measured apart."""
    ax.grid(visible=True)
    if dots or len(y) < FEW:
        line = {"marker": "o", "markersize": 4, **line}
    ax.plot(x, y, color=color, label=label, **line)


def bars(
    ax: Axes,
    values: Array,
    color: Any,
    *,
    first: int = 0,
    ground: float = 0.0,
    texts: Sequence[str] = (),
    lying: bool = False,
) -> None:
    """Draw bars at `first`, `first` + 1, … from the `ground`, with texts at their ends; `lying` ones from the top."""
    x = np.arange(first, first + len(values))
    if len(values) > MOST_BARS and not lying:
        ax.stairs(values, np.append(x, x[-1] + 1) - 0.5, fill=True, baseline=ground, color=colors().blue)
        return
    drawn = (ax.barh if lying else ax.bar)(x, values - ground, 0.7, ground, color=color)
    (ax.set_xmargin if lying else ax.set_ymargin)(0.22 if lying else 0.15)  # where the texts stand
    if len(texts):
        ax.bar_label(drawn, texts, padding=4, fontsize=8.5)
    if lying:
        ax.set_ylim(x[-1] + 0.6, x[0] - 0.6)
