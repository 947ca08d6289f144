"""The tape of a run: every op call in order, with what went in and what came out.

Layers compute by ops alone, so the op calls are the whole program. Ops branch on no values, so two runs on inputs of
equal shapes make the same list of calls: call number k of the one is call number k of the other. That is how a value
gets an address, and how a changed run finds it again. Dispatched methods of layers, such as a block's, are on the tape
as well: they say which calls belong together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

from ..dispatch import Engine, use_engine


@dataclass(eq=False, repr=False)
class Call:
    """One call of an op or of a method of a layer.

    number   its place in the run, in the order in which calls begin
    end      the number of the first call that began after it had returned: those between were made by it
    parent   the call that made it, None for the outermost
    """

    number: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]  # those of a method begin with its layer
    settings: dict[str, Any]
    parent: Call | None
    end: int = 0
    result: Any = None

    @property
    def name(self) -> str:
        """The name of the op, or of the method with its class."""
        return str(self.function.observed_as)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<call {self.number} of {self.name}>"

    @property
    def is_method(self) -> bool:
        """Whether a layer was asked, rather than an op."""
        return "." in self.name

    @property
    def outputs(self) -> tuple[Any, ...]:
        """What it returned: a value and its record, or gradients."""
        return self.result if isinstance(self.result, tuple) else (self.result,)


Visit = Callable[[Call], None]
"""Looks at a call, and may give it other arguments before it runs, or another result afterwards."""


@dataclass(eq=False)
class TracingEngine(Engine):
    """The engine of a traced run: everything runs as written, and every call goes on the tape.

    before, after   look at each call before it runs, and when it has returned
    known, first    calls of an earlier run: those that end before number `first` are not done again
    again           what is returned for one of these; NotImplemented: do it after all
    forgets         whether to keep only how many calls there were, and no arrays
    calls           the tape
    """

    before: Visit | None = None
    after: Visit | None = None
    known: list[Call] = field(default_factory=list)
    first: int = 0
    again: Callable[[Call], Any] = attrgetter("result")
    forgets: bool = False
    calls: list[Call] = field(default_factory=list)
    _inside: Call | None = None

    name = "tracing"
    observes = True

    def observe(
        self, function: Callable[..., Any], written: Callable[..., Any], arguments: tuple[Any, ...], settings: Any
    ) -> Any:
        """Do one call as it is written, or take what an earlier run had, and note it."""
        number = len(self.calls)
        if number < len(self.known) and self.known[number].end <= self.first:
            own = self.known[number]
            result = self.again(own)
            if result is not NotImplemented:
                # Arrays made outside of ops, such as tables of angles, are made anew: the tape has those of this run.
                first = own if own.is_method else replace(own, arguments=arguments, settings=settings)
                self.calls += [first, *self.known[number + 1 : own.end]]
                return result
        call = Call(number, function, arguments, settings, self._inside)
        self.calls.append(call)
        if self.before is not None:
            self.before(call)
        outer, self._inside = self._inside, call
        try:
            call.result = written(*call.arguments, **call.settings)
        finally:
            self._inside = outer
        call.end = len(self.calls)
        if self.after is not None:
            self.after(call)
        result = call.result
        if self.forgets:
            call.arguments, call.settings, call.result = (), {}, None
        return result


def run_traced(function: Callable[..., Any], *arguments: Any, engine: TracingEngine) -> Any:
    """Return what a function returns; all op calls in it go on the tape of the engine."""
    with use_engine(engine):
        return function(*arguments)
