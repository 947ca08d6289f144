"""Runs listed and compared: what each was trained on, how, how far it came, and when; broken ones are named as such."""

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import ConfigError, GlassformerError, first_line
from ..core.execution import PLAIN, joined
from ..core.settings import described
from ..data import TASKS
from ..generation.answer import samples
from ..models.costs import parameters_by_part
from ..training.checkpoint import BEST, LATEST, checkpoint_path
from ..training.loop import finite
from ..training.recipe import Recipe, changed_recipe
from ..weights.loaded_model import LoadedModel
from ..weights.stores import is_run
from .folder import CONFIG, METRICS, RECENT, read_config, read_metrics
from .planning import model_config, tuning_defaults
from .run import TrainingRun, open_run
from .settings import FROM_DATA, default_task

DEPTH = 3
"""Depth of folders searched for runs."""
ROWS = 10
"""Steps, and times, that a table compares, at most."""

_NOT_COMPARED = ("steps", "decay_steps", "seed", "shards")


@dataclass(frozen=True)
class RunSummary:
    """One run, or a folder that should be one.

    changed    settings that differ from those that its task, or its preset, begins with
    step       steps taken, of `steps` that are planned
    loss       of the last training step
    val_loss   of the last evaluation; best_loss the lowest so far, after best_step steps
    when       the last time that it was written to
    record     engine, versions, cores, platform and data
    error      what is wrong with the folder
    """

    folder: Path
    when: datetime
    task: str = ""
    changed: dict[str, Any] = field(default_factory=dict)
    step: int = 0
    steps: int = 0
    loss: float | None = None
    val_loss: float | None = None
    best_loss: float | None = None
    best_step: int | None = None
    accuracy: float | None = None
    record: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {**asdict(self), "folder": str(self.folder), "when": self.when.isoformat(timespec="seconds")}


def list_runs(folder: str | Path) -> list[RunSummary]:
    """Return the runs at or below a folder, the newest first."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}", hint="train something first, or name the folder of your runs")
    return sorted(map(summarize, _found(folder, DEPTH)), key=lambda summary: summary.when, reverse=True)


def _found(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the folders that hold a run or what is left of one; inside a run there is no other."""
    if any(path.is_file() for path in _files(folder)):
        if is_run(folder):  # published models have a config.json too
            yield folder
        return
    with suppress(OSError):
        for path in sorted(folder.iterdir()) if depth else ():
            if path.is_dir() and not path.name.startswith("."):
                yield from _found(path, depth - 1)


def _files(folder: Path) -> list[Path]:
    return [folder / CONFIG, folder / METRICS, *(checkpoint_path(folder, name) for name in (LATEST, BEST))]


def summarize(folder: Path) -> RunSummary:
    """Describe one run; say what is wrong with it where it cannot be read."""
    times = [path.stat().st_mtime for path in _files(folder) if path.is_file()]
    when = datetime.fromtimestamp(max(times, default=folder.stat().st_mtime)).astimezone()
    try:
        content = read_config(folder)
        task, steps, record = content["task"], int(content["recipe"]["steps"]), content["record"]
        if content.get("own"):  # its Python files are not run for a list
            changed = {name: value for name, value in task["options"].items() if name != "seed"}
        else:
            changed = changed_settings(open_run(folder))
        figures = progress(read_metrics(folder / METRICS)[0], steps)
        return RunSummary(folder, when, task["name"], changed, record=record, **figures)
    except (GlassformerError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        return RunSummary(folder, when, error=first_line(error))


def progress(metrics: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    """Return how far a run came: its steps, of `steps` that are planned, and its losses."""
    judged = [line for line in metrics if line.get("val_loss") is not None]
    best = min(judged, key=lambda line: line["val_loss"], default={})
    last = judged[-1] if judged else {}
    return {
        "step": metrics[-1]["step"] if metrics else 0,
        "steps": steps,
        "loss": metrics[-1].get("loss") if metrics else None,
        "val_loss": last.get("val_loss"),
        "best_loss": best.get("val_loss"),
        "best_step": best.get("step"),
        "accuracy": last.get("accuracy"),
    }


def changed_settings(run: TrainingRun) -> dict[str, Any]:
    """Return the settings that differ from what the task begins with, or from its preset, or its base model."""
    named = {
        "preset": run.provenance.preset,
        "from": None if run.base is None else run.base.source,
        "lora_rank": None if run.lora is None else run.lora.rank,
        "engine": "jax" if run.under_jax else None,
        "precision": None if run.execution.precision == PLAIN.precision else run.execution.precision,
    }
    changes = {name: value for name, value in named.items() if value is not None}
    changes |= {} if run.under_jax else joined(run.execution)
    options = {name: value for name, value in run.task_options.items() if name not in ("seed", "lexicon")}
    seed = {"seed": run.recipe.seed} if run.recipe.seed else {}
    if run.task_name not in TASKS:  # it is gone
        return {**changes, **options, **seed}
    changes |= _changed(options, {setting.name: setting.default for setting in described(TASKS[run.task_name])})
    with suppress(GlassformerError):  # a custom task that cannot be built here
        task = default_task(run.task_name)
        if run.base is None:
            expected = model_config(task, run.provenance.preset, {"dropout": task.recipe["dropout"]})
            changes |= _changed(asdict(run.config), asdict(expected), leave=FROM_DATA)
        recipe = task.recipe
        if run.base is not None:
            how = {"adapters": run.lora is not None, "head": run.base.head, "frozen": run.trains_head_alone}
            recipe = {**recipe, **tuning_defaults(run.config, **how)}
        recipe = changed_recipe(recipe, {"optimizer": run.recipe.optimizer})
        recipe.pop("dropout")
        usual = {**Recipe.from_dict(recipe).to_dict(), "optimizer": task.recipe["optimizer"]}
        changes |= _changed(run.recipe.to_dict(), usual, leave=_NOT_COMPARED)
    return {**changes, **seed}


def _changed(have: Mapping[str, Any], expected: Mapping[str, Any], leave: Sequence[str] = ()) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else value

    return {
        name: value
        for name, value in have.items()
        if name not in leave and (name not in expected or plain(value) != plain(expected[name]))
    }


# --- runs side by side -----------------------------------------------------------------------------------------------


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
    times = list(itertools.accumulate(finite(line.get("seconds")) or 0.0 for line in metrics))

    def points(field: str) -> Points:
        rows = [
            (line["step"], time, value)
            for line, time in zip(metrics, times, strict=True)
            if (value := finite(line.get(field))) is not None
        ]
        return Points([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])

    return Curves(name, points("loss"), points("val_loss"))


def figures_of(run: TrainingRun) -> dict[str, Any]:
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


def settings_of(run: TrainingRun) -> dict[str, Any]:
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
        "BLAS": record.products,
        **record.versions,
    }


def differing(runs: Sequence[TrainingRun]) -> dict[str, list[Any]]:
    """Return the settings in which runs differ, each with its value in every run; MISSING where a run has none."""
    every = [settings_of(run) for run in runs]
    names = dict.fromkeys(name for settings in every for name in settings)
    rows = {name: [settings.get(name, MISSING) for settings in every] for name in names}
    return {name: values for name, values in rows.items() if any(value != values[0] for value in values)}


def losses_by(axis: str, curves: Sequence[Curves]) -> list[tuple[Any, list[float | None]]]:
    """Return, for some `steps` or `seconds`, the losses of the last evaluations up to then; None after a run's end."""
    shown = [(getattr(judged(curve), axis), judged(curve).values) for curve in curves]
    moments = sorted({moment for at, _ in shown for moment in at})
    # The last of each run is where it is to be judged; the others are spread evenly.
    kept = {at[-1] for at, values in shown if values}
    free = max(ROWS - len(kept), 1)
    kept |= {moments[i * (len(moments) - 1) // free] for i in range(free)} if moments else set()

    def value(at: Sequence[float], values: Sequence[float], moment: float) -> float | None:
        number = bisect.bisect_right(at, moment)
        return values[number - 1] if number and moment <= at[-1] else None

    return [(moment, [value(*points, moment) for points in shown]) for moment in sorted(kept)]


def judged(curves: Curves) -> Points:
    """Return the losses that a run is judged by: those of validation, or of training where nothing was evaluated."""
    return curves.validation if curves.validation.values else curves.training


def samples_or_reason(run: TrainingRun) -> list[tuple[str, str]] | str:
    """Return some prompts of the task, each with the best model's answer, or why there are none."""
    try:
        return samples(LoadedModel.of_task(run.model, run.load_params(), run.task()), 3, 80)
    except (GlassformerError, OSError) as error:  # there is no checkpoint yet, or its data is gone
        return first_line(error)
