"""A training run from its folder: steps, evaluations, checkpoints and metrics, with the state always at hand."""

import contextlib
import math
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Tree
from ..cluster.collective import agreed, check_shared, meet, process, processes
from ..cluster.watch import Watch
from ..config import TransformerConfig, config_from_dict
from ..data import Task, build_task
from ..data.examples import Dataset
from ..errors import CheckpointError, ConfigError, DataError, typed
from ..execution import Execution, MeshShape
from ..models import PRESETS, build
from ..settings import check_known
from ..trained_model import TrainedModel
from ..training.checkpoint import BEST, LATEST, checkpoint_path, load_checkpoint
from ..training.evaluate import Evaluation
from ..training.interruption import Stopped, uninterrupted
from ..training.loop import StepRecord, out_of_patience, suitable_threads, training_steps
from ..training.parametrization import EVERYTHING, Parametrization
from ..training.recipe import Recipe, changed_recipe
from ..training.state import TrainingState, final_params, not_finite, refuse_to_go_on, refuse_to_save
from ..training.trainer import Trainer
from ..tree import tree_map
from .base import stable_data
from .continuation import compared
from .lock import FolderLock
from .metrics import METRICS
from .new_run import create_run
from .recording import Recording, begin, go_on
from .run import Run, open_run
from .settings import OF_THE_DATA, sorted_settings

SOON = 0.1
"""Seconds that metrics may wait to be written: to open a file takes a tenth of the smallest steps."""


@dataclass
class Session:
    """One run as it goes on. `state` is complete after every step, so it can be saved at any moment.

    All processes of a run take the same steps. The first one writes the metrics and the best parameters; a state that
    is spread over several devices is written by all, each its own part.
    """

    run: Run
    task: Task
    trainer: Trainer
    state: TrainingState
    parametrization: Parametrization = EVERYTHING
    watch: Watch = field(default_factory=Watch)  # over the other processes of a run, where there are any
    notes: list[str] = field(default_factory=list)  # what one should know about how it goes on
    recording: Recording | None = None  # the states to return to, where they are kept

    def __post_init__(self) -> None:
        self.model = self.run.model
        self._unwritten: list[StepRecord] = []
        self._written = -math.inf  # when

    # --- steps -------------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[StepRecord]:
        """Train to the end, writing metrics and checkpoints on the way.

        Between steps, BLAS and the cores are as they were before: whoever asked for one may do something else before
        the next, or never go on.
        """
        recipe = self.run.recipe
        threads = suitable_threads(self.run.config, recipe.batch // recipe.accumulate)
        computing = self.run.computing()
        self._begin_watch()
        ahead = training_steps(self.trainer, self.task.train, self.state, evaluate=self.evaluate, keep=self._keep)
        held: Any = contextlib.nullcontext()  # the first step may compile, which takes long
        try:
            while (record := self._next(ahead, held, computing, threads)) is not None:
                # Where a step uses up the memory of the state before, Ctrl-C waits for the next state from here on.
                held = uninterrupted() if self.trainer.uses_up and processes() == 1 else contextlib.nullcontext()
                self._save_if_due(record)
                if self.watch.asked_to_stop(record.step):
                    raise Stopped
                self.watch.progress(self.state.step)
                yield record
        finally:
            with contextlib.suppress(CheckpointError):  # whoever broke off has a reason of their own; a save wrote all
                self.write_records()
        if self._is_spread:
            self._save_file()  # which all other commands can read
        if self.run.lock is not None:
            self.run.lock.let_go()

    def _begin_watch(self) -> None:
        resume = f"glassformer train --resume {typed(self.run.folder)}"
        self.watch.hint = f"start all workers again; `{resume}` goes on from the last checkpoint"
        self.watch.progress(self.state.step)
        self.watch.heed_interrupts()

    def _next(
        self, ahead: Iterator[tuple[TrainingState, StepRecord]], held: Any, computing: Callable[[], Any], threads: Any
    ) -> StepRecord | None:
        """Take one step and note it; None when there are no more."""
        with held, computing(), threads:
            for state, record in ahead:
                if state is not self.state:
                    self._unwritten.append(record)
                    if record.is_best:
                        self._save_best(state)
                    # Only now: a state saved after an interruption must not be ahead of metrics and best parameters.
                    self.state = state
                if record.evaluation is not None or time.monotonic() > self._written + SOON:
                    self.write_records()
                return record
        return None

    def _keep(self, state: TrainingState, record: StepRecord | None) -> None:
        """Take over a state in the place of the one before; its record is still to be written."""
        self.state = state
        if record is not None:
            self._unwritten.append(record)

    # --- files -------------------------------------------------------------------------------------------------------

    def write_records(self) -> None:
        """Write the metrics of all steps so far."""
        with uninterrupted():  # not once too often either
            if self._unwritten and process() == 0:
                self.run.append(self._unwritten)
            self._unwritten, self._written = [], time.monotonic()

    def _save_if_due(self, record: StepRecord) -> None:
        recipe, step = self.run.recipe, self.state.step
        if self.recording is not None and self.recording.is_due(step):
            self.write_records()
            self.recording.keep(self.trainer.take(self.state))
        if step % (recipe.save_every or recipe.eval_every) == 0 or step == recipe.steps or record.stop:
            self.save()

    def save(self) -> None:
        """Write the state as it is now.

        One whose memory a step has used up is in the folder already: only the first step, which starts from there, can
        be broken off.
        """
        self.write_records()
        if self.trainer.is_used_up(self.state):
            return
        if not self._is_spread:
            self._save_file()
            return
        assert self.trainer.parts is not None
        with self.watch.busy("saving"):
            refuse_to_save(self.trainer.parts.not_finite(self.state), self.state.step)
            self.trainer.parts.save(self.run.folder, self.state)

    @property
    def _is_spread(self) -> bool:
        return self.trainer.parts is not None and self.trainer.parts.needed

    def _save_file(self) -> None:
        with self.watch.busy("saving"):
            state = self.trainer.take(self.state, wanted=process() == 0)
            if process() == 0:
                self.run.save(state)
            meet("saved")  # the others may read it next

    def _save_best(self, state: TrainingState) -> None:
        with self.watch.busy("saving"):
            best = self.trainer.take(self._counting(state), wanted=process() == 0)
            if process() == 0:
                self.run.save_best(best)

    def _counting(self, state: TrainingState) -> TrainingState:
        """Return a state with nothing but the parameters that count."""
        return state._replace(params=final_params(state, self.run.recipe), optimizer={}, ema=None, scaling=None)

    # --- models ------------------------------------------------------------------------------------------------------

    def evaluate(self, params: Tree) -> Evaluation:
        """Measure parameters on all of the validation data, or the held-out data where there is none."""
        if self.task.validation is None:
            return self.test(params)
        return self._measured(params, self.task.validation)

    def test(self, params: Tree) -> Evaluation:
        """Measure parameters on all of the held-out data."""
        return self._measured(params, self.task.held_out, groups=self.task.groups)

    def _measured(self, params: Tree, data: Dataset, **settings: Any) -> Evaluation:
        with self.watch.busy("evaluating"):
            return self.trainer.evaluate(params, data, metric=self.task.metric, **settings)

    @property
    def trained(self) -> TrainedModel:
        """The model as it is now, ready to be asked, and staying so; all processes must ask for it at the same time."""
        trained = tree_map(np.array, self.trainer.take(self._counting(self.state)).params)
        return TrainedModel.of_task(self.model, self.parametrization.effective(trained), self.task)

    @property
    def best(self) -> TrainedModel:
        """The model with the best parameters so far, ready to be asked."""
        return TrainedModel.of_task(self.model, self.load_params(), self.task)

    def load_params(self, name: str = BEST) -> Tree:
        """Return trained parameters from the folder: the best, or the latest where there is no best yet."""
        return self.run.load_params(name, parametrization=self.parametrization)


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

    With an `execution`, it is computed by the engine jax. `numbered` puts it into the first of folder, folder-2, … that
    nobody has. `recorded` keeps what it takes to return to any step: see `recording`.
    """
    of_task, of_model, of_recipe = sorted_settings(task_name, settings or {})
    options = {"data": stable_data(data), "seed": seed, **of_task}
    task = build_task(task_name, **options)
    recipe = changed_recipe(task.recipe, {"seed": seed, **of_recipe})
    config = model_config(task, preset, {"dropout": recipe.pop("dropout"), **of_model})
    checked = Recipe.from_dict(recipe)
    how: dict[str, Any] = {"execution": execution, "settings": of_model, "preset": preset, "numbered": numbered}
    return session_of(create_run(folder, task, options, config, checked, **how), task, recorded=recorded)


def session_of(
    run: Run,
    task: Task,
    params: Tree | None = None,
    parametrization: Parametrization = EVERYTHING,
    *,
    recorded: bool = False,
) -> Session:
    """Begin a session of a run; what is trained is drawn anew unless given."""
    trainer = _trainer(run, task, parametrization)
    state = trainer.first(params)
    recording = begin(run, state) if recorded else None
    if recording is not None and params is not None and run.base is None:
        recording.keep(trainer.take(state), "from")  # nothing else says where it began
    return Session(run, task, trainer, state, parametrization, recording=recording)


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
            run.lock.give_back()
        raise


def _locked(run: Run) -> tuple[Run, list[str]]:
    """Make a run folder one's own; of several processes, the first one does."""
    if process() != 0:
        return run, []
    lock = FolderLock(run.folder)
    left = lock.take()
    said = f"{run.folder} was left by {left}, which ended without a word; its lock is taken over"
    return replace(run, lock=lock), [] if left is None else [said]


def _continued(
    run: Run, notes: list[str], steps: int | None, mesh: MeshShape | None, watch: Watch | None, *, anyway: bool
) -> Session:
    """Begin a session of a run where the last one ended."""
    task = run.task()
    comparison = compared(run, task, anyway=anyway)
    if mesh is not None:
        run = run.on_mesh(mesh)
    if steps is not None:
        run = replace(run, recipe=run.recipe.with_steps(steps))
    parametrization = run.parametrization()
    trainer = _trainer(run, task, parametrization)
    state, ignored = _latest(run, trainer)
    notes += [f"{path} was never finished and is ignored; going on after step {state.step:,}" for path in ignored]
    run = comparison.noted(run, state.step)
    before = state
    if steps is not None:
        state = _goes_on(run, state)
    recording = go_on(run, trainer, state, anew=bool(comparison.found) or state is not before)
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


def _goes_on(run: Run, state: TrainingState) -> TrainingState:
    """Note that a run takes another number of steps; refuse fewer than it has taken. Its patience begins anew."""
    if run.recipe.steps <= state.step:
        raise ConfigError(
            f"{run.folder} has taken {state.step:,} steps already, and --steps {run.recipe.steps} asks for no more",
            hint=f"ask for more than {state.step:,} in all, or leave --steps out",
        )
    run.keep()
    return state._replace(stale=0) if out_of_patience(state, run.recipe) else state


def _trainer(run: Run, task: Task, parametrization: Parametrization) -> Trainer:
    _check_data(task.train, run.recipe)
    return run.engine.trainer(build(run.config, run.execution), run.recipe, parametrization=parametrization)


def _check_data(data: Dataset, recipe: Recipe) -> None:
    """Refuse to train together on different data, as far as its size and the first batch tell."""
    if processes() > 1:
        tokens = np.ascontiguousarray(data.batch(0, recipe.batch, recipe.seed).tokens)
        own = [len(data), zlib.crc32(tokens.tobytes())]
        if agreed(own) != own:
            raise DataError("this worker reads other data than worker 0", hint="give all workers the same data")


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
        left_out = {*OF_THE_DATA, *(("head_bias", "head_scale") if "classes" in task.settings else ())}
        kept = {name: value for name, value in chosen.items() if name not in left_out}
        settings = {**kept, **{name: task.settings[name] for name in OF_THE_DATA if name in task.settings}}
    return config_from_dict({**settings, **changes})
