"""The tuned lens: a plain lens before training, closer to the model after it, with gradients that are right."""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.errors import ConfigError, ShapeError
from glassformer.interpret import lens, train_lens, tuned_lens, watch
from glassformer.interpret.lens import lens_loss_and_grads

ARCHITECTURES = ["encoder", "decoder", "encoder_decoder"]


@pytest.fixture
def run(request):
    return watch(*request.getfixturevalue(request.param))


every = pytest.mark.parametrize("run", ARCHITECTURES, indirect=True)


@every
def test_it_begins_as_a_plain_lens(run):
    assert np.array_equal(tuned_lens(run).read(run).logits, lens(run).logits)


@every
def test_gradients_equal_differences(run):
    rng = np.random.default_rng(1)
    tuned = tuned_lens(run)
    maps = [{name: x + 0.1 * rng.standard_normal(x.shape) for name, x in own.items()} for own in tuned.maps]
    _, grads = lens_loss_and_grads(replace(tuned, maps=maps), run)
    for name, place in (("w", (2, 5)), ("b", (3,))):
        losses = []
        for step in (1e-6, -1e-6):
            moved = [{**own, name: own[name].copy()} for own in maps]
            for own in moved:
                own[name][place] += step
            losses.append(lens_loss_and_grads(replace(tuned, maps=moved), run)[0])
        slopes = (losses[0] - losses[1]) / 2e-6
        assert np.allclose([own[name][place] for own in grads], slopes, rtol=1e-6, atol=1e-9)


@every
def test_training_brings_every_point_closer(run):
    steps = []
    tuned, losses = train_lens(
        tuned_lens(run), [run, run], steps=30, lr=0.01, progress=lambda *done: steps.append(done)
    )
    assert np.all(losses[-1] < 0.8 * losses[0])
    assert steps[-1] == (30, 30)
    assert np.array_equal(tuned.read(run).logits[-1], run.logits)


def test_what_does_not_fit_is_refused(decoder, encoder):
    run, other = watch(*decoder), watch(*encoder)
    with pytest.raises(ConfigError, match="0 runs"):
        train_lens(tuned_lens(run), [])
    tuned = tuned_lens(run)
    smaller = replace(tuned, maps=[{"w": np.eye(3), "b": np.zeros(3)}] * 4)
    with pytest.raises(ShapeError, match="another model"):
        smaller.read(run)
    with pytest.raises(ShapeError, match="another model"):
        replace(tuned, points=tuned.points[1:]).read(other)
