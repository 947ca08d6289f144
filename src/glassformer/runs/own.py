"""What a run has of one's own: the files that its task, its tokenizers and the parts of its model came from."""

import json
from pathlib import Path
from typing import Any

from ..config import TransformerConfig
from ..data import TASKS, OwnFile, Task, files_of
from ..errors import DataError
from ..registry import PARTS


def own_files(task: Task, config: TransformerConfig) -> tuple[OwnFile, ...]:
    """Return the files that a run must read again before it can be built."""
    tokenizers = [known.kind for known in (task.tokenizer, task.target_tokenizer) if known is not None]
    of_model = [(family, getattr(config, family)) for family in PARTS]
    return files_of([("task", task.name), *of_model, *(("tokenizer", kind) for kind in tokenizers)])


def read_own_files(config: Path) -> tuple[OwnFile, ...]:
    """Make known what the run with this config.json has of one's own; whether the rest is sound is not asked here."""
    try:
        content: Any = json.loads(config.read_text(encoding="utf-8"))
        files = tuple(OwnFile.from_dict(each) for each in content.get("own", ()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()
    for file in files:
        file.read_again(config.parent)
    return files


def check_task(name: str, folder: Path) -> None:
    """Refuse a task that nobody knows any more."""
    if name not in TASKS:
        raise DataError(
            f"the task {name!r} of {folder} is not known here",
            hint="a program registered it: register it again first, or keep it in a file and train with --task FILE",
        )
