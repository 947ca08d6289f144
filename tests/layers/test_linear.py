"""The affine map as a layer."""

import numpy as np

from compare import assert_close
from glassformer.core.tree import flatten
from glassformer.layers import Linear


def test_it_is_what_the_blackboard_says(rng):
    layer, x = Linear(4, 3), rng.standard_normal((2, 5, 4))
    params = layer.init(0, np.float64)
    params["b"] += [1.0, -2.0, 3.0]
    y, saved = layer.forward(params, x)
    assert_close(y, x @ params["w"] + params["b"])
    assert list(flatten(saved)) == ["x"]


def test_first_weights_keep_the_spread_of_their_input(rng):
    y, _ = (layer := Linear(256, 256)).forward(layer.init(0, np.float64), rng.standard_normal((100, 256)))
    assert 0.9 < y.std() < 1.1
    params = Linear(256, 8, std=0.02).init(0, np.float64)
    assert abs(params["w"].std() - 0.02) < 0.002
    assert not params["b"].any()
