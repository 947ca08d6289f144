"""The losses of several runs, by step and by time."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..runs.comparison import Curves, Points
from .labels import plain
from .loss import smooth
from .style import new_figure, styled, titled
from .theme import colors

COLORS = ("blue", "vermilion", "green", "purple", "orange", "sky")
LINES = ("-", "--", ":", "-.")
MOST_POINTS = 2000
"""More points of a training loss than that are never seen."""


@styled
def loss_comparison(runs: Sequence[Curves], *, title: str = "Losses") -> Figure:
    """Draw the losses of runs, by step on the left and by seconds of training on the right.

    Validation is drawn with dots, training smoothed and pale behind it. Runs may differ in length, and what a run has
    not recorded is left out.
    """
    figure = new_figure(10.4, 4.2)
    drawn = [one for one in runs if one.training.values or one.validation.values]
    if not drawn:
        figure.text(0.5, 0.5, "no metrics were recorded", ha="center", va="center", color=colors().quiet)
        return titled(figure, title, "no metrics were recorded.")
    left, right = figure.subplots(1, 2, sharey=True)
    _panel(left, drawn, lambda points: points.steps)
    _panel(right, drawn, lambda points: points.seconds)
    left.set(xlabel="step", ylabel="loss" + _scaled(left, right, drawn))
    right.set_xlabel("seconds of training")
    both = any(one.training.values and one.validation.values for one in drawn)
    named = "dots: validation\npale: training, smoothed" if both else None
    left.legend(loc="upper right", fontsize=8, title=named, title_fontsize=7.5, alignment="left")
    return titled(figure, title, "; ".join(map(_words, drawn)) + ".")


def _panel(ax: Axes, runs: Sequence[Curves], axis: Callable[[Points], Sequence[float]]) -> None:
    ax.grid(visible=True)
    for number, run in enumerate(runs):
        color = getattr(colors(), COLORS[number % len(COLORS)])
        style: dict[str, Any] = {"color": color, "linestyle": LINES[number // len(COLORS) % len(LINES)]}
        train, judged, name = run.training, run.validation, plain(run.name)
        if train.values:
            every = slice(None, None, max(1, len(train.values) // MOST_POINTS))
            pale = {"alpha": 0.4, "linewidth": 1.0} if judged.values else {"label": name}
            averaged = smooth(np.array(train.values), len(train.values) / 40)
            ax.plot(axis(train)[every], averaged[every], **style, **pale)
        if judged.values:
            ax.plot(axis(judged), judged.values, marker="o", markersize=3.5, label=name, **style)


def _scaled(left: Axes, right: Axes, runs: Sequence[Curves]) -> str:
    """Use a logarithmic scale where losses fall by more than a factor of 30; say so."""
    every = list(itertools.chain.from_iterable((*run.training.values, *run.validation.values) for run in runs))
    if min(every) <= 0 or max(every) <= 30 * min(every):
        return ""
    for ax in (left, right):
        ax.set_yscale("log")
    return " (log scale)"


def _words(run: Curves) -> str:
    parts = [
        f"{name} loss from {points.values[0]:.3g} to {points.values[-1]:.3g} at step {points.steps[-1]:,}, "
        f"after {points.seconds[-1]:.3g} s"
        for name, points in (("training", run.training), ("validation", run.validation))
        if points.values
    ]
    return f"{run.name}: {' and '.join(parts)}"
