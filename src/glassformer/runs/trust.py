"""Which Python files of run folders may run: those that the user trained with, or agreed to once on this machine.

A run folder may come from anyone, and its config.json may name any file. A file runs only if it has the SHA-256 that
the run recorded and the user trusts it: by training with it, by `--trust`, by an answer at the terminal, or by
`gf.load(run, trust=True)`. The answer is remembered by path and hash in ~/.config/glassformer/trusted.json.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import CheckpointError
from ..files import write_text

_grants: list[bool] = []  # one for each open `granted` block


def decline(question: str) -> bool:
    """Answer no: a program has no terminal to ask at."""
    return False


ask: Callable[[str], bool] = decline
"""Asks the user a question; the command line replaces it."""


@contextlib.contextmanager
def granted(wanted: bool | None) -> Iterator[None]:
    """Trust the Python files of runs that are opened inside the block, or not; None: as outside of it."""
    _grants.append(_is_granted() if wanted is None else wanted)
    try:
        yield
    finally:
        _grants.pop()


def _is_granted() -> bool:
    return bool(_grants) and _grants[-1]


def check(path: Path, sha256: str, folder: Path) -> None:
    """Refuse to run a file that the user has not agreed to."""
    if [str(path), sha256] in _trusted():
        return
    if not (_is_granted() or ask(f"{folder} was trained with {path} and runs it. Do you trust this Python file?")):
        raise CheckpointError(
            f"{folder} runs the Python file {path}, which you have not agreed to on this machine",
            hint="read the file; if you trust it, add --trust once, or gf.load(run, trust=True) in Python",
        )
    remember(path, sha256)


def remember(path: Path, sha256: str) -> None:
    """Trust a file from here on; where nothing can be written, in this process alone."""
    entry = [str(path), sha256]
    if entry not in _trusted():
        with contextlib.suppress(OSError, RuntimeError):
            _store().parent.mkdir(parents=True, exist_ok=True)
            write_text(_store(), json.dumps([*_trusted(), entry], indent=1) + "\n")


def _trusted() -> list[list[str]]:
    try:
        found = json.loads(_store().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):  # unreadable, damaged, or no home folder
        return []
    return found if isinstance(found, list) else []


def _store() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path("~/.config").expanduser()) / "glassformer" / "trusted.json"
