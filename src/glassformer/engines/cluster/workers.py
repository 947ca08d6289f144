"""What is known about each worker, and the judgment: who, if anyone, has been lost.

dead         its connection ends without a farewell: noticed at once
silent       nothing was heard of it for `Limits.silence` seconds: it is stopped, or its machine or network is down
behind       others have gone on to a later step for `Limits.lag` seconds, and it has not: its main thread hangs
standstill   no worker has reached a new step for `Limits.standstill` seconds
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ...core.errors import ConfigError
from ...core.setting import check_range, setting_names

Number = TypeVar("Number", int, float)

PATIENCE = 3
"""A worker may be behind for this many steps' time, where that is more than the limit."""
MISSED = 0.6
"""Share of the limit on silence after which a worker counts as silent too, once another one has passed the limit."""
FADING = 0.8
"""How much of the longest step so far counts in the next: one that was compiled on the way is forgotten in time."""


@dataclass(frozen=True)
class Limits:
    """After how many seconds a worker counts as lost; GLASSFORMER_SILENCE, _LAG, _STANDSTILL and _START set them."""

    silence: float = 20.0  # nothing heard
    lag: float = 40.0  # behind the others
    standstill: float = 1800.0  # no worker in a new step
    start: float = 300.0  # for all workers to come

    def __post_init__(self) -> None:
        check_range(self, *setting_names(type(self)), above=0, hint="use a number of seconds above 0")

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Limits:
        """Read the limits that are set in the environment."""
        names = {name: f"GLASSFORMER_{name.upper()}" for name in setting_names(cls)}
        given = {own: number_in(environ, name, float, "a number of seconds above 0") for own, name in names.items()}
        return cls(**{name: seconds for name, seconds in given.items() if seconds is not None})

    def silence_at(self, step: int | None) -> float:
        """Return the limit on silence; before the first step, loading data may keep a whole process busy."""
        return self.silence if step is not None else 2 * self.silence


def number_in(environ: Mapping[str, str], name: str, kind: type[Number], what: str) -> Number | None:
    """Return a number that the environment sets; None where it does not."""
    try:
        return kind(environ[name]) if environ.get(name) else None
    except ValueError:
        raise ConfigError(f"{name} is {environ[name]!r}", hint=f"use {what}") from None


@dataclass
class Worker:
    """One process of a run, as another one knows it; times are this machine's own."""

    number: int
    host: str
    pid: int
    place: list[str] | None = None  # what tells its process from all others, see `place_of`
    heard: float = 0.0
    moved: float = 0.0  # when it was first in its present step
    behind: float | None = None  # since when others are in a later one
    step: int | None = None
    busy: str | None = None
    left: bool = False  # it has said farewell
    closed: bool = False  # its connection has ended
    failure: str | None = None
    pace: float = 0.0  # how long its steps take, the first and those with other work left out
    timed: bool = False  # the present step counts for the pace

    def take(self, message: Mapping[str, Any], now: float) -> None:
        """Note what a worker says about itself."""
        step = message.get("step")
        if step != self.step:
            if self.timed:
                self.pace = max(FADING * self.pace, now - self.moved)
            self.timed = self.step is not None  # the first step is compiled on the way
            self.step, self.moved, self.behind = step, now, None
        self.heard, self.busy = now, message.get("busy")
        self.timed = self.timed and not self.busy
        self.left = bool(message.get("left"))
        self.failure = message.get("failure")

    def introduction(self) -> list[Any]:
        """Return what others have to know of it besides its number, for a message."""
        return [self.host, self.pid, self.place]

    def name(self, total: int) -> str:
        """Return how errors call this worker."""
        return f"worker {self.number} of {total} ({self.host}, pid {self.pid})"

    def last(self) -> str:
        """Return where it was when last heard."""
        return "before its first step" if self.step is None else f"last at step {self.step:,}"

    def ended(self, total: int) -> str:
        """Say that its connection broke off."""
        return f"{self.name(total)} ended without a word ({self.last()}): it crashed or was killed"

    def unheard(self, total: int, now: float) -> str:
        """Say that it is silent."""
        return f"{self.name(total)} has not been heard of for {now - self.heard:.0f} s ({self.last()})"


class Verdict(NamedTuple):
    """The lost worker and the message about it; `silent` are workers whose processes may still run."""

    worker: int | None
    fact: str
    silent: Sequence[int] = ()
    failed: bool = False


def judge(workers: list[Worker], now: float, limits: Limits) -> Verdict | None:
    """Return the lost worker, if any: first one that reported a failure, then the dead, the silent, those behind."""
    total = len(workers)
    present = [worker for worker in workers if not worker.left]
    for worker in present:
        if worker.failure is not None:
            return Verdict(worker.number, f"{worker.name(total)} failed: {worker.failure}", failed=True)
    for worker in present:
        if worker.closed:
            return Verdict(worker.number, worker.ended(total))
    lost = _silent(workers, now, limits) or _behind(workers, now, limits)
    return lost or _standstill(present, total, now, limits)


def _silent(workers: list[Worker], now: float, limits: Limits) -> Verdict | None:
    """Find workers that are silent; where all others are, worker 0 is the one that does not hear."""
    total = len(workers)
    missed = [(now - w.heard) / limits.silence_at(w.step) if w.number and not w.left else 0.0 for w in workers]
    first = next((worker for worker, share in zip(workers, missed, strict=True) if share > 1), None)
    if first is None:
        return None
    silent = [number for number, share in enumerate(missed) if share > MISSED]
    if len(silent) == total - 1 > 1:
        fact = f"{workers[0].name(total)} has heard of no other worker for {now - first.heard:.0f} s"
        return Verdict(0, f"{fact}: is its network down?", silent)
    more = "" if len(silent) == 1 else f", nor have {len(silent) - 1} others"
    return Verdict(first.number, first.unheard(total, now) + more, silent)


def _behind(workers: list[Worker], now: float, limits: Limits) -> Verdict | None:
    """Find a worker whose main thread hangs, or that has left too early: others wait for it in a later step."""
    started = [worker for worker in workers if worker.step is not None]
    front = max((worker.step or 0 for worker in started), default=0)
    limit = max(limits.lag, PATIENCE * max((worker.pace for worker in started), default=0.0))
    for worker in started:
        if (worker.step or 0) >= front or worker.busy:
            worker.behind = None
        elif worker.behind is None:
            worker.behind = now
        elif now - worker.behind > limit:
            did = "left in" if worker.left else "has hung in"
            fact = f"{worker.name(len(workers))} {did} step {worker.step:,}, {now - worker.behind:.0f} s ago"
            return Verdict(worker.number, f"{fact}, while others wait for it in step {front:,}")
    return None


def _standstill(present: list[Worker], total: int, now: float, limits: Limits) -> Verdict | None:
    last = max((worker.moved for worker in present), default=now)
    if now - last <= limits.standstill:
        return None
    steps = ", ".join(f"worker {w.number}: {w.last()}{f', {w.busy}' if w.busy else ''}" for w in present[:8])
    return Verdict(None, f"none of the {total} workers has reached a new step for {now - last:.0f} s ({steps})")


def myself(number: int) -> Worker:
    """Return the record of this process."""
    return Worker(number, socket.gethostname(), os.getpid(), place_of(os.getpid()))


def place_of(pid: int) -> list[str] | None:
    """Return where and since when a process of this machine runs; None where the system does not tell.

    [the machine since its start, its space of process numbers, the start time of the process]
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # Its name, in parentheses, may hold anything; the start time is the 20th word after it.
        began = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
        return [boot, os.readlink("/proc/self/ns/pid"), began]
    except (OSError, IndexError):
        return None


def end_neighbor(worker: Worker) -> None:
    """Kill a silent worker if it is on this machine: stopped as it is, it cannot end by itself."""
    if worker.place is not None and worker.place == place_of(worker.pid):
        with contextlib.suppress(OSError):
            os.kill(worker.pid, signal.SIGKILL)
