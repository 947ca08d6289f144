"""Attention weights as heat maps: a row for each query, a column for each key."""

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure

from ..core.arrays import Array
from ..core.errors import ShapeError
from . import style
from .labels import visible_all, weight_text
from .style import colors, styled

WRITTEN_UP_TO = 12
"""Weights are written into the cells of maps with at most this many tokens on each side."""
READABLE = 0.185
"""Inches of the smallest cell that a weight is written into."""
MOST_HEADS = 16
"""Heads in one figure, at most."""
MOST_DOTS = 64
"""Cells on a side of the maps of a grid; of longer sequences, a cell is the largest weight of several tokens."""
WIDE, HIGH = 9.6, 5.9
"""Inches that all maps of a figure take together."""
LETTERS = 15
"""Letters of a map's title in an inch: longer titles go on in a second line."""
QUERY, KEY = "query (looks)", "key (is looked at)"


@styled
def attention_heads(
    weights: Array,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    allowed: Array | None = None,
    names: Sequence[str] | None = None,
    first: int = 0,
    title: str = "Attention",
) -> Figure:
    """Draw one layer: a heat map for each head of weights (H, T, S), 16 at most.

    keys      labels of the keys; None: those of the queries
    allowed   (T, S) or (H, T, S) False where the mask forbids to look, drawn gray
    names     titles of the maps; None: head 0, head 1, …
    first     the number of the first head
    """
    keys = queries if keys is None else keys
    _check(weights, queries, keys)
    if names is not None and len(names) != len(weights):
        raise ShapeError(f"{len(names)} names for {len(weights)} heads", hint="pass one name for each head")
    names = [f"head {first + head}" for head in range(len(weights))] if names is None else names
    shown = min(len(weights), MOST_HEADS)
    columns, rows, width, height = _layout(shown, len(queries), len(keys))
    figure = style.new_figure(max(columns * width + 1.7, 4.2), rows * (height + 0.3) + 1.2)
    axes = style.panels(figure, shown, columns)
    scale = _scale(weights[:shown], allowed)
    masked = np.ma.masked_array(np.asarray(weights, dtype=np.float64), mask=_mask(np.shape(weights), allowed))
    for head, ax in enumerate(axes):
        image = _map(ax, masked[head], queries, keys, scale, (width, height))
        ax.set_title(fill(names[head], max(int(width * LETTERS), 8)), fontsize=9, pad=3)
        _label_outer(ax, head, shown, columns)
    _color_bar(figure, axes, image, scale, float(np.max(weights[:shown])))
    more = f" ({names[0]} to {names[shown - 1]} of {len(weights)})" if shown < len(weights) else ""
    words = f"heat maps of the attention weights of {shown} heads, {len(queries)} queries by {len(keys)} keys"
    return style.titled(figure, title + more, f"{words}, colors from 0 to {scale.vmax:.2g}.")


@styled
def attention_grid(weights: Array, *, allowed: Array | None = None, title: str = "All layers and heads") -> Figure:
    """Draw all layers and heads of weights (L, H, T, S) as small maps: a row for each layer, a column for each head.

    Models with more layers than heads get a column for each layer, so that the figure is wider than high.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 4 or not weights.size:
        raise ShapeError(f"the weights have shape {weights.shape}", hint="pass those of all layers, (L, H, T, S)")
    names, grid = ("head", "layer"), weights
    if weights.shape[0] > weights.shape[1]:
        names, grid = ("layer", "head"), weights.swapaxes(0, 1)
    rows, columns, T, S = grid.shape
    side = min(WIDE / columns, HIGH / rows, 1.6)
    flat = float(np.clip(T / S, 0.35, 1.5))
    figure, ax = style.one_panel(max(columns * side + 1.9, 4.6), max(rows * side * flat + 1.2, 2.2))
    scale = _scale(weights, allowed)
    # All maps are one image, which takes a moment even for thousands of heads.
    pooled = _pooled(np.ma.masked_array(grid, mask=_mask(grid.shape, allowed)))
    mosaic = pooled.transpose(0, 2, 1, 3).reshape(rows * pooled.shape[2], columns * pooled.shape[3])
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    image = ax.imshow(mosaic, cmap=style.weight_colors(), norm=scale, extent=extent, aspect="auto")
    ax.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, color=colors().edge, linewidth=1.2)
    ax.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, color=colors().edge, linewidth=1.2)
    style.bare(ax, *names)
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    style.whole_ticks(ax.xaxis, ax.yaxis)
    _color_bar(figure, ax, image, scale, float(np.max(weights)))
    step = _step(max(T, S))
    more = f" A cell is the largest weight of {step} tokens." if step > 1 else ""
    L, H = weights.shape[:2]
    words = f"{L} layers by {H} heads of attention weights as heat maps, {T} by {S} tokens.{more}"
    return style.titled(figure, title, words)


@styled
def full_against_causal(
    full: Array, causal: Array, labels: Sequence[str], *, title: str = "Full and causal attention"
) -> Figure:
    """Draw the same queries and keys twice: weights (T, T) with every token visible, and under the causal mask."""
    for weights in (full, causal):
        _check(np.asarray(weights)[None], labels, labels)
    past = np.tri(len(labels), dtype=bool)
    names = ["full: every token sees every other", "causal: no token sees the future"]
    allowed = np.stack((np.ones_like(past), past))
    return attention_heads(np.stack((full, causal)), labels, allowed=allowed, names=names, title=title)


def _layout(count: int, T: int, S: int) -> tuple[int, int, float, float]:
    """Return the columns that make maps largest, where all of them fit on a page; the rows; and the inches of a map."""
    side = float(np.clip(0.36 * max(T, S), 1.5, 4.3))
    width, height = side * max(S / max(T, S), 0.35), side * max(T / max(T, S), 0.35)
    best = 0, 0, 0.0, 0.0
    for columns in range(1, count + 1):
        rows = math.ceil(count / columns)
        size = min(1.0, WIDE / (columns * (width + 0.1)), (HIGH - 0.3 * rows) / (rows * height))
        # Of columns that allow the same size, the most: figures are wider than high.
        if width * size >= best[2] and math.ceil(count / rows) == columns:
            best = columns, rows, width * size, height * size
    return best


def _label_outer(ax: Axes, number: int, count: int, columns: int) -> None:
    """Label the maps in the first column, and those with no map below: all maps have the same tokens."""
    if number % columns:
        ax.tick_params(axis="y", labelleft=False)
    else:
        ax.set_ylabel(QUERY, fontsize=9, color=colors().quiet)
    if number + columns < count:
        ax.tick_params(axis="x", labelbottom=False)
    else:
        ax.set_xlabel(KEY, fontsize=9, color=colors().quiet)


def _map(
    ax: Axes, shown: Any, queries: Sequence[str], keys: Sequence[str], scale: Normalize, inches: tuple[float, float]
) -> Any:
    square = 0.4 <= shown.shape[0] / shown.shape[1] <= 2.5
    cell = min(inches[0] / shown.shape[1], inches[1] / shown.shape[0])
    texts = None
    if max(shown.shape) <= WRITTEN_UP_TO and cell >= READABLE:
        texts = [["" if np.ma.is_masked(weight) else weight_text(weight) for weight in row] for row in shown]
    size = float(np.clip(cell * 72 * 0.36, 4.6, 9))
    image = style.heat_map(ax, shown, style.weight_colors(), scale, texts=texts, size=size, square=square)
    style.token_ticks(ax.xaxis, visible_all(keys, 10), room=0.92 * inches[0])
    style.token_ticks(ax.yaxis, visible_all(queries, 10), room=0.92 * inches[1])
    # A thin line around the map, since weights near zero have the color of the page.
    ax.spines[:].set(visible=True, color=colors().never)
    return image


def _mask(shape: tuple[int, ...], allowed: Array | None) -> Array:
    return np.broadcast_to(False if allowed is None else ~np.asarray(allowed), shape)


def _step(length: int) -> int:
    return math.ceil(length / MOST_DOTS)


def _pooled(weights: Any) -> Any:
    """Return the largest weight of every few tokens, where maps (…, T, S) are longer than can be seen."""
    filled, hidden = weights.filled(0.0), np.ma.getmaskarray(weights)
    for axis in (-2, -1):
        starts = np.arange(0, weights.shape[axis], _step(weights.shape[axis]))
        filled = np.maximum.reduceat(filled, starts, axis=axis)
        hidden = np.logical_and.reduceat(hidden, starts, axis=axis)
    return np.ma.masked_array(filled, mask=hidden)


def _scale(weights: Array, allowed: Array | None) -> Normalize:
    """Return the color scale that all maps of a figure share: up to the largest weight of a query with a choice.

    In long maps most weights are small, so there the color grows as √weight. The scale never ends so early that even
    attention has more than half of the color, which would look like contrast.
    """
    weights = np.asarray(weights, dtype=np.float64)
    T, S = weights.shape[-2:]
    seen = (~_mask(weights.shape, allowed)).sum(axis=-1)
    chooses = seen > 1
    largest = float((weights[chooses] if chooses.any() else weights).max())
    even = 1 / float(seen[chooses].mean()) if chooses.any() else 1.0
    if max(T, S) <= WRITTEN_UP_TO:
        return Normalize(0, min(1.0, max(largest, 2 * even)))
    return PowerNorm(0.5, 0, min(1.0, max(largest, 4 * even)))


def _color_bar(figure: Figure, axes: Any, image: Any, scale: Normalize, largest: float) -> None:
    """Explain the colors; the bar has a tip where weights of queries without a choice lie beyond it."""
    how = ", color as √weight" if isinstance(scale, PowerNorm) else ""
    beyond = "max" if largest > 1.001 * float(scale.vmax or 1) else "neither"
    style.color_bar(figure, axes, image, f"weight: 0 to {scale.vmax:.2g}{how}", extend=beyond)


def _check(weights: Array, queries: Sequence[str], keys: Sequence[str]) -> None:
    shape = np.shape(weights)
    if len(shape) != 3 or shape[1:] != (len(queries), len(keys)) or 0 in shape:
        fact = f"weights of shape {shape} do not fit {len(queries)} query labels and {len(keys)} key labels"
        raise ShapeError(fact, hint="pass weights (heads, queries, keys) with one label for each query and each key")
