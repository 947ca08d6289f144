"""Memory for results, used again: what one step frees serves the next.

By default the C library gives large freed blocks back to the system, which clears their pages again, one by one, when
the next step touches them. Training asks for the same sizes at every step, so the memory is kept.
"""

import ctypes
import sys
from functools import cache

# The names and numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGEST = 1 << 25  # bytes; the most that glibc lets stay: larger blocks come from the system each time


@cache
def keep_freed_memory() -> bool:
    """Let malloc keep what is freed, in one pool for all threads; tell whether this C library can be told so."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_M_MMAP_THRESHOLD, _LARGEST), (_M_TRIM_THRESHOLD, 1 << 30), (_M_ARENA_MAX, 1))
    done = [mallopt(name, value) == 1 for name, value in settings]
    return all(done)
