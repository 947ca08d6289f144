"""A training in memory that can be written as a run later.

    trial = new_trial("majority", {"steps": 200})
    for record in trial.session.steps(): …
    trial.frame()              the model as it is now, as a replay would show it
    trial.write("runs/mine")   the run folder that `glassformer train --record` would have written

Batches and first parameters follow from the seed, so a replay of the written run can return to every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..training.checkpoint import BEST
from .in_memory import MemoryRun, memory_run
from .recording import start_recording
from .replay import Frame, frame_of
from .run import Run
from .session import Session, start_session
from .start import create_run, plan_run


@dataclass(eq=False)
class Trial:
    """A training in memory.

    session    takes the steps
    options    of the task
    settings   of the model, as they were given
    """

    session: Session
    options: dict[str, Any]
    settings: dict[str, Any]

    @property
    def run(self) -> MemoryRun:
        """What the steps did, and the best parameters."""
        run = self.session.run
        assert isinstance(run, MemoryRun)
        return run

    def frame(self) -> Frame:
        """Return the training as it is now."""
        self.session.write_records()
        records = self.run.records
        return frame_of(self.session, self.session.state, records[-1].to_dict() if records else None)

    def write(self, folder: str | Path) -> Run:
        """Write it as a run, into the first of folder, folder-2, folder-3, … that is free."""
        session, own = self.session, self.run
        session.write_records()
        last = own.recipe.keep == "last"
        best = [record for record in own.records if record.evaluation is not None and (record.is_best or last)]
        if not own.records:
            raise ConfigError("no step was taken yet", hint="train it first")
        run = create_run(
            Path(folder),
            session.task,
            self.options,
            own.config,
            own.recipe,
            execution=None,
            settings=self.settings,
            numbered=True,
        )
        start_recording(run, session.state)
        run.append(own.records)
        if best:
            state = session.trainer.take(session.state)
            judged = best[-1].evaluation
            loss = None if judged is None else judged.loss
            run.save_best(state._replace(step=best[-1].step, params=own.kept[BEST], ema=None, best=loss, stale=0))
        run.save(session.trainer.take(session.state))
        if run.lock is not None:
            run.lock.release()
        return run


def new_trial(task_name: str, settings: dict[str, Any] | None = None, *, seed: int = 0) -> Trial:
    """Begin a training in memory: the task's own model and recipe, changed by settings of either."""
    task, options, config, recipe, of_model = plan_run(task_name, settings, seed=seed)
    run = memory_run(task_name, config, recipe, settings=of_model)
    return Trial(start_session(run, task), options, of_model)
