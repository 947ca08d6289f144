"""The block whose sublayers stand side by side: the formula, watched by name."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.core.errors import ConfigError, ShapeError
from glassformer.interpret import gradients, put, watch
from glassformer.layers import Attention, FeedForward, LayerNorm, Parallel
from glassformer.ops import CAUSAL

SIZES = {"vocab": 7, "width": 8, "heads": 2, "layers": 2, "context": 9}


def block(**settings):
    return Parallel(Attention(8, 2, pattern=CAUSAL), FeedForward(8, 12), LayerNorm(8), **settings)


def test_both_sublayers_read_the_stream_as_it_came_in():
    layer, x = block(), np.random.default_rng(0).standard_normal((2, 5, 8))
    params = layer.init(1, np.float64)
    y, saved = layer.forward(params, x)
    norm = layer.norm
    a, _ = layer.attention.forward(params["attention"], norm.forward(params["attention_norm"], x)[0])
    f, _ = layer.feed_forward.forward(params["feed_forward"], norm.forward(params["feed_forward_norm"], x)[0])
    np.testing.assert_allclose(y, x + a + f, rtol=0, atol=1e-15)
    assert saved["output"] is y

    model = gf.build(gf.DecoderConfig(**SIZES, block="parallel", norm="none"))
    run = watch(model, model.init(0, np.float64), gf.Batch(np.array([[1, 2, 3]]), np.array([[2, 3, 4]])))
    changed = run.changed(put("blocks.0.attention", np.ones((1, 3, 8))))
    assert np.array_equal(changed["blocks.0.feed_forward"], run["blocks.0.feed_forward"])
    assert not np.array_equal(changed["blocks.1.feed_forward"], run["blocks.1.feed_forward"])
    found = gradients(run)
    np.testing.assert_allclose(found["blocks.0.attention"], found["blocks.0.feed_forward"], rtol=0, atol=1e-15)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="norm_position of a parallel block"):
        block(norm_position="post")
    crossed = block(cross_attention=Attention(8, 2))
    with pytest.raises(ShapeError, match="attends to a memory"):
        crossed.forward(crossed.init(0), np.zeros((1, 2, 8)))
