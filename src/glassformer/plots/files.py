"""Files that are either complete or not there."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from ..errors import CheckpointError


def write_whole(path: str | Path, content: bytes) -> Path:
    """Write a file under a temporary name, then give it its own: nobody ever sees half of it."""
    path = Path(path)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True) if partial.parent.is_dir() else None
        raise CheckpointError(
            f"{path} cannot be written: {error.strerror or error}", hint="choose a folder that can be written to"
        ) from error
    return path
