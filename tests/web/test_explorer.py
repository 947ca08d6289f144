"""Runs as pages ask for them: changes, targets and steps as Python makes them; each is made once."""

import threading
import weakref

import numpy as np
import pytest

from browser import TASKS, state, tiny_explorer
from glassformer.core.errors import GlassformerError
from glassformer.core.tree import flatten
from glassformer.interpret import Logit, Loss, Sum, gradients, scale, take, zero
from glassformer.web.explorer import SharedCache
from glassformer.web.state import read_state

NAME = {"encoder": "blocks.1", "decoder": "blocks.1", "encoder-decoder": "decoder.blocks.1"}


def seen(explorer, architecture, **more):
    return explorer.session(read_state(state(architecture, **more)))


@pytest.mark.parametrize("architecture", TASKS)
def test_changes_are_those_of_python(explorer, architecture):
    name = NAME[architecture]
    sent = [
        {"word": "zero", "name": f"{name}.attention.output.x", "where": {"head": 1}},
        {"word": "scale", "name": f"{name}.feed_forward", "value": 0.5, "where": {"position": 2}},
    ]
    found = seen(explorer, architecture, changes=sent)
    made = [zero(f"{name}.attention.output.x", head=1), scale(f"{name}.feed_forward", 0.5, position=2)]
    expected = found.plain.changed(*made)
    np.testing.assert_array_equal(found.run.logits, expected.logits)
    np.testing.assert_array_equal(found.array("value", name), expected[name])
    np.testing.assert_array_equal(found.array("before", name), found.plain[name])
    np.testing.assert_array_equal(found.array("change", name), expected[name] - found.plain[name])


def test_texts_to_take_from_and_gradients_are_changed_on_the_way(explorer):
    other = explorer.opened("decoder").watch("for y in")
    base = seen(explorer, "decoder").run
    patch = {"word": "take", "name": "blocks.0", "where": {"position": 4}, "other": "for y in"}
    taken = seen(explorer, "decoder", changes=[patch]).run
    np.testing.assert_array_equal(taken.logits, base.changed(take("blocks.0", other, position=4)).logits)
    steered = seen(explorer, "decoder", changes=[{**patch, "word": "steer", "value": 1.0}]).run
    np.testing.assert_allclose(steered.logits, taken.logits, atol=1e-12)

    found = seen(explorer, "decoder", changes=[{"word": "stop", "name": "blocks.1"}])
    assert np.all(found.gradients["blocks.0"] == 0)
    assert np.any(found.plain_gradients["blocks.0"] != 0)


@pytest.mark.parametrize(
    ("of", "target"),
    [
        ({"kind": "loss"}, Loss()),
        ({"kind": "logit", "token": 3, "against": 5, "position": 1}, Logit(3, 1, against=5)),
        ({"kind": "entry", "name": "blocks.0", "index": [0, 1, 2]}, Sum("blocks.0", position=1, feature=2)),
    ],
)
def test_any_number_runs_back(explorer, of, target):
    found = seen(explorer, "decoder", of=of)
    expected = gradients(found.run, target)
    np.testing.assert_allclose(found.gradients["embedding"], expected["embedding"], atol=1e-15)


@pytest.mark.parametrize(
    "wrong",
    [
        {"changes": [{"word": "zero", "name": "blocks.9"}]},
        {"changes": [{"word": "zero", "name": "blocks.0", "where": {"head": 0}}]},
        {"changes": [{"word": "take", "name": "blocks.0", "other": "short"}]},
        {"of": {"kind": "logit", "token": 10**6}},
        {"of": {"kind": "entry", "name": "blocks.0", "index": [0, 99, 0]}},
        {"of": {"kind": "entry", "name": "blocks.0", "index": [0]}},
        {"steps": [{"optimizer": "adams", "lr": 0.1}]},
        {"text": ""},
        {"answer": "an answer"},
    ],
)
def test_what_does_not_fit_is_refused(explorer, wrong):
    with pytest.raises(GlassformerError):
        seen(explorer, "decoder", **wrong).gradients["embedding"]


def test_what_is_asked_for_at_the_same_time_is_made_once():
    kept, made, inside = SharedCache(), [], threading.Barrier(4)

    def ask():
        inside.wait()
        kept.get("key", lambda: made.append(1) or len(made))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_what_nobody_asked_for_longest_is_forgotten_unless_a_changed_run_needs_it(monkeypatch, numpy_engine):
    kept, made = SharedCache(), []
    for key in ("a", "b", "a", "c", "b"):
        kept.get(key, lambda key=key: made.append(key) or key, most=2)
    assert made == ["a", "b", "c", "b"]

    monkeypatch.setattr("glassformer.web.explorer.RUN_BYTES", 1)
    explorer, change = tiny_explorer("decoder"), {"word": "zero", "name": "blocks.1.feed_forward", "where": {}}
    first = seen(explorer, "decoder", changes=[change])
    assert seen(explorer, "decoder") is first.start
    second = seen(explorer, "decoder", changes=[change, {**change, "name": "blocks.0"}])
    assert second.start is first.start
    assert seen(explorer, "decoder", changes=[change]) is not first


def test_an_error_is_not_remembered():
    kept = SharedCache()
    with pytest.raises(ZeroDivisionError):
        kept.get("key", lambda: 1 // 0)
    assert kept.get("key", lambda: 3) == 3


def test_gradients_of_parameters_count_toward_the_memory_that_sessions_may_take(monkeypatch, numpy_engine):
    explorer = tiny_explorer("decoder")
    first = seen(explorer, "decoder")
    before = sum(first.arrays().values())
    weights = sum(leaf.nbytes for leaf in flatten(first.gradients.params).values())
    after = sum(first.arrays().values())
    assert after >= before + weights
    monkeypatch.setattr("glassformer.web.explorer.RUN_BYTES", before + weights // 2)
    gone = weakref.ref(first)
    del first
    seen(explorer, "decoder", text="in for x")
    assert gone() is None
