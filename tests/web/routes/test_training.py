"""Training from the page: a job that shows how it goes, a model that is offered, frames of it and of recorded runs."""

import json

import pytest

from browser import ended
from glassformer.core.errors import ConfigError
from glassformer.runs.run import open_run
from glassformer.runs.start import new_session
from glassformer.web.explorer import Explorer
from glassformer.web.offers import Offer, find_offers
from glassformer.web.recordings import LiveTraining
from glassformer.web.router import ask, load_routes
from runs import TINY, assert_same_bits

pytestmark = pytest.mark.usefixtures("numpy_engine")
SMALL = {"layers": 1, "width": 8, "heads": 2, "steps": 5}


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    load_routes()


@pytest.fixture
def explorer(tmp_path):
    return Explorer({}, folder=tmp_path / "runs")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, numpy_engine):
    """A recorded run of six steps, in a folder of runs."""
    folder = tmp_path_factory.mktemp("runs")
    session = new_session("sort", folder / "sorted", settings={**TINY["sort"], "steps": 6}, recorded=True)
    list(session.steps())
    return folder


def trained(explorer, task="counting", **settings):
    return ended(explorer, ask(explorer, "train", {"task": task, "settings": {**SMALL, **settings}}))


@pytest.mark.parametrize("task", ["majority", "counting"])
def test_a_training_shows_how_it_went_and_offers_its_model(task, explorer, tmp_path):
    history = trained(explorer, task)
    assert [step for step, _ in history["loss"]] == [1, 2, 3, 4, 5]
    assert history["judged"][-1][0] == 5
    assert [frame["step"] for frame in history["frames"]] == [0, 1, 2, 3, 4, 5]
    last = history["frames"][-1]
    assert last["loss"] == history["loss"][-1][1]
    assert last["weights"].keys() == last["gradients"].keys()
    assert last["samples"]
    assert history["key"] in explorer.offers
    assert ask(explorer, "open", {"model": history["key"]})["title"] == f"{task}, trained here, 5 steps"
    assert not (tmp_path / "runs").exists()
    json.dumps(history, allow_nan=False)


def test_a_frame_is_a_model_that_every_view_can_look_into(explorer):
    history = trained(explorer)
    losses = [
        ask(explorer, "run", {"state": {"model": f"{history['key']}@{step}", "text": "1", "answer": "2 3 4 5 6"}})[
            "loss"
        ]
        for step in (0, 3, 5)
    ]
    assert losses[0] > losses[1] > losses[2]
    assert ask(explorer, "open", {"model": f"{history['key']}@3"})["title"].endswith(", after step 3")
    with pytest.raises(ConfigError, match="no frame of step 7 was kept"):
        ask(explorer, "open", {"model": f"{history['key']}@7"})


def test_the_attention_of_a_frame_sums_to_one_in_every_row(explorer):
    history = trained(explorer)
    question = {"model": history["key"], "step": 3, "layer": 0, "head": 1}
    found = ask(explorer, "course_map", question)
    assert found["kinds"] == {"decoder": [1, 2]}
    assert found["rows"] == found["columns"] == ["1", "2", "3", "4", "5"]
    assert abs(found["weights"].sum(axis=-1) - 1).max() < 1e-6
    with pytest.raises(ConfigError, match="no head 2"):
        ask(explorer, "course_map", {**question, "head": 2})
    with pytest.raises(ConfigError, match="no attention of kind 'cross'"):
        ask(explorer, "course_map", {**question, "kind": "cross"})
    with pytest.raises(ConfigError, match="step 9 was not computed"):
        ask(explorer, "course_map", {**question, "step": 9})


def test_a_training_that_is_stopped_offers_the_model_as_it_is(explorer, monkeypatch):
    note = LiveTraining.note

    def stops(history):
        note(history)
        if history.session.state.step == 2:
            explorer.jobs.get(history.job).asked_to_stop.set()

    monkeypatch.setattr(LiveTraining, "note", stops)
    history = trained(explorer)
    assert history["loss"][-1][0] == 2
    assert ask(explorer, "open", {"model": history["key"]})["title"] == "counting, trained here, 2 steps"


def test_what_is_kept_is_a_run_whose_every_step_can_be_returned_to(explorer, tmp_path):
    history = trained(explorer)
    kept = ask(explorer, "keep", {"model": history["key"]})
    assert kept == ask(explorer, "keep", {"model": history["key"]})
    run = open_run(tmp_path / "runs" / "counting")
    assert str(run.folder) == kept["folder"]
    assert_same_bits(run.load_params(), explorer._given[history["key"]].params)
    again = ended(explorer, ask(explorer, "course", {"model": kept["key"], "steps": [0, 2, 5]}))
    assert [frame["weights"] for frame in again["frames"]] == [history["frames"][n]["weights"] for n in (0, 2, 5)]


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"task": "chess"}, "no 'chess' is trained here"),
        ({"task": ["majority"]}, "task is"),
        ({"task": "majority", "settings": {"data": "/etc/passwd"}}, "no setting 'data' here"),
        ({"task": "majority", "settings": {"steps": 100_000}}, "at most 5,000 are trained here"),
        ({"task": "majority", "settings": {"steps": 2.5}}, "steps is 2.5"),
        ({"task": "majority", "settings": [1]}, "settings is"),
        ({"task": "majority", "speed": 1}, "unknown part 'speed'"),
    ],
)
def test_what_cannot_be_trained_here_is_refused(explorer, question, said):
    with pytest.raises(ConfigError, match=said):
        ask(explorer, "train", question)


def test_only_what_has_ended_is_kept_and_models_trained_here_stay(explorer):
    job = ask(explorer, "train", {"task": "counting", "settings": {**SMALL, "heads": 3}})
    while not job["ended"]:
        job = ask(explorer, "job", {"job": job["job"]})
    assert "heads" in job["error"]["error"]
    assert explorer.offers == {}

    with pytest.raises(ConfigError, match="no training 'runs' has ended here"):
        ask(explorer, "keep", {"model": "runs"})

    histories = [trained(explorer, steps=1) for _ in range(5)]
    for history in histories:
        assert ask(explorer, "open", {"model": history["key"]})["parameters"] > 0
    assert list(explorer.live_trainings) == [history["key"] for history in histories[1:]]
    with pytest.raises(ConfigError, match="were dropped"):
        ask(explorer, "open", {"model": f"{histories[0]['key']}@1"})


def test_a_recorded_run_is_gone_through_frame_by_frame(recorded):
    explorer = Explorer(find_offers([], recorded))
    key = next(key for key in explorer.offers if key.endswith("sorted"))
    assert [one["key"] for one in ask(explorer, "trainings", {})["courses"]] == [key]
    history = ended(explorer, ask(explorer, "course", {"model": key}))
    assert [frame["step"] for frame in history["frames"]] == list(range(7))
    assert history["recorded"]
    lines = open_run(recorded / "sorted").metrics()
    assert [loss for _, loss in history["loss"]] == [line["loss"] for line in lines]
    assert history["frames"][4]["loss"] == lines[3]["loss"]
    assert history["frames"][0]["heads"]["decoder"]["scores"]["induction"]
    assert ask(explorer, "steps", {"model": f"{key}@3"}) == {"steps": list(range(7))}
    assert ask(explorer, "steps", {"model": "another"}) == {"steps": []}
    opened = explorer.opened(f"{key}@6")
    assert_same_bits(opened.model.params, open_run(recorded / "sorted").load_params("latest"))


def test_any_step_can_be_asked_for_and_is_computed_once(recorded, monkeypatch):
    explorer = Explorer(find_offers([], recorded))
    key = next(iter(explorer.offers))
    assert [f["step"] for f in ended(explorer, ask(explorer, "course", {"model": key, "steps": [5]}))["frames"]] == [5]
    monkeypatch.setattr(type(explorer.training(key)), "measure", lambda *_: pytest.fail("it is known"))
    assert ended(explorer, ask(explorer, "course", {"model": key, "steps": [5]}))["frames"]
    job = ask(explorer, "course", {"model": key, "steps": [99]})
    while not job["ended"]:
        job = ask(explorer, "job", {"job": job["job"]})
    assert "cannot return to step 99" in job["error"]["error"]


def test_what_was_not_recorded_has_no_course_and_a_step_is_a_whole_number(tmp_path, recorded):
    list(new_session("sort", tmp_path / "plain", settings={**TINY["sort"], "steps": 1}).steps())
    explorer = Explorer({"plain": Offer("plain", "plain", "run", str(tmp_path / "plain"))})
    assert ask(explorer, "trainings", {})["courses"] == []
    with pytest.raises(ConfigError, match="was not recorded"):
        explorer.training("plain")

    explorer = Explorer(find_offers([], recorded))
    for key in ("nowhere@3", "nowhere", "@3", "sorted@x"):
        with pytest.raises(ConfigError, match="there is no model"):
            explorer.opened(key)
    with pytest.raises(ConfigError, match="list of at most 200"):
        ask(explorer, "course", {"model": next(iter(explorer.offers)), "steps": [1] * 201})
