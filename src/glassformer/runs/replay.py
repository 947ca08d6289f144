"""Training replayed: any step of a recorded run, computed again bit for bit.

    replay = gf.replay("runs/induction")         a run that was trained with --record
    frame = replay.at(300)                       the model as it was after 300 steps: frame.model, frame.params

A frame is computed from the nearest state kept before it. Every repeated step must find the loss and the gradient norm
that the run recorded, to the last bit; otherwise an error is raised.

    course = measure(replay, replay.spaced(), {"attention": attention_on(batch), "weights": weight_norms})
    course["loss"]                     (N,), always there: the training loss of the step that led to each frame
    course["weights.head.w"]           (N,): what returns a dict becomes one row for each of its names

A measure is any function of a frame that returns a number, an array, a text or a dict of these.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import CheckpointError, ConfigError, did_you_mean
from ..core.show import html_of
from ..core.tree import flatten, tree_map
from ..data import Task
from ..generation import answer
from ..models import Batch, Model
from ..training.checkpoint import LATEST, read_meta
from ..training.evaluate import Evaluation
from ..training.gradients import global_norm
from ..training.loop import StepRecord, apply_evaluation, number, suitable_threads, take_step
from ..training.trainable import Parametrization
from ..training.trainer import Trainer, TrainingState, final_params
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
                    evaluation = Evaluation(number(line["val_loss"]), 0, 0, line.get("accuracy"))
                    state, _ = apply_evaluation(state, record, recipe, evaluation)
        return state

    def _compared(self, record: StepRecord) -> dict[str, Any]:
        """Return the recorded line of a repeated step; raise if the step differs from it."""
        line, repeated = self.lines.get(record.step), record.to_dict()
        if line is None:
            fact = f"{self.run.folder / METRICS} has no line of step {record.step:,}"
            raise CheckpointError(fact, hint="restore it from a copy")
        for name in ("loss", "grad_norm"):
            if repeated[name] != line[name]:
                raise CheckpointError(
                    f"step {record.step:,} of {self.run.folder} was not reproduced: "
                    f"its {name} was {line[name]!r} and is {repeated[name]!r}",
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
    copied = taken._replace(**tree_map(np.array, taken.trees))
    model = taking.run.model
    used = taking.parametrization.effective(final_params(copied, taking.run.recipe))
    params = taking.parametrization.effective(copied.params)
    trained = model_class.of_task(model, used, taking.task)
    return Frame(state.step, copied, model, params, dict(line or {}), trained)


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
    _, differences = compare(run, task)
    if differences:
        raise refusal(run, differences, "be reproduced")
    kept = recording.kept()
    changed = max((change["step"] for change in run.provenance.changes), default=0)
    last = max(read_meta(run.folder, LATEST).get("step", 0), *kept, 0)
    usable = tuple(step for step in kept if step >= changed)
    lines = {line["step"]: line for line in run.metrics()}
    return Replay(run, task, trainer, parametrization, recording, range(changed, last + 1), usable, lines, model_class)


# --- measures --------------------------------------------------------------------------------------------------------

LONGEST = 48
"""Tokens of an example whose attention is shown, at most: a map of more is not read."""

Measure = Callable[[Frame], Any]
Progress = Callable[[int, int], None]
"""Is told how many frames are done, of how many."""


class Measurements(dict[str, Any]):
    """Measures of each frame, by name: arrays whose first axis are the steps; lists where it is texts."""

    def __init__(self, steps: Array, rows: Mapping[str, Any]) -> None:
        super().__init__(rows)
        self.steps = steps  # (N,)

    def __missing__(self, name: str) -> Any:
        raise ConfigError(f"nothing called {name!r} was measured", hint=did_you_mean(name, self))

    def _repr_html_(self) -> str:
        drawn = {name: row for name, row in self.items() if not isinstance(row, list)}
        return html_of(f"the course of a training, {len(self.steps)} frames", drawn)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON: what is no number is None."""
        return {"step": self.steps.tolist(), **{name: _plain(value) for name, value in self.items()}}


def measure(
    replay: Replay,
    steps: Iterable[int] | None = None,
    measures: Mapping[str, Measure] | None = None,
    *,
    progress: Progress | None = None,
) -> Measurements:
    """Go through the frames of some steps, about 40 unless given, and measure each."""
    wanted = sorted({replay.checked(step) for step in (replay.spaced() if steps is None else steps)})
    if not wanted:
        raise ConfigError("there are no steps to measure", hint="name some, such as replay.spaced()")
    rows: dict[str, list[Any]] = {}
    every = {"loss": lambda frame: frame.loss, "grad_norm": lambda frame: frame.grad_norm, **(measures or {})}
    report = progress or (lambda done, total: None)
    for done, frame in enumerate(replay.frames(wanted)):
        report(done, len(wanted))
        for name, measure in every.items():
            result = measure(frame)
            parts = {f"{name}.{key}": x for key, x in result.items()} if isinstance(result, Mapping) else {name: result}
            for row, value in parts.items():
                rows.setdefault(row, []).append(value)
    report(len(wanted), len(wanted))
    return Measurements(np.array(wanted), {name: _stacked(name, values, len(wanted)) for name, values in rows.items()})


def fixed_example(task: Task, text: str | None = None) -> Batch:
    """Return what a model reads in every frame, as a batch of one: a typed input, or the first held-out example."""
    batch = next(iter(task.held_out.batches(1))) if text is None else task.encode_input(text)
    length = batch.tokens.shape[-1]
    if length > LONGEST:
        if text is not None:
            raise ConfigError(
                f"the input has {length:,} tokens, and attention of at most {LONGEST} is shown", hint="shorten it"
            )
        batch = Batch(*(part if part is None or part.ndim < 2 else part[:, :LONGEST] for part in batch))
    return batch


# --- measures --------------------------------------------------------------------------------------------------------


def attention_on(batch: Batch) -> Measure:
    """Return the attention weights on an example, the first of a batch: (L, H, T, S), of the model's first stack."""
    from ..interpret import attention_maps, watch  # which training does without

    first = Batch(*(None if part is None else part[:1] for part in batch))

    def measure(frame: Frame) -> Array:
        run = watch(frame.model, frame.trained.params, first)
        return next(iter(attention_maps(run).values())).weights

    return measure


def gradient_norms_on(batch: Batch) -> Measure:
    """Return the norm of the gradient of the loss of a batch for every parameter, by its dotted name."""

    def measure(frame: Frame) -> dict[str, float]:
        _, grads = frame.model.loss_and_grads(frame.params, batch)
        return {name: float(global_norm({name: dx})) for name, dx in flatten(grads).items()}

    return measure


def weight_norms(frame: Frame) -> dict[str, float]:
    """Return the norm of every parameter, by its dotted name."""
    return {name: float(global_norm({name: w})) for name, w in flatten(frame.params).items()}


def scored(score: Callable[[Model, Tree], Any]) -> Measure:
    """Return what score(model, params) says of each frame, such as a number for every head, (L, H)."""
    return lambda frame: score(frame.model, frame.trained.params)


def detected_heads(*kinds: str) -> Measure:
    """Return how much every head is of each kind, (L, H) by kind, on repeated random tokens: see `detect_heads`.

    kinds   such as induction (none: all); of an encoder-decoder, of the attention of its decoder to itself
    """
    from ..interpret import detect_heads  # which training does without

    def measure(frame: Frame) -> dict[str, Array]:
        stacks = detect_heads(frame.model, frame.trained.params)
        scores = stacks["decoder" if "decoder" in stacks else "encoder"].scores
        for kind in kinds:
            if kind not in scores:
                raise ConfigError(f"heads are not scored as {kind!r}", hint=did_you_mean(kind, scores))
        return {kind: scores[kind] for kind in kinds or scores}

    return measure


def samples(count: int = 1, length: int = 60) -> Measure:
    """Return what the model answers to the first prompts of its task, as one text."""

    def measure(frame: Frame) -> str:
        return "\n".join(f"{question} → {reply}" for question, reply in answer.samples(frame.trained, count, length))

    return measure


def _stacked(name: str, values: list[Any], frames: int) -> Any:
    if isinstance(values[0], str):
        return values
    shapes = {np.shape(value) for value in values}
    if len(values) != frames or len(shapes) != 1:
        raise ConfigError(
            f"the measure {name!r} does not return the same for every frame: {len(values)} values of shapes {shapes}",
            hint="return arrays of one shape",
        )
    return np.array(values)


def _plain(value: Any) -> Any:
    if isinstance(value, list) or value.dtype.kind != "f":
        return value if isinstance(value, list) else value.tolist()
    plain = value.astype(object)
    plain[~np.isfinite(value)] = None
    return plain.tolist()
