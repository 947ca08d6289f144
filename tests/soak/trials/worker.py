"""One process of a trial: tries the cases whose seeds it is sent, and answers each with a line of JSON.

A case that takes too long is ended by an alarm, one that takes too much memory finds no more of it. What neither can
end, such as a loop in native code, ends with this process: see `crew`.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import json
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from . import forks, load
from .clock import time_limit
from .trial import LateError, LostError, Trial, described

PREPARED = "prepared"


def work(name: str, folder: Path) -> None:
    """Try cases until no more come."""
    channel = os.fdopen(os.dup(1), "w")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # what is tried may print
    os.close(quiet)
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    trial = load(name)
    prepared(trial, folder)
    channel.write("ready\n")
    channel.flush()
    for line in sys.stdin:
        seed = int(line)
        reason, late = tried(trial, folder, seed)
        channel.write(json.dumps({"seed": seed, "lost": reason, "late": late}) + "\n")
        channel.flush()


def prepared(trial: Trial, folder: Path) -> None:
    """Prepare a trial, unless another process has done so; the others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "shared").exists():
            (folder / "shared").mkdir()
            trial.prepare(folder / "shared")
            (folder / PREPARED).touch()
        if not (folder / PREPARED).exists():
            raise SystemExit("another process could not prepare it")


def tried(trial: Trial, folder: Path, seed: int) -> tuple[str | None, bool]:
    """Try one case; return why it was lost, None if it survived, and whether it was late and no more."""
    own = folder / f"case-{seed}"
    own.mkdir()
    try:
        attempted(trial, folder / "shared", own, seed)
    except LostError as error:
        return str(error), False
    except LateError as error:
        return str(error), True
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever else comes out of a case is what the campaign looks for
        return described(error), False
    finally:
        forks.end_all()
        shutil.rmtree(own, ignore_errors=True)
    return None, False


def attempted(trial: Trial, shared: Path, own: Path, seed: int) -> None:
    """Try one case within its limits of time and memory; raise where it is lost."""
    with time_limit(trial.limit), memory_limit(trial.memory):
        trial.attempt(shared, own, seed)


@contextlib.contextmanager
def memory_limit(megabytes: int | None) -> Iterator[None]:
    """Refuse more than four times so much memory, and lose the case if more than so much was in use at any moment."""
    if megabytes is None or not Path("/proc/self/clear_refs").exists():
        yield
        return
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    now = _status("VmRSS")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, ((_status("VmSize") + 4 * megabytes * 1024) * 1024, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    grown = (_status("VmHWM") - now) / 1024
    if grown > megabytes:
        raise LostError(f"it took {grown:,.0f} MB of memory")
    if _status("VmRSS") - now > megabytes * 256:
        gc.collect()


def _status(name: str) -> int:
    """Return a figure of this process in KiB."""
    with open("/proc/self/status", encoding="ascii", errors="replace") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name + ":"))
