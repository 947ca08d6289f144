"""Attention weights as heat maps: a row for each query, a column for each key."""

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure

from ..core.arrays import Array
from ..core.errors import ShapeError
from . import charts, style
from .labels import visible_all, weight_text
from .style import colors, styled

WRITTEN_UP_TO = 12
"""Weights are written into the cells of maps with at most this many tokens on each side; colors are linear there."""
MOST_HEADS = 16
"""Heads in one figure, at most."""
MOST_DOTS = 64
"""Cells on a side of the maps of a grid; of longer sequences, a cell is the largest weight of several tokens."""


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
    shown, T, S = min(len(weights), MOST_HEADS), len(queries), len(keys)
    rows, columns = visible_all(queries, 10), visible_all(keys, 10)
    side = float(np.clip(0.36 * max(T, S), 1.5, 4.3))
    cell = side * max(S / max(T, S), 0.35) / S, side * max(T / max(T, S), 0.35) / T
    figure, axes, inches = charts.map_panels(shown, (T, S), cell, names=rows, below=columns)
    # Elsewhere, the figure has the shape of its maps; a fixed one would cut off labels below maps that it moves.
    aspect = "equal" if figure.get_figwidth() == charts.NARROWEST and 0.4 <= T / S <= 2.5 else "auto"
    masked = _masked(weights, allowed)[:shown]
    scale, ramp = _scale(masked), style.weight_colors()
    for name, ax, values in zip(names, axes, masked, strict=False):
        texts = None
        if max(T, S) <= WRITTEN_UP_TO:
            texts = [["" if np.ma.is_masked(weight) else weight_text(weight) for weight in row] for row in values]
        image = charts.heat_map(ax, values, ramp, scale, texts=texts, inches=inches, aspect=aspect)
        # A thin line around the map, since weights near zero have the color of the page.
        ax.spines[:].set(visible=True, color=colors().never)
        ax.set_title(fill(name, max(int(inches[0] * 15), 8)), fontsize=9, pad=3)
        style.token_ticks(ax.xaxis, columns, room=0.92 * inches[0])
        style.token_ticks(ax.yaxis, rows, room=0.92 * inches[1])
    _label_outer(axes)
    _color_bar(figure, axes, image, float(masked.data.max()))
    more = f" ({names[0]} to {names[shown - 1]} of {len(weights)})" if shown < len(weights) else ""
    words = f"heat maps of the attention weights of {shown} heads, {T} queries by {S} keys"
    return style.titled(figure, title + more, f"{words}, colors from 0 to {scale.vmax:.2g}.")


@styled
def attention_grid(weights: Array, *, allowed: Array | None = None, title: str = "All layers and heads") -> Figure:
    """Draw all layers and heads of weights (L, H, T, S) as small maps: a row for each layer, a column for each head.

    Models with more layers than heads get a column for each layer, so that the figure is wider than high.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if weights.ndim != 4 or not weights.size:
        raise ShapeError(f"the weights have shape {weights.shape}", hint="pass those of all layers, (L, H, T, S)")
    is_deep = weights.shape[0] > weights.shape[1]
    masked = _masked(weights, allowed)
    pooled = _pooled(masked.swapaxes(0, 1) if is_deep else masked)
    rows, columns, T, S = pooled.shape
    flat = float(np.clip(weights.shape[2] / weights.shape[3], 0.35, 1.5))
    side = min(charts.PAGE[0] / columns, charts.PAGE[1] / (rows * flat), 1.6)
    figure, (ax,), _ = charts.map_panels(1, (rows, columns), (side, side * flat))
    # All maps are one image, which takes a moment even for thousands of heads.
    mosaic = pooled.transpose(0, 2, 1, 3).reshape(rows * T, columns * S)
    extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
    image = charts.heat_map(ax, mosaic, style.weight_colors(), _scale(masked), extent=extent)
    ax.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, color=colors().edge, linewidth=1.2)
    ax.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, color=colors().edge, linewidth=1.2)
    style.bare(ax, *(("layer", "head") if is_deep else ("head", "layer")))
    style.whole_ticks(ax.xaxis, ax.yaxis)
    _color_bar(figure, ax, image, float(weights.max()))
    L, H, *sizes = weights.shape
    step = math.ceil(max(sizes) / MOST_DOTS)
    more = f" A cell is the largest weight of {step} tokens." if step > 1 else ""
    words = f"{L} layers by {H} heads of attention weights as heat maps, {sizes[0]} by {sizes[1]} tokens.{more}"
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


def _label_outer(axes: Sequence[Any]) -> None:
    """Label the maps in the first column, and those with no map below: all maps have the same tokens."""
    columns = axes[0].get_gridspec().ncols
    for number, ax in enumerate(axes):
        is_first, is_last = number % columns == 0, number + columns >= len(axes)
        ax.tick_params(labelleft=is_first, labelbottom=is_last)
        ax.set_ylabel("query (looks)" if is_first else "", fontsize=9, color=colors().quiet)
        ax.set_xlabel("key (is looked at)" if is_last else "", fontsize=9, color=colors().quiet)


def _masked(weights: Array, allowed: Array | None) -> Any:
    hidden = False if allowed is None else np.broadcast_to(~np.asarray(allowed), np.shape(weights))
    return np.ma.masked_array(np.asarray(weights, dtype=np.float64), mask=hidden)


def _pooled(weights: Any) -> Any:
    """Return the largest weight of every few tokens, where maps (…, T, S) are longer than can be seen."""
    filled, hidden = weights.filled(0.0), np.ma.getmaskarray(weights)
    for axis in (-2, -1):
        size = weights.shape[axis]
        starts = np.arange(0, size, math.ceil(size / MOST_DOTS))
        filled = np.maximum.reduceat(filled, starts, axis=axis)
        hidden = np.logical_and.reduceat(hidden, starts, axis=axis)
    return np.ma.masked_array(filled, mask=hidden)


def _scale(masked: Any) -> Normalize:
    """Return the color scale that all maps of a figure share: up to the largest weight of a query with a choice.

    In long maps most weights are small, so there the color grows as √weight. The scale never ends so early that even
    attention has more than half of the color, which would look like contrast.
    """
    visible = (~np.ma.getmaskarray(masked)).sum(axis=-1)
    chooses = visible > 1
    largest = float((masked.data[chooses] if chooses.any() else masked.data).max())
    even = 1 / float(visible[chooses].mean()) if chooses.any() else 1.0
    if max(masked.shape[-2:]) <= WRITTEN_UP_TO:
        return Normalize(0, min(1.0, max(largest, 2 * even)))
    return PowerNorm(0.5, 0, min(1.0, max(largest, 4 * even)))


def _color_bar(figure: Figure, axes: Any, image: Any, largest: float) -> None:
    """Explain the colors; the bar has a tip where weights of queries without a choice lie beyond it."""
    scale = image.norm
    how = ", color as √weight" if isinstance(scale, PowerNorm) else ""
    beyond = "max" if largest > 1.001 * float(scale.vmax or 1) else "neither"
    charts.color_bar(figure, axes, image, f"weight: 0 to {scale.vmax:.2g}{how}", extend=beyond)


def _check(weights: Array, queries: Sequence[str], keys: Sequence[str]) -> None:
    shape = np.shape(weights)
    if len(shape) != 3 or shape[1:] != (len(queries), len(keys)) or 0 in shape:
        fact = f"weights of shape {shape} do not fit {len(queries)} query labels and {len(keys)} key labels"
        raise ShapeError(fact, hint="pass weights (heads, queries, keys) with one label for each query and each key")
