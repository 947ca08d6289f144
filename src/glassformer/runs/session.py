"""A training run from its folder: steps, evaluations, checkpoints and metrics, with the state always at hand."""

import contextlib
import shlex
import time
import zlib
from collections.abc import Iterator
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
from ..errors import ConfigError, DataError
from ..execution import Execution, MeshShape
from ..models import PRESETS, build
from ..settings import check_known
from ..training.checkpoint import BEST, LATEST, checkpoint_path, load_checkpoint
from ..training.evaluate import Evaluation
from ..training.interruption import Stopped, uninterrupted
from ..training.loop import StepRecord, out_of_patience, suitable_threads, training_steps
from ..training.parametrization import EVERYTHING, Parametrization
from ..training.recipe import Recipe, changed_recipe
from ..training.state import TrainingState, final_params
from ..training.trainer import Trainer
from ..tree import tree_map
from .base import stable_data
from .new_run import create_run
from .run import Run, open_run
from .settings import OF_THE_DATA, sorted_settings
from .trained import Trained


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
    ignored: list[Path] = field(default_factory=list)  # checkpoints that a lost run did not finish

    def __post_init__(self) -> None:
        self.model = self.run.model
        self._unwritten: StepRecord | None = None

    # --- steps -------------------------------------------------------------------------------------------------------

    def steps(self) -> Iterator[StepRecord]:
        """Train to the end, writing metrics and checkpoints on the way."""
        recipe = self.run.recipe
        with suitable_threads(self.run.config, recipe.batch // recipe.accumulate):
            self._begin_watch()
            self._write_record()
            ahead = training_steps(self.trainer, self.task.train, self.state, evaluate=self.evaluate, keep=self._keep)
            held: Any = contextlib.nullcontext()  # the first step may compile, which takes long
            while (record := self._next(ahead, held)) is not None:
                # Where a step uses up the memory of the state before, Ctrl-C waits for the next state from here on.
                held = uninterrupted() if self.trainer.uses_up and processes() == 1 else contextlib.nullcontext()
                self._save_if_due(record)
                if self.watch.asked_to_stop(record.step):
                    raise Stopped
                self.watch.progress(self.state.step)
                yield record
            if self._is_spread:
                self._save_file()  # which all other commands can read

    def _begin_watch(self) -> None:
        resume = f"glassformer train --resume {shlex.quote(str(self.run.folder))}"
        self.watch.hint = f"start all workers again; `{resume}` goes on from the last checkpoint"
        self.watch.progress(self.state.step)
        self.watch.heed_interrupts()

    def _next(self, ahead: Iterator[tuple[TrainingState, StepRecord]], held: Any) -> StepRecord | None:
        """Take one step and note it; None when there are no more."""
        with held:
            for state, record in ahead:
                if state is self.state:
                    self._write_record()
                else:
                    self._append(record)
                    if record.is_best:
                        self._save_best(state)
                    # Only now: a state saved after an interruption must not be ahead of metrics and best parameters.
                    self.state = state
                return record
        return None

    def _keep(self, state: TrainingState, record: StepRecord | None) -> None:
        """Take over a state in the place of the one before; its record is still to be written."""
        self.state, self._unwritten = state, record

    # --- files -------------------------------------------------------------------------------------------------------

    def _write_record(self) -> None:
        with uninterrupted():  # not once too often either
            if self._unwritten is not None:
                self._append(self._unwritten)
                self._unwritten = None

    def _append(self, record: StepRecord) -> None:
        if process() == 0:
            self.run.append(record)

    def _save_if_due(self, record: StepRecord) -> None:
        recipe, step = self.run.recipe, self.state.step
        if step % (recipe.save_every or recipe.eval_every) == 0 or step == recipe.steps or record.stop:
            self.save()

    def save(self) -> None:
        """Write the state as it is now.

        One whose memory a step has used up is in the folder already: only the first step, which starts from there, can
        be broken off.
        """
        self._write_record()
        if self.trainer.is_used_up(self.state):
            return
        if not self._is_spread:
            self._save_file()
            return
        assert self.trainer.parts is not None
        with self.watch.busy("saving"):
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
    def trained(self) -> Trained:
        """The model as it is now, ready to be asked, and staying so; all processes must ask for it at the same time."""
        trained = tree_map(np.array, self.trainer.take(self._counting(self.state)).params)
        return Trained(self.model, self.parametrization.effective(trained), self.task)

    @property
    def best(self) -> Trained:
        """The model with the best parameters so far, ready to be asked."""
        return Trained(self.model, self.load_params(), self.task)

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
) -> Session:
    """Start a run: the task's own model and recipe, changed by a preset and by settings of either.

    With an `execution`, it is computed by the engine jax.
    """
    of_task, of_model, of_recipe = sorted_settings(task_name, settings or {})
    options = {"data": stable_data(data), "seed": seed, **of_task}
    task = build_task(task_name, **options)
    recipe = changed_recipe(task.recipe, {"seed": seed, **of_recipe})
    config = model_config(task, preset, {"dropout": recipe.pop("dropout"), **of_model})
    checked = Recipe.from_dict(recipe)
    how: dict[str, Any] = {"execution": execution, "settings": of_model, "preset": preset}
    return session_of(create_run(folder, task, options, config, checked, **how), task)


def session_of(
    run: Run, task: Task, params: Tree | None = None, parametrization: Parametrization = EVERYTHING
) -> Session:
    """Begin a session of a run; what is trained is drawn anew unless given."""
    trainer = _trainer(run, task, parametrization)
    return Session(run, task, trainer, trainer.first(params), parametrization)


def resume_session(
    folder: str | Path, *, steps: int | None = None, mesh: MeshShape | None = None, watch: Watch | None = None
) -> Session:
    """Continue a run from its latest complete checkpoint, from the beginning if there is none yet.

    With `steps`, it goes on to that step, beyond the end that was planned: see `Recipe.continuation`. A run of the
    engine jax may go on with another mesh, and under the watch of several processes.
    """
    run = open_run(folder)
    if not run.under_jax and (mesh is not None or watch is not None):
        raise ConfigError(f"{folder} was not started with the engine jax", hint="go on without --engine and --mesh")
    asked = None if mesh is None else mesh.to_dict()
    if agreed([asked, steps]) != [asked, steps]:
        raise ConfigError("this worker was given another --mesh or --steps than worker 0", hint="start all alike")
    if mesh is not None:
        run = run.on_mesh(mesh)
    if steps is not None:
        run = replace(run, recipe=run.recipe.with_steps(steps))
    task, parametrization = run.task(), run.parametrization()
    run.check_data()
    trainer = _trainer(run, task, parametrization)
    state, ignored = _latest(run, trainer)
    if steps is not None:
        state = _goes_on(run, state)
    if process() == 0:
        run.rewind_metrics(state.step)
    return Session(run, task, trainer, state, parametrization, watch or Watch(), ignored)


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
        return parts.load(run.folder, run.trained_specs())
    if in_file < 0:
        return trainer.first(run.first_params()), []
    check_shared(file)
    return trainer.put(run.load_state()), []


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


class Stopwatch:
    """How fast a run goes, and how long it will take.

    `compiling` is the part of its time that went into compiling, which comes once: it tells nothing about the pace.
    """

    def __init__(self, total: int, done: int = 0) -> None:
        self.total, self.first, self.done = total, done, done
        self.began, self.tokens, self.compiling = time.perf_counter(), 0, 0.0

    def add(self, record: StepRecord) -> None:
        """Count one step."""
        self.tokens += record.tokens
        self.done = record.step

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.perf_counter() - self.began

    @property
    def tokens_per_second(self) -> float:
        """Tokens trained on per second, evaluations included in the time."""
        return self.tokens / max(self.seconds - self.compiling, 1e-9)

    @property
    def remaining(self) -> float:
        """Seconds to go at this pace."""
        taken = self.done - self.first
        return (self.seconds - self.compiling) / max(taken, 1) * (self.total - self.done)
