"""Runs side by side: settings that differ, losses by step and by time, speed, and each model's answers."""

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict
from typing import Any, NamedTuple

from ..errors import GlassformerError
from ..models.accounting import parameters_by_part
from ..trained_model import TrainedModel
from .folder import RECENT
from .listing import progress
from .run import Run

ROWS = 10
"""Steps, and times, that a table compares, at most."""


class Points(NamedTuple):
    """Values of one run, each after a number of steps and seconds of training."""

    steps: list[int]
    seconds: list[float]
    values: list[float]


class Curves(NamedTuple):
    """The losses of one run; seconds are those of the steps alone, without evaluations and checkpoints."""

    name: str
    training: Points
    validation: Points


def curves_of(name: str, metrics: Sequence[Mapping[str, Any]]) -> Curves:
    """Return the losses that a metrics file holds; what is missing or no number is left out."""
    times = list(itertools.accumulate(_number(line.get("seconds")) or 0.0 for line in metrics))

    def points(field: str) -> Points:
        found = [
            (line["step"], time, value)
            for line, time in zip(metrics, times, strict=True)
            if (value := _number(line.get(field))) is not None
        ]
        return Points([row[0] for row in found], [row[1] for row in found], [row[2] for row in found])

    return Curves(name, points("loss"), points("val_loss"))


def figures_of(run: Run) -> dict[str, Any]:
    """Return how far a run came and how fast it was."""
    metrics = run.metrics()
    losses = [line["loss"] for line in metrics if line["loss"] is not None][-RECENT:]
    # The first step may compile or wait for the disk: it says nothing about the speed.
    tokens, time = (sum(line.get(name) or 0 for line in metrics[1:] or metrics) for name in ("tokens", "seconds"))
    return {
        "task": run.task_name,
        **progress(metrics, run.recipe.steps),
        "parameters": sum(parameters_by_part(run.config).values()),
        "recent_loss": sum(losses) / len(losses) if losses else None,
        "tokens": sum(line.get("tokens") or 0 for line in metrics),
        "seconds": round(sum(line.get("seconds") or 0.0 for line in metrics), 3),
        "tokens_per_second": round(tokens / time, 1) if time else None,
    }


def settings_of(run: Run) -> dict[str, Any]:
    """Return all settings of a run, by name."""
    record, data = run.provenance, run.provenance.data
    lora = {} if run.lora is None else {f"lora_{name}": value for name, value in run.lora.to_dict().items()}
    return {
        "task": run.task_name,
        "preset": record.preset,
        **({} if run.base is None else {"from": run.base.source}),
        **lora,
        **{name: value for name, value in run.task_options.items() if name not in ("seed", "data")},
        "data": run.task_options.get("data") if data is None else data.source,
        "data SHA-256": None if data is None else data.sha256[:12],
        **run.config.to_dict(),
        **asdict(run.config),
        **{name: value for name, value in asdict(run.execution).items() if name != "rules"},
        **run.recipe.to_dict(),
        "engine": record.engine,
        "cores": record.cores,
        "platform": record.platform,
        **record.versions,
    }


def differing(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Return the settings in which runs differ, each with its value in every run; MISSING where a run has none."""
    every = [settings_of(run) for run in runs]
    names = dict.fromkeys(name for one in every for name in one)
    rows = {name: [one.get(name, MISSING) for one in every] for name in names}
    return {name: values for name, values in rows.items() if any(value != values[0] for value in values)}


def by_step(curves: Sequence[Curves]) -> list[tuple[int, list[float | None]]]:
    """Return, for some steps, the loss of the last evaluation up to then; None where a run ended before."""
    return _compared(curves, lambda points: points.steps)


def by_time(curves: Sequence[Curves]) -> list[tuple[float, list[float | None]]]:
    """Return, for some times, the loss of the last evaluation up to then; None where a run ended before."""
    return _compared(curves, lambda points: points.seconds)


def _compared(
    curves: Sequence[Curves], axis: Callable[[Points], Sequence[Any]]
) -> list[tuple[Any, list[float | None]]]:
    shown = [judged(one) for one in curves]
    places = sorted({place for points in shown for place in axis(points)})
    # The last of each run is where it is to be judged; the others are spread evenly.
    kept = {axis(points)[-1] for points in shown if points.values}
    free = max(ROWS - len(kept), 1)
    kept |= {places[i * (len(places) - 1) // free] for i in range(free)} if places else set()

    def value(points: Points, place: Any) -> float | None:
        at = axis(points)
        number = bisect.bisect_right(at, place)
        return points.values[number - 1] if number and place <= at[-1] else None

    return [(place, [value(points, place) for points in shown]) for place in sorted(kept)]


def judged(curves: Curves) -> Points:
    """Return the losses that a run is judged by: those of validation, or of training where nothing was evaluated."""
    return curves.validation if curves.validation.values else curves.training


def samples_or_reason(run: Run, *, count: int = 3, length: int = 80) -> list[tuple[str, str]] | str:
    """Return some prompts of the task, each with the best model's answer, or why there are none."""
    try:
        return TrainedModel.of_task(run.model, run.load_params(), run.task()).samples(count, length)
    except (GlassformerError, OSError) as error:  # there is no checkpoint yet, or its data is gone
        return error.fact if isinstance(error, GlassformerError) else str(error)


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
