"""A training run under JAX, alone or as one of several processes that train together.

All processes take the same steps. The first one writes the metrics and the best parameters; a state that is spread
over several devices is written by all, each its own part.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Tree
from ..data.examples import Dataset
from ..errors import ConfigError
from ..parallel.mesh import MeshShape
from ..parallel.together import agreed, process, processes
from ..parallel.watch import Watch
from ..tree import named_leaves
from .checkpoint import LATEST, checkpoint_path, load_checkpoint
from .compiled import CompiledTraining
from .evaluate import Evaluation
from .interruption import uninterrupted
from .loop import StepRecord, TrainingState, final_params
from .run import open_run
from .session import Session
from .sharded_checkpoint import load_sharded_state, save_sharded_state
from .sharded_files import list_sharded
from .trained import Trained


@dataclass
class CompiledSession(Session):
    """One run as it goes on, its state on JAX's devices; `ignored` are checkpoints that a lost run did not finish."""

    ignored: list[Path] = field(default_factory=list)

    @cached_property
    def training(self) -> CompiledTraining:
        """What takes the steps."""
        assert self.run.execution is not None
        return CompiledTraining(self.model, self.run.recipe, self.run.execution)

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(isinstance(leaf, np.ndarray) for _, leaf in named_leaves(self.state.params)):
            self.state = self.training.put(self.state)

    def steps(self) -> Iterator[StepRecord]:
        """Train to the end, writing metrics and checkpoints on the way."""
        recipe = self.run.recipe
        save_every = recipe.save_every or recipe.eval_every
        resume = f"glassformer train --resume {shlex.quote(str(self.run.folder))}"
        self.watch.hint = f"start all workers again; `{resume}` goes on from the last checkpoint"
        self.watch.progress(self.state.step)
        ahead = self.training.steps(self.task.train, self.state, evaluate=self.evaluate)
        held: Any = contextlib.nullcontext()  # the first step compiles, which may take long
        while (record := self._next(ahead, held)) is not None:
            # A step uses up the memory of the state before: from here on Ctrl-C waits for the next state.
            held = contextlib.nullcontext() if processes() > 1 else uninterrupted()
            if self.state.step % save_every == 0 or self.state.step == recipe.steps or record.stop:
                self.save()
            if self.watch.asked_to_stop(record.step):
                raise KeyboardInterrupt
            self.watch.progress(self.state.step)
            yield record
        if self.training.placement.mesh is not None:
            self._save_file()  # which all other commands can read

    def _next(self, ahead: Iterator[tuple[TrainingState, StepRecord]], held: Any) -> StepRecord | None:
        """Take one step and note it; None when there are no more."""
        with held:
            state, record = next(ahead, (None, None))
            if state is None or record is None:
                return None
            if record.is_best:
                self._save_best(state)
            if process() == 0:
                self.run.append(record)
            self.state = state
        return record

    def save(self) -> None:
        """Write the state as it is now."""
        with self.watch.busy("saving"):
            if self.training.placement.mesh is not None:
                save_sharded_state(self.run.folder, self.state)
                return
        self._save_file()

    def _save_file(self) -> None:
        with self.watch.busy("saving"):
            state = self.training.take(self.state)
            if process() == 0:
                self.run.save(state)

    def _save_best(self, state: TrainingState) -> None:
        with self.watch.busy("saving"):
            params = self.training.fetch(final_params(state, self.run.recipe))
            if process() == 0:
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
        return Trained(self.model, self.training.fetch(final_params(self.state, self.run.recipe)), self.task)


def resumed(folder: str | Path, *, mesh: MeshShape | None = None, watch: Watch | None = None) -> CompiledSession:
    """Continue a run of the engine jax from its latest complete checkpoint, on another mesh if one is given."""
    run = open_run(folder)
    if run.execution is None:
        raise ConfigError(f"{folder} was not started with the engine jax", hint="go on without --engine and --mesh")
    if mesh is not None:
        run = run.on_mesh(mesh)
    session = CompiledSession(run, run.task(), run.first_state(), watch=watch or Watch())
    session.state = _latest(session)
    if process() == 0:
        run.rewind_metrics(session.state.step)
    return session


def _latest(session: CompiledSession) -> TrainingState:
    """Return the newest state of a run on the devices: from one file or from many; the first where there is none."""
    run = session.run
    alone = -1
    if checkpoint_path(run.folder, LATEST).is_file():
        alone = load_checkpoint(run.folder, LATEST).meta["step"]
    spread = max(list_sharded(run.folder), default=-1)
    alone, spread = agreed([alone, spread])  # shared storage may look older to some processes
    if spread > alone:
        state, session.ignored = load_sharded_state(run.folder, session.state)
        return state
    return session.state if alone < 0 else session.training.put(run.load_state())
