"""`glassformer tasks`."""

import inspect
from typing import Annotated

import typer

from ..data import SUMMARIES, TASKS, import_file
from .output import JsonOption, console, print_json, table


def tasks(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A Python file whose tasks are listed instead.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the tasks one can train on."""
    listed = SUMMARIES if file is None else {name: _summary(name) for name in import_file(file).tasks}
    if json:
        print_json(listed)
    else:
        console().print(table("task", "learns to", rows=listed.items()))


def _summary(name: str) -> str:
    return (inspect.getdoc(TASKS[name]) or "").partition("\n")[0]
