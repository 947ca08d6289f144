"""Several cores inside one kernel: idle threads claim the next part of a job, and no thread is reserved.

A kernel writes a job on a board (`parts`) and computes its parts one after the other. Helper threads do the same. They
are Python threads in a compiled loop that polls the board without the GIL, and they leave after a while without work.
A helper that another process keeps from its core holds at most one part. If kernels often wait for such a part, the
cores are busy, and the next kernels run alone.

    board[TICKET]     the number of parts · 2³² + the number of the next one, which is taken by adding one
    board[DONE]       how many parts are done
    board[HELPERS]    whether helpers may be running; if none is, the two above are not needed
    board[WAITED]     how often the kernel polled before all parts were done
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

from ...core.arrays import Array
from .compile import address_of, call, compiled, inlined, instruction
from .cores import cores
from .parts import LENGTH, do_part

WORTHWHILE = 1 << 19  # bytes; a kernel that reads fewer does so alone
LINGER = 2e-2  # seconds for which a helper polls for work: waking it up for every token takes longer than it saves
LONG = 5e-4  # seconds; waiting longer than this for a helper's part means that the cores are busy

# Far enough from each other that cores that write one do not disturb those that read another.
TICKET, DONE, HELPERS, WAITED, DO_PART, KIND, JOB = 0, 16, 32, 33, 34, 48, 49
_WORD = ir.IntType(64)


@instruction(types.int64, types.intp)
def _look(builder, address):
    """Read a number that others write, and all that they wrote before it."""
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
    machine = platform.machine().lower()
    arguments = [ir.IntType(32)(1)] if machine in ("aarch64", "arm64") else []
    if arguments or machine in ("x86_64", "amd64"):
        called = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
        name = "llvm.aarch64.hint" if arguments else "llvm.x86.sse2.pause"
        builder.call(builder.module.declare_intrinsic(name, fnty=called), arguments)


@inlined
def place(array):
    """Return the address of an array, as a signed number: with an unsigned one, sums would become floating-point."""
    return np.intp(array.ctypes.data)


@compiled
def share_out(board, parts):
    """Do all parts of the job on the board, together with the helpers."""
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
    """Do parts of jobs on the board, until `patience` polls in a row have found none."""
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
        if ticket & 0xFFFFFFFF >= ticket >> 32:  # another thread was faster
            return taken
        # From here on the job stays as it is: it is not over before this part is.
        call(_look(at + 8 * DO_PART), (at + 8 * JOB, ticket & 0xFFFFFFFF))
        _count_up(at + 8 * DONE)
        taken += 1


def new_board() -> Array:
    board = np.zeros(JOB + LENGTH, np.int64)
    board[DO_PART] = address_of(do_part, types.int64, types.int64)
    return board


class ThreadPool:
    """The helper threads of a process; one kernel at a time uses them."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="glassformer-helper")
        self.helpers: list[Future[Any]] = []
        self.patience = 0  # polls in LINGER seconds
        self.alone = 0  # kernels that are still to run without help
        self.longest = 0  # how many there were, when help was last in vain

    @cached_property
    def board(self) -> Array:
        return new_board()

    def run(self, kernel: Any, arguments: tuple[Any, ...], helpers: int) -> None:
        """Run a kernel with this many helpers; the caller holds `turn`."""
        if not self.patience:
            self.patience = _polls_in(LINGER)
        self.helpers = [helper for helper in self.helpers if not helper.done()]
        with suppress(RuntimeError):  # there are no more threads to be had, or the process is about to end
            for _ in range(helpers - len(self.helpers)):
                self.helpers.append(self.pool.submit(help_out, self.board, self.patience))
        self.board[HELPERS], self.board[WAITED] = helpers, 0
        began = time.perf_counter()
        kernel(*arguments, self.board)
        self._learn(time.perf_counter() - began)

    def _learn(self, seconds: float) -> None:
        """Run the next kernels alone if waiting for helpers took longer than they can have saved."""
        waited = self.board[WAITED] * LINGER / self.patience
        if waited > LONG and waited > seconds / 4:
            self.longest = min(max(2 * self.longest, 8), 512)
            self.alone = self.longest
        elif self.longest:
            self.longest -= 1


def _polls_in(seconds: float) -> int:
    """Return how often a helper polls an empty board in some seconds."""
    board, polls, times = new_board(), 2000, []
    for _ in range(6):  # the first may have to be compiled, and others may be broken off
        began = time.perf_counter()
        help_out(board, polls)
        times.append(time.perf_counter() - began)
    return max(int(polls * seconds / min(times)), 100)


_pool = ThreadPool()
_here = threading.local()


def _begin_anew() -> None:
    """Forget the parent's threads in a forked child."""
    global _pool
    _pool = ThreadPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def on_all_cores(kernel: Any, *arguments: Any, size: int) -> None:
    """Run a kernel that reads `size` bytes, and whose last argument is a board, on the cores that may be used here."""
    helpers = min(cores(), numba.config.NUMBA_NUM_THREADS) - 1 if size >= WORTHWHILE else 0
    pool = _pool
    if helpers > 0 and pool.turn.acquire(blocking=False):
        try:
            if not pool.alone:
                pool.run(kernel, arguments, helpers)
                return
            pool.alone -= 1
        finally:
            pool.turn.release()
    if not hasattr(_here, "board"):
        _here.board = new_board()  # without helpers
    kernel(*arguments, _here.board)
