"""What one takes along: a file as a job, and a tensor with all its digits."""

import io

import numpy as np
import pytest

from browser import state
from glassformer.core.errors import ConfigError
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
