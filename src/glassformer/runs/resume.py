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
from .provenance import Provenance, data_provenance
from .recording import continue_recording
from .run import Run, open_run
from .session import Session, make_trainer

MAY_CHANGE = {"steps", "decay_steps"}
"""Recipe settings that `steps` changes."""
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

    steps    train to this step, past the planned end: see `Recipe.continuation`
    mesh     of a run of the engine jax: other devices from now on; `watch` watches over its other processes
    anyway   continue although data, engine, versions or recipe have changed
    """
    run = open_run(folder)
    if not run.under_jax and (mesh is not None or watch is not None):
        raise ConfigError(f"{folder} was not started with the engine jax", hint="resume it without --engine and --mesh")
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
    """Lock a run folder; of several processes, the first one does."""
    if process() != 0:
        return run, []
    lock = FolderLock(run.folder)
    left = lock.acquire()
    crashed = f"{run.folder} was left locked by {left}, which crashed; its lock is taken over"
    return replace(run, lock=lock), [] if left is None else [crashed]


def _continued(
    run: Run, notes: list[str], steps: int | None, mesh: MeshShape | None, watch: Watch | None, *, anyway: bool
) -> Session:
    task = run.task()
    comparison = compare(run, task, anyway=anyway)
    if mesh is not None:
        run = run.on_mesh(mesh)
    if steps is not None:
        run = replace(run, recipe=run.recipe.with_steps(steps))
    parametrization = run.parametrization()
    trainer = make_trainer(run, task, parametrization)
    state, ignored = _latest(run, trainer)
    notes += [f"{path} is incomplete and ignored; continuing after step {state.step:,}" for path in ignored]
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
    """Cut the metrics back to a step; return notes on what is lost."""
    taken = max((line["step"] for line in run.metrics()), default=0)
    damaged = run.rewind_metrics(step)
    notes = [f"{damaged:,} damaged lines of {run.folder / METRICS} are left out"] if damaged else []
    return notes if step or not taken else [*notes, f"there is no checkpoint: {taken:,} steps are taken again"]


def _extend(run: Run, state: TrainingState) -> TrainingState:
    """Write another number of steps into a run; refuse fewer than it has taken. Patience starts over."""
    if run.recipe.steps <= state.step:
        raise ConfigError(
            f"{run.folder} has taken {state.step:,} steps already, and steps={run.recipe.steps} asks for no more",
            hint=f"ask for more than {state.step:,} in all, or leave out steps",
        )
    run.keep()
    return state._replace(stale=0) if out_of_patience(state, run.recipe) else state


def _latest(run: Run, trainer: Trainer) -> tuple[TrainingState, list[Path]]:
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


class Comparison(NamedTuple):
    """The provenance of a run now, and what changed: by name, before and now."""

    now: Provenance | None
    found: dict[str, tuple[Any, Any]]
    notes: list[str]

    def noted(self, run: Run, step: int) -> Run:
        """Return the run with the changes after `step` in its provenance."""
        if not self.found or self.now is None or run.provenance is None:
            return run
        change = {"step": step, "when": self.now.started, **{name: list(pair) for name, pair in self.found.items()}}
        record = replace(self.now, started=run.provenance.started, changes=(*run.provenance.changes, change))
        return replace(run, provenance=record)


def compare(run: Run, task: Task, *, anyway: bool = False) -> Comparison:
    """Compare a run with how it began; refuse changes, unless `anyway`. Other processes compare their data only."""
    if run.provenance is None:
        return Comparison(None, {}, [])
    if process() != 0:
        if not anyway:
            run.check_data()
        return Comparison(None, {}, [])
    data = data_provenance(run.task_name, run.task_options.get("data"))
    now = Provenance.now(run.engine.name, preset=run.provenance.preset, data=data).reading(task.train, run.recipe)
    recipe = read_meta(run.folder, LATEST).get("recipe", {})
    found = {**_differences(run.provenance, now), **_other_recipe(recipe, run.recipe.to_dict())}
    if found and not anyway:
        raise _refusal(run, found)
    notes = []
    if run.provenance.cores != now.cores and not run.under_jax:
        if anyway:
            found["cores"] = (run.provenance.cores, now.cores)
        else:
            notes.append(f"computing as with {run.provenance.cores} cores, as it began; {now.cores} are here")
    if found:
        notes.append(f"continuing anyway, and last digits will differ: {_describe(found)}")
    return Comparison(now, found, notes)


def _differences(before: Provenance, now: Provenance) -> dict[str, tuple[Any, Any]]:
    """Return what changed, of what the run recorded."""
    pairs = {
        "data": (before.data and before.data.sha256[:12], now.data and now.data.sha256[:12]),
        "examples": (before.examples, now.examples),
        "first batch": (before.first and before.first[:12], now.first and now.first[:12]),
        "engine": (before.engine, now.engine),
        "platform": (before.platform, now.platform),
        "processor": (before.processor, now.processor),
    }
    for package, version in before.versions.items():
        pairs[package] = _relevant(package, version), _relevant(package, now.versions.get(package))
    return {name: pair for name, pair in pairs.items() if pair[0] is not None and pair[0] != pair[1]}


def _relevant(package: str, version: str | None) -> str | None:
    """Return the part of a version that may change numbers: Python's patch releases do not."""
    return version if version is None or package != "python" else ".".join(version.split(".")[:2])


def _other_recipe(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ from the recipe of the last checkpoint."""
    shared = [name for name in before if name in now and name not in MAY_CHANGE]
    return {name: (before[name], now[name]) for name in shared if before[name] != now[name]}


def _refusal(run: Run, found: Mapping[str, tuple[Any, Any]]) -> CheckpointError | DataError:
    anyway = "or continue with --anyway (anyway=True), which the run will remember"
    if any(name in found for name in OF_DATA):
        known = None if run.provenance is None else run.provenance.data
        what, restore = "what is drawn now", "restore its source"
        if known is not None:
            what, restore = known.source, f"restore what had SHA-256 {known.sha256[:12]}…"
        fact = f"the data of {run.folder} has changed: {what} is not what it was trained on"
        return DataError(fact, hint=f"{restore}, train anew, {anyway}")
    restore = f"use --engine {found['engine'][0]}" if "engine" in found else "restore what it began with"
    return CheckpointError(
        f"{run.folder} would not continue to the same bits: {_describe(found)}", hint=f"{restore}, {anyway}"
    )


def _describe(found: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{name} was {before} and is {now}" for name, (before, now) in found.items())
