"""The course of a training as small multiples: what a replay measured, step by step."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..arrays import Array
from ..errors import ConfigError
from .style import are_far_apart, log_scale, new_figure, styled, titled
from .theme import colors, weight_colors

SHOWN = 6
"""Frames whose attention is drawn, at most."""
HEADS = 6
"""Heads whose attention is drawn, at most, unless heads are chosen: those that change the most."""
LINES = 8
"""Curves of one panel, at most: those that change the most."""


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
    strips = [(weights, at) for weights in maps for at in _chosen(weights, heads)]
    figure = new_figure(9.0, 2.0 * len(curves) + 1.5 * len(strips) + 0.6)
    parts = iter(figure.subfigures(len(curves) + len(strips), 1, squeeze=False).ravel())
    for name, lines in curves.items():
        _panel(next(parts).subplots(), name, np.asarray(steps), lines)
    for weights, at in strips:
        _strip(next(parts), np.asarray(steps), weights[:, *at], f"layer {at[0]}\nhead {at[1]}")
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
            drawn = np.ndindex(array.shape[1:]) if heads is None else _checked(array, heads)
            panels[name] = {f"layer {layer}, head {head}": array[:, layer, head] for layer, head in drawn}
        else:
            group, _, own = name.partition(".")
            panels.setdefault(group, {})[own or name] = array
    return {name: dict(sorted(lines.items(), key=_change, reverse=True)[:LINES]) for name, lines in panels.items()}


def _change(line: tuple[str, Array]) -> float:
    found = line[1][np.isfinite(line[1])]
    return float(np.ptp(found)) if len(found) else 0.0


def _checked(array: Array, heads: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    layers, count = array.shape[1:3]
    for layer, head in heads:
        if not (0 <= layer < layers and 0 <= head < count):
            raise ConfigError(
                f"there is no head {head} in layer {layer}", hint=f"there are {layers} by {count}, from (0, 0) on"
            )
    return [(layer, head) for layer, head in heads]


def _chosen(weights: Array, heads: Sequence[tuple[int, int]] | None) -> list[tuple[int, int]]:
    """Return the heads of attention (N, L, H, T, S) to draw."""
    if heads is not None:
        return _checked(weights, heads)
    change = np.abs(weights - weights[:1]).max(axis=(0, 3, 4)).ravel()
    most = sorted(np.argsort(-change, kind="stable")[:HEADS].tolist())
    return [divmod(number, weights.shape[2]) for number in most]


def _panel(ax: Axes, name: str, steps: Array, lines: Mapping[str, Array]) -> None:
    ax.grid(visible=True)
    for (own, y), color in zip(lines.items(), colors().series, strict=False):
        ax.plot(steps, y, color=color, label=own, linewidth=1.4)
    every = np.concatenate([y[np.isfinite(y)] for y in lines.values()])
    if are_far_apart(every):
        log_scale(ax)
    ax.set(ylabel=name, xlabel="step")
    if len(lines) > 1:
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), fontsize=7.5)


def _strip(part: Any, steps: Array, weights: Array, label: str) -> None:
    """Draw one head (N, T, S) at a few steps."""
    chosen = np.unique(np.linspace(0, len(steps) - 1, min(SHOWN, len(steps))).round().astype(int))
    for ax, frame in zip(np.ravel(part.subplots(1, len(chosen))), chosen, strict=True):
        ax.imshow(weights[frame], cmap=weight_colors(), vmin=0, vmax=1)
        ax.set_title(f"step {steps[frame]:,}", fontsize=8)
        ax.set(xticks=[], yticks=[], ylabel=label if frame == chosen[0] else "")
