"""Long work: it runs in its own thread, reports progress, and can be stopped between two of its parts."""

import contextvars
import secrets
import threading
from collections.abc import Callable
from typing import Any

from ..core.errors import ConfigError, GlassformerError
from ..core.threads import one_thread_if_busy

Work = Callable[["Job"], Any]
"""Long work: it is given its job, and returns the result."""
MOST = 32
"""Most jobs that are remembered; those that ended first are dropped first."""


class StoppedError(Exception):
    """The page asked to stop."""


class Job:
    """One piece of long work; it calls `show(done, total, note)` to report progress."""

    def __init__(self, work: Work) -> None:
        self.key = secrets.token_urlsafe(9)
        self.done, self.total, self.note = 0, 0, ""
        self.partial: Any = None
        self.result: Any = None
        self.error: dict[str, Any] | None = None
        self.ended = threading.Event()
        self.asked_to_stop = threading.Event()
        run = contextvars.copy_context().run
        self.thread = threading.Thread(target=run, args=(self._work, work), daemon=True)

    def show(self, done: int, total: int, note: str = "", partial: Any = None) -> None:
        """Report progress; raise `StoppedError` if the page asked to stop."""
        self.done, self.total, self.note = int(done), int(total), note
        if partial is not None:
            self.partial = partial
        if self.asked_to_stop.is_set():
            raise StoppedError

    def to_dict(self) -> dict[str, Any]:
        """Return progress, and the result or the error at the end."""
        facts = {"job": self.key, "done": self.done, "total": self.total, "note": self.note, "partial": self.partial}
        return {**facts, "ended": self.ended.is_set(), "result": self.result, "error": self.error}

    def _work(self, work: Work) -> None:
        try:
            with one_thread_if_busy():
                self.result = work(self)
        except StoppedError:
            self.error = {"error": "stopped", "hint": None}
        except GlassformerError as error:
            self.error = {"error": error.fact, "hint": error.hint}
        except Exception as error:  # no caller sees it: the page must
            self.error = {"error": f"{type(error).__name__}: {error}", "hint": None}
        finally:
            self.ended.set()


class Jobs:
    """All jobs of a server."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, work: Work) -> Job:
        """Begin a piece of work."""
        job = Job(work)
        with self._lock:
            over = [key for key, one in self._jobs.items() if one.ended.is_set()]
            for key in over[: max(0, len(self._jobs) - MOST + 1)]:
                del self._jobs[key]
            if len(self._jobs) >= MOST:
                raise ConfigError(f"{MOST} jobs are under way", hint="stop one of them, or wait")
            self._jobs[job.key] = job
        job.thread.start()
        return job

    def get(self, key: Any) -> Job:
        """Return a job by its key."""
        with self._lock:
            if not isinstance(key, str) or key not in self._jobs:
                raise ConfigError("there is no such job", hint="it ended long ago: begin it again")
            return self._jobs[key]

    def stop_all(self) -> None:
        """Ask all jobs to stop."""
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            job.asked_to_stop.set()
