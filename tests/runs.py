"""Small training runs, commands, and how two runs are compared: bit for bit."""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from glassformer.core.tree import flatten
from glassformer.runs.run import open_run
from glassformer.runs.session import TrainingSession
from glassformer.runs.start import new_session
from glassformer.training import load_checkpoint

TINY_MODEL = {"width": 8, "heads": 2, "feed_forward": 16, "layers": 1}
_FEW = {**TINY_MODEL, "train": 40, "validation": 8, "held_out": 8, "batch": 8}
TINY: dict[str, dict[str, Any]] = {
    "majority": {**TINY_MODEL, "train": 48, "held_out": 24, "batch": 8},
    "counting": {"batch": 2},
    "copy": {**TINY_MODEL, "train": 40, "held_out": 8, "batch": 8},
    "reverse": {**TINY_MODEL, "train": 40, "held_out": 8, "batch": 8},
    "sort": {**TINY_MODEL, "held_out": 40, "batch": 8},
    "addition": {**TINY_MODEL, "digits": 1, "held_out": 8, "batch": 8},
    "multiplication": {**TINY_MODEL, "digits": 1, "validation": 8, "held_out": 8, "batch": 8},
    "modular": {**TINY_MODEL, "modulus": 7, "batch": 8},
    "induction": {**_FEW, "longest": 4},
    "parity": {**_FEW, "bits": 8},
    "brackets": {**_FEW, "longest": 8},
    "regression": {**_FEW, "points": 3},
    "dates": {**TINY_MODEL, "encoder_layers": 1, "train": 40, "held_out_each": 4, "locales": ["en", "de"], "batch": 8},
    "text": {**TINY_MODEL, "context": 16, "batch": 4},
    "lines": {**TINY_MODEL, "batch": 8},
    "pairs": {**TINY_MODEL, "encoder_layers": 1, "batch": 8},
    "classify": {**TINY_MODEL, "tokenizer": "bytes", "batch": 8},
}
"""Settings that make each task small enough for a test."""

NAMES = "ada bob carla dora emil fritz gregory hugo ida jonathan karl lea mona nils ole pia quentin rosa sam tom"
PROSE = "The quick brown fox jumps over the lazy dog. " * 12


def write_data(task: str, folder: Path) -> str | None:
    """Write a small file for the tasks that read one; return its path."""
    names = NAMES.split()
    pairs = "\n".join(f"{name}\t{name[::-1]}" for name in names)
    labels = "text,label\n" + "\n".join(f"{name},{len(name) % 2}" for name in names)
    contents = {"lines.txt": "\n".join(names), "text.txt": PROSE, "pairs.tsv": pairs, "classify.csv": labels}
    file = next((file for file in contents if file.startswith(f"{task}.")), None)
    if file is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    path.write_text(contents[file], encoding="utf-8")
    return str(path)


def tiny_session(task: str, folder: Path, *, seed: int = 0, **settings: Any) -> TrainingSession:
    """Start a small run in `folder`; what it reads stands beside it."""
    return new_session(
        task, folder, data=write_data(task, folder.parent / "data"), settings={**TINY[task], **settings}, seed=seed
    )


def finish(session: TrainingSession) -> TrainingSession:
    """Take all steps that a run has left."""
    for _ in session.steps():
        pass
    return session


def edit_config(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change config.json of a run, and leave out its checksum, as older versions did."""
    path = folder / "config.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content.pop("sha256", None)
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def options(task: str, **settings: Any) -> list[str]:
    """Return the same small settings as options of the command line."""
    pairs = {**TINY[task], **settings}
    return [part for name, value in pairs.items() for part in ("--set", f"{name}={json.dumps(value)}")]


def assert_same_bits(have: Any, want: Any) -> None:
    """Refuse trees that differ in a name, a type, a shape or a bit."""
    have, want = flatten(have), flatten(want)
    assert have.keys() == want.keys()
    for name, array in want.items():
        a, b = np.asarray(have[name]), np.asarray(array)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes()), f"{name} differs"


def are_same(have: Any, want: Any) -> bool:
    """Tell whether two trees agree in every bit."""
    have, want = flatten(have), flatten(want)
    return have.keys() == want.keys() and all(have[name].tobytes() == want[name].tobytes() for name in want)


def untimed(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics of a run without the time that its steps took."""
    return [{k: v for k, v in line.items() if k != "seconds"} for line in open_run(folder).metrics()]


def assert_same_run(have: Path, want: Path) -> None:
    """Refuse run folders that differ in weights, optimizer, averages, best parameters, counters or metrics."""
    for name in ("latest", "best"):
        a, b = load_checkpoint(have, name), load_checkpoint(want, name)
        assert_same_bits(a.arrays, b.arrays)
        assert a.meta == b.meta
    assert untimed(have) == untimed(want)


class Result(NamedTuple):
    code: int
    out: str
    err: str


def command(*args: Any) -> Result:
    """Run `glassformer …` in this process."""
    from glassformer.cli import main

    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["glassformer", *map(str, args)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 1 if leave.code else 0
    finally:
        sys.argv = before
    return Result(code, out.getvalue(), err.getvalue())


def process(*args: Any, **settings: Any) -> subprocess.Popen:
    """Start `glassformer …` as a process of its own, its output in pipes."""
    environment = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "NO_COLOR")}
    return subprocess.Popen(
        [sys.executable, "-m", "glassformer", *map(str, args)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, **settings.pop("env", {})},
        **settings,
    )


def finished(running: subprocess.Popen) -> Result:
    """Wait for a process and return what it said."""
    out, err = running.communicate(timeout=120)
    return Result(running.returncode, out, err)


def small_demo(monkeypatch: Any) -> None:
    """Let `glassformer demo` train three small models for two steps, and prove some gradients."""
    from glassformer.cli import demo
    from glassformer.proofs import op_cases, prove

    parts = {name: {**TINY[name], **more} for name, more in (("majority", {}), ("text", {"context": 64}))}
    parts["dates"] = {**TINY["dates"], "locales": demo.LANGUAGES, "positions": "rotary"}
    monkeypatch.setattr(demo, "PARTS", {name: {**part, "steps": 2, "eval_every": 1} for name, part in parts.items()})
    some = [case for case in op_cases() if case.name.partition(",")[0] in ("linear", "softmax", "layer_norm")]
    monkeypatch.setattr(demo, "prove_all", lambda progress: prove(some))
