"""Attention in tiles equals attention, on every engine."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_close
from draws import draws
from glassformer.core.dispatch import use_engine
from glassformer.engines import ENGINES
from glassformer.ops import (
    Pattern,
    attention,
    attention_backward,
    attention_tiled,
    attention_tiled_backward,
    merge_heads,
    new_key,
)
from glassformer.ops.attention_strided import beyond, neighborhood

LIMITS = {"float64": 1e-12, "float32": 1e-5}
on_every_engine = pytest.mark.parametrize("engine", ENGINES)


def assert_tiled_equals_dense(arrays, *, engine, pattern, tile, mask=None, key=None, rate=0.0, scale=None):
    """Compare values and all gradients of the two."""
    limit = LIMITS[arrays[0].dtype.name]
    dropout = {"key": key, "rate": rate}
    with use_engine("numpy"):
        y, saved = attention(*arrays, mask=mask, pattern=pattern, scale=scale, **dropout)
        dy = np.random.default_rng(9).standard_normal(y.shape).astype(y.dtype)
        grads = attention_backward(dy, saved, rate=rate, scale=scale)
    with use_engine(engine):
        tiled, tiled_saved = attention_tiled(*arrays, mask=mask, pattern=pattern, scale=scale, tile=tile, **dropout)
        tiled_grads = attention_tiled_backward(dy, tiled_saved, pattern=pattern, rate=rate, scale=scale, tile=tile)
    assert_close(tiled, y, limit)
    for grad, other in zip(tiled_grads, grads, strict=True):
        assert (grad is None) == (other is None)
        if grad is not None:
            assert_close(grad, other, limit)


@st.composite
def patterns(draw):
    small = st.none() | st.integers(1, 5)
    return Pattern(causal=draw(st.booleans()), prefix=draw(st.integers(0, 6)), window=draw(small), stride=draw(small))


@st.composite
def problems(draw, *, most=9):
    """Random shapes, heads, masks, biases, dropout, patterns and tiles."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    shared, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    batch = draw(st.sampled_from([(), (1,), (2,), (2, 1), (0,)]))
    pattern = draw(patterns())
    keys = draw(st.integers(1, most))
    queries = draw(st.integers(1, most) if pattern.is_full else st.sampled_from([keys, 1]) | st.integers(1, keys))
    kind = draw(st.sampled_from(["float64", "float64", "float32"]))

    def normal(*shape):
        return rng.standard_normal(shape).astype(kind)

    q = normal(*batch, shared * group, queries, 3)
    k, v = normal(*batch, shared, keys, 3), normal(*batch, shared, keys, draw(st.sampled_from([3, 3, 4])))
    shapes = [(queries, keys), (1, keys), (keys,), (shared * group, 1, 1), (*batch, shared * group, queries, keys)]
    bias = draw(st.none() | st.none() | st.sampled_from(shapes).map(lambda shape: normal(*shape)))
    mask = draw(st.none() | st.sampled_from(shapes).map(lambda shape: rng.random(shape) < 0.7))
    dropout = draw(st.sampled_from([{}, {"key": new_key(4), "rate": 0.3}]))
    tile = draw(st.integers(1, 12))
    return (q, k, v, bias), {"pattern": pattern, "mask": mask, "tile": tile, **dropout}


@on_every_engine
@draws(times=7.5)
@given(problem=problems())
def test_tiled_equals_dense(engine, problem):
    arrays, given_settings = problem
    assert_tiled_equals_dense(arrays, engine=engine, **given_settings)


@on_every_engine
@pytest.mark.parametrize("tile", [1, 2, 3, 5, 7, 64])
def test_every_tile_size_gives_the_same_numbers(rng, engine, tile):
    arrays = (*rng.standard_normal((3, 2, 7, 4)), rng.standard_normal((2, 7, 7)))
    assert_tiled_equals_dense(arrays, engine=engine, pattern=Pattern(causal=True), tile=tile, scale=0.7)


@on_every_engine
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("stride", [1, 2, 3, 5])
def test_strided_attention_of_any_length_equals_dense(rng, engine, causal, stride):
    for length in range(1, 12):
        arrays = (*rng.standard_normal((3, 2, length, 4)), None)
        for window, mask in ((None, None), (4, None), (None, rng.random((2, 1, length)) < 0.7)):
            pattern = Pattern(causal=causal, stride=stride, window=window)
            assert_tiled_equals_dense(arrays, engine=engine, pattern=pattern, mask=mask, tile=3)


@on_every_engine
@pytest.mark.parametrize("scale", [-1.0, 0.0])
def test_a_scale_may_be_negative_or_zero(rng, engine, scale):
    arrays = (*rng.standard_normal((3, 2, 7, 4)), None)
    assert_tiled_equals_dense(arrays, engine=engine, pattern=Pattern(window=3), tile=3, scale=scale)


@on_every_engine
def test_without_a_head_axis_and_where_queries_see_nothing(rng, engine):
    arrays = (*rng.standard_normal((3, 7, 4)), None)
    for pattern in (Pattern(window=3), Pattern(causal=True, stride=3), Pattern(stride=2)):
        assert_tiled_equals_dense(arrays, engine=engine, pattern=pattern, tile=2)

    q, k, v = rng.standard_normal((3, 2, 5, 4))
    mask = np.ones((5, 5), dtype=bool)
    mask[3] = False
    with use_engine(engine):
        y, saved = attention_tiled(q, k, v, mask=mask, tile=2)
    assert not y[:, 3].any()
    assert (saved.log_sum[:, 3] == np.inf).all()
    assert_tiled_equals_dense((q, k, v, None), engine=engine, pattern=Pattern(), mask=mask, tile=2)


@on_every_engine
def test_large_scores_in_any_order_do_not_overflow(rng, engine):
    q, k, v = rng.standard_normal((3, 1, 6, 2))
    q[..., 0] = 1.0
    for order in (np.arange(6), np.arange(6)[::-1]):
        k[..., 0] = 1e3 * order
        for pattern in (Pattern(), Pattern(stride=2)):
            assert_tiled_equals_dense((q, k, v, None), engine=engine, pattern=pattern, tile=2, scale=1.0)


@on_every_engine
@pytest.mark.parametrize("pattern", [Pattern(causal=True), Pattern(causal=True, stride=17), Pattern(stride=17)])
def test_the_record_grows_with_the_length_and_not_with_its_square(rng, engine, pattern):
    q, k, v = rng.standard_normal((3, 1, 300, 2))
    with use_engine(engine):
        _, saved = attention_tiled(q, k, v, pattern=pattern, tile=64)
    assert sum(x.size for x in saved if x is not None) < 300 * 10


@on_every_engine
@pytest.mark.parametrize("pattern", [Pattern(causal=True), Pattern(stride=2)])
def test_results_lie_by_position_so_that_merging_heads_moves_nothing(rng, engine, pattern):
    q, k, v = rng.standard_normal((3, 2, 3, 5, 4))
    with use_engine(engine):
        y, _ = attention_tiled(q, k, v, pattern=pattern, tile=2)
    assert np.shares_memory(merge_heads(y, heads=y.shape[-3])[0], y)


def counted_pairs(monkeypatch, op):
    """Return a list that takes down how many scores the op, as written, computes at a time."""
    pairs = []
    scores = op.__wrapped__.__globals__["attention_scores"]

    def counting(q, k, *args, **given_settings):
        pairs.append(q.size // q.shape[-1] * k.shape[-2])
        return scores(q, k, *args, **given_settings)

    monkeypatch.setitem(op.__wrapped__.__globals__, "attention_scores", counting)
    return pairs


def test_tiles_that_the_pattern_empties_are_never_computed(rng, monkeypatch):
    pairs = counted_pairs(monkeypatch, attention_tiled)
    q, k, v = rng.standard_normal((3, 1, 16, 2))
    with use_engine("numpy"):
        attention_tiled(q, k, v, pattern=Pattern(causal=True), tile=4)
        assert len(pairs) == 4 + 3 + 2 + 1
        pairs.clear()
        pattern = Pattern(causal=True, window=4)
        _, saved = attention_tiled(q, k, v, pattern=pattern, tile=4)
        assert len(pairs) == 4 + 3
        attention_tiled_backward(q, saved, pattern=pattern, tile=4)
        assert len(pairs) == 2 * (4 + 3)


@pytest.mark.parametrize("causal", [True, False])
def test_strided_attention_computes_far_fewer_scores_than_there_are_pairs(rng, monkeypatch, causal):
    pairs = counted_pairs(monkeypatch, attention_tiled)
    for stride in (8, 16, 32):
        pairs.clear()
        q, k, v = rng.standard_normal((3, 1, stride**2, 2))
        pattern = Pattern(causal=causal, stride=stride)
        with use_engine("numpy"):
            _, saved = attention_tiled(q, k, v, pattern=pattern, tile=stride)
            attention_tiled_backward(q, saved, pattern=pattern, tile=stride)
        # Forward and backward: up to three tiles of neighbors for each query, and its own remainder.
        assert sum(pairs) <= 2 * 4 * stride**3


STRIDED = st.builds(
    Pattern, causal=st.booleans(), window=st.none() | st.integers(1, 12), stride=st.integers(1, 7), prefix=st.just(0)
)


@given(STRIDED, st.integers(1, 20))
def test_every_pair_of_a_strided_pattern_is_in_exactly_one_part(pattern, length):
    count = neighborhood(pattern).dense(length).astype(int)
    for start in range(min(pattern.stride, length)):
        size = len(range(start, length, pattern.stride))
        part = beyond(pattern).tile(np.arange(size), np.arange(size))
        count[start :: pattern.stride, start :: pattern.stride] += part
    np.testing.assert_array_equal(count, pattern.dense(length).astype(int))
