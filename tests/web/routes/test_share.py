"""What one takes along, a file or a tensor with all its digits; and the cards of numbers."""

import io
import json

import numpy as np
import pytest

from browser import TASKS, state, tiny_explorer
from glassformer.core.errors import ConfigError, GlassformerError
from glassformer.web import run_session
from glassformer.web.router import ask
from glassformer.web.state import read_state

RUN = {"word": "run", "question": {}}


def told(**more):
    return {**state("encoder"), "answer": None, "changes": [], "of": {"kind": "loss"}, "steps": [], **more}


def test_a_file_is_written_by_a_job_that_shows_how_far_it_is(explorer):
    asked = [
        {"word": "run", "question": {"state": "@"}, "key": "mine", "work": False},
        {"word": "stop", "question": {}},
    ]
    begun = ask(explorer, "share", {"told": told(view="scene"), "asked": asked, "whats": ["value"], "views": ["scene"]})
    job = explorer.jobs.get(begun["job"])
    assert job.ended.wait(60)
    assert job.error is None
    assert job.total > 0
    assert job.result["html"].startswith("<!doctype html>")
    assert job.result["bytes"] == len(job.result["html"].encode())


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ({"told": {"model": "encoder"}, "asked": [], "whats": [], "views": []}, "a file needs the whole state"),
        ({"told": told(), "asked": [], "whats": ["nothing"], "views": []}, "a part of whats is 'nothing'"),
        ({"told": told(), "asked": {}, "whats": [], "views": []}, "asked is {}"),
        ({"told": told(), "asked": [], "whats": [], "views": [3]}, "a part of views is 3"),
        ({"told": told(), "asked": [], "whats": [], "views": ["attention"]}, "a part of views is 'attention'"),
        ({"told": told(), "asked": [3], "whats": [], "views": []}, "a part of asked is 3"),
        ({"told": told(), "asked": [{**RUN, "key": 3}], "whats": [], "views": []}, "key is 3"),
        ({"told": told(), "asked": [{**RUN, "x": 3}], "whats": [], "views": []}, "an unknown part 'x'"),
        ({"told": told(), "path": "/tmp/x"}, "an unknown part 'path'"),
    ],
)
def test_what_is_no_file_is_refused(question, fact, explorer):
    with pytest.raises(ConfigError, match=fact):
        ask(explorer, "share", question)


def test_a_tensor_comes_with_all_its_digits_or_is_refused(explorer):
    name = "blocks.0.attention.attend.weights"
    seen = explorer.session(read_state(state("encoder")))
    for what, wanted in (("value", seen.run[name]), ("gradient", seen.gradients[name])):
        found = ask(explorer, "npz", {"state": state("encoder"), "what": what, "name": name})
        assert found.name == f"{what}.{name}.npz"
        with np.load(io.BytesIO(found.body)) as file:
            assert np.array_equal(file[name], wanted)

    with pytest.raises(ConfigError, match="nowhere"):
        ask(explorer, "npz", {"state": state("encoder"), "name": "nowhere"})
    with pytest.raises(ConfigError, match="name is"):
        ask(explorer, "npz", {"state": state("encoder"), "name": ["logits"]})


@pytest.mark.parametrize("architecture", TASKS)
def test_formulas_and_proofs_of_cells_drawn_at_random_agree(explorer, architecture, rng):
    own = state(architecture)
    values = ask(explorer, "run", {"state": own})["values"]
    for number in rng.choice(len(values), 12, replace=False):
        name, shape = values[number]["name"], values[number]["shape"]
        index = [int(rng.integers(size)) for size in shape]
        found = ask(explorer, "card", {"state": own, "name": name, "index": index})
        json.dumps(found, allow_nan=False)
        assert found["evaluated"] == pytest.approx(found["value"], rel=1e-12, abs=1e-12)
        if found["gradient"] is not None:
            back = ask(explorer, "card", {"state": own, "name": name, "index": index, "gradient": True})
            assert back["evaluated"] == pytest.approx(found["gradient"], rel=1e-12, abs=1e-12)
            proof = ask(explorer, "proof", {"state": own, "name": name, "index": index})
            assert proof["difference"] < 1e-9
            assert proof["step"] == pytest.approx(found["gradient"], rel=1e-9, abs=1e-12)


def test_a_changed_run_has_cards_of_its_own(explorer):
    question = {"name": "logits", "index": [0, 1, 2]}
    plain = ask(explorer, "card", {"state": state("decoder"), **question})
    changed = state("decoder", changes=[{"word": "zero", "name": "blocks.0"}])
    assert ask(explorer, "card", {"state": changed, **question})["value"] != plain["value"]
    assert np.isfinite(plain["value"])


@pytest.mark.parametrize(
    "wrong",
    [{"name": "nowhere", "index": [0]}, {"name": "logits", "index": [0]}, {"name": "logits", "index": [0, 0, 10**6]},
     {"name": "logits", "index": "all"}, {"name": None, "index": []}],
)  # fmt: skip
def test_cells_that_are_not_there_are_refused(explorer, wrong):
    for word in ("card", "proof"):
        with pytest.raises(GlassformerError):
            ask(explorer, word, {"state": state("decoder"), **wrong})


def test_a_large_model_shows_the_value_before_the_gradient_is_computed(numpy_engine, monkeypatch):
    monkeypatch.setattr(run_session, "PRECISE", 0)  # every model counts as large
    explorer = tiny_explorer("decoder")
    asked = {"state": state("decoder"), "name": "blocks.1.attention", "index": [0, 1, 2]}
    first = ask(explorer, "card", asked)
    assert (first["later"], first["gradient"]) == ("soon", None)
    session = explorer.session(read_state(asked["state"]))
    assert "gradients" not in session.kept
    second = ask(explorer, "card", {**asked, "wait": True})
    assert (second["later"], second["value"]) == ("", first["value"])
    assert second["gradient"] is not None
    assert ask(explorer, "card", asked)["later"] == ""  # known now
