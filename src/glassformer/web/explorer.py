"""Models and runs, kept while a page asks about them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from ..arrays import Array, Tree
from ..errors import ConfigError, did_you_mean
from ..interpret import Gradients, Logit, Loss, Run, Sum, gradients, update, watch
from ..interpret import changes as made
from ..interpret.run import has_no_head, plain
from ..subject import Subject, find_subject
from ..training.optimizers import OPTIMIZERS
from ..tree import flatten, tree_map
from .jobs import Jobs
from .offers import Offer, chosen
from .room import check_room
from .state import BACKWARD, Asked, Changed, State

PRECISE = 4_000_000
"""Models with at most so many parameters are explored in float64, so that every card is exact to the last digits."""
MODELS = 3
"""So many models are kept open."""
RUN_BYTES = 1 << 30
"""Runs that nobody asked about for longest are forgotten above this."""

Thing = TypeVar("Thing")


@dataclass(eq=False)
class Opened:
    """A model ready to read: its parameters as plain arrays, unpacked once."""

    subject: Subject
    params: Tree

    @cached_property
    def count(self) -> int:
        """How many parameters it has."""
        return sum(leaf.size for leaf in flatten(self.params).values())

    def watch(self, text: str, answer: str | None = None, params: Tree | None = None) -> Run:
        """Watch the model read a text."""
        batch = self.subject.batch(text)
        if answer is not None:
            batch = self.subject.answering(batch, answer)
        check_room(self.subject.model.config, batch, next(iter(flatten(self.params).values())).itemsize)
        return watch(self.subject.model, self.params if params is None else params, batch)


@dataclass(eq=False)
class Seen:
    """A run as a page has asked for it, and what was found out about it."""

    state: State
    opened: Opened
    plain: Run
    run: Run
    of: Any
    backward: tuple[made.Change, ...] = ()
    lock: threading.RLock = field(default_factory=threading.RLock)
    kept: dict[str, Any] = field(default_factory=dict)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return something about the run, made when it is first asked for."""
        with self.lock:
            if name not in self.kept:
                self.kept[name] = make()
            return self.kept[name]

    @property
    def gradients(self) -> Gradients:
        """The gradients of the number asked for."""
        return self.once("gradients", lambda: gradients(self.run, self.of, self.backward))

    @property
    def plain_gradients(self) -> Gradients:
        """The gradients without any change."""
        return self.once("plain gradients", lambda: gradients(self.plain, self.of))

    def array(self, what: str, name: str) -> Array:
        """Return a value, a parameter, or the gradient of either; `before` and `change` are about the run unchanged."""
        kinds: dict[str, Callable[[], Array]] = {
            "value": lambda: named(self.run.params, self.run, name),
            "gradient": lambda: named(self.gradients.params, self.gradients, name),
            "before": lambda: named(self.plain.params, self.plain, name),
            "gradient before": lambda: named(self.plain_gradients.params, self.plain_gradients, name),
            "change": lambda: self.array("value", name).astype(np.float64) - self.array("before", name),
        }
        if what not in kinds:
            raise ConfigError(f"there is no kind of number {what[:40]!r}", hint=did_you_mean(what[:40], kinds))
        return kinds[what]()

    @property
    def size(self) -> int:
        """Bytes that the run keeps, counted once."""
        arrays = {id(a): a.nbytes for one in (self.run, self.plain) for call in one.calls for a in call.outputs
                  if isinstance(a, np.ndarray)}  # fmt: skip
        return sum(arrays.values()) * (2 if "gradients" in self.kept else 1)


class Explorer:
    """Answers questions about models and runs, from as many threads as ask."""

    def __init__(self, offers: dict[str, Offer], first: str | None = None, prompt: str | None = None) -> None:
        self.offers, self.first, self.prompt = offers, first, prompt
        self.jobs = Jobs()
        self._given: dict[str, Subject] = {}
        self._models: _Kept[Opened] = _Kept()
        self._runs: _Kept[Seen] = _Kept()

    def opened(self, key: str) -> Opened:
        """Return a model by its key among the offers."""
        offer = chosen(self.offers, key)
        found = self._given.get(key)
        return self._models.get(key, lambda: open_subject(found or find_subject(offer.place)), most=MODELS)

    def add(self, offer: Offer, subject: Subject) -> None:
        """Offer a model that is in memory, such as one that was trained here."""
        self._given = {**self._given, offer.key: subject}
        self.offers = {**self.offers, offer.key: offer}

    def seen(self, state: State) -> Seen:
        """Return the run of a state."""
        return self._runs.get(state.key(), lambda: self._run(state), bytes_=RUN_BYTES)

    def _run(self, state: State) -> Seen:
        opened = self.opened(state.model)
        plain_run = opened.watch(state.text, state.answer)
        plain_run = stepped(plain_run, state)
        forward = [self._change(state, opened, plain_run, c) for c in state.changes if c.word not in BACKWARD]
        back = tuple(self._change(state, opened, plain_run, c) for c in state.changes if c.word in BACKWARD)
        run = plain_run.changed(*forward) if forward else plain_run
        of = target(run, state.of)
        return Seen(state, opened, plain_run, run, of, back)

    def _change(self, state: State, opened: Opened, run: Run, asked: Changed) -> made.Change:
        """Return a change as `interpret` knows it."""
        where: dict[str, Any] = dict(asked.where)
        name, value = asked.name, asked.value
        if asked.word in ("zero", "freeze", "stop"):
            return getattr(made, asked.word)(name, **where)
        if asked.word not in ("take", "steer", "mean"):
            return getattr(made, asked.word)(name, value, **where)
        other = opened.watch(asked.other, state.answer, run.params)
        if asked.word == "take":
            return made.take(name, other, **where)
        if asked.word == "mean":
            return made.mean(name, other, **where)
        way = made.take(name, other, **where)
        start = run[name]
        index = way.where.index(name, start.shape, run.heads)
        taken = np.asarray(way.apply(start, run.heads))
        return made.add(name, value * (taken - start)[index], **where)


def open_subject(subject: Subject) -> Opened:
    """Return a model with its parameters as plain arrays: small ones in float64."""
    params = tree_map(plain, subject.params)
    if sum(leaf.size for leaf in flatten(params).values()) <= PRECISE:
        params = tree_map(lambda leaf: leaf.astype(np.float64), params)
    return Opened(subject, params)


def stepped(run: Run, state: State) -> Run:
    """Return the run after steps of optimizers on what it reads."""
    memory: dict[str, Tree] = {}
    for step in state.steps:
        if step.optimizer not in OPTIMIZERS:
            raise ConfigError(
                f"there is no optimizer {step.optimizer[:40]!r}", hint=did_you_mean(step.optimizer[:40], OPTIMIZERS)
            )
        after = update(run, OPTIMIZERS[step.optimizer](), lr=step.lr, state=memory.get(step.optimizer))
        memory = {step.optimizer: after.state}
        run = watch(run.model, after.params, run.batch)
    return run


def target(run: Run, asked: Asked) -> Any:
    """Return the number that runs back; where there is no loss, the likeliest logit or the first entry."""
    if asked.kind == "entry":
        value = run[asked.name]
        places = zip(value.shape, asked.index, strict=False)
        if len(asked.index) != value.ndim or not all(0 <= n < size for size, n in places):
            raise ConfigError(
                f"{asked.name} has no entry {list(asked.index)}", hint=f"its shape is {list(value.shape)}"
            )
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


def named(params: Tree, values: Any, name: str) -> Array:
    """Return a parameter, or a value, by its name."""
    leaves = flatten(params)
    return leaves[name] if name in leaves else values[name]


class _Kept(Generic[Thing]):
    """Things by key, the latest asked for last; each is made once, whoever asks at the same time."""

    def __init__(self) -> None:
        self._things: OrderedDict[str, Thing] = OrderedDict()
        self._making: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: str, make: Callable[[], Thing], *, most: int = 64, bytes_: int | None = None) -> Thing:
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
                    self._forget(most, bytes_)
                return thing
        finally:
            with self._lock:
                if not making.locked():
                    self._making.pop(key, None)

    def _forget(self, most: int, bytes_: int | None) -> None:
        """Let go of what nobody asked for longest."""
        while len(self._things) > most:
            self._things.popitem(last=False)
        while bytes_ is not None and len(self._things) > 1 and _sizes(self._things.values()) > bytes_:
            self._things.popitem(last=False)


def _sizes(things: Iterable[Any]) -> int:
    return sum(thing.size for thing in things)
