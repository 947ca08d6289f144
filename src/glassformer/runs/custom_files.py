"""The Python files that a run's task, tokenizers and model parts came from."""

import inspect
import logging
from pathlib import Path
from typing import Any

from ..config import TransformerConfig
from ..data import TASKS, CustomFile, Task, files_of, import_file
from ..errors import CheckpointError, DataError
from ..files import sha256_of
from ..registry import PARTS
from . import trust
from .config_file import CONFIG

_warned: set[tuple[Path, str]] = set()


def custom_files_of(task: Task, config: TransformerConfig) -> tuple[CustomFile, ...]:
    """Return the files that a run must import before it can be built."""
    tokenizers = [known.kind for known in (task.tokenizer, task.target_tokenizer) if known is not None]
    of_model = [(family, getattr(config, family)) for family in PARTS]
    return files_of([("task", task.name), *of_model, *(("tokenizer", kind) for kind in tokenizers)])


def load_custom_files(content: dict[str, Any], folder: Path) -> tuple[CustomFile, ...]:
    """Import the files that a config.json names, whose checksum was checked; relative paths start at the run folder."""
    files = tuple(CustomFile((folder / each["path"]).resolve(), each["sha256"]) for each in content.get("own", ()))
    for file in files:
        load_custom_file(file, folder)
    return files


def load_custom_file(file: CustomFile, folder: Path) -> None:
    """Import a file of a run, unless this program has done so; refuse one that is gone, changed or not trusted."""
    if file.loaded is not None:
        if file.loaded != file.sha256 and (folder, file.loaded) not in _warned:
            _warned.add((folder, file.loaded))
            logging.getLogger("glassformer").warning(
                "%s has changed since %s began; the file as it is now is used", file.path, folder
            )
        return
    copy = folder / file.path.name
    if not file.path.is_file():
        raise DataError(
            f"{file.path}, which holds the task or a part of {folder}, is gone",
            hint=f"restore it ({copy} is a copy from when the run began), or write its new path into {folder / CONFIG}",
        )
    if sha256_of(file.path) != file.sha256:
        raise CheckpointError(
            f"{file.path} has changed since {folder} began: its SHA-256 is not the recorded one",
            hint=f"restore it ({copy} is a copy from when the run began), train anew, or use it as it is now: "
            f"gf.data.import_file({str(file.path)!r}) before gf.load(…)",
        )
    trust.check(file.path, file.sha256, folder)
    import_file(file.path)


def check_task(name: str, folder: Path) -> None:
    """Refuse a task that is not registered."""
    if name not in TASKS:
        raise DataError(
            f"the task {name!r} of {folder} is not known here",
            hint="a program registered it: register it again first, or keep it in a file and train with --task FILE",
        )


def takes_lexicon(task_name: str) -> bool:
    """Tell whether a task can be learned with the vocabulary of a model that exists already."""
    return "lexicon" in inspect.signature(TASKS[task_name]).parameters
