"""A parent process for each worker of a run on many machines: it says in one sentence who was lost.

JAX's processes watch each other. When one is lost, the others break off with an error of the network, or abort in
native code with a trace that names a number at best. The parent outlives its child, passes on what the child writes,
but for that trace, and keeps a file in a folder that all workers see:

    RUN.workers/1    host, process number and versions of worker 1; touched every second; at the end, why it ended

A worker whose file is missing did not start; one whose file is no longer touched is gone.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ...core.errors import ClusterError, GlassformerError
from ...core.files import explained, write_text
from .launch import PARENT, Cluster, limit

TICK, BEAT = 0.1, 1.0
"""Seconds between looks at the child, and between touches of its file."""
GRACE = 3.0
"""Seconds in which the rest of what a child wrote is read, and beyond the limit on silence for one that is stopped."""
FOLLOWED = "ended after another"
"""The note of a worker that ended because another one was lost."""
ALIKE = "start all workers with the same command and the same versions, numbered 0, 1, …"
AGAIN = "start all workers again"
_FATAL = re.compile(rb"F\d{4} .*distributed")
_NOISE = re.compile(
    rb"[IWE]\d{4} .* (coordination_|preemption_)\w+\.(cc|h):|Additional GRPC|:UNKNOWN:|The tasks have crashed"
)


class Roll:
    """The files of all workers; this parent writes the one of its own child."""

    def __init__(self, folder: Path, cluster: Cluster, pid: int) -> None:
        self.number, self.total, self.stale = cluster.process, cluster.processes, 0.6 * limit("SILENCE")
        self.files = [folder / str(number) for number in range(self.total)]
        versions = [f"{package} {_version(package)}" for package in ("glassformer", "jax", "jaxlib")]
        runs = f"{', '.join(versions)}, as one of {self.total} workers"
        self.own = {"host": socket.gethostname(), "pid": pid, "runs": runs, "ended": None}
        with explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self.note(None)
        self.began = self._read(self.number)[0]

    def note(self, ended: str | None) -> None:
        """Write why this worker ended; None: it runs."""
        write_text(self.files[self.number], json.dumps(self.own | {"ended": ended}))

    def touch(self) -> float:
        """Show that this worker runs, and return when, by the clock of the storage; refuse another of its number."""
        with contextlib.suppress(OSError):
            os.utime(self.files[self.number])
        now, there = self._read(self.number)
        if there and there != self.own:
            fact = f"two workers have the number {self.number}: the other one is on {there['host']}, pid {there['pid']}"
            raise ClusterError(fact, hint=ALIKE)
        return now

    def leave(self) -> None:
        """Remove this worker's file, and the folder after the last one."""
        with contextlib.suppress(OSError):
            self.files[self.number].unlink(missing_ok=True)
            self.files[self.number].parent.rmdir()

    def check_alike(self) -> None:
        """Refuse workers of other versions, or of another number of workers."""
        for number in range(self.total):
            there = self._read(number)[1] or self.own
            if there["runs"] != self.own["runs"]:
                fact = f"worker {number} runs {there['runs']}; worker {self.number} {self.own['runs']}"
                raise ClusterError(fact, hint=ALIKE)

    def failed_to_start(self) -> str:
        """Return a sentence on the workers that have ended since this one began."""
        others = [(number, *self._read(number)) for number in range(self.total) if number != self.number]
        ended = [(number, there.get("ended")) for number, touched, there in others if touched >= self.began]
        return "; ".join(f"{self.name(number)} {why}" for number, why in ended if why and why != FOLLOWED)

    def lost(self, *, joined: bool) -> str:
        """Return a sentence on the workers that are gone, empty where all are there; not all have once `joined`."""
        absent, ended, silent, now = [], [], [], self.touch()
        for number in set(range(self.total)) - {self.number}:
            touched, there = self._read(number)
            if not there or (not joined and touched < self.began - self.stale):
                absent.append(str(number))
            elif there["ended"]:
                ended += [f"{self.name(number)} {there['ended']}"] if there["ended"] != FOLLOWED else []
            elif touched < now - self.stale:
                silent.append(f"{self.name(number)} has not been heard of for {now - touched:.0f} s")
        if absent and not joined:
            some = ", ".join(absent[:8]) + (", …" if len(absent) > 8 else "")
            noun = "worker" if len(absent) == 1 else "workers"
            return f"{noun} {some} of {self.total} did not start within {limit('START'):.0f} s"
        return "; ".join((ended + silent)[:8])

    def name(self, number: int) -> str:
        """Return how errors call a worker."""
        there = self._read(number)[1]
        return f"worker {number} of {self.total}" + (f" ({there['host']}, pid {there['pid']})" if there else "")

    def _read(self, number: int) -> tuple[float, dict[str, Any]]:
        """Return when a file was last touched, and its content; network storage looks anew when a file is opened."""
        try:
            with self.files[number].open(encoding="utf-8") as file:
                return os.fstat(file.fileno()).st_mtime, json.load(file)
        except (OSError, ValueError):
            return 0.0, {}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "from a folder"


def supervise(command: Sequence[str], cluster: Cluster, folder: Path) -> int:
    """Run a command as one worker of a cluster and return its exit code; an error says who was lost.

    folder   for the files of all workers, on storage that they share
    """
    ours, theirs = socket.socketpair()
    settings: dict[str, Any] = {"env": os.environ | {PARENT: str(theirs.fileno())}, "pass_fds": [theirs.fileno()]}
    # In a session of its own, Ctrl-C at the terminal reaches it once: from here.
    child = subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True, **settings)
    theirs.close()
    try:
        with ours, _forwarded(child) as came:
            return _Parent(child, ours, Roll(folder, cluster, child.pid)).run(came)
    finally:
        if child.returncode is None:
            child.kill()
            child.wait()


@contextlib.contextmanager
def _forwarded(child: subprocess.Popen[bytes]) -> Iterator[set[int]]:
    """Hand Ctrl-C, SIGTERM and SIGHUP down to the child; yield the set of those that came."""
    came: set[int] = set()

    def forward(number: int, _: object) -> None:
        came.add(number)
        with contextlib.suppress(OSError):
            os.kill(child.pid, number)

    with contextlib.ExitStack() as stack:
        for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if threading.current_thread() is threading.main_thread() and signal.getsignal(name) != signal.SIG_IGN:
                stack.callback(signal.signal, name, signal.signal(name, forward))
        yield came


class _Parent:
    """One parent and its child."""

    def __init__(self, child: subprocess.Popen[bytes], connection: socket.socket, roll: Roll) -> None:
        self.child, self.connection, self.roll = child, connection, roll
        self.told: list[str] = []  # by the child, see `launch.Workers.tell`
        self.trace: list[bytes] = []  # what native code writes before it aborts the child
        self.error = ""  # the last error of the child's own
        connection.setblocking(False)

    def run(self, came: set[int]) -> int:
        """Wait until the child ends; return its exit code, or say who was lost."""
        reader = threading.Thread(target=self._pass_on, daemon=True)
        reader.start()
        lost = self._wait()
        reader.join(0.0 if lost else GRACE)
        self._hear()
        code = self.child.returncode
        if not lost and self.trace:
            deadline = time.monotonic() + limit("SILENCE")
            while not (lost := self.roll.lost(joined="joined" in self.told)) and time.monotonic() < deadline:
                time.sleep(TICK)
        if lost:
            self.roll.note(FOLLOWED)
            raise self._error(lost)
        _write(b"".join(self.trace))
        if "left" in self.told:
            self.roll.leave()
        elif code >= 0 or -code in came:
            self.roll.note(f"failed: {self.error}" if self.error else f"ended with code {code}")
        if code < 0 and -code not in came:
            raise self._ended(f"was ended by {signal.Signals(-code).name}")
        return code if code >= 0 else 128 - code

    def _wait(self) -> str:
        """Wait until the child has ended, or until it is known that others are lost, and return who."""
        stopped, beat = None, 0.0
        while True:
            pid, status = os.waitpid(self.child.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            now = time.monotonic()
            if pid and (os.WIFEXITED(status) or os.WIFSIGNALED(status)):
                self.child.returncode = os.waitstatus_to_exitcode(status)
                return ""
            if pid:
                stopped = now if os.WIFSTOPPED(status) else None
            if stopped is not None and now > stopped + limit("SILENCE") + GRACE:
                raise self._ended(f"was stopped by a signal for {now - stopped:.0f} s")
            if stopped is None and now > beat + BEAT:
                beat = now
                self.roll.touch()
                if "joined" not in self.told and (lost := self.roll.failed_to_start()):
                    return lost
            if "joined" in self._hear():
                self.roll.check_alike()
            if "broken" in self.told and (lost := self.roll.lost(joined="joined" in self.told)):
                return lost
            time.sleep(TICK)

    def _hear(self) -> list[str]:
        """Return what the child has told since."""
        new: list[str] = []
        with contextlib.suppress(OSError):
            new = self.connection.recv(1 << 16).decode().splitlines()
        self.told += new
        return new

    def _pass_on(self) -> None:
        """Pass on what the child writes, up to a trace of native code that JAX ends it with."""
        for line in self.child.stderr or ():
            if line.startswith(b"error: "):
                self.error = line[7:].decode(errors="replace").strip()
            if self.trace or _FATAL.match(line):
                self.trace.append(line)
            elif not _NOISE.match(line):
                _write(line)

    def _ended(self, why: str) -> GlassformerError:
        """Return the error for the own child, and let the others know."""
        self.roll.note(why)
        return self._error(f"{self.roll.name(self.roll.number)} {why}")

    def _error(self, fact: str) -> GlassformerError:
        commands = [words[7:] for words in self.told if words.startswith("resume ")]
        resumed = (
            f"; `{commands[-1]}` continues from the last checkpoint" if commands else ", once their machines are well"
        )
        return ClusterError(fact, hint=AGAIN + resumed)


def _write(words: bytes) -> None:
    """Write to stderr; where nobody reads it, the child still must not wait."""
    with contextlib.suppress(OSError):
        os.write(2, words)
