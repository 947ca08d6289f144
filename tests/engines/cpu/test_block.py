"""A block in one call: results, records and gradients are those of the block as written."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_same
from engines.cpu.fused_cases import (
    BATCHES,
    LENGTHS,
    LIMITS,
    PAIRINGS,
    SEEDS,
    SIZES,
    SPANS,
    Gentle,
    assert_one_call_equals_the_layer,
    calls,
    done,
)
from engines.cpu.kernel_cases import normal
from glassformer import ops
from glassformer.dispatch import use_engine
from glassformer.engines.cpu.activation import LOOPS
from glassformer.layers import Attention, Block, BlockCache, FeedForward, LayerNorm
from glassformer.ops import CAUSAL

__all__ = ["calls"]

BLOCK = Block(Attention(width=8, heads=2, pattern=CAUSAL), FeedForward(8, 12, "gelu_tanh"), LayerNorm(8))


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("activation", LOOPS)
@given(BATCHES, LENGTHS, st.sampled_from([5, 8, 9]), SIZES, SIZES, SIZES, SPANS, PAIRINGS, *[st.booleans()] * 3, SEEDS)
def test_a_block_in_one_call_equals_the_block_as_written(
    kind, activation, batch, length, width, hidden, heads, channels, pattern, pairing, bias, widens, shifts, seed
):
    channels += channels % 2 if pairing else 0
    attention = Attention(width, heads, head_width=channels, bias=bias, pattern=pattern, pairing=pairing or "halves")
    feed_forward = FeedForward(width, hidden, activation, bias=widens)
    block = Block(attention, feed_forward, LayerNorm(width, bias=shifts, eps=1e-3))
    assert_one_call_equals_the_layer("Block", block, (batch, length, width), channels, kind, seed, pairing=pairing)


@pytest.mark.parametrize("activation", LOOPS)
def test_the_gradient_of_an_activation_takes_the_place_of_what_it_is_made_from(rng, activation):
    dy, x = normal(rng, (2, 50), "float32")
    with use_engine("numpy"):
        want = ops.ACTIVATIONS[activation][1](dy, 4 * x)
    LOOPS[activation].backward_in_place(dy, 4 * x)
    np.testing.assert_allclose(dy, want, atol=LIMITS["float32"])


@pytest.mark.parametrize("length", [5, 17, 40])
def test_the_record_of_a_masked_block_goes_with_the_gradient_in_one_call(length):
    mask = np.random.default_rng(2).random((3, length, length)) < 0.6
    mask[1, 2] = False  # nothing to attend to
    assert_one_call_equals_the_layer("Block", BLOCK, (3, length, 8), 4, "float64", 0, pairing=None, mask=mask)


@dataclass(frozen=True)
class Blind(Attention):
    """An attention of one's own."""

    def forward(self, params, x, *others, **given):
        y, saved = super().forward(params, x, *others, **given)
        return 0 * y, saved


@dataclass(frozen=True)
class Flat(LayerNorm):
    """A norm of one's own."""

    def forward(self, params, x):
        y, saved = super().forward(params, x)
        return 0 * y, saved


@pytest.mark.parametrize(
    "own",
    [{"feed_forward": Gentle(8, 12)}, {"attention": Blind(8, 2)}, {"norm": Flat(8)}],
    ids=lambda own: next(iter(own)),
)
def test_a_part_of_ones_own_is_heard(rng, calls, own):
    block = replace(BLOCK, **own)
    params, x = block.init(1, dtype=np.float64), normal(rng, (3, 5, 8), "float64")
    have, saved = block.forward(params, x)
    grads = block.backward(params, saved, have)
    assert not {"Block.forward", "Block.backward"} & done(calls)
    with use_engine("numpy"):
        want, kept = block.forward(params, x)
        assert_same((have, grads), (want, block.backward(params, kept, want)))
    assert not np.allclose(have, BLOCK.forward(params, x)[0])


def test_an_activation_of_ones_own_is_computed_by_it(rng, calls, monkeypatch):
    monkeypatch.setitem(ops.ACTIVATIONS, "square", (lambda x: (x * x, x), lambda dy, x: 2 * dy * x))
    block = replace(BLOCK, feed_forward=FeedForward(8, 12, "square"))
    params, x = block.init(1, dtype=np.float64), normal(rng, (3, 5, 8), "float64")
    y, saved = block.forward(params, x)
    block.backward(params, saved, y)
    assert not {"Block.forward", "Block.backward"} & done(calls)
    with use_engine("numpy"):
        np.testing.assert_allclose(y, block.forward(params, x)[0], atol=1e-12)


def test_a_block_with_a_cache_is_read_as_written(rng, calls):
    params, x = BLOCK.init(1, dtype=np.float64), normal(rng, (3, 5, 8), "float64")
    BLOCK.forward(params, x, cache=BlockCache())
    assert "Block.forward" not in done(calls)
