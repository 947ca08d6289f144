"""Saliency: gradients at the input, and integrals of them that add up."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError, ShapeError
from glassformer.interpret import Logit, Loss, gradient_times_input, integrated_gradients, put, saliency

TARGET = Logit(1, against=0)


decoder_only = pytest.mark.parametrize("run", ["decoder"], indirect=True)


def test_integrated_gradients_are_complete(run):
    start = 0.9 * run["embedding"] + 0.1 * np.roll(run["embedding"], 1, axis=1)
    found = integrated_gradients(run, TARGET, baseline=start)
    difference = TARGET.value(run) - TARGET.value(run.changed(put("embedding", start)))
    assert found.difference == pytest.approx(difference, rel=1e-12)
    assert abs(found.missing) <= 1e-6 * max(1, abs(difference))
    assert found.tokens.shape == (2, 5)


@decoder_only
def test_where_the_way_is_steep_it_is_cut_into_pieces(run, caplog):
    steps = []
    start = 0.3 * run["embedding"]
    found = integrated_gradients(run, TARGET, baseline=start, progress=lambda *done: steps.append(done))
    assert found.gradients > 8
    assert abs(found.missing) <= 1e-6 * max(1, abs(found.difference))
    assert steps[-1] == (100, 100)
    coarse = integrated_gradients(run, TARGET, most=8)
    assert abs(coarse.missing) > 1e-6
    assert "misses" in caplog.text


@decoder_only
def test_the_mean_is_a_place_to_start_from_and_gradients_are_not_sought_again(run):
    start = run["embedding"].mean(axis=1, keepdims=True)
    found, expected = (integrated_gradients(run, TARGET, baseline=own, tolerance=0.1) for own in (None, start))
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    found = gf.interpret.gradients(run, TARGET)
    for method in (saliency, gradient_times_input):
        np.testing.assert_array_equal(method(run, found), method(run, TARGET))


@pytest.mark.parametrize("run", ["encoder_decoder"], indirect=True)
def test_tokens_of_the_source_are_asked_too(run):
    start = 0.9 * run["source_embedding"]
    found = integrated_gradients(run, Loss(), name="source_embedding", baseline=start)
    assert found.tokens.shape == (2, 4)
    assert np.all(found.tokens[1, 2:] == 0)  # padding
    assert abs(found.missing) <= 1e-6
    assert saliency(run, TARGET, "source_embedding").shape == (2, 4)


def test_gradient_times_input_is_the_slope_along_the_input(run):
    found = gradient_times_input(run, TARGET)
    step = 1e-6
    up, down = (TARGET.value(run.changed(put("embedding", (1 + s) * run["embedding"]))) for s in (step, -step))
    assert found.shape == (2, 5)
    assert np.isclose(found.sum(), (up - down) / (2 * step), rtol=1e-6, atol=1e-8)


@decoder_only
def test_only_tokens_that_can_be_seen_are_salient_and_others_refused(run):
    found = saliency(run, Logit(1, position=2, example=1))
    assert np.all(found[1, :3] > 0)
    assert np.all(found[1, 3:] == 0)
    assert np.all(found[0] == 0)

    with pytest.raises(ConfigError, match="did you mean"):
        integrated_gradients(run, TARGET, name="embeding")
    with pytest.raises(ConfigError, match=r"another value \(B, T, D\)"):
        integrated_gradients(run, TARGET, name="blocks.0.attention.attend.q")
    with pytest.raises(ShapeError, match="the baseline is"):
        integrated_gradients(run, TARGET, baseline=np.zeros(3))
