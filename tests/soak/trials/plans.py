"""Small runs of every kind, as commands: what the trials interrupt, starve and compare."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import forks
from .trial import demand

# The tests have small settings for every task, and compare runs bit for bit.
from runs import assert_same_run, options, write_data  # isort: skip
from xla import xla_flags  # isort: skip

STEPS = 40
PLAN = {"steps": STEPS, "save_every": 5, "eval_every": 10, "ema": 0.9}
FEW = {"norm": "rms", "attention_bias": False, "feed_forward_bias": False}
"""Settings of a model of fewer arrays, each of which takes its time to compile."""
SHARDED = {
    "XLA_FLAGS": xla_flags(xla_force_host_platform_device_count=8),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
}

ENGINES = {"cpu": "cpu", "numpy": "numpy", "lora": "numpy", "tokens": "numpy", "sharded": "jax"}
"""The kinds of runs, and who computes each."""


def environment(kind: str, shared: Path) -> dict[str, str]:
    """Return what the command of a kind finds in its environment."""
    return {**SHARDED, "JAX_COMPILATION_CACHE_DIR": str(shared / "compiled")} if kind == "sharded" else {}


def arguments(kind: str, shared: Path, run: Path) -> list[Any]:
    """Return the command that trains a small run of a kind."""
    how = ["--engine", ENGINES[kind], "--out", run]
    lines = ["lines", "--data", shared / "lines.txt"]
    if kind == "lora":
        tuned = [f"--set={name}={value}" for name, value in {**PLAN, "batch": 4}.items()]
        return ["train", *lines, *tuned, "--from", shared / "base", "--lora", *how]
    if kind == "tokens":
        return ["train", "text", "--data", shared / "corpus.bin", *options("text", **PLAN), *how]
    if kind == "sharded":
        return ["train", *lines, *options("lines", **FEW, **PLAN), "--mesh", "data=2,fsdp=4", *how]
    return ["train", "majority", *options("majority", dropout=0.1, **PLAN), *how]


def prepare(shared: Path) -> None:
    """Write what runs read."""
    write_data("lines", shared)
    corpus = write_data("text", shared)
    forks.succeed(forks.command(shared / "tokens.txt", "tokens", corpus, "--out", shared / "corpus.bin"))
    settings = options("lines", steps=5, eval_every=5)
    base = ["train", "lines", "--data", shared / "lines.txt", *settings, "--engine", "numpy"]
    forks.succeed(forks.command(shared / "base.txt", *base, "--out", shared / "base"))


def whole(kind: str, shared: Path) -> Path:
    """Return the run of a kind that nothing happens to; whoever asks for it first trains it."""
    run = shared / kind
    with made_once(run) as missing:
        if missing:
            log = shared / f"{kind}.txt"
            forks.succeed(forks.command(log, *arguments(kind, shared, run), **environment(kind, shared)))
            demand(forks.steps_in(run) == STEPS, f"the run {kind} did not take its steps")
    return run


@contextlib.contextmanager
def made_once(folder: Path) -> Iterator[bool]:
    """Let one process make a folder while the others wait; gives whether it has to be made here."""
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder.with_name(f"{folder.name}.done")
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
        yield not done.exists()
        done.touch()


def load_libraries(kinds: set[str]) -> None:
    """Load in this process what forks need; JAX is only imported: once it has devices, it cannot be forked."""
    import glassformer.cli.train
    import glassformer.plots
    import glassformer.runs.session  # noqa: F401

    if "sharded" in kinds:
        os.environ.update(SHARDED)
        import jax  # noqa: F401
        import orbax.checkpoint  # noqa: F401


def warm_up(engine: str, folder: Path) -> None:
    """Train a few steps in this process: libraries, fonts and the engine's kernels are then ready in every fork."""
    from runs import command

    settings = options("majority", dropout=0.1, **{**PLAN, "steps": 2})
    result = command("train", "majority", *settings, "--engine", engine, "--out", folder / f"warm-{os.getpid()}")
    demand(result.code == 0, result.err)


def go_on(kind: str, shared: Path, run: Path, log: Path, **settings: Any) -> forks.Child:
    """Resume a run, or begin it where it was lost before it had begun."""
    again = ["train", "--resume", run] if (run / "config.json").is_file() else arguments(kind, shared, run)
    return forks.command(log, *again, **environment(kind, shared), **settings)


def check_whole(kind: str, shared: Path, run: Path, own: Path) -> None:
    """Lose the case unless a run is, bit for bit, the one that nothing happened to, and nothing else lies around."""
    expected = whole(kind, shared)

    def compare() -> None:
        assert_same_run(run, expected)
        left = [path.name for path in run.rglob("*.partial*")]
        assert not left, f"{left} was left behind"

    forks.check(compare, own / "compared.txt")


def check_checkpoints(run: Path, own: Path) -> None:
    """Lose the case if any checkpoint of a run is damaged."""

    def load_all() -> None:
        from glassformer.training import all_finite, list_checkpoints, load_checkpoint

        for name in list_checkpoints(run):
            assert all_finite(load_checkpoint(run, name).arrays)

    forks.check(load_all, own / "checked.txt")


def random_step(rng: random.Random) -> int:
    """Return a step to interrupt a run after; often the first ones, where folders and files are made."""
    return rng.choice([0, 0, 1, rng.randrange(STEPS), rng.randrange(STEPS), rng.randrange(STEPS)])
