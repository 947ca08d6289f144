"""Training in memory: its records and best parameters stay there; a trial can be written as a run later.

Batches and first parameters follow from the seed, so a replay of the written run can return to every step.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Tree
from ..core.errors import CheckpointError, ConfigError
from ..core.execution import Execution
from ..core.tree import tree_map
from ..models import Model
from ..training.checkpoint import BEST
from ..training.loop import StepRecord
from ..training.lora import check_freeze
from ..training.state import TrainingState, final_params
from .planning import RunPlan, plan_new
from .replay import Frame, frame_of
from .run import TrainingRun
from .session import Session, open_recording, start_session
from .start import create_run


@dataclass(frozen=True)
class MemoryRun(TrainingRun):
    """A run whose session writes no file.

    records   of all steps so far
    kept      the parameters that count as the best so far, under the name of their checkpoint
    given     a model of the user's own class, which is trained in place of the config's
    """

    records: list[StepRecord] = field(default_factory=list)
    kept: dict[str, Tree] = field(default_factory=dict)
    given: Model | None = None

    def build(self, execution: Execution) -> Model:
        """Return the model that is trained, of the user's own class where there is one."""
        if self.given is None:
            return super().build(execution)
        return replace(self.given, config=self.config, execution=execution)  # type: ignore[type-var]

    def append(self, records: list[StepRecord]) -> None:
        """Remember steps."""
        self.records.extend(records)

    def metrics(self) -> list[dict[str, Any]]:
        """Return one dict for each step."""
        return [record.to_dict() for record in self.records]

    def save(self, state: TrainingState) -> None:
        """Do nothing: the session holds the state."""

    def save_parts(self, parts: Any, state: TrainingState) -> None:
        """Do nothing: the session holds the state, wherever its parts lie."""

    def save_best(self, state: TrainingState) -> None:
        """Remember the parameters that count as the best so far, in memory that no later step writes to."""
        self.kept[BEST] = tree_map(np.array, final_params(state, self.recipe))

    def load_trained(self, name: str = BEST) -> Tree:
        """Return what was trained, the best so far."""
        if name not in self.kept:
            raise CheckpointError(f"no {name} parameters are kept yet", hint="wait for an evaluation")
        return self.kept[name]


def memory_run(plan: RunPlan, given: Model | None = None) -> MemoryRun:
    """Return the run of a plan, which trains the `given` model, if any."""
    run = MemoryRun(**vars(plan.run), given=given)
    check_freeze(run.recipe.freeze, run.model, scan=run.execution.scan)
    return run


@dataclass(eq=False)
class Trial:
    """A training in memory."""

    session: Session
    plan: RunPlan
    run: MemoryRun  # what the steps did, and the best parameters

    def frame(self) -> Frame:
        """Return the training as it is now."""
        self.session.write_records()
        records = self.run.records
        return frame_of(self.session, self.session.state, records[-1].to_dict() if records else None)

    def write(self, folder: str | Path) -> TrainingRun:
        """Write it as a run, into the first of folder, folder-2, folder-3, … that is free."""
        session, own = self.session, self.run
        session.write_records()
        last = own.recipe.keep == "last"
        best = [record for record in own.records if record.evaluation is not None and (record.is_best or last)]
        if not own.records:
            raise ConfigError("no step was taken yet", hint="train it first")
        run = create_run(self.plan, Path(folder), numbered=True)
        open_recording(run, session.state, new=True)
        run.append(own.records)
        state = session.trainer.take(session.state)
        if best:
            loss = None if best[-1].evaluation is None else best[-1].evaluation.loss
            run.save_best(state._replace(step=best[-1].step, params=own.kept[BEST], ema=None, best=loss, stale=0))
        run.save(state)
        if run.lock is not None:
            run.lock.release()
        return run


def new_trial(task_name: str, settings: dict[str, Any] | None = None, *, seed: int = 0) -> Trial:
    """Begin a training in memory: the task's own model and recipe, changed by settings of either."""
    plan = plan_new(task_name, settings, seed=seed)
    run = memory_run(plan)
    return Trial(start_session(run, plan), plan, run)
