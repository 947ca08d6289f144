"""The real command in a fork of this process: Python and the library are loaded once, and many forks start at once."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import random
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from . import ROOT
from .clock import AwakeClock
from .trial import LateError, demand

sys.path.insert(0, str(ROOT / "tests"))

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
PATIENCE = 200.0
"""Seconds until a command that does not end is lost."""


_running: set[Child] = set()


def end_all() -> None:
    """End what a case has left running."""
    for child in list(_running):
        child.kill()


class Child:
    """A fork, and the file that holds what it says."""

    def __init__(self, function: Callable[[], int | None], log: Path) -> None:
        self.log = log
        self.code: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _running.clear()  # they are the parent's
            _become(function, log)
        _running.add(self)

    def signal(self, name: signal.Signals) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, name)

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
        if self.code is not None:
            _running.discard(self)
        return self.code

    def wait(self, seconds: float = PATIENCE) -> int:
        """Return its exit code; lose the case where it does not end."""
        clock = AwakeClock()
        while (code := self.poll()) is None:
            if clock.passed() > seconds:
                self.kill()
                raise LateError(f"a command did not end within {seconds:.0f} s; it said: {self.said()[-200:]}")
            time.sleep(0.002)
        return code

    def kill(self) -> None:
        """End it with SIGKILL, at whatever it does."""
        self.signal(signal.SIGKILL)
        while self.poll() is None:
            time.sleep(0.001)

    def said(self) -> str:
        """Return what it has written."""
        return self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""


def _become(function: Callable[[], int | None], log: Path) -> NoReturn:
    """Run a function in the fork, as a process of its own would, and end."""
    code: Any = 1
    try:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            signal.signal(name, signal.default_int_handler if name == signal.SIGINT else signal.SIG_DFL)
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.close(file)
        sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
        sys.stderr = sys.__stderr__ = os.fdopen(2, "w", closefd=False, errors="backslashreplace")
        code = function() or 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1 if leave.code else 0
        if isinstance(leave.code, str):
            sys.stderr.write(leave.code + "\n")
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT  # before the command had begun, or after it: as Python ends then
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):
                stream.flush()
        os._exit(code)


def command(log: Path, *arguments: Any, before: Callable[[], None] | None = None, **environment: str) -> Child:
    """Start `glassformer …`; `before` is called in the fork first, such as to limit it."""

    def run() -> None:
        from glassformer.cli import main

        os.environ.update(environment)
        sys.argv = ["glassformer", *map(str, arguments)]
        sys.orig_argv = [sys.executable, "-m", *sys.argv]  # which several processes start as their children
        if before is not None:
            before()
        main()

    return Child(run, log)


def succeed(child: Child) -> None:
    """Wait for a command that must do what it was asked."""
    code = child.wait()
    demand(code == 0, f"a command that should succeed ended with {code}: {last_line(child.said())}")


def check(function: Callable[[], None], log: Path) -> None:
    """Run a check in a fork, which may load what this process must not, such as JAX; lose the case where it fails."""
    child = Child(function, log)
    code = child.wait()
    demand(code == 0, last_line(child.said()))


def last_line(text: str) -> str:
    """Return what someone said last: an error's first line, if there is one."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"error: |[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (errors or lines or ["it said nothing"])[-1][:300]


def steps_in(run: Path) -> int:
    """Return how many steps a run has noted."""
    metrics = run / "metrics.jsonl"
    with contextlib.suppress(OSError):
        return metrics.read_bytes().count(b"\n")
    return 0


def wait_for_step(child: Child, run: Path, step: int, rng: random.Random) -> None:
    """Wait until a run has noted so many steps, and a little longer, or until it has ended."""
    clock = AwakeClock()
    while steps_in(run) < step and child.poll() is None:
        if clock.passed() > PATIENCE:
            child.kill()
            raise LateError(f"a run did not get to step {step}: {last_line(child.said())}")
        time.sleep(0.001)
    time.sleep(rng.uniform(0.0, 0.03 if step else 0.4))
