"""Normalization as layers."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.layers import LayerNorm, NoNorm, RMSNorm
from layers.exact import assert_exact

NORMS = [LayerNorm(6), LayerNorm(6, bias=False), RMSNorm(6)]
every_norm = pytest.mark.parametrize("layer", NORMS, ids=["LayerNorm", "LayerNorm without beta", "RMSNorm"])


def test_no_norm_hands_on_what_it_is_given_as_an_array_of_its_own(rng):
    layer, x = NoNorm(6), rng.standard_normal((2, 3, 6))
    y, saved = layer.forward({}, x)
    dx, grads = layer.backward({}, saved, x)
    assert layer.specs() == grads == {}
    assert np.array_equal(y, x)
    assert np.array_equal(dx, x)
    assert saved.x is x
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
def test_a_row_of_equal_numbers_has_finite_and_exact_gradients(layer):
    assert_exact(layer, x=np.full((2, 6), 3.0))
