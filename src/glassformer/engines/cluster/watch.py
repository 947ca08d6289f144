"""Workers watch each other: one that dies, falls silent or stays behind is named, and ends the run everywhere.

Each worker tells worker 0, once a second, that it lives and which step it is in; worker 0 judges (`workers.judge`), and
tells all others that it lives too. A thread does this, because the main thread may wait in a collective operation that
never returns. On a verdict every worker writes the same error and ends at once.
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

from ...core.errors import ConfigError, GlassformerError
from .rendezvous import Channel
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
        self.number, self.workers, self.limits = number, workers or [], limits or Limits()
        self.hint = RESUME
        self.interrupted = False  # whether Ctrl-C asked this worker to stop
        self._lines: dict[int, Channel] = {}  # worker 0: to all others; any other: to worker 0
        self._state: dict[str, Any] = {"step": None, "busy": None, "left": False, "failure": None}
        self._interrupt: Any = None  # what Ctrl-C did before it asked all workers to stop
        self._code = 1
        self._verdict: Verdict | None = None  # about another worker
        self._judged, self._finished = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, lines: dict[int, Channel]) -> None:
        """Watch from now on, over connections that stand already."""
        self._lines = lines
        self._count_anew(time.monotonic())
        _hold_aborts()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def progress(self, step: int) -> None:
        """Say which step comes next."""
        self._state["step"] = step

    @contextlib.contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """Do what others may have to wait for, such as writing a file, without being taken for hanging."""
        before, self._state["busy"] = self._state["busy"], doing
        try:
            yield
        finally:
            self._state["busy"] = before

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
        with contextlib.suppress(ValueError):  # only the main thread may set handlers
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
            self._state["left"] = True
            self._finished.wait()  # the watch goes on until all have come this far
        else:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Tell the others why this worker ends."""
        if not isinstance(error, ConfigError | KeyboardInterrupt):
            self._judged.wait(GRACE)
        if self._verdict is not None and not (self._verdict.failed and _is_understood(error)):
            # Something broke off because another worker is gone: the thread says which one, and ends this process.
            time.sleep(10 * GRACE)
        # As the command line ends on this error.
        self._code = 2 if isinstance(error, ConfigError) else 130 if isinstance(error, KeyboardInterrupt) else 1
        self._state["failure"] = "it was interrupted" if isinstance(error, KeyboardInterrupt) else _first_line(error)
        # Runs before what JAX does at the end, which would wait for workers that no longer come.
        atexit.register(self._abandon)

    def _abandon(self) -> None:
        """Leave without waiting for the others, once this worker's own error has been told."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        # Worker 0 stays until the others know: they would take its end for a crash.
        self._finished.wait(GRACE + 3 * BEAT if self.number == 0 else 2 * BEAT)
        os._exit(self._code)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._lead() if self.number == 0 else self._follow()
        except Exception as error:  # better to end than to go on unwatched
            self._end(Verdict(None, f"worker {self.number} can no longer watch the others: {_first_line(error)}"))

    def _lead(self) -> None:
        """Worker 0: listen to all, judge, and tell them."""
        for now, is_due in self._ticks():
            self.workers[0].take(self._state, now)
            for number, line in self._lines.items():
                worker = self.workers[number]
                for message in line.receive():
                    worker.take(message, now)
                worker.closed = worker.closed or line.closed
            verdict = judge(self.workers, now, self.limits)
            if verdict is not None:
                self._send({"verdict": list(verdict)})
                deadline = time.monotonic() + GRACE + 2 * BEAT
                self._note(verdict)
                self._see_off(set(self._lines) - set(verdict.silent), deadline)
                self._end(verdict)
            if all(worker.left for worker in self.workers):
                self._send({"done": True})
                self._finished.set()
                self._see_off(set(self._lines), time.monotonic() + GRACE + 2 * BEAT)
                return
            if is_due:
                self._send({"step": self._state["step"]})

    def _follow(self) -> None:
        """Any other worker: report to worker 0, hear that it lives, and hear its verdict."""
        (line,), leader, total = self._lines.values(), self.workers[0], len(self.workers)
        for now, is_due in self._ticks():
            verdict = None
            for message in line.receive():
                if "done" in message:
                    line.close()
                    self._finished.set()
                    return
                verdict = Verdict(*message["verdict"]) if "verdict" in message else verdict
                leader.heard, leader.step = now, message.get("step")
            if verdict is None and line.closed:
                verdict = Verdict(0, leader.ended(total))
            if verdict is None and now - leader.heard > self.limits.silence_at(leader.step):
                verdict = Verdict(0, leader.unheard(total, now), silent=[0])
            if verdict is not None:
                self._note(verdict)
                self._end(verdict)
            failed = self._state["failure"] is not None
            if is_due or failed:
                self._send(self._state)
            if failed:
                deadline = now + GRACE
                while not line.closed and time.monotonic() < deadline:
                    if any("verdict" in message for message in line.receive(TICK)):  # worker 0 has heard why
                        break
                self._let_main_thread_end()

    def _ticks(self) -> Iterator[tuple[float, bool]]:
        """Yield the time of every look at the connections, and whether a sign of life is due."""
        next_beat = last = 0.0
        while True:
            time.sleep(TICK)
            now = time.monotonic()
            if last and now - last > self.limits.silence / 2:
                self._count_anew(now)  # a worker that was stopped itself has heard nothing
            last, is_due = now, now >= next_beat
            next_beat = now + min(BEAT, self.limits.silence / 5) if is_due else next_beat
            yield now, is_due

    def _count_anew(self, now: float) -> None:
        for worker in self.workers:
            worker.heard = worker.moved = now
            worker.behind = None

    def _send(self, message: dict[str, Any]) -> None:
        for line in self._lines.values():
            line.send(message)

    def _see_off(self, numbers: set[int], deadline: float) -> None:
        """Wait until others have heard the last word and closed their ends."""
        while time.monotonic() < deadline and not all(self._lines[number].closed for number in numbers):
            time.sleep(TICK)
            for line in self._lines.values():
                line.receive()

    def _note(self, verdict: Verdict) -> None:
        """Let the main thread know, if it is about to tell an error of its own.

        After a failure, leave time to say the same: an error that all workers meet is told best by each.
        """
        if verdict.worker == self.number:
            return
        self._verdict = verdict
        self._judged.set()
        deadline = time.monotonic() + GRACE
        while verdict.failed and time.monotonic() < deadline and self._state["failure"] is None:
            time.sleep(TICK)

    def _let_main_thread_end(self) -> None:
        """Let the main thread tell its own error; should it hang on the way, such as for other threads, end it."""
        self._finished.set()
        time.sleep(2 * GRACE)
        os._exit(self._code)

    def _end(self, verdict: Verdict) -> None:
        """Name the lost worker and end this process, whatever its main thread waits for."""
        if self._state["failure"] is not None:
            self._let_main_thread_end()
        # In another thread, since nothing may read what it writes any more, and then it waits.
        writer = threading.Thread(target=_write_error, args=[verdict.fact, self.hint], daemon=True)
        writer.start()
        writer.join(GRACE)
        # Each worker finds out about worker 0 for itself, and should see that it is silent, not that it was killed.
        time.sleep(GRACE if 0 in verdict.silent else 0)
        for number in verdict.silent:
            end_neighbor(self.workers[number])
        os._exit(1)


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
