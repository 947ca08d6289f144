"""How long a run on several processes takes to end when a worker is killed or stopped, and whether all others name it.

    python benchmarks/lost_workers.py --repetitions 20 --workers 3

Every repetition starts the workers on this machine, waits until they train, or only until they have met, and
sends SIGKILL or SIGSTOP to one of them, each in turn. One JSON line tells what came of it; the last one sums up. The
exit code is 1 if any worker did not end within 60 s, or ended without naming the lost one.
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

LIMIT = 60.0
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0}


def start(folder: Path, workers: int, cache: Path) -> Group:
    """Start a run that would go on forever."""
    address = f"127.0.0.1:{free_port()}"

    def arguments(number: int) -> list:
        place = ["--coordinator", address, "--processes", workers, "--process", number]
        return [ROOT / "tests/parallel/training_worker.py", folder, 1_000_000, f"data={workers}", *place, "--forever"]

    return Group(folder, arguments, workers, JAX_PLATFORMS="cpu", JAX_COMPILATION_CACHE_DIR=cache, **QUICK)


def lose(group: Group, victim: int, name: signal.Signals, *, early: bool) -> dict:
    """Lose one worker, at some moment; return how long the others took to end, and whether they named it."""
    if early:
        group.wait_for("met", 300)
        time.sleep(random.uniform(0, 8))
    else:
        group.wait_for("ready", 300)
        time.sleep(random.uniform(0, 2))
    began = time.monotonic()
    group.signal(victim, name)
    others = [number for number in range(len(group.processes)) if number != victim]
    ended = []
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
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(options.first, options.first + options.repetitions):
            victim, name, early = number // 2 % options.workers, SIGNALS[number % 2], number % 8 > 5
            with start(Path(scratch) / str(number), options.workers, options.cache or Path(scratch) / "cache") as group:
                results.append(lose(group, victim, name, early=early))
                if not (results[-1]["ended"] and results[-1]["named"]):
                    for worker in range(options.workers):
                        print(f"--- worker {worker}:\n{group.said(worker)}", file=sys.stderr)
            print(json.dumps(results[-1]), flush=True)
    good = sum(result["ended"] and result["named"] and not result["left_behind"] for result in results)
    slowest = max(result["seconds"] for result in results)
    print(json.dumps({"repetitions": len(results), "good": good, "slowest_seconds": slowest}))
    sys.exit(0 if good == len(results) else 1)


if __name__ == "__main__":
    main()
