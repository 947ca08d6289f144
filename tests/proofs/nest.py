"""A process that has prepared what many others need, and forks them, one after the other.

To start Python and to import NumPy, Numba, PyTorch or JAX takes longer than what most of them do. Where processes
cannot be forked, each is started and prepared anew.
"""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

FORKS = hasattr(os, "fork")


class Nest:
    """Runs functions of modules, each in a process of its own, after what was prepared once for all of them.

    What is prepared starts no thread, so that forking is safe.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._prepare = prepare
        if FORKS:
            self._begin()

    def _begin(self) -> None:
        self._asked, asked = self._context.Pipe()
        self._process = self._context.Process(target=serve, args=(asked, self._prepare), daemon=True)
        self._process.start()
        asked.close()

    def share(self, function: Callable[[], None]) -> None:
        """Call a function in the nest itself: what it loads is there for all that are forked later."""
        if FORKS:
            self._asked.send((function, (), False))

    def run(self, function: Callable[..., None], *arguments: Any) -> int:
        """Call a function in a new process, and return the exit status of that."""
        if FORKS:
            try:
                self._asked.send((function, arguments, True))
                return self._asked.recv()
            except BaseException:  # an answer that comes too late must not be taken for one to the next question
                self._process.kill()
                self._begin()
                raise
        process = self._context.Process(target=end, args=(function, arguments, self._prepare))
        process.start()
        process.join()
        assert process.exitcode is not None
        return process.exitcode


def serve(asked: Connection, prepare: Callable[[], None]) -> None:
    """Fork a process for each function, but for those that are to be shared, until nobody can ask any more."""
    prepare()
    while True:
        try:
            function, arguments, forks = asked.recv()
        except EOFError:
            return
        if not forks:
            function(*arguments)
            continue
        child = os.fork()
        if child == 0:
            end(function, arguments)
        asked.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def end(function: Callable[..., None], arguments: tuple[Any, ...], prepare: Callable[[], None] = lambda: None) -> None:
    """Call a function, and end this process at once, whatever it has begun."""
    status = 1
    try:
        prepare()
        function(*arguments)
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def load_kernels() -> None:
    """Set up Numba, and load the kernels that are compiled by now."""
    from proofs import compiler

    compiler.load()
