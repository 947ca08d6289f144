"""The Transformer block."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops
from glassformer.core.errors import ConfigError, ShapeError
from glassformer.core.tree import flatten
from glassformer.layers import Attention, Block, FeedForward, LayerNorm

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
