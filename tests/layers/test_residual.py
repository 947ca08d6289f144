"""The residual connection."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops
from glassformer.core.tree import flatten, tree_map
from glassformer.layers import Attention, FeedForward, LayerNorm, RMSNorm
from glassformer.layers.residual import Residual

T, S, D = 5, 4, 6
every_place = pytest.mark.parametrize("place", ["pre", "post"])


@pytest.fixture
def x(rng):
    return rng.standard_normal((2, T, D))


def residual_of(place="pre", *, dropout=0.0, norm=None):
    return Residual("feed_forward", FeedForward(D, 7), norm or LayerNorm(D), place, dropout)


@every_place
def test_it_is_what_the_blackboard_says(x, place):
    layer = residual_of(place)
    params = layer.init(0, np.float64)
    f, norm = (lambda h: layer.sublayer.forward(params["feed_forward"], h)[0]), params["feed_forward_norm"]
    expected = x + f(layer.norm.forward(norm, x)[0]) if place == "pre" else layer.norm.forward(norm, x + f(x))[0]
    assert_close(layer.forward(params, x)[0], expected)


def test_records_stand_under_the_name_of_the_sublayer_and_everything_passes_beside_it(x):
    layer = residual_of(dropout=0.5)
    assert list(layer.specs()) == ["feed_forward_norm", "feed_forward"]
    _, saved = layer.forward(layer.init(0, np.float64), x, key=ops.new_key(0))
    assert saved.keys() == {"feed_forward_norm", "feed_forward", "feed_forward_dropout"}

    layer = residual_of()
    silent = tree_map(np.zeros_like, layer.init(0, np.float64))
    y, saved = layer.forward(silent, x)
    np.testing.assert_array_equal(y, x)
    read, _ = layer.backward(silent, saved, np.ones_like(x))
    np.testing.assert_array_equal(read.x, np.ones_like(x))


@every_place
def test_what_else_a_sublayer_read_gets_its_gradient(x, rng, place):
    layer = Residual("cross_attention", Attention(D, 2), RMSNorm(D), place)
    params, memory = layer.init(0, np.float64), rng.standard_normal((2, S, D))
    y, saved = layer.forward(params, x, {"memory": memory})
    read, grads = layer.backward(params, saved, np.ones_like(y))
    assert read.memory.shape == memory.shape
    assert read.bias is None
    assert flatten(grads).keys() == flatten(params).keys()
