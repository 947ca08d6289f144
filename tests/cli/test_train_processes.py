"""`glassformer train` on two processes: the losses of one.

What is trained is of one's own, in a file that reaches every process. `benchmarks/trials/workers.py` kills and stops
workers of such runs, and resumes them.
"""

import json
import time
from pathlib import Path

import numpy as np
import pytest

from process_groups import Group, free_port
from runs import options, untimed, write_data

pytestmark = [pytest.mark.usefixtures("jax"), pytest.mark.timeout(900)]  # a loaded machine may take long to compile

STEPS = 40
OWN = """
import glassformer as gf

gf.register_activation("square", lambda x: (x * x, x), lambda dy, x: 2 * x * dy)


@gf.task
def names(*, seed=0, data=None):
    return gf.data.build_task("lines", seed=seed, data=data)
"""
"""A task and an activation of one's own: each process reads the file, and again when the run goes on."""
QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0}
"""Programs this small need no optimization, and each is compiled once for all processes."""


class Commands(Group):
    """The same command, as each of several processes."""

    def __init__(self, folder: Path, count: int, *arguments: str) -> None:
        place = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", count] if count > 1 else []

        def command(number: int) -> list:
            return ["-m", "glassformer", "train", *arguments, *place, *(["--process", number] if place else [])]

        super().__init__(folder / f"said-{time.monotonic_ns()}", command, count, **QUICK)

    def succeed(self) -> None:
        codes = self.codes()
        assert codes == [0] * len(codes), [self.said(number) for number in range(len(codes))]


def started(folder: Path, count: int) -> Commands:
    """Start a new run in folder/run, of a task of one's own."""
    data = write_data("lines", folder)
    (folder / "own.py").write_text(OWN, encoding="utf-8")
    settings = options("lines", activation="square", steps=STEPS, eval_every=20, save_every=4)
    place = ["--engine", "jax", "--mesh", f"data={count}", "--out", folder / "run", "--json"]
    return Commands(folder, count, "--task", folder / "own.py", "--data", data, *settings, *place)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Path:
    base = tmp_path_factory.mktemp("processes")
    QUICK["JAX_COMPILATION_CACHE_DIR"] = base / "compiled"
    return base


@pytest.fixture(scope="module")
def whole(base) -> Path:
    """A run of two processes that nothing happened to."""
    with started(base / "whole", 2) as commands:
        commands.succeed()
        first, second = commands.said(0), commands.said(1)
    summary = json.loads(first.splitlines()[-1])
    assert (summary["task"], summary["steps"]) == ("names", STEPS)
    assert "{" not in second  # one tells for all
    return base / "whole" / "run"


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in untimed(run)]


def test_two_processes_have_the_losses_of_one(base, whole):
    with started(base / "alone", 1) as commands:
        commands.succeed()
    assert len(losses(whole)) == STEPS
    np.testing.assert_allclose(losses(whole), losses(base / "alone" / "run"), rtol=1e-4)
