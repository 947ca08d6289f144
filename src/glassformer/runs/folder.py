"""The text files of a run folder: config.json with its checksum, large tokenizers beside it, and the metrics."""

import json
from pathlib import Path
from typing import Any

from ..core import files
from ..core.documents import RESTORE, check_document, digest, explaining_damage, read_json, write_document
from ..core.errors import CheckpointError, ConfigError
from ..data.task import is_task

CONFIG = "config.json"
TOKENIZERS = "tokenizers.json"
METRICS = "metrics.jsonl"
FORMAT = 2
"""Of config.json; in the format 1, the checksum left out the path of the data."""
LARGE = 100_000
"""Tokenizers that take more characters are kept in a file of their own."""
UNCHANGED = "check the path and the disk; the checkpoints are unchanged"
RECENT = 20
"""Steps over which the training loss is averaged where one number stands for it."""
_NUMBERS = ("loss", "lr", "grad_norm", "tokens", "seconds", "val_loss", "accuracy", "train_accuracy")


def write_config(folder: Path, content: dict[str, Any]) -> None:
    """Write what a run is, with its checksum; large tokenizers come first: a folder that has one file has both."""
    whole = checksum(content)
    tokenizers = {name: content[name] for name in ("tokenizer", "target_tokenizer")}
    text = json.dumps(tokenizers, ensure_ascii=False)
    if len(text) > LARGE:
        write(folder / TOKENIZERS, text + "\n")
        content = {**content, **{name: stored and TOKENIZERS for name, stored in tokenizers.items()}}
    with files.explained(folder / CONFIG, hint=UNCHANGED):
        write_document(folder / CONFIG, content, checksum=whole)


def read_config(folder: Path) -> dict[str, Any]:
    """Return what the config.json of a run folder says; refuse one that is damaged. None of its Python files run."""
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(
            f"{folder} is not a run folder: it {f'has no {CONFIG}' if folder.exists() else 'does not exist'}",
            hint="pass a folder that `glassformer train` wrote; `glassformer runs` lists them",
        )
    content = read_json(path)
    with explaining_damage(path):
        if content["tokenizer"] == TOKENIZERS:
            content |= read_json(folder / TOKENIZERS)
        if not is_task(content["task"]):
            raise ConfigError("its task is none")
        if content["format"] not in (1, FORMAT):
            raise ConfigError(f"its format is {content['format']!r:.20}, and this version reads 1 and {FORMAT}")
    if not check_document(path, content, checksum=checksum) and content.get("own"):
        raise CheckpointError(f"{path} names Python files to run, but has no checksum", hint=RESTORE)
    return content


def checksum(content: dict[str, Any]) -> str:
    """Return the SHA-256 of what a run is.

    The paths of custom files are left out: they may be moved, and have hashes of their own. In the format 1, the path
    of the data is left out as well.
    """
    task = content["task"]
    if content["format"] == 1:
        task = {**task, "options": {name: value for name, value in task["options"].items() if name != "data"}}
    return digest({**content, "task": task, "own": [file["sha256"] for file in content.get("own", ())]})


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the lines of a metrics file, and the number of damaged ones."""
    if not path.is_file():
        return [], 0
    with files.explained(path, done="read"):
        lines = path.read_bytes().splitlines()
    read = [_parsed(line) for line in lines if line.strip()]
    kept = [line for line in read if line is not None]
    return kept, len(read) - len(kept)


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Return one line, if it is what a step wrote."""
    try:
        line = json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or type(line.get("step")) is not int or "loss" not in line:
        return None
    plain = all(line.get(name) is None or type(line[name]) in (int, float) for name in _NUMBERS)
    return line if plain and line["step"] > 0 and ("val_loss" not in line or "best" in line) else None


def write(path: Path, text: str, *, append: bool = False) -> None:
    """Replace a text file of a run in one step, or append to it."""
    with files.explained(path, hint=UNCHANGED):
        if not append:
            files.write_text(path, text)
            return
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
