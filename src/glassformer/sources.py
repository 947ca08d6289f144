"""What is written is what runs: a kernel steps back when the source that it replaces has changed.

    edited      a file differs from the digest taken when kernels and sources were last compared (`make digests`)
    replaced    a function, class or constant is another object than at import, or has other code

A guard covers everything that the replaced functions look up by name, directly or through what they find there.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache, wraps
from operator import call, itemgetter
from pathlib import Path
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any, ParamSpec, TypeVar

from . import registry

P = ParamSpec("P")
R = TypeVar("R")
Place = tuple[Any, Any, Any]
"""A mapping (the namespace of a module or a class, or a table), a name in it, and its value at import."""

PACKAGE = Path(__file__).parent
DIGESTS = PACKAGE / "engines" / "sources.json"
SOURCES = ("arrays.py", "ops/*.py", "layers/*.py", "training/optimizer*.py", "generation/sampling.py")
"""The files that kernels replace."""
_CALLED_BY_PYTHON = ("__init__", "__call__", "__array__", "__iter__", "__len__", "__getitem__")
_ADDED_BY_PYTHON = {"__slotnames__", "__annotations__", "__annotations_cache__"}
"""Members that Python adds to a class, for example when one of its objects is copied."""
_PATH = f"{PACKAGE}{os.sep}"

_written: dict[int, tuple[Any, dict[Any, Any]]] = {}  # mappings of `snapshot` by identity, each with a copy
_views: list[Any] = []  # the values in these mappings as they are now
_codes: dict[int, tuple[Any, CodeType]] = {}  # functions of `snapshot` by identity, each with its code
_reported: set[str] = set()
_guards: dict[SourceGuard, None] = {}  # those in use
checked: ContextVar[frozenset[SourceGuard]] = ContextVar("checked", default=frozenset())


def snapshot(*names: str) -> None:
    """Remember the contents of modules and packages that have just been imported."""
    for name, module in list(sys.modules.items()):
        if any(name == own or name.startswith(f"{own}.") for own in names):
            for holder in _mappings(module):
                if id(holder) not in _written:
                    _written[id(holder)] = holder, dict(holder)
                    _views.append(holder.values())
                    for function in (found for part in dict(holder).values() for found in _functions(part)):
                        _codes.setdefault(id(function), (function, function.__code__))


def _mappings(module: ModuleType) -> Iterator[Any]:
    """Yield the namespace of a module, the tables in it, and the members of this package's classes in it."""
    yield vars(module)
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__.partition(".")[0] == __package__:
            yield _members(value)
        elif isinstance(value, dict) and not name.startswith("__"):
            yield value


def as_written(function: Any) -> Any:
    """Return the function of the source whose place another one has taken; a function of the source itself."""
    if any(function is value for _, values in _written.values() for value in values.values()):
        return function
    places = [(holder, name, was) for holder, values in _written.values() for name, was in values.items()]
    found = [was for holder, name, was in places if holder.get(name) is function]
    return found[0] if found and all(was is found[0] for was in found) else function


class SourceGuard:
    """Tells whether the source that a kernel replaces is as it was when the kernel was written."""

    def __init__(self, name: str, starts: Iterable[Any], excluding: Iterable[Any] = ()) -> None:
        self.name, self._begun, self._edited = name, False, False
        self._starts, self._excluding = starts, {id(function) for function in excluding}
        self.watch({})

    def is_current(self) -> bool:
        """Tell whether nothing was edited or replaced; if something was, report it once."""
        if self in checked.get():
            return True
        if not self._begun:
            self._begin()
        if self._edited or self.is_unchanged():
            return not self._edited
        self.report(f"{next(map(str, self._changes()), 'something')} was replaced")  # another thread may restore it
        return False

    def report(self, fact: str) -> None:
        """Log once that something runs as written, and why."""
        if fact not in _reported:
            import logging  # here, because no other part of a command's start needs it

            _reported.add(fact)
            logging.getLogger("glassformer").warning(
                "%s: it and what uses it run as written, which may be slower (first met in %s)", fact, self.name
            )

    def _begin(self) -> None:
        """Find everything that the source reaches, and compare the digests of its files."""
        reached, files = _reach(self._starts, self._excluding)
        self.watch(reached)
        for file in sorted(files & edited_files()):
            self._edited = True
            self.report(f"{file} was edited")
        if not self._edited:
            _guards[self] = None
        self._begun = True  # only now: other threads trust it

    def watch(self, places: dict[tuple[int, Any], Place]) -> None:
        """Compare these places from now on."""
        self.places = places
        groups: dict[int, tuple[Any, dict[Any, Any]]] = {}
        for holder, name, value in places.values():
            groups.setdefault(id(holder), (holder, {}))[1][name] = value
        # Tuples are compared many times faster than values one by one.
        self._holders = [holder for holder, _ in groups.values()]
        self._getters = [itemgetter(*own) for _, own in groups.values()]
        self._values = [itemgetter(*own)(own) for _, own in groups.values()]
        functions = {id(found): found for *_, value in places.values() for found in _functions(value)}
        self._functions = [function for key, function in functions.items() if key in _codes]
        self._own_codes = [_codes[id(function)][1] for function in self._functions]
        self._classes = [holder for holder in self._holders if isinstance(holder, MappingProxyType)]
        self._sizes = [len(_written[id(holder)][1]) for holder in self._classes]

    def is_unchanged(self) -> bool:
        """Tell whether every place holds what it held, with the same code, and no class has a new member."""
        try:
            values, codes = [*map(call, self._getters, self._holders)], [f.__code__ for f in self._functions]
            if values != self._values or codes != self._own_codes:
                return False
        except (KeyError, ValueError):  # a name was deleted, or is an array now
            return False
        sizes = [*map(len, self._classes)]
        if sizes != self._sizes:
            if any(map(_added, self._classes)):
                return False
            self._sizes = sizes
        return True

    def _changes(self) -> Iterator[Any]:
        """Yield the names of everything that was replaced."""
        yield from (name for holder, name, was in self.places.values() if holder.get(name) is not was)
        yield from (f.__qualname__ for f in self._functions if f.__code__ is not _codes[id(f)][1])
        yield from (name for holder in self._classes for name in _added(holder))


def _added(members: Any) -> set[str]:
    """Return the names that a class has been given since it was defined."""
    return members.keys() - _written[id(members)][1].keys() - _ADDED_BY_PYTHON


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
    global _all
    if not _guards:
        return frozenset()
    if len(_all[1]) != len(_guards):
        every, guards = SourceGuard("all", ()), frozenset(_guards)
        every.watch({key: place for guard in guards for key, place in guard.places.items()})
        _all = every, guards
    return _all[1] if _all[0].is_unchanged() else frozenset()


_all: tuple[SourceGuard, frozenset[SourceGuard]] = SourceGuard("all", ()), frozenset()


_state: tuple[int, Any, Any] = 0, None, None


def version() -> tuple[int, int]:
    """Return what changes whenever a source or a registered part does, for programs that keep what they traced."""
    global _state
    number, before, exact_before = _state
    codes = [function.__code__ for function, _ in _codes.values()]
    now = [*map(list, _views), codes]
    if not _are_same(now, before):
        # A module may import more; a class or a table that has more computes something else.
        exact = [
            {name: holder.get(name) for name in (values if "__name__" in values else holder.keys() - _ADDED_BY_PYTHON)}
            for holder, values in _written.values()
        ]
        _state = number + (not _are_same([exact, codes], exact_before)), now, [exact, codes]
    return _state[0], registry.version()


def _are_same(values: Any, others: Any) -> bool:
    try:
        return bool(values == others)
    except ValueError:  # a constant is an array now
        return False


# --- what functions reach --------------------------------------------------------------------------------------------


def _reach(starts: Iterable[Any], excluding: set[int]) -> tuple[dict[tuple[int, Any], Place], set[str]]:
    """Return the places in which functions look up names, directly or through what they find there, and their files.

    Every name in the code of a reached function is looked up in all mappings that were reached: in more places than the
    code looks at, never in fewer.
    """
    places: dict[tuple[int, Any], Place] = {}
    holders: dict[int, Any] = {}
    names, files = set(_CALLED_BY_PYTHON), set[str]()
    found = list(starts)
    while found:
        for value in found:
            holders |= {id(holder): holder for holder in _holders(value)}
            for function in _functions(value):
                code = _codes.get(id(function), (function, function.__code__))[1]
                names.update(_names(code))
                files.add(code.co_filename)
        found = []
        for key, holder in holders.items():
            values = _written[key][1]
            is_class = isinstance(holder, MappingProxyType)
            for name in names & values.keys() if is_class or "__name__" in values else values:
                if (key, name) in places or id(values[name]) in excluding or _only_refuses(name, values[name]):
                    continue
                if not is_class or any(_functions(values[name])):  # the default of a field decides nothing later
                    places[key, name] = holder, name, values[name]
                    found.append(values[name])
    return places, {Path(file).relative_to(PACKAGE).as_posix() for file in files}


def _only_refuses(name: Any, value: Any) -> bool:
    """Tell whether a value is a check, a part of an error or the name of a module: none decides what is computed."""
    is_check = isinstance(name, str) and (name == "__name__" or name.lstrip("_").startswith("check_"))
    return is_check or getattr(value, "__module__", None) == f"{__package__}.errors"


def _functions(value: Any) -> Iterator[FunctionType]:
    """Yield the functions of this package behind a value: a function, a method, a property or a tuple of functions."""
    if isinstance(value, tuple):
        for part in value:
            yield from _functions(part)
    elif not isinstance(value, type | ModuleType):
        inner = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
        inner = inspect.unwrap(inner) if callable(inner) else inner
        if isinstance(inner, FunctionType) and (id(inner) in _codes or inner.__code__.co_filename.startswith(_PATH)):
            yield inner


def _holders(value: Any) -> Iterator[Any]:
    """Yield the mappings of the source in which names are looked up by, or on, a value."""
    functions = list(_functions(value))
    homes: list[Any] = [value if isinstance(value, type | ModuleType | dict) else type(value)]
    for function in functions:
        owner = function.__globals__.get(function.__qualname__.partition(".")[0])
        homes += [function.__globals__, owner, *map(type, function.__defaults__ or ())]
    for home in homes:
        for part in home.__mro__ if isinstance(home, type) else [home]:
            holder = _members(part) if isinstance(part, type) else vars(part) if isinstance(part, ModuleType) else part
            if id(holder) in _written:
                yield holder


def _names(code: CodeType) -> Iterator[str]:
    """Yield every name that a function and the functions inside it look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _members(owner: type) -> Any:
    """Return the members of a class, always as the same mapping."""
    return vars(owner)


# --- digests of files ------------------------------------------------------------------------------------------------


@cache
def edited_files() -> frozenset[str]:
    """Return the files whose code differs from what was digested."""
    known = json.loads(DIGESTS.read_text(encoding="utf-8")) if DIGESTS.is_file() else {}
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in _files()}
    # Where the text is the same, its code need not be parsed.
    changed = [file for file in texts.keys() & known.keys() if _digest(texts[file]) != known[file].split()[0]]
    return frozenset(file for file in changed if code_digest(texts[file]) != known[file].split()[1])


def digests() -> dict[str, str]:
    """Return the digests of each source as it is now: of its text, and of the code in it."""
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in _files()}
    return {file: f"{_digest(text)} {code_digest(text)}" for file, text in texts.items()}


def _files() -> list[Path]:
    return sorted(path for pattern in SOURCES for path in PACKAGE.glob(pattern))


def code_digest(text: str) -> str:
    """Return a digest of what code does: without comments, docstrings and layout, and for every version of Python."""
    return _digest(_structure(ast.parse(text)))


def _structure(node: Any) -> str:
    if isinstance(node, list):
        return ",".join(_structure(part) for part in node if not _is_docstring(part))
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [(name, _structure(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return f"{type(node).__name__}{fields}"


def _is_docstring(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _digest(text: str) -> str:
    import hashlib  # here, because no other part of a command's start needs it

    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    DIGESTS.write_text(json.dumps(digests(), indent=1) + "\n", encoding="utf-8")
