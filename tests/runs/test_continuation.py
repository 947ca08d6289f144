"""A run that goes on is the same run: what differs is refused, or said and remembered."""

import json

import pytest

from glassformer.core.dispatch import use_engine
from glassformer.core.errors import CheckpointError, DataError
from glassformer.runs.run import open_run
from glassformer.runs.start import resume_session
from runs import command, edit_config, tiny_session


@pytest.fixture(autouse=True)
def reference():
    with use_engine("numpy"):
        yield


@pytest.fixture
def folder(tmp_path):
    """A run that has taken two of four steps."""
    session = tiny_session("text", tmp_path / "run", steps=4, save_every=1)
    steps = session.steps()
    next(steps), next(steps)
    return session.run.folder


def recorded(folder):
    return json.loads((folder / "config.json").read_text())["record"]


CHANGES = {
    "numpy was 1.0 and is ": lambda content: content["record"]["versions"].update(numpy="1.0"),
    "glassformer was 0.0 and is ": lambda content: content["record"]["versions"].update(glassformer="0.0"),
    "python was 3.0 and is ": lambda content: content["record"]["versions"].update(python="3.0.1"),
    "engine was cpu and is numpy": lambda content: content["record"].update(engine="cpu"),
    "platform was VAX and is ": lambda content: content["record"].update(platform="VAX"),
    "processor was 8086 and is ": lambda content: content["record"].update(processor="8086"),
    "BLAS was mkl 1.2 and is ": lambda content: content["record"].update(products="mkl 1.2"),
    "lr was 0.00": lambda content: content["recipe"].update(lr=0.5),
    "shards was 1 and is 3": lambda content: content["recipe"].update(shards=3),
}


@pytest.mark.parametrize("said", CHANGES)
def test_what_differs_is_refused_or_said_and_remembered(folder, said):
    edit_config(folder, CHANGES[said])
    before = (folder / "config.json").read_bytes(), (folder / "metrics.jsonl").read_bytes()
    with pytest.raises(CheckpointError, match="would not continue to the same bits: ") as caught:
        resume_session(folder)
    assert said in caught.value.fact
    assert "--anyway" in caught.value.hint
    assert ((folder / "config.json").read_bytes(), (folder / "metrics.jsonl").read_bytes()) == before
    session = resume_session(folder, anyway=True)
    (note,) = session.notes
    assert note.startswith("continuing anyway, and last digits will differ: ")
    assert said in note
    (change,) = recorded(folder)["changes"]
    assert change["step"] == 2
    assert change["when"].endswith("+00:00")
    assert next(session.steps()).step == 3
    assert resume_session(folder).notes == []  # it goes on with what it has now
    assert len(recorded(folder)["changes"]) == 1


def test_the_engine_is_the_one_that_computes(folder):
    with use_engine("cpu"), pytest.raises(CheckpointError, match="engine was numpy and is cpu") as caught:
        resume_session(folder)
    assert caught.value.hint.startswith("use --engine numpy")


def test_a_correction_of_python_changes_nothing(folder):
    version = recorded(folder)["versions"]["python"]
    edit_config(folder, lambda content: content["record"]["versions"].update(python=version + "9"))
    assert resume_session(folder).notes == []


def test_changed_data_is_refused_or_said(folder):
    path = folder.parent / "data" / "text.txt"
    content = path.read_text()
    path.write_text(content[10:] + content[:10])  # the same letters, elsewhere
    with pytest.raises(DataError, match=r"text\.txt is not what it was trained on(.|\n)*or continue with --anyway"):
        resume_session(folder)
    (note,) = resume_session(folder, anyway=True).notes
    assert "data was " in note
    assert "first batch was " in note
    assert open_run(folder).check_data() is None  # it is what the run reads from now on


@pytest.mark.parametrize("change", [{"first": "0" * 64}, {"examples": 7}])
def test_data_that_is_drawn_otherwise_is_refused_too(tmp_path, change):
    tiny_session("sort", tmp_path / "run", steps=2)
    edit_config(tmp_path / "run", lambda content: content["record"].update(change))
    with pytest.raises(DataError, match="what is drawn now is not what it was trained on"):
        resume_session(tmp_path / "run")


def test_more_steps_are_no_other_recipe(folder):
    resume_session(folder, steps=6)  # interrupted before its first checkpoint
    assert resume_session(folder).notes == []


def test_the_command_goes_on_anyway_and_the_run_shows_it(folder, unseen_figures):
    edit_config(folder, CHANGES["numpy was 1.0 and is "])
    result = command("train", "--resume", folder, "--engine", "numpy", "--json")
    assert result.code == 1
    assert "error: " in result.err
    assert "numpy was 1.0" in result.err
    result = command("train", "--resume", folder, "--anyway", "--engine", "numpy", "--json")
    assert result.code == 0, result.err
    assert "continuing anyway" in result.err
    assert "changed\tafter step 2: numpy 1.0 → " in command("runs", folder).out


def test_anyway_is_for_a_run_that_goes_on(tmp_path, unseen_figures):
    result = command("train", "sort", "--anyway", "--out", tmp_path / "run")
    assert result.code == 2
    assert "--anyway" in result.err
    assert not (tmp_path / "run").exists()
