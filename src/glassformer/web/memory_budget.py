"""Whether a run fits into free memory, and what it keeps: everything, or for long texts the values between blocks."""

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.errors import LengthError
from ..core.execution import Execution
from ..core.tree import count
from ..interpret.run import BLOCK_CHECKPOINTS, EVERYTHING, Run
from ..models import Batch
from ..models.accounting import activation_bytes

KEPT = 2.0
"""Bytes of a watched run, in units of what the backward pass needs: a generous estimate."""
WHOLE = 1 << 29
"""Runs above this keep only the values between blocks; those inside are recomputed when asked for."""
SHARE = 0.7
"""Share of the free memory that a run may take."""
MEMINFO = Path("/proc/meminfo")


def run_bytes(config: Any, batch: Batch, itemsize: int, keep: str = EVERYTHING) -> int:
    """Estimate the bytes of a run over a batch."""
    examples, length = batch.tokens.shape
    if batch.source is not None:
        length = max(length, batch.source.shape[-1])
    execution = Execution(remat=keep == BLOCK_CHECKPOINTS)
    return int(KEPT * activation_bytes(config, examples, length, itemsize, execution=execution))


def proof_bytes(run: Run) -> int:
    """Estimate the bytes of a proof: parameters, a run and gradients in float64, and a complex run."""
    config, batch = run.model.config, run.batch
    return 8 * count(run.params) + sum(run_bytes(config, batch, size, run.keeps) for size in (8, 8, 16))


def give_back() -> None:
    """Return freed memory to the system, on Linux."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def tidy(run: Run) -> None:
    """Free what is no longer needed; after a long text, also objects that refer to each other."""
    if run.keeps == BLOCK_CHECKPOINTS:
        gc.collect()
    give_back()


@contextmanager
def tidied(run: Run) -> Iterator[None]:
    """Free what an answer about a long text needed."""
    try:
        yield
    finally:
        if run.keeps == BLOCK_CHECKPOINTS:
            tidy(run)


def free_bytes() -> int | None:
    """Return the bytes of free memory; None if the system does not say."""
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] * 1024 if found else None


def kept_of(config: Any, batch: Batch, itemsize: int) -> str:
    """Return what a run over a batch keeps; refuse one that would not fit into free memory."""
    keep = EVERYTHING if run_bytes(config, batch, itemsize) <= WHOLE else BLOCK_CHECKPOINTS
    check_free(run_bytes(config, batch, itemsize, keep), f"to look into {batch.tokens.shape[-1]:,} tokens")
    return keep


def check_free(needed: int, what: str) -> None:
    """Refuse what would not fit into free memory."""
    free = free_bytes()
    if free is not None and needed > SHARE * free:
        fact = f"{what} takes about {needed / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB of memory are free"
        raise LengthError(fact, hint="take a shorter text; `glassformer generate` reads long ones")
