"""What is written is what runs: a kernel steps back when the source that it replaces has changed.

    edited      a file differs from the digest taken when kernels and sources were last compared (`make digests`)
    replaced    a function, class or constant is another object than at import, or has other code

A guard covers everything that the replaced functions look up by name, directly or through what they find there.
"""

import inspect
import json
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache, lru_cache, wraps
from operator import attrgetter, call, itemgetter
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, ParamSpec, TypeVar

from . import registry

P = ParamSpec("P")
R = TypeVar("R")
Names = dict[int, set[Any]]
"""Names in modules, classes and tables, by the identity of these."""

PACKAGE = Path(__file__).parent
DIGESTS = PACKAGE / "engines" / "sources.json"
SOURCES = ("arrays.py", "ops/*.py", "layers/*.py", "training/optimizer*.py", "generation/sampling.py")
"""The files that kernels replace."""
_CALLED_BY_PYTHON = {"__init__", "__call__", "__array__", "__iter__", "__len__", "__getitem__"}
_DECIDE_NOTHING = ("typing", "collections.abc", "dataclasses", f"{__package__}.errors")

_written: dict[int, tuple[Any, dict[Any, Any]]] = {}  # modules, classes and tables, and what they held at import
_codes: dict[FunctionType, CodeType] = {}  # the code of each function at import
_guards: dict["SourceGuard", None] = {}  # those in use
_reported: set[str] = set()
_version: tuple[int, Any, Any] = 0, None, None
checked: ContextVar[frozenset["SourceGuard"]] = ContextVar("checked", default=frozenset())


def snapshot(*names: str) -> None:
    """Remember the contents of modules and packages that have just been imported."""
    for module in [module for name, module in sys.modules.items() if name.startswith(names)]:
        for holder in (module, *_contents(module).values()):
            if id(holder) not in _written and (values := _contents(holder)):
                _written[id(holder)] = vars(holder) if isinstance(holder, ModuleType) else holder, values
                for function in (function for value in values.values() for function in _functions(value)):
                    _codes.setdefault(function, function.__code__)


def _contents(holder: Any) -> dict[Any, Any]:
    """Return what decides in a table, a module or a class of this package: no checks, errors, types and defaults."""
    if isinstance(holder, dict):
        return dict(holder)
    if isinstance(holder, type) and holder.__module__.partition(".")[0] == __package__:
        return {name: value for name in dir(holder) if any(_functions(value := getattr(holder, name)))}
    values = vars(holder) if isinstance(holder, ModuleType) and holder.__name__.startswith(__package__) else {}
    kept = (name for name in values if not name.startswith("__") and not name.lstrip("_").startswith("check_"))
    kept = (name for name in kept if getattr(values[name], "__module__", "") not in _DECIDE_NOTHING)
    return {name: values[name] for name in kept if getattr(values[name], "__name__", "") not in ("math", "numpy")}


class SourceGuard:
    """Tells whether everything that functions look up is as it was when kernels were written for them."""

    def __init__(self, name: str = "", starts: Iterable[Any] = (), excluding: Iterable[str] = ()) -> None:
        self.name, self._starts, self._excluding, self._begun = name, starts, set(excluding), False

    def is_current(self) -> bool:
        """Tell whether nothing was edited or replaced; if something was, report it once."""
        if self in checked.get():
            return True
        if not self._begun:
            self.watch(_reach(self._starts, self._excluding))
            if not self._edited:
                _guards[self] = None
            self._begun = True  # only now: other threads trust it
        if self.is_unchanged() and not self._edited:
            return True
        self.report(f"{self._edited} was edited" if self._edited else f"{self._first_change()} was replaced")
        return False

    def _first_change(self) -> str:
        for key, names in self.names.items():
            holder, values = _written[key]
            now = {name: getattr(holder, name, None) for name in names} if isinstance(holder, type) else holder
            for name in sorted(names):
                if now.get(name) is not values[name]:
                    return str(name)
        return next(
            (function.__qualname__ for function, code in self._functions.items() if function.__code__ is not code),
            "something",
        )

    def report(self, fact: str) -> None:
        """Log once that something runs as written, and why."""
        if fact not in _reported:
            import logging  # here, because no other part of a command's start needs it

            _reported.add(fact)
            logging.getLogger("glassformer").warning(
                "%s: it and what uses it run as written, which may be slower (first met in %s)", fact, self.name
            )

    def watch(self, names: Names) -> "SourceGuard":
        """Compare these names from now on."""
        self.names = names
        # Tuples are compared many times faster than values one by one.
        self._holders = [_written[key][0] for key in names]
        kinds = [attrgetter if isinstance(holder, type) else itemgetter for holder in self._holders]
        self._getters = [kind(*own) for kind, own in zip(kinds, names.values(), strict=True)]
        found = [_written[key][1][name] for key, own in names.items() for name in own]
        self._functions = {function: _codes[function] for value in found for function in _functions(value)}
        self._values = [itemgetter(*own)(_written[key][1]) for key, own in names.items()], [*self._functions.values()]
        files = {Path(code.co_filename).relative_to(PACKAGE).as_posix() for code in self._functions.values()}
        self._edited = min(files & edited_files(), default=None)
        return self

    def now(self) -> Any:
        """Return what the names stand for now, and the code of all functions that they stood for."""
        try:
            return [*map(call, self._getters, self._holders)], [function.__code__ for function in self._functions]
        except (AttributeError, KeyError):
            return object()  # a name was deleted: nothing equals this

    def is_unchanged(self) -> bool:
        """Tell whether every place holds what it held, with the same code."""
        return _are_same(self.now(), self._values)


def _are_same(values: Any, others: Any) -> bool:
    try:
        return bool(values == others)
    except ValueError:  # a constant is an array now
        return False


def check_once(function: Callable[P, R]) -> Callable[P, R]:
    """Check all guards in use when a function is called, a training step for example, and not again until it returns.

    The check happens inside `try`, because Ctrl-C may come at any moment.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        before = checked.get()
        try:
            checked.set(_current_guards())
            return function(*args, **kwargs)
        finally:
            checked.set(before)

    return run


def _current_guards() -> frozenset[SourceGuard]:
    """Return all guards in use if none finds a change; otherwise none, so that each checks for itself."""
    guards, every = _union(len(_guards))
    return guards if every.is_unchanged() else frozenset()


@lru_cache(maxsize=1)
def _union(count: int) -> tuple[frozenset[SourceGuard], SourceGuard]:
    names = defaultdict[int, set[Any]](set)
    for guard in _guards:
        for key, own in guard.names.items():
            names[key] |= own
    return frozenset(_guards), SourceGuard().watch(names)


def version() -> tuple[int, int]:
    """Return what changes whenever a source or a registered part does, for programs that keep what they traced."""
    global _version
    number, guard, before = _version
    every = _everything(len(_written))
    now = every.now()
    # What is watched grows while programs are traced, which is no change of what was watched before.
    if guard is not None and not _are_same(now if every is guard else guard.now(), before):
        number += 1
    _version = number, every, now
    return number, registry.version()


@lru_cache(maxsize=1)
def _everything(count: int) -> SourceGuard:
    return SourceGuard().watch({key: set(values) for key, (_, values) in _written.items()})


# --- what functions reach --------------------------------------------------------------------------------------------


def _reach(starts: Iterable[Any], excluding: set[str]) -> Names:
    """Return the names that functions look up, directly or through what they find there.

    Every name in the code of a reached function is looked up in everything that was reached: in more places than the
    code looks at, never in fewer.
    """
    reached: Names = {}
    names, found = set(_CALLED_BY_PYTHON), list(starts)
    while found:
        for value in found:
            reached |= {key: set() for key in map(id, _holders(value)) if key in _written and key not in reached}
            for function in _functions(value):
                names.update(_names(_codes.get(function, function.__code__)))
        found = []
        for key, own in reached.items():
            holder, values = _written[key]
            is_table = isinstance(holder, dict) and "__name__" not in holder  # all its entries count
            new = (values.keys() if is_table else names & values.keys()) - own - excluding
            own |= new
            found += [values[name] for name in new]
    return {key: own for key, own in reached.items() if own}


def _holders(value: Any) -> Iterator[Any]:
    """Yield the modules, classes and tables in which names are looked up by, or on, a value."""
    homes: list[Any] = [value if isinstance(value, type | ModuleType | dict) else type(value)]
    for function in _functions(value):
        module = sys.modules[function.__module__]
        owner = getattr(module, function.__qualname__.partition(".")[0], None)
        homes += [module, owner, *map(type, function.__defaults__ or ())]
    for home in homes:
        yield from home.__mro__ if isinstance(home, type) else [home]


def _functions(value: Any) -> Iterator[FunctionType]:
    """Yield the functions of this package behind a value: a function, a method, a property or a tuple of functions."""
    if isinstance(value, tuple):
        for part in value:
            yield from _functions(part)
    elif not isinstance(value, type | ModuleType):
        inner = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
        inner = inspect.unwrap(inner) if callable(inner) else inner
        if isinstance(inner, FunctionType) and (inner in _codes or inner.__code__.co_filename.startswith(str(PACKAGE))):
            yield inner


def _names(code: CodeType) -> Iterator[str]:
    """Yield every name that a function and the functions inside it look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


# --- digests of files ------------------------------------------------------------------------------------------------


def digest(text: str) -> str:
    """Return a digest of code: of its lines without docstrings, comments and blanks."""
    import hashlib  # here, because no other part of a command's start needs it

    code = re.sub(r'(?ms)^ *""".*?"""$|(^|  )#[^\n]*', "", text)
    lines = [line.rstrip() for line in code.splitlines() if line.strip()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def digests() -> dict[str, str]:
    """Return the digest of each source as it is now."""
    files = sorted(path for pattern in SOURCES for path in PACKAGE.glob(pattern))
    return {path.relative_to(PACKAGE).as_posix(): digest(path.read_text(encoding="utf-8")) for path in files}


@cache
def edited_files() -> frozenset[str]:
    """Return the files whose code differs from what was digested."""
    known = json.loads(DIGESTS.read_text(encoding="utf-8")) if DIGESTS.is_file() else {}
    return frozenset(file for file, now in digests().items() if known.get(file, now) != now)


if __name__ == "__main__":
    DIGESTS.write_text(json.dumps(digests(), indent=1) + "\n", encoding="utf-8")
