"""The losses of several runs, by step and by time."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..runs.comparison import Curves, Points
from .labels import plain, text_width
from .loss import smooth_losses
from .style import new_figure, styled, titled
from .theme import colors
from .ticks import are_far_apart, log_scale, round_numbers

COLORS = ("blue", "vermilion", "green", "purple", "orange", "sky")
LINES = ("-", "--", ":", "-.")
WIDTH = 10.4
LEGEND = 8.5
"""The size of letters in the legend."""
MOST_POINTS = 2000
"""More points of a training loss than that are never seen."""


@styled
def loss_comparison(runs: Sequence[Curves], *, title: str = "Losses") -> Figure:
    """Draw the losses of runs, by step on the left and by seconds of training on the right.

    Validation is drawn with dots, training smoothed and pale behind it. Runs may differ in length, and what a run has
    not recorded is left out.
    """
    drawn = [one for one in runs if one.training.values or one.validation.values]
    longest = max((text_width(plain(one.name), LEGEND) for one in drawn), default=0.0)
    columns = int(np.clip(72 * WIDTH / (longest + 50), 1, 4))
    figure = new_figure(WIDTH, 4.4 + 0.2 * ((len(drawn) - 1) // columns))
    if not drawn:
        figure.text(0.5, 0.5, "no metrics were recorded", ha="center", va="center", color=colors().quiet)
        return titled(figure, title, "no metrics were recorded.")
    left, right = figure.subplots(1, 2, sharey=True)
    every = np.concatenate([[*run.training.values, *run.validation.values] for run in drawn])
    logarithmic = are_far_apart(every)
    _panel(left, drawn, lambda points: points.steps, logarithmic=logarithmic)
    _panel(right, drawn, lambda points: points.seconds, logarithmic=logarithmic)
    for ax in (left, right) if logarithmic else ():
        log_scale(ax, every)
    left.set(xlabel="step", ylabel="loss (log scale)" if logarithmic else "loss")
    left.xaxis.set_major_locator(round_numbers(integer=True))
    right.set_xlabel("seconds of training")
    both = any(one.training.values and one.validation.values for one in drawn)
    named = "dots: validation · pale: training, smoothed" if both else None
    # Below the curves, since they may be anywhere.
    handles = left.get_legend_handles_labels()
    look: dict[str, Any] = {"ncols": columns, "fontsize": LEGEND, "title": named, "title_fontsize": 8}
    figure.legend(*handles, loc="outside lower center", **look)
    return titled(figure, title, "; ".join(map(_words, drawn)) + ".")


def _panel(ax: Axes, runs: Sequence[Curves], axis: Callable[[Points], Sequence[float]], *, logarithmic: bool) -> None:
    ax.grid(visible=True)
    for number, run in enumerate(runs):
        color = getattr(colors(), COLORS[number % len(COLORS)])
        style: dict[str, Any] = {"color": color, "linestyle": LINES[number // len(COLORS) % len(LINES)]}
        train, judged, name = run.training, run.validation, plain(run.name)
        if train.values:
            every = slice(None, None, max(1, len(train.values) // MOST_POINTS))
            pale = {"alpha": 0.4, "linewidth": 1.0} if judged.values else {"label": name}
            averaged = smooth_losses(np.array(train.values), logarithmic=logarithmic)
            ax.plot(axis(train)[every], averaged[every], **style, **pale)
        if judged.values:
            ax.plot(axis(judged), judged.values, marker="o", markersize=3.5, label=name, **style)


def _words(run: Curves) -> str:
    parts = [
        f"{name} loss from {points.values[0]:.3g} to {points.values[-1]:.3g} at step {points.steps[-1]:,}, "
        f"after {points.seconds[-1]:.3g} s"
        for name, points in (("training", run.training), ("validation", run.validation))
        if points.values
    ]
    return f"{run.name}: {' and '.join(parts)}"
