"""The affine map as a layer."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.errors import DTypeError, ShapeError
from glassformer.layers import Linear
from glassformer.tree import flatten
from layers.exact import assert_exact


def test_it_is_what_the_blackboard_says(rng):
    layer, x = Linear(4, 3), rng.standard_normal((2, 5, 4))
    params = layer.init(0, np.float64)
    params["b"] += [1.0, -2.0, 3.0]
    y, saved = layer.forward(params, x)
    assert_close(y, x @ params["w"] + params["b"])
    assert list(flatten(saved)) == ["x"]


@pytest.mark.parametrize(("bias", "shapes"), [(True, {"w": (4, 3), "b": (3,)}), (False, {"w": (4, 3)})])
def test_its_parameters_are_the_matrix_and_perhaps_the_bias(bias, shapes):
    layer = Linear(4, 3, bias=bias)
    assert {name: spec.shape for name, spec in layer.specs().items()} == shapes
    assert {name: x.shape for name, x in layer.init().items()} == shapes


@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("lead", [(), (5,), (2, 1, 3), (0,)], ids=str)
def test_its_gradients_are_exact_for_any_batch(rng, lead, bias):
    assert_exact(Linear(4, 3, bias=bias), x=rng.standard_normal((*lead, 4)))


def test_every_row_of_a_batch_adds_to_the_gradients_of_matrix_and_bias(rng):
    layer, x, dy = Linear(4, 3), rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 5, 3))
    params = layer.init(0, np.float64)
    dx, grads = layer.backward(params, layer.forward(params, x)[1], dy)
    assert_close(dx, dy @ params["w"].T)
    pairs = zip(x.reshape(-1, 4), dy.reshape(-1, 3), strict=True)
    assert_close(grads["w"], sum(np.outer(row, slope) for row, slope in pairs))
    assert_close(grads["b"], dy.sum(axis=(0, 1)))


def test_first_weights_keep_the_spread_of_their_input(rng):
    y, _ = (layer := Linear(256, 256)).forward(layer.init(0, np.float64), rng.standard_normal((100, 256)))
    assert 0.9 < y.std() < 1.1
    params = Linear(256, 8, std=0.02).init(0, np.float64)
    assert abs(params["w"].std() - 0.02) < 0.002
    assert not params["b"].any()


def test_inputs_that_do_not_fit_are_refused(rng):
    layer = Linear(4, 3)
    params = layer.init(0, np.float64)
    with pytest.raises(ShapeError, match=r"shape \(2, 5\), expected \(..., 4\)"):
        layer.forward(params, rng.standard_normal((2, 5)))
    with pytest.raises(DTypeError, match="expected an array, got list"):
        layer.forward(params, [1.0, 2.0, 3.0, 4.0])
