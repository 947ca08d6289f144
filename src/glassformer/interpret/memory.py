"""Whether a run fits into free memory; one that would not is refused before it begins."""

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import LengthError
from ..core.tree import count
from ..models import Batch
from ..models.costs import activation_bytes

KEPT = 2.0
"""Bytes of a run, in units of what the backward pass needs: a generous estimate."""
SHARE = 0.7
"""Share of the free memory that a run may take."""
SMALL = 1 << 24
"""Runs of at most so many bytes are not checked."""
MEMINFO = Path("/proc/meminfo")


def run_bytes(config: Any, examples: int, length: int, itemsize: int) -> int:
    """Estimate the bytes of all values of a run."""
    return int(KEPT * activation_bytes(config, examples, length, itemsize))


def length_of(batch: Batch) -> int:
    """Return the number of tokens of the longest text, which may be the source."""
    return max(np.shape(batch.tokens)[-1], 0 if batch.source is None else np.shape(batch.source)[-1])


def check_fits(config: Any, batch: Batch, itemsize: int, *, times: float = 1) -> None:
    """Refuse to watch a batch if its values, a number of times, do not fit into free memory."""
    examples, length = len(batch.tokens), length_of(batch)
    if (needed := times * run_bytes(config, examples, length, itemsize)) <= SMALL or (free := free_bytes()) is None:
        return
    if needed <= SHARE * free:
        return
    fitting, too_long = 0, length
    while too_long - fitting > 1:
        middle = (fitting + too_long) // 2
        fits = times * run_bytes(config, examples, middle, itemsize) <= SHARE * free
        fitting, too_long = (middle, too_long) if fits else (fitting, middle)
    read = f"{length:,} tokens" if examples == 1 else f"{examples:,} texts of {length:,} tokens"
    raise LengthError(
        f"all values of a run on {read} take about {needed / 2**30:.1f} GiB, and {_said(free)}",
        hint=f"{fitting:,} tokens would fit; names=[…] keeps only some values, and `activations` reads long texts",
    )


def check_free(needed: int, what: str) -> None:
    """Refuse what would not fit into free memory."""
    free = free_bytes()
    if free is not None and needed > SHARE * free:
        raise LengthError(f"{what} takes about {needed / 2**30:.1f} GiB, and {_said(free)}", hint="take a shorter text")


def check_proof(config: Any, params: Any, batch: Batch) -> None:
    """Refuse a proof that does not fit: parameters, a run and gradients in float64, and a complex run."""
    runs = sum(run_bytes(config, len(batch.tokens), length_of(batch), size) for size in (8, 8, 16))
    check_free(8 * count(params) + runs, "a proof, which computes in float64,")


def _said(free: int) -> str:
    return f"{free / 2**30:.1f} GiB of memory are free"


def free_bytes() -> int | None:
    """Return the bytes of free memory; None if the system does not say."""
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] * 1024 if found else None


def give_back() -> None:
    """Return freed memory to the system, on Linux."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
