"""The course of a training, frame by frame: of one that goes on here, or of a recorded run.

A frame is the model after a step. What the page shows of it is measured once and kept; the frame itself is the model
`KEY@STEP`, which every view can look into.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.dispatch import use_engine
from ..core.errors import ConfigError, GlassformerError
from ..core.settings import check_known
from ..core.tree import flatten
from ..data import Task
from ..generation.answer import samples
from ..interpret import AttentionMaps, attention_maps, detect_heads, watch
from ..models import Batch
from ..runs.replay import (
    LONGEST,
    Frame,
    Replay,
    fixed_example,
    frame_now,
    gradient_norms_on,
    replay,
    scored,
    weight_norms,
)
from ..runs.run import open_run
from ..runs.session import FOLDER, TrainingSession
from ..weights.loaded_model import LoadedModel
from ..weights.stores import is_run, locate
from .jobs import Job
from .offers import Offer

SAMPLES = 3
"""Answers that are shown of each frame."""
LENGTH = 40
"""Tokens of what a language model goes on with."""
POINTS = 600
"""Steps that are drawn of a curve, at most."""
FRAMES = 30
"""Frames that are shown of a training unless more are asked for."""
ROOM = 40_000_000
"""Bytes that the frames of a training here take, at most."""

training_lock = threading.Lock()
"""Held while steps are taken: two trainings at once would only slow each other down."""


class TrainingHistory:
    """Frames of one training, with what was measured of them.

    key      of its model among the offers
    title    what it is called
    task     what it learns
    reads    what its model reads in every frame
    job      the key of the job in which it goes on, where it does
    """

    def __init__(self, key: str, title: str, task: Task, judged: Batch, text: str | None = None) -> None:
        self.key, self.title, self.task, self.job = key, title, task, ""
        self.folder: Path | None = None  # where one that was trained here was written
        self.reads = fixed_example(task, text)
        self.planned = 0
        self.lock = threading.Lock()
        self.lines: list[dict[str, Any]] = []
        self.seen: dict[int, dict[str, Any]] = {}
        self._maps: dict[int, dict[str, AttentionMaps]] = {}
        self._frames: dict[int, Frame] = {}
        self._kept = 0  # bytes
        self._gradients = gradient_norms_on(judged)
        self._heads: Callable[[Frame], Any] | None = scored(detect_heads)

    def measure(self, frame: Frame) -> None:
        """Note what is shown of a frame."""
        trained = frame.trained
        labels = trained.token_labels
        maps = attention_maps(watch(frame.model, trained.params, self.reads, labels=labels))
        found = {
            "step": frame.step,
            **{name: frame.metrics.get(name) for name in ("loss", "val_loss", "accuracy", "lr", "grad_norm")},
            "weights": weight_norms(frame),
            "gradients": self._gradients(frame),
            "heads": self._head_scores(frame),
            "samples": [list(pair) for pair in samples(trained, SAMPLES, LENGTH)],
        }
        with self.lock:
            self._maps[frame.step], self.seen[frame.step] = maps, found

    def _head_scores(self, frame: Frame) -> dict[str, Any]:
        """Return how much every head is of each kind; nothing where the context is too short to tell."""
        if self._heads is None:
            return {}
        try:
            found = self._heads(frame)
        except GlassformerError:
            self._heads = None
            return {}
        scores = {stack: {name: x.tolist() for name, x in one.scores.items()} for stack, one in found.items()}
        return {stack: {"scores": scores[stack], "chance": one.chance} for stack, one in found.items()}

    def attention(self, step: int, kind: str | None, layer: int, head: int) -> dict[str, Any]:
        """Return who looks at whom in one head of a frame that was measured."""
        if step not in self._maps:
            raise ConfigError(f"the frame of step {step:,} was not computed yet", hint="ask for it first")
        maps = self._maps[step]
        chosen = next(iter(maps)) if kind is None else kind
        check_known("this model has no attention of kind", chosen, maps)
        weights, _, queries, keys = maps[chosen]
        for what, number, size in (("layer", layer, weights.shape[0]), ("head", head, weights.shape[1])):
            if not 0 <= number < size:
                raise ConfigError(f"there is no {what} {number}", hint=f"there are {size}, from 0 to {size - 1}")
        return {
            "kind": chosen,
            "kinds": {name: list(own.weights.shape[:2]) for name, own in maps.items()},
            "rows": queries,
            "columns": keys,
            "weights": weights[layer, head],
            "cut": weights.shape[-2] == LONGEST,
        }

    def map_steps(self, cells: int) -> list[int]:
        """Return the steps of the measured frames, evenly thinned so that their maps fit into a number of cells."""
        steps = sorted(self.seen)
        each = sum(own.weights.size for own in self._maps[steps[0]].values())
        count = max(2, min(len(steps), cells // each))
        return [steps[round(n * (len(steps) - 1) / max(1, count - 1))] for n in range(min(count, len(steps)))]

    def maps(self, step: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Yield the question for each head of a measured frame, with its answer in three decimals."""
        kinds = self._maps[step]
        for kind, own in kinds.items():
            for layer, head in np.ndindex(own.weights.shape[:2]):
                answer = self.attention(step, kind, layer, head)
                answer["weights"] = answer["weights"].round(3)
                question = {"model": self.key, "step": step, "layer": layer, "head": head}
                if kind == next(iter(kinds)):
                    yield question, answer
                if len(kinds) > 1:
                    yield {**question, "kind": kind}, answer

    def hold(self, frame: Frame) -> None:
        """Keep a frame, without what only further steps would need; as many as there is room for."""
        size = sum(leaf.nbytes for leaf in flatten(frame.params).values())
        if len(self._frames) < 2 or self._kept + size <= ROOM:
            left = frame.state._replace(params={}, optimizer={}, ema=None, scaling=None)
            self._frames[frame.step] = replace(frame, state=left)
            self._kept += size

    def model(self, step: int) -> LoadedModel:
        """Return the model after a step."""
        return replace(self.frame(step).trained, source=f"{self.title}, step {step:,}")

    def frame(self, step: int) -> Frame:
        """Return a frame; each subclass says where from."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as a page sees it."""
        with self.lock:
            frames = [self.seen[step] for step in sorted(self.seen)]
        every = -(-len(self.lines) // POINTS) or 1
        drawn = [line for line in self.lines if line["step"] % every == 0 or line["step"] == 1]
        return {
            "key": self.key,
            "title": self.title,
            "task": self.task.name,
            "summary": self.task.summary,
            "planned": self.planned,
            "every": every,
            "loss": [[line["step"], line["loss"]] for line in drawn],
            "judged": [[line["step"], line["val_loss"], line.get("accuracy")] for line in self.lines
                       if line.get("val_loss") is not None],
            "frames": frames,
            "job": self.job,
            "kept": "" if self.folder is None else str(self.folder),
            "recorded": isinstance(self, RecordedTraining),
        }  # fmt: skip


class LiveTraining(TrainingHistory):
    """The frames of a training here, in memory; of large models fewer, so that they fit."""

    def __init__(self, key: str, title: str, session: TrainingSession) -> None:
        super().__init__(key, title, session.task, session.trainer.batch(session.task.train, 0))
        self.session, self.planned = session, session.run.recipe.steps
        self.ended = False

    def note(self) -> None:
        """Keep the training as it is now."""
        frame = frame_now(self.session)
        self.hold(frame)
        self.measure(frame)

    def frame(self, step: int) -> Frame:
        """Return a frame that was kept."""
        if step not in self._frames:
            known = ", ".join(map(str, sorted(self._frames)))
            raise ConfigError(f"no frame of step {step:,} was kept", hint=f"there are those of the steps {known}")
        return self._frames[step]


class RecordedTraining(TrainingHistory):
    """The frames of a recorded run, computed again bit for bit."""

    def __init__(self, key: str, title: str, found: Replay, text: str | None = None) -> None:
        super().__init__(key, title, found.task, found.trainer.batch(found.task.train, 0), text)
        self.replay, self.planned = found, found.run.recipe.steps
        self.lines = [found.lines[step] for step in sorted(found.lines)]

    def frame(self, step: int) -> Frame:
        """Return any frame there is."""
        if step in self._frames:
            return self._frames[step]
        with training_lock, engine_of(self.replay.run.folder):
            return self.replay.at(self.replay.checked(step))

    def compute(self, steps: Iterable[int] | None, job: Job) -> dict[str, Any]:
        """Measure the frames of some steps, about 30 unless given; those that are known already are not done again."""
        wanted = self.replay.spaced(FRAMES) if steps is None else [self.replay.checked(step) for step in steps]
        missing = sorted(set(wanted) - self.seen.keys())
        job.show(0, len(missing), "waits for another training")
        with training_lock, engine_of(self.replay.run.folder):
            for done, frame in enumerate(self.replay.frames(missing)):
                self.hold(frame)
                self.measure(frame)
                job.show(done + 1, len(missing), f"frame {done + 1} of {len(missing)}", self.to_dict())
        return self.to_dict()


@contextlib.contextmanager
def engine_of(folder: Path) -> Iterator[None]:
    """Compute inside a `with` block by the engine that a run was trained with, where it is here."""
    run = open_run(folder)
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(ConfigError):
            stack.enter_context(use_engine(run.provenance.engine))
        yield


def is_recorded(name: str) -> bool:
    """Return whether a model is a run that can be gone through; one in memory alone, or gone by now, is none."""
    try:
        place = locate(name)
    except GlassformerError:
        return False
    return is_run(place) and (place / FOLDER).is_dir()


def recorded_training(offer: Offer) -> RecordedTraining:
    """Open a recorded run."""
    place = locate(offer.place)
    if not is_run(place):
        raise ConfigError(f"{offer.title} is no run: nothing is known of its training", hint="choose a recorded run")
    with engine_of(place):
        return RecordedTraining(offer.key, offer.title, replay(place))
