"""Positional encodings: the table itself, and how alike its rows are."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from ..arrays import Array
from ..errors import ShapeError
from ..interpret import MARKED_DISTANCES, Similarity
from .style import color_bar, new_figure, styled, titled
from .theme import colors, signed_colors


@styled
def position_heat_map(table: Array, *, title: str = "Positional encoding") -> Figure:
    """Draw a table (N, D) of positional encodings: a row for each position, a column for each feature."""
    table = np.asarray(table, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        raise ShapeError(f"a table of positions has shape (N, D), got {table.shape}", hint="pass position_table(...)")
    figure = new_figure(7.2, float(np.clip(0.05 * len(table) + 2.2, 2.6, 6)))
    ax = figure.subplots()
    # A few outliers must not bleach the rest: the scale then ends at the 99.5th percentile.
    most, largest = float(np.quantile(np.abs(table), 0.995)), float(np.abs(table).max())
    limit = (largest if largest <= 1.2 * most else most) or 1.0
    image = ax.imshow(table, cmap=signed_colors(), vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
    ax.spines[:].set_visible(False)
    ax.set_xlabel("feature")
    ax.set_ylabel("position")
    ax.locator_params(integer=True)
    cut = float(np.mean(np.abs(table) > limit))
    words = f"value: ±{limit:.2g}" + (f" ({100 * cut:.1f} % beyond)" if cut else "")
    color_bar(figure, ax, image, words, extend="both" if cut else "neither")
    sizes = f"{len(table)} positions by {table.shape[1]} features"
    return titled(figure, title, f"heat map of {sizes}, colors from −{limit:.2g} to {limit:.2g}.")


@styled
def similarity_curve(
    similarity: Similarity, *, marked: Sequence[int] = MARKED_DISTANCES, title: str = "Similarity by distance"
) -> Figure:
    """Draw the cosine similarity of two positions against their distance, with the range over all pairs."""
    figure = new_figure(7.2, 3.8)
    ax = figure.subplots()
    ax.grid(visible=True)
    ax.axhline(0, color=colors().quiet, linewidth=0.8)
    ax.fill_between(similarity.distance, similarity.low, similarity.high, color=colors().sky, alpha=0.3, linewidth=0)
    ax.plot(similarity.distance, similarity.mean, color=colors().blue, marker="o" if len(similarity.mean) < 2 else None)
    values = similarity.at(marked)
    ax.scatter([*values], [*values.values()], s=36, color=colors().vermilion, edgecolors=colors().page, zorder=3)
    # Beside the curve, because dots at 1 and 5 stand too close together for words between them.
    listed = [f"k = {k}: {round(value, 2) + 0.0:.2f}" for k, value in values.items()]  # + 0.0: never −0.00
    ax.text(1.02, 1, "\n".join(listed), transform=ax.transAxes, va="top", color=colors().vermilion, linespacing=1.7)
    ax.set_xlabel("distance k between two positions")
    ax.set_ylabel("cosine similarity")
    low = float(np.min(similarity.low))
    ax.set_ylim(min(-0.05, low - 0.08), 1.15)
    ax.set_xlim(left=-0.02 * max(len(similarity.distance), 10))
    ax.locator_params("x", integer=True)
    words = ", ".join(f"{value:.3f} at distance {k}" for k, value in values.items())
    return titled(figure, title, f"the mean cosine similarity of positional encodings is {words or '1 at distance 0'}.")
