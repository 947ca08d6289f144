"""What the attention heads specialize in, and which positions they look at most."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..arrays import Array
from ..interpret import HeadStatistics
from .labels import text_width, visible_all, weight_text
from .style import color_bar, new_figure, panels, styled, titled, write_cell
from .theme import colors, weight_colors
from .ticks import LEAP, log_scale, number_ticks, token_ticks

MOST_HEADS = 16
MOST_BARS = 100
TITLE_SIZE = 8.0
STEEP = 6.0
"""Where even attention gives some position more than the median by this factor, as under a causal mask of about 32
positions, shares are drawn relative to it."""
NAMED_UP_TO = 8
"""What a head does is written into its cell where at most so many stand side by side."""


def are_named(statistics: HeadStatistics) -> bool:
    """Tell whether `head_specialization` has room to write what each head does."""
    return statistics.score.shape[1] <= NAMED_UP_TO and not _is_deep(*statistics.score.shape)


@styled
def head_specialization(statistics: HeadStatistics, *, title: str = "Do the heads specialize?") -> Figure:
    """Draw the specialization score of every head, a row for each layer, with the name of what the head does.

    In models with more layers than heads, it is a column for each layer, so that the figure is wider than high.
    """
    L, H = statistics.score.shape
    is_deep = _is_deep(L, H)
    score = statistics.score.T if is_deep else statistics.score
    rows, columns = score.shape
    named = are_named(statistics)
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


def _is_deep(L: int, H: int) -> bool:
    return max(H, NAMED_UP_TO) < L


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

    The line shows a head without preference. Where shares differ by far, as under a long causal mask, what is drawn is
    how many times that head's share they are, on a logarithmic scale. Of more than 16 heads, the most specialized of
    each kind are shown. `labels` name the positions of one example; None numbers them.
    """
    chosen = _most_specialized(statistics)
    S = statistics.received.shape[-1]
    columns = _columns(len(chosen), *statistics.score.shape)
    width = float(np.clip(0.2 * S + 0.5, 2.0, 10.4 / max(columns, 2)))
    rows = math.ceil(len(chosen) / columns)
    figure = new_figure(max(columns * width + 0.6, 5.4), rows * 1.45 + 1.2)
    names = [str(s) for s in range(S)] if labels is None else visible_all(labels, 8)
    axes = panels(figure, len(chosen), columns)
    shares = np.stack([statistics.received[at] for at in chosen])
    relative = _differ_by_far(shares, statistics.expected)
    _draw_shares(axes, shares, statistics.expected, relative=relative)
    for number, ax in enumerate(axes):
        (token_ticks if labels is not None else number_ticks)(ax.xaxis, names, room=0.9 * (width - 0.35))
        ax.tick_params(axis="y", labelsize=7.5, labelleft=number % columns == 0)
        ax.tick_params(axis="x", labelbottom=number + columns >= len(chosen))
    _write_titles(axes, [_title(statistics, at) for at in chosen], width)
    what = "times even attention (log scale)" if relative else "share of attention"
    figure.supylabel(what, fontsize=9, color=colors().quiet)
    where = "key position" if labels is None else "key"
    figure.supxlabel(f"{where} · line: a head without preference", fontsize=9, color=colors().quiet)
    every = statistics.score.size
    few = "" if len(chosen) == every else f" (of {every}, the most specialized of each kind)"
    most = "; ".join(f"layer {at[0] + 1} head {at[1] + 1} most at {_best(statistics, at, names)}" for at in chosen)
    words = f"bars of the share of attention each position gets from {len(chosen)} heads{few}: {most}."
    return titled(figure, title + few, words)


def _columns(count: int, L: int, H: int) -> int:
    """Return how many panels stand side by side: where all heads are shown, a layer begins a row if it can."""
    fitting = [columns for columns in (4, 3, 2) if H % columns == 0 and count == L * H]
    return min(count, *fitting[:1] or (4,))


def _title(statistics: HeadStatistics, at: tuple[int, int]) -> str:
    return f"layer {at[0] + 1}, head {at[1] + 1}: {statistics.kinds[at[0]][at[1]]}"


def _write_titles(axes: Sequence[Axes], titles: Sequence[str], width: float) -> None:
    """Write the titles of panels of some inches, small enough that the longest does not touch its neighbor."""
    longest = max(text_width(title, TITLE_SIZE) for title in titles)
    size = TITLE_SIZE * min(1.0, 72 * (width - 0.15) / longest)
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, fontsize=size, pad=3)


def _draw_shares(axes: Sequence[Axes], shares: Array, expected: Array, *, relative: bool) -> None:
    """Draw the shares of some heads on the same scale, as they are or relative to the expected ones."""
    values = _relative(shares, expected) if relative else shares
    even = np.ones_like(expected) if relative else expected
    for ax, row in zip(axes, values, strict=True):
        _bars(ax, row, even, ground=1.0 if relative else 0.0)
        if relative:
            # What is near to even attention must not look like a preference; a few bars may leave the axis below.
            log_scale(ax, np.array([np.clip(np.quantile(values, 0.02), 0.05, 0.5), max(2.0, float(values.max()))]))
        else:
            ax.set_ylim(0, min(1.0, 1.25 * float(values.max())))


def _differ_by_far(shares: Array, expected: Array) -> bool:
    """Tell whether some shares would flatten the others, those of one head or those of a head without preference."""
    visible = np.maximum(shares, float(shares.max()) / 1000)
    # Not by the smallest: under a causal mask, the last positions get little attention from any head.
    return bool(visible.max() > LEAP * np.median(visible) or expected.max() > STEEP * np.median(expected))


def _relative(shares: Array, expected: Array) -> Array:
    """Return shares as multiples of what even attention gives, positive for a logarithmic scale."""
    even = np.broadcast_to(expected, shares.shape)
    return np.maximum(np.divide(shares, even, out=np.ones_like(shares), where=even > 0), 1e-9)


def _bars(ax: Axes, values: Array, expected: Array, *, ground: float) -> None:
    """Draw bars that begin at the `ground`."""
    places = np.arange(len(values))
    edges = np.arange(len(values) + 1) - 0.5
    if len(values) <= MOST_BARS:
        best = int(np.argmax(values))
        fills = [colors().blue if s == best else colors().sky for s in places]
        ax.bar(places, values - ground, bottom=ground, color=fills, width=0.75)
    else:
        ax.stairs(values, edges, fill=True, baseline=ground, color=colors().blue)
    ax.stairs(expected, edges, color=colors().ink, linewidth=1, baseline=None)
    ax.set_xlim(-0.7, max(len(values) - 0.3, 1.7))


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
