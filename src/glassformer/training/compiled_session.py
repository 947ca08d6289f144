"""A training run under JAX, alone or as one of several processes that train together.

All processes take the same steps. The first one writes the metrics and the best parameters; a state that is spread
over several devices is written by all, each its own part.
"""

from __future__ import annotations

import contextlib
import shlex
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from ..data import Task
from ..data.examples import Dataset
from ..errors import ConfigError, DataError, TrainingError
from ..models import Batch
from ..parallel.mesh import MeshShape
from ..parallel.together import agreed, meet, process, processes
from ..parallel.watch import Watch
from ..tree import named_leaves
from .checkpoint import LATEST, checkpoint_path, load_checkpoint
from .compiled import CompiledTraining
from .evaluate import Evaluation
from .interruption import Stopped, uninterrupted
from .loop import StepRecord, TrainingState, final_params
from .parametrization import Parametrization
from .recipe import Recipe
from .run import Run, open_run
from .session import Session
from .sharded_checkpoint import load_sharded_state, save_sharded_state
from .sharded_files import check_shared, list_sharded
from .trained import Trained


class Training(CompiledTraining):
    """Takes steps, and knows what is left of a state when one of them ends the run."""

    _after: TrainingState | None = None

    def step(self, state: TrainingState, batch: Batch, lr: float) -> tuple[TrainingState, Array]:
        """Dispatch one step, and remember the state after it."""
        self._after, figures = super().step(state, batch, lr)
        return self._after, figures

    def unmoved(self, state: TrainingState) -> TrainingState:
        """Return a state whose memory a refused step has used up: such a step moves nothing."""
        if self._after is None or not _is_used_up(state):
            return state
        return self._after._replace(step=state.step, best=state.best, stale=state.stale, refused=state.refused)


@dataclass
class CompiledSession(Session):
    """One run as it goes on, its state on JAX's devices; `ignored` are checkpoints that a lost run did not finish."""

    ignored: list[Path] = field(default_factory=list)
    training: Training = field(kw_only=True)  # what takes the steps

    def steps(self) -> Iterator[StepRecord]:
        """Train to the end, writing metrics and checkpoints on the way."""
        recipe = self.run.recipe
        save_every = recipe.save_every or recipe.eval_every
        resume = f"glassformer train --resume {shlex.quote(str(self.run.folder))}"
        self.watch.hint = f"start all workers again; `{resume}` goes on from the last checkpoint"
        self.watch.progress(self.state.step)
        self.watch.heed_interrupts()
        ahead = self.training.steps(self.task.train, self.state, evaluate=self.evaluate)
        held: Any = contextlib.nullcontext()  # the first step compiles, which may take long
        while (record := self._next(ahead, held)) is not None:
            # A step uses up the memory of the state before: from here on Ctrl-C waits for the next state.
            held = contextlib.nullcontext() if processes() > 1 else uninterrupted()
            if self.state.step % save_every == 0 or self.state.step == recipe.steps or record.stop:
                self.save()
            if self.watch.asked_to_stop(record.step):
                raise Stopped
            self.watch.progress(self.state.step)
            yield record
        if self.training.placement.mesh is not None:
            self._save_file()  # which all other commands can read

    def _next(self, ahead: Iterator[tuple[TrainingState, StepRecord]], held: Any) -> StepRecord | None:
        """Take one step and note it; None when there are no more."""
        with held:
            try:
                state, record = next(ahead, (None, None))
            except TrainingError:
                self.state = self.training.unmoved(self.state)
                raise
            if state is None or record is None:
                return None
            if record.is_best:
                self._save_best(state)
            if process() == 0:
                self.run.append(record)
            self.state = state
        return record

    def save(self) -> None:
        """Write the state as it is now.

        One whose memory a step has used up is in the folder already: only the first step, which starts from there, can
        be broken off.
        """
        if _is_used_up(self.state):
            return
        with self.watch.busy("saving"):
            if self.training.placement.mesh is not None:
                save_sharded_state(self.run.folder, self.state)
                return
        self._save_file()

    def _save_file(self) -> None:
        with self.watch.busy("saving"):
            first = process() == 0
            state = self.training.take(self.state, wanted=first)
            if first:
                self.run.save(state)
            meet("saved")  # the others may read it next

    def _save_best(self, state: TrainingState) -> None:
        with self.watch.busy("saving"):
            first = process() == 0
            params = self.training.fetch(final_params(state, self.run.recipe), wanted=first)
            if first:
                self.run.save_best(state._replace(params=params, ema=None))

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
            return self.training.evaluate(self.training.put_params(params), data, metric=self.task.metric, **settings)

    @property
    def trained(self) -> Trained:
        """The model as it is now, ready to be asked; all processes must ask for it together."""
        trained = self.training.fetch(final_params(self.state, self.run.recipe))
        return Trained(self.model, self.parametrization.effective(trained), self.task)


def begun(run: Run, task: Task, params: Tree | None, parametrization: Parametrization) -> CompiledSession:
    """Begin a run with what is trained as it is given, or drawn anew."""
    _check_data(task.train, run.recipe)
    training = _training(run, parametrization)
    return CompiledSession(run, task, training.first(params), parametrization, training=training)


def resumed(folder: str | Path, *, mesh: MeshShape | None = None, watch: Watch | None = None) -> CompiledSession:
    """Continue a run of the engine jax from its latest complete checkpoint, on another mesh if one is given."""
    run = open_run(folder)
    if run.execution is None:
        raise ConfigError(f"{folder} was not started with the engine jax", hint="go on without --engine and --mesh")
    asked = None if mesh is None else mesh.to_dict()
    if agreed(asked) != asked:
        raise ConfigError("this worker was given another --mesh than worker 0", hint="start all workers alike")
    if mesh is not None:
        run = run.on_mesh(mesh)
    task, parametrization = run.task(), run.parametrization()
    _check_data(task.train, run.recipe)
    training = _training(run, parametrization)
    state, ignored = _latest(run, training)
    if process() == 0:
        run.rewind_metrics(state.step)
    return CompiledSession(run, task, state, parametrization, watch or Watch(), ignored, training=training)


def _training(run: Run, parametrization: Parametrization) -> Training:
    assert run.execution is not None
    return Training(run.model, run.recipe, run.execution, parametrization)


def _latest(run: Run, training: CompiledTraining) -> tuple[TrainingState, list[Path]]:
    """Return the newest state of a run on the devices, from one file or from many, or the first where there is none.

    And the incomplete checkpoints after it.
    """
    alone = -1
    if process() == 0 and checkpoint_path(run.folder, LATEST).is_file():
        alone = load_checkpoint(run.folder, LATEST).meta["step"]
    spread = max(list_sharded(run.folder), default=-1)
    alone, spread = agreed([alone, spread])  # shared storage may look older to some processes
    if spread > alone:
        return load_sharded_state(run.folder, training.shapes(run.trained_specs()))
    if alone < 0:
        return training.first(run.first_params()), []
    check_shared(checkpoint_path(run.folder, LATEST))
    return training.put(run.load_state()), []


def _is_used_up(state: TrainingState) -> bool:
    return any(getattr(leaf, "is_deleted", bool)() for _, leaf in named_leaves(state.params))


def _check_data(data: Dataset, recipe: Recipe) -> None:
    """Refuse to train together on different data, as far as its size and the first batch tell."""
    if processes() > 1:
        tokens = np.ascontiguousarray(data.batch(0, recipe.batch, recipe.seed).tokens)
        own = [len(data), zlib.crc32(tokens.tobytes())]
        if agreed(own) != own:
            raise DataError("this worker reads other data than worker 0", hint="give all workers the same data")
