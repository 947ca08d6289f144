"""The feed-forward layer, the affine map and normalization as layers."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.core.tree import flatten
from glassformer.layers import FeedForward, LayerNorm, Linear, NoNorm, RMSNorm
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


def test_a_linear_map_is_what_the_blackboard_says_and_keeps_the_spread_of_its_input(rng):
    layer, x = Linear(4, 3), rng.standard_normal((2, 5, 4))
    params = layer.init(0, np.float64)
    params["b"] += [1.0, -2.0, 3.0]
    y, saved = layer.forward(params, x)
    assert_close(y, x @ params["w"] + params["b"])
    assert list(flatten(saved)) == ["x"]

    y, _ = (layer := Linear(256, 256)).forward(layer.init(0, np.float64), rng.standard_normal((100, 256)))
    assert 0.9 < y.std() < 1.1
    params = Linear(256, 8, std=0.02).init(0, np.float64)
    assert abs(params["w"].std() - 0.02) < 0.002
    assert not params["b"].any()


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
