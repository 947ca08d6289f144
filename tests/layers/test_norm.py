"""Normalization as layers."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.errors import ShapeError
from glassformer.layers import LayerNorm, NoNorm, RMSNorm
from layers.exact import assert_exact

NORMS = [LayerNorm(6), LayerNorm(6, bias=False), RMSNorm(6)]
every_norm = pytest.mark.parametrize("layer", NORMS, ids=["LayerNorm", "LayerNorm without beta", "RMSNorm"])


def test_layer_norm_is_what_the_blackboard_says(rng):
    layer, x = LayerNorm(6, eps=0.1), rng.standard_normal((2, 3, 6))
    params = {"gamma": rng.standard_normal(6), "beta": rng.standard_normal(6)}
    centered = x - x.mean(axis=-1, keepdims=True)
    expected = centered / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + 0.1)
    assert_close(layer.forward(params, x)[0], params["gamma"] * expected + params["beta"])


def test_rms_norm_is_what_the_blackboard_says(rng):
    layer, x, gamma = RMSNorm(6, eps=0.1), rng.standard_normal((2, 3, 6)), rng.standard_normal(6)
    expected = gamma * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 0.1)
    assert_close(layer.forward({"gamma": gamma}, x)[0], expected)


def test_no_norm_hands_on_what_it_is_given_as_an_array_of_its_own(rng):
    layer, x = NoNorm(6), rng.standard_normal((2, 3, 6))
    y, saved = layer.forward({}, x)
    dx, grads = layer.backward({}, saved, x)
    assert layer.specs() == grads == {}
    assert np.array_equal(y, x)
    assert np.array_equal(dx, x)
    assert saved["x"] is x
    assert y is not x


@every_norm
def test_it_starts_by_changing_nothing_but_the_scale(rng, layer):
    params = layer.init(0, np.float64)
    assert params.keys() == layer.specs().keys()
    assert (params["gamma"] == 1).all()
    assert not params.get("beta", np.zeros(1)).any()
    y, _ = layer.forward(params, 7 * rng.standard_normal((4, 6)))
    assert_close(np.mean(y**2, axis=-1), np.ones(4), 1e-5)


@every_norm
def test_the_size_of_the_input_does_not_matter(rng, layer):
    x, params = rng.standard_normal((4, 6)), layer.init(0, np.float64)
    assert_close(layer.forward(params, 1000 * x)[0], layer.forward(params, x)[0], 1e-4)


@every_norm
@pytest.mark.parametrize("lead", [(), (5,), (2, 1, 3), (0,)], ids=str)
def test_its_gradients_are_exact_for_any_batch(rng, layer, lead):
    assert_exact(layer, x=rng.standard_normal((*lead, 6)))


@every_norm
def test_a_row_of_equal_numbers_has_finite_and_exact_gradients(layer):
    assert_exact(layer, x=np.full((2, 6), 3.0))


def test_a_norm_of_another_width_is_refused(rng):
    layer = LayerNorm(6)
    with pytest.raises(ShapeError, match=r"shape \(4, 5\), expected \(..., 6\)"):
        layer.forward(layer.init(0, np.float64), rng.standard_normal((4, 5)))
