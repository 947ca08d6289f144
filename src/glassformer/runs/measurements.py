"""Measures of a run over the course of its training: a few numbers of every frame, as arrays.

    course = measure(replay, replay.spaced(), {"attention": attention_on(batch), "weights": weight_norms})
    course["loss"]                     (N,), always there: the training loss of the step that led to each frame
    course["weights.head.w"]           (N,): what returns a dict becomes one row for each of its names

A measure is any function of a frame that returns a number, an array, a text or a dict of these.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import ConfigError, did_you_mean
from ..core.show import html_of
from ..core.tree import flatten
from ..data import Task
from ..generation import answer
from ..interpret import detect_heads, trace
from ..models import Batch, Model
from ..training.gradients import global_norm
from .replay import Frame, Replay

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
            found = measure(frame)
            parts = {f"{name}.{own}": x for own, x in found.items()} if isinstance(found, Mapping) else {name: found}
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

    def measure(frame: Frame) -> Array:
        seen = trace(frame.model, frame.trained.params, batch)
        return seen.attention[seen.kinds[0]]

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

    def measure(frame: Frame) -> dict[str, Array]:
        found = detect_heads(frame.model, frame.trained.params)
        scores = found["decoder" if "decoder" in found else "encoder"].scores
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
