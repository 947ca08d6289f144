"""Who runs a learner's function: a process of its own with limits, or this one for a function of a notebook.

Both answer alike: for each program (sources that are run one after the other) and each example one `Outcome`.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FunctionType
from typing import Any

from . import worker

SECONDS = 10.0
TRIAL = 2.0
"""How long a changed file may take."""
MEMORY = 2 << 30
MOST_OPEN = 48
HERE = Path(__file__).resolve().parent
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
    "VECLIB_MAXIMUM_THREADS": "1", "PYTHONUTF8": "1",
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What one call gave, or how it failed."""

    value: Any = None
    error: str = ""
    """The class of the exception; or "missing", "unreadable", "ours", "time", "ended" and "memory"."""
    words: str = ""
    line: int = 0
    wrote: tuple[int, ...] = ()
    """The places of the arguments that were written to."""
    is_loading: bool = False
    """It failed before the function was called."""


class StoppedError(Exception):
    """The process ended, or had to be ended."""

    def __init__(self, error: str, words: str) -> None:
        super().__init__(words)
        self.outcome = Outcome(error=error, words=words)


class Sandbox:
    """A process that runs one learner's file. It is started when first needed and anew after it has ended."""

    def __init__(self, source: str, file: str, *, seconds: float = SECONDS) -> None:
        self.source, self.file, self.seconds = source, file, seconds
        self.printed = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(
        self, function: str, examples: Sequence[Any], *, ours: Sequence[str] = (), programs: Iterable[str] | None = None
    ) -> Iterator[list[Outcome]]:
        """Yield the outcomes of every program: the learner's file, or `programs` instead, then `ours` on top.

        An outcome is missing where the process ended before it; the last one then says why.
        """
        request = {"function": function, "examples": [tuple(args) for args in examples], "file": self.file}
        for text in [self.source] if programs is None else programs:
            outcomes: list[Outcome] = []
            is_loading = True
            deadline = time.monotonic() + (self.seconds if programs is None else min(self.seconds, TRIAL))
            try:
                self._start()
                self._write(worker.pack({**request, "sources": [text, *ours]}), deadline)
                while "done" not in (frame := self._receive(deadline)):
                    if "loaded" in frame:
                        is_loading = False
                    else:
                        outcomes.append(_outcome(frame))
                self.printed = str(frame.get("printed", ""))
            except StoppedError as stopped:
                self.stop()
                outcomes.append(replace(stopped.outcome, is_loading=is_loading))
            yield outcomes

    def _start(self) -> None:
        if self._process is not None:
            return
        self._folder = tempfile.TemporaryDirectory(prefix="glassformer-lab-")
        folder = os.path.realpath(self._folder.name)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-B", str(HERE / "worker.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder,
            env={**ENVIRONMENT, "HOME": folder, "TMPDIR": folder, "SYSTEMROOT": os.environ.get("SYSTEMROOT", "")},
            start_new_session=True,
        )  # fmt: skip
        places = {sys.prefix, sys.base_prefix, sys.exec_prefix, *(path for path in sys.path if path)}
        setup = {
            "path": [path for path in sys.path if path],
            "folder": folder,
            "readable": sorted(os.path.realpath(place) for place in places),
            "hidden": str(HERE / "statements"),
            "limits": {
                "AS": MEMORY, "CPU": int(self.seconds) + 2, "FSIZE": 1 << 20, "NOFILE": MOST_OPEN, "CORE": 0,
                "NPROC": 0,
            },
        }  # fmt: skip
        self._write(worker.pack(setup), time.monotonic() + self.seconds)

    def _write(self, data: bytes, deadline: float) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        file = self._process.stdin.fileno()
        os.set_blocking(file, False)
        with selectors.DefaultSelector() as selector:
            selector.register(file, selectors.EVENT_WRITE)
            while data:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise StoppedError("time", f"it did not finish within {self.seconds:g} s")
                try:
                    data = data[os.write(file, data[: 1 << 16]) :]
                except OSError:
                    self._ended()

    def _receive(self, deadline: float) -> dict[str, Any]:
        text, body = struct.unpack("<QQ", self._read(16, deadline))
        if max(text, body) > worker.MOST_RETURNED:
            raise StoppedError("ended", "the file wrote into the channel of its results")
        try:
            frame = worker.unpack(self._read(text, deadline), self._read(body, deadline))
        except worker.UnreadableError:
            frame = None
        if not isinstance(frame, dict):
            raise StoppedError("ended", "the file wrote into the channel of its results")
        return frame

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        file = self._process.stdout.fileno()
        parts: list[bytes] = []
        with selectors.DefaultSelector() as selector:
            selector.register(file, selectors.EVENT_READ)
            while size:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise StoppedError("time", f"it did not finish within {self.seconds:g} s")
                part = os.read(file, min(size, 1 << 20))
                if not part:
                    self._ended()
                parts.append(part)
                size -= len(part)
        return b"".join(parts)

    def _ended(self) -> None:
        """Say how the process ended."""
        assert self._process is not None
        try:
            status = self._process.wait(2)
        except subprocess.TimeoutExpired:
            raise StoppedError("ended", "it closed the channel of its results") from None
        if status >= 0:
            raise StoppedError("ended", f"it ended the process with status {status}")
        name = signal.Signals(-status).name
        if name == "SIGXCPU":
            raise StoppedError("time", f"it did not finish within {self.seconds:g} s")
        raise StoppedError("ended", f"the process crashed with {name}")

    def stop(self) -> None:
        """End the process with all that it started, and remove its folder."""
        process, folder = self._process, self._folder
        self._process = self._folder = None
        if process is not None:
            with contextlib.suppress(OSError, AttributeError):
                os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            process.wait()
        if folder is not None:
            with contextlib.suppress(OSError):
                folder.cleanup()


def _outcome(frame: dict[str, Any]) -> Outcome:
    if "error" in frame:
        error = "memory" if frame["error"] == "MemoryError" else str(frame["error"])
        words, line = str(frame.get("words", "")), int(frame.get("line") or 0)
        return Outcome(error=error, words=words, line=line, is_loading=frame.get("stage") == "load")
    return Outcome(frame.get("value"), wrote=tuple(frame.get("wrote") or ()))


class Local:
    """Run a function of this process: one of a notebook or a test, whose author is the user."""

    printed = ""
    call: Callable[..., Any] | None = None
    """How the function is called, if not with the arguments as they are."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.file = getattr(getattr(function, "__code__", None), "co_filename", "")
        try:
            self.source = textwrap.dedent(inspect.getsource(function))
        except (OSError, TypeError):
            self.source = ""
        if not self.source.startswith("def "):  # a lambda, a method, a decorated function: not to be changed
            self.source = ""

    def run(
        self, function: str, examples: Sequence[Any], *, ours: Sequence[str] = (), programs: Iterable[str] | None = None
    ) -> Iterator[list[Outcome]]:
        """Yield the outcomes of the function, or of `programs` that define another one of its name."""
        known = dict(getattr(self.function, "__globals__", {}))
        for text in ours:
            exec(compile(text, "<ours>", "exec"), known)
        calls: list[Callable[..., Any]] = []
        for text in programs or ():
            namespace = dict(known)
            with contextlib.suppress(Exception):
                exec(compile(text, self.file, "exec"), namespace)
            made = namespace.get(self.function.__name__)
            calls.append(made if callable(made) and made is not self.function else _broken)
        if programs is None:
            calls = [_with_globals(self.function, known) if ours else self.function]
        for call in calls:
            chosen = call if self.call is None or programs is not None else self.call
            yield [_outcome(worker.call_once(chosen, tuple(args), self.file, is_own=True)) for args in examples]


def _with_globals(function: Callable[..., Any], known: dict[str, Any]) -> Callable[..., Any]:
    """Return a function that finds other functions in the place of those it calls."""
    if not isinstance(function, FunctionType):
        return function
    made = FunctionType(function.__code__, known, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _broken(*_: Any) -> None:
    raise ValueError("this text does not run")
