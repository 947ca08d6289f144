"""Workers watch each other: one that dies, falls silent or stays behind is named, and ends the run everywhere.

Each worker tells worker 0, once a second, that it lives and which step it is in; worker 0 judges, and tells all others
that it lives too. A thread does this, because the main thread may be waiting in a collective operation that never
returns. On a verdict every worker writes the same error, with the name of the worker at fault, and ends at once:

    dead         its connection ends without a farewell: noticed at once
    silent       nothing was heard of it for `Limits.silence` seconds: it is stopped, or its machine or network is down
    behind       others have gone on to a later step for `Limits.lag` seconds, and it has not: its main thread hangs
    standstill   no one has reached a new step for `Limits.standstill` seconds

How long a step may take, and how long its compilation, does not matter: those who compute or compile together are in
the same step. If worker 0 itself is lost, the others notice that it no longer answers.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from ..errors import ConfigError, GlassformerError
from .connection import Connection
from .workers import Limits, Verdict, Worker, end_neighbor, judge

TICK = 0.2
"""Seconds between looks at all connections: often enough, and cheap with thousands of them."""
BEAT = 1.0
"""Seconds between signs of life; more often where silence is limited to a few seconds."""
GRACE = 2.0
"""Seconds in which workers that fail for the same reason may each say so themselves."""
ABORT_DELAY = 6
"""Seconds for which an abort by a native library is held up; it is the number of SIGABRT, see `_hold_aborts`."""

RESUME = "start all workers again; `glassformer train --resume RUN` goes on from the last checkpoint"


class Watch:
    """The watch of one worker over all; does nothing where there is one worker alone.

    with watch:
        for step in …:
            watch.progress(step)  # before the step is computed
            …
    """

    def __init__(self, number: int = 0, workers: list[Worker] | None = None, *, limits: Limits | None = None) -> None:
        self.number = number
        self.workers = workers or []
        self.limits = limits or Limits()
        self.hint = RESUME
        self.interrupted = False  # whether Ctrl-C asked this worker to stop
        self._beat = min(BEAT, self.limits.silence / 5)
        self._peers: dict[int, Connection] = {}  # worker 0: to all others; any other: to worker 0
        self._step: int | None = None
        self._busy: str | None = None
        self._interrupt: Any = None  # what Ctrl-C did before it asked all workers to stop
        self._leaving = False
        self._failure: str | None = None
        self._code = 1
        self._verdict = Verdict(None, "")
        self._judged = threading.Event()
        self._finished = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, peers: dict[int, Connection]) -> None:
        """Watch from now on, over connections that stand already."""
        self._peers = peers
        self._count_anew(time.monotonic())
        _hold_aborts()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def progress(self, step: int) -> None:
        """Say which step comes next."""
        self._step = step

    @contextlib.contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Do what others may have to wait for, such as writing a file, without being taken for hanging."""
        before, self._busy = self._busy, doing
        try:
            yield
        finally:
            self._busy = before

    def asked_to_stop(self, step: int) -> bool:
        """Tell whether any worker was asked to end, by Ctrl-C or SIGTERM; for the same step all get the same answer.

        To be called once after every step, by all. A second Ctrl-C ends the worker at once.
        """
        if self._thread is None:
            return False
        from jax.experimental.multihost_utils import reached_preemption_sync_point

        self.heed_interrupts()
        return bool(reached_preemption_sync_point(step))

    def heed_interrupts(self) -> None:
        """Let Ctrl-C ask all workers to stop from now on, as `asked_to_stop` finds; if it is ignored, it stays so."""
        before = signal.getsignal(signal.SIGINT) or signal.default_int_handler
        if self._thread is None or self._interrupt is not None or before is signal.SIG_IGN:
            return
        self._interrupt = before
        with contextlib.suppress(ValueError):  # not the main thread: whoever has that one decides
            signal.signal(signal.SIGINT, self._forward_interrupt)

    def _forward_interrupt(self, *_: Any) -> None:
        """Turn the first Ctrl-C into SIGTERM, on which JAX lets all processes stop after the same step."""
        self.interrupted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.kill(os.getpid(), signal.SIGTERM)

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, cls: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._thread is None:
            return
        if self._interrupt is not None:
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGINT, self._interrupt)
        # A command that was ended on purpose: by the words that Python or the command line have for it.
        if error is None or isinstance(error, SystemExit | GeneratorExit) or type(error).__name__ == "Exit":
            self._leaving = True
            self._finished.wait()  # the watch goes on until all have come this far
            return
        self._fail(error)

    @contextlib.contextmanager
    def failing(self) -> Iterator[None]:
        """Tell the others if what is done inside fails; go on if it does not."""
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, ConfigError | KeyboardInterrupt):
            self._judged.wait(GRACE)
        if self._judged.is_set() and not (self._verdict.failed and _is_understood(error)):
            # Something broke off because another worker is gone: the thread says which one, and ends this process.
            time.sleep(10 * GRACE)
        # As the command line ends on this error.
        self._code = 2 if isinstance(error, ConfigError) else 130 if isinstance(error, KeyboardInterrupt) else 1
        self._failure = "it was interrupted" if isinstance(error, KeyboardInterrupt) else _first_line(error)
        # Runs before what JAX does at the end, which would wait for workers that no longer come.
        atexit.register(self._abandon)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._lead() if self.number == 0 else self._follow()
        except Exception as error:  # better to end than to go on unwatched
            self._end(Verdict(None, f"worker {self.number} can no longer watch the others: {_first_line(error)}"))

    def _lead(self) -> None:
        """Worker 0: listen to all, judge, and tell them."""
        for now, is_due in self._ticks():
            self.workers[0].take(self._state(), now)
            for number, peer in self._peers.items():
                worker = self.workers[number]
                for message in peer.receive():
                    worker.take(message, now)
                worker.closed = worker.closed or peer.closed
            verdict = judge(self.workers, now, self.limits)
            if verdict is not None:
                self._tell(verdict)
                return
            if all(worker.left for worker in self.workers):
                self._tell_done()
                return
            if is_due:
                for peer in self._peers.values():
                    peer.send({"step": self._step})

    def _ticks(self) -> Iterator[tuple[float, bool]]:
        """Yield the time of every look at the connections, and whether a sign of life is due."""
        next_beat = last = 0.0
        while True:
            time.sleep(TICK)
            now = time.monotonic()
            if last and now - last > self.limits.silence / 2:
                self._count_anew(now)  # who was stopped itself has heard no one
            last, is_due = now, now >= next_beat
            next_beat = now + self._beat if is_due else next_beat
            yield now, is_due

    def _count_anew(self, now: float) -> None:
        for worker in self.workers:
            worker.heard = worker.moved = now
            worker.behind = None

    def _state(self) -> dict[str, Any]:
        return {"step": self._step, "busy": self._busy, "left": self._leaving, "failure": self._failure}

    def _tell(self, verdict: Verdict) -> None:
        """Pass the verdict on, wait until the others have gone, and go."""
        for peer in self._peers.values():
            peer.send({"verdict": list(verdict)})
        deadline = time.monotonic() + GRACE + 2 * BEAT
        self._note(verdict)
        self._see_off([peer for number, peer in self._peers.items() if number not in verdict.silent], deadline)
        self._end(verdict)

    def _tell_done(self) -> None:
        for peer in self._peers.values():
            peer.send({"done": True})
        self._finished.set()
        self._see_off(list(self._peers.values()), time.monotonic() + GRACE + 2 * BEAT)
        for peer in self._peers.values():
            peer.close()

    def _see_off(self, peers: list[Connection], deadline: float) -> None:
        """Wait until the others have heard the last word and closed their ends."""
        while time.monotonic() < deadline and not all(peer.closed for peer in peers):
            time.sleep(TICK)
            for peer in self._peers.values():
                peer.flush()
                peer.receive()

    def _follow(self) -> None:
        """Any other worker: report to worker 0, hear that it lives, and hear its verdict."""
        (peer,), leader = self._peers.values(), self.workers[0]
        for now, is_due in self._ticks():
            for message in peer.receive():
                if "verdict" in message:
                    self._obey(Verdict(*message["verdict"]))
                if "done" in message:
                    peer.close()
                    self._finished.set()
                    return
                leader.heard, leader.step = now, message.get("step")
            if peer.closed:
                self._obey(Verdict(0, leader.ended(len(self.workers))))
            if now - leader.heard > self.limits.silence_at(leader.step):
                self._obey(Verdict(0, leader.unheard(len(self.workers), now), silent=[0]))
            if is_due or self._failure is not None:
                peer.send(self._state())
            if self._failure is not None:
                self._take_leave(peer)

    def _take_leave(self, peer: Connection) -> None:
        """Wait until worker 0 has heard why this worker fails; it answers with its verdict."""
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline and not peer.closed:
            if any("verdict" in message for message in peer.receive()):
                break
            time.sleep(TICK / 4)
            peer.flush()
        self._let_main_thread_end()

    def _let_main_thread_end(self) -> None:
        """Let the main thread tell its own error; should it hang on the way, such as for other threads, end it."""
        self._finished.set()
        time.sleep(2 * GRACE)
        os._exit(self._code)

    def _obey(self, verdict: Verdict) -> None:
        self._note(verdict)
        self._end(verdict)

    def _note(self, verdict: Verdict) -> None:
        """Let the main thread know, if it is about to tell an error of its own.

        After a failure, leave time to say the same: an error that all workers meet is told best by each.
        """
        if verdict.worker == self.number:
            return
        self._verdict = verdict
        self._judged.set()
        deadline = time.monotonic() + GRACE
        while verdict.failed and time.monotonic() < deadline and self._failure is None:
            time.sleep(TICK)

    def _end(self, verdict: Verdict) -> None:
        """Say who is at fault and end this process, whatever its main thread waits for."""
        if self._failure is not None:
            self._let_main_thread_end()
        # Beside this thread, since nobody may read what it writes any more, and then it waits.
        writer = threading.Thread(target=_write_error, args=[verdict.fact, self.hint], daemon=True)
        writer.start()
        writer.join(GRACE)
        # Each worker finds out about worker 0 for itself, and should see that it is silent, not that it was killed.
        time.sleep(GRACE if 0 in verdict.silent else 0)
        for number in verdict.silent:
            end_neighbor(self.workers[number])
        os._exit(1)

    def _abandon(self) -> None:
        """Leave without waiting for the others, once this worker's own error has been told."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        # Worker 0 stays until the others know: they would take its end for a crash.
        self._finished.wait(GRACE + 3 * BEAT if self.number == 0 else 2 * BEAT)
        os._exit(self._code)


def _write_error(fact: str, hint: str) -> None:
    """Write not through sys.stderr, whose lock the main thread may hold."""
    with contextlib.suppress(OSError, ValueError):
        cursor = "\x1b[?25h" if os.isatty(2) else ""  # a progress bar hides it
        os.write(2, f"{cursor}\nerror: {fact}\n\nhint: {hint}\n".encode())


def _is_understood(error: BaseException | None) -> bool:
    """Tell whether an error and what caused it are no surprises; a message that got no answer comes as one."""
    while isinstance(error, GlassformerError | OSError):
        error = error.__cause__
    return error is None


def _first_line(error: BaseException) -> str:
    fact = error.fact if isinstance(error, GlassformerError) else f"{type(error).__name__}: {error}"
    return (fact.splitlines() or [type(error).__name__])[0][:400]


def _hold_aborts() -> None:
    """Keep JAX's native code from ending this process before the watch has said why.

    When worker 0 is gone, that code aborts within milliseconds, without naming anyone. The C function `sleep` serves as
    the handler of SIGABRT: it is called with the number of the signal, 6, so the thread that aborts sleeps for six
    seconds before it goes on, in which the watch tells what happened and ends the process.
    """
    if os.name != "posix" or faulthandler.is_enabled() or signal.SIGABRT != ABORT_DELAY:
        return
    library = ctypes.CDLL(None)
    library.signal.argtypes, library.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    library.signal(signal.SIGABRT, ctypes.cast(library.sleep, ctypes.c_void_p))
