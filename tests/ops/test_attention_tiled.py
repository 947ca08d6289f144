"""Attention in tiles equals attention."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare import assert_close
from glassformer.ops import (
    Pattern,
    attention,
    attention_backward,
    attention_tiled,
    attention_tiled_backward,
    new_key,
)


def assert_tiled_equals_dense(arrays, *, pattern, tile, mask=None, key=None, rate=0.0, scale=None):
    """Compare values and all gradients of the two."""
    q, k, _, _ = arrays
    whole = pattern.dense(q.shape[-2], k.shape[-2])
    whole = whole if mask is None else whole & mask
    y, saved = attention(*arrays, mask=whole, key=key, rate=rate, scale=scale)
    tiled, tiled_saved = attention_tiled(
        *arrays, mask=mask, pattern=pattern, key=key, rate=rate, scale=scale, tile=tile
    )
    assert_close(tiled, y)
    dy = np.random.default_rng(9).standard_normal(y.shape)
    grads = attention_backward(dy, saved, rate=rate, scale=scale)
    tiled_grads = attention_tiled_backward(dy, tiled_saved, pattern=pattern, rate=rate, scale=scale, tile=tile)
    for grad, other in zip(tiled_grads, grads, strict=True):
        assert (grad is None) == (other is None)
        if grad is not None:
            assert_close(grad, other)


@st.composite
def patterns(draw):
    small = st.none() | st.integers(1, 5)
    return Pattern(causal=draw(st.booleans()), prefix=draw(st.integers(0, 6)), window=draw(small), stride=draw(small))


@st.composite
def problems(draw):
    """Random shapes, heads, masks, biases, dropout, patterns and tiles."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    shared, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    batch = draw(st.sampled_from([(), (1,), (2,), (2, 1), (0,)]))
    pattern = draw(patterns())
    keys = draw(st.integers(1, 9))
    queries = draw(st.integers(1, 9 if pattern.is_full else keys))
    q = rng.standard_normal((*batch, shared * group, queries, 3))
    k, v = rng.standard_normal((2, *batch, shared, keys, 3))
    shapes = [(queries, keys), (1, keys), (keys,), (shared * group, 1, 1), (*batch, shared * group, queries, keys)]
    bias = draw(st.none() | st.sampled_from(shapes).map(rng.standard_normal))
    mask = draw(st.none() | st.sampled_from(shapes).map(lambda shape: rng.random(shape) < 0.7))
    dropout = draw(st.sampled_from([{}, {"key": new_key(4), "rate": 0.3}]))
    tile = draw(st.integers(1, 12))
    return (q, k, v, bias), {"pattern": pattern, "mask": mask, "tile": tile, **dropout}


@settings(max_examples=150)
@given(problems())
def test_tiled_equals_dense(problem):
    arrays, given_settings = problem
    assert_tiled_equals_dense(arrays, **given_settings)


@pytest.mark.parametrize("tile", [1, 2, 3, 5, 7, 64])
def test_every_tile_size_gives_the_same_numbers(rng, tile):
    arrays = (*rng.standard_normal((3, 2, 7, 4)), rng.standard_normal((2, 7, 7)))
    assert_tiled_equals_dense(arrays, pattern=Pattern(causal=True), tile=tile, scale=0.7)


def test_without_a_head_axis(rng):
    assert_tiled_equals_dense((*rng.standard_normal((3, 7, 4)), None), pattern=Pattern(window=3), tile=2)


def test_queries_that_see_nothing_get_zeros(rng):
    q, k, v = rng.standard_normal((3, 2, 5, 4))
    mask = np.ones((5, 5), dtype=bool)
    mask[3] = False
    y, saved = attention_tiled(q, k, v, mask=mask, tile=2)
    assert not y[:, 3].any()
    assert (saved.log_sum[:, 3] == np.inf).all()
    assert_tiled_equals_dense((q, k, v, None), pattern=Pattern(), mask=mask, tile=2)


def test_large_scores_in_any_order_do_not_overflow(rng):
    q, k, v = rng.standard_normal((3, 1, 6, 2))
    q[..., 0] = 1.0
    for order in (np.arange(6), np.arange(6)[::-1]):
        k[..., 0] = 1e3 * order
        assert_tiled_equals_dense((q, k, v, None), pattern=Pattern(), tile=2, scale=1.0)


def test_the_record_grows_with_the_length_and_not_with_its_square(rng):
    q, k, v = rng.standard_normal((3, 1, 300, 2))
    _, saved = attention_tiled(q, k, v, pattern=Pattern(causal=True), tile=64)
    assert sum(x.size for x in saved if x is not None) < 300 * 10


def test_tiles_that_the_pattern_empties_are_never_computed(rng, monkeypatch):
    from glassformer.ops import attention_tiled as module  # the function; its module is where the scores are made

    calls = []
    scores = module.__globals__["attention_scores"]
    monkeypatch.setitem(module.__globals__, "attention_scores", lambda *a, **s: calls.append(1) or scores(*a, **s))
    q, k, v = rng.standard_normal((3, 1, 16, 2))
    attention_tiled(q, k, v, pattern=Pattern(causal=True), tile=4)
    assert len(calls) == 4 + 3 + 2 + 1
    calls.clear()
    attention_tiled(q, k, v, pattern=Pattern(causal=True, window=4), tile=4)
    assert len(calls) == 4 + 3
