"""The course of a training: small multiples of what a replay measured, and a page to go through it step by step."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..arrays import Array
from ..errors import ConfigError
from .style import new_figure, styled, titled
from .theme import colors, weight_colors
from .ticks import are_far_apart, log_scale

SHOWN = 6
"""Frames whose attention is drawn, at most."""
HEADS = 6
"""Heads whose attention is drawn, at most: those that change the most."""
LINES = 8
"""Curves of one panel, at most: those that change the most."""


@styled
def training_course(
    steps: Sequence[int], values: Mapping[str, Any], *, title: str = "Training, step by step"
) -> Figure:
    """Draw what was measured of some frames of a training: numbers as curves, attention as small maps.

    steps    (N,)
    values   by name: (N,) a number for each frame; (N, L, H) one for each head; (N, L, H, T, S) attention. Texts are
             left out. Names that differ behind their last dot only, such as norms of all parameters, share a panel
    """
    curves = _curves(np.asarray(steps), values)
    maps = [np.asarray(value) for value in values.values() if not isinstance(value, list) and np.ndim(value) == 5]
    if not curves and not maps:
        raise ConfigError("there is nothing to draw of this course", hint="measure numbers or attention")
    heads = [_moving(weights.reshape(len(weights), -1, *weights.shape[3:]), HEADS) for weights in maps]
    rows = len(curves) + sum(map(len, heads))
    figure = new_figure(9.0, 2.0 * len(curves) + 1.5 * (rows - len(curves)) + 0.6)
    parts = iter(figure.subfigures(rows, 1, squeeze=False).ravel())
    for name, lines in curves.items():
        _panel(next(parts).subplots(), name, np.asarray(steps), lines)
    for weights, chosen in zip(maps, heads, strict=True):
        for number in chosen:
            _strip(next(parts), np.asarray(steps), weights, number)
    words = ", ".join([*curves, *("attention" for _ in maps)])
    return titled(figure, title, f"{words} at {len(steps)} steps from {steps[0]:,} to {steps[-1]:,}.")


def _curves(steps: Array, values: Mapping[str, Any]) -> dict[str, dict[str, Array]]:
    """Return the panels, each with its curves by name."""
    panels: dict[str, dict[str, Array]] = {}
    for name, value in values.items():
        if isinstance(value, list) or np.ndim(value) not in (1, 3):
            continue
        array = np.asarray(value, dtype=np.float64)
        if array.ndim == 3:
            _, layers, heads = array.shape
            panels[name] = {f"layer {i + 1}, head {j + 1}": array[:, i, j] for i in range(layers) for j in range(heads)}
        else:
            group, _, own = name.partition(".")
            panels.setdefault(group, {})[own or name] = array
    return {name: _most(lines) for name, lines in panels.items() if len(steps)}


def _most(lines: dict[str, Array]) -> dict[str, Array]:
    """Return the curves that change the most."""

    def change(name: str) -> float:
        found = lines[name][np.isfinite(lines[name])]
        return float(found.max() - found.min()) if len(found) else 0.0

    return {name: lines[name] for name in sorted(lines, key=change, reverse=True)[:LINES]}


def _panel(ax: Axes, name: str, steps: Array, lines: dict[str, Array]) -> None:
    theme = colors()
    ramp = [theme.blue, theme.vermilion, theme.green, theme.purple, theme.orange, theme.sky, theme.brown, theme.gray]
    ax.grid(visible=True)
    for (own, y), color in zip(lines.items(), ramp, strict=False):
        ax.plot(steps, y, color=color, label=own, linewidth=1.4)
    every = np.concatenate([y[np.isfinite(y)] for y in lines.values()])
    if are_far_apart(every):
        log_scale(ax, every)
    ax.set_ylabel(name)
    ax.set_xlabel("step")
    if len(lines) > 1:
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7.5)


def _moving(weights: Array, count: int) -> list[int]:
    """Return the numbers of the heads whose attention (N, heads, T, S) changes the most."""
    change = np.abs(weights - weights[:1]).max(axis=(0, 2, 3))
    return sorted(np.argsort(-change, kind="stable")[:count].tolist())


def _strip(part: Any, steps: Array, weights: Array, number: int) -> None:
    """Draw one head at a few steps."""
    heads = weights.shape[2]
    layer, head = divmod(number, heads)
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(SHOWN, len(steps))).round().astype(int))
    for ax, frame in zip(np.ravel(part.subplots(1, len(chosen))), chosen, strict=True):
        ax.imshow(weights[frame, layer, head], cmap=weight_colors(), vmin=0, vmax=1)
        ax.set_title(f"step {steps[frame]:,}", fontsize=8)
        ax.set_xticks([])
        ax.set_yticks([])
        if frame == chosen[0]:
            ax.set_ylabel(f"layer {layer + 1}\nhead {head + 1}", fontsize=8)


def decimated(metrics: Sequence[Mapping[str, Any]], count: int = 400) -> list[tuple[int, float]]:
    """Return about so many points of the loss curve of a run: means of neighbors."""
    points = [(line["step"], line["loss"]) for line in metrics if line.get("loss") is not None]
    size = max(1, math.ceil(len(points) / count))
    pieces = [points[i : i + size] for i in range(0, len(points), size)]
    return [(piece[-1][0], sum(loss for _, loss in piece) / len(piece)) for piece in pieces]
