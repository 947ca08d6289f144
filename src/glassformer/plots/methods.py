"""What the methods of `interpret` found: the lens, parts that add up, patched places, kinds of heads."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..arrays import Array
from ..errors import ShapeError
from ..interpret import HeadScores, Lens, Patching
from . import style
from .labels import visible, visible_all, weight_text
from .style import styled
from .theme import colors, signed_colors, weight_colors

MOST_ROWS = 33
"""Of more points of the stream, only those behind blocks are drawn."""
MOST_POSITIONS = 24
WRITTEN = 400
"""Numbers are written into the cells of maps of at most this many cells."""


@styled
def lens_map(
    seen: Lens,
    inputs: Sequence[str],
    label: Callable[[int], str] = str,
    *,
    example: int = 0,
    title: str = "What each layer would say",
) -> Figure:
    """Write the likeliest token at every point of the stream, the last one on top, above every position that was read.

    `inputs` names the positions of the lens, or is one word for a classifier. The last 24 positions are shown.
    """
    chosen = [n for n, point in enumerate(seen.points) if " " not in point.label.removeprefix("block ")]
    chosen = list(range(len(seen.points))) if len(seen.points) <= MOST_ROWS else chosen
    ids, odds = (part[chosen, example].reshape(len(chosen), -1) for part in seen.top(1))
    if ids.shape[1] != len(inputs):
        raise ShapeError(f"{len(inputs)} words for {ids.shape[1]} positions", hint="name every position of the lens")
    first = max(0, len(inputs) - MOST_POSITIONS)
    ids, odds, names = ids[::-1, first:], odds[::-1, first:], visible_all(inputs[first:], 7)
    rows, columns = ids.shape
    width = max(0.52 * columns + 2.4, 4.6)
    figure = style.new_figure(width, 0.27 * rows + 1.5)
    ax = figure.subplots()
    ramp = weight_colors()
    image = ax.imshow(odds, cmap=ramp, vmin=0, vmax=1, aspect="auto")
    cell = 0.8 * 72 * (width - 2.0) / columns
    for (row, column), value in np.ndenumerate(odds):
        text = visible(label(int(ids[row, column])), max(7, int(cell / 5)))
        style.write_cell(
            ax, (column, row), text, size=style.fitting_size(text, cell, 7.5), background=ramp(float(value))
        )
    style.token_ticks(ax.xaxis, names, room=width - 2.2)
    ax.set_yticks(range(rows), [seen.points[n].label for n in reversed(chosen)])
    some = f" (the last {columns} of {len(inputs)})" if first else ""
    style.bare(ax, f"what was read{some}")
    style.color_bar(figure, ax, image, "probability")
    said = ", ".join(visible(label(int(i))) for i in ids[0])
    return style.titled(figure, title, f"the likeliest token at {rows} points of the stream. At the last: {said}.")


@styled
def signed_bars(names: Sequence[str], values: Array, *, top: int = 20, title: str, unit: str = "adds") -> Figure:
    """Draw the first `top` of some signed numbers as bars: positive ones in blue, negative ones in red."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or len(values) != len(names) or not len(names):
        raise ShapeError(f"{len(names)} names for values of shape {values.shape}", hint="pass one value for each name")
    shown, labels = values[:top], visible_all(names[:top], 40)
    figure = style.new_figure(7.0, 0.29 * len(shown) + 1.3)
    ax = figure.subplots()
    used = colors()
    bars = ax.barh(range(len(shown)), shown, color=[used.blue if v >= 0 else used.vermilion for v in shown], height=0.7)
    ax.bar_label(bars, fmt="{:+.3g}", padding=4, fontsize=8)
    ax.axvline(0, color=used.edge, linewidth=0.8)
    low, high = min(0.0, shown.min()), max(0.0, shown.max())
    room = (high - low) or 1.0
    ax.set_xlim(low - (0.22 if low < 0 else 0.02) * room, high + 0.2 * room)  # where the numbers stand
    ax.set_yticks(range(len(shown)), labels)
    ax.invert_yaxis()
    some = f" · the first {len(shown)} of {len(names):,}" if len(names) > len(shown) else ""
    style.bare(ax, f"{unit}{some}")
    listed = ", ".join(f"{name} {value:+.3g}" for name, value in zip(labels, shown, strict=True))
    return style.titled(figure, title, f"bars of {len(shown)} numbers: {listed}.")


@styled
def patching_map(found: Patching, labels: Sequence[str] | None = None, *, title: str = "Patched") -> Figure:
    """Draw what every patched value does to the answer, the last point on top; `labels` name positions."""
    effect = found.effect[::-1]
    rows, columns = effect.shape
    width = float(np.clip(0.45 * columns + 2.8, 4.6, 16))
    figure = style.new_figure(width, 0.25 * rows + 1.5)
    ax = figure.subplots()
    most = float(np.abs(effect).max()) or 1.0
    ramp = signed_colors()
    image = ax.imshow(effect, cmap=ramp, vmin=-most, vmax=most, aspect="auto")
    if effect.size <= WRITTEN:
        for (row, column), value in np.ndenumerate(effect):
            background = ramp(0.5 + float(value) / most / 2)
            style.write_cell(ax, (column, row), f"{value:.2f}", size=6.5, background=background)
    if labels is None:
        style.whole_ticks(ax.xaxis)
    else:
        style.token_ticks(ax.xaxis, visible_all(labels, 8), room=width - 2.6)
    ax.set_yticks(range(rows), found.rows[::-1])
    style.bare(ax, found.columns)
    style.color_bar(figure, ax, image, f"change of the answer, from {found.run:.3g} towards {found.source:.3g}")
    row, column = np.unravel_index(int(np.abs(effect).argmax()), effect.shape)
    words = f"heat map of {rows} by {columns} values. The largest effect, {effect[row, column]:.3g}, is that of "
    return style.titled(figure, title, f"{words}{found.rows[::-1][row]} at {found.columns} {column}.")


@styled
def detector_maps(found: HeadScores, *, title: str = "What heads look for") -> Figure:
    """Draw how much every head is of each kind, a row for each layer; what chance would give stands above."""
    kinds = list(found.scores)
    layers, heads = found.scores[kinds[0]].shape
    columns = min(3, len(kinds))
    width = float(np.clip(0.42 * heads + 0.5, 2.1, 5))
    height = float(np.clip(0.3 * layers + 0.7, 1.4, 7))
    figure = style.new_figure(max(columns * width + 1.0, 5.4), height * -(-len(kinds) // columns) + 0.9)
    axes = style.panels(figure, len(kinds), columns)
    for ax, kind in zip(axes, kinds, strict=True):
        image = _score_map(ax, found.scores[kind], f"{kind} (by chance {found.chance[kind]:.2f})")
    style.color_bar(figure, axes, image, "share of attention")
    named = "; ".join(f"layer {one.layer} head {one.head} {one.kind} {one.score:.2f}" for one in found.named())
    words = f"maps of the scores of {layers} by {heads} heads for {', '.join(kinds)}"
    return style.titled(figure, title, f"{words}. {named or 'No head is clearly of a kind'}.")


def _score_map(ax: Axes, scores: Array, title: str) -> object:
    ramp = weight_colors()
    image = ax.imshow(scores, cmap=ramp, vmin=0, vmax=1, aspect="auto")
    if scores.size <= 64:
        for (row, column), value in np.ndenumerate(scores):
            style.write_cell(ax, (column, row), weight_text(float(value)), size=7, background=ramp(float(value)))
    style.whole_ticks(ax.xaxis, ax.yaxis)
    ax.set_title(title, fontsize=8.5)
    style.bare(ax, "head", "layer")
    return image
