"""`gf.study`: a grid of settings with seeds in one call, and rows that a DataFrame takes as they are."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.settings import check_known
from .catalog import digest_of
from .measures import WORDS, training
from .running import run_points
from .study import Grid, Point, Rows, Study, points_of

Measure = Callable[[Point, int], Any]


def study(
    grid: Grid,
    measure: Measure | str,
    *,
    seeds: int = 3,
    task: str | None = None,
    out: str | Path | None = None,
    show: bool = True,
    **settings: Any,
) -> Rows:
    """Measure all points of a grid with some seeds, and return one row for each run, for `pandas.DataFrame(rows)`.

    grid       a dict of lists, all combinations of which are points; or a list of dicts, the points themselves
    measure    a function of a point and a seed that returns a number or a dict of results; or "loss", "accuracy",
               "steps_taken", "parameters", "tokens" or "train_seconds" of training `task`
    seeds      runs of each point, with seeds 0, 1, …
    task       the name of the task to train, unless the points name theirs
    out        a folder to keep finished runs in: the same call goes on where it was stopped, and runs nothing twice
    show       progress, with the time left
    settings   of the task, the model and the recipe, the same at all points

    Settings that cannot be trained with are refused before the first run. A training that diverges is a row whose
    `diverged` is True.

    >>> import glassformer as gf
    >>> rows = gf.study({"lr": [0.003, 0.01]}, "loss", seeds=2, task="counting", steps=20, show=False)
    >>> [(row["lr"], row["seed"], row["loss"] < 3) for row in rows]
    [(0.003, 0, True), (0.003, 1, True), (0.01, 0, True), (0.01, 1, True)]
    """
    common = {**({} if task is None else {"task": task}), **settings}
    points = [{**common, **point} for point in points_of(grid)]
    if isinstance(measure, str):
        check_known("a training has no result", measure, WORDS)
        if not all("task" in point for point in points):
            raise ConfigError(f"{measure!r} is of a training, and no task is named", hint='add task="majority"')
        own, version, function = f"training_{measure}", "1", _word(measure)
    else:
        if common and not callable(measure):
            raise ConfigError(f"measure is {measure!r:.80}", hint="pass a function (point, seed), or a word: 'loss'")
        _check_function(measure)
        own, version, function = "own", digest_of(measure), measure
    made = Study(name=own, question="", grid=points, measure=function, seeds=seeds, version=version)
    checked = made.points() if isinstance(measure, str) else points_of(points)
    folder = None if out is None else Path(out)
    return run_points(made, checked, made.seeds_of(seeds, quick=False), folder, show=show)[0]


def _word(name: str) -> Measure:
    def measure(point: Point, seed: int) -> dict[str, Any]:
        found = training(seed=seed, **point)
        return {one: found.get(one) for one in ("diverged", name)}

    return measure


def _check_function(measure: Any) -> None:
    """Refuse what cannot be called with a point and a seed."""
    hint = "pass a function (point, seed) that returns a number or a dict, or a word: 'loss'"
    if not callable(measure):
        raise ConfigError(f"measure is {measure!r:.80}", hint=hint)
    try:
        inspect.signature(measure).bind({}, 0)
    except TypeError as error:
        name = getattr(measure, "__name__", "measure")
        raise ConfigError(f"{name} cannot be called with a point and a seed: {error}", hint=hint) from error
    except ValueError:  # it has no signature that can be read
        return
