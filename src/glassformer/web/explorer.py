"""Caches of open models and their runs."""

import gc
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from ..core.errors import ConfigError
from ..interpret import Logit, Loss, Run, Sum, watch, without_positions
from ..interpret import changes as made
from ..interpret.changes import Change
from ..interpret.memory import give_back
from ..interpret.run import has_no_head
from ..runs.run import read_model
from ..weights.loaded_model import LoadedModel
from .jobs import Jobs
from .offers import RUNS, Offer, chosen, parted
from .recordings import LiveTraining, TrainingHistory, recorded_training
from .run_session import OpenModel, RunSession
from .state import POSITIONS, PageChange, PageState, PageTarget

__all__ = ["Explorer", "OpenModel", "RunSession"]

MODELS = 3
"""Most models that stay open."""
FRAMES = 8
"""Most frames of trainings that stay open."""
TRAININGS = 4
"""Most trainings whose frames stay in memory."""
DEEP = 40
"""Steps of optimizers that are computed by one chain of recursive calls."""
RUN_BYTES = 1 << 27
"""Bytes above which the least recently used runs are dropped."""

Thing = TypeVar("Thing")


class Explorer:
    """Gives models and runs to routes, from any number of threads."""

    def __init__(
        self, offers: dict[str, Offer], first: str | None = None, prompt: str | None = None, folder: str | Path = RUNS
    ) -> None:
        self.offers, self.first, self.prompt, self.folder = offers, first, prompt, folder
        self.jobs = Jobs()
        self._given: dict[str, LoadedModel] = {}
        self._models: SharedCache[OpenModel] = SharedCache()
        self._frames: SharedCache[OpenModel] = SharedCache()
        self._trainings: SharedCache[TrainingHistory] = SharedCache()
        self.live_trainings: dict[str, LiveTraining] = {}  # trainings of this server, by the keys of their models
        self._runs: SharedCache[RunSession] = SharedCache()

    def opened(self, key: str) -> OpenModel:
        """Return a model by its key among the offers, or as it was after a step: KEY@STEP."""
        base, step = parted(key)
        if step is not None and key not in self.offers:
            return self._frames.get(key, lambda: OpenModel(self.training(base).model(step)), most=FRAMES)
        offer = chosen(self.offers, key)
        return self._models.get(key, lambda: OpenModel(self._found(offer)), most=MODELS)

    def _found(self, offer: Offer) -> LoadedModel:
        return self._given[offer.key] if offer.key in self._given else read_model(offer.place, blocks=True)

    def add(self, offer: Offer, model: LoadedModel | None = None) -> None:
        """Add an offer: a model in memory, such as one that was trained here, or one by its place."""
        if model is not None:
            self._given[offer.key] = model
        self.offers = {**self.offers, offer.key: offer}

    def add_training(self, key: str, history: LiveTraining) -> None:
        """Keep a live training; of those that ended, the last few stay."""
        kept = {**self.live_trainings, key: history}
        ended = [old for old, one in kept.items() if one.ended]
        gone = ended[: max(0, len(kept) - TRAININGS)]
        self.live_trainings = {old: one for old, one in kept.items() if old not in gone}

    def training(self, key: str) -> TrainingHistory:
        """Return a training by the key of its model, with what was measured so far."""
        if key in self.live_trainings:
            return self.live_trainings[key]

        def opened() -> TrainingHistory:
            offer = chosen(self.offers, key)
            if key in self._given:
                raise ConfigError(f"the frames of {offer.title} were dropped", hint="train it again")
            return recorded_training(offer)

        return self._trainings.get(key, opened, most=TRAININGS)

    def session(self, state: PageState) -> RunSession:
        """Return the run of a state."""
        return self._runs.get(state.key(), lambda: self._run(state), bytes_=RUN_BYTES)

    def _run(self, state: PageState) -> RunSession:
        opened = self.opened(state.model)
        start = replace(state, changes=(), of=PageTarget())
        if state == start:
            return self._plain(opened, state)
        if state.of != start.of:  # the gradient of another number, through the same run
            same = self.session(replace(state, of=start.of))
            return replace(same, state=state, of=target(same.run, state.of), lock=threading.RLock(), kept={})
        before = self.session(start)
        changes = tuple(self._change(before, asked) for asked in state.changes)
        base = before.run
        if any(change.name == POSITIONS for change in changes):
            base = before.once("without positions", lambda: without_positions(before.run))
            changes = tuple(
                replace(one, config=None, value=before.run[one.name], word="take")
                if one.word == "freeze" else replace(one, config=None)
                for one in changes
            )  # fmt: skip
        run = base.changed(*(one for one in changes if not one.backward and one.name != POSITIONS))
        new = {"state": state, "run": run, "of": target(run, state.of), "made": changes, "start": before}
        return replace(before, **new, lock=threading.RLock(), kept={})

    def _plain(self, opened: OpenModel, state: PageState) -> RunSession:
        """Return the run without changes, after the steps of optimizers."""
        if not state.steps:
            run = opened.watch(state.text, state.answer)
            return RunSession(state, opened, run, target(run, state.of))
        *earlier, last = state.steps
        for count in range(DEEP, len(earlier), DEEP):  # from the first on: each asks for the one before it
            self.session(replace(state, steps=state.steps[:count]))
        before = self.session(replace(state, steps=tuple(earlier)))
        after = before.step(last)
        old = before.run
        run = watch(old.model, after.params, old.batch, labels=old.labels)
        return RunSession(state, opened, run, target(run, state.of), memory={last.optimizer: after.state})

    def _change(self, before: RunSession, asked: PageChange) -> Change:
        """Return a change as `interpret` knows it."""
        where: dict[str, Any] = {str(axis): number for axis, number in asked.where.items()}
        name, value, run = asked.name, asked.value, before.run
        if name == POSITIONS and (asked.word != "zero" or where):
            raise ConfigError(f"positions cannot be changed by {asked.word!r}", hint="zero switches all of them off")
        if asked.word in ("zero", "freeze", "stop"):
            return getattr(made, asked.word)(name, **where)
        if asked.word not in ("take", "steer", "mean"):
            return getattr(made, asked.word)(name, value, **where)
        other = before.other(asked.other)
        if asked.word == "take":
            return made.take(name, other, **where)
        if asked.word == "mean":
            return made.mean(name, other, **where)
        way = made.take(name, other, **where)
        start = run[name]
        if start.dtype == bool:
            raise ConfigError(f"{name} is true or false, with nothing in between", hint="put 1 or 0, or take it")
        index = way.where.index(name, start.shape, run.heads)
        taken = np.asarray(way.apply(start, run.heads))
        return made.add(name, value * (taken - start)[index], **where)


def target(run: Run, asked: PageTarget) -> Any:
    """Return the number whose gradient is asked for; without a loss, the likeliest logit or the first entry."""
    if asked.kind == "entry":
        value = run[asked.name]
        places = zip(value.shape, asked.index, strict=False)
        if len(asked.index) != value.ndim or not all(0 <= n < size for size, n in places):
            fact = f"{asked.name} has no entry {list(asked.index)}"
            raise ConfigError(fact, hint=f"its shape is {list(value.shape)}")
        weights = np.zeros(value.shape, value.dtype)
        weights[asked.index] = 1
        return Sum(asked.name, weights)
    if asked.kind == "logit":
        found = Logit(asked.token, asked.position, against=asked.against)
        found.seed(run)
        return found
    if run.batch.targets is not None:
        return Loss()
    if has_no_head(run.model):
        weights = np.zeros(run.logits.shape, run.logits.dtype)
        weights[(0,) * weights.ndim] = 1
        return Sum("vectors", weights)
    row = run.logits[0] if run.logits.ndim == 2 else run.logits[0, -1]
    return Logit(int(np.argmax(row)))


class SharedCache(Generic[Thing]):
    """Things by key, the least recently used first; each is made once, even if several threads ask at once."""

    def __init__(self) -> None:
        self._things: OrderedDict[str, Thing] = OrderedDict()
        self._making: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: str, make: Callable[[], Thing], *, most: int = 64, bytes_: int | None = None) -> Thing:
        """Return a thing; drop others until there are at most so many, with at most so many bytes of arrays."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        try:
            with making:
                with self._lock:
                    if key in self._things:
                        self._things.move_to_end(key)
                        return self._things[key]
                thing = make()
                with self._lock:
                    self._things[key] = thing
                    forgot = self._forget(most, bytes_)
                if bytes_ is not None:
                    if forgot:
                        gc.collect()  # a run and what was computed about it refer to each other
                    give_back()
                return thing
        finally:
            with self._lock:
                if not making.locked():
                    self._making.pop(key, None)

    def _forget(self, most: int, bytes_: int | None) -> bool:
        """Drop what was not asked for longest, unless something else refers to it; return whether anything went."""
        before = len(self._things)
        while len(self._things) > most:
            self._things.popitem(last=False)
        while bytes_ is not None and self._bytes() > bytes_:
            held = {id(getattr(thing, "start", None)) for thing in self._things.values()}
            free = [key for key, thing in list(self._things.items())[:-1] if id(thing) not in held]
            if not free:
                break
            del self._things[free[0]]
        return len(self._things) < before

    def _bytes(self) -> int:
        things: Iterable[Any] = self._things.values()
        return sum({n: size for thing in things for n, size in thing.arrays().items()}.values())
