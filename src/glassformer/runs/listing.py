"""The runs in a folder: what each was trained on, how, how far it came, and when; broken ones are named as such."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ..data import TASKS
from ..errors import ConfigError, GlassformerError, first_line
from ..execution import PLAIN, joined
from ..settings import described
from ..training.checkpoint import BEST, LATEST, checkpoint_path
from ..training.recipe import Recipe, changed_recipe
from ..weights.places import is_run
from .config_file import CONFIG
from .fine_tuning import LORA_LR, RECIPE
from .metrics import METRICS, read_metrics
from .provenance import Provenance
from .run import Run, open_run, read_content
from .settings import FROM_DATA, default_task
from .start import model_config

DEPTH = 3
"""Depth of folders searched for runs."""

_NOT_COMPARED = {"steps", "decay_steps", "seed", "shards"}


@dataclass(frozen=True)
class RunSummary:
    """One run, or a folder that should be one.

    changed    settings that differ from those that its task, or its preset, begins with
    step       steps taken, of `steps` that are planned
    loss       of the last training step
    val_loss   of the last evaluation; best_loss the lowest so far, after best_step steps
    when       the last time that it was written to
    record     engine, versions, cores, platform and data; empty for runs that do not say
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
    return sorted(map(summarize, _found(folder, DEPTH)), key=lambda one: one.when, reverse=True)


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
        content = read_content(folder)
        if content.get("own"):
            return _summarize_unopened(folder, when, content)
        run = open_run(folder)
        return RunSummary(folder, when, run.task_name, changed_settings(run), record=recorded(run), **progress(run))
    except (GlassformerError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        return RunSummary(folder, when, error=error.fact if isinstance(error, GlassformerError) else first_line(error))


def _summarize_unopened(folder: Path, when: datetime, content: Mapping[str, Any]) -> RunSummary:
    """Describe a run with Python files of its own: a list runs nothing."""
    task = content["task"]
    record = Provenance.from_dict(content["record"]).to_dict() if "record" in content else {}
    options = {name: value for name, value in task["options"].items() if name != "seed"}
    figures = _progress(read_metrics(folder / METRICS)[0], int(content["recipe"]["steps"]))
    return RunSummary(folder, when, task["name"], options, record=record, **figures)


def progress(run: Run) -> dict[str, Any]:
    """Return how far a run came: its steps and its losses."""
    return _progress(run.metrics(), run.recipe.steps)


def _progress(metrics: list[dict[str, Any]], steps: int) -> dict[str, Any]:
    judged = [line for line in metrics if isinstance(line.get("val_loss"), int | float)]
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


def recorded(run: Run) -> dict[str, Any]:
    """Return where and with what a run began, as far as it says."""
    return {} if run.provenance is None else run.provenance.to_dict()


# --- what differs from the defaults ----------------------------------------------------------------------------------


def changed_settings(run: Run) -> dict[str, Any]:
    """Return the settings that differ from what the task begins with, or from its preset, or its base model."""
    changed: dict[str, Any] = {}
    preset = None if run.provenance is None else run.provenance.preset
    if preset is not None:
        changed["preset"] = preset
    if run.base is not None:
        changed["from"] = run.base.source
        changed |= {} if run.base.lora is None else {"lora_rank": run.base.lora.rank}
    if run.under_jax:
        changed["engine"] = "jax"
    changed |= {"precision": run.execution.precision} if run.execution.precision != PLAIN.precision else {}
    changed |= {} if run.under_jax else joined(run.execution)
    changed |= changed_options(run)
    if run.task_name in TASKS:
        with suppress(GlassformerError):  # a custom task that cannot be built here
            changed |= _changed_model(run, preset) | _changed_recipe(run)
    return {**changed, **({"seed": run.recipe.seed} if run.recipe.seed else {})}


def changed_options(run: Run) -> dict[str, Any]:
    """Return the options of its task that differ from the defaults; those of a task that is gone are not known."""
    if run.task_name not in TASKS:
        return {name: value for name, value in run.task_options.items() if name != "seed"}
    own = {setting.name: setting.default for setting in described(TASKS[run.task_name])}
    return _changed(run.task_options, own, leave={"seed", "lexicon"})


def _changed_model(run: Run, preset: str | None) -> dict[str, Any]:
    if run.base is not None:
        return {}  # it was built already
    task = default_task(run.task_name)
    expected = model_config(task, preset, {"dropout": task.recipe["dropout"]})
    return _changed(asdict(run.config), asdict(expected), leave=set(FROM_DATA))


def _changed_recipe(run: Run) -> dict[str, Any]:
    own = default_task(run.task_name).recipe
    if run.base is not None:
        own = {**own, **RECIPE, **({} if run.base.lora is None else {"lr": LORA_LR})}
    own = changed_recipe(own, {"optimizer": run.recipe.optimizer})
    expected = Recipe.from_dict({name: value for name, value in own.items() if name != "dropout"}).to_dict()
    if run.recipe.optimizer != default_task(run.task_name).recipe["optimizer"]:
        expected.pop("optimizer")
    return _changed(run.recipe.to_dict(), expected, leave=_NOT_COMPARED)


def _changed(have: Mapping[str, Any], expected: Mapping[str, Any], *, leave: set[str]) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else value

    return {
        name: value
        for name, value in have.items()
        if name not in leave and (name not in expected or plain(value) != plain(expected[name]))
    }
