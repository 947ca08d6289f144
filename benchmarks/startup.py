"""From the start of a process to the end of its first training step, beside its peers; and of commands that only print.

python benchmarks/startup.py            tables
python benchmarks/startup.py --json     one JSON object; --help lists the other options
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from peers.machine import best_engine, takes_part
from peers.process import ContenderError, Process, Talk
from peers.report import SECONDS, Bar, Figure, Report, compared
from peers.show import main, talk
from peers.timing import Race, race
from train_step import SETTINGS

IMPORT, FIRST, LATER = "import glassformer", "first start", "later start"
TORCH_IMPORT, TORCH = "import torch", "PyTorch eager"
JAX_IMPORT, JAX = "import jax", "JAX jit"
COMPILE_BAR, LATER_BAR = 20.0, 1.5
SETTING = "small"
NUMPY = 'python -c "import numpy"'
COMMANDS = {f"glassformer {command}": command for command in ("--help", "tasks", "params gpt2")}
COMMAND_BAR = 0.35


def bench_startup(*, peers: bool, seconds: float, talk: Talk = talk) -> Iterator[Report]:
    """Measure from the start of a process to the end of its first training step, and commands that only print."""
    yield first_steps(peers=peers, seconds=seconds, talk=talk)
    yield commands(seconds=seconds, talk=talk)


def first_steps(*, peers: bool, seconds: float, talk: Talk) -> Report:
    """Measure from the start of a process to the end of its first training step."""
    notes: list[str] = []
    setting = SETTINGS[SETTING]
    job = {**asdict(setting), "engine": best_engine()}
    wanted = [Start(IMPORT, "import_one", {"name": "glassformer"})]
    with tempfile.TemporaryDirectory() as cache:
        wanted.append(Start(LATER, "ours", job, NUMBA_CACHE_DIR=cache))
        if job["engine"] == "numpy":
            notes.append("Numba is not installed, so there are no kernels to compile: pip install numba")
        if takes_part("torch", peers=peers, notes=notes):
            wanted.append(Start(TORCH_IMPORT, "import_one", {"name": "torch"}))
            wanted.append(Start(TORCH, "torch", asdict(setting)))
        if takes_part("jax", peers=peers, notes=notes):
            wanted.append(Start(JAX_IMPORT, "import_one", {"name": "jax"}))
            wanted.append(Start(JAX, "jax", asdict(setting)))
        first = wanted[1].run(1)  # with an empty cache, which it fills
        talk("measuring: startup")
        result = race(wanted, seconds=seconds, round_seconds=0.0, talk=talk)
    return report(Race({FIRST: [first], **result.rounds}), notes, setting.words)


def report(result: Race, notes: list[str], words: str) -> Report:
    """Return the times from the start of a process, and the bars for ours."""
    bars = [
        Bar(f"{FIRST}, seconds", result.median(FIRST), COMPILE_BAR, at_most=True),
        Bar(f"{LATER}, seconds", result.median(LATER), LATER_BAR, at_most=True),
    ]
    baseline = result.fastest([TORCH, JAX]) or LATER
    steps = [name for name in (LATER, TORCH, JAX) if name in result.rounds]
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


def commands(*, seconds: float, talk: Talk) -> Report:
    """Measure commands that only print, from the start of their process to its end, beside an import of NumPy."""
    wanted = [Command(NUMPY, "-c", "import numpy")]
    wanted += [Command(name, "-m", "glassformer", *args.split()) for name, args in COMMANDS.items()]
    talk("measuring: startup/commands")
    result = race(wanted, seconds=seconds, round_seconds=0.0, talk=talk)
    return Report(
        name="startup/commands",
        title="a command that only prints, from the start of its process to its end",
        unit=SECONDS,
        ratio=f"× as fast as {NUMPY}",
        figures=compared(result, NUMPY),
        bars=[Bar(f"{name}, seconds", result.median(name), COMMAND_BAR, at_most=True) for name in COMMANDS],
        notes=["these are warm starts: files are in memory, and Python has compiled them"],
    )


class Command:
    """A contender whose every step is a process of Python that does its work and ends."""

    def __init__(self, name: str, *args: str) -> None:
        self.name, self.args = name, [sys.executable, *args]
        # Python keeps what it compiles, as on most machines, and NumPy starts as it does without us.
        unwanted = ("PYTHONDONTWRITEBYTECODE", "OPENBLAS_THREAD_TIMEOUT")
        self.environment = {name: value for name, value in os.environ.items() if name not in unwanted}

    def run(self, steps: int) -> list[float]:
        """Run it so many times, one after the other; return the seconds of each."""
        return [self._seconds() for _ in range(steps)]

    def _seconds(self) -> float:
        began = time.perf_counter()
        silent: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        result = subprocess.run(self.args, env=self.environment, check=False, text=True, errors="replace", **silent)
        seconds = time.perf_counter() - began
        if result.returncode:
            raise ContenderError(f"{self.name} ended with code {result.returncode}", hint=result.stderr.strip())
        return seconds


class Start:
    """A contender whose every step is a fresh process that does one thing."""

    def __init__(self, name: str, target: str, settings: dict[str, Any], **variables: str) -> None:
        self.name, self.variables = name, variables
        self.target, self.settings = f"peers.first_step:{target}", settings

    def run(self, steps: int) -> list[float]:
        """Start so many processes, one after the other; return the seconds each took until it was done."""
        return [self._seconds() for _ in range(steps)]

    def _seconds(self) -> float:
        began = time.perf_counter()
        with Process(self.name, self.target, self.settings, **self.variables) as process:
            process.call()
            return time.perf_counter() - began


if __name__ == "__main__":
    main(__doc__, lambda given: bench_startup(peers=given.peers, seconds=given.seconds))
