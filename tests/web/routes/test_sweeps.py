"""One change at a time: each cell of a sweep is what a rerun gives."""

import threading

import numpy as np
import pytest

from browser import state
from glassformer.core.errors import ConfigError
from glassformer.interpret import Logit, take, zero
from glassformer.web.explorer import Explorer
from glassformer.web.router import ask, load_routes
from glassformer.web.routes import sweeps
from glassformer.web.state import read_state

LOGIT = {"kind": "logit", "token": 1, "against": 2}


def ended(explorer, job):
    found = explorer.jobs.get(job["job"])
    assert found.ended.wait(20)
    assert found.error is None, found.error
    return found


def test_every_head_is_switched_off_and_every_vector_taken_at_a_cost_said_before(explorer):
    job = ended(explorer, ask(explorer, "sweep", {"state": state("encoder-decoder"), "kind": "heads"}))
    found, run = job.result, explorer.session(read_state(state("encoder-decoder"))).run
    assert len(found["rows"]) == 6
    assert job.done == job.total == found["effect"].size == 12
    for row, name in enumerate(found["names"]):
        for head in range(run.heads):
            effect = run.changed(zero(name, head=head)).loss - run.loss
            assert found["effect"][row, head] == pytest.approx(effect, abs=1e-12)

    asked = state(
        "decoder", of=LOGIT, changes=[{"word": "put", "name": "tokens", "where": {"position": 4}, "value": 3}]
    )
    job = ended(explorer, ask(explorer, "sweep", {"state": asked, "kind": "stream", "other": "for y in"}))
    found, run = job.result, explorer.session(read_state(asked)).run
    other, of = explorer.opened("decoder").watch("for y in"), Logit(1, against=2)
    assert found["effect"].shape == (5, 8)
    assert found["columns"][1:4] == ["o", "r", " "]
    for row, name in enumerate(found["names"]):
        changed = run.changed(take(name, other, position=4))
        assert found["effect"][row, 4] == pytest.approx(of.value(changed) - of.value(run), abs=1e-12)

    heads = ask(explorer, "sweep_cost", {"state": state("decoder"), "kind": "heads"})
    stream = ask(explorer, "sweep_cost", {"state": state("decoder"), "kind": "stream"})
    assert (heads["runs"], stream["runs"]) == (4, 40)
    assert stream["bytes"] == 10 * heads["bytes"] > 0


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ({"kind": "neurons"}, "kind is 'neurons'"),
        ({"kind": "stream", "stack": "encoder"}, "no stack 'encoder'"),
        ({"kind": "heads", "way": 1}, "unknown part"),
        ({"kind": "heads", "of": {"kind": "entry", "name": "blocks.0", "index": [0, 0, 0]}}, "neither the loss nor"),
    ],
)
def test_other_sweeps_are_refused(explorer, question, said):
    of = question.pop("of", {"kind": "loss"})
    with pytest.raises(ConfigError, match=said):
        ask(explorer, "sweep", {"state": state("decoder", of=of), **question})


def test_a_sweep_that_is_too_long_is_refused(explorer, monkeypatch):
    monkeypatch.setattr(sweeps, "MOST", 3)
    with pytest.raises(ConfigError, match="4 runs"):
        ask(explorer, "sweep", {"state": state("decoder"), "kind": "heads"})


def test_a_second_text_that_does_not_fit_is_refused_and_an_entry_can_be_measured(explorer):
    job = ask(explorer, "sweep", {"state": state("decoder"), "kind": "stream", "other": "for"})
    found = explorer.jobs.get(job["job"])
    found.ended.wait(10)
    assert "those of the source" in found.error["error"]
    asked = read_state(state("decoder", of={"kind": "entry", "name": "logits", "index": [0, 2, 5]}))
    assert sweeps.measured(explorer.session(asked)) == Logit(5, 2)
    assert np.isfinite(sweeps.measured(explorer.session(asked)).value(explorer.session(asked).run))


def test_work_is_followed_and_stopped():
    load_routes()
    explorer, begun = Explorer({}), threading.Event()

    def work(job):
        while True:
            job.show(1, 3, "a part")
            begun.set()

    job = explorer.jobs.start(work)
    assert begun.wait(10)
    assert ask(explorer, "job", {"job": job.key})["note"] == "a part"
    ask(explorer, "stop", {"job": job.key})
    assert job.ended.wait(10)
    assert ask(explorer, "job", {"job": job.key})["error"]["error"] == "stopped"
