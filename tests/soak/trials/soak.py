"""Training, resuming, loading and writing in turns, for long: memory and open files stay as they are."""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path

from glassformer.core.dispatch import use_engine

from . import forks  # noqa: F401  the tests' modules can be imported from now on
from .trial import Trial, demand

from runs import assert_same_run, command, tiny_session  # isort: skip

WARM = 20
"""Turns until everything is loaded and compiled, and caches are full."""
MEMORY = 32.0
"""MB that a process may grow by afterwards."""
PLAN = {"steps": 6, "eval_every": 3, "save_every": 3, "dropout": 0.1, "ema": 0.9}

_marks: list[tuple[float, int]] = []
"""What this process had after each turn: MB of memory, open files."""


def attempt(shared: Path, own: Path, seed: int) -> None:
    """Take one turn."""
    kind, rng = TRIAL.kind(seed), random.Random(seed)
    with use_engine(kind):
        _train_and_resume(own, rng)
        _write(own, rng)
    gc.collect()
    _marks.append((_memory(), len(os.listdir("/proc/self/fd"))))
    if len(_marks) <= WARM:
        return
    before, now = _marks[WARM - 1], _marks[-1]
    turns = len(_marks) - WARM
    demand(now[0] - before[0] < MEMORY, f"memory has grown by {now[0] - before[0]:.0f} MB in {turns} turns")
    demand(now[1] <= before[1], f"{now[1] - before[1]} more files are open after {turns} turns")


def _train_and_resume(own: Path, rng: random.Random) -> None:
    """Train a model, once to the end and once in two parts, which must not make a difference."""
    from glassformer.runs.start import resume_session

    task, seed = rng.choice(("majority", "lines", "sort")), rng.randrange(10**6)
    for _ in tiny_session(task, own / "whole" / "run", seed=seed, **PLAN).steps():
        pass
    for record in tiny_session(task, own / "parts" / "run", seed=seed, **PLAN).steps():
        if record.step == 4:
            break
    for _ in resume_session(own / "parts" / "run").steps():
        pass
    assert_same_run(own / "parts" / "run", own / "whole" / "run")


def _write(own: Path, rng: random.Random) -> None:
    """Let a model write, from Python and by the command, and save and load it."""
    import glassformer as gf

    for _ in tiny_session("lines", own / "text" / "run", **PLAN).steps():
        pass
    model = gf.load(gf.save(gf.load(own / "text" / "run"), own / "saved"))
    model.generate("a", max_new_tokens=8, seed=rng.randrange(100))
    result = command("generate", own / "saved", "b", "--max-new-tokens", 8, "--seed", rng.randrange(100))
    demand(result.code == 0, result.err)


def _memory() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


TRIAL = Trial(
    name="soak",
    title="training, resuming, saving, loading and writing in turns: memory and open files stay flat",
    kinds=("numpy", "cpu"),
    full=0,
    quick=0,
    prepare=lambda shared: None,
    attempt=attempt,
    limit=300.0,
    seconds=(1800.0, 1.0),
)
