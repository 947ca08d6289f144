"""Every task by name."""

import inspect
from collections.abc import Callable
from typing import Any

from ...errors import ConfigError
from ...settings import check_known
from ..task import Task
from . import (
    arithmetic,
    brackets,
    counting,
    dates,
    induction,
    lines,
    majority,
    modular,
    pairs,
    parity,
    regression,
    strings,
    text,
)

__all__ = ["TASKS", "build_task"]

TASKS: dict[str, Callable[..., Task]] = {
    "majority": majority.majority,
    "counting": counting.counting,
    "copy": strings.copy,
    "reverse": strings.reverse,
    "sort": strings.sort,
    "addition": arithmetic.addition,
    "multiplication": arithmetic.multiplication,
    "modular": modular.modular,
    "induction": induction.induction,
    "parity": parity.parity,
    "brackets": brackets.brackets,
    "regression": regression.regression,
    "dates": dates.dates,
    "text": text.text,
    "lines": lines.lines,
    "pairs": pairs.pairs,
}
"""What builds each task; its keyword arguments are the task's options. Registered tasks follow the built-in ones."""


def build_task(name: str, **options: Any) -> Task:
    """Build a task; options that are None are left at their defaults."""
    check_known("there is no task", name, TASKS)
    known = inspect.signature(TASKS[name]).parameters
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option == "data" and option not in known:
            hint = "leave the data out, for this task draws its own; or train the task 'text' on it"
            raise ConfigError(f"the task {name!r} has no option 'data'", hint=hint)
        check_known(f"the task {name!r} has no option", option, known)
    return TASKS[name](**given)
