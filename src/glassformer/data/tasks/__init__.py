"""Every task by name."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...core.errors import ConfigError, DataError
from ...core.settings import check_known, check_limits
from ..pairs import CATALOGS
from ..tables import is_rows, is_table, read_table, table_files
from ..task import Task
from . import classify, dates, files, numbers, strings

__all__ = ["TASKS", "build_task", "suited_task"]

TASKS: dict[str, Callable[..., Task]] = {
    "majority": strings.majority,
    "counting": strings.counting,
    "copy": strings.copy,
    "reverse": strings.reverse,
    "sort": strings.sort,
    "addition": numbers.addition,
    "multiplication": numbers.multiplication,
    "modular": numbers.modular,
    "induction": strings.induction,
    "parity": strings.parity,
    "brackets": strings.brackets,
    "regression": numbers.regression,
    "dates": dates.dates,
    "text": files.text,
    "lines": files.lines,
    "pairs": files.pairs,
    "classify": classify.classify,
}
"""Builders of all tasks: their keyword arguments are the options of the task. Registered tasks follow ours."""


def build_task(name: str, **options: Any) -> Task:
    """Build a task; options that are None are left at their defaults."""
    check_known("there is no task", name, TASKS)
    known = inspect.signature(TASKS[name]).parameters
    chosen = {option: value for option, value in options.items() if value is not None}
    for option, value in chosen.items():
        if option == "data" and option not in known:
            hint = "leave the data out, for this task draws its own; or train the task 'text' on it"
            raise ConfigError(f"the task {name!r} has no option 'data'", hint=hint)
        check_known(f"the task {name!r} has no option", option, known)
        check_limits(option, value, known[option].annotation)
    return TASKS[name](**chosen)


def check_registered(name: str, folder: Path) -> None:
    """Refuse the task of a folder that is not registered."""
    if name not in TASKS:
        raise DataError(
            f"the task {name!r} of {folder} is not known here",
            hint="a program registered it: register it again first, or keep it in a file and train with --task FILE",
        )


def suited_task(data: Any, settings: Mapping[str, Any]) -> str:
    """Return the task for a file, a folder or rows: by the columns that settings name, or by those that are there."""
    if settings.get("label") is not None:
        return "classify"
    if settings.get("source") is not None or settings.get("target") is not None:
        return "pairs"
    if not is_rows(data):
        if Path(data).is_dir():
            data = table_files(data)[0]
        if not is_table(data):
            return "pairs" if Path(data).suffix.lower() in CATALOGS else "text"
    if read_table(data, {"source": None, "target": None}).has("source", "target"):
        return "pairs"
    return "classify" if read_table(data, {"text": None, "label": None}).has("label") else "text"
