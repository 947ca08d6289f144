"""Data: tasks with held-out sets that cannot leak, batches that are a pure function of the step, token files."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .summaries import SUMMARIES

if TYPE_CHECKING:
    from .corpus import pydoc_topics, read_text, stdlib_source
    from .custom_files import CustomFile, files_of, import_file
    from .examples import Dataset, Examples, Windows, count_targets, trim
    from .question_tasks import Lexicon
    from .task import Task
    from .tasks import TASKS, build_task
    from .tokens import TokenFile, open_tokens, write_tokens

__all__ = [
    "Task", "TASKS", "SUMMARIES", "build_task", "Dataset", "Examples", "Windows", "Lexicon", "trim", "count_targets",
    "TokenFile", "open_tokens", "write_tokens", "read_text", "pydoc_topics", "stdlib_source", "CustomFile", "files_of",
    "import_file",
]  # fmt: skip

# Loaded when first used: listing the tasks need not load what builds them.
_HOMES = {
    "corpus": ("pydoc_topics", "read_text", "stdlib_source"),
    "examples": ("Dataset", "Examples", "Windows", "count_targets", "trim"),
    "question_tasks": ("Lexicon",),
    "custom_files": ("CustomFile", "files_of", "import_file"),
    "task": ("Task",),
    "tasks": ("TASKS", "build_task"),
    "tokens": ("TokenFile", "open_tokens", "write_tokens"),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{home}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
