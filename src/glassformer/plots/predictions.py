"""What a model expects, as bars and as a table."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from ..arrays import Array
from ..errors import ShapeError
from .labels import visible, visible_all
from .style import bare, fitting_size, new_figure, styled, titled, token_ticks, write_cell
from .theme import colors, weight_colors

MOST_POSITIONS = 24
CELL = 33.0
"""Points that a token in a cell of the table may be wide."""


@styled
def prediction_bars(
    probabilities: Array,
    label: Callable[[int], str] = str,
    *,
    top: int = 10,
    answer: int | None = None,
    title: str = "Prediction",
) -> Figure:
    """Draw the `top` likeliest of probabilities (V,), the likeliest first; the right `answer`, if known, in green."""
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if probabilities.ndim != 1 or probabilities.size == 0:
        fact = f"probabilities have shape {probabilities.shape}, expected (V,)"
        raise ShapeError(fact, hint="pick one position first")
    order = np.argsort(-probabilities, kind="stable")[:top]
    values = probabilities[order]
    names = visible_all([label(int(i)) for i in order], 24)
    figure = new_figure(6.4, 0.32 * len(order) + 1.3)
    ax = figure.subplots()
    places = range(len(order))
    used = colors()
    fills = [used.green if i == answer else used.sky if rank else used.blue for rank, i in enumerate(order.tolist())]
    bars = ax.barh(places, values, color=fills, height=0.68)
    ax.bar_label(bars, fmt=_percent, padding=4, fontsize=8.5)
    ax.set_yticks(places, names)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.15 * float(values[0]))
    ax.xaxis.set_major_formatter(PercentFormatter(1))
    bare(ax, "probability")
    if answer is not None:
        rank = int(np.sum(probabilities > probabilities[answer])) + 1
        right = "right" if rank == 1 else f"the right answer {visible(label(answer), 24)} ranks {rank}"
        ax.set_title(f"{right}: {_percent(probabilities[answer])}", fontsize=9, color=colors().quiet)
    listed = ", ".join(f"{name} {_percent(value)}" for name, value in zip(names, values, strict=True))
    return titled(figure, title, f"bars of the {len(order)} likeliest: {listed}.")


@styled
def prediction_table(
    probabilities: Array,
    inputs: Sequence[str],
    label: Callable[[int], str] = str,
    *,
    top: int = 5,
    targets: Array | None = None,
    place: str = "the last token that was read",
    title: str = "Predictions at every position",
) -> Figure:
    """Write the likeliest next tokens below every input token, for probabilities (T, V); right ones get a green frame.

    Only the last 24 positions are shown. `place` says what the input tokens below the table are.
    """
    probabilities = np.asarray(probabilities, dtype=np.float64)
    if probabilities.ndim != 2 or len(probabilities) != len(inputs) or probabilities.size == 0:
        fact = f"probabilities of shape {probabilities.shape} do not fit {len(inputs)} input labels"
        raise ShapeError(fact, hint="pass probabilities (T, V) and T labels")
    first = max(0, len(inputs) - MOST_POSITIONS)
    shown = probabilities[first:]
    T, ranks = len(shown), min(top, shown.shape[1])
    order = np.argsort(-shown, axis=-1, kind="stable")[:, :ranks]
    values = np.take_along_axis(shown, order, axis=-1)
    width = max(0.52 * T + 1.6, 4.6)
    figure = new_figure(width, 0.36 * ranks + 1.7)
    ax = figure.subplots()
    most = max(float(values.max()), 0.05)
    ax.imshow(values.T, cmap=weight_colors(), vmin=0, vmax=most, aspect="auto")
    _cells(ax, order, values, label, most, None if targets is None else np.asarray(targets)[first:])
    names = visible_all(inputs[first:], 7)
    token_ticks(ax.xaxis, names, room=width - 1.4)
    ax.set_yticks(range(ranks), [f"rank {number + 1}" for number in range(ranks)])
    some = f" (the last {T} of {len(inputs)} tokens)" if first else ""
    bare(ax, f"{place}{some} · colors: 0 to {_percent(most)}")
    best = ", ".join(visible(label(int(i))) for i in order[:, 0])
    words = f"the {ranks} likeliest tokens at each of {T} positions, in a stronger color if likelier. In order: {best}."
    return titled(figure, title, words)


def _cells(
    ax: Axes, order: Array, values: Array, label: Callable[[int], str], top: float, targets: Array | None
) -> None:
    """Write the tokens `order` (T, ranks) into their cells, and frame those that are right."""
    ramp = weight_colors()
    for (t, rank), value in np.ndenumerate(values):
        text = visible(label(int(order[t, rank])), 7)
        write_cell(ax, (t, rank), text, size=fitting_size(text, CELL, 8.5), background=ramp(float(value) / top))
        if targets is not None and targets[t] == order[t, rank]:
            corner = (t - 0.47, rank - 0.46)
            ax.add_patch(Rectangle(corner, 0.94, 0.92, fill=False, edgecolor=colors().green, linewidth=2))


def _percent(value: float) -> str:
    percent = 100 * float(value)
    if percent >= 99.95:
        return "100 %" if percent >= 99.995 else f"{percent:.2f} %"
    return f"{percent:.1f} %" if percent >= 0.1 else "< 0.1 %"
