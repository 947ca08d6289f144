"""Guards over sources: a kernel steps back when the code that it replaces, or depends on, has changed.

A kernel depends on the file of what it replaces and on the files of the mathematics which that file imports,
transitively, as their import statements say. `make digests` lists them in `engines/sources.json`. A source was

    edited      the code of the file differs from the digest taken when kernels and sources were last compared
    replaced    a function, class or constant in it is another object than at import, or a function has other code

A name of a package, such as `ops.softmax`, is a source of its own, and leads to the file that defines it.
"""

import ast
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache, lru_cache, wraps
from pathlib import Path
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, ParamSpec, TypeVar

from . import registry

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE = Path(__file__).parents[1]
DIGESTS = PACKAGE / "engines" / "sources.json"
MATHEMATICS = (
    "core/arrays.py", "core/quantized.py", "ops/*.py", "layers/*.py", "models/*.py", "training/optimizer*.py",
    "generation/sampling.py", "generation/writer.py",
)  # fmt: skip
"""The files that kernels may depend on."""

_sources: dict[str, "Source"] = {}  # by file, and by file:name for the names of packages
_guards: dict["SourceGuard", None] = {}  # those in use
_reported: set[str] = set()
_version: tuple[int, "Sources | None"] = 0, None
checked: ContextVar[frozenset["SourceGuard"]] = ContextVar("checked", default=frozenset())


class Source:
    """The values of some names when a file was imported, and the code of the functions behind them.

    Those in its classes, and the entries of its tables, count as well. `held` are the dicts of all these names.
    """

    def __init__(self, file: str, module: ModuleType, names: Iterable[str]) -> None:
        self.file = file
        values = {name: value for name in names if _decides(value := vars(module)[name])}
        self.held: list[tuple[Any, list[Any]]] = [(vars(module), [*values])]
        for value in values.values():
            if isinstance(value, dict | MappingProxyType):
                self.held.append((value, [*value]))
            elif isinstance(value, type) and value.__module__ == module.__name__:
                held = value.__dict__
                # What Python and dataclasses add is left out.
                self.held.append((held, [n for n in held if n[:2] != "__" or any(_functions(held[n], module))]))
        self.functions = [f for holder, names in self.held for name in names for f in _functions(holder[name], module)]
        # A class or a file that gains a name may hide what it inherits, or a function of Python's; a table may grow.
        self._closed = [(holder, frozenset(holder)) for holder, _ in self.held if _is_closed(holder)]
        self.before = self.now()

    def now(self) -> dict[Any, Any]:
        """Return what all names stand for now, names that came since, and the code of the functions, in any order."""
        values: dict[Any, Any] = {
            (i, name): held.get(name) for i, (held, names) in enumerate(self.held) for name in names
        }
        gained = [(holder, known) for holder, known in self._closed if len(holder) != len(known)]
        values |= {(-1, n): holder[n] for holder, known in gained for n in holder if n not in known and n[:2] != "__"}
        # Defaults may be written into.
        codes = {f: (f.__code__, f.__defaults__, f.__kwdefaults__ and {**f.__kwdefaults__}) for f in self.functions}
        return values | codes

    def change(self) -> str | None:
        """Return what was edited or replaced, in words; None: nothing."""
        if self.file in edited_files():
            return f"{self.file} was edited"
        for key, value in self.now().items():
            if key not in self.before or not _are_same(value, self.before[key]):
                return f"{key[1] if isinstance(key, tuple) else key.__qualname__} was replaced"
        return None


class Sources:
    """Several sources, and whether any of them has changed, which is asked far more often than it happens."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = tuple(sources)
        self._holders = [*{id(holder): holder for source in self.sources for holder, _ in source.held}.values()]
        codes = {function: source.before[function] for source in self.sources for function in source.functions}
        self._functions, self._with_defaults = [*codes], [f for f, (_, *defaults) in codes.items() if any(defaults)]
        self._copies: Any = None
        self._state: Any = None
        self._is_unchanged = True

    def has_moved(self) -> bool:
        """Return whether anything is another object, or has other code, than when this was last asked."""
        # Dicts are compared several times faster than values by name, but they may hold more by now.
        codes = [function.__code__ for function in self._functions]
        defaults = [(function.__defaults__, function.__kwdefaults__) for function in self._with_defaults]
        if _are_same((self._holders, codes, defaults), self._copies):
            return False
        holders = [dict(holder) for holder in self._holders]
        before, self._state = self._state, [source.now() for source in self.sources]
        self._is_unchanged = _are_same(self._state, [source.before for source in self.sources])
        # Last: no other thread may take this for looked at before it is known whether anything changed.
        self._copies = holders, codes, [(values, named and {**named}) for values, named in defaults]
        return not _are_same(self._state, before)

    def is_unchanged(self) -> bool:
        """Return whether everything is as it was when it was imported."""
        self.has_moved()
        return self._is_unchanged


def _is_closed(holder: Any) -> bool:
    """Return whether names are those of a file or of a class: a package imports its files, and a table may grow."""
    return "__module__" in holder or ("__name__" in holder and "__path__" not in holder)


def _decides(value: Any) -> bool:
    """Return whether a value is a constant or from this package; NumPy, types and the like are taken as they are."""
    home = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "glassformer")
    return f"{home}.".startswith("glassformer.")


def _are_same(values: Any, others: Any) -> bool:
    try:
        return bool(values == others)
    except ValueError:  # a constant is an array now
        return False


def _functions(value: Any, module: ModuleType) -> Iterator[FunctionType]:
    """Yield the functions in a module's file behind a value: a function, wrapped or not, a method or a property."""
    value = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
    while value is not None and not isinstance(value, type):
        if isinstance(value, FunctionType) and value.__code__.co_filename == module.__file__:
            yield value
        value = getattr(value, "__wrapped__", None)


def snapshot(*prefixes: str) -> None:
    """Remember the contents of modules that have just been imported, by the beginning of their names."""
    for module in [module for name, module in sys.modules.items() if name.startswith(prefixes)]:
        file = file_of(module.__name__)
        if file not in _sources:
            names = [name for name in vars(module) if not name.startswith("__")]
            _sources[file] = Source(file, module, names)
            if file.endswith("__init__.py"):
                _sources.update({f"{file}:{name}": Source(file, module, [name]) for name in names})


def file_of(module: str) -> str:
    """Return where the file of a module lies in the package."""
    return Path(str(sys.modules[module].__file__)).relative_to(PACKAGE).as_posix()


class SourceGuard:
    """Knows whether the sources of some functions and classes are as they were when kernels were written for them."""

    def __init__(self, name: str, *originals: Any) -> None:
        self.name, self._originals = name, originals
        self.sources: tuple[Source, ...] = ()
        self._checked: Sources | None = None

    def is_current(self) -> bool:
        """Return whether nothing was edited or replaced; if something was, report it once."""
        if self in checked.get():
            return True
        if self._checked is None:
            needed = set[str]().union(*(needed_by(file_of(original.__module__)) for original in self._originals))
            self.sources = tuple(_sources[name] for name in sorted(needed))
            self._checked = Sources(self.sources)
            _guards[self] = None
        if self._checked.is_unchanged() and not edited_files():
            return True
        change = next(filter(None, (source.change() for source in self.sources)), None)
        if change:
            self.report(change)
        return change is None

    def report(self, fact: str) -> None:
        """Log once that something runs as written, and why."""
        if fact not in _reported:
            import logging  # here, because no other part of a command's start needs it

            _reported.add(fact)
            logging.getLogger("glassformer").warning(
                "%s: it and what uses it run as written, which may be slower (first met in %s)", fact, self.name
            )


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
    """Return the guards in use that find no change; the others check for themselves, and report."""
    guards, used = _in_use(len(_guards))
    if used.is_unchanged() and not edited_files():
        return guards
    changed = {source for guard in guards for source in guard.sources if source.change()}
    return frozenset(guard for guard in guards if changed.isdisjoint(guard.sources))


@lru_cache(maxsize=1)
def _in_use(count: int) -> tuple[frozenset[SourceGuard], Sources]:
    return frozenset(_guards), Sources({source for guard in _guards for source in guard.sources})


def version() -> tuple[int, int]:
    """Return what changes whenever a source or a registered part does, for programs that keep what they traced."""
    global _version
    number, known = _version
    number += known is not None and known.has_moved()
    files = [source for name, source in _sources.items() if ":" not in name]
    if known is None or len(known.sources) < len(files):  # more was imported, which is no change
        known = Sources(files)
        known.has_moved()
    _version = number, known
    return number, registry.version()


# --- the files -------------------------------------------------------------------------------------------------------


@cache
def edited_files() -> frozenset[str]:
    """Return the files whose code differs from what was digested."""
    known = _stored()
    texts = {file: (PACKAGE / file).read_text(encoding="utf-8") for file in known}
    other = {file: text for file, text in texts.items() if known[file]["text"] != _hashed(text)}
    return frozenset(file for file, text in other.items() if known[file]["code"] != digest(text))


@cache
def needed_by(file: str) -> frozenset[str]:
    """Return the sources that what a file defines depends on, by file or file:name, itself included."""
    known, needed, new = _stored(), {file}, [file]
    while new:
        needed |= (imported := set(known[new.pop().partition(":")[0]]["imports"]) - needed)
        new += [source for source in imported if ":" not in source]
    return frozenset(needed)


@cache
def _stored() -> dict[str, Any]:
    return json.loads(DIGESTS.read_text(encoding="utf-8")) if DIGESTS.is_file() else described()


def described() -> dict[str, Any]:
    """Return the digests of each file of the mathematics as it is now, and what it imports of the others."""
    files = sorted(path for pattern in MATHEMATICS for path in PACKAGE.glob(pattern))
    names = {path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8") for path in files}
    return {
        name: {"text": _hashed(text), "code": digest(text), "imports": sorted(_imports(name, ast.parse(text), names))}
        for name, text in names.items()
    }


def _imports(file: str, tree: ast.Module, files: dict[str, str]) -> set[str]:
    """Return what a file imports of `files`, and the names of their packages that it uses."""
    imported, packages, bare = set[str](), dict[str, str](), Counter[str]()
    for line in (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level):
        folder = "/".join([*file.split("/")[: -line.level], *(line.module or "").split(".")]).strip("/")
        for name in line.names:
            part = f"{folder}/{name.name}".strip("/")
            if f"{part}/__init__.py" in files:
                packages[name.asname or name.name] = part
            else:
                imported |= _leads_to(folder, name.name, files)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in packages:
            imported |= _leads_to(packages[node.value.id], node.attr, files)
            bare[node.value.id] -= 1
        elif isinstance(node, ast.Name) and node.id in packages:
            bare[node.id] += 1
    # A package that is used in another way than by its names may lead anywhere.
    return imported | {f"{folder}/__init__.py" for name, folder in packages.items() if bare[name]}


def _leads_to(folder: str, name: str, files: dict[str, str]) -> set[str]:
    """Return the sources behind `from folder import name`, where `folder` may be a file, too."""
    if f"{folder}.py" in files:
        return {f"{folder}.py"}
    home = f"{folder}/__init__.py"
    for node in ast.parse(files.get(home, "")).body:
        if (
            isinstance(node, ast.ImportFrom)
            and node.level == 1
            and name in [own.asname or own.name for own in node.names]
        ):
            return {f"{home}:{name}", f"{folder}/{node.module}.py"} & {f"{home}:{name}", *files}
    modules = {f"{folder}/{name}.py".strip("/")} & files.keys()
    return modules or ({home} & files.keys())


def digest(text: str) -> str:
    """Return a digest of code: comments, docstrings and layout do not count."""
    return _hashed(repr(_shape(ast.parse(text))))


def _shape(node: Any) -> Any:
    """Return a syntax tree as nested tuples, the same for every version of Python."""
    if isinstance(node, list):
        return [_shape(part) for part in node if not _is_text(part)]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, _shape(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return type(node).__name__, *fields


def _is_text(node: Any) -> bool:
    """Return whether a statement is a text alone: a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _hashed(text: str) -> str:
    import hashlib  # here, because no other part of a command's start needs it

    return hashlib.sha256(text.encode()).hexdigest()[:16]


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(file)}: {json.dumps(about)}" for file, about in described().items())
    DIGESTS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
