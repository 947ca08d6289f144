"""Train on a token file of 4 GB beside one of 40 MB: memory does not grow with the file, and no step stalls.

    python benchmarks/large_corpus.py            a table; needs 7 GB of disk, and takes some minutes
    python benchmarks/large_corpus.py --quick    400 MB beside 40 MB
    python benchmarks/large_corpus.py --json     one JSON object per row

A text that a model can learn, in which each symbol is a small random step from the one before, is encoded by
`data.write_tokens` in a temporary folder. Each file is trained on by a session in a fresh process, after the system was
told to forget what it holds of the file. Memory is what no file backs, sampled after every step; the system may take
back the rest whenever it likes. The exit status is 1 if the largest file takes 5 % more memory than the smallest, if a
step takes over a second, or if the loss is not below that of a guess.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

MEGABYTE = 10**6
SMALL, QUICK, LARGE = 40 * MEGABYTE, 400 * MEGABYTE, 4000 * MEGABYTE
SYMBOLS, PIECE = 64, 16 * MEGABYTE
STEPS, WARM, WINDOW = 600, 100, 200
SETTINGS = {"steps": STEPS, "eval_every": 200, "width": 64, "layers": 2, "context": 64}
MOST_GROWTH, LONGEST = 1.05, 1.0
HEADS = (
    ("token file", 12), ("written in", 12), ("opened in", 11), ("steps/s", 9), ("at the end", 12), ("longest", 9),
    ("memory", 9),
)  # fmt: skip


def write_text(path: Path, size: int) -> None:
    """Write so many symbols, each one, two or three after the last: 1.1 of 4.2 nats are left to chance."""
    rng, last = np.random.default_rng(0), 0
    with path.open("wb") as file:
        for start in range(0, size, PIECE):
            moves = rng.integers(1, 4, size=min(PIECE, size - start), dtype=np.int64)
            symbols = (last + np.cumsum(moves)) % SYMBOLS
            last = int(symbols[-1])
            file.write((symbols + 32).astype(np.uint8).tobytes())  # from the space on: all are ASCII


def written(folder: Path, size: int) -> dict[str, Any]:
    """Write a token file of so many bytes, two for each token; return its path, and what writing took."""
    from glassformer.data import write_tokens
    from glassformer.text.symbols import CharTokenizer

    text, path = folder / "text.txt", folder / f"{size}.tokens"
    write_text(text, size // 2)
    began = time.perf_counter()
    tokens = write_tokens(text, path, CharTokenizer([chr(32 + number) for number in range(SYMBOLS)]))
    seconds = time.perf_counter() - began
    text.unlink()
    return {
        "bytes": 2 * len(tokens.ids),
        "path": str(path),
        "writing": round(seconds, 1),
        "writing_memory": anonymous(),
    }


def trained(path: Path) -> dict[str, Any]:
    """Train on a token file; return the speed at the start and the end, the longest step, and memory."""
    from glassformer.runs.start import new_session

    with path.open("rb") as file:
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began = time.perf_counter()
    session = new_session("text", path.with_suffix(".run"), data=str(path), settings=dict(SETTINGS))
    opened, times, memory, losses = time.perf_counter() - began, [], [], []
    last = time.perf_counter()
    for record in session.steps():
        now = time.perf_counter()
        times.append((now - last, record.evaluation is not None))
        losses.append(record.loss)
        memory.append(anonymous())
        last = time.perf_counter()
    plain = [seconds for seconds, evaluated in times[WARM:] if not evaluated]
    return {
        "opening": round(opened, 2),
        "steps_per_second_early": round(1 / statistics.median(plain[:WINDOW]), 1),
        "steps_per_second_late": round(1 / statistics.median(plain[-WINDOW:]), 1),
        "longest_step": round(max(plain), 3),
        "longest_evaluation": round(max(seconds for seconds, evaluated in times[WARM:] if evaluated), 3),
        "peak_anonymous_bytes": max(memory),
        "loss": round(statistics.fmean(losses[-50:]), 3),
    }


def anonymous() -> int:
    """Return the bytes that this process holds and no file backs."""
    found = re.search(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE)
    assert found, "Linux tells it"
    return int(found[1]) * 1024


def row(folder: Path, size: int) -> dict[str, Any]:
    """Write a file and train on it, each in a process of its own; remove the file."""
    made = _in_process("written", folder, size)
    found = made | _in_process("trained", Path(made["path"]), 0)
    path = Path(found.pop("path"))
    path.unlink()
    shutil.rmtree(path.with_suffix(".run"))
    return found


def _in_process(name: str, path: Path, size: int) -> Any:
    command = [sys.executable, __file__, "--do", name, str(path), str(size)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def faults(rows: list[dict[str, Any]]) -> list[str]:
    """Say what is not as it should be."""
    found, growth = [], rows[-1]["peak_anonymous_bytes"] / rows[0]["peak_anonymous_bytes"]
    if growth > MOST_GROWTH:
        found.append(f"the largest file takes {growth:.2f} times the memory of the smallest")
    for each in rows:
        if each["longest_step"] > LONGEST:
            found.append(f"a step on {each['bytes'] / MEGABYTE:,.0f} MB took {each['longest_step']} s")
        if each["loss"] > math.log(SYMBOLS) / 2:
            found.append(f"the loss after {STEPS} steps is {each['loss']}, and a guess has {math.log(SYMBOLS):.2f}")
    return found


def main() -> int:
    """Measure every file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object per row")
    parser.add_argument("--quick", action="store_true", help="a smaller file")
    parser.add_argument("--do", nargs=3, metavar=("WHAT", "PATH", "SIZE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.do:
        what, path, size = given.do
        print(json.dumps(written(Path(path), int(size)) if what == "written" else trained(Path(path))))
        return 0
    if not Path("/proc/self/status").exists():
        print("this system does not tell what memory no file backs: run it on Linux", file=sys.stderr)
        return 1
    rows = []
    if not given.json:
        print("".join(f"{head:>{width}}" for head, width in HEADS))
    with tempfile.TemporaryDirectory() as folder:
        row(Path(folder), SMALL)  # compiles what the others find compiled: a compiler's memory is not that of training
        for size in (SMALL, QUICK if given.quick else LARGE):
            rows.append(row(Path(folder), size))
            print(json.dumps(rows[-1]) if given.json else _line(rows[-1]), flush=True)
    wrong = faults(rows)
    for fact in wrong:
        print(fact, file=sys.stderr)
    return int(bool(wrong))


def _line(each: dict[str, Any]) -> str:
    cells = (
        f"{each['bytes'] / MEGABYTE:,.0f} MB",
        f"{each['writing']:.1f} s",
        f"{each['opening']:.2f} s",
        f"{each['steps_per_second_early']:.0f}",
        f"{each['steps_per_second_late']:.0f}",
        f"{1000 * each['longest_step']:.0f} ms",
        f"{each['peak_anonymous_bytes'] / MEGABYTE:.0f} MB",
    )
    return "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, HEADS, strict=True))


if __name__ == "__main__":
    sys.exit(main())
