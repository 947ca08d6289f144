"""Kill a training run with signal 9 again and again, and print what became of it, as JSON.

    python forks.py FOLDER KILLS STEPS SEED OPTION…

STEPS is how many a whole run takes.

Python, the library and its kernels are loaded once; every attempt is a fork that runs the real command and is killed
at a random moment.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from glassformer.cli import main
from glassformer.training import all_finite, list_checkpoints, load_checkpoint


def attempt(args, until):
    """Run the command in a fork and kill it when `until` returns; return its exit code, or None if it was killed."""
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what it says goes to stderr alone
        sys.argv = ["glassformer", "train", *args]
        code = 1
        try:
            main()
            code = 0
        except SystemExit as leave:
            code = leave.code or 0
        finally:
            os._exit(code)
    if until is not None:
        until()
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return None if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)


def warm_up(base, options):
    """Run the command here first: what it loads, every fork finds ready."""
    sys.argv = ["glassformer", "train", "majority", "--out", str(Path(base) / "first"), *options]
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
        main()


def steps_of(folder):
    """Load every checkpoint, which fails if one is damaged; return the step of the latest."""
    found = {name: load_checkpoint(folder, name) for name in list_checkpoints(folder)}
    assert all(all_finite(checkpoint.arrays) for checkpoint in found.values())
    return found["latest"].meta["step"] if "latest" in found else 0


def random_moment(folder, steps, rng):
    """Return a function that waits until the run has got a random number of steps further, and a little longer."""
    goal, rest = min(steps_of(folder) + rng.randrange(25), steps), rng.uniform(0.0, 0.03)
    metrics = folder / "metrics.jsonl"

    def wait():
        end = time.monotonic() + 30  # on a busy machine, whatever the run is doing then
        while time.monotonic() < end and (not metrics.is_file() or metrics.read_bytes().count(b"\n") < goal):
            time.sleep(0.001)
        time.sleep(rest)

    return wait


def cycle(base, kills, steps, seed, options):
    """Kill and resume until so many were killed; finish every run that was begun."""
    warm_up(base, options)
    rng = random.Random(seed)
    runs, reached, done = [], [], 0
    while done < kills:
        folder = Path(base) / f"run-{len(runs)}"
        runs.append(str(folder))
        code = None
        while code is None:
            started = (folder / "config.json").is_file()
            args = ["--resume", str(folder)] if started else ["majority", "--out", str(folder), *options]
            spared = done >= kills or steps_of(folder) == steps
            code = attempt(args, None if spared else random_moment(folder, steps, rng))
            done += code is None
            reached.append(steps_of(folder))
        assert code == 0, f"the command ended with {code}"
    return {"runs": runs, "kills": done, "reached": reached}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(cycle(sys.argv[1], *map(int, sys.argv[2:5]), sys.argv[5:])))
