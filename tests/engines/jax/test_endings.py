"""How runs of the engine jax end before their last step, and what several processes must agree on before the first."""

import contextlib
import json

import numpy as np
import pytest

from glassformer.cli import train as command_line
from glassformer.core.errors import CheckpointError, ConfigError, DataError
from glassformer.core.execution import Execution, MeshShape
from glassformer.engines.cluster import collective
from glassformer.engines.jax.trainer import JaxTrainer
from glassformer.runs import run, session, start
from glassformer.runs.start import new_session, resume_session
from glassformer.training import load_checkpoint
from glassformer.training.interruption import Stopped
from runs import NAMES, TINY, command, options, tiny_session, untimed, write_data

pytestmark = pytest.mark.usefixtures("jax", "unseen_figures")


@pytest.fixture
def train(tmp_path):
    """Return a function that trains a small model under jax in `tmp_path/run`."""
    data = write_data("lines", tmp_path)

    def trained(**settings):
        settings = options("lines", **{"steps": 30, "eval_every": 20, **settings})
        place = ["--engine", "jax", "--mesh", "data=1", "--out", tmp_path / "run", "--json"]
        return command("train", "lines", "--data", data, *settings, *place)

    return trained


def test_a_run_that_diverges_says_so_and_keeps_the_weights_of_its_last_good_step(train, tmp_path):
    result = train(lr=1e38, optimizer="sgd", clip=None)
    assert result.code == 1
    assert "error: the last 10 steps were refused" in result.err
    arrays, meta = load_checkpoint(tmp_path / "run")
    good = sum("refused" not in line for line in untimed(tmp_path / "run"))
    assert (meta["step"], meta["refused"]) == (good + 9, 9)
    assert all(np.isfinite(array).all() for array in arrays.values())


def test_a_first_step_that_is_broken_off_can_be_taken_again(train, tmp_path, monkeypatch):
    def broken_off(self, *args, **settings):
        real(self, *args, **settings)  # which uses up the memory of the state
        raise KeyboardInterrupt

    real = JaxTrainer.step
    with monkeypatch.context() as patch:
        patch.setattr(JaxTrainer, "step", broken_off)
        result = train(steps=2)
    assert result.code == 130
    assert "interrupted after step 0" in result.err
    again = resume_session(tmp_path / "run")
    assert again.state.step == 0
    assert not again.trainer.is_donated(again.state)


class Interrupted:
    """A session of one of two processes that ends with this error."""

    def __init__(self, session, error):
        self.run, self.task, self.state, self.workers = session.run, session.task, session.state, session.workers
        self.metrics, self.stopped_early = session.metrics, session.stopped_early
        self.error, self.saved = error, 0

    def steps(self):
        raise self.error
        yield

    def save(self):
        self.saved += 1


@pytest.mark.parametrize(
    ("error", "by_ctrl_c", "code"), [(KeyboardInterrupt, True, None), (Stopped, True, 130), (Stopped, False, 143)]
)
def test_processes_save_together_or_not_at_all(tmp_path, monkeypatch, error, by_ctrl_c, code):
    monkeypatch.setattr(command_line, "total", lambda: 2)
    session = Interrupted(tiny_session("lines", tmp_path / "run"), error)
    session.workers.interrupted = by_ctrl_c
    with pytest.raises((KeyboardInterrupt, command_line.click.exceptions.Exit)) as caught:
        command_line.run_session(session)
    assert session.saved == (code is not None)
    assert getattr(caught.value, "exit_code", None) == code


@contextlib.contextmanager
def second(_):
    """Be the second process, after the first one has done its part."""
    yield False


@pytest.fixture
def join(tmp_path, monkeypatch):
    """Return a function that joins, as the second process, the run that the first one has made."""

    def joined(data=None, **settings):
        data = data or write_data("lines", tmp_path / "data")
        settings = {**TINY["lines"], "steps": 2, **settings}
        return new_session("lines", tmp_path / "run", data=data, settings=settings, execution=Execution())

    joined()
    monkeypatch.setattr(start, "first_before_others", second)
    monkeypatch.setattr(collective, "PATIENCE", 0.1)
    return joined


def test_a_worker_joins_the_run_that_the_first_one_made_with_the_same_vocabulary(join, tmp_path):
    elsewhere = write_data("lines", tmp_path / "another place")
    assert join(elsewhere).run == run.open_run(tmp_path / "run")
    other = tmp_path / "other.txt"
    other.write_text(NAMES.upper().replace(" ", "\n"))
    with pytest.raises(ConfigError, match=r"started with (model\.vocab|tokenizer)"):
        join(str(other))


def test_a_worker_that_was_started_with_other_settings_is_refused(join):
    with pytest.raises(ConfigError, match=r"this worker was started with recipe\.batch = 4, worker 0 with 8"):
        join(batch=4)
    with pytest.raises(ConfigError, match=r"started with model\.width = 16, worker 0 with 8"):
        join(width=16)


def test_a_run_folder_that_is_not_shared_is_told(join, tmp_path):
    (tmp_path / "run" / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json cannot be seen from this machine"):
        join()


def test_a_worker_with_other_data_is_refused(join, monkeypatch):
    monkeypatch.setattr(session, "processes", lambda: 2)
    monkeypatch.setattr(session, "agreed", lambda own: [own[0], "another"])
    with pytest.raises(DataError, match="this worker reads other data than worker 0"):
        join()


def test_a_worker_with_another_mesh_is_refused(join, tmp_path, monkeypatch):
    monkeypatch.setattr(start, "agreed", lambda _: json.loads('{"data": 2, "fsdp": 1, "tensor": 1}'))
    with pytest.raises(ConfigError, match="another --mesh or --steps than worker 0"):
        resume_session(tmp_path / "run", mesh=MeshShape(fsdp=2))
