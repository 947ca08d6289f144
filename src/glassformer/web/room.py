"""Whether a run fits into the memory that is free: every value of it is kept, so that all can be looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import LengthError
from ..models import Batch
from ..models.activations import activation_bytes

KEPT = 2.0
"""A watched run keeps what the backward pass needs, and what lies between, which is less than as much again."""
SHARE = 0.7
"""Of the memory that is free, so much may be taken."""
MEMINFO = Path("/proc/meminfo")


def run_bytes(config: Any, batch: Batch, itemsize: int) -> int:
    """Return about how many bytes a run over a batch keeps."""
    examples, length = batch.tokens.shape
    if batch.source is not None:
        length = max(length, batch.source.shape[-1])
    return int(KEPT * activation_bytes(config, examples, length, itemsize))


def free_bytes() -> int | None:
    """Return the bytes of memory that programs can still have; None where the system does not say."""
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] * 1024 if found else None


def check_room(config: Any, batch: Batch, itemsize: int) -> None:
    """Refuse a run that would take more memory than there is."""
    needed, free = run_bytes(config, batch, itemsize), free_bytes()
    if free is not None and needed > SHARE * free:
        raise LengthError(
            f"to keep every value of {batch.tokens.shape[-1]:,} tokens takes about {needed / 2**30:.1f} GiB, "
            f"and {free / 2**30:.1f} GiB of memory are free",
            hint="take a shorter text; `glassformer generate` reads long ones",
        )
