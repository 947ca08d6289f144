"""The lens over the steps of a recorded training, beside a decoder written here in plain NumPy."""

from dataclasses import replace

import numpy as np
import pytest

import glassformer as gf
from glassformer.api.learn import replay
from glassformer.core.errors import ConfigError
from glassformer.core.tree import flatten, tree_map
from glassformer.interpret import lens, lens_course
from glassformer.plots import lens_map
from glassformer.runs.start import new_session
from runs import TINY

STEPS, TEXT = [0, 3, 7], "abca"
SETTINGS = {
    **TINY["induction"],
    "norm_position": "pre",
    "positions": "learned",
    "steps": 7,
    "tied_head": False,
    "activation": "relu",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course") / "run"
    session = new_session("induction", folder, settings=SETTINGS, recorded=True)
    list(session.steps())
    session.save()
    session.sink.lock.release()
    return replay(folder)


class Doubled:
    """The same frames in float64."""

    def __init__(self, recorded):
        self.recorded, self.spaced = recorded, recorded.spaced

    def frames(self, steps):
        for frame in self.recorded.frames(steps):
            wide = tree_map(lambda x: x.astype(np.float64), frame.trained.params)
            yield replace(frame, trained=replace(frame.trained, params=wide))


def by_hand(params, ids):
    """Return the logits of the last token at every point of the stream of a model of one block."""
    p = flatten(params)

    def norm(name, x):
        centered = x - x.mean(axis=-1, keepdims=True)
        root = np.sqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-5)
        return centered / root * p[f"{name}.gamma"] + p[f"{name}.beta"]

    def linear(name, x):
        return x @ p[f"{name}.w"] + p.get(f"{name}.b", 0)

    x = p["embedding.tokens.table"][ids] + p["embedding.positions.table"][: len(ids)]
    points, h = [x], norm("blocks.0.attention_norm", x)
    q, k, v = (linear(f"blocks.0.attention.{one}", h) for one in ("query", "key", "value"))
    heads = []
    for cut in (slice(0, 4), slice(4, 8)):
        scores = np.where(np.tri(len(ids), dtype=bool), q[:, cut] @ k[:, cut].T / 2, -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        heads.append(weights / weights.sum(axis=-1, keepdims=True) @ v[:, cut])
    points.append(points[-1] + linear("blocks.0.attention.output", np.concatenate(heads, axis=-1)))
    hidden = np.maximum(linear("blocks.0.feed_forward.up", norm("blocks.0.feed_forward_norm", points[-1])), 0)
    points.append(points[-1] + linear("blocks.0.feed_forward.down", hidden))
    return np.stack([linear("head", norm("final_norm", point)[-1]) for point in points])


def test_every_step_says_what_its_own_model_says(recorded):
    course = lens_course(Doubled(recorded), TEXT, steps=STEPS[::-1])
    assert course.steps == tuple(STEPS)
    for n, frame in enumerate(recorded.frames(STEPS)):
        wide = tree_map(lambda x: x.astype(np.float64), frame.trained.params)
        expected = by_hand(wide, frame.trained.watch(TEXT).batch.tokens[0])
        np.testing.assert_allclose(course.logits[:, n], expected, rtol=0, atol=1e-9)
        odds = np.exp(expected) / np.exp(expected).sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(course.probabilities(5)[:, n], odds[:, 5], rtol=0, atol=1e-9)


def test_a_course_is_a_lens_after_each_step_with_its_tokens(recorded):
    course = lens_course(recorded, TEXT, steps=STEPS, at=["block 0"], position=0)
    for n, frame in enumerate(recorded.frames(STEPS)):
        seen = lens(frame.trained.watch(TEXT), at=["block 0"], positions=0)
        np.testing.assert_array_equal(course.logits[:, n], seen.logits[:, 0, 0])
    text = repr(course).splitlines()
    assert text[1].split() == ["step", "block", "0"]
    assert [line.split()[0] for line in text[2:]] == ["0", "3", "7"]
    assert text[2].count("'") == 2
    assert len(lens_course(recorded, TEXT).steps) > 3
    figure = lens_map(course)
    assert figure.axes[0].get_xlabel() == "step of the training"
    assert [one.get_text() for one in figure.axes[0].get_xticklabels()] == ["0", "3", "7"]
    assert figure.axes[0].images[0].get_array().shape == (1, 3)


def test_what_is_no_recorded_training_is_refused(recorded):
    with pytest.raises(ConfigError, match="no recorded training"):
        lens_course(gf.build("tiny-decoder"))
    with pytest.raises(ConfigError, match="no steps"):
        lens_course(recorded, TEXT, steps=[])
    with pytest.raises(ConfigError, match="cannot return to step 99"):
        lens_course(recorded, TEXT, steps=[99])
