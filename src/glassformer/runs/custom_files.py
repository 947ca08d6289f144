"""The Python files that a run's task, tokenizers and model parts came from, and which of them may run.

A run folder may come from anyone, and its config.json may name any file. A file runs only if it has the SHA-256 that
the run recorded and the user trusts it: by training with it, by `--trust`, by an answer at the terminal, or by
`gf.load(run, trust=True)`. The answer is remembered by path and hash in ~/.config/glassformer/trusted.json.
"""

import contextlib
import inspect
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import TransformerConfig
from ..core import reporting
from ..core.errors import CheckpointError, DataError
from ..core.files import sha256_of, write_text
from ..core.registry import OF_RECIPE, PARTS
from ..data import TASKS, CustomFile, Task, files_of, import_file
from .folder import CONFIG

if TYPE_CHECKING:
    from ..training.recipe import Recipe  # commands that train nothing do without it

_warned: set[tuple[Path, str]] = set()


def custom_files_of(task: Task, config: TransformerConfig, recipe: "Recipe") -> tuple[CustomFile, ...]:
    """Return the files that a run must import before it can be built."""
    tokenizers = [known.kind for known in (task.tokenizer, task.target_tokenizer) if known is not None]
    of_model = [(family, getattr(config, family)) for family in PARTS]
    of_model.append(("activation", getattr(config, "pooled_activation", None)))
    of_recipe = [(family, getattr(recipe, family)) for family in OF_RECIPE]
    return files_of([("task", task.name), *of_model, *of_recipe, *(("tokenizer", kind) for kind in tokenizers)])


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
    _check_trusted(file, folder)
    import_file(file.path)


def takes_lexicon(task_name: str) -> bool:
    """Return whether a task can be learned with the vocabulary of a model that exists already."""
    return task_name in TASKS and "lexicon" in inspect.signature(TASKS[task_name]).parameters


# --- trust -----------------------------------------------------------------------------------------------------------


def _check_trusted(file: CustomFile, folder: Path) -> None:
    if [str(file.path), file.sha256] in _trusted():
        return
    question = f"{folder} was trained with {file.path} and runs it. Do you trust this Python file?"
    if not (reporting.is_granted() or reporting.ask(question)):
        raise CheckpointError(
            f"{folder} runs the Python file {file.path}, which you have not agreed to on this machine",
            hint="read the file; if you trust it, add --trust once, or gf.load(run, trust=True) in Python",
        )
    remember(file)


def remember(file: CustomFile) -> None:
    """Trust a file from here on; where nothing can be written, in this process alone."""
    entry, trusted = [str(file.path), file.sha256], _trusted()
    if entry not in trusted:
        with contextlib.suppress(OSError, RuntimeError):
            _store().parent.mkdir(parents=True, exist_ok=True)
            write_text(_store(), json.dumps([*trusted, entry], indent=1) + "\n")


def _trusted() -> list[list[str]]:
    try:
        entries = json.loads(_store().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # unreadable, damaged, or no home folder
        return []
    return entries if isinstance(entries, list) else []


def _store() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path("~/.config").expanduser()) / "glassformer" / "trusted.json"
