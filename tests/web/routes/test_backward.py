"""The way of a gradient as a page is told of it, and steps of optimizers."""

import numpy as np
import pytest

from browser import TASKS, state
from glassformer.core.errors import ConfigError
from glassformer.core.tree import flatten
from glassformer.interpret import Loss, gradient_flow, gradient_times_input, gradients, update
from glassformer.interpret.saliency import Integrated
from glassformer.training.optimizers import OPTIMIZERS
from glassformer.web.router import ask
from glassformer.web.routes import backward
from glassformer.web.state import read_state

STEP = {"optimizer": "adam", "lr": 0.01}


@pytest.mark.parametrize("architecture", TASKS)
def test_the_gradient_is_followed_to_the_tokens(explorer, architecture):
    found = ask(explorer, "backward", {"state": state(architecture)})
    seen = explorer.session(read_state(state(architecture)))
    back = gradients(seen.run, seen.of)
    assert found["points"][0]["name"] == "logits"
    assert found["points"][-1]["title"].endswith("embedding")
    assert len(found["points"]) == {"encoder": 6, "decoder": 6, "encoder-decoder": 13}[architecture]
    for point in found["points"]:
        assert point["norm"] == pytest.approx(np.linalg.norm(back[point["name"]]), rel=1e-12)
    assert found["flow"] == [one._asdict() for one in reversed(gradient_flow(back))]
    for part in found["tokens"]:
        expected = gradient_times_input(seen.run, seen.of, part["name"])[0]
        np.testing.assert_allclose(part["values"], expected, rtol=1e-12)
        assert len(part["tokens"]) == len(part["values"])


def test_a_stopped_gradient_is_seen_on_the_way(explorer):
    found = ask(explorer, "backward", {"state": state("decoder", changes=[{"word": "stop", "name": "blocks.0"}])})
    norms = {point["name"]: point["norm"] for point in found["points"]}
    assert norms["blocks.1"] > 0 == norms["blocks.0"]


def test_gradients_are_integrated(explorer, monkeypatch):
    asked = []

    def integral(run, of, *, progress, **settings):
        asked.append((run, of, settings))
        progress(50, 100)
        return Integrated(np.array([[1.0, 2.0]]), 3.5, 8)

    monkeypatch.setattr(backward, "integrated_gradients", integral)
    job = explorer.jobs.get(ask(explorer, "integrated", {"state": state("decoder")})["job"])
    assert job.ended.wait(20)
    assert job.result == {"values": pytest.approx([1, 2]), "difference": 3.5, "missing": 0.5, "gradients": 8}
    settings = {"name": "embedding", "baseline": None, "tolerance": backward.TOLERANCE}
    assert asked == [(explorer.session(read_state(state("decoder"))).run, Loss(), settings)]
    assert job.done == 50
    with pytest.raises(ConfigError, match="no tokens at 'nowhere'"):
        ask(explorer, "integrated", {"state": state("decoder"), "name": "nowhere"})


def test_what_one_step_would_do_goes_on_with_what_the_optimizer_remembers(explorer):
    found = ask(explorer, "step", {"state": state("decoder"), **STEP})
    run = explorer.session(read_state(state("decoder"))).run
    expected = update(run, OPTIMIZERS["adam"](), lr=0.01)
    assert found["moves"] == [move._asdict() for move in expected.moves]
    assert (found["before"], found["after"]) == (run.loss, expected.after)
    assert found["promised"] == run.loss + expected.promised
    assert found["losses"] == [run.loss]

    first = update(explorer.session(read_state(state("decoder"))).run, OPTIMIZERS["adam"](), lr=0.01)
    seen = explorer.session(read_state(state("decoder", steps=[STEP])))
    second = update(seen.run, OPTIMIZERS["adam"](), lr=0.01, state=first.state)
    twice = explorer.session(read_state(state("decoder", steps=[STEP, STEP])))
    for name, leaf in flatten(second.params).items():
        np.testing.assert_array_equal(flatten(twice.run.params)[name], leaf)
    told = ask(explorer, "step", {"state": state("decoder", steps=[STEP, STEP]), **STEP})
    assert told["losses"] == [explorer.session(read_state(state("decoder"))).run.loss, seen.run.loss, twice.run.loss]
    assert told["losses"][2] < told["losses"][0]


def test_many_steps_do_not_wait_without_end_and_a_classifier_has_a_loss_once_its_class_is_said(explorer):
    steps = [{"optimizer": "sgd", "lr": 0.001}] * 45
    assert np.isfinite(explorer.session(read_state(state("encoder", answer="1", steps=steps))).run.loss)
    with pytest.raises(ConfigError, match="no loss to lower"):
        ask(explorer, "step", {"state": state("encoder"), **STEP})
    found = ask(explorer, "step", {"state": state("encoder", answer="2"), **STEP})
    assert found["after"] < found["before"]


@pytest.mark.parametrize(
    ("question", "said"),
    [({"optimizer": "adams", "lr": 1}, "no optimizer 'adams'"), ({"optimizer": "sgd", "lr": "x"}, "lr is 'x'")],
)
def test_other_steps_are_refused(explorer, question, said):
    with pytest.raises(ConfigError, match=said):
        ask(explorer, "step", {"state": state("decoder"), **question})
