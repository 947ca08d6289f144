"""How much memory something takes: what a fresh process grows by."""

import gc
import re
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .worker import find

_STATUS = Path("/proc/self/status")
UNKNOWN = "this system does not tell how much memory a process takes, so it was not measured"


def is_told() -> bool:
    """Tell whether this system says how much memory a process takes."""
    return _STATUS.exists() or find_spec("resource") is not None


def growth(*, imports: list[str], build: str, settings: dict[str, Any], steps: int) -> dict[str, Any]:
    """Return the bytes a contender takes: the peak after some steps less what the process held before it was made.

    `seconds` has the time of each step, in which nothing else is measured.
    """
    for name in imports:
        __import__(name)
    gc.collect()
    before = resident()
    stepper = find(build)(**settings)
    seconds = []
    for _ in range(steps):
        began = time.perf_counter()
        stepper.step()
        seconds.append(time.perf_counter() - began)
    highest = peak()
    return {"growth": highest - before, "peak": highest, "imports": before, "seconds": seconds}


def resident() -> int:
    """Return the bytes this process holds now."""
    found = _status("VmRSS")
    return peak() if found is None else found


def peak() -> int:
    """Return the most bytes this process ever held.

    Linux tells it of this program alone; what `getrusage` says may be the parent's, from before the program was loaded.
    """
    found = _status("VmHWM")
    if found is not None:
        return found
    import resource

    # Kilobytes, but bytes on a Mac.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _status(name: str) -> int | None:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB$", _STATUS.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None
