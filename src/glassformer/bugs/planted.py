"""The list of bugs that can be planted: what is wrong, what catches it, and a diff of right and wrong lines.

The museum shows some of them, and the tests try all. A table in `planted/` holds "# file", then for each bug
"what is wrong | what catches it" and the lines to replace (`-`) and to put there instead (`+`).
"""

import gc
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple, TypeAlias

from ..core.dispatch import use_engine
from ..core.errors import ConfigError

PACKAGE = Path(__file__).parent.parent
TABLES = Path(__file__).parent / "planted"
Functions: TypeAlias = defaultdict[tuple[str, str], list[FunctionType]]


class PlantedBug(NamedTuple):
    """One bug to plant."""

    file: str
    """Below src/glassformer."""
    title: str
    caught_by: str
    """A row of `glassformer check`, a check of the museum ("museum: causality"), or the address of a test."""
    old: str
    """The text to replace; it stands in the file exactly once."""
    new: str

    @property
    def wrong(self) -> str:
        """The text of the file with the bug in it."""
        text = (PACKAGE / self.file).read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ConfigError(
                f"the lines that the bug “{self.title}” changes stand {text.count(self.old)} times in {self.file}",
                hint="this file was edited; the bug is planted where they stand exactly once",
            )
        return text.replace(self.old, self.new)


@cache
def planted_bugs(table: str) -> tuple[PlantedBug, ...]:
    """Return the bugs of a table: "ops", "models", "jax" or "kernels"."""
    found = []
    for part in re.split(r"^# ", (TABLES / f"{table}.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        file, _, bugs = part.partition("\n")
        for bug, right, wrong in re.findall(r"((?:^[^-+].*\n)+)((?:^-.*\n)+)((?:^\+.*\n)+)", bugs, flags=re.MULTILINE):
            title, caught_by = re.split(r"\s\| ", bug.rstrip("\n"))
            old, new = ("\n".join(line[1:] for line in lines.splitlines()) for lines in (right, wrong))
            found.append(PlantedBug(file, title, caught_by, old, new))
    return tuple(found)


@contextmanager
def plant(bug: PlantedBug) -> Iterator[None]:
    """Compute with a bug inside the `with` block, on the engine numpy, where every line runs as written."""
    changed = swap(PACKAGE / bug.file, bug.wrong)
    try:
        forget()
        with use_engine("numpy"):
            yield
    finally:
        for function, code in changed:
            function.__code__ = code
        forget()


def swap(path: Path, text: str, loaded: Functions | None = None) -> list[tuple[FunctionType, CodeType]]:
    """Give the loaded functions of a file the code of another text of it; return them with the code they had."""
    before, after = (bodies(compile(source, str(path), "exec")) for source in (path.read_text(encoding="utf-8"), text))
    loaded = functions() if loaded is None else loaded
    changed = []
    for name in [name for name in before if before[name] != after.get(name)]:
        if not loaded[str(path), name]:
            raise ConfigError(f"{name} of {path.name} is not loaded", hint="import the module first")
        for function in loaded[str(path), name]:
            changed.append((function, function.__code__))
            function.__code__ = after[name]
    return changed


def forget() -> None:
    """Drop what functions of the mathematics remember of earlier calls, such as masks."""
    package = __name__.partition(".")[0]
    rooms = tuple(f"{package}.{room}" for room in ("ops", "layers", "models"))
    for one in objects():
        if type(one) is _lru_cache_wrapper and str(getattr(one, "__module__", "")).startswith(rooms):
            one.cache_clear()


def functions() -> Functions:
    """Return all loaded functions by file and qualified name, also those that a decorator has wrapped."""
    found: defaultdict[tuple[str, str], list[FunctionType]] = defaultdict(list)
    for one in objects():
        if type(one) is FunctionType:  # anything more might make a lazy object load
            found[one.__code__.co_filename, one.__code__.co_qualname].append(one)
    return found


def objects() -> list[Any]:
    """Return all objects that Python's garbage collector knows, also those that it leaves alone."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    found = gc.get_objects()
    if frozen:
        gc.freeze()
    return found


def bodies(code: CodeType) -> dict[str, CodeType]:
    """Return the code of the functions and methods of a file by qualified name; inner functions are parts of it."""
    found: dict[str, CodeType] = {}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            is_class = "__qualname__" in part.co_names and "__module__" in part.co_names
            found |= bodies(part) if is_class else {part.co_qualname: part}
    return found
