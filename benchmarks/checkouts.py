"""Compare the speed of two checkouts of Glassformer, in turns within one run.

    git worktree add ../before REVISION
    python benchmarks/checkouts.py ../before [ROW …] [--rounds N] [--busy N]

Every row is done by two processes, one with each checkout's source, which take turns; the figure is the median of the
ratios of neighboring turns, with their quartiles. Above 1 this checkout is faster. With --busy, so many other processes
keep a core busy each.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
SIZES = {
    "tiny": {"layers": 1, "width": 32, "heads": 4, "length": 8, "batch": 32, "vocab": 32},
    "small": {"layers": 4, "width": 128, "heads": 4, "length": 64, "batch": 12, "vocab": 65},
    "medium": {"layers": 6, "width": 384, "heads": 6, "length": 256, "batch": 4, "vocab": 65},
}
WRITING = {
    "token": {"preset": "gpt2", "layers": 4, "width": 64, "heads": 4, "vocab": 256, "weights": "float32", "new": 256},
    "gpt2": {"preset": "gpt2", "weights": "float32", "new": 32},
    "gpt2-int8": {"preset": "gpt2", "weights": "int8", "new": 32},
    "smollm2": {"weights": None, "new": 32},
}
"""Rows of generation; smollm2 is read from the file that `glassformer pull smollm2` fetches."""
START = """
import numpy as np, glassformer as gf
model = gf.build("tiny-decoder")
tokens = np.array([[5, 3, 8, 3]])
model.loss_and_grads(model.init(0), gf.Batch(tokens, tokens))
"""
FIRST = """
import json, sys
try:
    from peers.first_step import ours
except ImportError:  # a checkout whose contenders stand in the package
    from glassformer.bench.first_step import ours
ours(engine="cpu", **json.loads(sys.argv[1]))
"""
STARTS = {"import": "import glassformer", "start": START, "first": FIRST}
"""Rows of fresh processes: an import, gradients by kernels that are kept, and a training step without any such."""
TURNS = {"tiny": 300, "small": 10, "medium": 1, "attention": 1, **dict.fromkeys([*STARTS, *WRITING], 1)}
"""How often a row is done in one turn."""

WORKER = """
import glassformer  # before NumPy: it sets how long the threads of BLAS wait for work
import json, sys, time
from importlib import import_module
def contenders(name):
    try:
        return import_module("peers." + name)
    except ImportError:  # a checkout whose contenders stand in the package
        return import_module("glassformer.bench." + name)
job = json.loads(sys.argv[1])
row = job["row"]
if row in job["sizes"]:
    made = contenders("steps").Ours(engine="cpu", **job["sizes"][row])
    act = made.advance
elif row in job["writing"]:
    writers = contenders("writers")
    try:
        from glassformer.weights.catalog import resolve
    except ImportError:  # a checkout in which the catalog had another name
        from glassformer.weights.registry import resolve
    own = job["writing"][row]
    weights, new, preset = own.pop("weights"), own.pop("new"), own.pop("preset", None)
    if preset:
        writers.write_model(folder=job["folder"], preset=preset, changes=own)
    path = job["folder"] if preset else str(resolve(row))
    made = writers.Ours(path=path, engine="cpu", weights=weights, prompt=list(range(20, 36)), new=new)
    act = made.step
else:
    made = contenders("attention_steps").Ours(way="tiled", engine="cpu", lengths=[2048], heads=4, channels=64)
    act = made.step
for _ in range(3):
    act()
print("ready", flush=True)
for line in sys.stdin:
    began = time.perf_counter()
    for _ in range(int(line)):
        act()
    print((time.perf_counter() - began) / int(line), flush=True)
"""


class Contender:
    """One checkout doing one row."""

    def __init__(self, checkout: Path, row: str) -> None:
        paths = os.pathsep.join(str(checkout / folder) for folder in ("src", "benchmarks"))
        self.environment = {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
        self.row = row
        if row in STARTS:
            if row != "first":
                self.turn()
            return
        self.folder = tempfile.TemporaryDirectory()
        job = json.dumps({"row": row, "sizes": SIZES, "writing": WRITING, "folder": f"{self.folder.name}/model"})
        command = [sys.executable, "-c", WORKER, job]
        pipe: Any = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=self.environment
        )
        if self.process.stdout.readline().strip() != "ready":
            sys.exit(f"error: {checkout} cannot do the row {row}")

    def turn(self) -> float:
        """Return the seconds of one repetition."""
        if self.row in STARTS:
            command = [sys.executable, "-c", STARTS[self.row], json.dumps(SIZES["small"])]
            with tempfile.TemporaryDirectory() as empty:
                own = {"NUMBA_CACHE_DIR": empty} if self.row == "first" else {}
                began = time.perf_counter()
                subprocess.run(command, env={**self.environment, **own}, check=True, capture_output=True)
                return time.perf_counter() - began
        self.process.stdin.write(f"{TURNS[self.row]}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def end(self) -> None:
        """Let the process go."""
        if self.row not in STARTS:
            self.process.stdin.close()
            self.process.wait()
            self.folder.cleanup()


def main() -> None:
    """Print one line for each row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the checkout to compare with")
    parser.add_argument("rows", nargs="*", default=list(TURNS), help=f"of {', '.join(TURNS)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--busy", type=int, default=0, help="processes that compute something else meanwhile")
    given = parser.parse_args()
    if not (given.before / "src" / "glassformer").is_dir() or set(given.rows) - TURNS.keys():
        parser.error(f"there is no checkout {given.before}, or no row of these: {given.rows}")
    beside = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(given.busy)]
    try:
        compare(given)
    finally:
        for process in beside:
            process.kill()


def compare(given: argparse.Namespace) -> None:
    """Let both checkouts take turns in each row."""
    for row in given.rows:
        old, new = Contender(given.before.resolve(), row), Contender(HERE, row)
        pairs = [(old.turn(), new.turn()) for _ in range(given.rounds)]
        old.end()
        new.end()
        low, middle, high = statistics.quantiles([before / after for before, after in pairs], n=4)
        times = [f"{1e3 * statistics.median(column):.2f} ms" for column in zip(*pairs, strict=True)]
        print(f"{row:12} before {times[0]:>11}   now {times[1]:>11}   {middle:.3f} × ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
