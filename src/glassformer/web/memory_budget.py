"""What a run keeps, so that all of it can be looked at: everything, or of a long text the borders between blocks."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import LengthError
from ..execution import Execution
from ..interpret.run import BORDERS, EVERYTHING, Run
from ..models import Batch
from ..models.activations import activation_bytes
from ..tree import count

KEPT = 2.0
"""A watched run keeps what the backward pass needs, and what lies between, which is less than as much again."""
WHOLE = 1 << 29
"""A run that would keep more bytes keeps the borders between its blocks; what is inside them is computed when asked."""
SHARE = 0.7
"""Of the memory that is free, so much may be taken."""
MEMINFO = Path("/proc/meminfo")


def run_bytes(config: Any, batch: Batch, itemsize: int, keep: str = EVERYTHING) -> int:
    """Return about how many bytes a run over a batch takes."""
    examples, length = batch.tokens.shape
    if batch.source is not None:
        length = max(length, batch.source.shape[-1])
    execution = Execution(remat=keep == BORDERS)
    return int(KEPT * activation_bytes(config, examples, length, itemsize, execution=execution))


def proof_bytes(run: Run) -> int:
    """Return about how many bytes a proof takes: parameters, a run, its gradients in float64, and a complex run."""
    config, batch = run.model.config, run.batch
    return 8 * count(run.params) + sum(run_bytes(config, batch, size, run.keeps) for size in (8, 8, 16))


def give_back() -> None:
    """Hand memory that was freed back to the system, where it can be asked to: large arrays leave holes."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def tidy(run: Run) -> None:
    """Give back what is not needed any more: of a long text also things that hold each other, which would stay."""
    if run.keeps == BORDERS:
        gc.collect()
    give_back()


@contextmanager
def tidied(run: Run) -> Iterator[None]:
    """Give back what was needed for an answer about a long text."""
    try:
        yield
    finally:
        if run.keeps == BORDERS:
            tidy(run)


def free_bytes() -> int | None:
    """Return the bytes of memory that programs can still have; None where the system does not say."""
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] * 1024 if found else None


def kept_of(config: Any, batch: Batch, itemsize: int) -> str:
    """Return what a run over a batch keeps; refuse one that would take more memory than there is."""
    keep = EVERYTHING if run_bytes(config, batch, itemsize) <= WHOLE else BORDERS
    check_free(run_bytes(config, batch, itemsize, keep), f"to look into {batch.tokens.shape[-1]:,} tokens")
    return keep


def check_free(needed: int, what: str) -> None:
    """Refuse what would take more memory than there is."""
    free = free_bytes()
    if free is not None and needed > SHARE * free:
        raise LengthError(
            f"{what} takes about {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB of memory are free",
            hint="take a shorter text; `glassformer generate` reads long ones",
        )
