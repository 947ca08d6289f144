"""Attention weights as heat maps: rows look, columns are looked at."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import Normalize, PowerNorm, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..arrays import Array
from ..errors import ShapeError
from .labels import visible_all, weight_text
from .style import DPI, color_bar, new_figure, panels, styled, titled, write_cell
from .theme import colors, weight_colors
from .ticks import number_ticks, token_ticks

WRITTEN_UP_TO = 12
"""Weights are written into the cells of maps with at most this many tokens on each side."""
READABLE = 0.185
"""The inches of the smallest cell that a weight is written into."""

MOST_HEADS = 16
"""Heads in one figure at most."""
MOST_DOTS = 64
"""Cells on a side of the maps of a grid; of longer sequences, the largest weight of several tokens is shown."""
FEWEST_DOTS = 32
"""Dots on a side of the maps of a grid, at least."""

WIDE, HIGH = 9.6, 5.9
"""The inches that all maps of a figure have together, so that they fit on a page and on a screen."""


@styled
def attention_heads(
    weights: Array,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    allowed: Array | None = None,
    first: int = 1,
    title: str = "Attention",
) -> Figure:
    """Draw one layer: a heat map for each head of weights (H, T, S).

    keys      labels of the tokens that are looked at; None: those of the queries
    allowed   (T, S) False where a mask forbids to look, drawn gray
    first     what the first head is called
    """
    keys = queries if keys is None else keys
    _check(weights, queries, keys)
    shown = min(len(weights), MOST_HEADS)
    layout = _layout(shown, len(queries), len(keys))
    figure = new_figure(max(layout.columns * layout.width + 1.7, 4.2), layout.rows * (layout.height + 0.3) + 1.2)
    axes = panels(figure, shown, layout.columns)
    scale = _scale(weights[:shown], allowed)
    for head, ax in enumerate(axes):
        last = _map(ax, weights[head], queries, keys, allowed, scale, layout)
        ax.set_title(f"head {first + head}", fontsize=9, pad=3)
        _only_outer_labels(ax, head, shown, layout.columns)
    _frame(figure, axes, last, float(np.max(weights[:shown])))
    more = f" (heads {first} to {first + shown - 1} of {len(weights)})" if shown < len(weights) else ""
    sizes = f"{len(queries)} queries in rows, {len(keys)} keys in columns"
    words = f"heat maps of the attention weights of {shown} heads{more}, {sizes}, colors from 0 to {scale.vmax:.2g}."
    return titled(figure, title + more, words)


@styled
def attention_grid(weights: Array, *, allowed: Array | None = None, title: str = "All layers and heads") -> Figure:
    """Draw all layers and heads of weights (L, H, T, S) as small maps: a row for each layer, a column for each head.

    In models with more layers than heads, it is a column for each layer, so that the figure is wider than high.
    """
    L, H, T, S = np.shape(weights)
    is_deep = L > H
    columns, rows = (L, H) if is_deep else (H, L)
    side = min(WIDE / columns, HIGH / rows, 1.6)
    figure = new_figure(max(columns * side + 1.9, 4.6), max(rows * side * _flatness(T, S) + 1.2, 2.2))
    ax = figure.subplots()
    scale = _scale(weights, allowed)
    # All maps as one image, which takes a moment also for thousands of heads.
    dots, inner = _mosaic(weights, allowed, scale, is_deep=is_deep)
    # Cells with sharp edges, which also take less room in a file; where there are more dots than can be seen, a blend.
    sharp = dots.shape[0] <= DPI * rows * side * _flatness(T, S) and dots.shape[1] <= DPI * columns * side
    how = "nearest" if sharp else "auto"
    ax.imshow(dots, extent=(-0.5, columns - 0.5, rows - 0.5, -0.5), aspect="auto", interpolation=how)
    corners = ((column - inner[0] / 2, row - inner[1] / 2) for row, column in np.ndindex(rows, columns))
    frames = [Rectangle(corner, *inner) for corner in corners]
    ax.add_collection(PatchCollection(frames, facecolor="none", edgecolor=colors().never, linewidth=0.8))
    _grid_labels(ax, ("layer", "head") if is_deep else ("head", "layer"), columns, rows, side)
    _color_bar(figure, ax, ScalarMappable(scale, weight_colors()), scale, float(np.max(weights)))
    pooled = f" A dot is the largest weight of {_step(max(T, S))} tokens." if max(T, S) > MOST_DOTS else ""
    words = f"{L} layers by {H} heads of attention weights as small heat maps, {T} by {S} tokens.{pooled}"
    return titled(figure, title, words)


@styled
def full_against_causal(
    full: Array, causal: Array, labels: Sequence[str], *, title: str = "Full and causal attention"
) -> Figure:
    """Draw the same queries and keys twice: weights (T, T) with every token visible, and with only those before."""
    for weights in (full, causal):
        _check(np.asarray(weights)[None], labels, labels)
    layout = _layout(2, len(labels), len(labels))
    layout = layout._replace(width=max(layout.width, 2.7), height=max(layout.height, 2.7))
    figure = new_figure(2 * layout.width + 1.7, layout.height + 1.5)
    axes = panels(figure, 2, 2)
    past = np.tri(len(labels), dtype=bool)
    scale = _scale(np.stack((full, causal)), past)
    _map(axes[0], full, labels, labels, None, scale, layout)
    last = _map(axes[1], causal, labels, labels, past, scale, layout)
    _only_outer_labels(axes[1], 1, 2, 2)
    axes[0].set_title("full: every token sees every other", fontsize=9)
    axes[1].set_title("causal: no token sees the future", fontsize=9)
    _frame(figure, axes, last, float(max(np.max(full), np.max(causal))))
    words = f"two heat maps of the attention weights among {len(labels)} tokens, from the same queries and keys. "
    words += "On the right the cells above the diagonal are masked, and the others grow so that rows still sum to one."
    return titled(figure, title, words)


# --- where maps stand ------------------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """Maps of some inches in rows and columns."""

    columns: int
    rows: int
    width: float
    height: float


def _layout(count: int, T: int, S: int) -> _Layout:
    """Return the columns that make maps largest, where all of them fit on a page and on a screen."""
    side = float(np.clip(0.36 * max(T, S), 1.5, 4.3))
    width, height = side * max(S / max(T, S), 0.35), side * max(T / max(T, S), 0.35)
    best = _Layout(0, 0, 0.0, 0.0)
    for columns in range(1, count + 1):
        rows = math.ceil(count / columns)
        size = min(1.0, WIDE / (columns * (width + 0.1)), (HIGH - 0.3 * rows) / (rows * height))
        # Of columns that allow the same size, the most: figures are wider than high.
        if width * size >= best.width and math.ceil(count / rows) == columns:
            best = _Layout(columns, rows, width * size, height * size)
    return best


def _flatness(T: int, S: int) -> float:
    """Return the height of a small map for its width."""
    return float(np.clip(T / S, 0.35, 1.5))


def _only_outer_labels(ax: Axes, number: int, count: int, columns: int) -> None:
    """Leave labels to the maps in the first column, and to those with no map below: all maps have the same tokens."""
    if number % columns:
        ax.tick_params(axis="y", labelleft=False)
    if number + columns < count:
        ax.tick_params(axis="x", labelbottom=False)


def _grid_labels(ax: Axes, names: tuple[str, str], columns: int, rows: int, side: float) -> None:
    ax.set_xlim(-0.5, columns - 0.5)
    ax.set_ylim(rows - 0.5, -0.5)
    ax.spines[:].set_visible(False)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    number_ticks(ax.xaxis, [str(number + 1) for number in range(columns)], room=0.9 * columns * side)
    number_ticks(ax.yaxis, [str(number + 1) for number in range(rows)], room=0.9 * rows * side)
    ax.tick_params(length=0)
    ax.set_xlabel(names[0], color=colors().quiet)
    ax.set_ylabel(names[1], color=colors().quiet)


# --- one map ---------------------------------------------------------------------------------------------------------


def _map(
    ax: Axes,
    weights: Array,
    queries: Sequence[str],
    keys: Sequence[str],
    allowed: Array | None,
    scale: Normalize,
    layout: _Layout,
) -> Any:
    """Draw one heat map."""
    shown = _masked(weights, allowed)
    ramp = weight_colors()
    square = 0.4 <= shown.shape[0] / shown.shape[1] <= 2.5
    image = ax.imshow(shown, cmap=ramp, norm=scale, aspect="equal" if square else "auto")
    token_ticks(ax.xaxis, visible_all(keys, 10), room=0.92 * layout.width)
    token_ticks(ax.yaxis, visible_all(queries, 10), room=0.92 * layout.height)
    # A thin line around the map, since weights near zero have the color of the page.
    ax.spines[:].set(visible=True, color=colors().never)
    cell = min(layout.width / shown.shape[1], layout.height / shown.shape[0])
    if max(shown.shape) > WRITTEN_UP_TO or cell < READABLE:
        return image
    size = float(np.clip(cell * 72 * 0.36, 4.6, 9))
    for (t, s), weight in np.ndenumerate(shown):
        if not np.ma.is_masked(shown[t, s]):
            write_cell(ax, (s, t), weight_text(weight), size=size, background=ramp(scale(weight)))
    return image


def _masked(weights: Array, allowed: Array | None) -> Any:
    weights = np.asarray(weights, dtype=np.float64)
    return np.ma.masked_array(weights, mask=False if allowed is None else ~np.asarray(allowed))


def _pooled(weights: Any) -> Any:
    """Return the largest weight of every few tokens, where a map is longer than can be seen."""
    filled, hidden = weights.filled(0.0), np.ma.getmaskarray(weights)
    for axis, length in enumerate(weights.shape):
        starts = np.arange(0, length, _step(length))
        filled = np.maximum.reduceat(filled, starts, axis=axis)
        hidden = np.logical_and.reduceat(hidden, starts, axis=axis)
    return np.ma.masked_array(filled, mask=hidden)


def _mosaic(
    weights: Array, allowed: Array | None, scale: Normalize, *, is_deep: bool
) -> tuple[Array, tuple[float, float]]:
    """Return all maps as one image (height, width, 4), and the share of its place that a map has (width, height).

    Every map has a line of dots in the color of the page around it.
    """
    L, H = weights.shape[:2]
    tiles = {at: weight_colors()(scale(_pooled(_masked(weights[at], allowed)))) for at in np.ndindex(L, H)}
    t, s = tiles[0, 0].shape[:2]
    # Small maps get several dots for each cell, so that the line between maps is thin.
    t_dots, s_dots = math.ceil(FEWEST_DOTS / t), math.ceil(FEWEST_DOTS / s)
    height, width = t * t_dots + 2, s * s_dots + 2
    rows, columns = (H, L) if is_deep else (L, H)
    image = np.empty((rows, height, columns, width, 4))
    image[:] = to_rgba(colors().page)
    for (layer, head), tile in tiles.items():
        row, column = (head, layer) if is_deep else (layer, head)
        image[row, 1:-1, column, 1:-1] = tile.repeat(t_dots, axis=0).repeat(s_dots, axis=1)
    return image.reshape(rows * height, columns * width, 4), (1 - 2 / width, 1 - 2 / height)


def _step(length: int) -> int:
    return math.ceil(length / MOST_DOTS)


def _scale(weights: Array, allowed: Array | None) -> Normalize:
    """Return the scale of colors that all maps of a figure share: up to the largest weight of a query with a choice.

    In long maps most weights are small, so there the color rises faster for them: as √weight. The scale does not end
    so early that even attention has more than half of the color, or it would look like contrast.
    """
    weights = np.asarray(weights, dtype=np.float64)
    T, S = weights.shape[-2:]
    seen = np.full(T, S) if allowed is None else np.asarray(allowed).sum(axis=-1)
    chooses = seen > 1
    largest = float((weights[..., chooses, :] if chooses.any() else weights).max())
    even = 1 / float(seen[chooses].mean()) if chooses.any() else 1.0
    if max(T, S) <= WRITTEN_UP_TO:
        return Normalize(0, min(1.0, max(largest, 2 * even)))
    return PowerNorm(0.5, 0, min(1.0, max(largest, 4 * even)))


def _frame(figure: Figure, axes: list[Axes], image: Any, largest: float) -> None:
    _color_bar(figure, axes, image, image.norm, largest)
    figure.supxlabel("looked at (key)", fontsize=9, color=colors().quiet)
    figure.supylabel("looking (query)", fontsize=9, color=colors().quiet)


def _color_bar(figure: Figure, axes: Any, image: Any, scale: Normalize, largest: float) -> None:
    """Show what colors mean; the bar has a tip where weights of queries without a choice lie beyond it."""
    how = ", color as √weight" if isinstance(scale, PowerNorm) else ""
    beyond = "max" if largest > 1.001 * float(scale.vmax or 1) else "neither"
    color_bar(figure, axes, image, f"weight: 0 to {scale.vmax:.2g}{how}", extend=beyond)


def _check(weights: Array, queries: Sequence[str], keys: Sequence[str]) -> None:
    shape = np.shape(weights)
    if len(shape) != 3 or shape[1:] != (len(queries), len(keys)) or 0 in shape:
        fact = f"weights of shape {shape} do not fit {len(queries)} query labels and {len(keys)} key labels"
        raise ShapeError(fact, hint="pass weights (heads, queries, keys) with one label for each query and each key")
