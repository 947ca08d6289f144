"""Data: tasks with held-out sets that cannot leak, batches that are a pure function of the step, token files."""

from __future__ import annotations

from .corpus import pydoc_topics, read_text, stdlib_source
from .examples import Dataset, Examples, Windows, count_targets, trim
from .lexicon import Lexicon
from .task import Task
from .tasks import SUMMARIES, TASKS, build_task
from .tokens import TokenFile, open_tokens, write_tokens

__all__ = [
    "Task",
    "TASKS",
    "SUMMARIES",
    "build_task",
    "Dataset",
    "Examples",
    "Windows",
    "Lexicon",
    "trim",
    "count_targets",
    "TokenFile",
    "open_tokens",
    "write_tokens",
    "read_text",
    "pydoc_topics",
    "stdlib_source",
]
