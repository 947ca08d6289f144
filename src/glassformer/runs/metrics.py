"""The metrics file of a run: one line of JSON per step."""

import json
from pathlib import Path
from typing import Any

from ..files import explained
from .config_file import write

METRICS = "metrics.jsonl"
RECENT = 20
"""Steps over which the training loss is averaged where one number stands for it."""
_NUMBERS = ("lr", "grad_norm", "tokens", "seconds", "val_loss", "accuracy")


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the lines of a metrics file, and the number of damaged ones."""
    if not path.is_file():
        return [], 0
    with explained(path, done="read"):
        lines = path.read_bytes().splitlines()
    read = [_parsed(line) for line in lines if line.strip()]
    kept = [line for line in read if line is not None]
    return kept, len(read) - len(kept)


def write_metrics(path: Path, lines: list[dict[str, Any]]) -> None:
    """Replace a metrics file in one step."""
    write(path, "".join(json.dumps(line) + "\n" for line in lines))


def _parsed(text: bytes) -> dict[str, Any] | None:
    """Return one line, if it is what a step wrote."""
    try:
        line = json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, dict) or type(line.get("step")) is not int or "loss" not in line:
        return None
    plain = all(line.get(name) is None or type(line[name]) in (int, float) for name in ("loss", *_NUMBERS))
    return line if plain and line["step"] > 0 and ("val_loss" not in line or "best" in line) else None
