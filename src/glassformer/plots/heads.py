"""Figures of attention heads: their kinds, the positions that they look at most, and the effects of patched ones."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ..core.arrays import Array
from ..interpret import HeadScores, Patching, Paths
from ..interpret.paths import Place
from . import style
from .attention_maps import MOST_HEADS
from .labels import visible_all, weight_text
from .style import colors, heat_map, signed_colors, styled, weight_colors

MOST_BARS = 100
STEEP = 6.0
"""Where even attention gives a position this many times the median, as under a long causal mask, shares are drawn
relative to even attention."""
WRITTEN, NUMBERED = 400, 64
"""Numbers are written into the cells of maps of at most this many: of patching, and of the scores of heads."""
NAMED_UP_TO = 8
"""What a head does is written into its cell where at most this many stand side by side."""


@styled
def head_specialization(statistics: HeadScores, *, title: str = "Do the heads specialize?") -> Figure:
    """Draw the specialization score of every head, a row for each layer, with the name of what the head does.

    Models with more layers than heads get a column for each layer, so that the figure is wider than high.
    """
    L, H = statistics.specialization.shape
    is_deep = max(H, NAMED_UP_TO) < L
    score = statistics.specialization.T if is_deep else statistics.specialization
    rows, columns = score.shape
    named = H <= NAMED_UP_TO and not is_deep
    width = 1.25 if named else float(np.clip(10 / columns, 0.3, 0.5))
    figure, ax = style.one_panel(max(width * columns + 1.9, 4.6), max((0.72 if named else 0.36) * rows + 1.5, 2.3))
    # Not below 0.5, or a broad head would look like a specialist.
    top = max(float(score.max()), 0.5)
    texts = [[weight_text(value) for value in row] for row in score]
    if named:
        kinds = [[kind.replace("alignment to the ", "alignment\nto the ") for kind in row] for row in statistics.kinds]
        texts = [[f"{score[row, column]:.2f}\n{kinds[row][column]}" for column in range(H)] for row in range(L)]
    image = heat_map(ax, score, weight_colors(), Normalize(0, top), texts=texts, size=8 if named else 6.2)
    style.bare(ax, *(("layer", "head") if is_deep else ("head", "layer")))
    style.whole_ticks(ax.xaxis, ax.yaxis)
    style.color_bar(figure, ax, image, f"specialization: 0 to {top:.2g}")
    listed = [f"layer {at[0]} head {at[1]}: {statistics.kinds[at[0]][at[1]]}" for at in np.ndindex(L, H)][:64]
    return style.titled(figure, title, f"the specialization score of {L} by {H} heads. {'; '.join(listed)}.")


@styled
def head_positions(
    statistics: HeadScores, labels: Sequence[str] | None = None, *, title: str = "Where each head looks"
) -> Figure:
    """Draw the share of its attention that each head gives to each key position.

    The line shows a head without preference. Where shares differ by far, as under a long causal mask, what is drawn is
    how many times that head's share they are, on a logarithmic scale. Of more than 16 heads, the most specialized of
    each kind are shown. `labels` name the positions of one example; None numbers them.
    """
    chosen = _most_specialized(statistics)
    S = statistics.received.shape[-1]
    columns = _columns(len(chosen), *statistics.specialization.shape)
    width = float(np.clip(0.2 * S + 0.5, 2.0, 10.4 / max(columns, 2)))
    figure = style.new_figure(max(columns * width + 0.6, 5.4), math.ceil(len(chosen) / columns) * 1.45 + 1.2)
    axes = style.panels(figure, len(chosen), columns)
    shares = np.stack([statistics.received[at] for at in chosen])
    relative = _differ_by_far(shares, statistics.expected)
    _draw_shares(axes, shares, statistics.expected, relative=relative)
    titles = [f"layer {layer}, head {head}: {statistics.kinds[layer][head]}" for layer, head in chosen]
    size = min(style.fitting_size(one, 72 * (width - 0.15), 8.0) for one in titles)
    for number, (ax, name) in enumerate(zip(axes, titles, strict=True)):
        _position_ticks(ax, labels, 0.9 * (width - 0.35))
        ax.tick_params(axis="y", labelsize=7.5, labelleft=number % columns == 0)
        ax.tick_params(axis="x", labelbottom=number + columns >= len(chosen))
        ax.set_title(name, fontsize=size, pad=3)
    what = "times even attention (log scale)" if relative else "share of attention"
    figure.supylabel(what, fontsize=9, color=colors().quiet)
    figure.supxlabel("key position · line: a head without preference", fontsize=9, color=colors().quiet)
    every = statistics.specialization.size
    few = "" if len(chosen) == every else f" (of {every}, the most specialized of each kind)"
    most = "; ".join(f"{name}, most at {int(np.argmax(row))}" for name, row in zip(titles, shares, strict=True))
    return style.titled(figure, title + few, f"the share of attention that each position gets: {most}.")


def _position_ticks(ax: Axes, labels: Sequence[str] | None, room: float) -> None:
    if labels is None:
        style.whole_ticks(ax.xaxis)
    else:
        style.token_ticks(ax.xaxis, visible_all(labels, 8), room=room)


def _columns(count: int, L: int, H: int) -> int:
    """Return how many panels stand side by side: where all heads are shown, a layer begins a row if it can."""
    fitting = [columns for columns in (4, 3, 2) if H % columns == 0 and count == L * H]
    return min(count, *fitting[:1] or (4,))


def _draw_shares(axes: Sequence[Axes], shares: Array, expected: Array, *, relative: bool) -> None:
    """Draw the shares of some heads on the same scale, as they are or relative to the expected ones."""
    if relative:
        even = np.broadcast_to(expected, shares.shape)
        shares = np.maximum(np.divide(shares, even, out=np.ones_like(shares), where=even > 0), 1e-9)
        expected = np.ones_like(expected)
    for ax, row in zip(axes, shares, strict=True):
        _bars(ax, row, expected, ground=1.0 if relative else 0.0)
        if relative:
            # What is near to even attention must not look like a preference; a few bars may leave the axis below.
            style.log_scale(ax)
            low = float(np.clip(np.quantile(shares, 0.02), 0.05, 0.5))
            ax.set_ylim(low / 1.35, max(2.0, float(shares.max())) * 1.7)
        else:
            ax.set_ylim(0, min(1.0, 1.25 * float(shares.max())))


def _differ_by_far(shares: Array, expected: Array) -> bool:
    """Return whether some shares would flatten the others, those of one head or those of a head without preference."""
    visible = np.maximum(shares, float(shares.max()) / 1000)
    # Not by the smallest: under a causal mask, the last positions get little attention from any head.
    return bool(visible.max() > style.LEAP * np.median(visible) or expected.max() > STEEP * np.median(expected))


def _bars(ax: Axes, values: Array, expected: Array, *, ground: float) -> None:
    """Draw bars that begin at the `ground`."""
    places = np.arange(len(values))
    edges = np.arange(len(values) + 1) - 0.5
    if len(values) <= MOST_BARS:
        fills = [colors().blue if s == np.argmax(values) else colors().sky for s in places]
        ax.bar(places, values - ground, bottom=ground, color=fills, width=0.75)
    else:
        ax.stairs(values, edges, fill=True, baseline=ground, color=colors().blue)
    ax.stairs(expected, edges, color=colors().ink, linewidth=1, baseline=None)
    ax.set_xlim(-0.7, max(len(values) - 0.3, 1.7))


def _most_specialized(statistics: HeadScores) -> list[tuple[int, int]]:
    """Return (layer, head) of those to show, in the order of the model: the best of every kind, then the next best."""
    kinds = [kind for row in statistics.kinds for kind in row]
    order = np.argsort(-statistics.specialization.ravel(), kind="stable").tolist()
    seen: Counter[str] = Counter()
    rank = {}
    for number in order:
        rank[number] = seen[kinds[number]]
        seen[kinds[number]] += 1
    chosen = sorted(order, key=rank.__getitem__)[:MOST_HEADS]
    return [divmod(number, statistics.specialization.shape[1]) for number in sorted(chosen)]


@styled
def patching_map(found: Patching, labels: Sequence[str] | None = None, *, title: str = "Patched") -> Figure:
    """Draw what every patched value does to the answer, the last point on top.

    `labels` name positions, as the run does unless given.
    """
    labels = found.words if labels is None else labels
    return _effect_map(found, found.effect, found.rows, found.columns, labels, title)


@styled
def path_map(found: Paths, *, title: str = "Paths") -> Figure:
    """Draw what every path does to the answer: senders by receivers; of one receiver, layers by heads."""
    if len(found.receivers) > 1:
        senders, receivers = [str(place) for place in found.senders], [_short(place) for place in found.receivers]
        return _effect_map(found, found.effect, senders, "receiver", receivers, title)
    layers = list(dict.fromkeys(_layer(place) for place in found.senders))
    columns = list(dict.fromkeys(_column(place) for place in found.senders))
    effect = np.full((len(layers), len(columns)), np.nan)
    for place, value in zip(found.senders, found.effect[:, 0], strict=True):
        effect[layers.index(_layer(place)), columns.index(_column(place))] = value
    return _effect_map(found, effect, layers, f"sender, to {found.receivers[0]}", columns, title)


def _layer(place: Place) -> str:
    """Return the block that a place is in, or its name."""
    prefix, block, rest = place.name.partition("blocks.")
    return f"{prefix}{block}{rest.partition('.')[0]}" if block else place.name


def _column(place: Place) -> str:
    """Return what a place is within its block."""
    own = place.name.removeprefix(_layer(place)).removesuffix(".output.x").strip(".").replace("_", "-")
    where = [f"{word} {part}" for word, part in place.where.items()]
    return ", ".join([*([] if where and own == "attention" else [own or "all"]), *where])


def _short(place: Place) -> str:
    """Return a place in few letters: 1.q.0 are the queries of head 0 in block 1."""
    numbers = [part for part in place.name.split(".") if part.isdigit()]
    own = place.name.rpartition(".")[2].replace("feed_forward", "ff")
    return ".".join([*numbers, own, *(str(part) for part in place.where.values())])


def _effect_map(
    found: Patching | Paths, effect: Array, names: Sequence[str], across: str, labels: Sequence[str] | None, title: str
) -> Figure:
    """Draw effects (rows, columns), the last row on top; where there is none, a cell is empty."""
    effect, names = effect[::-1], names[::-1]
    rows, columns = effect.shape
    width = float(np.clip(0.45 * columns + 2.8, 4.6, 16))
    figure, ax = style.one_panel(width, 0.25 * rows + 1.5)
    size = np.nan_to_num(np.abs(effect))
    most = float(size.max()) or 1.0
    texts = None
    if effect.size <= WRITTEN:
        texts = [["" if np.isnan(value) else f"{value:.2f}" for value in row] for row in effect]
    image = heat_map(ax, effect, signed_colors(), Normalize(-most, most), texts=texts, size=6.5)
    _position_ticks(ax, labels, width - 2.6)
    ax.set_yticks(range(rows), names)
    style.bare(ax, across)
    style.color_bar(figure, ax, image, f"change of the {found.label}, from {found.run:.3g} towards {found.source:.3g}")
    row, column = divmod(int(size.argmax()), columns)
    place = f"{across} {column}" if labels is None else labels[column]
    words = f"heat map of {rows} by {columns} values. The largest effect, {effect[row, column]:.3g}, is that of "
    return style.titled(figure, title, f"{words}{names[row]} at {place}.")


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
        scores = found.scores[kind]
        texts = [[weight_text(value) for value in row] for row in scores] if scores.size <= NUMBERED else None
        image = heat_map(ax, scores, weight_colors(), Normalize(0, 1), texts=texts)
        style.whole_ticks(ax.xaxis, ax.yaxis)
        ax.set_title(f"{kind} (by chance {found.chance[kind]:.2f})", fontsize=8.5)
        style.bare(ax, "head", "layer")
    style.color_bar(figure, axes, image, "share of attention")
    named = "; ".join(f"layer {one.layer} head {one.head} {one.kind} {one.score:.2f}" for one in found.named())
    words = f"maps of the scores of {layers} by {heads} heads for {', '.join(kinds)}"
    return style.titled(figure, title, f"{words}. {named or 'No head is clearly of a kind'}.")
