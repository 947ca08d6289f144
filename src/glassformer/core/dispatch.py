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
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

from .arguments import FAILURES, instead_of
from .precision import holds_half, in_full_precision
from .sources import SourceGuard, checked

ENGINES = "glassformer.engines"
"""The package of engines: `find(name)` returns one, `find_for(array_type, own)` the one for such arrays."""

VARIABLE = "GLASSFORMER_ENGINE"

Function = TypeVar("Function", bound=Callable[..., Any])
Kernels = dict[str, "Kernel"]


class Kernel(SourceGuard):
    """A function that computes what another one computes, and the guard over the source that it replaces."""

    def __init__(self, function: Callable[..., Any], original: Any, *parts: Any, as_written: Any = None) -> None:
        super().__init__(_name(original), original, *parts)
        self.function, self.original, self.as_written = function, original, as_written

    def written(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what runs instead of the kernel; a function of the same name that is another one runs as it is."""
        return functools.partial(self.as_written, function) if self.original.__wrapped__ is function else function


def replaces(original: Any, *parts: Any, as_written: Any = None) -> Callable[[Function], Function]:
    """Mark a function as the kernel of `original`, which the engine computes instead of it.

    The kernel depends on the file of `original` and on what this file imports: see `sources`. `parts` are functions and
    classes of other files, which `original` calls through its arguments. `as_written` runs `original`, given before its
    arguments, where the kernel steps back or declines; an engine needs it for what it cannot run as it is written.
    """

    def mark(function: Function) -> Function:
        function.kernel = Kernel(function, original, *parts, as_written=as_written)  # type: ignore[attr-defined]
        return function

    return mark


def kernels_of(*modules: ModuleType) -> list[Kernel]:
    """Return the kernels that modules define."""
    values = [value for module in modules for value in vars(module).values() if isinstance(value, FunctionType)]
    return [value.kernel for value in values if hasattr(value, "kernel")]


def later(module: str, name: str) -> Callable[..., Any]:
    """Return a method that calls a function, whose module it imports when it is first called."""
    return lambda self, *arguments, **settings: getattr(importlib.import_module(module), name)(*arguments, **settings)


class Engine:
    """Who executes: kernels, what trains and what reads, where arrays live. Engines are values and never change.

    name              what users call it
    library           whose arrays it computes with
    observes          whether every call of a dispatched function goes through `observe`
    keeps_blocks      whether weights that a file stores in blocks are best used as they are
    observe           do a call of a dispatched function, given it, how it is written, its arguments and settings
    inside            do a call of a method of a layer that is not dispatched, so that its ops are known to be its own
    trainer, reader   make what takes the steps of a training run, and what reads while a model writes
    check_storage     refuse a way to keep weights that this engine does not know
    stored            a model's parameters kept in such a way, where this engine reads them
    """

    name = ""
    library = "numpy"
    observes = False
    keeps_blocks = False

    observe: Callable[..., Any]
    inside: Callable[..., Any]
    trainer: Callable[..., Any]
    reader: Callable[..., Any]
    check_storage: Callable[[str], None]
    stored: Callable[[Any, str], Any]

    def kernels(self) -> list[Kernel]:
        """Return all kernels; asked once, when the first op runs."""
        return []

    def shards(self, config: Any, batch: int) -> int:
        """Return in how many parts at a time a batch of this many sequences is computed fastest."""
        return 1

    def each(self, tasks: Iterable[Callable[[], Any]]) -> list[Any]:
        """Run tasks that do not need each other, perhaps at the same time; return their results in order."""
        return [task() for task in tasks]

    def on_host(self, function: Callable[..., Any], like: Any, *arrays: Any) -> Any:
        """Return what a function of NumPy arrays returns, which is like one of this engine's arrays."""
        return function(*arrays)

    def beside(self, job: Callable[..., Any]) -> AbstractContextManager[Callable[..., Any]]:
        """Return a context that may let another process call `job`, and gives what returns its result, or calls it."""
        return nullcontext(job)

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
    name = _name(function)
    owner, _, attribute = name.rpartition(".")
    names = list(inspect.signature(function).parameters)
    # Where the array stands among the arguments that decides who computes: in a method behind parameters and records.
    place = next((i for i, word in enumerate(names) if word in ("x", "dy", "positions", "k")), 1) if owner else 0
    written = function if owner else functools.partial(_written, function)
    exact: dict[type, bool] = {}

    def is_overridden(layer: Any, kernel: Kernel) -> bool:
        """Tell whether a class derived from the owner has the method: it may have changed anything."""
        mine = exact[type(layer)] = type(layer).__dict__.get(attribute) is marked
        # The library's own, such as a block without feed-forward, are meant to run as written.
        if not mine and type(layer).__module__.partition(".")[0] != "glassformer":
            kernel.report(f"{type(layer).__name__} overrides {owner}")
        return not mine

    @functools.wraps(function)
    def run(*arguments: Any, **settings: Any) -> Any:
        try:
            own = _chosen.get() or _default or default()
            if own.observes:
                return own.observe(marked, written, arguments, settings)
            table = own.tables.get(type(arguments[place])) if place < len(arguments) else None
            kernel = (_table_of(own, arguments) if table is None else table).get(name)
            # Another op of the same name, such as one of the user's own, is another op.
            if (
                kernel is not None
                and kernel.original is marked
                and (kernel in checked.get() or kernel.is_current())
                and (not owner or exact.get(type(arguments[0])) or not is_overridden(arguments[0], kernel))
            ):
                result = kernel.function(*arguments, **settings)
                if result is not NotImplemented:
                    return result
            now: Any = function if kernel is None or kernel.as_written is None else kernel.written(function)
            if not owner and any(map(holds_half, arguments)):
                return in_full_precision(now, arguments, settings)
            return now(*arguments, **settings)
        except FAILURES as error:
            raise instead_of(error, function, arguments, settings)

    marked: Any = _Method(run, function) if owner else run
    marked.observed_as = name
    return marked


def _name(function: Any) -> str:
    """Return the name of a function, or of a method with its class, wherever they were defined."""
    return str(getattr(function, "__qualname__", function)).rpartition("<locals>.")[2]


def _written(op: Callable[..., Any], *arrays: Any, **settings: Any) -> Any:
    return in_full_precision(op, arrays, settings) if any(map(holds_half, arrays)) else op(*arrays, **settings)


class _Method:
    """A method that an engine may compute, or observe. Under one that does neither, the method itself is called."""

    def __init__(self, run: Callable[..., Any], method: Callable[..., Any], *, has_kernels: bool = True) -> None:
        functools.update_wrapper(self, method)
        self._run, self._method = run, method
        self._name = _name(method) if has_kernels else None

    def __get__(self, layer: Any, owner: Any = None) -> Any:
        if layer is None:
            return self
        own = _chosen.get() or _default or default()
        # Arrays of JAX have kernels under every engine.
        has_kernel = self._name is not None and (self._name in own.table or "jax" in sys.modules)
        return MethodType(self._run if own.observes or has_kernel else self._method, layer)

    def __call__(self, layer: Any, *arguments: Any, **settings: Any) -> Any:
        return self.__get__(layer)(*arguments, **settings)


def recorded(function: Function, name: str = "") -> Function:
    """Show the calls of an op that has no kernels to tracing engines, by a name, its own unless given."""

    @functools.wraps(function)
    def run(*arrays: Any, **settings: Any) -> Any:
        own = _chosen.get() or _default or default()
        try:
            if own.observes:
                return own.observe(run, function, arrays, settings)
            return function(*arrays, **settings)
        except FAILURES as error:
            raise instead_of(error, function, arrays, settings)

    run.observed_as = name or _name(function)  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def located(method: Function) -> Function:
    """Tell an observing engine that a layer computes, and with which parameters: they come first, and know their path.

    So every op that it calls has a name when it happens.
    """

    def run(*arguments: Any, **settings: Any) -> Any:
        return current().inside(method, arguments, settings)

    return _Method(run, method, has_kernels=False)  # type: ignore[return-value]


def record_methods(layer: type, *others: str) -> None:
    """Show calls of `forward`, `backward` and others of a registered layer, inherited ones too, to tracing engines."""
    for owner in layer.__mro__:
        for name in ("forward", "backward", *others):
            method = owner.__dict__.get(name)
            is_ours = owner.__module__.partition(".")[0] == "glassformer"
            if method is not None and not is_ours and not hasattr(method, "observed_as"):
                setattr(owner, name, recorded(inspect.unwrap(method)))


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


def use_engine(name: str | Engine) -> AbstractContextManager[None]:
    """Let an engine, by its name or one of your own, compute inside a `with` block, in this thread or task alone.

    Arrays stay where they are: under the engine jax, ops and models given NumPy arrays still compute with NumPy, and a
    model says so once; `gf.tree.tree_map(jax.numpy.asarray, params)` moves parameters. Training and generation move
    theirs to the devices.
    """
    return _using(_found(name))


@contextmanager
def _using(engine: Engine) -> Iterator[None]:
    token = _chosen.set(engine)
    try:
        yield
    finally:
        _chosen.reset(token)


def _found(name: str | Engine) -> Engine:
    return name if isinstance(name, Engine) else engines().find(name)


def engines() -> Any:
    return importlib.import_module(ENGINES)
