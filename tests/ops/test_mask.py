"""Masks and the patterns they follow from."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.ops import CAUSAL, FULL, Pattern, causal_mask, padding_mask


def drawn(mask):
    """A mask as text, one row per query."""
    return ["".join("x" if seen else "." for seen in row) for row in mask]


def test_causal_prefix_window_and_strided_masks():
    assert drawn(causal_mask(3)) == ["x..", "xx.", "xxx"]
    assert drawn(causal_mask(2, 4)) == ["xxx.", "xxxx"]
    assert drawn(causal_mask(1)) == ["x"]
    assert drawn(Pattern(causal=True, prefix=2).dense(4)) == ["xx..", "xx..", "xxx.", "xxxx"]
    assert drawn(Pattern(causal=True, prefix=0).dense(3)) == drawn(causal_mask(3))
    assert drawn(Pattern(causal=True, window=2).dense(4)) == ["x...", "xx..", ".xx.", "..xx"]
    assert drawn(Pattern(causal=False, window=2).dense(4)) == ["xx..", "xxx.", ".xxx", "..xx"]
    assert drawn(Pattern(causal=True, window=2).dense(1, 4)) == ["..xx"]
    strided = drawn(Pattern(causal=True, stride=3).dense(6))
    assert strided == ["x.....", "xx....", "xxx...", "xxxx..", ".xxxx.", "..xxxx"]
    assert drawn(Pattern(causal=True, stride=2).dense(7))[6] == "x.x.xxx"
    assert drawn(Pattern(causal=False, stride=2).dense(4))[0] == "xxx."


def test_padding_masks_of_any_batch(jax):
    assert drawn(padding_mask(np.array([0, 2, 3]), 3)) == ["...", "xx.", "xxx"]
    assert padding_mask(np.array([[1, 2]]), 4).shape == (1, 2, 4)
    assert padding_mask(np.array(2), 3).tolist() == [True, True, False]
    moved = padding_mask(jax.numpy.asarray([1, 2]), 3)
    assert isinstance(moved, jax.Array)


@pytest.mark.parametrize("mask", [Pattern(causal=True, **own).dense(4) for own in ({}, {"prefix": 2}, {"stride": 2})])
def test_masks_are_boolean_shared_and_read_only(mask):
    assert mask.shape == (4, 4)
    assert mask.dtype == bool
    assert not mask.flags.writeable


def test_the_same_mask_is_made_once_and_the_full_pattern_hides_nothing():
    assert causal_mask(5) is causal_mask(5)
    assert FULL.is_full
    assert not CAUSAL.is_full
    assert FULL.dense(5, 3).all()
    assert Pattern(prefix=3).is_full


@st.composite
def patterns(draw):
    small = st.none() | st.integers(1, 6)
    return Pattern(causal=draw(st.booleans()), prefix=draw(st.integers(0, 12)), window=draw(small), stride=draw(small))


RUNS = st.tuples(st.integers(0, 11), st.integers(1, 6)).map(lambda run: range(run[0], min(run[0] + run[1], 12)))


@given(patterns(), RUNS, RUNS)
def test_a_tile_is_a_cut_of_the_whole_and_reaches_is_never_false_where_something_is_seen(pattern, rows, columns):
    tile = pattern.tile(np.asarray(rows), np.asarray(columns))
    whole = pattern.dense(12)
    np.testing.assert_array_equal(tile, whole[rows.start : rows.stop, columns.start : columns.stop])
    assert pattern.reaches(rows, columns) or not tile.any()


@given(patterns(), RUNS)
def test_spans_hold_all_that_is_seen_and_without_a_stride_nothing_else(pattern, rows):
    first, last = pattern.spans(rows, 12)
    columns = np.arange(12)
    inside = (columns >= first[:, None]) & (columns < last[:, None])
    seen = pattern.tile(np.asarray(rows), columns)
    assert not (seen & ~inside).any()
    assert pattern.is_span == (pattern.stride is None)
    assert not pattern.is_span or (seen == inside).all()
    assert (np.diff(first) >= 0).all()
    assert (np.diff(last) >= 0).all()


@given(patterns(), st.integers(1, 12))
def test_fewer_queries_are_the_last_ones(pattern, queries):
    np.testing.assert_array_equal(pattern.dense(queries, 12), pattern.dense(12)[12 - queries :])


@given(patterns())
def test_every_query_sees_itself(pattern):
    assert pattern.dense(9).diagonal().all()


@given(st.integers(1, 64))
def test_strided_masks_have_few_entries(queries):
    stride = max(1, round(queries**0.5))
    assert Pattern(causal=True, stride=stride).dense(queries).sum(-1).max() <= stride + queries // stride + 1
