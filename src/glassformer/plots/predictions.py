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
from . import charts, style
from .labels import visible, visible_all
from .style import bare, colors, styled, titled

MOST_ROWS = 33
"""Of more points of the stream, only those behind blocks are drawn."""
MOST_POSITIONS = 24

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
    values, names = probabilities[order], visible_all([label(int(i)) for i in order], 24)
    fills = [colors().green if i == answer else colors().sky if rank else colors().blue for rank, i in enumerate(order)]
    texts = [percent(value) for value in values]
    figure, ax = _bars(names, values, fills, texts)
    ax.xaxis.set_major_formatter(PercentFormatter(1))
    bare(ax, "probability")
    if answer is not None:
        rank = int(np.sum(probabilities > probabilities[answer])) + 1
        right = "right" if rank == 1 else f"the right answer {visible(label(answer), 24)} ranks {rank}"
        ax.set_title(f"{right}: {percent(probabilities[answer])}", fontsize=9, color=colors().quiet)
    listed = ", ".join(map(" ".join, zip(names, texts, strict=True)))
    return titled(figure, title, f"bars of the {len(order)} likeliest: {listed}.")


@styled
def signed_bars(names: Sequence[str], values: Array, *, top: int = 20, title: str, unit: str = "adds") -> Figure:
    """Draw the first `top` of some signed numbers as bars: positive ones in blue, negative ones in red."""
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or len(values) != len(names) or not len(names):
        raise ShapeError(f"{len(names)} names for values of shape {values.shape}", hint="pass one value for each name")
    shown, labels = values[:top], visible_all(names[:top], 40)
    fills = [colors().blue if value >= 0 else colors().vermilion for value in shown]
    texts = [f"{value:+.3g}" for value in shown]
    figure, ax = _bars(labels, shown, fills, texts)
    ax.axvline(0, color=colors().edge, linewidth=0.8)
    some = f" · the first {len(shown)} of {len(names):,}" if len(names) > len(shown) else ""
    bare(ax, f"{unit}{some}")
    listed = ", ".join(map(" ".join, zip(labels, texts, strict=True)))
    return titled(figure, title, f"bars of {len(shown)} numbers: {listed}.")


def _bars(names: Sequence[str], values: Array, fills: list[str], texts: list[str]) -> tuple[Figure, Axes]:
    figure = style.new_figure(6.8, 0.3 * len(values) + 1.3)
    ax = figure.subplots()
    charts.bars(ax, values, fills, texts=texts, lying=True)
    ax.set_yticks(range(len(values)), names)
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
    order = np.argsort(-shown, axis=-1, kind="stable")[:, :top]
    values = np.take_along_axis(shown, order, axis=-1)
    T, ranks = order.shape
    most = max(float(values.max()), 0.05)
    names = [f"rank {number + 1}" for number in range(ranks)]
    figure, ax, _ = _token_map(order.T, values.T, label, names, inputs[-T:], most=most)
    if targets is not None:
        for t, rank in np.argwhere(order == np.asarray(targets)[-T:, None]):
            corner = (t - 0.47, rank - 0.46)
            ax.add_patch(Rectangle(corner, 0.94, 0.92, fill=False, edgecolor=colors().green, linewidth=2))
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
    chosen = list(range(len(seen.points)))
    if len(chosen) > MOST_ROWS:
        chosen = [n for n, point in enumerate(seen.points) if " " not in point.label.removeprefix("block ")]
    examples: Any = slice(None) if is_course else example
    ids, odds = (part[chosen[::-1], examples].reshape(len(chosen), -1) for part in seen.top(1))
    if ids.shape[1] != len(inputs):
        raise ShapeError(f"{len(inputs)} words for {ids.shape[1]} positions", hint="name every position of the lens")
    ids, odds = ids[:, -MOST_POSITIONS:], odds[:, -MOST_POSITIONS:]
    rows, columns = ids.shape
    names = [seen.points[n].label for n in reversed(chosen)]
    figure, ax, image = _token_map(ids, odds, label, names, inputs[-columns:], most=1.0)
    some = f" (the last {columns} of {len(inputs)})" if len(inputs) > columns else ""
    bare(ax, f"{'step of the training' if is_course else 'what was read'}{some}")
    charts.color_bar(figure, ax, image, "probability")
    said = ", ".join(visible(label(int(i))) for i in ids[0])
    return titled(figure, title, f"the likeliest token at {rows} points of the stream. At the last: {said}.")


def _token_map(
    ids: Array, odds: Array, label: Label, names: Sequence[str], inputs: Sequence[str], *, most: float
) -> tuple[Figure, Axes, Any]:
    """Write tokens (rows, positions) into the cells of a map, colored by how likely they are."""
    rows, columns = ids.shape
    inputs = visible_all(inputs, 7 if columns > 1 else 24)
    figure, (ax,), inches = charts.map_panels(1, ids.shape, (0.54, 0.3), names=names, below=inputs, page=(16, 40))
    letters = max(7, int(72 * inches[0] / columns / 5))
    texts = [[visible(label(int(i)), letters) for i in row] for row in ids]
    norm = Normalize(0, most)
    image = charts.heat_map(ax, odds, style.weight_colors(), norm, texts=texts, inches=inches)
    style.token_ticks(ax.xaxis, inputs, room=inches[0])
    ax.set_yticks(range(rows), names)
    return figure, ax, image
