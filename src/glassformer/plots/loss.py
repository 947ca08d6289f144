"""How a training went."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..arrays import Array
from .style import new_figure, styled, titled
from .theme import colors
from .ticks import are_far_apart, log_scale, round_numbers

FEW = 20
"""So few losses are drawn as dots."""
SPAN = 40
"""A smoothed curve averages over this part of it; where that is not even two losses, there is nothing to smooth."""


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
        figure.text(0.5, 0.5, "no metrics were recorded", ha="center", va="center", color=colors().quiet)
        return titled(figure, title, "no metrics were recorded.")
    if has_accuracy:
        ax, below = figure.subplots(2, 1, sharex=True, height_ratios=[2.4, 1])
        _accuracy(below, *points["accuracy"])
    else:
        ax = below = figure.subplots()
    _losses(ax, points["loss"], points["val_loss"])
    below.set_xlabel("step")
    below.xaxis.set_major_locator(round_numbers(integer=True))
    return titled(figure, title, f"{_words(points)}.")


def smooth(y: Array, span: float) -> Array:
    """Return the mean of about `span` values around each, near the ends of as many as there are.

    An average of those before alone would stay behind a curve that falls.
    """
    half = int(max(span, 1.0) / 2)
    sums = np.concatenate(([0.0], np.cumsum(y)))
    places = np.arange(len(y))
    first, end = np.maximum(places - half, 0), np.minimum(places + half + 1, len(y))
    return (sums[end] - sums[first]) / (end - first)


def smooth_losses(losses: Array, *, logarithmic: bool) -> Array:
    """Return losses smoothed as the scale shows them, so that the curve runs through the middle of them."""
    span = len(losses) / SPAN
    return np.exp(smooth(np.log(losses), span)) if logarithmic else smooth(losses, span)


def _losses(ax: Axes, train: tuple[Array, Array], validation: tuple[Array, Array]) -> None:
    ax.grid(visible=True)
    count = len(train[0])
    smoothed = count >= 2 * SPAN
    every = np.concatenate((train[1], validation[1]))
    logarithmic = are_far_apart(every)
    if count:
        line: dict[str, Any] = {"color": colors().blue, **({"marker": "o", "markersize": 3} if count < FEW else {})}
        thread: dict[str, Any] = {"color": colors().sky, "linewidth": 0.8, "alpha": 0.6}
        ax.plot(*train, label="training", **(thread if smoothed else line))
        if smoothed:
            curve = smooth_losses(train[1], logarithmic=logarithmic)
            ax.plot(train[0], curve, color=colors().blue, label="training, smoothed")
    if len(validation[0]):
        name = f"validation, last {validation[1][-1]:.3g}"
        ax.plot(
            *validation, color=colors().vermilion, marker="o", markersize=4, markeredgecolor=colors().page, label=name
        )
    if logarithmic:
        log_scale(ax, every)
    ax.set_ylabel("loss (log scale)" if logarithmic else "loss")
    if len(every):
        # Above the curves, since they may be anywhere: a loss can rise as well.
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, borderaxespad=0.1)


def _accuracy(ax: Axes, steps: Array, values: Array) -> None:
    ax.grid(visible=True)
    ax.plot(steps, values, color=colors().green, marker="o", markersize=4, markeredgecolor=colors().page)
    # A little more than from nothing to everything, so that dots at the ends are whole.
    ax.set_ylim(-0.08, 1.08)
    ax.set_yticks([0, 0.5, 1], ["0", "50 %", "100 %"])
    ax.set_ylabel("accuracy")
    last = f"last: {100 * values[-1]:.2f} %"
    # In the half of the panel where the curve does not end.
    height = 0.2 if values[-1] > 0.5 else 0.8
    ax.text(0.995, height, last, transform=ax.transAxes, ha="right", fontsize=8.5, color=colors().quiet)


def _words(points: dict[str, tuple[Array, Array]]) -> str:
    names = {"loss": "training loss", "val_loss": "validation loss", "accuracy": "accuracy"}
    parts = [
        f"{names[name]} from {y[0]:.3g} at step {x[0]:g} to {y[-1]:.3g} at step {x[-1]:g}"
        for name, (x, y) in points.items()
        if len(x)
    ]
    return "; ".join(parts)
