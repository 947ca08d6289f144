"""Training replayed: any step of a recorded run, computed again bit for bit.

    replay = gf.replay("runs/induction")         a run that was trained with --record
    frame = replay.at(300)                       the model as it was after 300 steps: frame.model, frame.params

A frame is computed from the nearest state kept before it. Every repeated step must find the loss and the gradient norm
that the run recorded, to the last bit; otherwise an error is raised.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Tree
from ..core.errors import CheckpointError, ConfigError
from ..core.tree import tree_map
from ..data import Task
from ..models import Model
from ..training.checkpoint import LATEST, read_meta
from ..training.evaluate import Evaluation
from ..training.loop import StepRecord, apply_evaluation, number, suitable_threads, take_step
from ..training.lora import Parametrization
from ..training.state import TrainingState, final_params
from ..training.trainer import Trainer
from ..weights.loaded_model import LoadedModel
from .folder import METRICS
from .run import Ready, TrainingRun, open_run
from .session import Recording, TrainingSession, make_trainer, open_recording
from .sinks import RunFolder
from .start import compare, refusal


@dataclass(frozen=True, eq=False)
class Frame:
    """A run after `step` steps.

    state     everything that the rest of the run depends on, as NumPy arrays
    params    the parameters of the model, adapters merged
    metrics   the line of the step that led here: loss, lr, grad_norm and, after an evaluation, val_loss; {} at step 0
    trained   the model as it would be used: with the moving average of the parameters, where there is one
    """

    step: int
    state: TrainingState
    model: Model
    params: Tree
    metrics: dict[str, Any]
    trained: LoadedModel

    @property
    def loss(self) -> float:
        """The training loss of the step that led here; NaN before the first."""
        return number(self.metrics.get("loss"))

    @property
    def grad_norm(self) -> float:
        """The norm of that step's gradients; NaN before the first."""
        return number(self.metrics.get("grad_norm"))


@dataclass(frozen=True, eq=False)
class Replay:
    """A recorded run, any step of which can be returned to.

    steps   the steps there are frames of: 0 is before the first
    kept    those whose states lie in the folder; all others are computed again
    model_class   what `Frame.trained` is
    """

    run: TrainingRun
    task: Task
    trainer: Trainer
    parametrization: Parametrization
    recording: Recording
    steps: range
    kept: tuple[int, ...]
    lines: dict[int, dict[str, Any]]
    model_class: type[LoadedModel] = LoadedModel

    def __repr__(self) -> str:
        return f"Replay({self.run.folder}, steps {self.steps.start:,} to {self.steps[-1]:,}, {len(self.kept)} states)"

    def at(self, step: int) -> Frame:
        """Return the run as it was after a step; negative numbers count from the end, as in a list."""
        return next(self.frames([step]))

    def __iter__(self) -> Iterator[Frame]:
        return self.frames(self.steps)

    def frames(self, steps: Iterable[int]) -> Iterator[Frame]:
        """Yield the frames of some steps in order, each step between them computed once at most."""
        state: TrainingState | None = None
        for step in sorted({self.checked(step) for step in steps}):
            near = max((kept for kept in (self.steps.start, *self.kept) if kept <= step), default=0)
            if state is None or state.step < near:
                if near in self.kept:
                    kept = self.run.load_state(self.recording.folder, self.recording.kept()[near])
                    state = self.trainer.put(kept)
                else:
                    state = self.trainer.first(self.run.first_params())
            state = self._advanced(state, step)
            yield frame_of(self, state, self.lines.get(state.step), self.model_class)

    def spaced(self, count: int = 40) -> list[int]:
        """Return about `count` steps from the first to the last: see `spaced_steps`."""
        return spaced_steps(self.steps.start, self.steps[-1], count)

    def checked(self, step: int) -> int:
        """Return the number of a step that has a frame; refuse others."""
        number = int(step) + (self.steps.stop if step < 0 else 0)
        if number not in self.steps:
            first, last = self.steps.start, self.steps[-1]
            why = f"; it was changed after step {first:,}" if 0 <= number < first else ""
            raise ConfigError(
                f"{self.run.folder} cannot return to step {step:,}{why}",
                hint=f"choose a step from {first:,} to {last:,}",
            )
        return number

    def _advanced(self, state: TrainingState, until: int) -> TrainingState:
        """Repeat the steps of the run up to `until`."""
        recipe = self.run.recipe
        schedule = recipe.build_schedule()
        threads = suitable_threads(self.run.config, recipe.batch // recipe.accumulate)
        with self.run.computing()(), threads:
            for step in range(state.step, until):
                state, record = take_step(self.trainer, self.task.train, state, schedule(step), None, overwrite=False)
                line = self._compared(record)
                if "val_loss" in line:
                    found = Evaluation(number(line["val_loss"]), 0, 0, line.get("accuracy"))
                    state, _ = apply_evaluation(state, record, recipe, found)
        return state

    def _compared(self, record: StepRecord) -> dict[str, Any]:
        """Return the recorded line of a repeated step; raise if the step differs from it."""
        line, found = self.lines.get(record.step), record.to_dict()
        if line is None:
            fact = f"{self.run.folder / METRICS} has no line of step {record.step:,}"
            raise CheckpointError(fact, hint="restore it from a copy")
        for name in ("loss", "grad_norm"):
            if found[name] != line[name]:
                raise CheckpointError(
                    f"step {record.step:,} of {self.run.folder} was not reproduced: "
                    f"its {name} was {line[name]!r} and is {found[name]!r}",
                    hint="use the program and the machine that the run was trained with",
                )
        return line


def frame_now(session: TrainingSession) -> Frame:
    """Return a training as it is now."""
    return frame_of(session, session.state, None if session.last is None else session.last.to_dict())


def frame_of(
    taking: Replay | TrainingSession,
    state: TrainingState,
    line: dict[str, Any] | None,
    model_class: type[LoadedModel] = LoadedModel,
) -> Frame:
    """Return a state of a run as a frame, with the line of the step that led there."""
    taken = taking.trainer.take(state)
    # Copies: the next step may overwrite the memory of this state.
    own = taken._replace(**tree_map(np.array, taken.trees))
    model = taking.run.model
    used = taking.parametrization.effective(final_params(own, taking.run.recipe))
    params = taking.parametrization.effective(own.params)
    trained = model_class.of_task(model, used, taking.task)
    return Frame(state.step, own, model, params, dict(line or {}), trained)


def spaced_steps(first: int, last: int, count: int = 40) -> list[int]:
    """Return about `count` steps from the first to the last, closer together at the beginning, where most happens.

    step = first + (last − first) · (i / (count − 1))²
    """
    if count < 2:
        raise ConfigError(f"{count} frames are too few", hint="ask for 2 or more")
    return sorted({first + round((last - first) * (i / (count - 1)) ** 2) for i in range(count)})


def replay(folder: str | Path, model_class: type[LoadedModel] = LoadedModel) -> Replay:
    """Open a run that was trained with --record, to return to any of its steps.

    Runs that were not recorded, or whose data, engine or versions have changed, are refused.
    """
    run = open_run(folder)
    task, parametrization = run.task(), run.parametrization()
    run = replace(run, ready=Ready(task, parametrization=parametrization))
    trainer = make_trainer(run)
    recording = open_recording(RunFolder(run), trainer.first(run.first_params()))
    if recording is None:
        raise ConfigError(f"{folder} was not recorded", hint="train it again with --record")
    _, found = compare(run, task)
    if found:
        raise refusal(run, found, "be reproduced")
    kept = recording.kept()
    changed = max((change["step"] for change in run.provenance.changes), default=0)
    last = max(read_meta(run.folder, LATEST).get("step", 0), *kept, 0)
    usable = tuple(step for step in kept if step >= changed)
    lines = {line["step"]: line for line in run.metrics()}
    return Replay(run, task, trainer, parametrization, recording, range(changed, last + 1), usable, lines, model_class)
