"""A study as data: a question, a grid of settings, a measure, and seeds; its rows, and the checks before the first run.

A point is a flat dict of plain values that says everything its result depends on. A run is a point with a seed.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ..core.documents import as_read
from ..core.errors import ConfigError, GlassformerError
from ..core.settings import check_count, check_known
from .measures import check_training

Point = dict[str, Any]
Figures = dict[str, Any]
"""Figures of Matplotlib by name; nothing else of the package needs it."""
Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""All combinations of a dict's lists, or the points themselves."""
Best = Literal["lowest", "highest"]
TAKEN = ("seed", "diverged")
"""Columns of every row, which no setting of a point may be called."""


class Summary(NamedTuple):
    """A result over seeds: its mean, its lowest and highest value, and how many runs have it.

    >>> from glassformer.studies import Summary
    >>> f"{Summary(0.5, 0.25, 0.75, runs=3):.0%}"
    '50% (25% to 75%)'
    """

    mean: float
    low: float
    high: float
    runs: int

    def __format__(self, spec: str) -> str:
        mean, low, high = (format(value, spec) for value in self[:3])
        return mean if low == high else f"{mean} ({low} to {high})"


def summary(values: Iterable[float]) -> Summary:
    """Return what some values have in common; all NaN where there are none."""
    found = [float(value) for value in values]
    if not found:
        return Summary(math.nan, math.nan, math.nan, 0)
    return Summary(float(np.mean(found)), min(found), max(found), len(found))


class Rows(list[dict[str, Any]]):
    """One flat dict for each run: its point, its seed, whether it diverged, and its results, for `pandas.DataFrame`.

    Results that a diverged run does not have are NaN.

    >>> from glassformer.studies import Rows
    >>> rows = Rows([{"lr": 0.1, "seed": 0, "loss": 2.0}, {"lr": 0.1, "seed": 1, "loss": 4.0}])
    >>> rows.mean("loss", by="lr"), len(rows.where(seed=1))
    ({0.1: Summary(mean=3.0, low=2.0, high=4.0, runs=2)}, 1)
    """

    @property
    def columns(self) -> list[str]:
        """The names of all columns, in their order."""
        return list(dict.fromkeys(name for row in self for name in row))

    def where(self, **given: Any) -> "Rows":
        """Return the rows with these values."""
        self._check(given)
        return Rows(row for row in self if all(row.get(name) == value for name, value in given.items()))

    def values(self, name: str) -> list[Any]:
        """Return the values of a column that occur, each once, in their order."""
        self._check([name])
        return list(dict.fromkeys(_key(row[name]) for row in self if name in row))

    def mean(self, name: str, by: str | Sequence[str] = ()) -> dict[Any, Summary]:
        """Return the mean, lowest and highest value of a result over the rows that agree in `by`; NaN is left out.

        by   one column, whose values are the keys; or several, and the keys are tuples of their values
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        self._check([name, *names])
        groups: dict[Any, list[float]] = {}
        for row in self:
            key = _key(row.get(by)) if isinstance(by, str) else tuple(_key(row.get(one)) for one in names)
            found, value = groups.setdefault(key, []), row.get(name)
            if value is not None and math.isfinite(value):
                found.append(float(value))
        return {key: summary(found) for key, found in groups.items()}

    def _check(self, names: Iterable[str]) -> None:
        for name in names:
            check_known("these rows have no column", name, self.columns)


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True)
class Study:
    """An experiment: its points, its measure, and what its results are compared with.

    name          of the study, and of its folder
    question      one sentence, which ends with a question mark
    published     the published finding that it stands beside, with its source
    grid          the points: a function that is told whether the study is to be quick, or a dict of lists (all
                  combinations), or a list of dicts. A point holds everything that its result depends on
    measure       what is measured at a point with a seed: a function of both that returns a dict of results (numbers,
                  texts, short lists of numbers). It keeps no state, and registers the parts that it needs itself
    answers       the results that answer the question, each with its best: {"loss": "lowest"}; by default the first
    whole         what is compared: settings with the value that all others are compared with, {"part": "nothing"}.
                  Each setting is compared by itself, averaged over all others; by default, all points are compared
    by            settings that are compared within each of their values only, such as a task
    derived       makes of the measured rows those that are compared, where they are others
    caveat        what to keep in mind with every result
    finding       sentences computed from the rows, in place of those that say how settings compare
    figures       figures by name, drawn from the rows; `plots.style.titled` gives each the words that stand below it
    columns       of the table; by default the settings that vary, and the numbers that were measured
    seeds         runs of each point, with seeds 0, 1, …; `quick_seeds` of a quick study
    minutes       what it takes in full, on two cores of a Sapphire Rapids Xeon
    check         refuses a point by raising an error before the first run; by default, a point with a `task` has to be
                  the settings of a training, but for `labels`
    labels        what a point holds beside the settings of its training
    rows_from     reads rows from a file of the user's in place of running anything (`--from FILE`)
    version       raise it when `measure` changes its results: kept rows of other versions are not used
    """

    name: str
    question: str
    grid: Callable[[bool], Grid] | Grid
    measure: Callable[[Point, int], dict[str, Any]]
    published: str = ""
    answers: Mapping[str, Best] = field(default_factory=dict)
    whole: Mapping[str, Any] = field(default_factory=dict)
    by: tuple[str, ...] = ()
    derived: Callable[[Rows], Rows] | None = None
    caveat: str = ""
    finding: Callable[[Rows], list[str]] | None = None
    figures: Callable[[Rows], Figures] | None = None
    columns: tuple[str, ...] = ()
    seeds: int = 3
    quick_seeds: int = 1
    minutes: float = 1.0
    check: Callable[[Point], None] | None = None
    labels: tuple[str, ...] = ()
    rows_from: Callable[[Path], Rows] | None = None
    version: int | str = 1

    def __post_init__(self) -> None:
        for role in ("measure", "derived", "finding", "figures"):
            given = getattr(self, role)
            if not callable(given) and (given is not None or role == "measure"):
                raise ConfigError(f"{role} of a study is {given!r:.80}", hint="pass a function")
        if not str(self.name).replace("-", "_").isidentifier():
            hint = "use letters, digits and underscores: its folder has this name"
            raise ConfigError(f"the name of a study is {self.name!r:.80}", hint=hint)
        for best in self.answers.values():
            check_known("the best of a result is", best, get_args(Best))
        if self.whole and not self.answers:
            raise ConfigError(
                "a whole is named, and no answer", hint='answers={"loss": "lowest"} says what is compared'
            )
        for name in ("seeds", "quick_seeds"):
            check_count(name, getattr(self, name), least=1)

    def points(self, *, quick: bool = False) -> list[Point]:
        """Return all points, each checked: a setting that cannot be trained with is refused before the first run."""
        found = points_of(self.grid(quick) if callable(self.grid) else self.grid)
        for name in (*self.by, *self.whole) if self.derived is None else ():
            check_known("the points have no setting", name, {name for point in found for name in point})
        for point in found:
            try:
                self._check(point)
            except GlassformerError as error:
                raise ConfigError(f"the point {written(point)} cannot run: {error.fact}", hint=error.hint) from error
        return found

    def _check(self, point: Point) -> None:
        if self.check is not None:
            self.check(point)
        elif "task" in point:
            check_training(**{name: value for name, value in point.items() if name not in self.labels})

    def seeds_of(self, asked: int | None, *, quick: bool) -> range:
        """Return the seeds: as many as asked for, or as the study has."""
        if asked is not None:
            check_count("seeds", asked, least=1)
        return range(int(asked or (self.quick_seeds if quick else self.seeds)))


def points_of(grid: Any) -> list[Point]:
    """Return the points of a grid as plain values; refuse an empty grid, and a point that occurs twice."""
    if isinstance(grid, Mapping):
        lists = [_values(name, value) for name, value in grid.items()]
        grid = [dict(zip(grid, values, strict=True)) for values in itertools.product(*lists)]
    if isinstance(grid, str) or not isinstance(grid, Iterable):
        raise ConfigError(f"the grid is {grid!r:.80}", hint='pass a dict of lists, {"lr": [0.01, 0.1]}, or dicts')
    points = [_point(point) for point in grid]
    if not points or not all(points):
        raise ConfigError("the grid has no points", hint='name settings and their values: {"lr": [0.01, 0.1]}')
    texts = [written(point) for point in points]
    for text in texts:
        if texts.count(text) > 1:
            raise ConfigError(f"the point {text} is in the grid twice", hint="leave one out; seeds=… repeats a point")
    return points


def written(point: Mapping[str, Any]) -> str:
    """Write a point in one line: lr=0.1, layers=2."""
    return ", ".join(f"{name}={value}" for name, value in point.items())


def _values(name: str, value: Any) -> list[Any]:
    """Return the values of a setting in a grid: a list as it is, and a single value alone."""
    if isinstance(value, str | int | float | None):
        return [value]
    found = list(value) if isinstance(value, Iterable) and not isinstance(value, Mapping) else []
    if not found:
        raise ConfigError(f"{name} is {value!r:.80} in the grid", hint="pass a list of values, or one value")
    return found


def _point(point: Any) -> Point:
    if not isinstance(point, Mapping):
        raise ConfigError(f"{point!r:.80} is no point of a grid", hint='a point is a dict: {"lr": 0.1, "layers": 2}')
    for name in point:
        if not isinstance(name, str) or name in TAKEN:
            raise ConfigError(f"a point has no setting {name!r:.80}", hint="seeds=… says how often each point runs")
    return {name: plain(value, name) for name, value in point.items()}


def plain(value: Any, name: str) -> Any:
    """Return a value as JSON gives it back: NumPy's numbers as Python's, tuples as lists, NaN and infinity as None."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one, name) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return as_read(value)
    raise ConfigError(f"{name} is {value!r:.80}", hint="use numbers, texts, True, False, None, or lists of them")
