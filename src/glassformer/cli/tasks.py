"""`glassformer tasks`."""

from ..data import SUMMARIES
from .output import JsonOption, console, print_json, table


def tasks(json: JsonOption = False) -> None:
    """List the tasks one can train on."""
    if json:
        print_json(SUMMARIES)
    else:
        console().print(table("task", "learns to", rows=SUMMARIES.items()))
