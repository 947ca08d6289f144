"""What is written is what runs: a stand-in steps back when what it was made from has changed.

A stand-in was written, and compared, for certain lines of ops and layers. Two things are watched:

    edited      the lines in the files are others than those that `stamp` saw when the stand-ins were last compared
    replaced    a function, a method or a constant has another object in its place in the running program

Both are about everything that a stand-in stands for, directly or through what it calls: a changed softmax concerns the
stand-ins of attention and of the block around it too. Changed comments and docstrings concern nobody. What has another
object in its place is told from `remember`, which notes all of ops and all of layers as soon as they are imported.

    python -m glassformer.sources        stamps the sources anew, once stand-ins and sources are equal again
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache, wraps
from operator import itemgetter
from pathlib import Path
from types import CodeType, MappingProxyType, ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE = Path(__file__).parent
STAMPS = PACKAGE / "engines" / "sources.json"
WATCHED = ("ops", "layers")
"""The folders whose lines stand-ins stand for."""

Group = tuple[Callable[[Any], Any], Any]
"""What reads some entries of a mapping at once, and the mapping."""

_told: set[str] = set()
_watches: list[Watch] = []  # those that have begun, in this order
looked: ContextVar[int] = ContextVar("looked", default=0)  # so many of them were current when `steadily` began


class Watch:
    """Watches over what one stand-in stands for: what `starts` reach, but for what is `apart`."""

    __slots__ = ("apart", "groups", "name", "number", "places", "starts", "were")

    def __init__(self, name: str, starts: list[Callable[..., Any]], apart: Iterable[Callable[..., Any]] = ()) -> None:
        self.name, self.starts, self.apart = name, starts, apart
        self.number = sys.maxsize  # among `_watches`
        self.places: dict[Any, Any] = {}
        self.groups: list[Group] | None = None
        self.were: list[Any] | None = []  # what the entries of the groups are as written; None: there is no telling

    def is_current(self) -> bool:
        """Tell whether everything is as it was when the stand-in was made; if not, say so once."""
        if self.number <= looked.get():
            return True
        if self.groups is None:
            self._begin()
        if self.were is None:
            return False
        if self.is_in_place():
            return True
        moved = next((name, was) for (where, name), was in self.places.items() if where.get(name) != was)
        self.say(f"{getattr(moved[1], '__qualname__', moved[0])} was replaced")
        return False

    def is_in_place(self) -> bool:
        """Tell whether every place has in it what is written there."""
        assert self.groups is not None
        try:  # one comparison of everything: this is asked at every call
            return [entries(where) for entries, where in self.groups] == self.were
        except KeyError:  # one was taken away
            return False

    def say(self, fact: str) -> None:
        """Say once that something runs as written, and why."""
        if fact not in _told:
            import logging  # here and in `_digest`: nothing else at the start of a command needs them

            _told.add(fact)
            logging.getLogger("glassformer").warning(
                "%s: it and what uses it run as written, which may be slower (first met in %s)", fact, self.name
            )

    def _begin(self) -> None:
        """Look up what is reached from the start, and whether its lines are those that were stamped."""
        reached = _Reached(self.apart)
        for start in self.starts:
            reached.follow(start)
        self.watch(reached.places)
        changed = edited()
        for found in sorted(reached.sources & changed.keys()):
            self.were = None
            self.say(f"{found.rpartition(':')[2]} was edited in {changed[found]}")
        if self.were is not None:
            _watches.append(self)
            self.number = len(_watches)

    def watch(self, places: dict[Any, Any]) -> None:
        """Watch over places, given with what is written there."""
        mappings: dict[int, tuple[Any, dict[Any, Any]]] = {}
        for (where, name), was in places.items():
            mappings.setdefault(id(where), (where, {}))[1][name] = was
        self.places = places
        self.groups = [(itemgetter(*own), where) for where, own in mappings.values()]
        self.were = [itemgetter(*own)(own) for _, own in mappings.values()]


def steadily(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function look once at all that is watched, and trust it in the many calls that it makes: a training step.

    The look is taken inside of `try`: Ctrl-C may come at any moment, and what it breaks off must trust nothing longer.
    """

    @wraps(function)
    def steady(*args: P.args, **kwargs: P.kwargs) -> R:
        before = looked.get()
        try:
            looked.set(_how_many_are_current())
            return function(*args, **kwargs)
        finally:
            looked.set(before)

    return steady


def _how_many_are_current() -> int:
    """Return how many watches have begun if all of them are current, else 0: then each looks for itself."""
    global _all
    begun = _watches.copy()
    if _all.number != len(begun):
        _all = Watch("all", [])
        _all.watch({place: was for watch in begun for place, was in watch.places.items()})
        _all.number = len(begun)
    return _all.number if _all.is_in_place() else 0


_all = Watch("all", [])

# --- what is written -------------------------------------------------------------------------------------------------

_written: dict[int, tuple[Any, dict[Any, Any]]] = {}
"""The mappings of ops and layers by identity: each itself, and a copy of what it had in it as written."""


def remember(package: str) -> None:
    """Note all functions, methods, constants and tables of a package that has just been imported."""
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            for value in [vars(module), *vars(module).values()]:
                where = _members(value) if isinstance(value, type) else value
                if isinstance(where, (dict, MappingProxyType)):
                    _written.setdefault(id(where), (where, dict(where)))


def as_written(function: Any) -> Any:
    """Return the function of ops or layers in whose place a function stands; one that was always there itself."""
    homes = [(where, entries) for where, entries in _written.values()]
    if any(function is entry for _, entries in homes for entry in entries.values()):
        return function
    found = [was for where, entries in homes for name, was in entries.items() if where.get(name) is function]
    return found[0] if found and all(was is found[0] for was in found) else function


def _entries(where: Any) -> Any:
    """Return what is written in a mapping."""
    return _written.get(id(where), (where, where))[1]


class _Reached:
    """All that functions call by name, as places that can be looked at again, and as the names of their sources."""

    def __init__(self, apart: Iterable[Callable[..., Any]]) -> None:
        self.places: dict[Any, Any] = {}
        self.sources: set[str] = set()
        self._apart = tuple(apart)
        self._seen: set[int] = set()
        self._named: set[str] = set()  # by any of the functions
        self._types: list[type] = []

    def follow(self, function: Callable[..., Any]) -> None:
        """Follow a function into everything that it names."""
        raw = inspect.unwrap(function)
        code = getattr(raw, "__code__", None)
        if code is None or id(code) in self._seen:
            return
        self._seen.add(id(code))
        self.sources.add(f"{raw.__module__}:{raw.__qualname__}")
        names = set(_names(code))
        if "." in raw.__qualname__:
            self._follow_method(raw, names)
        for name in sorted(names):
            if name in _entries(raw.__globals__):
                self._visit(raw.__globals__, name, names, raw.__module__)
        for value in (*(raw.__defaults__ or ()), *(raw.__kwdefaults__ or {}).values()):
            self._visit_type(type(value))
        self._named |= names
        for owner in list(self._types):
            self._visit_members(owner, names)

    def _follow_method(self, raw: Any, names: set[str]) -> None:
        """Watch the place of a method in its class, and follow the methods that it calls on itself."""
        home, name = raw.__globals__, raw.__qualname__.split(".")[0]
        owner = _entries(home).get(name)
        if isinstance(owner, type):
            self.places[_Key(home, name)] = owner
            self._visit_members(owner, {raw.__name__, *names})

    def _visit(self, where: Any, name: str, names: set[str], module: str) -> None:
        value = _entries(where)[name]
        if isinstance(value, ModuleType):
            if _is_ours(value.__name__):
                for other in sorted(names & _entries(vars(value)).keys()):
                    self._visit(vars(value), other, set(), value.__name__)
            return
        if isinstance(value, type):
            if _is_ours(value.__module__):
                self.places[_Key(where, name)] = value
            self._visit_type(value)
        elif callable(value) and _is_ours(getattr(value, "__module__", None)):
            if value in self._apart:
                return
            self.places[_Key(where, name)] = value
            self.follow(value)
        elif isinstance(value, dict):
            for key, entry in _entries(value).items():
                parts = entry if isinstance(entry, tuple) else (entry,)
                if all(map(callable, parts)):
                    self.places[_Key(value, key)] = entry
                    for part in parts:
                        self.follow(part)
        elif isinstance(value, (int, float, str)):
            self.places[_Key(where, name)] = value
            self.sources.add(f"{module}:{name}")
        else:
            self._visit_type(type(value))

    def _visit_type(self, owner: type) -> None:
        """Follow those methods of a class of ours that someone names, now or later, or that Python calls by itself."""
        if not _is_ours(owner.__module__) or id(owner) in self._seen:
            return
        self._seen.add(id(owner))
        self.sources.add(f"{owner.__module__}:{owner.__qualname__}")
        self._types.append(owner)
        own = {name for name in _entries(_members(owner)) if name.startswith("__")}
        self._visit_members(owner, self._named | own)

    def _visit_members(self, owner: type, names: set[str]) -> None:
        for name in sorted(names & _entries(_members(owner)).keys()):
            self._visit_member(owner, name)

    def _visit_member(self, owner: type, name: str) -> None:
        """Watch and follow a method or a property that someone wrote; what Python adds to a class stays as it is."""
        value = _entries(_members(owner))[name]
        method = inspect.unwrap(getattr(value, "fget", None) or getattr(value, "func", None) or value)
        if inspect.isfunction(method) and method.__code__.co_filename == inspect.getsourcefile(owner):
            self.places[_Key(_members(owner), name)] = value
            self.follow(method)


class _Key(tuple):
    """A place, hashed by which mapping it is in."""

    def __new__(cls, where: Any, name: Any) -> _Key:
        return super().__new__(cls, (where, name))

    def __hash__(self) -> int:
        return hash((id(self[0]), self[1]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self[0] is other[0] and self[1] == other[1]


@cache
def _members(owner: type) -> Any:
    """Return the members of a class, always as the same mapping."""
    return vars(owner)


def _names(code: CodeType) -> Iterator[str]:
    """Yield every name that a function and the functions inside it look up, or may by `getattr`."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            yield constant


def _is_ours(module: str | None) -> bool:
    parts = (module or "").split(".")
    return parts[0] == "glassformer" and len(parts) > 1 and parts[1] in WATCHED


# --- lines in files --------------------------------------------------------------------------------------------------


@cache
def edited() -> dict[str, str]:
    """Return what differs from the stamped sources, as "module:name", each with the file it stands in."""
    if not STAMPS.is_file():
        return {}
    stamps = json.loads(STAMPS.read_text(encoding="utf-8"))
    found: dict[str, str] = {}
    for path in _files():
        file = path.relative_to(PACKAGE).as_posix()
        text = _text(path)
        known = stamps.get(file, {"file": "", "parts": {}})
        if _digest(text) != known["file"]:
            module = "glassformer." + file.removesuffix(".py").replace("/", ".")
            parts = fingerprints(text)
            found |= {f"{module}:{name}": file for name, mark in known["parts"].items() if parts.get(name) != mark}
            found |= {f"{module}:{name}": file for name in parts.keys() - known["parts"].keys()}
    return found


def fingerprints(text: str) -> dict[str, str]:
    """Return a mark of every function, method, class and constant of a file; comments and docstrings leave none."""
    parts: dict[str, list[str]] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            for inner in (part for part in node.body if not _is_text(part)):
                name = f"{node.name}.{inner.name}" if isinstance(inner, ast.FunctionDef) else node.name
                parts.setdefault(name, []).append(_structure(inner))
        elif isinstance(node, ast.FunctionDef):
            parts.setdefault(node.name, []).append(_structure(node))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                for part in ast.walk(target):
                    if isinstance(part, ast.Name):
                        parts.setdefault(part.id, []).append(_structure(node.value))
    return {name: _digest("\n".join(shapes)) for name, shapes in parts.items()}


_SILENT = {"lineno", "col_offset", "end_lineno", "end_col_offset", "ctx", "kind", "type_comment", "type_params"}
_SILENT |= {"annotation", "returns", "decorator_list"}


def _structure(node: Any) -> str:
    """Return what a piece of code does, as text that is the same under every version of Python."""
    if isinstance(node, list):
        return "[" + ",".join(map(_structure, node)) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if name in _SILENT:
            continue
        if name == "body" and isinstance(value, list):
            value = [part for part in value if not _is_text(part)]
        fields.append(_structure(value))
    return "" if _is_text(node) else f"{type(node).__name__}({','.join(fields)})"


def _is_text(node: Any) -> bool:
    """Tell whether a statement is a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _files() -> list[Path]:
    return sorted(path for folder in WATCHED for path in (PACKAGE / folder).glob("*.py"))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")  # with line ends of every system as \n


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()[:16]


def stamp() -> dict[str, Any]:
    """Return the marks of all sources as they are now."""
    return {
        path.relative_to(PACKAGE).as_posix(): {"file": _digest(_text(path)), "parts": fingerprints(_text(path))}
        for path in _files()
    }


if __name__ == "__main__":
    STAMPS.write_text(json.dumps(stamp(), indent=1, sort_keys=True) + "\n", encoding="utf-8")
