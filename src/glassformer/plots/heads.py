"""What the attention heads specialize in, and which positions they look at most."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..arrays import Array
from ..interpret import HeadStatistics
from .labels import visible_all
from .style import (
    BLUE,
    INK,
    NEVER,
    QUIET,
    SKY,
    color_bar,
    new_figure,
    panels,
    styled,
    titled,
    token_ticks,
    weight_colors,
    write_cell,
)

MOST_HEADS = 16
MOST_BARS = 100


@styled
def head_specialization(statistics: HeadStatistics, *, title: str = "Do the heads specialize?") -> Figure:
    """Draw the specialization score of every head, a row for each layer, with the name of what the head does."""
    score = statistics.score
    L, H = score.shape
    named = H <= 8
    width = 1.25 if named else 0.5
    figure = new_figure(max(width * H + 1.9, 4.6), max((0.72 if named else 0.42) * L + 1.35, 2.3))
    ax = figure.subplots()
    colors = weight_colors()
    edges = np.arange(H + 1) - 0.5, np.arange(L + 1) - 0.5
    image = ax.pcolormesh(*edges, score, cmap=colors, vmin=0, vmax=1, edgecolors=NEVER, linewidth=1.5)
    ax.invert_yaxis()
    for (layer, head), value in np.ndenumerate(score):
        text = f"{value:.2f}"[1:] if value < 1 else "1"
        if named:
            # A long name is broken so that it fits into its cell.
            text = f"{value:.2f}\n{statistics.kinds[layer][head]}".replace("one position ", "one\nposition ")
        write_cell(ax, (head, layer), text, size=8 if named else 6.5, background=colors(value))
    ax.set_xticks(range(H), [f"head {h + 1}" if named else f"{h + 1}" for h in range(H)])
    ax.set_yticks(range(L), [f"layer {layer + 1}" for layer in range(L)])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if not named:
        ax.set_xlabel("head", color=QUIET)
    color_bar(figure, ax, image, "specialization", aspect=20, ticks=[0, 0.5, 1])
    rows = statistics.rows()[:64]
    listed = "; ".join(f"layer {row['layer']} head {row['head']}: {row['kind']}, {row['score']:.2f}" for row in rows)
    return titled(figure, title, f"heat map of the specialization score of {L} by {H} heads. {listed}.")


@styled
def head_positions(
    statistics: HeadStatistics, labels: Sequence[str] | None = None, *, title: str = "Where each head looks"
) -> Figure:
    """Draw the share of its attention that each head gives to each key position.

    The line shows a head without preference. Of more than 16 heads, the most specialized are shown. `labels` name the
    positions of one example; None numbers them.
    """
    chosen = _most_specialized(statistics)
    S = statistics.received.shape[-1]
    width = float(np.clip(0.2 * S + 0.5, 2.2, 5.0))
    columns = min(len(chosen), max(2, int(10.5 / width)))
    rows = math.ceil(len(chosen) / columns)
    figure = new_figure(max(columns * width + 0.6, 5.4), rows * 1.9 + 0.9)
    names = [str(s) for s in range(S)] if labels is None else visible_all(labels, 8)
    axes = panels(figure, len(chosen), columns)
    top = min(1.0, 1.25 * max(float(statistics.received[at].max()) for at in chosen))
    for number, (ax, at) in enumerate(zip(axes, chosen, strict=True)):
        _bars(ax, statistics.received[at], statistics.expected, names, width - 0.7)
        ax.set_ylim(0, top)
        ax.set_title(f"layer {at[0] + 1}, head {at[1] + 1}\n{statistics.kinds[at[0]][at[1]]}", fontsize=9)
        if number % columns:
            ax.tick_params(axis="y", labelleft=False)
    figure.supylabel("share of attention", fontsize=9, color=QUIET)
    figure.supxlabel("key position · line: a head without preference", fontsize=9, color=QUIET)
    most = "; ".join(
        f"layer {layer + 1} head {h + 1} most at {_best(statistics, (layer, h), names)}" for layer, h in chosen
    )
    words = f"bars of the share of attention each position gets from {len(chosen)} heads: {most}."
    return titled(figure, title, words)


def _bars(ax: Axes, received: Array, expected: Array, names: Sequence[str], room: float) -> None:
    places = np.arange(len(received))
    edges = np.arange(len(received) + 1) - 0.5
    if len(received) <= MOST_BARS:
        best = int(np.argmax(received))
        ax.bar(places, received, color=[BLUE if s == best else SKY for s in places], width=0.75)
    else:
        ax.stairs(received, edges, fill=True, color=BLUE)
    ax.stairs(expected, edges, color=INK, linewidth=1, baseline=None)
    token_ticks(ax.xaxis, names, room=room)
    ax.set_xlim(-0.7, max(len(received) - 0.3, 1.7))
    ax.tick_params(axis="y", labelsize=7.5)


def _most_specialized(statistics: HeadStatistics) -> list[tuple[int, int]]:
    """Return (layer, head) of those to show, in the order of the model."""
    _, H = statistics.score.shape
    order = np.argsort(-statistics.score.ravel(), kind="stable")[:MOST_HEADS]
    return [divmod(int(number), H) for number in np.sort(order)]


def _best(statistics: HeadStatistics, at: tuple[int, int], names: Sequence[str]) -> str:
    s = int(np.argmax(statistics.received[at]))
    return f"position {s} ({names[s]})" if names[s] != str(s) else f"position {s}"
