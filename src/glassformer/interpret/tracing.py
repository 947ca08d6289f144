"""The tape of a run: every op call in order, with what went in and what came out.

Layers compute by ops alone, and ops branch on no values: two runs on inputs of equal shapes make the same list of
calls. So the number of a call is the address of a value, which a changed run has too. Dispatched methods of layers,
such as a block's, are on the tape as well: they show which calls belong together.

Every call has a key from the moment it happens, which tells it from all others of its pass: the path of its layer, that
is the dotted name of the parameters that this was handed; the name of the op; and how many of that name there were at
this path. The backward pass has the same paths, and so has a pass that reads on with a cache.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from ..core.dispatch import Engine, use_engine

BACK = ".run_block_backward"


class Key(NamedTuple):
    """The identity of a call: the path of its layer, the name of the op, and its ordinal among those of that name."""

    path: str
    op: str
    ordinal: int


NOWHERE = Key("", "", 0)


class PathCounter:
    """Where a pass is: the path of the layer that computes, and how often each op was called at each path.

    An observing engine opens one layer after the other, as they are called.
    """

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.counts: Counter[tuple[str, str]] = Counter()

    def enter(self, arguments: tuple[Any, ...]) -> str | None:
        """Go to the layer of a method, given its arguments; one without parameters is part of the layer that calls."""
        own = getattr(arguments[1], "path", None) if len(arguments) > 1 else None
        if own is not None:
            self.path = own
        return own

    def key(self, op: str) -> Key:
        """Return the key of a call that begins."""
        return self.count(Key(self.path, op, self.counts[self.path, op]))

    def count(self, key: Key) -> Key:
        """Count a call that is not made again."""
        self.counts[key[:2]] += 1
        return key


@dataclass(eq=False, repr=False)
class Call:
    """One call of an op or of a method of a layer.

    number   its place in the run, in the order in which calls begin
    end      the number of the first call that began after it had returned: those between were made by it
    parent   the call that made it, None for the outermost
    key      what tells it from other calls, in a pass with a cache, too
    """

    number: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]  # those of a method begin with its layer
    settings: dict[str, Any]
    parent: Call | None
    key: Key = NOWHERE
    end: int = 0
    result: Any = None

    @property
    def name(self) -> str:
        """The name of the op, or of the method with its class."""
        return str(self.function.observed_as)  # type: ignore[attr-defined]

    @property
    def is_method(self) -> bool:
        """Whether a layer was asked, rather than an op."""
        return "." in self.name

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The values that it returned: a value and its record, or gradients."""
        return self.result if isinstance(self.result, tuple) else (self.result,)


def is_block(call: Call) -> bool:
    """Return whether a call runs one block of a stack, forward or backward."""
    return call.name.endswith((".run_block", BACK))


Visit = Callable[[Call], None]
"""Looks at a call, and may give it other arguments before it runs, or another result afterwards."""


@dataclass(eq=False)
class TracingEngine(Engine):
    """The engine of a traced run: everything runs as written, and every call goes on the tape.

    before, after   look at each call before it runs, and when it has returned
    load            returns the arguments of a call with unpacked matrices, None for a call that needs none
    known, first    calls of an earlier run: those that end before number `first` are not done again
    again           what is returned for one of these; NotImplemented: do it after all
    forgets         whether to keep only how many calls there were, and no arrays
    names           what gives names to values as they are made
    calls           the tape
    """

    before: Visit | None = None
    after: Visit | None = None
    load: Callable[[Call], tuple[Any, ...] | None] | None = None
    known: list[Call] = field(default_factory=list)
    first: int = 0
    again: Callable[[Call], Any] = attrgetter("result")
    forgets: bool = False
    names: Any = None
    calls: list[Call] = field(default_factory=list)
    paths: PathCounter = field(default_factory=PathCounter)
    _inside: Call | None = None

    name = "tracing"
    observes = True

    def inside(self, method: Callable[..., Any], arguments: tuple[Any, ...], settings: Any) -> Any:
        """Execute a method of a layer that is not on the tape: what it calls stands at its path."""
        outer = self.paths.path
        path = self.paths.enter(arguments)
        try:
            if self.names is None or path is None:
                return method(*arguments, **settings)
            with self.names.layer():
                result = method(*arguments, **settings)
                self.names.returned(path, result)
            return result
        finally:
            self.paths.path = outer

    def observe(
        self, function: Callable[..., Any], written: Callable[..., Any], arguments: tuple[Any, ...], settings: Any
    ) -> Any:
        """Execute a call, or reuse its recorded result, and append it to the tape."""
        number = len(self.calls)
        result = self._known(number, arguments, settings)
        if result is not NotImplemented:
            return result
        call = Call(number, function, arguments, settings, self._inside)
        self.calls.append(call)
        outer, outer_call = self.paths.path, self._inside
        path = self.paths.enter(arguments) if call.is_method else None
        call.key = self.paths.key(call.name)
        loaded = None if self.load is None else self.load(call)
        call.arguments = arguments if loaded is None else loaded
        if self.before is not None:
            self.before(call)
        if self.names is not None:
            self.names.begun(call)
        self._inside = call
        with nullcontext() if self.names is None or path is None else self.names.layer():
            try:
                call.result = written(*call.arguments, **call.settings)
            finally:
                self.paths.path, self._inside = outer, outer_call
            call.end = len(self.calls)
            if self.names is not None:
                self.names.ended(call)
                if path is not None:
                    self.names.returned(path, call.result)
        if self.after is not None:
            self.after(call)
        if loaded is not None and self.names is not None:
            self.names.forget([new for new, old in zip(loaded, arguments, strict=True) if new is not old])
        result = call.result
        if self.forgets:
            # What gives names looks at the calls of a layer when that returns.
            for gone in [call] if self.names is None else self.calls[number + 1 :] if path is not None else []:
                gone.arguments, gone.settings, gone.result = (), {}, None
        return result

    def _known(self, number: int, arguments: tuple[Any, ...], settings: Any) -> Any:
        """Take over a call of the earlier run with all inside it, and return its result; NotImplemented: do it."""
        if number >= len(self.known) or self.known[number].end > self.first:
            return NotImplemented
        own = self.known[number]
        result = self.again(own)
        if result is not NotImplemented:
            # Arrays made outside of ops, such as views of a mask, are made anew: the tape has those of this run.
            first = own if own.is_method else replace(own, arguments=arguments, settings=settings)
            self.calls += [first, *self.known[number + 1 : own.end]]
            for call in self.calls[number:]:
                self.paths.count(call.key)
        return result


def run_traced(function: Callable[..., Any], *arguments: Any, engine: TracingEngine) -> Any:
    """Return what a function returns; all op calls in it go on the tape of the engine."""
    with use_engine(engine):
        return function(*arguments)


# --- calls of a backward pass ----------------------------------------------------------------------------------------


def forward_name(name: str) -> str:
    """Return the name of what a backward undoes; "" for what is no backward."""
    if name.endswith(".backward"):
        return name.removesuffix("backward") + "forward"
    return name.removesuffix("_backward") if name.endswith("_backward") else ""


def gradient_of(call: Call, own: Call, place: int | str) -> Any:
    """Return the gradient of an argument: an op's come in the order of its arguments, a layer's by their names."""
    if isinstance(place, str):
        return None
    if not own.is_method:
        return call.outputs[place] if place < len(call.outputs) else None
    read = call.outputs[0]
    if isinstance(read, tuple):
        return getattr(read, argument_name(own, place), None)
    return read if argument_name(own, place) == "x" else None


def gradient_place(call: Call) -> int:
    """Return where among the arguments of a backward dy stands."""
    return _place(call, "dy", "dlogits") if call.is_method else 0


def argument_name(call: Call, place: int) -> str:
    """Return the name of an argument in the signature."""
    return _parameters(call.function)[place]


def _place(call: Call, *words: str) -> int:
    names = _parameters(call.function)
    return next(number for number, name in enumerate(names) if name in words)


@cache
def _parameters(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)
