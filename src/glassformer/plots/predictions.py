"""Figures of predictions, at the end and after every layer, as bars and as tables of tokens."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from ..core.arrays import Array
from ..core.errors import ShapeError
from ..core.format import percent
from ..interpret import Lens, LensCourse
from .labels import visible, visible_all
from .style import bare, color_bar, colors, heat_map, one_panel, styled, titled, token_ticks, weight_colors

MOST_ROWS = 33
"""Of more points of the stream, only those behind blocks are drawn."""
MOST_POSITIONS = 24
CELL = 33.0
"""Points that a token in a cell of the table may be wide."""

Label = Callable[[int], str]


@styled
def prediction_bars(
    probabilities: Array, label: Label = str, *, top: int = 10, answer: int | None = None, title: str = "Prediction"
) -> Figure:
    """Draw the `top` likeliest of probabilities (V,), the likeliest first; the right `answer`, if known, in green."""
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if probabilities.ndim != 1 or probabilities.size == 0:
        fact = f"probabilities have shape {probabilities.shape}, expected (V,)"
        raise ShapeError(fact, hint="pick one position first")
    order = np.argsort(-probabilities, kind="stable")[:top]
    values = probabilities[order]
    names = visible_all([label(int(i)) for i in order], 24)
    used = colors()
    fills = [used.green if i == answer else used.sky if rank else used.blue for rank, i in enumerate(order.tolist())]
    figure, ax = _bars(names, values, fills, size=(6.4, 0.32), height=0.68, fmt=percent, fontsize=8.5)
    ax.set_xlim(0, 1.15 * float(values[0]))
    ax.xaxis.set_major_formatter(PercentFormatter(1))
    bare(ax, "probability")
    if answer is not None:
        rank = int(np.sum(probabilities > probabilities[answer])) + 1
        right = "right" if rank == 1 else f"the right answer {visible(label(answer), 24)} ranks {rank}"
        ax.set_title(f"{right}: {percent(probabilities[answer])}", fontsize=9, color=used.quiet)
    listed = ", ".join(f"{name} {percent(value)}" for name, value in zip(names, values, strict=True))
    return titled(figure, title, f"bars of the {len(order)} likeliest: {listed}.")


@styled
def signed_bars(names: Sequence[str], values: Array, *, top: int = 20, title: str, unit: str = "adds") -> Figure:
    """Draw the first `top` of some signed numbers as bars: positive ones in blue, negative ones in red."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or len(values) != len(names) or not len(names):
        raise ShapeError(f"{len(names)} names for values of shape {values.shape}", hint="pass one value for each name")
    shown, labels = values[:top], visible_all(names[:top], 40)
    fills = [colors().blue if value >= 0 else colors().vermilion for value in shown]
    figure, ax = _bars(labels, shown, fills, size=(7.0, 0.29), height=0.7, fmt="{:+.3g}", fontsize=8)
    ax.axvline(0, color=colors().edge, linewidth=0.8)
    low, high = min(0.0, shown.min()), max(0.0, shown.max())
    room = (high - low) or 1.0
    ax.set_xlim(low - (0.22 if low < 0 else 0.02) * room, high + 0.2 * room)  # where the numbers stand
    some = f" · the first {len(shown)} of {len(names):,}" if len(names) > len(shown) else ""
    bare(ax, f"{unit}{some}")
    listed = ", ".join(f"{name} {value:+.3g}" for name, value in zip(labels, shown, strict=True))
    return titled(figure, title, f"bars of {len(shown)} numbers: {listed}.")


def _bars(
    names: Sequence[str], values: Array, fills: list[str], *, size: tuple[float, float], height: float, **words: Any
) -> tuple[Figure, Axes]:
    """Draw bars from top to bottom, each with its number; `size` is the width of the figure and the height of a row."""
    figure, ax = one_panel(size[0], size[1] * len(values) + 1.3)
    ax.bar_label(ax.barh(range(len(values)), values, color=fills, height=height), padding=4, **words)
    ax.set_yticks(range(len(values)), names)
    ax.invert_yaxis()
    return figure, ax


@styled
def prediction_table(
    probabilities: Array,
    inputs: Sequence[str],
    label: Label = str,
    *,
    top: int = 5,
    targets: Array | None = None,
    place: str = "the last token that was read",
    title: str = "Predictions at every position",
) -> Figure:
    """Write the likeliest next tokens above every input token, for probabilities (T, V); right ones get a green frame.

    Only the last 24 positions are shown. `place` says what the input tokens below the table are.
    """
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if probabilities.ndim != 2 or len(probabilities) != len(inputs) or probabilities.size == 0:
        fact = f"probabilities of shape {probabilities.shape} do not fit {len(inputs)} input labels"
        raise ShapeError(fact, hint="pass probabilities (T, V) and T labels")
    shown = probabilities[-MOST_POSITIONS:]
    T, ranks = len(shown), min(top, shown.shape[1])
    order = np.argsort(-shown, axis=-1, kind="stable")[:, :ranks]
    values = np.take_along_axis(shown, order, axis=-1)
    width = max(0.52 * T + 1.6, 4.6)
    figure, ax = one_panel(width, 0.36 * ranks + 1.7)
    most = max(float(values.max()), 0.05)
    _token_map(ax, order.T, values.T, label, most=most, cell=CELL, size=8.5)
    token_ticks(ax.xaxis, visible_all(inputs[-T:], 7), room=width - 1.4)
    if targets is not None:
        for t, rank in np.argwhere(order == np.asarray(targets)[-T:, None]):
            corner = (t - 0.47, rank - 0.46)
            ax.add_patch(Rectangle(corner, 0.94, 0.92, fill=False, edgecolor=colors().green, linewidth=2))
    ax.set_yticks(range(ranks), [f"rank {number + 1}" for number in range(ranks)])
    some = f" (the last {T} of {len(inputs)} tokens)" if len(inputs) > T else ""
    bare(ax, f"{place}{some} · colors: 0 to {percent(most)}")
    best = ", ".join(visible(label(int(i))) for i in order[:, 0])
    words = f"the {ranks} likeliest tokens at each of {T} positions, in a stronger color if likelier. In order: {best}."
    return titled(figure, title, words)


@styled
def lens_map(
    seen: Lens,
    inputs: Sequence[str] | None = None,
    label: Label | None = None,
    *,
    example: int = 0,
    title: str = "What each layer would say",
) -> Figure:
    """Write the likeliest token at every point of the stream, the last one on top, above every position that was read.

    `inputs` names the positions of the lens, or is one word for a classifier; `label` names tokens. Unless given, the
    run names both. The last 24 positions are shown. The lens over a training has steps in the place of positions.
    """
    label, is_course = label or seen.run.label, isinstance(seen, LensCourse)
    if isinstance(seen, LensCourse):
        inputs = [f"{step:,}" for step in seen.steps]
    elif inputs is None:
        words = ["the text"] if seen.logits.ndim == 3 else seen.run.tokens[example]
        inputs = words if seen.positions is None else [words[n] for n in seen.positions[example]]
    chosen = [n for n, point in enumerate(seen.points) if " " not in point.label.removeprefix("block ")]
    chosen = list(range(len(seen.points))) if len(seen.points) <= MOST_ROWS else chosen
    examples: Any = slice(None) if is_course else example
    ids, odds = (part[chosen[::-1], examples].reshape(len(chosen), -1) for part in seen.top(1))
    if ids.shape[1] != len(inputs):
        raise ShapeError(f"{len(inputs)} words for {ids.shape[1]} positions", hint="name every position of the lens")
    ids, odds = ids[:, -MOST_POSITIONS:], odds[:, -MOST_POSITIONS:]
    rows, columns = ids.shape
    width = max(0.52 * columns + 2.4, 4.6)
    figure, ax = one_panel(width, 0.27 * rows + 1.5)
    cell = 0.8 * 72 * (width - 2.0) / columns
    image = _token_map(ax, ids, odds, label, most=1.0, cell=cell, size=7.5)
    token_ticks(ax.xaxis, visible_all(inputs[-columns:], 7), room=width - 2.2)
    ax.set_yticks(range(rows), [seen.points[n].label for n in reversed(chosen)])
    some = f" (the last {columns} of {len(inputs)})" if len(inputs) > columns else ""
    bare(ax, f"{'step of the training' if is_course else 'what was read'}{some}")
    color_bar(figure, ax, image, "probability")
    said = ", ".join(visible(label(int(i))) for i in ids[0])
    return titled(figure, title, f"the likeliest token at {rows} points of the stream. At the last: {said}.")


def _token_map(ax: Axes, ids: Array, odds: Array, label: Label, *, most: float, cell: float, size: float) -> Any:
    """Write tokens (rows, positions) into cells, colored by how likely they are."""
    texts = [[visible(label(int(i)), max(7, int(cell / 5))) for i in row] for row in ids]
    return heat_map(ax, odds, weight_colors(), Normalize(0, most), texts=texts, size=size, width=cell)
