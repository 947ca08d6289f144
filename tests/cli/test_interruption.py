"""Interruptions of the real command: signals, a limit on files, and what comes out after resuming.

`tests/soak/trials/` has kills, signals and limits at random moments.
"""

import json
import os
import signal
import time

import pytest

from glassformer.core.dispatch import use_engine
from glassformer.runs.sinks import RunFolder
from glassformer.runs.start import resume_session
from glassformer.training import load_checkpoint
from glassformer.training.interruption import Terminated
from runs import assert_same_run, command, finished, options, process, tiny_session

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and limits in the manner of POSIX")

NUMPY = {"GLASSFORMER_ENGINE": "numpy"}
PLAN = {"steps": 100, "save_every": 5, "eval_every": 20, "dropout": 0.1, "ema": 0.9}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The uninterrupted run."""
    session = tiny_session("majority", tmp_path_factory.mktemp("whole") / "run", **PLAN)
    list(session.steps())
    return session.run.folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The uninterrupted run of the engine numpy, whose processes start sooner: for what is the same on every engine."""
    with use_engine("numpy"):
        session = tiny_session("majority", tmp_path_factory.mktemp("plain") / "run", **PLAN)
        list(session.steps())
    return session.run.folder


def wait_for(folder, steps):
    """Wait until a run has taken so many steps."""
    metrics = folder / "metrics.jsonl"
    end = time.monotonic() + 200
    while not metrics.is_file() or metrics.read_bytes().count(b"\n") < steps:
        assert time.monotonic() < end, "the run does not get on"
        time.sleep(0.005)


def test_ctrl_c_saves_says_how_to_go_on_and_loses_nothing(tmp_path, whole, unseen_figures):
    folder = tmp_path / "my run"
    running = process("train", "majority", *options("majority", **PLAN), "--out", folder)
    wait_for(folder, 23)
    running.send_signal(signal.SIGINT)
    result = finished(running)
    assert result.code == 130
    assert result.out == ""
    assert "Traceback" not in result.err
    taken = load_checkpoint(folder).meta["step"]
    assert taken >= 22
    assert f"interrupted after step {taken:,}; saved" in result.err
    assert f"glassformer train --resume '{folder}'" in result.err
    result = command("train", "--resume", folder, "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out.splitlines()[-1])["steps"] == PLAN["steps"]
    assert_same_run(folder, whole)


def test_sigterm_after_the_last_step_is_called_by_its_name(tmp_path, monkeypatch, numpy_engine):
    def terminated(session, *_):
        raise Terminated

    monkeypatch.setattr("glassformer.cli.train.results", terminated)
    folder = tmp_path / "run"
    result = command("train", "majority", *options("majority", steps=2), "--out", folder)
    assert (result.code, result.out) == (143, "")
    assert "ended by SIGTERM" in result.err
    assert load_checkpoint(folder).meta["step"] == 2


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_sigterm_saves_says_how_to_go_on_and_loses_nothing(tmp_path, monkeypatch, engine):
    plan = {**PLAN, "steps": 12, "save_every": 100}
    append, calls = RunFolder.append, []

    def terminated(self, records):
        append(self, records)
        calls.append(records)
        if len(calls) == 7:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "append", terminated)
        patch.setattr("glassformer.runs.session.WRITE_EVERY", -1.0)  # every step is written at once
        place = ["--engine", engine, "--out", tmp_path / "run"]
        result = command("train", "majority", *options("majority", **plan), *place)
    assert result.code == 143
    taken = load_checkpoint(tmp_path / "run").meta["step"]
    assert taken in (6, 7)  # a step counts once all about it is written
    assert f"ended by SIGTERM after step {taken}; saved" in result.err
    assert f"glassformer train --resume {tmp_path / 'run'}" in result.err
    assert "Traceback" not in result.err
    with use_engine(engine):
        for session in (resume_session(tmp_path / "run"), tiny_session("majority", tmp_path / "whole", **plan)):
            list(session.steps())
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_run_in_the_background_where_shells_ignore_ctrl_c_goes_on(tmp_path, plain):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        running = process("train", "majority", *options("majority", **PLAN), "--out", tmp_path / "run", env=NUMPY)
    finally:
        signal.signal(signal.SIGINT, before)
    wait_for(tmp_path / "run", 23)
    running.send_signal(signal.SIGINT)
    assert finished(running).code == 0
    assert_same_run(tmp_path / "run", plain)


# JAX, which other tests load, warns of a fork; what is forked here becomes another program at once.
@pytest.mark.filterwarnings("ignore:os.fork")
def test_a_checkpoint_too_large_for_the_disk_leaves_the_previous_one(tmp_path, plain, unseen_figures):
    import resource

    folder = tmp_path / "run"
    running = process("train", "majority", *options("majority", **PLAN), "--out", folder, env=NUMPY)
    wait_for(folder, 30)
    running.kill()
    running.communicate()
    before = (folder / "latest.safetensors").read_bytes()
    limit = len(before) - 1  # the metrics still fit
    limited = process(
        *("train", "--resume", folder),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
        env=NUMPY,
    )
    result = finished(limited)
    assert result.code == 1
    assert f"error: could not write the checkpoint {folder / 'latest.safetensors'}" in result.err
    assert "the previous one is unchanged" in result.err
    assert "hint: " in result.err
    assert "Traceback" not in result.err
    assert (folder / "latest.safetensors").read_bytes() == before
    assert command("train", "--resume", folder, "--engine", "numpy").code == 0
    assert_same_run(folder, plain)
