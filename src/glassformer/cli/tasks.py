"""`glassformer tasks`."""

import inspect
from typing import Annotated

import typer

from ..data import SUMMARIES
from .output import JsonOption, console, print_json, table


def tasks(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A Python file whose tasks are listed instead.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the tasks one can train on."""
    listed = SUMMARIES if file is None else _of_file(file)
    if json:
        print_json(listed)
    else:
        console().print(table("task", "learns to", rows=listed.items()))


def _of_file(file: str) -> dict[str, str]:
    """Return the summary of each task in a file."""
    from ..data import TASKS, import_file  # which load what builds the tasks

    return {name: (inspect.getdoc(TASKS[name]) or "").partition("\n")[0] for name in import_file(file).tasks}
