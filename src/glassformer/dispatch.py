"""Who executes: one decorator for ops and for the methods of layers, and one table of kernels for each engine.

    @dispatched
    def softmax(x): …                       # the definition, as it is read

    @replaces(ops.softmax)                  # in an engine
    def softmax(x): …                       # the same numbers, computed otherwise

A call of a dispatched function asks the engine in use for its kernel. A kernel has the signature of what it replaces
and may decline by returning NotImplemented; then the function runs as written. So it does when the source that the
kernel was made from has changed: see `sources`.

Nothing here knows an engine: `glassformer.engines` finds them by name when one is first asked for.
"""

import functools
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import MethodType, ModuleType
from typing import Any, TypeVar

from .precision import holds_half, in_full_precision
from .sources import SourceGuard, as_written, checked

ENGINES = "glassformer.engines"
"""The package of engines: `find(name)` returns one, `find_for(array_type, own)` the one for such arrays."""

VARIABLE = "GLASSFORMER_ENGINE"

Function = TypeVar("Function", bound=Callable[..., Any])
Kernels = dict[str, "Kernel"]


class Kernel:
    """A function that computes what another one computes, and the guard over the source that it replaces."""

    __slots__ = ("function", "guard", "name", "original")

    def __init__(self, function: Callable[..., Any], original: Any, guard: SourceGuard) -> None:
        self.function, self.original, self.guard, self.name = function, original, guard, guard.name


def replaces(original: Any, *parts: Any, excluding: Iterable[Any] = ()) -> Callable[[Function], Function]:
    """Mark a function as the kernel of `original`, which the engine computes instead of it.

    `parts` are methods that `original` calls through objects, such as those of the layers in a block: what it calls by
    name is found. `excluding` is what `original` calls only where the kernel declines.
    """

    def mark(function: Function) -> Function:
        starts = [as_written(part) for part in (original, *parts)]
        guard = SourceGuard(_name(starts[0]), starts, map(as_written, excluding))
        function.kernel = Kernel(function, starts[0], guard)  # type: ignore[attr-defined]
        return function

    return mark


def kernels_of(*modules: ModuleType) -> list[Kernel]:
    """Return the kernels that modules define."""
    found = [
        value
        for module in modules
        for value in vars(module).values()
        if getattr(value, "__module__", None) == module.__name__
    ]
    return [value.kernel for value in found if isinstance(getattr(value, "kernel", None), Kernel)]


class Engine:
    """Who executes: kernels, what trains and what reads, where arrays live. Engines are values and never change.

    name              what users call it
    library           whose arrays it computes with
    replaces_methods  whether it has kernels for methods of layers
    observes          whether every call of a dispatched function goes through `observe`
    keeps_blocks      whether weights that a file stores in blocks are best used as they are
    """

    name = ""
    library = "numpy"
    replaces_methods = True
    observes = False
    keeps_blocks = False

    def observe(
        self, function: Callable[..., Any], written: Callable[..., Any], arguments: tuple[Any, ...], settings: Any
    ) -> Any:
        """Do a call of the dispatched `function`, as it is `written` or otherwise; a method's layer is an argument."""
        raise NotImplementedError

    def kernels(self) -> list[Kernel]:
        """Return all kernels; asked once, when the first op runs."""
        return []

    def trainer(self, *arguments: Any, **settings: Any) -> Any:
        """Return what takes the steps of a training run: see `training.trainer`."""
        raise NotImplementedError

    def shards(self, config: Any, batch: int) -> int:
        """Return in how many parts at a time a batch of this many sequences is computed fastest."""
        return 1

    def reader(self, *arguments: Any, **settings: Any) -> Any:
        """Return what reads while a model writes: see `generation.reader`."""
        raise NotImplementedError

    def check_storage(self, weights: str) -> None:
        """Refuse a way to keep weights that this engine does not know."""
        raise NotImplementedError

    def stored(self, params: Any, weights: str) -> Any:
        """Return a model's parameters kept in such a way, where this engine reads them."""
        raise NotImplementedError

    @functools.cached_property
    def table(self) -> Kernels:
        """The kernels by the names of what they replace."""
        return {kernel.name: kernel for kernel in self.kernels()}

    @functools.cached_property
    def tables(self) -> dict[type, Kernels]:
        """The kernels for each type of array seen so far."""
        return {}

    def table_for(self, array_type: type) -> Kernels:
        """Return the kernels for a type of array: an op runs where its arrays are, whatever the engine."""
        found = self.tables[array_type] = engines().find_for(array_type, self).table
        return found

    def __repr__(self) -> str:
        return f"<engine {self.name}>"


def dispatched(function: Function) -> Function:
    """Let the engine in use compute a function of arrays, or a method of a layer, by its kernel where it has one.

    `function.__wrapped__` is the function as written, whatever the engine.
    """
    return _Method(function) if "." in _name(function) else _op(function)  # type: ignore[return-value]


def _name(function: Any) -> str:
    """Return the name of a function, or of a method with its class, wherever they were defined."""
    return function.__qualname__.rpartition("<locals>.")[2]


def _op(op: Function) -> Function:
    name = op.__name__

    @functools.wraps(op)
    def run(*arrays: Any, **settings: Any) -> Any:
        if arrays:
            own = _chosen.get() or _default or default()
            if own.observes:
                return own.observe(run, functools.partial(_written, op), arrays, settings)
            first = type(arrays[0])
            table = own.tables.get(first)
            if table is None:
                # A plain number is the gradient of a loss: the record beside it tells where the arrays are.
                table = _table_of(own, arrays[1:]) if first in (float, int) else own.table_for(first)
            kernel = table.get(name)
            # Another op of the same name, such as one of the user's own, is another op.
            if (
                kernel is not None
                and kernel.original is run
                and (kernel.guard in checked.get() or kernel.guard.is_current())
            ):
                result = kernel.function(*arrays, **settings)
                if result is not NotImplemented:
                    return result
        for array in arrays:
            if holds_half(array):
                return in_full_precision(op, arrays, settings)
        return op(*arrays, **settings)

    run.dispatched_as = run.observed_as = name  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def _written(op: Callable[..., Any], *arrays: Any, **settings: Any) -> Any:
    return in_full_precision(op, arrays, settings) if any(map(holds_half, arrays)) else op(*arrays, **settings)


class _Method:
    """A method that an engine may compute. Under an engine without such kernels, a call is one of the method itself."""

    def __init__(self, method: Callable[..., Any]) -> None:
        functools.update_wrapper(self, method)
        name = self.dispatched_as = self.observed_as = _name(method)
        owner, attribute = name.rsplit(".", 1)
        exact: dict[type, bool] = {}
        named = list(inspect.signature(method).parameters)[1:]
        # Where the array stands among the arguments that decides who computes: behind parameters and records.
        place = next((i for i, word in enumerate(named) if word in ("x", "dy", "positions", "k")), len(named))

        @functools.wraps(method)  # for help, pickle and signatures of bound methods
        def run(layer: Any, *arguments: Any, **settings: Any) -> Any:
            own = _chosen.get() or _default or default()
            if own.observes:
                return own.observe(self, method, (layer, *arguments), settings)
            table = own.tables.get(type(arguments[place])) if place < len(arguments) else None
            kernel = (_table_of(own, arguments) if table is None else table).get(name)
            if (
                kernel is not None
                and kernel.original is self
                and (kernel.guard in checked.get() or kernel.guard.is_current())
            ):
                # A class derived from the owner may have changed anything: its methods run as written.
                mine = exact.get(type(layer))
                if mine is None:
                    mine = exact[type(layer)] = type(layer).__dict__.get(attribute) is self
                    # The library's own, such as a block without feed-forward, are meant to run as written.
                    if not mine and type(layer).__module__.partition(".")[0] != __package__:
                        kernel.guard.report(f"{type(layer).__name__} overrides {owner}")
                if mine:
                    result = kernel.function(layer, *arguments, **settings)
                    if result is not NotImplemented:
                        return result
            return method(layer, *arguments, **settings)

        self._run, self._method = run, method

    def __get__(self, layer: Any, owner: Any = None) -> Any:
        if layer is None:
            return self
        own = _chosen.get() or _default or default()
        # Arrays of JAX have kernels under every engine.
        return MethodType(self._run if own.replaces_methods or "jax" in sys.modules else self._method, layer)

    def __call__(self, layer: Any, *arguments: Any, **settings: Any) -> Any:
        return self._run(layer, *arguments, **settings)


def recorded(function: Function) -> Function:
    """Show the calls of an op that has no kernels to tracing engines."""

    @functools.wraps(function)
    def run(*arrays: Any, **settings: Any) -> Any:
        own = _chosen.get() or _default or default()
        if own.observes:
            return own.observe(run, function, arrays, settings)
        return function(*arrays, **settings)

    run.observed_as = _name(function)  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def record_methods(layer: type) -> None:
    """Show the calls of `forward` and `backward` of a registered layer, inherited ones too, to tracing engines."""
    for owner in layer.__mro__:
        for name in ("forward", "backward"):
            method = owner.__dict__.get(name)
            is_ours = owner.__module__.partition(".")[0] == __package__
            if method is not None and not is_ours and not hasattr(method, "observed_as"):
                setattr(owner, name, recorded(method))


def _table_of(own: Engine, arguments: tuple[Any, ...]) -> Kernels:
    """Return the kernels for the first array among arguments, or in a record among them."""
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
    """Return the default engine: the one that was set, else GLASSFORMER_ENGINE's, else the best that is installed."""
    global _default
    if _default is None:
        _default = engines().find(os.environ.get(VARIABLE) or None)
    return _default


def set_engine(name: str | Engine) -> None:
    """Make an engine the default of the whole process; `use_engine` still chooses another for a `with` block."""
    global _default
    _default = _found(name)


@contextmanager
def use_engine(name: str | Engine) -> Iterator[None]:
    """Let an engine, by its name or one of your own, compute inside a `with` block, in this thread or task alone.

    Arrays stay where they are: under the engine jax, ops and models given NumPy arrays still compute with NumPy.
    Training and generation move theirs to the devices.
    """
    token = _chosen.set(_found(name))
    try:
        yield
    finally:
        _chosen.reset(token)


def _found(name: str | Engine) -> Engine:
    return name if isinstance(name, Engine) else engines().find(name)


def engines() -> Any:
    return importlib.import_module(ENGINES)
