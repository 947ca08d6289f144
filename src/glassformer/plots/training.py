"""Figures of trainings: the losses of one run or of several, and the measures of a replay step by step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ..core.arrays import Array
from ..core.errors import ConfigError
from ..runs.listing import Curves, curves_of
from .charts import curve, heat_map
from .style import are_far_apart, colors, log_scale, new_figure, styled, titled, weight_colors, whole_ticks

SPAN = 40
"""A smoothed curve averages over one part in this many; curves of fewer than twice as many points are not smoothed."""
MOST_POINTS = 2000
"""Points of a training loss that are drawn, at most."""
LINES = ("-", "--", ":", "-.")
MOST_FRAMES, MOST_HEADS, MOST_LINES = 6, 6, 8
"""Frames whose attention is drawn; heads, unless they are chosen, and curves of a panel: those that change the most."""


@styled
def loss_curve(metrics: Sequence[Mapping[str, Any]], *, title: str = "Loss") -> Figure:
    """Draw the training loss, smoothed as well, the validation loss and, where there is one, the accuracy.

    Each record may hold step, loss, val_loss and accuracy; what is missing, None or not finite is left out. A loss
    that falls by more than a factor of 30, or leaps beyond ten times its median, is drawn on a logarithmic scale.
    """
    steps = np.array([record.get("step", number) for number, record in enumerate(metrics)], dtype=np.float64)
    points = {}
    for name in ("loss", "val_loss", "accuracy"):
        y = np.array([record.get(name) for record in metrics], dtype=np.float64)  # None becomes NaN
        points[name] = steps[np.isfinite(y)], y[np.isfinite(y)]
    has_accuracy = len(points["accuracy"][0]) > 0
    figure = new_figure(7.6, 5.2 if has_accuracy else 3.9)
    if not any(len(x) for x, _ in points.values()):
        return _nothing(figure, title)
    heights = [2.4, 1] if has_accuracy else [1]
    axes = figure.subplots(len(heights), 1, sharex=True, height_ratios=heights, squeeze=False).ravel()
    _losses(axes[0], points["loss"], points["val_loss"])
    if has_accuracy:
        _accuracy(axes[1], *points["accuracy"])
    axes[-1].set_xlabel("step")
    whole_ticks(axes[-1].xaxis)
    named = zip(("training loss", "validation loss", "accuracy"), points.values(), strict=True)
    said = [
        f"{name} from {y[0]:.3g} at step {x[0]:g} to {y[-1]:.3g} at step {x[-1]:g}" for name, (x, y) in named if len(x)
    ]
    return titled(figure, title, f"{'; '.join(said)}.")


@styled
def loss_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]], *, title: str = "Losses") -> Figure:
    """Draw the losses of several runs, by step on the left and by seconds of training on the right.

        loss_curves({"small": small.metrics, "large": large.metrics})

    Validation is drawn with dots, training smoothed and pale behind it. Runs may differ in length, and what a run has
    not recorded is left out.
    """
    every = [curves_of(name, metrics) for name, metrics in runs.items()]
    drawn = [run for run in every if run.training.values or run.validation.values]
    figure = new_figure(10.4, 4.4 + 0.2 * (len(drawn) // 3))
    if not drawn:
        return _nothing(figure, title)
    left, right = figure.subplots(1, 2, sharey=True)
    logarithmic = are_far_apart(np.concatenate([[*run.training.values, *run.validation.values] for run in drawn]))
    for number, run in enumerate(drawn):
        _run(left, run, "steps", number, logarithmic=logarithmic)
        _run(right, run, "seconds", number, logarithmic=logarithmic)
    if logarithmic:
        log_scale(left)
    left.set(xlabel="step", ylabel="loss (log scale)" if logarithmic else "loss")
    whole_ticks(left.xaxis)
    right.set_xlabel("seconds of training")
    both = any(run.training.values and run.validation.values for run in drawn)
    named = "dots: validation · pale: training, smoothed" if both else None
    # Below the curves, which may be anywhere.
    handles = left.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=8.5, title=named, title_fontsize=8)
    return titled(figure, title, "; ".join(map(_words, drawn)) + ".")


def smooth(y: Array, span: float) -> Array:
    """Return the mean of about `span` values around each, near the ends of as many as there are.

    An average of those before alone would lag behind a falling curve.
    """
    half = int(max(span, 1.0) / 2)
    sums = np.concatenate(([0.0], np.cumsum(y)))
    places = np.arange(len(y))
    first, end = np.maximum(places - half, 0), np.minimum(places + half + 1, len(y))
    return (sums[end] - sums[first]) / (end - first)


def smooth_losses(losses: Array, *, logarithmic: bool) -> Array:
    """Return losses smoothed on the scale that shows them."""
    span = len(losses) / SPAN
    return np.exp(smooth(np.log(losses), span)) if logarithmic else smooth(losses, span)


def _nothing(figure: Figure, title: str) -> Figure:
    figure.text(0.5, 0.5, "no metrics were recorded", ha="center", va="center", color=colors().quiet)
    return titled(figure, title, "no metrics were recorded.")


def _losses(ax: Axes, train: tuple[Array, Array], validation: tuple[Array, Array]) -> None:
    every = np.concatenate((train[1], validation[1]))
    logarithmic = are_far_apart(every)
    if len(train[0]) >= 2 * SPAN:
        curve(ax, *train, colors().sky, "training", linewidth=0.8, alpha=0.6)
        curve(ax, train[0], smooth_losses(train[1], logarithmic=logarithmic), colors().blue, "training, smoothed")
    elif len(train[0]):
        curve(ax, *train, colors().blue, "training")
    if len(validation[0]):
        curve(ax, *validation, colors().vermilion, f"validation, last {validation[1][-1]:.3g}", dots=True)
    if logarithmic:
        log_scale(ax)
    ax.set_ylabel("loss (log scale)" if logarithmic else "loss")
    if len(every):
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.1)


def _accuracy(ax: Axes, steps: Array, values: Array) -> None:
    curve(ax, steps, values, colors().green, dots=True)
    ax.set_ylim(-0.08, 1.08)
    ax.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    ax.set_ylabel("accuracy")
    # In the half of the panel where the curve does not end.
    height = 0.2 if values[-1] > 0.5 else 0.8
    last = f"last: {100 * values[-1]:.2f} %"
    ax.text(0.995, height, last, transform=ax.transAxes, ha="right", fontsize=8.5, color=colors().quiet)


def _run(ax: Axes, run: Curves, axis: str, number: int, *, logarithmic: bool) -> None:
    """Draw the losses of one run."""
    series, train, validation = colors().series, run.training, run.validation
    color, line = series[number % len(series)], LINES[number // len(series) % len(LINES)]
    if train.values:
        every = slice(None, None, max(1, len(train.values) // MOST_POINTS))
        averaged = smooth_losses(np.array(train.values), logarithmic=logarithmic)[every]
        pale: dict[str, Any] = {"alpha": 0.4, "linewidth": 1.0, "marker": ""} if validation.values else {}
        label = None if validation.values else run.name
        curve(ax, getattr(train, axis)[every], averaged, color, label, linestyle=line, **pale)
    if validation.values:
        curve(ax, getattr(validation, axis), validation.values, color, run.name, dots=True, linestyle=line)


def _words(run: Curves) -> str:
    parts = [
        f"{name} loss from {points.values[0]:.3g} to {points.values[-1]:.3g} at step {points.steps[-1]:,}, "
        f"after {points.seconds[-1]:.3g} s"
        for name, points in (("training", run.training), ("validation", run.validation))
        if points.values
    ]
    return f"{run.name}: {' and '.join(parts)}"


@styled
def training_course(
    steps: Sequence[int],
    values: Mapping[str, Any],
    *,
    heads: Sequence[tuple[int, int]] | None = None,
    title: str = "Training, step by step",
) -> Figure:
    """Draw what was measured of some frames of a training: numbers as curves, attention as small maps.

    steps    (N,)
    values   by name: (N,) a number for each frame; (N, L, H) one for each head; (N, L, H, T, S) attention. Texts are
             left out. Names with the same word before their first dot, such as norms of parameters, share a panel
    heads    (layer, head) from 0: those to draw; None: those that change the most
    """
    curves = _curves(values, heads)
    maps = [np.asarray(value) for value in values.values() if not isinstance(value, list) and np.ndim(value) == 5]
    if not len(steps) or not (curves or maps):
        raise ConfigError("there is nothing to draw of this course", hint="measure numbers or attention")
    strips = [(weights, at) for weights in maps for at in _chosen(weights, heads, MOST_HEADS)]
    figure = new_figure(9.0, 2.0 * len(curves) + 1.5 * len(strips) + 0.6)
    parts = iter(figure.subfigures(len(curves) + len(strips), 1, squeeze=False).ravel())
    for name, lines in curves.items():
        _measure_panel(next(parts).subplots(), name, np.asarray(steps), lines)
    for weights, (layer, head) in strips:
        _strip(next(parts), np.asarray(steps), weights[:, layer, head], f"layer {layer}\nhead {head}")
    words = ", ".join([*curves, *("attention" for _ in maps)])
    return titled(figure, title, f"{words} at {len(steps)} steps from {steps[0]:,} to {steps[-1]:,}.")


def _curves(values: Mapping[str, Any], heads: Sequence[tuple[int, int]] | None) -> dict[str, dict[str, Array]]:
    """Return the panels, each with its curves by name."""
    panels: dict[str, dict[str, Array]] = {}
    for name, value in values.items():
        if isinstance(value, list) or np.ndim(value) not in (1, 3):
            continue
        array = np.asarray(value, dtype=np.float64)
        if array.ndim == 3:
            drawn = _chosen(array, heads, array[0].size)
            panels[name] = {f"layer {layer}, head {head}": array[:, layer, head] for layer, head in drawn}
        else:
            group, _, rest = name.partition(".")
            panels.setdefault(group, {})[rest or name] = array

    def change(line: tuple[str, Array]) -> float:
        finite = line[1][np.isfinite(line[1])]
        return float(np.ptp(finite)) if len(finite) else 0.0

    return {name: dict(sorted(lines.items(), key=change, reverse=True)[:MOST_LINES]) for name, lines in panels.items()}


def _chosen(array: Array, heads: Sequence[tuple[int, int]] | None, most: int) -> list[tuple[int, int]]:
    """Return the heads of (N, L, H, …) to draw: those that are given, or those that change the most."""
    L, H = array.shape[1:3]
    for layer, head in heads or ():
        if not (0 <= layer < L and 0 <= head < H):
            raise ConfigError(f"there is no head {head} in layer {layer}", hint=f"there are {L} by {H}, from (0, 0) on")
    change = np.abs(array - array[:1]).reshape(len(array), L * H, -1).max(axis=(0, 2))
    order = np.argsort(-change, kind="stable")[:most].tolist()
    return sorted(divmod(number, H) for number in order) if heads is None else list(heads)


def _measure_panel(ax: Axes, name: str, steps: Array, lines: Mapping[str, Array]) -> None:
    for (label, y), color in zip(lines.items(), colors().series, strict=False):
        curve(ax, steps, y, color, label, linewidth=1.4)
    if are_far_apart(np.concatenate(list(lines.values()))):
        log_scale(ax)
    ax.set(ylabel=name, xlabel="step")
    if len(lines) > 1:
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7.5)


def _strip(part: Any, steps: Array, weights: Array, label: str) -> None:
    """Draw one head (N, T, S) at a few steps."""
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(MOST_FRAMES, len(steps))).round().astype(int))
    for ax, frame in zip(np.ravel(part.subplots(1, len(chosen))), chosen, strict=True):
        heat_map(ax, weights[frame], weight_colors(), Normalize(0, 1), aspect="equal")
        ax.set_title(f"step {steps[frame]:,}", fontsize=8)
        ax.set(xticks=[], yticks=[], ylabel=label if frame == chosen[0] else "")
