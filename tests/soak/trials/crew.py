"""Processes that try the cases of one trial side by side; one that dies or hangs loses its case and is replaced.

A case that was late is tried again when all others are done, by one process alone: it is lost if it is late once more.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import resource
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .clock import PATIENCE, AwakeClock
from .trial import Loss, Tally, Trial

GRACE = 10.0
"""Seconds beyond the patience with a case after which its process is ended from outside."""
START = 1800.0
"""Seconds in which a trial must be prepared; the kernels of the engine cpu may have to be compiled first."""
COMMAND = [sys.executable, str(Path(__file__).parent.with_name("campaign.py")), "--work"]
"""Starts a process that tries cases, given the name of the trial and its folder."""


class Member:
    """One process, and the case that it tries at the moment."""

    def __init__(self, trial: Trial, folder: Path, number: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        command = [*COMMAND, trial.name, str(folder)]
        self.trial = trial
        self.log = folder / f"worker-{number}.txt"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1
            )
        self.seed: int | None = None
        self.ready = False
        self.clock, self.most = AwakeClock(), START

    def give(self, seed: int) -> None:
        """Let it try a case."""
        self.seed, self.clock, self.most = seed, AwakeClock(), PATIENCE * self.trial.limit + GRACE
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, and is found so
            self.process.stdin.write(f"{seed}\n")

    def end(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                stream.close()

    def last_words(self) -> str:
        """Return the end of what it wrote to stderr."""
        lines = self.log.read_text(errors="replace").splitlines()
        return lines[-1][:200] if lines else "it said nothing"


class Crew:
    """All processes of a trial."""

    def __init__(self, trial: Trial, folder: Path, size: int, told: Callable[[Tally], None]) -> None:
        self.trial, self.folder, self.told = trial, folder, told
        self.tally = Tally(trial)
        self.numbers = itertools.count()
        self.selector = selectors.DefaultSelector()
        self.members: list[Member] = []
        self.missing = 0 if trial.alone else size - 1
        self.late: list[int] = []
        self.begun = self.again = False

    def run(self, seeds: Iterator[int], *, until: float | None = None) -> Tally:
        """Try all seeds, or as many as fit into the time until then, and at least one."""
        began, used = time.monotonic(), _processor_time()
        try:
            self._try(seeds, until)
            if self.late:
                self.again, self.missing = True, 0
                self._try(iter(self.late), None)
        finally:
            for member in self.members:
                member.end()
        self.tally.seconds, self.tally.processor = time.monotonic() - began, _processor_time() - used
        return self.tally

    def _try(self, seeds: Iterator[int], until: float | None) -> None:
        self._hire()  # it prepares the trial for those who come later
        while self.members:
            for member in [member for member in self.members if member.ready and member.seed is None]:
                over = self.begun and until is not None and time.monotonic() > until
                seed = None if over else next(seeds, None)
                if seed is None:
                    self._dismiss(member)
                else:
                    self.begun = True
                    member.give(seed)
            if self.members:
                self._listen()
                self._end_late()

    def _hire(self) -> None:
        member = Member(self.trial, self.folder, next(self.numbers))
        self.members.append(member)
        self.selector.register(member.process.stdout, selectors.EVENT_READ, member)

    def _complete(self) -> None:
        """Hire the others, once."""
        for _ in range(self.missing):
            self._hire()
        self.missing = 0

    def _dismiss(self, member: Member) -> None:
        self.selector.unregister(member.process.stdout)
        self.members.remove(member)
        member.end()

    def _listen(self) -> None:
        for key, _ in self.selector.select(timeout=1.0):
            member = key.data
            line = member.process.stdout.readline()
            if not line:
                self._replace(member, f"its process ended with {member.process.wait()}: {member.last_words()}")
            elif not member.ready:
                member.ready = True
                self._complete()
            else:
                answer = json.loads(line)
                self._count(answer["seed"], answer["lost"], late=answer["late"])
                member.seed = None

    def _end_late(self) -> None:
        for member in [member for member in self.members if member.clock.passed() > member.most]:
            if not member.ready or member.seed is not None:
                self._replace(member, f"it hung for more than {member.most:.0f} s", late=True)

    def _replace(self, member: Member, reason: str, *, late: bool = False) -> None:
        if not member.ready:
            raise SystemExit(f"error: {self.trial.name} could not be prepared: {reason}")
        self._dismiss(member)
        if member.seed is not None:
            self._count(member.seed, reason, late=late)
        self._hire()

    def _count(self, seed: int, reason: str | None, *, late: bool) -> None:
        if late and not self.again:
            self.late.append(seed)
            self.tally.again.append(Loss(seed, self.trial.kind(seed), str(reason)))
            return
        self.tally.add(seed, reason)
        self.told(self.tally)


def _processor_time() -> float:
    """Return the seconds of one core that all processes so far have taken."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
