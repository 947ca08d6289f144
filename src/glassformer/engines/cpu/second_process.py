"""A second process, which computes beside this one what this one need not wait for."""

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...core.blas import threads
from ...core.dispatch import set_engine
from .cores import cores

_COMMAND = f"from {__name__} import work; work()"


@contextmanager
def beside(job: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Let another process call `job` inside a `with` block, and give a function that waits for its result.

    Where no other process can, that function calls `job` here, with its own arguments.
    """
    process = _started(job) if cores() > 1 else None

    def result(*arguments: Any) -> Any:
        if process is not None:
            assert process.stdout is not None
            with suppress(EOFError, pickle.UnpicklingError):  # it was ended, or the job failed: as it will here
                return pickle.load(process.stdout)
        return job(*arguments)

    try:
        yield result
    finally:
        if process is not None:
            process.kill()
            process.communicate()


def _started(job: Callable[..., Any]) -> subprocess.Popen[bytes] | None:
    """Return a process that does a job on half of the cores; None for one that cannot be sent or started."""
    with suppress(OSError, pickle.PicklingError, AttributeError, TypeError):
        content = pickle.dumps((cores() // 2, job))
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen([sys.executable, "-P", "-c", _COMMAND], **streams)
        threading.Thread(target=_send, args=(content, process.stdin), daemon=True).start()
        return process
    return None


def _send(content: bytes, stream: Any) -> None:
    with suppress(OSError):
        stream.write(content)
        stream.flush()  # and it stays open as long as this process lives


def work() -> None:
    """Do what is read from the standard input, unless that ends before, and write the result to the standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first process, which ends this one
    result = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the job prints
    set_engine("cpu")
    limit, job = pickle.load(sys.stdin.buffer)
    threads(limit)
    threading.Thread(target=lambda: os._exit(len(sys.stdin.buffer.read())), daemon=True).start()
    found = job()
    with suppress(OSError, pickle.PicklingError, AttributeError, TypeError), result:
        pickle.dump(found, result)
