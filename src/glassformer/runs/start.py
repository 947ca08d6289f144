"""Start a run: its task, model and recipe from settings, and its folder, made by one process and seen by all."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..cluster.collective import agreed, check_shared, first_before_others
from ..config import TransformerConfig, config_from_dict
from ..data import Task, build_task
from ..errors import ConfigError, typed
from ..execution import PLAIN, Execution, separated
from ..files import PARTIAL, flush_folder, new_folder
from ..models import PRESETS
from ..settings import check_known
from ..training.recipe import Recipe, changed_recipe
from ..tree import flatten
from . import trust
from .base import Base, stable_data
from .config_file import CONFIG, explained
from .custom_files import custom_files_of
from .lock import LOCK, FolderLock
from .provenance import Provenance, data_provenance
from .run import Run, open_run, tokenizers_of
from .session import Session, start_session
from .settings import FROM_DATA, split_settings


def new_session(
    task_name: str,
    folder: Path,
    *,
    data: str | None = None,
    preset: str | None = None,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    execution: Execution | None = None,
    numbered: bool = False,
    recorded: bool = False,
) -> Session:
    """Start a run: the task's own model and recipe, changed by a preset and by settings of either.

    execution   computes it by the engine jax, in this way
    numbered    use the first of folder, folder-2, folder-3, … that is free
    recorded    keep what it takes to return to any step: see `recording`
    """
    task, options, config, recipe, of_model = plan_run(task_name, settings, data=data, preset=preset, seed=seed)
    how: dict[str, Any] = {"execution": execution, "settings": of_model, "preset": preset, "numbered": numbered}
    return start_session(create_run(folder, task, options, config, recipe, **how), task, recorded=recorded)


class Plan(NamedTuple):
    """A run before it starts; `of_model` are the settings of the model that were given."""

    task: Task
    options: dict[str, Any]
    config: TransformerConfig
    recipe: Recipe
    of_model: dict[str, Any]


def plan_run(
    task_name: str,
    settings: dict[str, Any] | None,
    *,
    data: str | None = None,
    preset: str | None = None,
    seed: int = 0,
) -> Plan:
    """Build the task, and the config and recipe that follow from it, a preset and settings."""
    of_task, of_model, of_recipe = split_settings(task_name, settings or {})
    options = {"data": stable_data(data), "seed": seed, **of_task}
    task = build_task(task_name, **options)
    recipe = changed_recipe(task.recipe, {"seed": seed, **of_recipe})
    config = model_config(task, preset, {"dropout": recipe.pop("dropout"), **of_model})
    return Plan(task, options, config, Recipe.from_dict(recipe), of_model)


def model_config(task: Task, preset: str | None, changes: dict[str, Any]) -> TransformerConfig:
    """Return the task's model, or a preset's with the task's vocabulary and lengths."""
    settings = {"architecture": task.architecture, **task.settings}
    if preset is not None:
        check_known("there is no preset", preset, PRESETS, listed="`glassformer models` lists them")
        chosen = PRESETS[preset]
        if chosen["architecture"] != task.architecture:
            raise ConfigError(
                f"the architecture of {preset!r} is {chosen['architecture']!r}, "
                f"but {task.name!r} needs {task.architecture!r}",
                hint="choose another preset, or none",
            )
        left_out = {*FROM_DATA, *(("head_bias", "head_scale") if "classes" in task.settings else ())}
        kept = {name: value for name, value in chosen.items() if name not in left_out}
        settings = {**kept, **{name: task.settings[name] for name in FROM_DATA if name in task.settings}}
    return config_from_dict({**settings, **changes})


def create_run(
    folder: Path,
    task: Task,
    options: dict[str, Any],
    config: TransformerConfig,
    recipe: Recipe,
    *,
    base: Base | None = None,
    execution: Execution | None,
    settings: dict[str, Any],
    preset: str | None = None,
    numbered: bool = False,
) -> Run:
    """Create a run folder; refuse one that holds a run. Of several processes, the first one creates it.

    An `execution` belongs to the engine jax; `settings` of the model may say more about how it runs.
    """
    known = {name: value for name, value in options.items() if value is not None}
    how = (execution or PLAIN).replace(**separated(settings)[1])
    own = custom_files_of(task, config)
    run = Run(folder, task.name, known, config, recipe, *tokenizers_of(task), base, how, execution is not None, own)
    record = Provenance.now(run.engine.name, preset=preset, data=data_provenance(task.name, known.get("data")))
    run = replace(run, provenance=record.reading(task.train, recipe))
    with first_before_others("run folder") as first:
        if first:
            run = _created(run, numbered=numbered)
    made = Path(agreed(str(run.folder)))
    return run if first else _followed(replace(run, folder=made))


def _created(run: Run, *, numbered: bool) -> Run:
    recipe = run.recipe
    if not numbered:
        _check_free(run.folder)
    run.check()
    if recipe.shards is None:
        shards = run.engine.shards(run.config, recipe.batch // recipe.accumulate)
        run = replace(run, recipe=replace(recipe, shards=shards))
    lock = _claim(new_folder(run.folder) if numbered else run.folder)
    run = replace(run, folder=lock.folder, lock=lock)
    with explained(run.folder):
        for file in run.own:
            file.copy_into(run.folder)
            trust.remember(file.path, file.sha256)  # the user named it
    run.write_config()
    return run


def _claim(folder: Path) -> FolderLock:
    """Create and lock a folder; refuse one with other content, or one that another process locked first."""
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    lock.acquire(new=True)
    try:
        _check_free(folder)
    except ConfigError:
        lock.release()
        raise
    flush_folder(folder.parent)
    return lock


def _check_free(folder: Path) -> None:
    if _is_taken(folder):
        is_run = (folder / CONFIG).is_file()
        resume = f"`glassformer train --resume {typed(folder)}` continues it; or " if is_run else ""
        raise ConfigError(f"{folder} exists already", hint=f"{resume}choose another folder: --out, or out=…")


def _followed(own: Run) -> Run:
    """Return the run that the first process created; refuse another run than its."""
    check_shared(own.folder / CONFIG)
    run = open_run(own.folder)
    have, want = (flatten(json.loads(json.dumps(each.to_dict()))) for each in (own, run))
    may_differ = {"recipe.shards", "task.options.data"}  # each machine has its own cores, and its own paths
    for name in [*want, *have]:
        apart = name.startswith(("base.", "record.")) and name != "record.data.sha256"
        apart |= name.startswith("own.") and name.endswith(".path")
        if name not in may_differ and not apart and have.get(name) != want.get(name):
            raise ConfigError(
                f"this worker was started with {name} = {have.get(name)!r}, worker 0 with {want.get(name)!r}",
                hint="start all workers with the same command and the same data",
            )
    return run


def _is_taken(folder: Path) -> bool:
    """Tell whether a folder is not free for a new run; leftovers of a killed process do not count."""
    if not folder.is_dir():
        return folder.exists()
    return any(path.suffix != PARTIAL and path.name != LOCK for path in folder.iterdir())
