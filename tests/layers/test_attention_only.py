"""The block of attention alone: the formula, and no parameter too many."""

import numpy as np

from glassformer.layers import Attention, AttentionOnly, FeedForward, LayerNorm


def test_attention_is_added_and_nothing_else():
    layer = AttentionOnly(Attention(8, 2), FeedForward(8, 12), LayerNorm(8))
    params, x = layer.init(0, np.float64), np.random.default_rng(0).standard_normal((2, 5, 8))
    y, _ = layer.forward(params, x)
    a, _ = layer.attention.forward(params["attention"], layer.norm.forward(params["attention_norm"], x)[0])
    np.testing.assert_allclose(y, x + a, rtol=0, atol=1e-15)
    assert set(params) == {"attention", "attention_norm"}
