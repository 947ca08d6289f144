"""What the attention heads specialize in, and which positions they look at most."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..arrays import Array
from ..interpret import HeadStatistics
from .labels import visible_all, weight_text
from .style import color_bar, new_figure, panels, styled, titled, write_cell
from .theme import colors, weight_colors
from .ticks import LEAP, log_scale, number_ticks, token_ticks

MOST_HEADS = 16
MOST_BARS = 100
NAMED_UP_TO = 8
"""What a head does is written into its cell where at most so many stand side by side."""


@styled
def head_specialization(statistics: HeadStatistics, *, title: str = "Do the heads specialize?") -> Figure:
    """Draw the specialization score of every head, a row for each layer, with the name of what the head does.

    In models with more layers than heads, it is a column for each layer, so that the figure is wider than high.
    """
    L, H = statistics.score.shape
    is_deep = max(H, NAMED_UP_TO) < L
    score = statistics.score.T if is_deep else statistics.score
    rows, columns = score.shape
    named = columns <= NAMED_UP_TO
    width = 1.25 if named else float(np.clip(10 / columns, 0.3, 0.5))
    figure = new_figure(max(width * columns + 1.9, 4.6), max((0.72 if named else 0.36) * rows + 1.5, 2.3))
    ax = figure.subplots()
    # Not so early that a broad head looks like a specialist.
    top = max(float(score.max()), 0.5)
    edges = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    ramp = weight_colors()
    image = ax.pcolormesh(*edges, score, cmap=ramp, vmin=0, vmax=top, edgecolors=colors().never, linewidth=1.5)
    ax.invert_yaxis()
    for (row, column), value in np.ndenumerate(score):
        text = f"{value:.2f}\n{statistics.kinds[row][column]}" if named else weight_text(value)
        # A long name is broken so that it fits into its cell.
        text = text.replace("one position ", "one\nposition ")
        write_cell(ax, (column, row), text, size=8 if named else 6.2, background=ramp(float(value) / top))
    _score_labels(ax, ("layer", "head") if is_deep else ("head", "layer"), columns, rows, width)
    color_bar(figure, ax, image, f"specialization: 0 to {top:.2g}")
    rows_of = statistics.rows()[:64]
    listed = "; ".join(f"layer {row['layer']} head {row['head']}: {row['kind']}, {row['score']:.2f}" for row in rows_of)
    more = f"; and {L * H - 64} more" if L * H > 64 else ""
    return titled(figure, title, f"heat map of the specialization score of {L} by {H} heads. {listed}{more}.")


def _score_labels(ax: Axes, names: tuple[str, str], columns: int, rows: int, width: float) -> None:
    room = 0.92 * columns * width
    number_ticks(ax.xaxis, [str(number + 1) for number in range(columns)], room=room)
    number_ticks(ax.yaxis, [str(number + 1) for number in range(rows)], room=0.33 * rows)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    ax.set_xlabel(names[0], color=colors().quiet)
    ax.set_ylabel(names[1], color=colors().quiet)


@styled
def head_positions(
    statistics: HeadStatistics, labels: Sequence[str] | None = None, *, title: str = "Where each head looks"
) -> Figure:
    """Draw the share of its attention that each head gives to each key position.

    The line shows a head without preference. Of more than 16 heads, the most specialized of each kind are shown.
    `labels` name the positions of one example; None numbers them. Shares that differ by far are drawn on a logarithmic
    scale.
    """
    chosen = _most_specialized(statistics)
    S = statistics.received.shape[-1]
    columns = min(len(chosen), 4 if len(chosen) > 9 or S <= 12 else 3)
    width = float(np.clip(0.2 * S + 0.5, 2.0, 10.4 / max(columns, 2)))
    rows = math.ceil(len(chosen) / columns)
    figure = new_figure(max(columns * width + 0.6, 5.4), rows * 1.45 + 1.2)
    names = [str(s) for s in range(S)] if labels is None else visible_all(labels, 8)
    axes = panels(figure, len(chosen), columns)
    shares = np.stack([statistics.received[at] for at in chosen])
    scale = _share_scale(shares)
    for number, (ax, at) in enumerate(zip(axes, chosen, strict=True)):
        _bars(ax, statistics.received[at], statistics.expected)
        (token_ticks if labels is not None else number_ticks)(ax.xaxis, names, room=0.9 * (width - 0.35))
        scale(ax)
        ax.tick_params(axis="y", labelsize=7.5, labelleft=number % columns == 0)
        ax.tick_params(axis="x", labelbottom=number + columns >= len(chosen))
        ax.set_title(f"layer {at[0] + 1}, head {at[1] + 1}: {statistics.kinds[at[0]][at[1]]}", fontsize=8, pad=3)
    how = " (log scale)" if axes[0].get_yscale() == "log" else ""
    figure.supylabel(f"share of attention{how}", fontsize=9, color=colors().quiet)
    figure.supxlabel("key position · line: a head without preference", fontsize=9, color=colors().quiet)
    most = "; ".join(
        f"layer {layer + 1} head {h + 1} most at {_best(statistics, (layer, h), names)}" for layer, h in chosen
    )
    few = (
        ""
        if len(chosen) == statistics.score.size
        else f" (of {statistics.score.size}, the most specialized of each kind)"
    )
    words = f"bars of the share of attention each position gets from {len(chosen)} heads{few}: {most}."
    return titled(figure, title + few, words)


def _share_scale(shares: Array) -> Callable[[Axes], Any]:
    """Return what gives axes the scale of all shares: even, or logarithmic where some would flatten the others."""
    visible = np.maximum(shares, float(shares.max()) / 1000)
    # Not by the smallest: under a causal mask, the last positions get little attention from any head.
    if visible.max() > LEAP * np.median(visible):
        return lambda ax: log_scale(ax, visible)
    top = min(1.0, 1.25 * float(shares.max()))
    return lambda ax: ax.set_ylim(0, top)


def _bars(ax: Axes, received: Array, expected: Array) -> None:
    places = np.arange(len(received))
    edges = np.arange(len(received) + 1) - 0.5
    if len(received) <= MOST_BARS:
        best = int(np.argmax(received))
        ax.bar(places, received, color=[colors().blue if s == best else colors().sky for s in places], width=0.75)
    else:
        # From nothing upward, also where the axis is logarithmic and has no zero.
        ax.stairs(received, edges, fill=True, color=colors().blue)
    ax.stairs(expected, edges, color=colors().ink, linewidth=1, baseline=None)
    ax.set_xlim(-0.7, max(len(received) - 0.3, 1.7))


def _most_specialized(statistics: HeadStatistics) -> list[tuple[int, int]]:
    """Return (layer, head) of those to show, in the order of the model: the best of every kind, then the next best."""
    H = statistics.score.shape[1]
    kinds = [kind for row in statistics.kinds for kind in row]
    order = np.argsort(-statistics.score.ravel(), kind="stable").tolist()
    seen: Counter[str] = Counter()
    rank = {}
    for number in order:
        rank[number] = seen[kinds[number]]
        seen[kinds[number]] += 1
    chosen = sorted(order, key=rank.__getitem__)[:MOST_HEADS]
    return [divmod(number, H) for number in sorted(chosen)]


def _best(statistics: HeadStatistics, at: tuple[int, int], names: Sequence[str]) -> str:
    s = int(np.argmax(statistics.received[at]))
    return f"position {s} ({names[s]})" if names[s] != str(s) else f"position {s}"
