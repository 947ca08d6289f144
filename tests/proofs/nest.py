"""A process that has imported what many others need, and forks them, one after the other.

To start Python and to import NumPy, Numba, PyTorch or JAX takes longer than what most of them do. Nothing of
Glassformer is imported: each may have a copy of its own. Where processes cannot be forked, each is started anew.
"""

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

IMPORTED = ["proofs.compiler", "hypothesis.strategies", "jax.numpy", "pytest", "torch._inductor.config"]
"""PyTorch is deterministic by that part of it. None starts a thread, so that forking is safe."""

FORKS = "forkserver" in multiprocessing.get_all_start_methods()


class Nest:
    """Runs functions of modules, each in a process of its own; kernels that are compiled by now are loaded for all."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver" if FORKS else "spawn")
        if FORKS:
            self._context.set_forkserver_preload(IMPORTED)
            self._begin()

    def _begin(self) -> None:
        self._asked, asked = self._context.Pipe()
        self._process = self._context.Process(target=serve, args=(asked,), daemon=True)
        self._process.start()
        asked.close()

    def run(self, function: Callable[..., None], *arguments: Any) -> int:
        """Call a function in a new process, and return the exit status of that."""
        if FORKS:
            try:
                self._asked.send((function, arguments))
                return self._asked.recv()
            except BaseException:  # an answer that comes too late must not be taken for one to the next question
                self._process.kill()
                self._begin()
                raise
        process = self._context.Process(target=function, args=arguments)
        process.start()
        process.join()
        assert process.exitcode is not None
        return process.exitcode


def serve(asked: Connection) -> None:
    """Fork a process for each function that is asked for, until nobody can ask any more."""
    from proofs import compiler

    compiler.load()
    while True:
        try:
            function, arguments = asked.recv()
        except EOFError:
            return
        child = os.fork()
        if child == 0:
            end(function, arguments)
        asked.send(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def end(function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    """Call a function, and end this process at once, whatever it has begun."""
    status = 1
    try:
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
