"""Start a run: its folder, made by one process and seen by all, and its session."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..cluster.collective import agreed, check_shared, first_before_others
from ..errors import ConfigError, typed
from ..execution import PLAIN, Execution, separated
from ..files import PARTIAL, explained, flush_folder, new_folder
from ..tree import flatten
from .custom_files import custom_files_of, remember
from .folder import CONFIG
from .lock import LOCK, FolderLock
from .planning import Plan, plan_new, plan_tuning
from .provenance import Provenance, data_provenance
from .run import Run, engine_of, open_run, tokenizers_of
from .session import Session, start_session

R = TypeVar("R", bound=Run)


def new_session(
    task_name: str,
    folder: Path,
    *,
    source: str | None = None,
    execution: Execution | None = None,
    numbered: bool = False,
    recorded: bool = False,
    **asked: Any,
) -> Session:
    """Start a run as `planning.plan_new` plans it, or `plan_tuning` from the model at `source`.

    execution   computes it by the engine jax, in this way
    numbered    use the first of folder, folder-2, folder-3, … that is free
    recorded    keep what it takes to return to any step: see `session`
    """
    plan = plan_new(task_name, **asked) if source is None else plan_tuning(task_name, source, execution, **asked)
    return start_session(create_run(plan, folder, execution, numbered=numbered), plan, recorded=recorded)


def create_run(plan: Plan, folder: Path, execution: Execution | None, *, numbered: bool = False) -> Run:
    """Create a run folder; refuse one that holds a run. Of several processes, the first one creates it.

    An `execution` belongs to the engine jax; settings of the model may say more about how it runs.
    """
    run = planned_run(Run, plan, folder, execution)
    record = replace(run.provenance, data=data_provenance(run.task_name, run.task_options.get("data")))
    tokenizer, target = tokenizers_of(plan.task)
    own = custom_files_of(plan.task, plan.config)
    run = replace(run, tokenizer=tokenizer, target_tokenizer=target, own=own, provenance=record)
    with first_before_others("run folder") as first:
        if first:
            run = _created(run, numbered=numbered)
    made = Path(agreed(str(run.folder)))
    return run if first else _followed(replace(run, folder=made))


def planned_run(cls: type[R], plan: Plan, folder: Path, execution: Execution | None, **more: Any) -> R:
    """Return the run of a plan, with the shards of this machine; refuse devices that are not there."""
    engine = engine_of(under_jax=execution is not None)
    run = cls(
        folder=folder,
        task_name=plan.task.name,
        task_options={name: value for name, value in plan.options.items() if value is not None},
        config=plan.config,
        recipe=plan.recipe,
        base=plan.base,
        execution=(execution or PLAIN).replace(**separated(plan.of_model)[1]),
        under_jax=execution is not None,
        provenance=Provenance.now(engine.name, plan.task.train, plan.recipe, plan.preset),
        **more,
    )
    run.check()
    if run.recipe.shards is not None:
        return run
    shards = engine.shards(run.config, run.recipe.batch // run.recipe.accumulate)
    return replace(run, recipe=replace(run.recipe, shards=shards))


def _created(run: Run, *, numbered: bool) -> Run:
    if not numbered:
        _check_free(run.folder)
    lock = _claim(new_folder(run.folder) if numbered else run.folder)
    run = replace(run, folder=lock.folder, lock=lock)
    with explained(run.folder):
        for file in run.own:
            file.copy_into(run.folder)
            remember(file)  # the user named it
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
    """Refuse a folder that is not free for a new run; leftovers of a killed process do not count."""
    taken = folder.exists()
    if folder.is_dir():
        taken = any(path.suffix != PARTIAL and path.name != LOCK for path in folder.iterdir())
    if taken:
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
