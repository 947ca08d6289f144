"""Kernels compiled ahead: where one is missing, a second process begins the same work from its other end.

Compiling keeps one core busy. Both processes find in the cache what the other one has compiled, and neither compiles
what the other one is compiling (`kernel_cache`); so they are done in about half the time. What the second one computes
is not used.
"""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...dispatch import set_engine
from .cores import cores
from .kernel_cache import before_compiling

_COMMAND = f"from {__name__} import work; work()"
_helps = False  # whether this is the second process


@contextmanager
def ahead(job: Callable[..., Any], *arguments: Any) -> Iterator[None]:
    """Let a second process call `job`, if something must be compiled inside a `with` block, until the end of that."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        # What cannot be sent or started is none: all is compiled here then.
        with suppress(OSError, pickle.PicklingError, AttributeError, TypeError):
            content = pickle.dumps((job, arguments))
            silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            started.append(subprocess.Popen([sys.executable, "-P", "-c", _COMMAND], stdin=subprocess.PIPE, **silent))
            threading.Thread(target=_send, args=(content, started[0].stdin), daemon=True).start()

    if cores() > 1 and not _helps:
        before_compiling.append(start)
    try:
        yield
    finally:
        if start in before_compiling:
            before_compiling.remove(start)
        for process in started:
            process.kill()
            process.communicate()


def _send(content: bytes, stream: Any) -> None:
    with suppress(OSError):
        stream.write(content)
        stream.flush()  # and it stays open as long as this process lives


def work() -> None:
    """Do what is read from the standard input, unless that ends before."""
    global _helps
    _helps = True
    set_engine("cpu")
    job, arguments = pickle.load(sys.stdin.buffer)
    threading.Thread(target=lambda: os._exit(len(sys.stdin.buffer.read())), daemon=True).start()
    job(*arguments)
