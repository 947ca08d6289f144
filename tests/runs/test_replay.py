"""Replay: every frame is bit for bit what a run stopped there had; what cannot come about again is refused."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import glassformer as gf
from glassformer.api.learn import replay
from glassformer.core.errors import CheckpointError, ConfigError, DataError
from glassformer.core.tree import flatten
from glassformer.plots import style
from glassformer.runs import session as recording
from glassformer.runs.replay import attention_on, gradient_norms_on, measure, samples, scored, weight_norms
from glassformer.runs.start import new_session, resume_session
from runs import TINY, edit_config, tiny_session, write_data

SETTINGS = {**TINY["sort"], "eval_every": 4, "ema": 0.9, "dropout": 0.1}
STEPS = 13


def recorded(folder, steps=STEPS, **settings):
    return new_session("sort", folder, settings={**SETTINGS, "steps": steps, **settings}, recorded=True)


def states_of(session):
    """Train to the end; return a copy of the state after every step."""
    found = {session.state.step: copied(session.state)}
    for _ in session.steps():
        found[session.state.step] = copied(session.state)
    return found


def copied(state):
    """A state with arrays of its own: steps may be taken in place."""
    parts = ("params", "optimizer", "ema")
    return state._replace(**{name: gf.tree.tree_map(np.array, getattr(state, name)) for name in parts})


def assert_equal(have, want):
    assert (have.step, have.best, have.stale, have.refused) == (want.step, want.best, want.stale, want.refused)
    for name in ("params", "optimizer", "ema"):
        left, right = flatten(getattr(have, name)), flatten(getattr(want, name))
        assert left.keys() == right.keys()
        for leaf in left:
            assert np.array_equal(left[leaf], right[leaf]), f"{name}.{leaf}"
            assert np.asarray(left[leaf]).dtype == np.asarray(right[leaf]).dtype


def stopped(session, step, *, save=True):
    """Stop a session after a step, as Ctrl-C does; without saving, as a crash does."""
    for record in session.steps():
        if record.step == step:
            break
    if save:
        session.save()
    session.sink.lock.release()
    return session


@pytest.fixture
def two_states(monkeypatch):
    """Let a recording keep two states."""
    monkeypatch.setattr(recording, "MOST", 2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "MOST", 2)
        return folder, states_of(recorded(folder))


def test_every_frame_is_bit_equal_to_the_run_as_it_was_there(trained):
    folder, states = trained
    found = replay(folder)
    assert found.steps == range(STEPS + 1)
    assert found.kept == (5, 10)
    frames = list(found)
    assert [frame.step for frame in frames] == list(range(STEPS + 1))
    for frame in frames:
        assert_equal(frame.state, states[frame.step])
    for step in (12, 3, -1, 5):
        assert_equal(found.at(step).state, states[step % (STEPS + 1)])
    assert frames[4].metrics["val_loss"] == frames[4].state.best
    assert np.isnan(frames[0].loss)
    assert frames[3].loss == frames[3].metrics["loss"]
    assert "13" in repr(found)


def test_a_frame_equals_a_run_that_was_stopped_there(trained, tmp_path):
    session = stopped(recorded(tmp_path / "stopped"), 7)
    assert_equal(replay(trained[0]).at(7).state, session.run.load_state())
    assert replay(tmp_path / "stopped").steps == range(8)


def test_a_frame_has_a_model_that_can_be_asked(trained):
    frame = replay(trained[0]).at(6)
    tokens = np.array([[1, 2, 0, 1]])
    assert frame.model.forward(frame.params, tokens)[0].shape[:2] == (1, 4)
    assert not np.array_equal(
        flatten(frame.params)["final_norm.gamma"], flatten(frame.trained.params)["final_norm.gamma"]
    )
    assert len(frame.trained.samples(1)) == 1


def test_the_recording_of_a_run_that_was_interrupted_is_whole(trained, tmp_path, two_states):
    _, states = trained
    stopped(recorded(tmp_path / "run"), 8)
    list(resume_session(tmp_path / "run").steps())
    found = replay(tmp_path / "run")
    assert found.kept == (5, 10)
    for frame in found.frames([4, 7, 9, 11, 13]):
        assert_equal(frame.state, states[frame.step])


def test_states_of_steps_that_are_taken_again_are_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "MOST", 6)
    stopped(recorded(tmp_path / "run"), 6, save=False)  # after the checkpoint of step 4, and states of 2, 4 and 6
    again = resume_session(tmp_path / "run")
    assert again.state.step == 4
    assert list(again.recording.kept()) == [2, 4]
    again.sink.lock.release()


def test_a_run_that_goes_on_beyond_its_end_is_replayed_as_a_whole(tmp_path, two_states):
    states = states_of(recorded(tmp_path / "run", steps=6, patience=1, lr=1e-9))
    longer = resume_session(tmp_path / "run", steps=14)
    states |= states_of(longer)
    found = replay(tmp_path / "run")
    for frame in found:
        assert_equal(frame.state, states[frame.step])


def test_the_bits_are_the_same_on_the_engine_cpu(tmp_path):
    with gf.use_engine("cpu"):
        states = states_of(recorded(tmp_path / "run", steps=6))
        for frame in replay(tmp_path / "run").frames([2, 5]):
            assert_equal(frame.state, states[frame.step])
    with gf.use_engine("numpy"), pytest.raises(CheckpointError, match="engine was cpu and is numpy") as caught:
        replay(tmp_path / "run")
    assert "--engine cpu" in caught.value.hint


def test_what_cannot_be_replayed_is_refused(trained, tmp_path):
    found = replay(trained[0])
    for step in (14, -15):
        with pytest.raises(ConfigError, match="cannot return to step"):
            found.at(step)
    plain = tiny_session("sort", tmp_path / "plain", steps=1)
    plain.sink.lock.release()
    with pytest.raises(ConfigError, match="was not recorded") as caught:
        replay(tmp_path / "plain")
    assert "--record" in caught.value.hint
    with pytest.raises(ConfigError, match="too few"):
        found.spaced(1)
    assert found.spaced(4) == [0, 1, 6, 13]


def test_changed_data_is_refused(tmp_path):
    data = write_data("text", tmp_path)
    settings = {**TINY["text"], "steps": 2}
    list(new_session("text", tmp_path / "run", data=data, settings=settings, recorded=True).steps())
    replay(tmp_path / "run").at(1)
    with open(data, "r+", encoding="utf-8") as file:
        file.write("eht")
    with pytest.raises(DataError, match="is not what it was trained on"):
        replay(tmp_path / "run")


def test_a_step_that_does_not_come_about_again_is_noticed(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained[0], folder)
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    changed = json.loads(lines[6])
    changed["loss"] = float(np.nextafter(changed["loss"], 9))
    (folder / "metrics.jsonl").write_text("\n".join([*lines[:6], json.dumps(changed), *lines[7:]]) + "\n")
    replay(folder).at(6)
    with pytest.raises(CheckpointError, match=r"step 7 of .* was not reproduced: its loss was"):
        replay(folder).at(8)
    replay(folder).at(11)  # from the state of step 10
    (folder / "metrics.jsonl").write_text("\n".join(lines[:6]) + "\n")
    with pytest.raises(CheckpointError, match="has no line of step 7"):
        replay(folder).at(7)


def test_a_change_is_where_the_replay_begins(trained, tmp_path, two_states):
    stopped(recorded(tmp_path / "run"), 8)
    edit_config(tmp_path / "run", lambda content: content["record"]["versions"].update(numpy="0.1"))
    states = states_of(resume_session(tmp_path / "run", anyway=True))
    found = replay(tmp_path / "run")
    assert found.steps == range(8, 14)
    for frame in found:
        assert_equal(frame.state, states[frame.step] if frame.step > 8 else trained[1][8])
    with pytest.raises(ConfigError, match="changed after step 8"):
        found.at(7)


BATCH = gf.Batch(np.array([[1, 2, 0, 1]]), np.array([[2, 0, 1, 2]]))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course") / "run"
    session = new_session("sort", folder, settings={**TINY["sort"], "steps": 5}, recorded=True)
    assert [record.step for record in session.steps()] == [1, 2, 3, 4, 5]
    return replay(folder)


@pytest.fixture(scope="module")
def course(run):
    measures = {
        "attention": attention_on(BATCH),
        "gradient": gradient_norms_on(BATCH),
        "weight": weight_norms,
        "table": lambda frame: {"embedding": frame.params["embedding"]["tokens"]["table"]},
        "heads": scored(lambda model, params: np.full((1, 2), len(params))),
        "answers": samples(1),
    }
    told = []
    found = measure(run, [0, 2, 5], measures, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]
    return found


def test_every_measure_has_a_row_for_each_step(run, course):
    assert course.steps.tolist() == [0, 2, 5]
    assert course["attention"].shape == (3, 1, 2, 4, 4)
    assert course["heads"].shape == (3, 1, 2)
    assert len(course["answers"]) == 3
    frame = run.at(2)
    assert course["loss"][1] == frame.loss
    assert np.isnan(course["loss"][0])
    assert np.array_equal(course["table.embedding"][1], frame.params["embedding"]["tokens"]["table"])
    table = np.linalg.norm(frame.params["embedding"]["tokens"]["table"])
    assert course["weight.embedding.tokens.table"][1] == pytest.approx(table)
    _, grads = frame.model.loss_and_grads(frame.params, BATCH)
    want = np.linalg.norm(grads["embedding"]["tokens"]["table"])
    assert course["gradient.embedding.tokens.table"][1] == pytest.approx(want)
    _, saved = frame.model.forward(frame.trained.params, BATCH.tokens)
    np.testing.assert_allclose(course["attention"][1, 0], saved["blocks"][0]["attention"].weights[0], rtol=1e-5)


def test_a_course_is_ready_for_json_and_what_cannot_be_measured_is_refused(course, run):
    plain = json.loads(json.dumps(course.to_dict(), allow_nan=False))
    assert plain["step"] == [0, 2, 5]
    assert plain["loss"][0] is None

    with pytest.raises(ConfigError, match="nothing called 'los' was measured"):
        course["los"]
    with pytest.raises(ConfigError, match="no steps to measure"):
        measure(run, [])
    with pytest.raises(ConfigError, match="does not return the same for every frame"):
        measure(run, [0, 1], {"odd": lambda frame: np.zeros(frame.step + 1)})


def test_the_examples_of_the_documentation_run_as_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(style.SETTINGS["light"], "figure.dpi", 30)
    session = new_session(
        "induction", Path("runs/induction"), settings={**TINY["induction"], "steps": 4}, recorded=True
    )
    assert [record.step for record in session.steps()][-1] == 4
    words = (Path(__file__).parents[2] / "docs" / "guides" / "replay.md").read_text(encoding="utf-8")
    names = {}
    for block in re.findall(r"```python\n(.*?)```", words, flags=re.DOTALL):
        exec(block.replace("at(300)", "at(3)").replace("abcdea", "abca"), names)
    assert names["course"]["attention"].shape[0] == 5
    assert names["course"]["previous token"].shape == (5, 1, 2)
    assert (tmp_path / "replay.html").stat().st_size > 1000
