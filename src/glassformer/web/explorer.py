"""Models and runs, kept while a page asks about them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from ..arrays import Array, Tree
from ..errors import ConfigError, did_you_mean
from ..interpret import Gradients, Logit, Loss, Run, Sum, Update, gradients, update, watch
from ..interpret import changes as made
from ..interpret.changes import Change
from ..interpret.positions import without_positions
from ..interpret.run import has_no_head, plain
from ..subject import Subject, find_subject
from ..training.optimizers import OPTIMIZERS
from ..tree import flatten, tree_map
from .jobs import Jobs
from .offers import Offer, chosen
from .state import POSITIONS, Asked, Changed, State, Stepped

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
    _words: dict[str, list[str]] = field(default_factory=dict)

    @cached_property
    def count(self) -> int:
        """How many parameters it has."""
        return sum(leaf.size for leaf in flatten(self.params).values())

    @cached_property
    def identities(self) -> set[int]:
        """Which arrays its parameters are."""
        return {id(leaf) for leaf in flatten(self.params).values()}

    def words(self, part: str) -> list[str]:
        """Return what every token is called that the model reads as `tokens` or `source`, or every class."""
        if part not in self._words:
            labels, config = self.subject.labels, self.subject.model.config
            calls = {"tokens": labels.tokens, "source": labels.source, "classes": labels.classes}
            sizes = {"tokens": config.vocab, "source": getattr(config, "source_size", None),
                     "classes": getattr(config, "classes", None)}  # fmt: skip
            call, size = calls.get(part), sizes.get(part)
            if call is None or size is None:
                raise ConfigError(f"the model has no {part[:40]!r}", hint="use tokens, source or classes")
            self._words[part] = [call(number) for number in range(size)]
        return self._words[part]

    def watch(self, text: str, answer: str | None = None, params: Tree | None = None) -> Run:
        """Watch the model read a text."""
        batch = self.subject.batch(text)
        if answer is not None:
            batch = self.subject.answering(batch, answer)
        return watch(self.subject.model, self.params if params is None else params, batch)


@dataclass(eq=False)
class Seen:
    """A run as a page has asked for it, and what was found out about it.

    plain     the run without the changes, after the steps
    start     what is known of the plain run; None if this is it
    made      the changes, in the order in which the page gave them
    memory    what the optimizer of the last step remembers, by its name
    """

    state: State
    opened: Opened
    plain: Run
    run: Run
    of: Any
    made: tuple[Change, ...] = ()
    memory: dict[str, Tree] = field(default_factory=dict)
    start: Seen | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)
    kept: dict[str, Any] = field(default_factory=dict)

    @property
    def plain_seen(self) -> Seen:
        """The run without the changes, with what is known of it."""
        return self.start or self

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return something about the run, made when it is first asked for."""
        with self.lock:
            if name not in self.kept:
                self.kept[name] = make()
            return self.kept[name]

    @property
    def backward(self) -> tuple[Change, ...]:
        """The changes of gradients."""
        return tuple(change for change in self.made if change.backward)

    @property
    def idle(self) -> list[int]:
        """Which of the changes altered nothing, by their places."""
        nothing = [*self.run.idle, *(self.gradients.idle if self.backward else ())]
        return [number for number, change in enumerate(self.made) if any(change is one for one in nothing)]

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
            "gradient change": lambda: self.array("gradient", name) - self.array("gradient before", name),
        }
        if what not in kinds:
            raise ConfigError(f"there is no kind of number {what[:40]!r}", hint=did_you_mean(what[:40], kinds))
        return kinds[what]()

    def other(self, text: str) -> Run:
        """Return the run of the same parameters on another text."""
        return self.once(f"other {text}", lambda: self.opened.watch(text, self.state.answer, self.run.params))

    def step(self, step: Stepped) -> Update:
        """Return what one step of an optimizer does; the last one asked for is kept."""
        if step.optimizer not in OPTIMIZERS:
            raise ConfigError(
                f"there is no optimizer {step.optimizer[:40]!r}", hint=did_you_mean(step.optimizer[:40], OPTIMIZERS)
            )
        if self.start is not None:
            return self.start.step(step)
        with self.lock:
            asked, found = self.kept.get("step", (None, None))
            if found is None or asked != step:
                optimizer = OPTIMIZERS[step.optimizer]()
                found = update(self.plain, optimizer, lr=step.lr, state=self.memory.get(step.optimizer))
                self.kept["step"] = (step, found)
            return found

    def arrays(self) -> dict[int, int]:
        """Return the bytes of every array that is kept, by its identity: runs share many of them."""
        found = self.once("arrays", self._arrays)
        others = {n: size for thing in self.kept.values() if isinstance(thing, Run) for n, size in _arrays(thing)}
        after = {n: size for tree in self.kept.get("step", (None, ()))[1][:2] for n, size in _leaves(tree)}
        back = {-n: size for n, size in found.items()} if "gradients" in self.kept else {}
        return {**found, **others, **after, **back}

    def _arrays(self) -> dict[int, int]:
        own = dict([*_arrays(self.plain), *_arrays(self.run), *_leaves(self.memory)])
        return {n: size for n, size in own.items() if n not in self.opened.identities}


def _arrays(run: Run) -> Iterator[tuple[int, int]]:
    """Return the bytes of the arrays of a run, each with its identity."""
    yield from ((id(a), a.nbytes) for call in run.calls for a in call.outputs if isinstance(a, np.ndarray))
    yield from _leaves(run.params)


def _leaves(tree: Tree) -> Iterator[tuple[int, int]]:
    yield from ((id(leaf), leaf.nbytes) for leaf in flatten(tree).values() if isinstance(leaf, np.ndarray))


class Explorer:
    """Answers questions about models and runs, from as many threads as ask."""

    def __init__(self, offers: dict[str, Offer], first: str | None = None, prompt: str | None = None) -> None:
        self.offers, self.first, self.prompt = offers, first, prompt
        self.jobs = Jobs()
        self._models: _Kept[Opened] = _Kept()
        self._runs: _Kept[Seen] = _Kept()

    def opened(self, key: str) -> Opened:
        """Return a model by its key among the offers."""
        offer = chosen(self.offers, key)
        return self._models.get(key, lambda: open_subject(find_subject(offer.place)), most=MODELS)

    def add(self, offer: Offer, subject: Subject) -> None:
        """Offer a model that is in memory, such as one that was trained here."""
        self.offers = {**self.offers, offer.key: offer}
        self._models.get(offer.key, lambda: open_subject(subject), most=MODELS)

    def seen(self, state: State) -> Seen:
        """Return the run of a state."""
        return self._runs.get(state.key(), lambda: self._run(state), bytes_=RUN_BYTES)

    def _run(self, state: State) -> Seen:
        opened = self.opened(state.model)
        start = replace(state, changes=(), of=Asked())
        if state == start:
            return self._begun(opened, state)
        if state.of != start.of:  # another number runs back through the same run
            same = self.seen(replace(state, of=start.of))
            return replace(same, state=state, of=target(same.run, state.of), lock=threading.RLock(), kept={})
        before = self.seen(start)
        changes = tuple(self._change(before, asked) for asked in state.changes)
        base = before.run
        if any(change.name == POSITIONS for change in changes):
            base = before.once("without positions", lambda: without_positions(before.run))
            changes = tuple(_as_before(change, before.run) for change in changes)
        run = base.changed(*(one for one in changes if not one.backward and one.name != POSITIONS))
        return replace(
            before,
            state=state,
            run=run,
            of=target(run, state.of),
            made=changes,
            start=before,
            lock=threading.RLock(),
            kept={},
        )

    def _begun(self, opened: Opened, state: State) -> Seen:
        """Return the run without changes, after the steps of optimizers on what it reads."""
        if not state.steps:
            run = opened.watch(state.text, state.answer)
            return Seen(state, opened, run, run, target(run, state.of))
        for count in range(len(state.steps)):  # from the first on, so that none waits for many others
            before = self.seen(replace(state, steps=state.steps[:count]))
        last = state.steps[-1]
        after = before.step(last)
        run = watch(before.run.model, after.params, before.run.batch)
        return Seen(state, opened, run, run, target(run, state.of), memory={last.optimizer: after.state})

    def _change(self, before: Seen, asked: Changed) -> Change:
        """Return a change as `interpret` knows it."""
        where: dict[str, Any] = dict(asked.where)
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
        index = way.where.index(name, start.shape, run.heads)
        taken = np.asarray(way.apply(start, run.heads))
        return made.add(name, value * (taken - start)[index], **where)


def open_subject(subject: Subject) -> Opened:
    """Return a model with its parameters as plain arrays: small ones in float64."""
    params = tree_map(plain, subject.params)
    if sum(leaf.size for leaf in flatten(params).values()) <= PRECISE:
        params = tree_map(lambda leaf: leaf.astype(np.float64), params)
    return Opened(subject, params)


def _as_before(change: Change, run: Run) -> Change:
    """Return a change that freezes a value with what it was in a run."""
    return replace(change, value=run[change.name], word="take") if change.word == "freeze" else change


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
    return sum({n: size for thing in things for n, size in thing.arrays().items()}.values())
