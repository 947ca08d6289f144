"""Recognizing a lack of memory by what the system and libraries say about it, and what helps."""

import ctypes
import errno
import mmap
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

_SAID = re.compile(
    # Of glibc's loader, of NumPy, of C++. Room for thread-local variables is no matter of memory, nor is a disk from
    # which nothing may be executed, whose refusal stands behind "shared object".
    r"cannot allocate memory(?! in static TLS)|failed to map segment from shared object$"
    r"|unable to allocate|bad_alloc|out of memory",
    re.IGNORECASE | re.MULTILINE,
)
_BLAS_BUFFER = 40 << 20
"""Bytes that OpenBLAS takes at its first large product: 34 MiB in the builds that come with NumPy."""
_THREAD = 16 << 20
"""Bytes with which a thread can start: its stack, 8 MiB on most systems, and what belongs to it."""


def memory_limit() -> int | None:
    """Return how many bytes of addresses this process may use; None: any number."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def missing_memory(error: BaseException | None) -> str | None:
    """Return what an error, or one that led to it, says about a lack of memory; None: it has another cause."""
    while error is not None:
        code = getattr(error, "errno", None)
        if code == errno.ENOMEM or isinstance(error, MemoryError) or _SAID.search(str(error)):
            return str(getattr(error, "strerror", None) or str(error).partition("\n")[0])
        error = error.__cause__ or error.__context__
    return None


def was_at_limit() -> bool:
    """Return whether this process has taken so much of its limit that no thread could start any more."""
    limit = memory_limit()
    peak = None
    with suppress(OSError):
        peak = re.search(r"^VmPeak:\s*(\d+)", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    return limit is not None and peak is not None and limit - int(peak[1]) * 1024 < _THREAD


def memory_hint() -> str:
    """Return what to do about a lack of memory."""
    smaller = "use a smaller batch, context or model; `glassformer params` counts what one takes"
    limit = memory_limit()
    return smaller if limit is None else f"allow more than the {limit / 1e6:,.0f} MB of `ulimit -v`, or {smaller}"


def prepare_for_limit() -> None:
    """Where memory is limited, prepare for libraries that end the process without an exception when they find none."""
    if memory_limit() is None:
        return
    import numpy as np  # here: Tab and `--help` do without it; before the mapping, which is to remain free

    mmap.mmap(-1, _BLAS_BUFFER).close()
    square = np.ones((600, 600))
    square @ square  # OpenBLAS takes its buffer here, and keeps it
    ctypes.CDLL(None).signal(signal.SIGABRT, _ended)


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def _ended(_: int) -> None:
    """End with an error where LLVM or XLA, which have said why, abort: a handler of Python's would not be called."""
    os.write(2, f"error: a library ended the process, as it says above\n\nhint: {memory_hint()}\n".encode())
    os._exit(1)
