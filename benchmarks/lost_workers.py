"""How long a run on several processes takes to end when a worker is killed or stopped, and whether all others name it.

    python benchmarks/lost_workers.py --repetitions 20 --workers 3

Every repetition starts `glassformer train` as several processes of this machine, waits until they train, or only until
they have met, and sends SIGKILL or SIGSTOP to one of them, each in turn. One JSON line tells what came of it; the last
one sums up. The exit code is 1 if any worker did not end within 60 s, or ended without naming the lost one.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from process_groups import Group, free_port  # noqa: E402
from runs import options, write_data  # noqa: E402

LIMIT = 60.0
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0}


def start(folder: Path, workers: int, cache: Path) -> Group:
    """Start a run that would go on for hours."""
    address, data = f"127.0.0.1:{free_port()}", write_data("lines", folder)
    settings = options("lines", batch=4 * workers, steps=10**6, eval_every=10**6)
    run = ["--data", data, *settings, "--engine", "jax", "--mesh", f"data={workers}", "--out", folder / "run"]

    def arguments(number: int) -> list:
        place = ["--coordinator", address, "--processes", workers, "--process", number]
        return ["-m", "glassformer", "train", "lines", *run, *place]

    return Group(folder, arguments, workers, JAX_PLATFORMS="cpu", JAX_COMPILATION_CACHE_DIR=cache, **QUICK)


def wait_for(path: Path, seconds: float = 300) -> None:
    """Wait until a run has written a file."""
    deadline = time.monotonic() + seconds
    while not (path.is_file() and path.stat().st_size):
        if time.monotonic() > deadline:
            sys.exit(f"{path} did not appear")
        time.sleep(0.02)


def lose(group: Group, folder: Path, victim: int, name: signal.Signals, *, early: bool) -> dict:
    """Lose one worker, at some moment; return how long the others took to end, and whether they named it."""
    wait_for(folder / "run" / ("config.json" if early else "metrics.jsonl"))
    time.sleep(random.uniform(0, 2))
    began = time.monotonic()
    group.signal(victim, name)
    others = [number for number in range(len(group.processes)) if number != victim]
    ended: list[int] = []
    while time.monotonic() - began < LIMIT and len(ended) < len(others):
        ended = [number for number in others if group.processes[number].poll() is not None]
        time.sleep(0.05)
    seconds = time.monotonic() - began
    time.sleep(0.2)
    return {
        "signal": name.name,
        "victim": victim,
        "early": early,
        "seconds": round(seconds, 2),
        "ended": len(ended) == len(others),
        "named": all(f"error: worker {victim} of " in group.said(number) for number in others),
        "left_behind": sum(process.poll() is None for process in group.processes),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="Number of the first repetition.")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--cache", type=Path, help="Folder for compiled programs (default: a temporary one).")
    arguments = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(arguments.first, arguments.first + arguments.repetitions):
            victim, name, early = number // 2 % arguments.workers, SIGNALS[number % 2], number % 8 > 5
            folder, cache = Path(scratch) / str(number), arguments.cache or Path(scratch) / "cache"
            with start(folder, arguments.workers, cache) as group:
                results.append(lose(group, folder, victim, name, early=early))
                if not (results[-1]["ended"] and results[-1]["named"]):
                    for worker in range(arguments.workers):
                        print(f"--- worker {worker}:\n{group.said(worker)}", file=sys.stderr)
            print(json.dumps(results[-1]), flush=True)
    good = sum(result["ended"] and result["named"] and not result["left_behind"] for result in results)
    slowest = max(result["seconds"] for result in results)
    print(json.dumps({"repetitions": len(results), "good": good, "slowest_seconds": slowest}))
    sys.exit(0 if good == len(results) else 1)


if __name__ == "__main__":
    main()
