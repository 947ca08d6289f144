"""`glassformer bench startup`: how long fresh processes take to import, to compile, and to a first training step."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from .machine import is_here, missing
from .process import Process, Talk
from .report import SECONDS, Bar, Figure, Report
from .timing import Race, race
from .train import SETTINGS

IMPORT, FIRST, LATER = "import glassformer", "first start", "later start"
TORCH_IMPORT, TORCH = "import torch", "PyTorch eager"
COMPILE_BAR, LATER_BAR = 20.0, 1.5
SETTING = "small"


def bench_startup(*, peers: bool, seconds: float, talk: Talk = lambda text: None) -> Iterator[Report]:
    """Measure from the start of a process to the end of its first training step."""
    notes: list[str] = []
    setting = SETTINGS[SETTING]
    job = {**asdict(setting), "engine": "cpu" if is_here("numba") else "numpy"}
    wanted = [Start(IMPORT, "import_one", {"name": "glassformer"})]
    with tempfile.TemporaryDirectory() as cache:
        if is_here("numba"):
            wanted.append(Start(LATER, "ours", job, NUMBA_CACHE_DIR=cache))
        else:
            notes.append("Numba is not installed, so there are no kernels to compile: pip install numba")
            wanted.append(Start(LATER, "ours", job))
        if peers and is_here("torch"):
            wanted.append(Start(TORCH_IMPORT, "import_one", {"name": "torch"}))
            wanted.append(Start(TORCH, "torch", asdict(setting)))
        elif peers:
            notes.append(missing("torch"))
        first = wanted[1].run(1)  # with an empty cache, which it fills
        talk("measuring: startup")
        result = race(wanted, seconds=seconds, round_seconds=0.0, talk=talk)
    yield report(Race({FIRST: [first], **result.rounds}), notes, setting.words)


def report(result: Race, notes: list[str], words: str) -> Report:
    """Return the times from the start of a process, and the bars for ours."""
    bars = [
        Bar(f"{FIRST}, seconds", result.median(FIRST), COMPILE_BAR, at_most=True),
        Bar(f"{LATER}, seconds", result.median(LATER), LATER_BAR, at_most=True),
    ]
    baseline = TORCH if TORCH in result.rounds else LATER
    steps = [name for name in (LATER, TORCH) if name in result.rounds]
    ratios = {name: result.times_faster(name, baseline) for name in steps}
    return Report(
        name="startup",
        title=f"from the start of a process to the end of a first training step: {words}",
        unit=SECONDS,
        ratio=f"× as fast as {baseline}",
        figures=[Figure(name, result.seconds(name), ratios.get(name)) for name in result.rounds],
        bars=bars,
        notes=[*notes, "times include the start of Python; those of an import end with the import"],
    )


class Start:
    """A contender whose every step is a fresh process that does one thing."""

    def __init__(self, name: str, target: str, settings: dict[str, Any], **variables: str) -> None:
        self.name, self.settings, self.variables = name, settings, variables
        self.target = f"{__package__}.first_step:{target}"

    def run(self, steps: int) -> list[float]:
        """Start so many processes, one after the other; return the seconds each took until it was done."""
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            with Process(self.name, self.target, self.settings, **self.variables) as process:
                process.call()
                seconds.append(time.perf_counter() - began)
        return seconds
