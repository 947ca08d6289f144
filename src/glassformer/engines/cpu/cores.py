"""Several cores at once: tasks in Python threads, parts of one kernel's work, and a second process.

`each` runs tasks in one Python thread each, which compiled kernels and BLAS let run freely.

`on_all_cores` runs one kernel whose work has parts: idle threads claim the next part of a job, and no thread is
reserved. The kernel writes a job into its queue, which holds one, and computes its parts one after the other. Helper
threads do the same. They are Python threads in a compiled loop that polls the queue without the GIL, and they leave
after a while without work. A helper that another process keeps from its core holds at most one part. If kernels often
wait for such a part, the cores are busy, and the next kernels run alone.

    queue[TICKET]     the number of parts · 2³² + the number of the next one, which is taken by adding one
    queue[DONE]       how many parts are done
    queue[HELPERS]    whether helpers may be running; if none is, the two above are not needed
    queue[WAITED]     how often the kernel polled before all parts were done
    queue[DO_PART]    the address of `do_part`: a kernel that shares out parts is compiled without all that they do
    queue[KIND]       which of `parts` the job is
    queue[JOB:]       the job itself

`beside` lets a second process compute what this one need not wait for.
"""

import os
import pickle
import platform
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import cache, cached_property
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba import types

from ...core.arrays import Array
from ...core.dispatch import set_engine
from ...core.threads import cores, one_blas_thread, one_core, threads
from .compile import address_of, call, compiled, inlined, instruction
from .parts import LENGTH, do_part

Result = TypeVar("Result")

WORTHWHILE = 1 << 19  # bytes; a kernel that reads fewer does so alone
LINGER = 2e-2  # seconds for which a helper polls for work: waking it up for every token takes longer than it saves
LONG = 5e-4  # seconds; waiting longer than this for a helper's part means that the cores are busy

# Far enough from each other that cores that write one do not disturb those that read another.
TICKET, DONE, HELPERS, WAITED, DO_PART, KIND, JOB = 0, 16, 32, 33, 34, 48, 49
_WORD = ir.IntType(64)
_COMMAND = f"from {__name__} import work; work()"


def each(tasks: Iterable[Callable[[], Result]]) -> list[Result]:
    """Run tasks at the same time, one per core, with one BLAS thread each; return their results in order.

    A core that is done takes the next task; the first is done on the calling thread. Inside a task, and on one core,
    they run one after the other.
    """
    tasks = list(tasks)
    workers = min(cores(), len(tasks)) if len(tasks) > 1 else 1  # to ask how many there are takes long
    if workers < 2:
        return [task() for task in tasks]
    results, waiting = dict[int, Result](), deque(range(workers, len(tasks)))

    def work(number: int) -> None:
        with one_core():
            while True:
                results[number] = tasks[number]()
                try:
                    number = waiting.popleft()
                except IndexError:
                    return

    with one_blas_thread():
        # Each in a copy of the context here: what NumPy warns about is a part of it.
        rest = [_threads(cores()).submit(copy_context().run, work, number) for number in range(1, workers)]
        try:
            work(0)
        finally:
            waiting.clear()  # after an error
            for future in rest:  # nothing may still be running when an error leaves here
                future.exception()
        for future in rest:
            future.result()
    return [results[number] for number in range(len(tasks))]


@cache
def _threads(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="glassformer")


# --- parts of one kernel's work --------------------------------------------------------------------------------------


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
    """Pause for a moment, in a loop that waits."""
    machine = platform.machine().lower()
    arguments = [ir.IntType(32)(1)] if machine in ("aarch64", "arm64") else []
    if arguments or machine in ("x86_64", "amd64"):
        called = ir.FunctionType(ir.VoidType(), [argument.type for argument in arguments])
        name = "llvm.aarch64.hint" if arguments else "llvm.x86.sse2.pause"
        builder.call(builder.module.declare_intrinsic(name, fnty=called), arguments)


@inlined
def pointer_to(array):
    """Return the address of an array, as a signed number: with an unsigned one, sums would become floating-point."""
    return np.intp(array.ctypes.data)


@compiled
def share_out(queue, kind, job, parts):
    """Do all parts of a job, one of the tuples of `parts`, together with the helpers."""
    queue[KIND] = kind
    for n in range(len(job)):
        queue[JOB + n] = job[n]
    at = pointer_to(queue)
    if parts < 2 or queue[HELPERS] == 0:
        for part in range(parts):
            call(queue[DO_PART], (at + 8 * JOB, part))
        return
    _announce(at + 8 * DONE, 0)
    _announce(at + 8 * TICKET, parts << 32)
    _take_parts(at)
    while _look(at + 8 * DONE) < parts:
        _breathe()
        queue[WAITED] += 1


@compiled
def help_out(queue, patience):
    """Do parts of jobs in the queue, until `patience` polls in a row have found none."""
    at, idle = pointer_to(queue), 0
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


def new_queue() -> Array:
    queue = np.zeros(JOB + LENGTH, np.int64)
    queue[DO_PART] = address_of(do_part, types.int64, types.int64)
    return queue


class ThreadPool:
    """The helper threads of a process; one kernel at a time uses them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.threads = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="glassformer-helper")
        self.helpers: list[Future[Any]] = []
        self.patience = 0  # polls in LINGER seconds
        self.alone = 0  # kernels that are still to run without help
        self.longest = 0  # how many there were, when help was last in vain

    @cached_property
    def queue(self) -> Array:
        return new_queue()

    def run(self, kernel: Any, arguments: tuple[Any, ...], helpers: int) -> None:
        """Run a kernel with this many helpers; the caller holds `lock`."""
        if not self.patience:
            self.patience = _polls_in(LINGER)
        self.helpers = [helper for helper in self.helpers if not helper.done()]
        with suppress(RuntimeError):  # there are no more threads to be had, or the process is about to end
            for _ in range(helpers - len(self.helpers)):
                self.helpers.append(self.threads.submit(help_out, self.queue, self.patience))
        self.queue[HELPERS], self.queue[WAITED] = helpers, 0
        began = time.perf_counter()
        kernel(*arguments, self.queue)
        self._learn(time.perf_counter() - began)

    def _learn(self, seconds: float) -> None:
        """Run the next kernels alone if waiting for helpers took longer than they can have saved."""
        waited = self.queue[WAITED] * LINGER / self.patience
        if waited > LONG and waited > seconds / 4:
            self.longest = min(max(2 * self.longest, 8), 512)
            self.alone = self.longest
        elif self.longest:
            self.longest -= 1


def _polls_in(seconds: float) -> int:
    """Return how often a helper polls an empty queue in some seconds."""
    queue, polls, times = new_queue(), 2000, []
    for _ in range(6):  # the first may have to be compiled, and others may be broken off
        began = time.perf_counter()
        help_out(queue, polls)
        times.append(time.perf_counter() - began)
    return max(int(polls * seconds / min(times)), 100)


_pool = ThreadPool()
_here = threading.local()


def _begin_anew() -> None:
    """Forget the parent's threads in a forked child."""
    global _pool
    _threads.cache_clear()
    _pool = ThreadPool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def on_all_cores(kernel: Any, *arguments: Any, size: int) -> None:
    """Run a kernel that reads `size` bytes, and whose last argument is a queue, on the cores that may be used here."""
    helpers = min(cores(), numba.config.NUMBA_NUM_THREADS) - 1 if size >= WORTHWHILE else 0
    pool = _pool
    if helpers > 0 and pool.lock.acquire(blocking=False):
        try:
            if not pool.alone:
                pool.run(kernel, arguments, helpers)
                return
            pool.alone -= 1
        finally:
            pool.lock.release()
    if not hasattr(_here, "queue"):
        _here.queue = new_queue()  # without helpers
    kernel(*arguments, _here.queue)


# --- a second process ------------------------------------------------------------------------------------------------


@contextmanager
def beside(job: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Start another process that calls `job`, inside a `with` block, and give a function that waits for its result.

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
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the job prints
    set_engine("cpu")
    limit, job = pickle.load(sys.stdin.buffer)
    threads(limit)
    threading.Thread(target=lambda: os._exit(len(sys.stdin.buffer.read())), daemon=True).start()
    result = job()
    with suppress(OSError, pickle.PicklingError, AttributeError, TypeError), output:
        pickle.dump(result, output)
