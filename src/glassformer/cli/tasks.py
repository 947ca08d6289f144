"""`glassformer tasks`."""

import inspect

import click

from ..registry import SUMMARIES
from .options import json_option
from .output import print_json, print_table


@click.command()
@click.argument("file", required=False, help="List the tasks in this Python file instead.")
@json_option
def tasks(file: str | None, json: bool) -> None:
    """List the tasks to train on."""
    listed = SUMMARIES if file is None else _in_file(file)
    if json:
        print_json(listed)
    else:
        print_table(("task", "learns to"), listed.items())


def _in_file(file: str) -> dict[str, str]:
    from ..data import TASKS, import_file  # loads the modules that build tasks

    return {name: (inspect.getdoc(TASKS[name]) or "").partition("\n")[0] for name in import_file(file).tasks}
