"""A loop of one's own in Python against the session of the command, in turns; also beside a busy core.

    python benchmarks/python_loop.py                 # both sizes, 20 seconds each
    python benchmarks/python_loop.py --seconds 60

command   the session that `glassformer train` runs, with its folder and its metrics file, and nothing on the screen
loop      for record in gf.Loop(…)
by hand   model.loss_and_grads and an optimizer under gf.training.suitable_threads: every array in one's own hands

The last column is the time of a loop's step by that of the command's, the middle of all rounds.
"""

import argparse
import contextlib
import itertools
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import glassformer as gf
from glassformer.runs.start import new_session
from peers.timing import race

SIZES = {
    "majority": {"task": "majority", "settings": {}},
    "text": {"task": "text", "settings": {"batch": 12}},
}
MANY = 1_000_000
"""More steps than are ever taken, so that none is followed by an evaluation."""


class Steps:
    """Steps of a training that starts anew in each turn; what comes before the first step is not counted."""

    def __init__(self, name, begin):
        self.name, self.begin = name, begin

    def run(self, steps):
        taken = iter(self.begin())
        next(taken)
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            next(taken)
            seconds.append(time.perf_counter() - began)
        taken.close()
        return seconds


def command(task, settings, folder, numbers):
    """Yield after every step of the command's session."""
    run = Path(folder) / str(next(numbers))
    yield from new_session(task, run, settings={**settings, "steps": MANY, "eval_every": MANY}).steps()


def loop(task, settings):
    """Yield after every step of a loop in Python."""
    yield from gf.Loop(task, steps=MANY, eval_every=MANY, **settings)


def by_hand(task, settings):
    """Yield after every step that is written out."""
    trained = gf.Loop(task, steps=1, **settings)
    data, recipe, model = trained.session.task.train, trained.session.run.recipe, trained.session.model
    params, optimizer = model.init(0), recipe.build_optimizer()
    state = optimizer.init(params)
    with gf.training.suitable_threads(model.config, recipe.batch):
        for step in itertools.count():
            loss, grads = model.loss_and_grads(params, data.batch(step, recipe.batch, 0))
            params, state = optimizer.update(params, grads, state, lr=1e-3)
            yield loss


def contenders(task, settings, folder):
    """Return who takes turns."""
    begins = {"command": partial(command, folder=folder, numbers=itertools.count()), "loop": loop, "by hand": by_hand}
    return [Steps(name, partial(begin, task, settings)) for name, begin in begins.items()]


@contextlib.contextmanager
def busy_core():
    """Keep one core busy with something else."""
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        spinning.kill()
        spinning.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="for each row")
    seconds = parser.parse_args().seconds
    print(f"{'':28} {'command':>10} {'loop':>10} {'by hand':>10} {'loop by command':>22}")
    for name, size in SIZES.items():
        for beside, where in ((contextlib.nullcontext(), "alone"), (busy_core(), "beside a busy core")):
            with tempfile.TemporaryDirectory() as folder, beside:
                result = race(contenders(folder=folder, **size), seconds=seconds)
            times = [f"{1e3 * result.median(one):7.2f} ms" for one in ("command", "loop", "by hand")]
            ratio = result.times_faster("command", "loop")  # steps of the command while the loop takes one
            spread = f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
            print(f"{name + ', ' + where:28} {times[0]:>10} {times[1]:>10} {times[2]:>10} {spread:>22}", flush=True)


if __name__ == "__main__":
    main()
