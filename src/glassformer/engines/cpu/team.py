"""Several cores inside of one kernel: whoever is there takes the next part, and nobody waits for who is not.

A kernel writes a job on a board (`parts`) and does its parts one after the other. Threads that help do the same. They
are Python's, run a compiled loop without the GIL that looks at the board, and leave when nothing has come for a while.
A helper that another process keeps from its core has taken no part, or one: all others are done without it. Where that
one is often waited for, the cores are busy, and nobody is asked to help for a time.

    board[TICKET]     the number of parts · 2³² + the number of the next one, which is taken by adding one
    board[DONE]       how many parts are done
    board[HELPERS]    whether somebody may be helping; if nobody is, the two above are not needed
    board[WAITED]     how often the kernel has looked in vain whether all is done
    board[DO_PART]    the address of `do_part`: a kernel that shares out parts is compiled without all that they do
    board[KIND]       which of `parts` the job is
    board[JOB:]       the job itself
"""

import os
import platform
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import types

from ...arrays import Array
from .compile import address_of, call, compiled, inlined, instruction
from .cores import cores
from .parts import LENGTH, do_part

WORTHWHILE = 1 << 19
"""Bytes; a kernel that reads fewer does so alone."""
LINGER = 2e-2
"""Seconds for which a helper looks for more to do: to wake one up for every token takes longer than it helps."""
LONG = 5e-4
"""Seconds; who waits longer for a helper's part finds the cores busy."""

# Far enough from each other that cores that write one do not disturb those that read another.
TICKET, DONE, HELPERS, WAITED, DO_PART, KIND, JOB = 0, 16, 32, 33, 34, 48, 49
_WORD = ir.IntType(64)


@instruction(types.int64, types.intp)
def _look(builder, address):
    """Read a number that others write; what they wrote before it is seen, too."""
    return builder.load_atomic(builder.inttoptr(address, _WORD.as_pointer()), ordering="acquire", align=8)


@instruction(types.none, types.intp, types.int64)
def _announce(builder, address, value):
    """Write a number that others read, behind all that was written before it."""
    builder.store_atomic(value, builder.inttoptr(address, _WORD.as_pointer()), ordering="release", align=8)


@instruction(types.int64, types.intp)
def _count_up(builder, address):
    """Add one to a number that others may change at the same time; return what it was."""
    return builder.atomic_rmw("add", builder.inttoptr(address, _WORD.as_pointer()), _WORD(1), "acq_rel")


@instruction(types.none)
def _breathe(builder):
    """Tell the processor that this is a loop that waits."""
    name, arguments = _pause()
    if name:
        called = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
        builder.call(builder.module.declare_intrinsic(name, fnty=called), arguments)


def _pause() -> tuple[str, list[Any]]:
    machine = platform.machine().lower()
    if machine in ("x86_64", "amd64"):
        return "llvm.x86.sse2.pause", []
    return ("llvm.aarch64.hint", [ir.IntType(32)(1)]) if machine in ("aarch64", "arm64") else ("", [])


@inlined
def place(array):
    """Return the address of an array, as a signed number: with an unsigned one, sums would become floating-point."""
    return np.intp(array.ctypes.data)


@compiled
def share_out(board, parts):
    """Do all parts of the job on the board, with whoever helps."""
    at = place(board)
    if parts < 2 or board[HELPERS] == 0:
        for part in range(parts):
            call(board[DO_PART], (at + 8 * JOB, part))
        return
    _announce(at + 8 * DONE, 0)
    _announce(at + 8 * TICKET, parts << 32)
    _take_parts(at)
    while _look(at + 8 * DONE) < parts:
        _breathe()
        board[WAITED] += 1


@compiled
def help_out(board, patience):
    """Do parts of whatever comes onto the board, until one has looked so often and there was nothing to do."""
    at, idle = place(board), 0
    while idle < patience:
        if _take_parts(at):
            idle = 0
        else:
            _breathe()
            idle += 1


@compiled
def _take_parts(at):
    """Do parts until none is left; return how many."""
    taken = 0
    while True:
        ticket = _look(at + 8 * TICKET)
        if ticket & 0xFFFFFFFF >= ticket >> 32:
            return taken
        ticket = _count_up(at + 8 * TICKET)
        if ticket & 0xFFFFFFFF >= ticket >> 32:  # somebody else was faster
            return taken
        # From here on the job stays as it is: it is not over before this part is.
        call(_look(at + 8 * DO_PART), (at + 8 * JOB, ticket & 0xFFFFFFFF))
        _count_up(at + 8 * DONE)
        taken += 1


# --- who helps -------------------------------------------------------------------------------------------------------


def new_board() -> Array:
    """Return a board with nothing on it but who does the parts."""
    board = np.zeros(JOB + LENGTH, np.int64)
    board[DO_PART] = address_of(do_part, types.int64, types.int64)
    return board


class Team:
    """The helpers of a process, of whom one kernel at a time makes use."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="glassformer-helper")
        self.helpers: list[Future[Any]] = []
        self.patience = 0  # looks that take as long as LINGER
        self.alone = 0  # kernels that are still to run without help
        self.longest = 0  # how many there were, when help was last in vain

    @cached_property
    def board(self) -> Array:
        """What the helpers look at."""
        return new_board()

    def run(self, kernel: Any, arguments: tuple[Any, ...], helpers: int) -> None:
        """Run a kernel with so many helpers; who calls this has the turn."""
        if not self.patience:
            self.patience = _looks_in(LINGER)
        self.helpers = [helper for helper in self.helpers if not helper.done()]
        with suppress(RuntimeError):  # there are no more threads to be had, or the process is about to end
            for _ in range(helpers - len(self.helpers)):
                self.helpers.append(self.pool.submit(help_out, self.board, self.patience))
        self.board[HELPERS], self.board[WAITED] = helpers, 0
        began = time.perf_counter()
        kernel(*arguments, self.board)
        self._learn(time.perf_counter() - began)

    def _learn(self, seconds: float) -> None:
        """Do without help for a while where more time was spent waiting for it than it can have saved."""
        waited = self.board[WAITED] * LINGER / self.patience
        if waited > LONG and waited > seconds / 4:
            self.longest = min(max(2 * self.longest, 8), 512)
            self.alone = self.longest
        elif self.longest:
            self.longest -= 1


def _looks_in(seconds: float) -> int:
    """Return how often a helper looks at an empty board in a time."""
    board, looks, times = new_board(), 2000, []
    for _ in range(6):  # the first may have to be compiled, and others may be broken off
        began = time.perf_counter()
        help_out(board, looks)
        times.append(time.perf_counter() - began)
    return max(int(looks * seconds / min(times)), 100)


_team = Team()
_here = threading.local()


def _begin_anew() -> None:
    """Forget, in a child of this process, threads that stayed behind."""
    global _team
    _team = Team()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def on_all_cores(kernel: Any, *arguments: Any, size: int) -> None:
    """Run a kernel, whose last argument is a board, that reads so many bytes, on as many cores as may be used here."""
    helpers = min(cores(), numba.config.NUMBA_NUM_THREADS) - 1 if size >= WORTHWHILE else 0
    team = _team
    if helpers > 0 and team.turn.acquire(blocking=False):
        try:
            if not team.alone:
                team.run(kernel, arguments, helpers)
                return
            team.alone -= 1
        finally:
            team.turn.release()
    if not hasattr(_here, "board"):
        _here.board = new_board()  # on which nobody looks
    kernel(*arguments, _here.board)
