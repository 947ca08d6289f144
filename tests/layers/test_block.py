"""The Transformer block, with sublayers one after the other, side by side, or left out."""

import numpy as np
import pytest

import glassformer as gf
from compare import assert_close
from glassformer import ops
from glassformer.core.errors import ConfigError, ShapeError
from glassformer.core.tree import flatten
from glassformer.interpret import gradients, put, watch
from glassformer.layers import (
    Attention,
    AttentionOnly,
    Block,
    FeedForward,
    FeedForwardOnly,
    LayerNorm,
    NoResidual,
    Parallel,
)
from glassformer.ops import CAUSAL

T, S, D, H = 6, 4, 8, 2
every_place = pytest.mark.parametrize("place", ["pre", "post"])


@pytest.fixture
def x(rng):
    return rng.standard_normal((T, D))


def block_of(place="pre", *, cross=False, dropout=0.0, norm=None):
    attention, feed_forward = Attention(D, H, pattern=ops.CAUSAL), FeedForward(D, 16, "gelu_tanh")
    return Block(attention, feed_forward, norm or LayerNorm(D), Attention(D, H) if cross else None, place, dropout)


@every_place
@pytest.mark.parametrize("cross", [False, True], ids=["alone", "with a memory"])
def test_it_is_what_the_blackboard_says(x, rng, place, cross):
    block, memory = block_of(place, cross=cross), rng.standard_normal((S, D)) if cross else None
    params = block.init(0, np.float64)
    y, saved = block.forward(params, x, memory)
    for name in ("attention", "cross_attention", "feed_forward") if cross else ("attention", "feed_forward"):
        layer, own, norm = getattr(block, name), params[name], params[f"{name}_norm"]
        seen = (memory,) if name == "cross_attention" else ()
        if place == "pre":
            x = x + layer.forward(own, block.norm.forward(norm, x)[0], *seen)[0]
        else:
            x, _ = block.norm.forward(norm, x + layer.forward(own, x, *seen)[0])
    assert_close(y, x)
    assert saved["output"] is y
    assert saved["attention"].weights.shape == (H, T, T)


@pytest.mark.parametrize("cross", [False, True], ids=["alone", "with a memory"])
def test_every_sublayer_has_a_norm_of_its_own(cross):
    names = ["attention", "cross_attention", "feed_forward"] if cross else ["attention", "feed_forward"]
    assert block_of(cross=cross).specs().keys() == {part for name in names for part in (name, f"{name}_norm")}


@every_place
def test_what_is_dropped_of_a_sublayer_still_passes_beside_it(x, place):
    block = block_of(place, dropout=0.5)
    params = block.init(0, np.float64)
    _, saved = block.forward(params, x, key=ops.new_key(0))
    kept, *_ = (record for name, record in flatten(saved).items() if name.startswith("attention_dropout"))
    assert 0 < np.asarray(kept).mean() < 1
    assert not any("dropout" in name for name in flatten(block.forward(params, x)[1]))


def test_what_cannot_be_is_refused(x):
    with pytest.raises(ConfigError, match="norm_position is 'mid'") as caught:
        block_of("mid")
    assert caught.value.hint
    crossed = block_of(cross=True)
    with pytest.raises(ShapeError, match="attends to a memory, but none was given") as caught:
        crossed.forward(crossed.init(0, np.float64), x)
    assert caught.value.hint


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


@pytest.fixture
def stream():
    return np.random.default_rng(0).standard_normal((2, 5, 8))


def made(form):
    layer = form(Attention(8, 2), FeedForward(8, 12), LayerNorm(8))
    return layer, layer.init(0, np.float64)


def found_by(layer, params, name, stream):
    return getattr(layer, name).forward(params[name], layer.norm.forward(params[f"{name}_norm"], stream)[0])[0]


@pytest.mark.parametrize(("form", "name"), [(AttentionOnly, "attention"), (FeedForwardOnly, "feed_forward")])
def test_one_sublayer_is_added_and_nothing_else(form, name, stream):
    layer, params = made(form)
    y, saved = layer.forward(params, stream)
    np.testing.assert_allclose(y, stream + found_by(layer, params, name, stream), rtol=0, atol=1e-15)
    assert set(params) == {name, f"{name}_norm"} == set(saved) - {"output"}


def test_without_residuals_each_sublayer_replaces_what_came_in(stream):
    layer, params = made(NoResidual)
    y, _ = layer.forward(params, stream)
    h = found_by(layer, params, "attention", stream)
    np.testing.assert_array_equal(y, found_by(layer, params, "feed_forward", h))
