"""Who executes: one decorator for ops and for the methods of layers, and one table of stand-ins for each engine.

    @dispatched
    def softmax(x): …                       # the definition, as it is read

    @stands_for(ops.softmax)                # somewhere above, in an engine
    def softmax(x): …                       # the same numbers, computed otherwise

A call of a dispatched function asks the engine in use for its stand-in. A stand-in has the signature of what it stands
for and may decline by returning NotImplemented; then the function runs as written. So it does when something that the
stand-in stands for is no longer what it was made from: see `sources`.

Nothing here knows an engine. They are found by name in a package of their own, when one is first asked for.
"""

import functools
import importlib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from .precision import in_full_precision
from .sources import Watch, as_written, looked

ROOM = "glassformer.engines"
"""The package of the engines: `find(name)` gives one, `find_for(array_type, own)` the one at home with such arrays."""

VARIABLE = "GLASSFORMER_ENGINE"

Function = TypeVar("Function", bound=Callable[..., Any])
StandIns = dict[str, "StandIn"]


class Engine:
    """Who executes: stand-ins by the name of what they stand for, what trains and what reads, where arrays live.

    name      what users call it
    library   whose arrays it computes with

    Engines are values: nothing about one changes once it is made. Subclasses say what theirs are.
    """

    name = ""
    library = "numpy"

    observes = False
    """Whether every call of a dispatched function goes through `observe`."""

    def observe(
        self, function: Callable[..., Any], written: Callable[..., Any], arguments: tuple[Any, ...], settings: Any
    ) -> Any:
        """Do a call of the dispatched `function`, as it is `written` or otherwise; a method's layer is an argument."""
        raise NotImplementedError

    def stand_ins(self) -> list[Callable[..., Any]]:
        """Return all stand-ins, each marked by `stands_for`; asked once, when the first op runs."""
        return []

    def trainer(self, *arguments: Any, **settings: Any) -> Any:
        """Return what takes the steps of a training run: see `training.trainer`."""
        raise NotImplementedError

    def shards(self, config: Any, batch: int) -> int:
        """Return in how many parts at a time a batch of so many sequences is computed fastest."""
        return 1

    def reader(self, *arguments: Any, **settings: Any) -> Any:
        """Return what reads while a model writes: see `generation.reader`."""
        raise NotImplementedError

    keeps_blocks = False
    """Whether weights that a file stores in blocks are best used as they are."""

    def check_storage(self, weights: str) -> None:
        """Refuse a way to keep weights that this engine does not know."""
        raise NotImplementedError

    def stored(self, params: Any, weights: str) -> Any:
        """Return a model's parameters kept in such a way, where this engine reads them."""
        raise NotImplementedError

    @functools.cached_property
    def table(self) -> StandIns:
        """The stand-ins by name."""
        return {stand_in.name: stand_in for stand_in in map(StandIn, self.stand_ins())}

    @functools.cached_property
    def tables(self) -> dict[type, StandIns]:
        """The stand-ins for each type of array seen so far."""
        return {}

    def table_for(self, array_type: type) -> StandIns:
        """Return the stand-ins for a type of array: an op runs where its arrays are, whatever the engine."""
        found = room().find_for(array_type, self)
        self.tables[array_type] = found.table
        return found.table

    def __repr__(self) -> str:
        return f"<engine {self.name}>"


class StandIn:
    """A function that computes what a dispatched one computes, and the watch over what it was made from."""

    __slots__ = ("function", "name", "original", "watch")

    def __init__(self, function: Callable[..., Any]) -> None:
        original, *parts = function.stands_for  # type: ignore[attr-defined]
        self.name: str = original.dispatched_as
        self.function, self.original = function, original
        self.watch = Watch(self.name, [original, *parts], function.apart)  # type: ignore[attr-defined]


def stands_for(
    original: Callable[..., Any], *parts: Callable[..., Any], apart: Iterable[Callable[..., Any]] = ()
) -> Callable[[Function], Function]:
    """Mark a function as the stand-in of the dispatched function `original`.

    `parts` are the methods that `original` calls by way of objects, such as those of the layers in a block: what is
    called by name is found by itself. `apart` is what `original` calls only where the stand-in declines.
    """

    def mark(function: Function) -> Function:
        starts, left = (tuple(map(as_written, given)) for given in ((original, *parts), apart))
        if not hasattr(starts[0], "dispatched_as"):
            raise TypeError(f"nothing can stand for {_name(starts[0])}, since it is not marked with @dispatched")
        function.stands_for, function.apart = starts, left  # type: ignore[attr-defined]
        name = starts[0].dispatched_as
        function.__doc__ = function.__doc__ or f"Stand for `{name if '.' in name else f'ops.{name}'}`."
        return function

    return mark


def dispatched(function: Function) -> Function:
    """Let the engine in use compute a function of arrays, or a method of a layer, by its stand-in where it has one.

    `function.__wrapped__` is the function as written, whatever the engine.
    """
    return (_method if "." in _name(function) else _op)(function)


def _name(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of a method with its class, wherever they were defined."""
    return function.__qualname__.rpartition("<locals>.")[2]


def _op(op: Function) -> Function:
    name = op.__name__
    written = in_full_precision(op)

    @functools.wraps(op)
    def run(*arrays: Any, **settings: Any) -> Any:
        if arrays:
            own = _chosen.get() or _default or default()
            if own.observes:
                return own.observe(run, written, arrays, settings)
            first = type(arrays[0])
            table = own.tables.get(first)
            if table is None:
                # A plain number is the gradient of a loss: the record beside it tells where the arrays are.
                table = _table_of(own, arrays[1:]) if first in (float, int) else own.table_for(first)
            stand_in = table.get(name)
            # Another op of the same name, such as one of the user's own, is another op. What was looked at when a step
            # began is current, as `is_current` would say; to ask it takes longer than all else here.
            if (
                stand_in is not None
                and stand_in.original is run
                and (stand_in.watch.number <= looked.get() or stand_in.watch.is_current())
            ):
                result = stand_in.function(*arrays, **settings)
                if result is not NotImplemented:
                    return result
        return written(*arrays, **settings)

    run.dispatched_as = run.observed_as = name  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def _method(method: Function) -> Function:
    name = _name(method)
    owner, attribute = name.rsplit(".", 1)
    exact: dict[type, bool] = {}
    named = list(inspect.signature(method).parameters)[1:]
    # Where the array stands among the arguments that decides who computes: behind parameters and records.
    place = next((number for number, word in enumerate(named) if word in ("x", "dy", "positions", "k")), len(named))

    @functools.wraps(method)
    def run(self: Any, *arguments: Any, **settings: Any) -> Any:
        own = _chosen.get() or _default or default()
        if own.observes:
            return own.observe(run, method, (self, *arguments), settings)
        table = own.tables.get(type(arguments[place])) if place < len(arguments) else None
        stand_in = (_table_of(own, arguments) if table is None else table).get(name)
        if (
            stand_in is not None
            and stand_in.original is run
            and (stand_in.watch.number <= looked.get() or stand_in.watch.is_current())
        ):
            # A class derived from the owner may have changed anything: its methods run as written.
            mine = exact.get(type(self))
            if mine is None:
                mine = exact[type(self)] = type(self).__dict__.get(attribute) is run
                # The library's own, such as a block without feed-forward, are meant to run as written.
                if not mine and type(self).__module__.partition(".")[0] != __package__:
                    stand_in.watch.say(f"{type(self).__name__} is a {owner} of its own")
            if mine:
                result = stand_in.function(self, *arguments, **settings)
                if result is not NotImplemented:
                    return result
        return method(self, *arguments, **settings)

    run.dispatched_as = run.observed_as = name  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def observed(method: Function) -> Function:
    """Let whoever watches a run see the calls of a method that runs as written; those of a dispatched one are seen."""
    if hasattr(method, "observed_as"):
        return method

    @functools.wraps(method)
    def run(self: Any, *arguments: Any, **settings: Any) -> Any:
        own = _chosen.get() or _default or default()
        if own.observes:
            return own.observe(run, method, (self, *arguments), settings)
        return method(self, *arguments, **settings)

    run.observed_as = _name(method)  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def _table_of(own: Engine, arguments: tuple[Any, ...]) -> StandIns:
    """Return the stand-ins for the first array among arguments, or in a record among them."""
    for argument in arguments:
        own_type = type(argument)
        table = own.tables.get(own_type)
        if table is not None:
            return table
        if isinstance(argument, tuple):
            table = _table_of(own, argument)
            if table:
                return table
        elif hasattr(own_type, "__array_namespace__"):
            return own.table_for(own_type)
    return {}


# --- the choice ------------------------------------------------------------------------------------------------------

_chosen: ContextVar[Engine | None] = ContextVar("engine", default=None)
_default: Engine | None = None


def current() -> Engine:
    """Return the engine in use here."""
    return _chosen.get() or default()


def engine() -> str:
    """Return the name of the engine in use here."""
    return current().name


def default() -> Engine:
    """Return the engine of whoever has chosen none: the one set, else GLASSFORMER_ENGINE's, else the best there is."""
    global _default
    if _default is None:
        _default = room().find(os.environ.get(VARIABLE) or None)
    return _default


def set_engine(name: str | Engine) -> None:
    """Make an engine the default of the whole process; `use_engine` still chooses another for a `with` block."""
    global _default
    _default = _found(name)


@contextmanager
def use_engine(name: str | Engine) -> Iterator[None]:
    """Let an engine, by its name or one of your own, compute inside a `with` block, in this thread or task alone."""
    token = _chosen.set(_found(name))
    try:
        yield
    finally:
        _chosen.reset(token)


def _found(name: str | Engine) -> Engine:
    return name if isinstance(name, Engine) else room().find(name)


def room() -> Any:
    """Return the package of the engines."""
    return importlib.import_module(ROOM)
