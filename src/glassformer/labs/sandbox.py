"""Who runs a learner's function: a process of its own with limits, or this one for a function of a notebook.

Both answer alike: for each program (sources that are run one after the other) and each example one `Outcome`.
"""

import ast
import contextlib
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from . import worker

SECONDS = 10.0
STARTED = 120.0
"""How long the packages that a file names may take to be imported."""
TRIAL = 2.0
"""How long a changed file may take."""
LIMITS = {"AS": 2 << 30, "FSIZE": 1 << 18, "NOFILE": 48, "CORE": 0, "NPROC": 0}
LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/dev/urandom")
"""Where the libraries of extension modules are, and their random numbers."""
PACKAGE = Path(__file__).resolve().parents[1]
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0",
    "VECLIB_MAXIMUM_THREADS": "1", "PYTHONUTF8": "1", "SYSTEMROOT": os.environ.get("SYSTEMROOT", ""),
    "MPLBACKEND": "Agg", "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "", "NUMBA_NUM_THREADS": "1",
}  # fmt: skip
FOLDERS = (
    "HOME", "TMPDIR", "TEMP", "TMP", "APPDATA", "LOCALAPPDATA", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME",
    "MPLCONFIGDIR", "NUMBA_CACHE_DIR", "TORCH_HOME", "JAX_COMPILATION_CACHE_DIR",
)  # fmt: skip
"""What libraries ask where they may write: all of it goes with the folder of the process."""


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


def _outcome(found: dict[str, Any], *, is_loading: bool = False) -> Outcome:
    error, words = (worker.clean(found.get(name, "")) for name in ("error", "words"))
    error = "memory" if error == "MemoryError" else error
    line, wrote = int(found.get("line", 0)), tuple(map(int, found.get("wrote", ())))
    return Outcome(found.get("value"), error, words, line, wrote, is_loading)


class Sandbox(contextlib.ExitStack):
    """A process that runs one learner's file. It is started when first needed and anew after it has ended.

    `close()` ends it and removes its folder.
    """

    def __init__(self, source: str, file: str, *, seconds: float = SECONDS) -> None:
        super().__init__()
        self.source, self.file, self.seconds = source, file, seconds
        self.printed = ""
        self._process: Any = None

    def run(
        self, function: str, examples: Sequence[Any], *, ours: Sequence[str] = (), programs: Iterable[str] | None = None
    ) -> Iterator[list[Outcome]]:
        """Yield the outcomes of every program: the learner's file, or `programs` instead, then `ours` on top.

        An outcome is missing where the process ended before it; the last one then says why.
        """
        request = {"function": function, "examples": [worker.dumps(tuple(args)) for args in examples]}
        for text in [self.source] if programs is None else programs:
            seconds = self.seconds if programs is None else min(self.seconds, TRIAL)
            yield self._answers({**request, "file": self.file, "sources": [text, *ours]}, seconds)

    def _answers(self, request: dict[str, Any], seconds: float) -> list[Outcome]:
        """Return what the process answers within `seconds`."""
        process, has_expired = self._started(), threading.Event()
        timer = threading.Timer(seconds, _kill, (process, has_expired))
        timer.start()
        outcomes: list[Outcome] = []
        printed = ""
        try:
            process.stdin.write(worker.dumps(request).encode() + b"\n")
            process.stdin.flush()
            for number in range(1 + len(request["examples"])):
                line = process.stdout.readline(worker.LONGEST)
                if not line.endswith(b"\n") and len(line) < worker.LONGEST:
                    raise EOFError
                frame = worker.loads(line)
                if frame["number"] != number:
                    raise ValueError("this line is not the next one")
                outcomes.append(_outcome(frame, is_loading=number == 0))
                printed = worker.clean(frame["printed"])
                if outcomes[0].error:
                    break
        except (OSError, EOFError):
            error, words = self._ended(has_expired.is_set())
            outcomes.append(Outcome(error=error, words=words, is_loading=not outcomes))
        except Exception:  # whatever a line holds that is none of ours
            words = "the file wrote into the channel of its results"
            outcomes.append(Outcome(error="ended", words=words, is_loading=not outcomes))
            self.close()
        finally:
            timer.cancel()
            timer.join()
            if has_expired.is_set():  # perhaps after the last answer
                self.close()
            self.printed = self.printed or printed
        return outcomes if outcomes[0].error else outcomes[1:]

    def _started(self) -> Any:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        folder = os.path.realpath(self.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        path = [place for place in sys.path if place and place != os.getcwd()]
        places = {*path, sys.prefix, sys.base_prefix, sys.exec_prefix, *LIBRARIES}
        limits = {**LIMITS, "CPU": 10 + int(20 * self.seconds)}  # in case the parent dies and cannot end it
        readable = sorted(map(os.path.realpath, places))
        setup = {"folder": folder, "readable": readable, "hidden": str(PACKAGE), "limits": limits,
                 "modules": _packages(self.source)}  # fmt: skip
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-s", "-B", worker.__file__, json.dumps(setup)], cwd=folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**ENVIRONMENT, **dict.fromkeys(FOLDERS, folder), "PYTHONPATH": os.pathsep.join(path)},
        )  # fmt: skip
        self.callback(_end, self._process)
        timer = threading.Timer(STARTED, _kill, (self._process,))
        timer.start()
        self._process.stdout.readline()  # it is ready: from here on the time is the learner's
        timer.cancel()
        return self._process

    def _ended(self, has_expired: bool) -> tuple[str, str]:
        """End the process, and say how it ended by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
        status = self._process.returncode
        self.close()
        if has_expired:
            return "time", f"it did not finish within {self.seconds:g} s"
        if status is None:
            return "ended", "it closed the channel of its results"
        if status >= 0:
            return "ended", f"it ended the process with status {status}"
        return "ended", f"the process crashed: {signal.strsignal(-status)}"


def _packages(source: str) -> list[str]:
    """Return the modules of prepared packages that a file names in its imports."""
    names: list[str] = []
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                names += [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names += [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
    return [name for name in dict.fromkeys(names) if name.partition(".")[0] in worker.WARM_UPS]


def _kill(process: Any, has_expired: threading.Event | None = None) -> None:
    if has_expired is not None:
        has_expired.set()
    if process.poll() is None:
        with contextlib.suppress(OSError, AttributeError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()


def _end(process: Any) -> None:
    _kill(process)
    with contextlib.suppress(OSError), process:  # which closes its pipes and waits
        pass


class Local:
    """Run a function of this process: one of a notebook or a test, whose author is the user."""

    printed = ""
    call: Callable[..., Any] | None = None
    """How the function is called, if not with the arguments as they are."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.file = getattr(getattr(function, "__code__", None), "co_filename", "")
        self.source = ""
        with contextlib.suppress(OSError, TypeError):
            source = textwrap.dedent(inspect.getsource(function))
            self.source = source if source.startswith("def ") else ""  # others (a lambda, a method) cannot be changed

    def run(
        self, function: str, examples: Sequence[Any], *, ours: Sequence[str] = (), programs: Iterable[str] | None = None
    ) -> Iterator[list[Outcome]]:
        """Yield the outcomes of the function, or of `programs` that define another one of its name."""
        given, caught = [worker.dumps(tuple(args)) for args in examples], (Exception, SystemExit)
        for text in [None] if programs is None else programs:
            call = self._made(text, ours)
            yield [_outcome(worker.call_once(call, args, self.file, caught)) for args in given]

    def _made(self, text: str | None, ours: Sequence[str]) -> Any:
        """Return the function, with `ours` in the place of those it calls; or what a text defines by its name."""
        function, known, made = self.function, dict(getattr(self.function, "__globals__", {})), None
        with contextlib.suppress(Exception):
            made = worker.load([text or "", *ours], getattr(function, "__name__", ""), self.file, known)
        if text is not None:
            return None if made is function else made  # to call None is an error like others
        if self.call is not None or not ours or not isinstance(function, FunctionType):
            return self.call or function
        made = FunctionType(function.__code__, known, function.__name__, function.__defaults__, function.__closure__)
        made.__kwdefaults__ = function.__kwdefaults__
        return made
