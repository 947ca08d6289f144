"""Who executes: one decorator for ops and for the methods of layers, and one table of kernels for each engine.

    @dispatched                             # by="x" where another argument than the first decides
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
from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeVar, get_args, overload

from .arguments import FAILURES, instead_of
from .arrays import holds_half, in_full_precision
from .errors import ConfigError, did_you_mean
from .reporting import during
from .sources import SourceGuard, checked

ENGINES = "glassformer.engines"
"""The package of engines: `find(name)` returns one, `find_for(array_type, engine)` the one for such arrays."""

VARIABLE = "GLASSFORMER_ENGINE"

Function = TypeVar("Function", bound=Callable[..., Any])
Kernels = dict[str, "Kernel"]


class Kernel(SourceGuard):
    """A function that computes what another one computes, and the guard over the source that it replaces."""

    def __init__(self, function: Callable[..., Any], original: Any, *parts: Any, as_written: Any = None) -> None:
        super().__init__(_name(original), original, *parts)
        self.function, self.original, self.as_written = function, original, as_written
        self._has_method: dict[type, bool] = {}

    def is_of(self, layer: type) -> bool:
        """Return whether a class has the very method; one derived from its owner may have changed anything."""
        has_method = self._has_method.get(layer)
        if has_method is None:
            has_method = self._has_method[layer] = vars(layer).get(self.name.rpartition(".")[2]) is self.original
        # The library's own, such as a block without feed-forward, are meant to run as written.
        if not has_method and layer.__module__.partition(".")[0] != "glassformer":
            self.report(f"{layer.__name__} overrides {self.name.rpartition('.')[0]}")
        return has_method

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


class Engine:
    """Who computes: kernels for arrays of one library. Engines are values and never change.

    name        what users call it
    library     whose arrays it computes with
    observes    whether every call of a dispatched function goes through `observe`
    observe     do a call of a dispatched function, given it, how it is written, its arguments and settings
    inside      do a call of a method of a layer that is not dispatched, so that its ops are known to be its own
    """

    name = ""
    library = "numpy"
    observes = False

    observe: Callable[..., Any]
    inside: Callable[..., Any]

    def kernels(self) -> list[Kernel]:
        """Return all kernels; asked once, when the first op runs."""
        return []

    def on_host(self, function: Callable[..., Any], like: Any, *arrays: Any) -> Any:
        """Return what a function of NumPy arrays returns, which is like one of this engine's arrays."""
        return function(*arrays)

    @functools.cached_property
    def executor(self) -> Any:
        """The `Executor` that trains, reads and stores with these kernels."""
        return engines().Executor()

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
        table = self.tables[array_type] = engines().find_for(array_type, self).table
        return table

    def __repr__(self) -> str:
        return f"<engine {self.name}>"


@overload
def dispatched(function: Function) -> Function: ...
@overload
def dispatched(*, by: str = "", wide: tuple[str, ...] = ()) -> Callable[[Function], Function]: ...
def dispatched(function: Any = None, *, by: str = "", wide: tuple[str, ...] = ()) -> Any:
    """Make the engine in use compute a function of arrays, or a method of a layer, by its kernel where it has one.

    by     the argument whose array decides who computes: the first one unless said otherwise; where it holds no array,
           as a number does not, the first array among the arguments decides
    wide   of an op, the fields of the record that stay float32 in half precision, and "y" if the result does

    `function.__wrapped__` is the function as written, whatever the engine.
    """
    if function is None:
        return functools.partial(dispatched, by=by, wide=wide)
    signature, is_method = inspect.signature(function), "." in _name(function)
    record = next(iter(get_args(signature.return_annotation)[1:]), None)
    for word in wide:
        _position(function, word, ["y", *getattr(record, "_fields", ())])
    return _dispatched(function, _position(function, by, list(signature.parameters)) if by else int(is_method), wide)


def _position(function: Any, word: str, known: list[str]) -> int:
    if word not in known:
        raise ConfigError(f"{_name(function)} has no {word!r} to decide or to keep", hint=did_you_mean(word, known))
    return known.index(word)


def _dispatched(function: Any, position: int, wide: tuple[str, ...]) -> Any:
    name = _name(function)
    is_method = "." in name

    def written(*arrays: Any, **settings: Any) -> Any:
        if any(map(holds_half, arrays)):
            return in_full_precision(function, function, arrays, settings, wide)
        return function(*arrays, **settings)

    @functools.wraps(function)
    def run(*arguments: Any, **settings: Any) -> Any:
        try:
            engine = _chosen.get() or _default or default()
            if engine.observes:
                return engine.observe(marked, function if is_method else written, arguments, settings)
            table = engine.tables.get(type(arguments[position])) if position < len(arguments) else None
            if table is None:
                table = _table_of(engine, (*arguments[position : position + 1], *arguments))
            kernel = table.get(name)
            # Another op of the same name, such as one of the user's own, is another op.
            if (
                kernel is not None
                and kernel.original is marked
                and (kernel in checked.get() or kernel.is_current())
                and (not is_method or kernel.is_of(type(arguments[0])))
            ):
                result = kernel.function(*arguments, **settings)
                if result is not NotImplemented:
                    return result
            now = function if kernel is None or kernel.as_written is None else kernel.written(function)
            if not is_method and any(map(holds_half, arguments)):
                return in_full_precision(function, now, arguments, settings, wide)
            return now(*arguments, **settings)
        except FAILURES as error:
            raise instead_of(error, function, arguments, settings)

    marked: Any = _Method(run, function) if is_method else run
    marked.observed_as = name
    return marked


def _name(function: Any) -> str:
    """Return the name of a function, or of a method with its class, wherever they were defined."""
    return str(getattr(function, "__qualname__", function)).rpartition("<locals>.")[2]


class _Method:
    """A method that an engine may compute, or observe. Under one that does neither, the method itself is called."""

    def __init__(self, run: Callable[..., Any], method: Callable[..., Any], *, has_kernels: bool = True) -> None:
        functools.update_wrapper(self, method)
        self._run, self._method = run, method
        self._name = _name(method) if has_kernels else None

    def __get__(self, layer: Any, owner: Any = None) -> Any:
        if layer is None:
            return self
        engine = _chosen.get() or _default or default()
        # Arrays of JAX have kernels under every engine.
        has_kernel = self._name is not None and (self._name in engine.table or "jax" in sys.modules)
        return MethodType(self._run if engine.observes or has_kernel else self._method, layer)

    def __call__(self, layer: Any, *arguments: Any, **settings: Any) -> Any:
        return self.__get__(layer)(*arguments, **settings)


def recorded(function: Function, name: str = "") -> Function:
    """Show the calls of an op that has no kernels to tracing engines, by a name, its own unless given."""

    @functools.wraps(function)
    def run(*arrays: Any, **settings: Any) -> Any:
        engine = _chosen.get() or _default or default()
        try:
            if engine.observes:
                return engine.observe(run, function, arrays, settings)
            return function(*arrays, **settings)
        except FAILURES as error:
            raise instead_of(error, function, arrays, settings)

    run.observed_as = name or _name(function)  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


def located(method: Function) -> Function:
    """Report to an observing engine that a layer computes, with parameters that come first and know their path.

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


def _table_of(engine: Engine, arguments: tuple[Any, ...]) -> Kernels:
    """Return the kernels for the first array among arguments, or in a record among them."""
    for argument in arguments:
        own_type = type(argument)
        table = engine.tables.get(own_type)
        if table is not None:
            return table
        if isinstance(argument, tuple):
            table = _table_of(engine, argument)
            if table:
                return table
        elif hasattr(own_type, "__array_namespace__"):
            return engine.table_for(own_type)
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
    """Compute by an engine, by its name or one of your own, inside a `with` block, in this thread or task alone.

    Arrays stay where they are: under the engine jax, ops and models given NumPy arrays still compute with NumPy, and a
    model says so once; `gf.tree.tree_map(jax.numpy.asarray, params)` moves parameters. Training and generation move
    theirs to the devices.
    """
    return during(_chosen, _found(name))


def _found(name: str | Engine) -> Engine:
    return name if isinstance(name, Engine) else engines().find(name)


def engines() -> Any:
    return importlib.import_module(ENGINES)
