"""Blocks without a part: the formula, and no parameter too many."""

import numpy as np
import pytest

from glassformer.layers import Attention, AttentionOnly, FeedForward, FeedForwardOnly, LayerNorm, NoResidual


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((2, 5, 8))


def made(form):
    layer = form(Attention(8, 2), FeedForward(8, 12), LayerNorm(8))
    return layer, layer.init(0, np.float64)


def found_by(layer, params, name, x):
    return getattr(layer, name).forward(params[name], layer.norm.forward(params[f"{name}_norm"], x)[0])[0]


@pytest.mark.parametrize(("form", "name"), [(AttentionOnly, "attention"), (FeedForwardOnly, "feed_forward")])
def test_one_sublayer_is_added_and_nothing_else(form, name, x):
    layer, params = made(form)
    y, saved = layer.forward(params, x)
    np.testing.assert_allclose(y, x + found_by(layer, params, name, x), rtol=0, atol=1e-15)
    assert set(params) == {name, f"{name}_norm"} == set(saved) - {"output"}


def test_without_residuals_each_sublayer_replaces_what_came_in(x):
    layer, params = made(NoResidual)
    y, _ = layer.forward(params, x)
    h = found_by(layer, params, "attention", x)
    np.testing.assert_array_equal(y, found_by(layer, params, "feed_forward", h))
