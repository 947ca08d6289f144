"""A second process: it compiles ahead what this one will need, or computes beside it what this one need not wait for.

Compiling keeps one core busy. Processes find in the cache what another one has compiled, and none compiles what another
one is compiling (`kernel_cache`); so two that begin the same work from its two ends are done in about half the time.
"""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...blas import threads
from ...dispatch import set_engine
from .cores import cores
from .kernel_cache import before_compiling

_COMMAND = f"from {__name__} import work; work()"
_others: list[subprocess.Popen[bytes]] = []  # at work for this process; each is thought to keep one core busy


@contextmanager
def ahead(job: Callable[..., Any], *arguments: Any) -> Iterator[None]:
    """Let another process call `job`, if something must be compiled inside a `with` block, until the end of that.

    What it computes is not used.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        started.extend(_started(1, job, *arguments))

    if _has_free_core():
        before_compiling.append(start)
    try:
        yield
    finally:
        if start in before_compiling:
            before_compiling.remove(start)
        _end(started)


@contextmanager
def beside(job: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Let another process call `job` inside a `with` block, and give a function that waits for its result.

    Where no other process can, that function calls `job` here, with its own arguments.
    """
    started = _started(cores() // 2, job) if _has_free_core() else []

    def result(*arguments: Any) -> Any:
        for process in started:
            assert process.stdout is not None
            with suppress(EOFError, pickle.UnpicklingError):  # it was ended, or the job failed: as it will here
                return pickle.load(process.stdout)
        return job(*arguments)

    try:
        yield result
    finally:
        _end(started)


def _has_free_core() -> bool:
    return cores() - sum(process.poll() is None for process in _others) > 1


def _started(limit: int, job: Callable[..., Any], *arguments: Any) -> list[subprocess.Popen[bytes]]:
    """Return a process that does a job on so many cores."""
    # What cannot be sent or started is none: all is done here then.
    with suppress(OSError, pickle.PicklingError, AttributeError, TypeError):
        content = pickle.dumps((limit, job, arguments))
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([sys.executable, "-P", "-c", _COMMAND], **streams)
        threading.Thread(target=_send, args=(content, process.stdin), daemon=True).start()
        _others.append(process)
        return [process]
    return []


def _send(content: bytes, stream: Any) -> None:
    with suppress(OSError):
        stream.write(content)
        stream.flush()  # and it stays open as long as this process lives


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
        process.communicate()
        _others.remove(process)


def work() -> None:
    """Do what is read from the standard input, unless that ends before, and write the result to the standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process, which ends this one
    result = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the job prints
    set_engine("cpu")
    limit, job, arguments = pickle.load(sys.stdin.buffer)
    threads(limit)
    threading.Thread(target=lambda: os._exit(len(sys.stdin.buffer.read())), daemon=True).start()
    found = job(*arguments)
    with suppress(OSError, pickle.PicklingError, AttributeError, TypeError), result:
        pickle.dump(found, result)
