"""A running training: its steps, evaluations, checkpoints and metrics, and what `--record` keeps of it.

A recording is a few whole states. Batches and dropout follow from the seed and the step number, so training from a kept
state computes the very bits that the run computed. The state before the first step is not kept: it is drawn anew.

    kept = min(64, 40 MB / size of a state)      every = steps / (kept + 1), rounded up
"""

import atexit
import contextlib
import math
import re
import time
import weakref
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Tree
from ..core.documents import digest
from ..core.errors import CheckpointError, ConfigError, DataError, typed
from ..core.files import explained
from ..core.tree import flatten, tree_map
from ..data.arrays import BatchStream
from ..data.examples import Examples
from ..engines.cluster.collective import agreed, meet, process, processes
from ..engines.cluster.launch import Workers
from ..models import Encoder
from ..training.checkpoint import BEST, checkpoint_path, list_checkpoints
from ..training.evaluate import Evaluation
from ..training.interruption import Stopped, uninterrupted
from ..training.loop import StepRecord, out_of_patience, suitable_threads, training_steps
from ..training.trainable import EVERYTHING, FrozenEncoder
from ..training.trainer import Trainer, TrainingState, drops, final_params, refuse_to_save
from ..weights.export import export_line
from ..weights.loaded_model import LoadedModel
from .custom_files import takes_lexicon
from .judging import Judged, judge
from .run import TrainingRun
from .sinks import Memory, RunFolder

WRITE_EVERY = 0.1
"""Seconds that metrics may wait to be written: to open a file takes a tenth of the smallest steps."""

FOLDER = "recording"
BUDGET = 40_000_000
"""Bytes that the states of a recording take at most."""
MOST = 64
"""States of a recording at most."""

_NAME = re.compile(r"(step|from)-(\d{9})")
_unfinished: weakref.WeakSet[Generator[StepRecord]] = weakref.WeakSet()


@dataclass(frozen=True)
class Recording:
    """The states that a run keeps in its folder, one every `every` steps."""

    sink: RunFolder
    every: int

    @property
    def folder(self) -> Path:
        """Folder of the states."""
        return self.sink.run.folder / FOLDER

    def is_due(self, step: int) -> bool:
        """Return whether to keep the state after a step; the last one is in the run folder."""
        return step % self.every == 0 and step < self.sink.run.recipe.steps

    def keep(self, state: TrainingState, kind: str = "step") -> None:
        """Write a state."""
        if process() == 0:
            self.sink.save_as(self.folder, f"{kind}-{state.step:09d}", state)

    def kept(self) -> dict[int, str]:
        """Return the steps whose states are there, in order, each with the name of its checkpoint."""
        matches = [match for match in map(_NAME.fullmatch, list_checkpoints(self.folder)) if match]
        # Of two states after one step, the one that the run continued from counts.
        ordered = sorted(matches, key=lambda match: (int(match[2]), match[1] == "from"))
        return {int(match[2]): match[0] for match in ordered}


@dataclass
class TrainingSession:
    """One run in training. `state` is complete after every step, so it can be saved at any moment.

    All processes of a run take the same steps. The first process writes the metrics and the best parameters. A state
    that is spread over several devices is written by all processes, each its own part.
    """

    run: TrainingRun
    trainer: Trainer
    state: TrainingState
    sink: RunFolder | Memory
    workers: Workers = field(default_factory=Workers)  # the processes of a run
    notes: list[str] = field(default_factory=list)  # what the user should know about how it continues
    recording: Recording | None = None  # the states that a replay starts from

    def __post_init__(self) -> None:
        self.model, self.task = self.run.model, self.run.task()
        if self.run.recipe.keep == "accurate" and self.task.metric == "none":
            raise ConfigError(f"keep is 'accurate', but the task {self.task.name!r} has no right answers",
                              hint="use keep=best or keep=last")  # fmt: skip
        self.parametrization = self.run.parametrization()
        self.last: StepRecord | None = None  # of the steps taken here
        self.judged: list[Judged] = []  # at the end, what a classifier says of its held-out texts
        self._unwritten: list[StepRecord] = []
        self._written = -math.inf  # when metrics were last written

    @property
    def opening(self) -> tuple[str, ...]:
        """The lines to read before the first step: on the data; and of a task of texts, how the model is exported."""
        of_texts = takes_lexicon(self.task.name)
        return *self.task.notes, *([export_line(self.run.config, self.task.tokenizer)] if of_texts else ())

    def steps(self) -> Generator[StepRecord]:
        """Train to the end, writing metrics and checkpoints on the way.

        Between steps, BLAS and the cores are as they were before. An iterator that a program leaves unfinished is
        closed at exit, while files can still be written.
        """
        steps = self._steps()
        if not _unfinished:
            atexit.unregister(_close_unfinished)
            atexit.register(_close_unfinished)  # now: after the lock's own, so that it runs before it
        _unfinished.add(steps)
        return steps

    def _steps(self) -> Generator[StepRecord]:
        recipe = self.run.recipe
        threads = suitable_threads(self.run.config, recipe.batch // recipe.accumulate)
        computing = self.run.computing()
        self.workers.tell(f"resume glassformer train --resume {typed(self.run.folder)}")
        self.workers.heed_interrupts()
        ahead = training_steps(self.trainer, self.task.train, self.state, evaluate=self._judge, keep=self._keep)
        held: Any = contextlib.nullcontext()  # the first step may compile, which takes long
        try:
            while True:
                with held, computing(), threads:
                    state, record = next(ahead, (self.state, None))
                    if record is None:
                        break
                    if state is not self.state:
                        self._accept(state, record)
                    if record.evaluation is not None or time.monotonic() > self._written + WRITE_EVERY:
                        self.write_records()
                # Where a step uses up the memory of the state before, Ctrl-C waits for the next state from here on.
                held = uninterrupted() if self.trainer.donates and processes() == 1 else contextlib.nullcontext()
                self._save_if_due(record)
                if self.workers.asked_to_stop(record.step):
                    raise Stopped
                yield record
        finally:
            with contextlib.suppress(CheckpointError):  # the reason to break off matters more; `save` writes all
                self.write_records()
        if self.trainer.parts is not None and self.trainer.parts.needed:
            self._save_file()  # which all other commands can read
        if processes() == 1 and self.task.texts is not None:
            self.judged = judge(self.best, self.task)
            self.sink.keep_confidence(self.judged)
        self.sink.release()

    def _accept(self, state: TrainingState, record: StepRecord) -> None:
        """Take over a new state; Ctrl-C must not come between its best parameters, its record and itself."""
        with uninterrupted():
            if record.is_best or (self.run.recipe.keep == "last" and record.evaluation is not None):
                self._save_best(state)
            self._keep(state, record)

    def _keep(self, state: TrainingState, record: StepRecord | None) -> None:
        """Replace the state by the next one, whose record is still to be written."""
        self.state = state
        if record is not None:
            self._unwritten.append(record)
            self.last = record

    def write_records(self) -> None:
        """Write the metrics of all steps so far."""
        with uninterrupted():
            if self._unwritten and process() == 0:
                self.sink.append(self._unwritten)
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

        A state whose memory a step has used up is in the folder already: only the first step, which starts from that
        checkpoint, can be broken off.
        """
        self.write_records()
        parts = self.trainer.parts
        if self.trainer.is_donated(self.state):
            return
        if parts is None or not parts.needed:
            self._save_file()
            return
        refuse_to_save(parts.not_finite(self.state), self.state.step)
        self.sink.save(self.state, parts)

    def _save_file(self) -> None:
        state = self.trainer.take(self.state, wanted=process() == 0)
        if process() == 0:
            self.sink.save(state)
        meet("saved")  # the others may read it next

    def _save_best(self, state: TrainingState) -> None:
        best = self.trainer.take(self._final(state), wanted=process() == 0)
        if process() == 0:
            self.sink.save_best(best)

    def _final(self, state: TrainingState) -> TrainingState:
        """Return a state with the parameters to use, averaged where the recipe says so, and nothing else."""
        return state._replace(params=final_params(state, self.run.recipe), optimizer={}, ema=None, scaling=None)

    @property
    def stopped_early(self) -> str:
        """Why the run has ended before its last step, in words; empty where it has not."""
        recipe, step = self.run.recipe, self.state.step
        if step >= recipe.steps or not out_of_patience(self.state, recipe):
            return ""
        waited = f"{recipe.patience} evaluation{'' if recipe.patience == 1 else 's'}"
        return f"stopped at step {step:,} of {recipe.steps:,}: {waited} brought nothing better"

    def evaluate(self, params: Tree) -> Evaluation:
        """Evaluate parameters on the validation data, or the held-out data where there is none."""
        if self.task.validation is None:
            return self.test(params)
        return self.trainer.evaluate(params, self.task.validation, metric=self.task.metric)

    def _judge(self, params: Tree) -> Evaluation:
        """Evaluate the parameters after a step, and where accuracy is defined also on what that step learned from."""
        evaluation, recipe, train = self.evaluate(params), self.run.recipe, self.task.train
        if evaluation.accuracy is None or isinstance(train, BatchStream):
            return evaluation
        learned = Examples(train.batch(self.state.step, recipe.batch, recipe.seed, rows=np.arange(recipe.batch)))
        accuracy = self.trainer.evaluate(params, learned, metric=self.task.metric).accuracy
        return replace(evaluation, learned=accuracy)

    def test(self, params: Tree) -> Evaluation:
        """Evaluate parameters on the held-out data; on a sample of a long text."""
        task = self.task
        return self.trainer.evaluate(params, task.held_out, metric=task.metric, groups=task.groups)

    @property
    def trained(self) -> LoadedModel:
        """A copy of the model as it is now; all processes must ask for it at the same time."""
        return LoadedModel.of_task(self.model, self.parametrization.effective(self.now()), self.task)

    def now(self) -> Tree:
        """Return a copy of what is trained as it is now."""
        return tree_map(np.array, self.trainer.take(self._final(self.state)).params)

    @property
    def best(self) -> LoadedModel:
        """The model with the parameters that the run keeps: the best so far, or the last evaluated."""
        return LoadedModel.of_task(self.model, self.load_params(), self.task)

    def load_params(self, name: str = BEST) -> Tree:
        """Return trained parameters that were written: the best, or the latest where there is no best yet."""
        return self.parametrization.effective(self.sink.load(name))

    def metrics(self) -> list[dict[str, Any]]:
        """Return one dict for each step so far."""
        self.write_records()
        return self.sink.metrics()


def make_trainer(run: TrainingRun) -> Trainer:
    """Return what takes the steps of a run, on its engine; refuse workers that read different data."""
    task, parametrization = run.task(), run.parametrization()
    if processes() > 1:
        tokens = np.asarray(task.train.batch(0, run.recipe.batch, run.recipe.seed).tokens)
        reading = [len(task.train), digest(tokens)]
        if agreed(reading) != reading:
            raise DataError("this worker reads other data than worker 0", hint="give all workers the same data")
    model = run.build(run.execution)
    frozen = parametrization.base is not None and parametrization.lora is None
    if frozen and type(model) is Encoder and not run.under_jax and not drops(model):
        model = FrozenEncoder(model.config, model.execution, parametrization.base)
        model.prepare((task.train, task.validation, task.held_out))
        parametrization = EVERYTHING
    return run.engine.executor.trainer(model, run.recipe, parametrization=parametrization)


def _close_unfinished() -> None:
    for steps in list(_unfinished):
        with contextlib.suppress(ValueError):  # another thread is in it
            steps.close()


# --- recordings ------------------------------------------------------------------------------------------------------


def open_recording(sink: RunFolder, state: TrainingState, *, new: bool = False) -> Recording | None:
    """Return the recording of a run, None where it has none; a `new` one is begun."""
    folder = sink.run.folder / FOLDER
    if new:
        if processes() > 1:
            hint = "leave --record out, or use one process"
            raise ConfigError("a run of several processes is not recorded", hint=hint)
        with explained(folder):
            folder.mkdir(exist_ok=True)
    return Recording(sink, spacing(state, sink.run.recipe.steps)) if folder.is_dir() else None


def continue_recording(sink: RunFolder, trainer: Trainer, state: TrainingState, *, anew: bool) -> Recording | None:
    """Continue the recording of a run from a state, if it has one.

    States of later steps are removed, because the steps are taken again, and states that are now too close to each
    other. `anew` says that something changed: the state is then kept, since earlier steps no longer lead to it.
    """
    recording = open_recording(sink, state)
    if recording is None:
        return None
    for step, name in recording.kept().items():
        close = name.startswith("step") and not recording.is_due(step)
        if (step > state.step or close) and process() == 0:
            path = checkpoint_path(recording.folder, name)
            with explained(path):
                path.unlink(missing_ok=True)
    if anew:
        recording.keep(trainer.take(state), "from")
    return recording


def spacing(state: TrainingState, steps: int) -> int:
    """Return the number of steps between kept states, so that all fit into the budget."""
    size = sum(array.nbytes for array in flatten(state.trees).values())
    kept = min(MOST, BUDGET // max(size, 1))
    return -(-steps // (kept + 1))
