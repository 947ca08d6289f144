"""Run a study. Finished runs are kept, one small file each: a study that was stopped goes on, and none is run twice.

FOLDER/rows/DIGEST.json      a run; the digest is of the study, its version, the point, the seed and the engine
FOLDER/study.json            all rows, and what was found
FOLDER/figures/              for light and for dark pages
"""

import contextlib
import inspect
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core import dispatch
from ..core.documents import as_read, digest
from ..core.errors import ConfigError, GlassformerError, TrainingError
from ..core.files import explained, write_new
from ..core.reporting import report, reported_to
from ..core.settings import check_known
from ..progress import log, plural
from ..training.interruption import heeding_termination
from ..weights.catalog import cache_folder
from .catalog import digest_of, find_study
from .measures import WORDS, training
from .report import StudyResult, machine
from .study import TAKEN, Grid, Point, Rows, Study, plain, points_of, written

FOLDER = Path("studies")
ROWS = "rows"
Measure = Callable[[Point, int], Any]


class StudyPoint(NamedTuple):
    """One point with one seed, as its kept file names it."""

    study: str
    version: int | str
    point: Point
    seed: int
    engine: str

    def path(self, folder: Path) -> Path:
        """Return where it is kept."""
        return folder / ROWS / f"{digest(self._asdict())[:24]}.json"

    def read(self, folder: Path | None) -> dict[str, Any] | None:
        """Return its `results` and its `machine`, if they are kept; a damaged file is reported, and runs again."""
        path = None if folder is None else self.path(folder)
        if path is None or not path.exists():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            results = content["results"]
            if content["run"] == self._asdict() and content["digest"] == digest(results)[:16]:
                return {"results": dict(results), "machine": dict(content.get("machine", {}))}
            reason = "its content is not what was written"
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
        log(f"{path} is damaged ({reason:.120}); {written(self.point)}, seed {self.seed}, runs again")
        path.unlink(missing_ok=True)
        return None

    def write(self, folder: Path, kept: dict[str, Any]) -> None:
        """Keep its results and the machine that they were made on."""
        content = {"run": self._asdict(), **kept, "digest": digest(kept["results"])[:16]}
        write_new(self.path(folder), json.dumps(content, indent=1).encode())

    def row(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return its row; numbers that JSON has no word for are NaN."""
        found = {name: math.nan if value is None else value for name, value in results.items()}
        return {**self.point, "seed": self.seed, **found}


def run_study(
    study: str | Path | Study,
    *,
    quick: bool = False,
    seeds: int | None = None,
    engine: str | None = None,
    out: str | Path | None = None,
    source: str | Path | None = None,
    figures: bool = True,
    show: bool = True,
) -> StudyResult:
    """Run a study to its end, and return its rows and what was found; finished runs are kept and reused.

    study     the name of one (`gf.studies.studies()`), a Python file that holds one, or a `Study`
    quick     the shape of the answer, in a minute
    seeds     how many runs of each point; None: as many as the study has
    engine    who computes: "cpu", "numpy", or "jax" for a GPU; None: the engine in use
    out       its folder; None: studies/NAME, and studies/NAME-quick for a quick one
    source    a file of your own to read the rows from, where the study can (`scaling`): nothing runs
    figures   draw them, which needs Matplotlib
    show      progress, with the time left

    Ctrl-C ends it. What was finished is kept, and the same call goes on from there.

    >>> import tempfile, glassformer as gf
    >>> own = gf.studies.Study(
    ...     name="squares",
    ...     question="Which is largest?",
    ...     grid={"x": [1, 2]},
    ...     measure=lambda point, seed: {"y": point["x"] ** 2},
    ... )
    >>> result = gf.studies.run_study(own, out=tempfile.mkdtemp(), figures=False, show=False)
    >>> result.findings[0]
    'y is lowest at x=1 (1; mean of 3 seeds) and highest at x=2 (4; mean of 3 seeds).'
    """
    found = find_study(study)
    if source is not None and found.rows_from is None:
        raise ConfigError(f"the study {found.name} reads no file", hint="leave the file out: it runs by itself")
    folder = Path(out) if out is not None else FOLDER / f"{found.name}{'-quick' if quick else ''}"
    machines: list[dict[str, Any]] = []
    with dispatch.use_engine(engine) if engine is not None else contextlib.nullcontext():
        if source is not None and found.rows_from is not None:
            rows, settings = found.rows_from(Path(source)), None
        else:
            points = found.points(quick=quick)
            settings = list(dict.fromkeys(name for point in points for name in point))
            rows, machines = run_points(found, points, found.seeds_of(seeds, quick=quick), folder, show=show)
        about = {"quick": quick, "engine": dispatch.current().name, "machines": machines}
    result = StudyResult.of(found, rows, settings, **about)
    return result.write(folder, found if figures else None)


def run_points(
    study: Study, points: list[Point], seeds: range, folder: Path | None, *, show: bool
) -> tuple[Rows, list[dict[str, Any]]]:
    """Return the rows of all points and seeds, kept or measured now, and the machines that they were made on."""
    engine, here = dispatch.current().name, machine()
    runs = [StudyPoint(study.name, study.version, point, seed, engine) for point in points for seed in seeds]
    if folder is not None:
        with explained(folder, hint="choose a folder that can be written to"):
            (folder / ROWS).mkdir(parents=True, exist_ok=True)
    done = {place: kept for place, run in enumerate(runs) if (kept := run.read(folder)) is not None}
    if show and done:
        log(f"{plural(len(done), 'run')} of {len(runs):,} kept in {folder}")
    progress = _progress(f"study {study.name}", show=show and len(done) < len(runs))
    with progress, _compiled_once(), heeding_termination():
        for place, run in enumerate(runs):
            if place in done:
                continue
            report(len(done), len(runs), f"runs, now {written(run.point):.60}, seed {run.seed}")
            try:  # another process may have been faster
                done[place] = run.read(folder) or {"results": _measured(study, run), "machine": here}
            except KeyboardInterrupt:
                log(_stopped(len(done), len(runs), folder))
                raise
            if folder is not None:
                run.write(folder, done[place])
    every = [done[place] for place in range(len(runs))]
    machines = {json.dumps(one["machine"], sort_keys=True): one["machine"] for one in every}
    rows = [run.row(one["results"]) for run, one in zip(runs, every, strict=True)]
    return _filled(rows, points), list(machines.values())


def _stopped(done: int, total: int, folder: Path | None) -> str:
    if folder is None:
        return f"interrupted after {done:,} of {plural(total, 'run')}; name a folder, out=…, to keep them"
    return f"interrupted: {done:,} of {plural(total, 'run')} are kept in {folder}; run it again to go on from there"


def _measured(study: Study, run: StudyPoint) -> dict[str, Any]:
    """Return the results of a run, as plain values; a training that diverges is a result."""
    began, where = time.perf_counter(), f"{written(run.point)}, seed {run.seed}"
    try:
        # Steps are not runs, and a training that diverges is no mistake.
        with reported_to(lambda done, total, what: None), np.errstate(over="ignore", invalid="ignore"):
            found: Any = study.measure(as_read(run.point), run.seed)
    except (TrainingError, FloatingPointError):
        found = {"diverged": True}
    except GlassformerError as error:
        raise ConfigError(f"the run {where} failed: {error.fact}", hint=error.hint) from error
    except Exception as error:
        error.add_note(f"in the run {where}; finished runs are kept where a folder is named")
        raise
    found = found if isinstance(found, dict) else {"value": found}
    for name in found:
        if not isinstance(name, str) or name in run.point or name == TAKEN[0]:
            hint = "results are a dict whose names differ from the settings"
            raise ConfigError(f"the measure of {study.name} returned a result called {name!r:.80}", hint=hint)
    results = {name: plain(one, name) for name, one in found.items()}
    seconds = round(time.perf_counter() - began, 3)
    return {"seconds": seconds, "diverged": bool(found.get("diverged", False)), **results}


def _filled(rows: list[dict[str, Any]], points: list[Point]) -> Rows:
    """Return rows that all have the same columns; a setting that a point lacks is None, a result NaN."""
    settings = {name for point in points for name in point}
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if name != "seconds"]
    blank = {name: None if name in settings else math.nan for name in [*names, "seconds"]}
    return Rows({**blank, **row} for row in rows)


@contextlib.contextmanager
def _compiled_once() -> Iterator[None]:
    """Make runs of one shape share what JAX compiled for the first: on a GPU, a program takes up to a minute."""
    if dispatch.current().library != "jax":
        yield
        return
    import jax

    name = "jax_compilation_cache_dir"
    before = getattr(jax.config, name)
    jax.config.update(name, before or str(cache_folder() / "jax"))
    try:
        yield
    finally:
        jax.config.update(name, before)


@contextlib.contextmanager
def _progress(text: str, *, show: bool) -> Iterator[None]:
    """Show how many runs are done and the time left: a bar on a terminal, lines in a pipe or without Rich."""
    if not show:
        yield
        return
    try:
        from ..progress.display import waiting
    except ImportError:
        with reported_to(lambda done, total, what: log(f"{text}: {done:,} of {total:,} {what}")):
            yield
        return
    with waiting(text):
        yield


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
