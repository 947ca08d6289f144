"""Training on several processes, one CPU device each: the same as on one, and a common end.

`benchmarks/trials/workers.py` kills and stops workers.
"""

import json
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from cluster.training_worker import task
from glassformer.dispatch import use_engine
from glassformer.engines.jax.sharded_files import list_sharded
from glassformer.training.loop import training_steps
from glassformer.training.trainer import ReferenceTrainer
from oracles import xla_flags
from process_groups import Group, free_port

pytestmark = [pytest.mark.usefixtures("jax"), pytest.mark.timeout(900)]  # a loaded machine may take long to compile

STEPS = 12
SCRIPT = Path(__file__).with_name("training_worker.py")

QUICK = {"XLA_FLAGS": xla_flags(), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0}
"""Programs this small need no optimization, and each is compiled once for all processes and tests."""


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    QUICK["JAX_COMPILATION_CACHE_DIR"] = tmp_path_factory.mktemp("compiled")


class Workers(Group):
    """Processes that train together, with checkpoints in one folder."""

    def __init__(self, run: Path, mesh: str, count: int, *more: str, steps: int = STEPS, **settings: float) -> None:
        address = f"127.0.0.1:{free_port()}"

        def arguments(number: int) -> list:
            place = ["--coordinator", address, "--processes", count, "--process", number] if count > 1 else []
            return [SCRIPT, run, steps, mesh, *place, *more]

        super().__init__(run / f"said-{time.monotonic_ns()}", arguments, count, **QUICK, **settings)


def train(run: Path, mesh: str, count: int, *, steps: int = STEPS) -> list[float]:
    """Train to the end and return the losses, which all processes must agree on."""
    with Workers(run, mesh, count, steps=steps) as workers:
        codes = workers.codes()
        assert codes == [0] * count, [workers.said(number) for number in range(count)]
    losses = [json.loads((run / f"losses.{number}.json").read_text()) for number in range(count)]
    assert all(other == losses[0] for other in losses)
    return losses[0]


@pytest.fixture(scope="module")
def alone() -> list[float]:
    """The losses of one process, by NumPy."""
    model, recipe, data = task(STEPS)
    with use_engine("numpy"):
        trainer = ReferenceTrainer(model, recipe)
        return [record.loss for _, record in training_steps(trainer, data, trainer.first())]


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Path:
    """A run of two processes, with the checkpoints of steps 5 and 10."""
    run = tmp_path_factory.mktemp("two") / "run"
    train(run, "data=2", 2)
    return run


def losses_of(run: Path) -> list[float]:
    return json.loads((run / "losses.0.json").read_text())


def test_two_processes_have_the_losses_of_one(alone, two):
    assert len(alone) == STEPS
    np.testing.assert_allclose(losses_of(two), alone, rtol=1e-5)
    assert list_sharded(two) == [5, 10]


def test_four_processes_on_another_mesh_go_on_from_the_checkpoint_of_two(alone, two, tmp_path):
    run = Path(shutil.copytree(two, tmp_path / "run"))
    np.testing.assert_allclose(train(run, "fsdp=2,tensor=2", 4), alone[10:], rtol=1e-5)


def test_one_interrupted_worker_lets_all_stop_after_the_same_step(tmp_path):
    run = tmp_path / "run"
    with Workers(run, "data=2", 2, "--forever", steps=100_000) as workers:
        workers.wait_for("ready")
        workers.signal(1, signal.SIGINT)
        assert workers.codes() == [0, 0], [workers.said(number) for number in range(2)]
    taken = [len(json.loads((run / f"losses.{number}.json").read_text())) for number in range(2)]
    assert taken[0] == taken[1]
    assert list_sharded(run) == [taken[0]]
