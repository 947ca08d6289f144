"""Runs of the engine jax from beginning to end: their folders, resuming, and what is refused beforehand."""

import itertools
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from glassformer.core.dispatch import engine, set_engine
from glassformer.core.errors import ConfigError
from glassformer.core.execution import Execution, MeshShape
from glassformer.engines.jax.trainer import JaxTrainer
from glassformer.runs.run import open_run
from glassformer.runs.start import new_session, resume_session
from glassformer.training import load_checkpoint
from runs import TINY, assert_same_run, command, edit_config, options, tiny_session, untimed

pytestmark = pytest.mark.usefixtures("unseen_figures")

PLAN = {"steps": 10, "eval_every": 4, "save_every": 3, "warmup": 2}


def start_session(folder, execution, **settings):
    return new_session("majority", folder, settings={**TINY["majority"], **PLAN, **settings}, execution=execution)


def finish(session):
    for _ in session.steps():
        pass
    return session


@pytest.fixture(scope="module")
def whole(jax, tmp_path_factory):
    """A finished run in float16, the blocks as a loop, with an average."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return finish(start_session(folder, Execution(precision="float16", scan=True), ema=0.9))


def test_a_run_leaves_what_every_run_leaves(whole):
    assert isinstance(whole.trainer, JaxTrainer)
    names = {path.name for path in whole.run.folder.iterdir()}
    assert names == {"config.json", "metrics.jsonl", "latest.safetensors", "best.safetensors", "lock"}
    assert json.loads((whole.run.folder / "config.json").read_text())["jax"] == {
        "precision": "float16",
        "mesh": {"data": 1, "fsdp": 1, "tensor": 1},
        "scan": True,
        "remat": False,
    }
    lines = open_run(whole.run.folder).metrics()
    assert [line["step"] for line in lines] == list(range(1, 11))
    assert [line["step"] for line in lines if "val_loss" in line] == [4, 8, 10]
    arrays, meta = load_checkpoint(whole.run.folder, "latest")
    assert "params.blocks.0.attention.query.w" in arrays  # a list of blocks, which every engine reads
    assert (arrays["scaling.scale"], arrays["scaling.good"]) == (2.0**15, 10)
    assert meta["step"] == 10
    assert {str(x.dtype) for name, x in arrays.items() if name.startswith("params.")} == {"float32"}


def test_its_model_can_be_measured_by_every_engine_and_resumed_is_uninterrupted(whole, tmp_path):
    trained, run = whole.trained, open_run(whole.run.folder)
    assert all(isinstance(x, np.ndarray) for x in trained.params["blocks"][0]["attention"]["query"].values())
    best = min(line["val_loss"] for line in run.metrics() if "val_loss" in line)
    set_engine("numpy")
    result = command("eval", run.folder, "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["val_loss"] == pytest.approx(best, abs=5e-3)
    assert whole.test(whole.load_params()).loss == pytest.approx(best, rel=1e-6)

    session = start_session(tmp_path / "cut", whole.run.execution, ema=0.9)
    for _ in itertools.islice(session.steps(), 5):
        pass  # ended without a word, between two checkpoints
    assert_same_run(finish(resume_session(tmp_path / "cut")).run.folder, whole.run.folder)


def test_losses_are_those_of_numpy_and_a_finished_run_says_the_same(tmp_path):
    plain = finish(tiny_session("majority", tmp_path / "numpy", **PLAN))
    there = finish(start_session(tmp_path / "jax", Execution()))
    expected, found = untimed(plain.run.folder), untimed(there.run.folder)
    for line, other in zip(expected, found, strict=True):
        assert other == pytest.approx({**line, "tokens": other["tokens"]}, rel=1e-4)
    again = resume_session(there.run.folder)
    assert again.state.step == 10
    assert list(again.steps()) == []
    assert untimed(there.run.folder) == found


def test_the_command_trains_and_resumes(whole, tmp_path):
    folder = tmp_path / "run"
    args = [*options("majority", **PLAN, ema=0.9), "--out", folder, "--json"]
    result = command("train", "majority", "--engine", "jax", "--precision", "float16", "--scan", *args)
    assert result.code == 0, result.err
    figures = json.loads(result.out)
    assert figures["steps"] == 10
    assert_same_run(folder, whole.run.folder)
    set_engine("cpu")
    resumed_too = command("train", "--resume", folder, "--json")  # the engine is the run's own
    assert resumed_too.code == 0, resumed_too.err
    assert engine() == "jax"
    assert json.loads(resumed_too.out)["val_loss"] == figures["val_loss"]


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["--mesh", "data=2"], "--mesh is a setting of the engine jax", "add --engine jax"),
        (["--scan"], "--scan is a setting of the engine jax", "add --engine jax"),
        (["--engine", "numpy", "--remat"], "--remat is a setting of the engine jax", "add --engine jax"),
        (["--coordinator", "localhost:1"], "several processes train together under JAX only", "add --engine jax"),
        (["--engine", "jax", "--precision", "float15"], "precision is 'float15'", "did you mean 'float16'"),
        (["--engine", "jax", "--mesh", "data=2"], "needs 2 devices, but there are 1", "product is 1"),
        (["--engine", "jax", "--mesh", "tensor=2"], "3 does not divide evenly over tensor=2", "pad the vocabulary"),
        (["--engine", "jax", "--set", "accumulate=3"], "8 does not divide into 3 microbatches", "change batch"),
        (["--engine", "jax", "--lora"], "--lora needs a model to start from", "--from"),
    ],
)
def test_misuse_is_refused_and_leaves_nothing_behind(jax, tmp_path, args, message, hint):
    folder = tmp_path / "run"
    set_engine("cpu")
    result = command("train", "majority", *options("majority"), "--out", folder, *args)
    assert result.code == 2
    assert message in result.err
    assert hint in result.err
    assert not folder.exists()


def test_a_run_goes_on_with_its_own_engine_and_settings(whole, tmp_path):
    other = finish(tiny_session("majority", tmp_path / "numpy", steps=1)).run.folder
    before = (whole.run.folder / "config.json").read_bytes()
    for folder, args, message in (
        (whole.run.folder, ["--engine", "cpu"], "was started with the engine jax"),
        (other, ["--engine", "jax"], "was not started with the engine jax"),
        (other, ["--mesh", "data=1"], "was not started with the engine jax"),
        (whole.run.folder, ["--precision", "float32"], "continues a run with its own settings"),
        (whole.run.folder, ["--mesh", "data=2"], "needs 2 devices, but there are 1"),
        (whole.run.folder, ["--mesh", "data=3"], "8 sequences cannot be shared evenly by 3 devices"),
    ):
        set_engine("cpu")
        result = command("train", "--resume", folder, *args)
        assert result.code == 2, args
        assert message in result.err
    assert (whole.run.folder / "config.json").read_bytes() == before
    with pytest.raises(ConfigError, match="was not started with the engine jax"):
        resume_session(other, mesh=MeshShape())


def test_settings_reach_the_model(whole, tmp_path):
    assert whole.trainer.model.execution == whole.run.execution
    assert whole.run.model.execution == Execution()  # which every engine can run
    session = start_session(tmp_path / "run", Execution(remat=True), attention_tile=4)
    assert session.run.execution == open_run(tmp_path / "run").execution == Execution(remat=True, tile=4)


def test_a_run_from_when_execution_was_a_part_of_the_model_is_understood(whole, tmp_path):
    shutil.copytree(whole.run.folder, tmp_path / "old")

    def older(content):
        content["model"] |= {"attention_tile": 4, "compute": "bfloat16", "remat": True}
        content["jax"] |= {"precision": "float32", "remat": False}

    edit_config(tmp_path / "old", older)
    execution = open_run(tmp_path / "old").execution
    assert (execution.tile, execution.precision, execution.remat, execution.scan) == (4, "bfloat16", True, True)
    # The engine's own setting counts.
    edit_config(tmp_path / "old", lambda content: content["jax"].update(precision="float16"))
    assert open_run(tmp_path / "old").execution.precision == "float16"


def test_other_engines_train_without_importing_jax(tmp_path):
    code = """
import sys
from glassformer.cli import main, train
train.draw_loss = lambda session: None  # which takes longer than all the rest
given = sys.argv[1:]
for engine in ("cpu", "numpy"):
    sys.argv = ["glassformer", *given, "--engine", engine, "--out", engine]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
    print(engine, sorted({"jax", "jaxlib", "orbax"} & sys.modules.keys()))
"""
    command = [sys.executable, "-c", code, "train", "majority", *options("majority", steps=1)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith("]")] == ["cpu []", "numpy []"]
    assert all((tmp_path / engine / "latest.safetensors").is_file() for engine in ("cpu", "numpy"))
