"""Figures of attention heads: their kinds, the positions that they look at most, and the effects of patched ones."""

import textwrap
from collections import Counter
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ..core.arrays import Array
from ..interpret import HeadScores, Patching, Paths
from ..interpret.paths import Place
from . import charts, style
from .attention_maps import MOST_HEADS
from .labels import visible_all, weight_text
from .style import colors, styled

NAMED_UP_TO = 8
"""What a head does is written into its cell where at most this many stand side by side."""


@styled
def head_specialization(found: HeadScores, *, title: str = "Do the heads specialize?") -> Figure:
    """Draw the specialization score of every head, a row for each layer, with the name of what the head does.

    Models with more layers than heads get a column for each layer, so that the figure is wider than high.
    """
    L, H = found.statistics.specialization.shape
    is_deep = max(H, NAMED_UP_TO) < L
    score = found.statistics.specialization.T if is_deep else found.statistics.specialization
    named = H <= NAMED_UP_TO and not is_deep
    texts = [[weight_text(value) for value in row] for row in score]
    if named:
        kinds = [[kind.replace("alignment to the ", "alignment\nto the ") for kind in row] for row in found.kinds]
        texts = [
            [f"{score[at]:.2f}\n{kinds[at[0]][at[1]]}" for at in ((row, head) for head in range(H))] for row in range(L)
        ]
    cell = (1.25, 0.72) if named else (float(np.clip(10 / score.shape[1], 0.3, 0.5)), 0.36)
    figure, (ax,), inches = charts.map_panels(1, score.shape, cell, page=(16, 40))
    # Not below 0.5, or a broad head would look like a specialist.
    top = max(float(score.max()), 0.5)
    image = charts.heat_map(ax, score, style.weight_colors(), Normalize(0, top), texts=texts, inches=inches)
    style.bare(ax, *(("layer", "head") if is_deep else ("head", "layer")))
    style.whole_ticks(ax.xaxis, ax.yaxis)
    charts.color_bar(figure, ax, image, f"specialization: 0 to {top:.2g}")
    listed = [f"layer {at[0]} head {at[1]}: {found.kinds[at[0]][at[1]]}" for at in np.ndindex(L, H)][:64]
    return style.titled(figure, title, f"the specialization score of {L} by {H} heads. {'; '.join(listed)}.")


@styled
def head_positions(
    found: HeadScores, labels: Sequence[str] | None = None, *, title: str = "Where each head looks"
) -> Figure:
    """Draw the share of its attention that each head gives to each key position.

    The line shows a head without preference. Where shares differ by far, as under a long causal mask, what is drawn is
    how many times that head's share they are, on a logarithmic scale. Of more than 16 heads, the most specialized of
    each kind are shown. `labels` name the positions of one example; None numbers them.
    """
    L, H = found.statistics.specialization.shape
    chosen = _most_specialized(found)
    shares, even = np.stack([found.statistics.received[at] for at in chosen]), found.statistics.expected
    names = [f"layer {layer}, head {head}: {found.kinds[layer][head]}" for layer, head in chosen]
    most = "; ".join(f"{name}, most at {row.argmax()}" for name, row in zip(names, shares, strict=True))
    # Where all heads are shown, a layer begins a row if it can.
    fitting = [columns for columns in (4, 3, 2) if H % columns == 0 and len(chosen) == L * H]
    columns = min(len(chosen), *fitting[:1] or (4,))
    width = float(np.clip(0.2 * len(even) + 0.5, 2.0, 10.4 / max(columns, 2)))
    figure = style.new_figure(max(columns * width + 0.6, 5.4), -(-len(chosen) // columns) * 1.45 + 1.2)
    relative = bool(style.are_far_apart(even) or shares.max() > 10 * np.median(shares))
    if relative:
        shares = np.maximum(np.divide(shares, even, out=np.ones_like(shares), where=even > 0), 1e-9)
        even = np.ones_like(even)
    size = min(8.0, 72 * (width - 0.15) / (style.LETTER * max(map(len, names))))
    for number, (ax, name) in enumerate(zip(style.panels(figure, len(chosen), columns), names, strict=True)):
        _shares(ax, shares[number], even, shares, relative=relative)
        _position_ticks(ax, labels, 0.9 * (width - 0.35))
        ax.tick_params(axis="y", labelsize=7.5, labelleft=number % columns == 0)
        ax.tick_params(axis="x", labelbottom=number + columns >= len(chosen))
        ax.set_title(name, fontsize=size, pad=3)
    what = "times even attention (log scale)" if relative else "share of attention"
    figure.supylabel(what, fontsize=9, color=colors().quiet)
    figure.supxlabel("key position · line: a head without preference", fontsize=9, color=colors().quiet)
    few = "" if len(chosen) == L * H else f" (of {L * H}, the most specialized of each kind)"
    return style.titled(figure, title + few, f"the share of attention that each position gets: {most}.")


def _shares(ax: Axes, row: Array, even: Array, every: Array, *, relative: bool) -> None:
    """Draw the shares of one head, on the scale of `every` head, and even attention as a line."""
    fills = [colors().blue if at == np.argmax(row) else colors().sky for at in range(len(row))]
    charts.bars(ax, row, fills, ground=float(relative))
    ax.stairs(even, np.arange(len(row) + 1) - 0.5, color=colors().ink, linewidth=1, baseline=None)
    ax.set_xlim(-0.7, max(len(row) - 0.3, 1.7))
    if relative:
        # What is near to even attention must not look like a preference; a few bars may leave the axis below.
        low = float(np.clip(np.quantile(every, 0.02), 0.05, 0.5))
        ax.set_ylim(low / 1.35, max(2.0, float(every.max())) * 1.7)
        style.log_scale(ax)
    else:
        ax.set_ylim(0, min(1.0, 1.25 * float(every.max())))


def _position_ticks(ax: Axes, labels: Sequence[str] | None, room: float) -> None:
    if labels is None:
        style.whole_ticks(ax.xaxis)
    else:
        style.token_ticks(ax.xaxis, visible_all(labels, 8), room=room)


def _most_specialized(found: HeadScores) -> list[tuple[int, int]]:
    """Return (layer, head) of those to show, in the order of the model: the best of every kind, then the next best."""
    order = sorted(
        np.ndindex(found.statistics.specialization.shape), key=lambda at: -found.statistics.specialization[at]
    )
    seen: Counter[str] = Counter()
    rank = {}
    for layer, head in order:
        kind = found.kinds[layer][head]
        rank[layer, head] = seen[kind]
        seen[kind] += 1
    return sorted(sorted(rank, key=rank.__getitem__)[:MOST_HEADS])


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
    below = visible_all(labels or (), 8)
    figure, (ax,), inches = charts.map_panels(1, effect.shape, (0.45, 0.25), names=names, below=below, page=(14, 60))
    size = np.nan_to_num(np.abs(effect))
    most = float(size.max()) or 1.0
    texts = [["" if np.isnan(value) else f"{value:.2f}" for value in row] for row in effect]
    image = charts.heat_map(ax, effect, style.signed_colors(), Normalize(-most, most), texts=texts, inches=inches)
    _position_ticks(ax, labels, inches[0])
    ax.set_yticks(range(len(names)), names)
    style.bare(ax, across)
    charts.color_bar(figure, ax, image, f"change of the {found.label}, from {found.run:.3g} towards {found.source:.3g}")
    row, column = divmod(int(size.argmax()), size.shape[1])
    at = f"{across} {column}" if labels is None else labels[column]
    words = f"heat map of {len(effect)} by {effect.shape[1]} values. The largest effect, {effect[row, column]:.3g}, is"
    return style.titled(figure, title, f"{words} that of {names[row]} at {at}.")


@styled
def detector_maps(found: HeadScores, *, title: str = "What heads look for") -> Figure:
    """Draw how much every head is of each kind, a row for each layer; what chance would give stands above."""
    kinds = list(found.scores)
    layers, heads = found.scores[kinds[0]].shape
    # Three maps side by side, in two lines, fill a page.
    cell = float(np.clip(0.42, 2.1 / heads, 3.0 / heads)), float(np.clip(0.36, 0.7 / layers, 2.6 / layers))
    figure, axes, inches = charts.map_panels(len(kinds), (layers, heads), cell)
    for ax, kind in zip(axes, kinds, strict=True):
        texts = [[weight_text(value) for value in row] for row in found.scores[kind]]
        ramp, norm = style.weight_colors(), Normalize(0, 1)
        image = charts.heat_map(ax, found.scores[kind], ramp, norm, texts=texts, inches=inches)
        style.whole_ticks(ax.xaxis, ax.yaxis)
        name = f"{kind} (by chance {found.chance[kind]:.2f})"
        ax.set_title(textwrap.fill(name, int(15 * inches[0])), fontsize=8.5)
        style.bare(ax, "head", "layer")
    charts.color_bar(figure, axes, image, "share of attention")
    named = "; ".join(f"layer {one.layer} head {one.head} {one.kind} {one.score:.2f}" for one in found.named())
    words = f"maps of the scores of {layers} by {heads} heads for {', '.join(kinds)}"
    return style.titled(figure, title, f"{words}. {named or 'No head is clearly of a kind'}.")
