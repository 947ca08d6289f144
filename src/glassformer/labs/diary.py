"""The diary of a folder: which labs were tried there, whether one was right, and how many hints are open."""

import contextlib
import json
from pathlib import Path

DIARY = ".glassformer-labs.json"
"""The file beside a learner's files that remembers tries and hints."""


def read_diary(folder: str | Path) -> dict[str, int]:
    """Return what was tried in a folder; a damaged diary counts as an empty one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        found = json.loads((Path(folder) / DIARY).read_text(encoding="utf-8"))
        return {name: value for name, value in found.items() if isinstance(value, int)}
    return {}


def note(folder: str | Path, news: dict[str, int]) -> None:
    """Write into the diary; a folder that cannot be written to remembers nothing."""
    diary = read_diary(folder)
    if diary | news != diary:
        with contextlib.suppress(OSError):
            (Path(folder) / DIARY).write_text(json.dumps(diary | news, indent=1) + "\n", encoding="utf-8")
