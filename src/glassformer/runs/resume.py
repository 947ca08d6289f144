"""Continue a run: from its latest checkpoint, with the data, engine, versions, platform and recipe it began with.

What differs is refused. With `anyway`, it is reported and kept in the run's record.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..cluster.collective import agreed, check_shared, process
from ..cluster.watch import Watch
from ..data import Task
from ..errors import CheckpointError, ConfigError, DataError
from ..execution import MeshShape
from ..training.checkpoint import LATEST, checkpoint_path, load_checkpoint, read_meta
from ..training.loop import out_of_patience
from ..training.state import TrainingState, not_finite, refuse_to_go_on
from ..training.trainer import Trainer
from .lock import FolderLock
from .metrics import METRICS
from .record import Record, read_record
from .recording import continue_recording
from .run import Run, open_run
from .session import Session, make_trainer

MAY_CHANGE = {"steps", "decay_steps"}
"""What of a recipe `--steps` changes."""
OF_DATA = ("data", "examples", "first batch")


def resume_session(
    folder: str | Path,
    *,
    steps: int | None = None,
    mesh: MeshShape | None = None,
    watch: Watch | None = None,
    anyway: bool = False,
) -> Session:
    """Continue a run from its latest complete checkpoint, from the beginning if there is none yet.

    With `steps`, it goes on to that step, beyond the end that was planned: see `Recipe.continuation`. A run of the
    engine jax may go on with another mesh, and under the watch of several processes. `anyway` goes on although data,
    engine, versions or recipe are others than those that it began with: see `continuation`.
    """
    run = open_run(folder)
    if not run.under_jax and (mesh is not None or watch is not None):
        raise ConfigError(f"{folder} was not started with the engine jax", hint="go on without --engine and --mesh")
    asked = None if mesh is None else mesh.to_dict()
    if agreed([asked, steps]) != [asked, steps]:
        raise ConfigError("this worker was given another --mesh or --steps than worker 0", hint="start all alike")
    run, notes = _locked(run)
    try:
        return _continued(run, notes, steps, mesh, watch, anyway=anyway)
    except BaseException:
        if run.lock is not None:
            run.lock.hand_back()
        raise


def _locked(run: Run) -> tuple[Run, list[str]]:
    """Make a run folder one's own; of several processes, the first one does."""
    if process() != 0:
        return run, []
    lock = FolderLock(run.folder)
    left = lock.acquire()
    said = f"{run.folder} was left by {left}, which ended without a word; its lock is taken over"
    return replace(run, lock=lock), [] if left is None else [said]


def _continued(
    run: Run, notes: list[str], steps: int | None, mesh: MeshShape | None, watch: Watch | None, *, anyway: bool
) -> Session:
    """Begin a session of a run where the last one ended."""
    task = run.task()
    comparison = compare(run, task, anyway=anyway)
    if mesh is not None:
        run = run.on_mesh(mesh)
    if steps is not None:
        run = replace(run, recipe=run.recipe.with_steps(steps))
    parametrization = run.parametrization()
    trainer = make_trainer(run, task, parametrization)
    state, ignored = _latest(run, trainer)
    notes += [f"{path} was never finished and is ignored; going on after step {state.step:,}" for path in ignored]
    run = comparison.noted(run, state.step)
    before = state
    if steps is not None:
        state = _extend(run, state)
    recording = continue_recording(run, trainer, state, anew=bool(comparison.found) or state is not before)
    if process() == 0:
        if comparison.found:
            run.write_config()
        notes += [*comparison.notes, *_rewound(run, state.step)]
    return Session(run, task, trainer, state, parametrization, watch or Watch(), notes, recording)


def _rewound(run: Run, step: int) -> list[str]:
    """Cut the metrics back to a step; say what is lost."""
    taken = max((line["step"] for line in run.metrics()), default=0)
    damaged = run.rewind_metrics(step)
    said = [f"{damaged:,} damaged lines of {run.folder / METRICS} are left out"] if damaged else []
    return said if step or not taken else [*said, f"there is no checkpoint: {taken:,} steps are taken again"]


def _extend(run: Run, state: TrainingState) -> TrainingState:
    """Note that a run takes another number of steps; refuse fewer than it has taken. Its patience begins anew."""
    if run.recipe.steps <= state.step:
        raise ConfigError(
            f"{run.folder} has taken {state.step:,} steps already, and --steps {run.recipe.steps} asks for no more",
            hint=f"ask for more than {state.step:,} in all, or leave --steps out",
        )
    run.keep()
    return state._replace(stale=0) if out_of_patience(state, run.recipe) else state


def _latest(run: Run, trainer: Trainer) -> tuple[TrainingState, list[Path]]:
    """Return the newest state of a run, from one file or from many, or the first where there is none.

    And the incomplete checkpoints after it.
    """
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


class Comparison(NamedTuple):
    """What a run has now, and what of it was something else: by name, as it was and as it is."""

    now: Record | None
    found: dict[str, tuple[Any, Any]]
    notes: list[str]

    def noted(self, run: Run, step: int) -> Run:
        """Return the run with what differs from `step` on in its record."""
        if not self.found or self.now is None or run.record is None:
            return run
        change = {"step": step, "when": self.now.started, **{name: list(pair) for name, pair in self.found.items()}}
        record = replace(self.now, started=run.record.started, changes=(*run.record.changes, change))
        return replace(run, record=record)


def compare(run: Run, task: Task, *, anyway: bool = False) -> Comparison:
    """Compare a run with what it began with; refuse to go on with anything else, unless `anyway`.

    Of several processes, the first one compares; the others look at their data.
    """
    if run.record is None:
        return Comparison(None, {}, [])
    if process() != 0:
        if not anyway:
            run.check_data()
        return Comparison(None, {}, [])
    data = read_record(run.task_name, run.task_options.get("data"))
    now = Record.now(run.engine.name, preset=run.record.preset, data=data).reading(task.train, run.recipe)
    recipe = read_meta(run.folder, LATEST).get("recipe", {})
    found = {**_differences(run.record, now), **_other_recipe(recipe, run.recipe.to_dict())}
    if found and not anyway:
        raise _refusal(run, found)
    notes = []
    if run.record.cores != now.cores and not run.under_jax:
        if anyway:
            found["cores"] = (run.record.cores, now.cores)
        else:
            notes.append(
                f"it goes on as with {run.record.cores} cores, as it began, to the same bits; {now.cores} are here"
            )
    if found:
        notes.append(f"going on anyway, and last digits will differ: {_describe(found)}")
    return Comparison(now, found, notes)


def _differences(before: Record, now: Record) -> dict[str, tuple[Any, Any]]:
    """Return what differs; what was not recorded is not asked for."""
    pairs = {
        "data": (before.data and before.data.sha256[:12], now.data and now.data.sha256[:12]),
        "examples": (before.examples, now.examples),
        "first batch": (before.first and before.first[:12], now.first and now.first[:12]),
        "engine": (before.engine, now.engine),
        "platform": (before.platform, now.platform),
        "processor": (before.processor, now.processor),
    }
    for package, version in before.versions.items():
        pairs[package] = _counting(package, version), _counting(package, now.versions.get(package))
    return {name: pair for name, pair in pairs.items() if pair[0] is not None and pair[0] != pair[1]}


def _counting(package: str, version: str | None) -> str | None:
    """Return the part of a version that may matter: corrections of Python itself change no number."""
    return version if version is None or package != "python" else ".".join(version.split(".")[:2])


def _other_recipe(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return in which settings the recipe is another than the one that the last checkpoint came about by."""
    shared = [name for name in before if name in now and name not in MAY_CHANGE]
    return {name: (before[name], now[name]) for name in shared if before[name] != now[name]}


def _refusal(run: Run, found: Mapping[str, tuple[Any, Any]]) -> CheckpointError | DataError:
    anyway = "or go on with it by --anyway, which the run will remember"
    if any(name in found for name in OF_DATA):
        known = None if run.record is None else run.record.data
        what, restore = "what is drawn now", "restore what it is drawn from"
        if known is not None:
            what, restore = known.source, f"restore what had SHA-256 {known.sha256[:12]}…"
        fact = f"the data of {run.folder} has changed: {what} is not what it was trained on"
        return DataError(fact, hint=f"{restore}, train anew, {anyway}")
    restore = f"use --engine {found['engine'][0]}" if "engine" in found else "restore what it began with"
    return CheckpointError(
        f"{run.folder} would not go on to the same bits: {_describe(found)}", hint=f"{restore}, {anyway}"
    )


def _describe(found: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} was {before} and is {now}" for name, (before, now) in found.items())
