"""Python files that register tasks and model parts.

    own = import_file("my_task.py")     # its tasks, layers, activations and tokenizers are known from here on

A run folder stores the path and the SHA-256 of such a file.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import registry
from ..errors import DataError, GlassformerError

_read: dict[Path, tuple[str, list[tuple[str, str, Any]]]] = {}  # what each file registered, and its SHA-256 then


@dataclass(frozen=True)
class CustomFile:
    """A Python file that registers tasks or model parts, with its hash when it was imported."""

    path: Path
    sha256: str

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks in it."""
        return tuple(name for name in registry.own("task") if registry.origin("task", name) == self.path)

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        return {"path": str(self.path), "sha256": self.sha256}

    @property
    def loaded(self) -> str | None:
        """The SHA-256 of the file as this process imported it; None if it did not, or another file took its names."""
        return _read[self.path][0] if _stands(self.path) else None

    def copy_into(self, folder: Path) -> None:
        """Keep a copy in a run folder, in case the file is lost."""
        (folder / self.path.name).write_bytes(self.path.read_bytes())


def import_file(path: str | Path) -> CustomFile:
    """Run a Python file that registers tasks or parts; again only if it changed, or if others took its names.

    It may import its neighbors in the same folder.
    """
    place = Path(path).expanduser().resolve()
    try:
        content = place.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", hint="pass a Python file") from error
    sha256 = hashlib.sha256(content).hexdigest()
    if not _stands(place) or _read[place][0] != sha256:
        with registry.reading(place) as made, failing(f"{path} cannot be imported", place):
            _run(content, place)
        if not made:
            raise DataError(
                f"{path} registers nothing",
                hint="mark a function with @gf.task, or register a part, such as gf.register_activation(…)",
            )
        _read[place] = sha256, made
    return CustomFile(place, sha256)


def files_of(parts: Iterable[tuple[str, str | None]]) -> tuple[CustomFile, ...]:
    """Return the files that parts, given as (family, name), came from, each once."""
    paths = [registry.origin(family, name) for family, name in parts if name is not None]
    return tuple(
        CustomFile(path, _read[path][0]) for path in dict.fromkeys(paths) if path is not None and path in _read
    )


@contextlib.contextmanager
def failing(fact: str, place: Path) -> Iterator[None]:
    """Turn an exception in a file of the user's into an error that names its line."""
    try:
        yield
    except GlassformerError as error:
        raise DataError(f"{fact}: {error.fact}{_line(error, place)}", hint=error.hint) from error
    except Exception as error:
        what = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
        raise DataError(f"{fact}: {what}{_line(error, place)}", hint="correct the file") from error


def _stands(place: Path) -> bool:
    """Tell whether a file was read and all that it registered is still known."""
    return place in _read and all(registry.own(family).get(name) is part for family, name, part in _read[place][1])


def _line(error: Exception, place: Path) -> str:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(place)]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    return "" if line is None else f" ({place.name}, line {line})"


def _run(content: bytes, place: Path) -> None:
    """Run exactly the bytes whose hash was taken."""
    name = f"{place.stem}_{hashlib.sha256(str(place).encode()).hexdigest()[:8]}"
    module = ModuleType(name)
    module.__file__ = str(place)
    sys.modules[name] = module  # where dataclasses look for the names in annotations
    neighbors = str(place.parent)
    sys.path.append(neighbors)
    try:
        exec(compile(content, str(place), "exec"), module.__dict__)
    finally:
        sys.path.remove(neighbors)
