"""A new run: its folder, made by one process and seen by all."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cluster.collective import check_shared, first_before_others
from ..config import TransformerConfig
from ..data import Task
from ..errors import ConfigError
from ..execution import PLAIN, Execution, separated
from ..files import PARTIAL
from ..training.recipe import Recipe
from ..tree import flatten
from .base import Base
from .own import own_files
from .record import Record, read_record
from .run import CONFIG, Run, explained, open_run, tokenizers_of


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
) -> Run:
    """Make a new run folder; refuse one that holds a run already. Of several processes, the first one makes it.

    An `execution` is one of the engine jax; the `settings` of the model may say more about how it runs.
    """
    known = {name: value for name, value in options.items() if value is not None}
    how = (execution or PLAIN).replace(**separated(settings)[1])
    own = own_files(task, config)
    run = Run(folder, task.name, known, config, recipe, *tokenizers_of(task), base, how, execution is not None, own)
    record = Record.now(run.engine.name, preset=preset, data=read_record(task.name, known.get("data")))
    run = replace(run, record=record)
    with first_before_others("run folder") as first:
        return _created(run) if first else _followed(run)


def _created(run: Run) -> Run:
    folder, recipe = run.folder, run.recipe
    if _is_taken(folder):
        resume = f"continue it with --resume {folder}, or " if (folder / CONFIG).is_file() else ""
        raise ConfigError(f"{folder} exists already", hint=f"{resume}choose another --out")
    run.check()
    if recipe.shards is None:
        shards = run.engine.shards(run.config, recipe.batch // recipe.accumulate)
        run = replace(run, recipe=replace(recipe, shards=shards))
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file in run.own:
            file.copy_into(folder)
    run.write_config()
    return run


def _followed(own: Run) -> Run:
    """Return the run that the first process made; refuse to train anything else together with it."""
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
    """Tell whether something stands in the way of a new run; leftovers of a killed process do not."""
    if not folder.is_dir():
        return folder.exists()
    return any(path.suffix != PARTIAL for path in folder.iterdir())
