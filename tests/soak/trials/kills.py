"""SIGKILL at a random moment of a training: what was saved is whole, and what is resumed ends with the same bits."""

from __future__ import annotations

import functools
import random
import signal
from pathlib import Path

from . import forks, plans
from .trial import Trial, demand

KINDS = ("cpu", "numpy", "lora", "tokens", "cpu", "numpy", "lora", "tokens", "numpy", "sharded")


def prepare(shared: Path) -> None:
    """Write what the runs read."""
    plans.load_libraries(set())
    plans.prepare(shared)


@functools.cache
def _ready(shared: Path) -> None:
    plans.warm_up("cpu", shared.parent)


def attempt(shared: Path, own: Path, seed: int) -> None:
    """Kill one run, twice where it began, look at its checkpoints, resume it, and compare it with the whole one."""
    kind, rng = TRIAL.kind(seed), random.Random(seed)
    _ready(shared)
    plans.load_libraries({kind})
    run = own / "run"
    for number in range(1 + rng.randrange(2)):
        _kill(kind, shared, run, own / f"killed-{number}.txt", rng)
        plans.check_checkpoints(run, own)
    forks.succeed(plans.go_on(kind, shared, run, own / "resumed.txt"))
    plans.check_whole(kind, shared, run, own)


def _kill(kind: str, shared: Path, run: Path, log: Path, rng: random.Random) -> None:
    """Start or resume a run, and kill it at a random moment; one that ended before is left as it is."""
    child = plans.go_on(kind, shared, run, log)
    forks.wait_for_step(child, run, max(forks.steps_in(run), plans.random_step(rng)), rng)
    child.kill()
    demand(child.code in (0, -signal.SIGKILL), f"a run ended with {child.code}: {forks.last_line(child.said())}")


TRIAL = Trial(
    name="kills",
    title="SIGKILL at random moments of training: cpu, numpy, LoRA, token files, 8 devices",
    kinds=KINDS,
    full=200,
    quick=4,
    prepare=prepare,
    attempt=attempt,
    limit=300.0,
)
