"""Training on several processes, of one CPU device or more: the same as on one, and a common end.

`tests/soak/trials/workers.py` kills and stops workers.
"""

import json
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from devices import Forks
from engines.cluster.training_worker import task
from glassformer.core.dispatch import use_engine
from glassformer.engines.jax.sharded_checkpoint import list_sharded, remove_sharded, sharded_path
from glassformer.training.loop import training_steps
from glassformer.training.trainer import Trainer
from process_groups import free_port
from xla import xla_flags

pytestmark = [pytest.mark.usefixtures("jax"), pytest.mark.timeout(900)]  # a loaded machine may take long to compile

STEPS = 12
COUNT = 2
SCRIPT = Path(__file__).with_name("training_worker.py")


class Workers(Forks):
    """Processes that train together, with checkpoints in one folder."""

    def __init__(self, run: Path, mesh: str, *more: str, devices: int) -> None:
        address = f"127.0.0.1:{free_port()}"

        def arguments(number: int) -> list:
            place = ["--coordinator", address, "--processes", COUNT, "--process", number]
            return [SCRIPT, run, STEPS, mesh, *place, *more]

        flags = xla_flags(xla_force_host_platform_device_count=devices)
        super().__init__(run / f"said-{time.monotonic_ns()}", arguments, COUNT, XLA_FLAGS=flags)

    def check_end(self) -> None:
        """Wait until all have ended well."""
        assert set(self.codes()) == {0}, [self.said(number) for number in range(len(self.files))]


def losses_of(run: Path) -> list[float]:
    """Return the losses of a run, which all processes must agree on."""
    losses = [json.loads((run / f"losses.{number}.json").read_text()) for number in range(COUNT)]
    assert all(other == losses[0] for other in losses)
    return losses[0]


@pytest.fixture(scope="module")
def alone() -> list[float]:
    """The losses of one process, by NumPy."""
    model, recipe, data = task()
    with use_engine("numpy"):
        trainer = Trainer(model, recipe)
        steps = training_steps(trainer, data, trainer.first())
        return [next(steps)[1].loss for _ in range(STEPS)]


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Path:
    """A run of two processes, one of which was interrupted after step 12."""
    run = tmp_path_factory.mktemp("two") / "run"
    with Workers(run, "data=2", "--forever", devices=1) as workers:
        workers.wait_for("ready")
        workers.signal(1, signal.SIGINT)
        workers.check_end()
    return run


def test_two_processes_have_the_losses_of_one_and_stop_after_the_same_step(alone, two):
    np.testing.assert_allclose(losses_of(two)[:STEPS], alone, rtol=1e-5)
    taken = len(losses_of(two))
    assert taken >= STEPS
    assert list_sharded(two) == [10, taken]  # the last two are kept


def test_twice_as_many_devices_on_another_mesh_go_on_from_a_checkpoint(alone, two, tmp_path):
    run = Path(shutil.copytree(two, tmp_path / "run"))
    remove_sharded(sharded_path(run, list_sharded(run)[-1]))
    with Workers(run, "fsdp=2,tensor=2", devices=2) as workers:
        workers.check_end()
    np.testing.assert_allclose(losses_of(run), alone[10:], rtol=1e-5)
