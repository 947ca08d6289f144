"""Whatever a system does to a program: full and read-only disks, lost folders, signals, clocks, limits.

A run ends with a sentence and exit code 1, or as the signal asks; what it had saved is whole, and once the hardship is
over it goes on to the same bits as one that nothing happened to.
"""

from __future__ import annotations

import functools
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from . import disks, forks, plans
from .forks import Child
from .trial import LostError, Trial, demand

RUN = "numpy"
"""The kind of run that suffers."""
SAVED = plans.PLAN["save_every"]
FITS = 64 << 20
"""Bytes of a disk that is large enough."""
INTERRUPTED = 130
TERMINATED = 128 + signal.SIGTERM


def prepare(shared: Path) -> None:
    """Train the run once, to the end; see whether disks can be mounted."""
    plans.load_libraries({RUN})
    plans.whole(RUN, shared)
    if Child(lambda: 0 if disks.isolate() else 1, shared / "isolated.txt").wait() != 0:
        sys.stderr.write("no disks can be mounted here: files that grow too large stand in for full disks\n")
        (shared / "no-disks").touch()


@functools.cache
def _ready(shared: Path) -> None:
    plans.load_libraries({RUN})
    plans.warm_up("numpy", shared.parent)


def attempt(shared: Path, own: Path, seed: int) -> None:
    """Let a run suffer once, and recover."""
    _ready(shared)
    kind, rng = TRIAL.kind(seed), random.Random(seed)
    if kind in ("full disk", "read-only disk"):
        if not (shared / "no-disks").exists():
            suffer = _full_disk if kind == "full disk" else _read_only_disk
            forks.check(lambda: _on_disk(suffer, shared, own, seed), own / "disk.txt")
            return
        kind = "large files"
    HARDSHIPS[kind](shared, own, rng)
    _recover(shared, own / "run", own)


def _started(shared: Path, run: Path, own: Path, before: Callable[[], None] | None = None) -> Child:
    return forks.command(own / "suffered.txt", *plans.arguments(RUN, shared, run), before=before)


def _judge(child: Child, run: Path, own: Path, codes: tuple[int, ...]) -> None:
    """Lose the case unless a run ended as it should, and with what it had saved."""
    code, said = child.wait(), child.said()
    demand("Traceback" not in said, f"it printed a trace: {forks.last_line(said)}")
    demand(code in codes, f"it ended with {code}, not {' or '.join(map(str, codes))}: {forks.last_line(said)}")
    demand(code != 1 or "error: " in said, f"it said no more than {forks.last_line(said)}")
    if run.exists():
        plans.check_checkpoints(run, own)
        _check_nothing_lost(run, own, (forks.steps_in(run) - 1) // SAVED * SAVED)


def _check_nothing_lost(run: Path, own: Path, step: int) -> None:
    """Lose the case unless a run can go on from this step, or a later one."""

    def load() -> None:
        from glassformer.training import load_checkpoint

        have = load_checkpoint(run).meta["step"]
        assert have >= step, f"the latest checkpoint is of step {have}, but step {step} had been saved"

    if step > 0:
        forks.check(load, own / "latest.txt")


def _recover(shared: Path, run: Path, own: Path) -> None:
    forks.succeed(plans.go_on(RUN, shared, run, own / "recovered.txt"))
    plans.check_whole(RUN, shared, run, own)


def _on_disk(suffer: Callable[[Path, Path, Path, int], None], shared: Path, own: Path, seed: int) -> None:
    """Let a run suffer on a disk of its own, in a fork that no one else shares mounts with."""
    disk = own / "disk"
    disk.mkdir()
    demand(disks.isolate() and disks.mount(disk, FITS), "the disk could not be mounted")
    try:
        suffer(shared, disk, own, seed)
        _recover(shared, disk / "run", own)
    except LostError as error:
        sys.exit(f"error: {error}")


def _full_disk(shared: Path, disk: Path, own: Path, seed: int) -> None:
    """Fill the disk after any number of pages; the seeds go through all of them."""
    pages = 1 + seed // len(TRIAL.kinds) % 64
    disks.resize(disk, pages * disks.PAGE)
    _judge(_started(shared, disk / "run", own), disk / "run", own, (0, 1))
    disks.resize(disk, FITS)


def _read_only_disk(shared: Path, disk: Path, own: Path, seed: int) -> None:
    rng = random.Random(seed)
    child = _started(shared, disk / "run", own)
    forks.wait_for_step(child, disk / "run", plans.random_step(rng), rng)
    disks.protect(disk, read_only=True)
    _judge(child, disk / "run", own, (0, 1))
    disks.protect(disk, read_only=False)


def _vanished_folder(shared: Path, own: Path, rng: random.Random) -> None:
    """Move the folder away while the run goes on, and back when it has ended."""
    run, away = own / "run", own / "away"
    child = _started(shared, run, own)
    forks.wait_for_step(child, run, max(1, plans.random_step(rng)), rng)
    run.rename(away)
    ended = forks.steps_in(away) == plans.STEPS
    _judge(child, away, own, (0, 1) if ended else (1,))
    demand(not run.exists() or not (run / "latest.safetensors").exists(), "it went on in a folder of the same name")
    shutil.rmtree(run, ignore_errors=True)
    away.rename(run)


def _interrupted(name: signal.Signals, code: int) -> Callable[[Path, Path, random.Random], None]:
    """Send a signal on which a run saves and leaves; before it has begun there is nothing to save."""

    def suffer(shared: Path, own: Path, rng: random.Random) -> None:
        run = own / "run"
        child = _started(shared, run, own)
        forks.wait_for_step(child, run, plans.random_step(rng), rng)
        before = forks.steps_in(run)
        child.signal(name)
        child.wait()
        ended = forks.steps_in(run) == plans.STEPS  # all is saved, and the system may end it as it ends others
        _judge(child, run, own, (0, code) if before and not ended else (0, code, -name))
        if child.code == code:
            _check_nothing_lost(run, own, before - 1)

    return suffer


def _stopped(shared: Path, own: Path, rng: random.Random) -> None:
    child = _started(shared, own / "run", own)
    for _ in range(3):
        forks.wait_for_step(child, own / "run", plans.random_step(rng), rng)
        child.signal(signal.SIGSTOP)
        time.sleep(rng.uniform(0.01, 0.2))
        child.signal(signal.SIGCONT)
    _judge(child, own / "run", own, (0,))


def _clock_jumps(shared: Path, own: Path, rng: random.Random) -> None:
    """Let the clock jump by years, forward and back, while a run goes on, is killed, and waits to go on."""
    real, run = time.time, own / "run"

    def jump() -> None:
        offset = rng.choice((-1e9, 1e9, 4e9))
        time.time = lambda: max(0.0, real() + offset * (real() % 0.02 < 0.01))

    child = _started(shared, run, own, jump)
    forks.wait_for_step(child, run, plans.random_step(rng), rng)
    child.kill()
    demand(child.code in (0, -signal.SIGKILL), f"it ended with {child.code}: {forks.last_line(child.said())}")
    for path in run.rglob("*") if run.exists() else ():
        moment = rng.choice((0.0, 1e9, 4e9))
        os.utime(path, (moment, moment))


def _limited(name: int, draw: Callable[[random.Random], int]) -> Callable[[Path, Path, random.Random], None]:
    """Let the system grant a run less than it asks for."""

    def suffer(shared: Path, own: Path, rng: random.Random) -> None:
        most = draw(rng)
        child = _started(shared, own / "run", own, lambda: resource.setrlimit(name, (most, most)))
        _judge(child, own / "run", own, (0, 1))

    return suffer


def _some_memory(rng: random.Random) -> int:
    """Return little more than this process has; a fork begins with the same."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * disks.PAGE + rng.choice((1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26)) + rng.randrange(1 << 20)


HARDSHIPS: dict[str, Callable[[Path, Path, random.Random], None]] = {
    "vanished folder": _vanished_folder,
    "Ctrl-C": _interrupted(signal.SIGINT, INTERRUPTED),
    "SIGTERM": _interrupted(signal.SIGTERM, TERMINATED),
    "SIGSTOP": _stopped,
    "clock jumps": _clock_jumps,
    "large files": _limited(resource.RLIMIT_FSIZE, lambda rng: rng.randrange(3_000, 60_000)),  # what it says fits
    "open files": _limited(resource.RLIMIT_NOFILE, lambda rng: rng.randrange(3, 24)),
    "memory": _limited(resource.RLIMIT_AS, _some_memory),
}

TRIAL = Trial(
    name="hardships",
    title="full, read-only and lost disks, SIGTERM, SIGSTOP, Ctrl-C, clock jumps, low limits",
    kinds=("full disk", "read-only disk", *HARDSHIPS),
    full=640,
    quick=10,
    prepare=prepare,
    attempt=attempt,
    limit=300.0,
)
