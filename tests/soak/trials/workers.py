"""A worker of a training on two or four processes is killed or stopped: the others name it and end, and all go on.

What is killed is the worker or its parent; what is stopped is the worker. No process is left behind, and the run that
is resumed ends with the same bits as one that lost nobody.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import time
from pathlib import Path

from . import ROOT, forks, plans
from .clock import AwakeClock
from .forks import Child
from .trial import LateError, Trial, demand

from process_groups import free_port  # isort: skip
from runs import assert_same_run, options, write_data  # isort: skip
from xla import xla_flags  # isort: skip

STEPS = 24
SILENCE = 5
"""Seconds for each process after which one that says nothing is lost: the more there are, the longer each waits."""
START = {"GLASSFORMER_START": "60"}
END = 120.0
"""Seconds in which all must have ended, once one is lost."""
JAX = {
    "XLA_FLAGS": xla_flags(),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PLATFORMS": "cpu",
}
KINDS = ("kill, 2 processes", "stop, 2 processes") * 2 + ("kill, 4 processes", "stop, 4 processes")


@functools.cache
def _ready(shared: Path) -> None:
    """Import what forks need; JAX must not touch its devices here."""
    os.environ.update({**JAX, "JAX_COMPILATION_CACHE_DIR": str(shared / "compiled")})
    plans.load_libraries({"sharded"})
    plans.warm_up("cpu", shared.parent)  # loads what the others look up, too
    os.environ.update(JAX)


def _started(folder: Path, count: int, *arguments: object, said: str) -> list[Child]:
    """Start the same command as each of several processes."""
    environment = {**START, "GLASSFORMER_SILENCE": str(SILENCE * count), "PYTHONPATH": str(ROOT / "src")}
    place = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", count]
    return [
        forks.command(folder / f"{said}-{number}.txt", "train", *arguments, *place, "--process", number, **environment)
        for number in range(count)
    ]


def _new(shared: Path, folder: Path, count: int) -> list[Child]:
    settings = options("lines", batch=8, steps=STEPS, eval_every=STEPS, save_every=8, **plans.FEW)
    how = ["--engine", "jax", "--mesh", f"data={count}", "--out", folder / "run"]
    return _started(folder, count, "lines", "--data", shared / "lines.txt", *settings, *how, said="began")


def _succeed(children: list[Child]) -> None:
    try:
        for child in children:
            forks.succeed(child)
    finally:
        for child in children:
            child.kill()


def prepare(shared: Path) -> None:
    """Write the data."""
    write_data("lines", shared)


def _whole(shared: Path, count: int) -> Path:
    """Return the run of so many processes that nothing happens to; whoever asks for it first trains it."""
    folder = shared / str(count)
    with plans.made_once(folder) as missing:
        if missing:
            folder.mkdir()
            _succeed(_new(shared, folder, count))
    return folder / "run"


def attempt(shared: Path, own: Path, seed: int) -> None:
    """Lose one worker at a random moment, and go on with all."""
    _ready(shared)
    kind, rng = TRIAL.kind(seed), random.Random(seed)
    count, name = (2 if "2" in kind else 4), (signal.SIGKILL if "kill" in kind else signal.SIGSTOP)
    whole, run, victim = _whole(shared, count), own / "run", rng.randrange(count)
    children = _new(shared, own, count)
    try:
        step = rng.choice((0, 1, rng.randrange(STEPS), rng.randrange(STEPS)))
        forks.wait_for_step(children[0], run, step, rng)
        finished = children[victim].poll() is not None
        if name == signal.SIGKILL and rng.random() < 0.5:
            children[victim].signal(name)
        else:
            _signal_worker(children[victim], run.with_name("run.workers") / str(victim), name)
        _judge(children, victim, finished=finished)
    finally:
        for child in children:
            child.kill()
    if (run / "config.json").is_file():
        _succeed(_started(own, count, "--resume", run, said="resumed"))
    else:
        _succeed(_new(shared, own, count))
    forks.check(lambda: assert_same_run(run, whole), own / "compared.txt")


def _signal_worker(parent: Child, file: Path, name: signal.Signals) -> None:
    """Send a signal to the child of a parent, which has noted its number or is about to."""
    while not file.is_file() and parent.poll() is None:
        time.sleep(0.001)
    if parent.poll() is None:
        with contextlib.suppress(OSError, ValueError):  # it has ended just now
            os.kill(json.loads(file.read_text(encoding="utf-8"))["pid"], name)


def _judge(children: list[Child], victim: int, *, finished: bool) -> None:
    """Lose the case unless all end soon, and all others say whom they lost."""
    clock = AwakeClock()
    while left := [number for number, child in enumerate(children) if child.poll() is None]:
        if clock.passed() > END:
            raise LateError(f"worker {left[0]} did not end within {END:.0f} s after worker {victim} was lost")
        time.sleep(0.01)
    for number, child in enumerate(children):
        if number == victim or (finished and child.code == 0) or all(c.code == 0 for c in children if c.code):
            continue
        demand(child.code == 1, f"worker {number} ended with {child.code}: {forks.last_line(child.said())}")
        named = f"worker {victim} " in child.said()
        demand(named, f"worker {number} does not name worker {victim}: {forks.last_line(child.said())}")


TRIAL = Trial(
    name="workers",
    title="SIGKILL and SIGSTOP of a worker of two and four processes, then resumed",
    kinds=KINDS,
    full=100,
    quick=1,
    prepare=prepare,
    attempt=attempt,
    limit=600.0,
)
