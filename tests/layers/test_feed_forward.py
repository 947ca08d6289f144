"""The feed-forward layer: every token by itself."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.layers import FeedForward
from layers.exact import assert_exact

T, D, F = 6, 8, 16


@pytest.fixture
def x(rng):
    return rng.standard_normal((T, D))


def test_it_is_what_the_blackboard_says_with_and_without_a_gate_for_every_token(x):
    layer = FeedForward(D, F, "relu")
    params = layer.init(0, np.float64)
    hidden = np.maximum(x @ params["up"]["w"] + params["up"]["b"], 0)
    assert_close(layer.forward(params, x)[0], hidden @ params["down"]["w"] + params["down"]["b"])

    layer = FeedForward(D, F, "silu", gated=True, bias=False)
    params = layer.init(0, np.float64)
    gate = x @ params["gate"]["w"]
    hidden = gate / (1 + np.exp(-gate)) * (x @ params["up"]["w"])
    assert_close(layer.forward(params, x)[0], hidden @ params["down"]["w"])

    layer = FeedForward(D, F)
    params = layer.init(0, np.float64)
    y, _ = layer.forward(params, x)
    assert_close(np.stack([layer.forward(params, row)[0] for row in x]), y)


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
def test_tokens_that_are_zero_have_exact_gradients_too(gated):
    assert_exact(FeedForward(D, 5, gated=gated), x=np.zeros((2, D)))


def test_first_weights_keep_the_spread_of_their_input(rng):
    layer = FeedForward(256, 512)
    y, _ = layer.forward(layer.init(0, np.float64), rng.standard_normal((100, 256)))
    assert 0.3 < y.std() < 1.5
    smaller = FeedForward(256, 512, std=0.02, output_scale=0.5).init(0, np.float64)
    assert abs(smaller["up"]["w"].std() - 0.02) < 0.001
    assert abs(smaller["down"]["w"].std() - 0.01) < 0.001
