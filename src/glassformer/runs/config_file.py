"""The file config.json of a run folder, and the large tokenizers beside it: written in one step, checked when read."""

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, first_line
from ..files import refusal, write_text

CONFIG = "config.json"
TOKENIZERS = "tokenizers.json"
LARGE = 100_000
"""Tokenizers that take more characters stand in a file of their own."""


def write_config(folder: Path, content: dict[str, Any]) -> None:
    """Write what a run is, with its checksum; large tokenizers come first: a folder that has one file has both."""
    stated = {"sha256": checksum(content)}
    tokenizers = {name: content[name] for name in ("tokenizer", "target_tokenizer")}
    text = json.dumps(tokenizers, ensure_ascii=False)
    if len(text) > LARGE:
        write(folder / TOKENIZERS, text + "\n")
        content = {**content, **{name: None if stored is None else TOKENIZERS for name, stored in tokenizers.items()}}
    write(folder / CONFIG, json.dumps({**content, **stated}, indent=2, ensure_ascii=False) + "\n")


def read_config(path: Path) -> dict[str, Any]:
    """Return what a run is; refuse what is not as it was written. Older files have no checksum."""
    content = dict(json.loads(path.read_text(encoding="utf-8")))
    if content["tokenizer"] == TOKENIZERS:
        content |= _stored_tokenizers(path.with_name(TOKENIZERS))
    stated, task = content.pop("sha256", None), content["task"]
    if not isinstance(task["name"], str) or not isinstance(task["options"], dict):
        raise TypeError("its task is none")
    if stated not in (None, checksum(content)):
        raise CheckpointError(
            f"{path} is damaged, or was edited: its checksum does not match its content",
            hint="restore it from a copy; to use an edited one, remove its line sha256",
        )
    if stated is None and content.get("own"):
        raise CheckpointError(f"{path} names Python files to run, but has no checksum", hint="restore it from a copy")
    return content


def checksum(content: dict[str, Any]) -> str:
    """Return the SHA-256 of what a run is.

    The paths of data and custom files are left out: they may be moved, and have hashes of their own.
    """
    content = json.loads(json.dumps(content))
    content["task"]["options"].pop("data", None)
    content["own"] = [file["sha256"] for file in content.get("own", ())]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _stored_tokenizers(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        hint = "restore it from a copy"
        raise CheckpointError(f"{path}, which {CONFIG} names, cannot be read: {first_line(error)}", hint=hint) from None


def write(path: Path, text: str) -> None:
    """Replace a text file of a run in one step."""
    with explained(path):
        write_text(path, text)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into an error that says what is left."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"could not write {path}: {refusal(error)}; the checkpoints are unchanged",
            hint="check the path and the disk",
        ) from error
