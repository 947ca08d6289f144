"""Every task by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...errors import ConfigError, did_you_mean
from ..task import Task
from . import addition, counting, dates, lines, majority, pairs, sort, strings, text

__all__ = ["TASKS", "SUMMARIES", "build_task"]

TASKS: dict[str, Callable[..., Task]] = {
    "majority": majority.majority,
    "counting": counting.counting,
    "copy": strings.copy,
    "reverse": strings.reverse,
    "sort": sort.sort,
    "addition": addition.addition,
    "dates": dates.dates,
    "text": text.text,
    "lines": lines.lines,
    "pairs": pairs.pairs,
}
"""What builds each task; its keyword arguments are the task's options."""

SUMMARIES: dict[str, str] = {
    "majority": majority.SUMMARY,
    "counting": counting.SUMMARY,
    "copy": strings.COPY_SUMMARY,
    "reverse": strings.REVERSE_SUMMARY,
    "sort": sort.SUMMARY,
    "addition": addition.SUMMARY,
    "dates": dates.SUMMARY,
    "text": text.SUMMARY,
    "lines": lines.SUMMARY,
    "pairs": pairs.SUMMARY,
}
"""Each task in one line, without building it."""


def build_task(name: str, **options: Any) -> Task:
    """Build a task; options that are None are left at their defaults."""
    if name not in TASKS:
        raise ConfigError(f"there is no task {name!r}", hint=did_you_mean(name, TASKS))
    known = inspect.signature(TASKS[name]).parameters
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        if option not in known:
            raise ConfigError(f"the task {name!r} has no option {option!r}", hint=did_you_mean(option, known))
    return TASKS[name](**given)
