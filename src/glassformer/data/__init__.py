"""Data: tasks with held-out sets that cannot leak, batches that are a pure function of the step, token files."""

from ..core.arguments import public
from .corpus import TokenFile, open_tokens, pydoc_topics, read_text, stdlib_source, write_tokens
from .examples import Dataset, Examples, Windows, count_targets, trim
from .python_files import CustomFile, files_of, import_file
from .task import Lexicon, Task
from .tasks import TASKS, build_task

__all__ = [
    "Task", "TASKS", "build_task", "Dataset", "Examples", "Windows", "Lexicon", "trim", "count_targets", "TokenFile",
    "open_tokens", "write_tokens", "read_text", "pydoc_topics", "stdlib_source", "CustomFile", "files_of",
    "import_file",
]  # fmt: skip
__dir__ = __all__.copy
public(globals(), __all__, has_makers=True)
