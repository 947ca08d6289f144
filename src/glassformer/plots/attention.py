"""Attention weights as heat maps: rows look, columns are looked at."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..arrays import Array
from ..errors import ShapeError
from .labels import visible_all
from .style import NEVER, QUIET, color_bar, new_figure, panels, styled, titled, token_ticks, weight_colors, write_cell

WRITTEN_UP_TO = 12
"""Weights are written into the cells of maps with at most this many tokens on each side."""

MOST_HEADS = 16


@styled
def attention_heads(
    weights: Array,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    allowed: Array | None = None,
    title: str = "Attention",
) -> Figure:
    """Draw one layer: a heat map for each head of weights (H, T, S).

    keys      labels of the tokens that are looked at; None: those of the queries
    allowed   (T, S) False where a mask forbids to look, drawn gray
    """
    keys = queries if keys is None else keys
    _check(weights, queries, keys)
    shown = min(len(weights), MOST_HEADS)
    cell_width, cell_height = _panel_size(len(queries), len(keys))
    columns = _columns(shown, cell_width)
    rows = math.ceil(shown / columns)
    figure = new_figure(max(columns * cell_width + 0.9, 4.2), rows * cell_height + 0.8)
    axes = panels(figure, shown, columns)
    scale = _scale(weights[:shown], allowed)
    for head, ax in enumerate(axes):
        last = _map(ax, weights[head], queries, keys, allowed, scale, room=(cell_width - 0.9, cell_height - 0.9))
        ax.set_title(f"head {head + 1}")
    _frame(figure, axes, last)
    more = f" (the first {shown} of {len(weights)} heads)" if shown < len(weights) else ""
    sizes = f"{len(queries)} queries in rows, {len(keys)} keys in columns"
    return titled(figure, title, f"heat maps of the attention weights of {shown} heads{more}, {sizes}.")


@styled
def attention_grid(weights: Array, *, allowed: Array | None = None, title: str = "All layers and heads") -> Figure:
    """Draw all layers and heads of weights (L, H, T, S) as small maps: a row for each layer, a column for each head."""
    L, H, T, S = np.shape(weights)
    side = float(np.clip(11 / H, 0.55, 1.9))
    height = side * float(np.clip(T / S, 0.35, 2.5))
    figure = new_figure(max(H * side + 1.4, 4.2), max(L * (height + 0.06) + 1.0, 2.2))
    axes = panels(figure, L * H, H)
    scale = _scale(weights, allowed)
    for number, ax in enumerate(axes):
        layer, head = divmod(number, H)
        last = ax.imshow(_masked(weights[layer, head], allowed), cmap=weight_colors(), norm=scale, aspect="auto")
        ax.set_xticks([])
        ax.set_yticks([])
        _edge(ax)
        if layer == 0:
            ax.set_title(f"{head + 1}" if H > 8 else f"head {head + 1}", fontsize=8.5)
        if head == 0:
            ax.set_ylabel(f"layer {layer + 1}", fontsize=8.5, rotation=0, ha="right", va="center")
    _color_bar(figure, axes, last)
    words = f"{L} layers by {H} heads of attention weights as small heat maps, {T} by {S} tokens."
    return titled(figure, title, words)


@styled
def full_against_causal(
    full: Array, causal: Array, labels: Sequence[str], *, title: str = "Full and causal attention"
) -> Figure:
    """Draw the same queries and keys twice: weights (T, T) with every token visible, and with only those before."""
    for weights in (full, causal):
        _check(np.asarray(weights)[None], labels, labels)
    width, height = _panel_size(len(labels), len(labels))
    width, height = max(width, 3.6), max(height, 3.6)
    figure = new_figure(2 * width + 0.9, height + 1.0)
    axes = panels(figure, 2, 2)
    room = (width - 0.9, height - 0.9)
    past = np.tri(len(labels), dtype=bool)
    scale = _scale(np.stack((full, causal)), past)
    _map(axes[0], full, labels, labels, None, scale, room=room)
    last = _map(axes[1], causal, labels, labels, past, scale, room=room)
    axes[0].set_title("full: every token sees every other")
    axes[1].set_title("causal: no token sees the future")
    _frame(figure, axes, last)
    words = f"two heat maps of the attention weights among {len(labels)} tokens, from the same queries and keys. "
    words += "On the right the cells above the diagonal are masked, and the others grow so that rows still sum to one."
    return titled(figure, title, words)


def _map(
    ax: Axes,
    weights: Array,
    queries: Sequence[str],
    keys: Sequence[str],
    allowed: Array | None,
    scale: Normalize,
    *,
    room: tuple[float, float],
) -> Any:
    """Draw one heat map into axes that are about `room` inches wide and high."""
    shown = _masked(weights, allowed)
    colors = weight_colors()
    image = ax.imshow(shown, cmap=colors, norm=scale, aspect="equal" if _square(*shown.shape) else "auto")
    token_ticks(ax.xaxis, visible_all(keys), room=room[0])
    token_ticks(ax.yaxis, visible_all(queries), room=room[1])
    _edge(ax)
    if max(shown.shape) > WRITTEN_UP_TO:
        return image
    size = float(np.clip(min(room[0] / shown.shape[1], room[1] / shown.shape[0]) * 72 * 0.36, 4.8, 9))
    for (t, s), weight in np.ndenumerate(shown):
        if not np.ma.is_masked(shown[t, s]):
            write_cell(ax, (s, t), _digits(weight), size=size, background=colors(scale(weight)))
    return image


def _digits(weight: float) -> str:
    """Return two decimals without the leading zero, which every weight below one has."""
    text = f"{weight:.2f}"
    return text if text.startswith("1") else text[1:]


def _masked(weights: Array, allowed: Array | None) -> Any:
    weights = np.asarray(weights, dtype=np.float64)
    return np.ma.masked_array(weights, mask=False if allowed is None else ~np.asarray(allowed))


def _scale(weights: Array, allowed: Array | None) -> Normalize:
    """Return the scale of colors that all maps of a figure share: up to the largest weight of a query with a choice.

    It does not end so early that nearly even attention looks like contrast. In long maps most weights are small, so
    there the color rises faster for them: as weight^0.65.
    """
    weights = np.asarray(weights, dtype=np.float64)
    chooses = np.ones(weights.shape[-2], dtype=bool) if allowed is None else np.asarray(allowed).sum(axis=-1) > 1
    largest = float((weights[..., chooses, :] if chooses.any() else weights).max())
    if max(weights.shape[-2:]) <= WRITTEN_UP_TO:
        return Normalize(0, max(largest, 0.5))
    return PowerNorm(0.65, 0, max(largest, 0.1))


def _frame(figure: Figure, axes: list[Axes], image: Any) -> None:
    _color_bar(figure, axes, image)
    figure.supxlabel("looked at (key)", fontsize=9, color=QUIET)
    figure.supylabel("looking (query)", fontsize=9, color=QUIET)


def _color_bar(figure: Figure, axes: list[Axes], image: Any) -> None:
    color_bar(figure, axes, image, "weight", shrink=0.85, ticks=MaxNLocator(5))


def _edge(ax: Axes) -> None:
    # A thin line around the map, since weights near zero are as white as the page.
    ax.spines[:].set(visible=True, color=NEVER)


def _square(T: int, S: int) -> bool:
    """Tell whether cells may be squares without a map so flat, or so slim, that it is hard to see."""
    return 0.4 <= T / S <= 2.5


def _columns(count: int, width: float) -> int:
    """Return how many panels of some inches stand side by side: what a page holds, in rows as even as they can be."""
    most = max(2, min(4, int(11 / width)))
    rows = math.ceil(count / most)
    return max(math.ceil(count / rows), min(count, 2))


def _panel_size(T: int, S: int) -> tuple[float, float]:
    """Return the inches of one map with its labels: larger for more tokens, within what a page can hold."""
    side = float(np.clip(0.36 * max(T, S), 1.5, 4.3))
    cell = side / max(T, S)
    width, height = (cell * S, cell * T) if _square(T, S) else (max(cell * S, 1.0), max(cell * T, 1.0))
    return width + 0.9, height + 0.9


def _check(weights: Array, queries: Sequence[str], keys: Sequence[str]) -> None:
    shape = np.shape(weights)
    if len(shape) != 3 or shape[1:] != (len(queries), len(keys)) or 0 in shape:
        fact = f"weights of shape {shape} do not fit {len(queries)} query labels and {len(keys)} key labels"
        raise ShapeError(fact, hint="pass weights (heads, queries, keys) with one label for each query and each key")
