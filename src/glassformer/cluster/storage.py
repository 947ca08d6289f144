"""Storage that all processes of a run share: what one wrote may take a while until another sees it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from ..errors import CheckpointError

PATIENCE = 15.0
"""Seconds until what one worker wrote to shared storage must be visible to another."""


def check_shared(path: Path) -> None:
    """Refuse a file or folder that the first process made and this one cannot see."""
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > deadline:
            raise CheckpointError(
                f"{path} cannot be seen from this machine, though worker 0 made it",
                hint="put the run on storage that all workers share, under the same path",
            )
        time.sleep(0.1)
        with contextlib.suppress(OSError):
            os.listdir(path.parent)  # lets network storage look again
