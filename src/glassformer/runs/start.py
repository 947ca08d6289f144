"""Start a run: its folder, made by one process and seen by all, and its session; or resume one.

A run continues from its latest checkpoint, with the data, engine, versions, platform and recipe it began with. What
differs is refused. With `anyway`, it is reported and kept in the run's record.
"""

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.documents import as_read
from ..core.errors import CheckpointError, ConfigError, DataError, typed
from ..core.execution import MeshShape
from ..core.files import PARTIAL, explained, flush_folder, new_folder
from ..core.tree import flatten
from ..data import Task
from ..data.corpus import is_copy
from ..engines.cluster.collective import agreed, check_shared, first_before_others, process
from ..engines.cluster.launch import Workers
from ..training.checkpoint import LATEST, checkpoint_path, load_checkpoint, read_meta
from ..training.loop import cost, out_of_patience
from ..training.trainable import check_freeze
from ..training.trainer import Trainer, TrainingState, not_finite, refuse_to_go_on
from .custom_files import custom_files_of, remember
from .folder import CONFIG, HOLDER, LOCK, METRICS, FolderLock
from .planning import plan_new, plan_tuning
from .provenance import Provenance, data_provenance
from .run import Ready, TrainingRun, open_run, tokenizers_of
from .session import TrainingSession, continue_recording, make_trainer, open_recording
from .sinks import Memory, RunFolder

MAY_CHANGE = {"steps", "decay_steps"}
"""Recipe settings that `steps` changes."""
ANYWAY = "or continue with --anyway (anyway=True), which the run will remember"

Changes = dict[str, tuple[Any, Any]]
"""Values that changed, by name: before and now."""


def new_session(
    task_name: str,
    folder: Path | None = None,
    *,
    source: str | None = None,
    numbered: bool = False,
    recorded: bool = False,
    **asked: Any,
) -> TrainingSession:
    """Start a run as `planning.plan_new` plans it, or `plan_tuning` from the model at `source`."""
    run = plan_new(task_name, **asked) if source is None else plan_tuning(task_name, source, **asked)
    return start_session(run, folder, numbered=numbered, recorded=recorded)


def start_session(
    run: TrainingRun, folder: Path | None = None, *, numbered: bool = False, recorded: bool = False
) -> TrainingSession:
    """Start the session of a planned run: in a folder, or in memory if none is named.

    numbered   use the first of folder, folder-2, folder-3, … that is free
    recorded   keep what it takes to return to any step: see `session`
    """
    check_freeze(run.recipe.freeze, run.model, scan=run.execution.scan)
    sink: RunFolder | Memory = Memory()
    if folder is not None:
        sink = create_folder(run, folder, numbered=numbered)
        run = sink.run
    trainer = make_trainer(run)
    state = trainer.first(run.ready.params)
    recording = None
    if recorded and isinstance(sink, RunFolder):
        recording = open_recording(sink, state, new=True)
        if recording is not None and run.ready.params is not None and run.base is None:
            recording.keep(trainer.take(state), "from")  # no seed and no other model says where it began
    return TrainingSession(run, trainer, state, sink, recording=recording)


def write_session(session: TrainingSession, folder: str | Path) -> TrainingRun:
    """Write a training in memory as a run, into the first of folder, folder-2, folder-3, … that is free."""
    session.write_records()
    assert isinstance(session.sink, Memory)
    records, last = session.sink.records, session.run.recipe.keep == "last"
    judged = [(record, record.evaluation) for record in records if record.evaluation and (record.is_best or last)]
    if not records:
        raise ConfigError("no step was taken yet", hint="train it first")
    sink = create_folder(session.run, Path(folder), numbered=True)
    open_recording(sink, session.state, new=True)
    sink.append(records)
    state = session.trainer.take(session.state)
    if judged:
        record, evaluation = judged[-1]
        reached = cost(evaluation, session.run.recipe)
        kept = state._replace(step=record.step, params=session.sink.best, best=reached, stale=0)
        sink.save_best(kept)
    sink.save(state)
    sink.release()
    return sink.run


def create_folder(run: TrainingRun, folder: Path, *, numbered: bool = False) -> RunFolder:
    """Create a run folder; refuse one that holds a run. Of several processes, the first one creates it."""
    task = run.task()
    tokenizer, target = tokenizers_of(task)
    run = replace(
        run,
        folder=folder,
        tokenizer=tokenizer,
        target_tokenizer=target,
        custom_files=custom_files_of(task, run.config, run.recipe),
        labels=task.class_labels(run.config),
        provenance=replace(run.provenance, data=data_provenance(run.task_name, run.task_options.get("data"))),
    )
    sink = RunFolder(run)
    with first_before_others("run folder") as first:
        if first:
            sink = _created(run, numbered=numbered)
    made = Path(agreed(str(sink.run.folder)))
    return sink if first else RunFolder(_followed(replace(run, folder=made)))


def _created(run: TrainingRun, *, numbered: bool) -> RunFolder:
    """Create, lock and fill a run folder; refuse one with other content, or that another process locked first."""
    folder = new_folder(run.folder) if numbered else run.folder
    _check_free(folder)
    with explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    lock = FolderLock(folder)
    lock.acquire(new=True)
    try:
        _check_free(folder)  # another process may have been faster
    except ConfigError:
        lock.release()
        raise
    flush_folder(folder.parent)
    with explained(folder):
        run = _with_copy(replace(run, folder=folder))
        for file in run.custom_files:
            file.copy_into(folder)
            remember(file)  # the user named it
    sink = RunFolder(run, lock)
    sink.write_config()
    return sink


def _with_copy(run: TrainingRun) -> TrainingRun:
    """Return a run whose data is in its folder, if it came through a pipe."""
    data = run.task_options.get("data")
    if not isinstance(data, str) or not is_copy(data) or run.provenance.data is None:
        return run
    kept = str(shutil.copy(data, (run.folder / Path(data).name).resolve()))
    record = replace(run.provenance, data=replace(run.provenance.data, source=kept))
    return replace(run, task_options={**run.task_options, "data": kept}, provenance=record)


def _check_free(folder: Path) -> None:
    """Refuse a folder that is not free for a new run; leftovers of a killed process do not count."""
    taken = folder.exists()
    if folder.is_dir():
        taken = any(path.suffix != PARTIAL and path.name not in (LOCK, HOLDER) for path in folder.iterdir())
    if taken:
        is_run = (folder / CONFIG).is_file()
        resume = f"`glassformer train --resume {typed(folder)}` continues it; or " if is_run else ""
        raise ConfigError(f"{folder} exists already", hint=f"{resume}choose another folder: --out, or out=…")


def _followed(planned: TrainingRun) -> TrainingRun:
    """Return the run that the first process created; refuse another run than its."""
    check_shared(planned.folder / CONFIG)
    run = open_run(planned.folder)
    have, want = (flatten(as_read(each.to_dict())) for each in (planned, run))
    may_differ = {"recipe.shards", "task.options.data"}  # each machine has its own cores, and its own paths
    for name in [*want, *have]:
        apart = name.startswith(("base.", "record.")) and name != "record.data.sha256"
        apart |= name.startswith("own.") and name.endswith(".path")
        if name not in may_differ and not apart and have.get(name) != want.get(name):
            raise ConfigError(
                f"this worker was started with {name} = {have.get(name)!r}, worker 0 with {want.get(name)!r}",
                hint="start all workers with the same command and the same data",
            )
    return replace(run, ready=planned.ready)


# --- resuming --------------------------------------------------------------------------------------------------------


def resume_session(
    folder: str | Path,
    *,
    steps: int | None = None,
    mesh: MeshShape | None = None,
    workers: Workers | None = None,
    anyway: bool = False,
) -> TrainingSession:
    """Continue a run from its latest complete checkpoint, from the beginning if there is none yet.

    steps    train to this step, past the planned end: see `Recipe.continuation`
    mesh     of a run of the engine jax: other devices from now on; `workers` are its processes
    anyway   continue although data, engine, versions or recipe have changed
    """
    run, notes = open_run(folder), []
    if not run.under_jax and (mesh is not None or workers is not None):
        raise ConfigError(f"{folder} was not started with the engine jax", hint="resume it without --engine and --mesh")
    asked = None if mesh is None else mesh.to_dict()
    if agreed([asked, steps]) != [asked, steps]:
        raise ConfigError("this worker was given another --mesh or --steps than worker 0", hint="start all alike")
    lock = FolderLock(run.folder) if process() == 0 else None
    left = None if lock is None else lock.acquire()
    if left is not None:
        notes.append(f"{run.folder} was left locked by {left}, which crashed; its lock is taken over")
    try:
        session = _continued(RunFolder(run, lock), notes, steps, mesh, anyway=anyway)
    except BaseException:
        if lock is not None:
            lock.hand_back()
        raise
    session.workers = workers or session.workers
    return session


def _continued(
    sink: RunFolder, notes: list[str], steps: int | None, mesh: MeshShape | None, *, anyway: bool
) -> TrainingSession:
    run, changes = sink.run, Changes()
    task, first, now = run.task(), process() == 0, run.provenance
    if first:
        now, changes = compare(run, task)
        if changes and not anyway:
            raise refusal(run, changes, "continue", otherwise=ANYWAY)
        before = run.provenance.cores
        if before != now.cores and not run.under_jax:
            if anyway:
                changes["cores"] = before, now.cores
            else:
                notes.append(f"computing as with {before} cores, as it began; {now.cores} are here")
    elif not anyway:
        run.check_data()
    if mesh is not None:
        run = replace(run, execution=run.execution.replace(mesh=mesh))
        run.check()
        _write_config(replace(sink, run=run))
    if steps is not None:
        run = replace(run, recipe=run.recipe.with_steps(steps))
    run = replace(run, ready=Ready(task, parametrization=run.parametrization()))
    trainer = make_trainer(run)
    state, ignored = _latest(run, trainer)
    notes += [f"{path} is incomplete and ignored; continuing after step {state.step:,}" for path in ignored]
    if changes:
        change = {"step": state.step, "when": now.started, **{name: list(pair) for name, pair in changes.items()}}
        now = replace(now, started=run.provenance.started, changes=(*run.provenance.changes, change))
        run = replace(run, provenance=now)
    sink = replace(sink, run=run)
    begin = state if steps is None else _extend(sink, state)
    recording = continue_recording(sink, trainer, begin, anew=bool(changes) or begin is not state)
    if first:
        if changes:
            sink.write_config()
            notes.append(f"continuing anyway, and last digits will differ: {describe(changes)}")
        notes += _rewind(sink, begin.step)
    return TrainingSession(run, trainer, begin, sink, notes=notes, recording=recording)


def _write_config(sink: RunFolder) -> None:
    """Write what has changed about a run; of several processes, the first one does."""
    with first_before_others("config") as first:
        if first:
            sink.write_config()


def _rewind(sink: RunFolder, step: int) -> list[str]:
    """Cut the metrics back to a step; return notes on what is lost."""
    taken = max((line["step"] for line in sink.metrics()), default=0)
    damaged = sink.rewind_metrics(step)
    notes = [f"{damaged:,} damaged lines of {sink.run.folder / METRICS} are left out"] if damaged else []
    return notes if step or not taken else [*notes, f"there is no checkpoint: {taken:,} steps are taken again"]


def _extend(sink: RunFolder, state: TrainingState) -> TrainingState:
    """Write another number of steps into a run; refuse fewer than it has taken. Patience starts over."""
    run = sink.run
    if run.recipe.steps <= state.step:
        raise ConfigError(
            f"{run.folder} has taken {state.step:,} steps already, and steps={run.recipe.steps} asks for no more",
            hint=f"ask for more than {state.step:,} in all, or leave out steps",
        )
    _write_config(sink)
    return state._replace(stale=0) if out_of_patience(state, run.recipe) else state


def _latest(run: TrainingRun, trainer: Trainer) -> tuple[TrainingState, list[Path]]:
    """Return the newest state of a run, from one file or from many, and the incomplete checkpoints after it."""
    file, parts = checkpoint_path(run.folder, LATEST), trainer.parts
    in_parts = -1 if parts is None else parts.latest(run.folder)
    in_file = 0 if file.is_file() else -1
    if process() == 0 and in_parts >= 0 == in_file:
        in_file = load_checkpoint(run.folder, LATEST).meta["step"]
    in_file, in_parts = agreed([in_file, in_parts])  # shared storage may look older to some processes
    if parts is not None and in_parts > in_file:
        state, ignored = parts.load(run.folder, run.trained_specs())
        refuse_to_go_on(parts.not_finite(state), state.step, run.folder)
        return state, ignored
    if in_file < 0:
        return trainer.first(run.first_params()), []
    check_shared(file)
    state = run.load_state()
    refuse_to_go_on(not_finite(state), state.step, file)
    return trainer.put(state), []


# --- what changed since a run began ----------------------------------------------------------------------------------


def compare(run: TrainingRun, task: Task) -> tuple[Provenance, Changes]:
    """Return the provenance of a run if it began now, and what differs from when it did, cores left out."""
    before = run.provenance
    data = data_provenance(run.task_name, run.task_options.get("data"))
    now = replace(Provenance.now(run.engine.name, task.train, run.recipe, before.preset), data=data)
    pairs: Changes = {
        "data": (before.data and before.data.sha256[:12], now.data and now.data.sha256[:12]),
        "examples": (before.examples, now.examples),
        "first batch": (before.first[:12], now.first[:12]),
        "engine": (before.engine, now.engine),
        "platform": (before.platform, now.platform),
        "processor": (before.processor, now.processor),
        "BLAS": (before.products, now.products),
    }
    for package, version in before.versions.items():
        pairs[package] = _relevant(package, version), _relevant(package, now.versions.get(package))
    written, recipe = read_meta(run.folder, LATEST).get("recipe", {}), run.recipe.to_dict()
    shared = [name for name in written if name in recipe and name not in MAY_CHANGE]
    pairs |= {name: (written[name], recipe[name]) for name in shared}
    return now, {name: pair for name, pair in pairs.items() if pair[0] is not None and pair[0] != pair[1]}


def _relevant(package: str, version: str | None) -> str | None:
    """Return the part of a version that may change numbers: Python's patch releases do not."""
    return version if version is None or package != "python" else ".".join(version.split(".")[:2])


def refusal(run: TrainingRun, changes: Changes, verb: str, otherwise: str = "") -> CheckpointError | DataError:
    """Return the error for a run that has changed, so that it cannot continue or be repeated."""
    if any(name in changes for name in ("data", "examples", "first batch")):
        known = run.provenance.data
        what, restore = "what is drawn now", "restore its source"
        if known is not None:
            what, restore = known.source, f"restore what had SHA-256 {known.sha256[:12]}…"
        fact = f"the data of {run.folder} has changed: {what} is not what it was trained on"
        return DataError(fact, hint=f"{restore}, or train anew; {otherwise}".rstrip("; "))
    restore = f"use --engine {changes['engine'][0]}" if "engine" in changes else "restore what it began with"
    fact = f"{run.folder} would not {verb} to the same bits: {describe(changes)}"
    return CheckpointError(fact, hint=f"{restore}, {otherwise}".rstrip(", "))


def describe(changes: Mapping[str, tuple[Any, Any]]) -> str:
    """Return what changed, as one phrase."""
    return ", ".join(f"{name} was {before} and is {now}" for name, (before, now) in changes.items())
