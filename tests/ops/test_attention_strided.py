"""Strided patterns fall into two parts that add up."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_close
from glassformer.ops import Pattern
from glassformer.ops.attention_strided import (
    beyond,
    by_position,
    by_remainder,
    can_split,
    keys_by_remainder,
    merged,
    neighborhood,
)

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


@given(STRIDED, st.integers(1, 20))
def test_the_spans_of_a_part_hold_what_its_tiles_show(pattern, length):
    part = beyond(pattern)
    tile = part.tile(np.arange(length), np.arange(length))
    first, last = part.spans(range(length), length)
    columns = np.arange(length)
    inside = (columns >= first[:, None]) & (columns < last[:, None])
    assert not (tile & ~inside).any()
    assert not part.is_span or (tile == inside).all()
    assert (np.diff(first) >= 0).all()
    assert (np.diff(last) >= 0).all()


@pytest.mark.parametrize("shape", [(7, 2), (3, 7, 2), (2, 3, 7, 2), (2, 1, 3, 8, 2), (3, 1, 2)])
@pytest.mark.parametrize("stride", [1, 2, 3, 7, 10])
def test_sorting_by_remainder_is_undone_by_position(rng, shape, stride):
    x = rng.standard_normal(shape)
    sorted_x = by_remainder(x, stride)
    steps = -(-shape[-2] // stride)
    assert sorted_x.shape == (*shape[:-3], stride, *shape[-3:-2], steps, shape[-1])
    np.testing.assert_array_equal(by_position(sorted_x, shape[-2]), x)
    for start in range(min(stride, shape[-2])):
        own = x[..., start::stride, :]
        place = (..., start, slice(None), slice(own.shape[-2]), slice(None))
        np.testing.assert_array_equal(sorted_x[place if len(shape) > 2 else (start, slice(own.shape[-2]))], own)


def test_masks_of_keys_are_sorted_alike_and_hide_what_is_added():
    assert keys_by_remainder(None, 6, 3, axes=3) is None
    assert keys_by_remainder(None, 5, 3, axes=3)[:, 0, 0].tolist() == [[True, True], [True, True], [True, False]]
    mask = np.array([True, False, True, True])
    assert keys_by_remainder(mask, 4, 2, axes=4)[0, :, 0, 0].tolist() == [[True, True], [False, True]]
    assert keys_by_remainder(np.array([[False]]), 4, 2, axes=2).tolist() == [[[False, False]], [[False, False]]]


def test_parts_merge_to_the_softmax_over_all_keys(rng):
    scores, v = rng.standard_normal((4, 9)), rng.standard_normal((9, 3))
    whole, log_sum = softmax_mean(scores, v)
    parts = [softmax_mean(scores[:, :5], v[:5]), softmax_mean(scores[:, 5:], v[5:])]
    for order in (parts, parts[::-1]):
        y, joined = merged(order)
        assert_close(y, whole)
        assert_close(joined, log_sum)


def test_a_part_that_sees_nothing_changes_nothing(rng):
    y, log_sum = softmax_mean(rng.standard_normal((2, 5)), rng.standard_normal((5, 3)))
    nothing = np.zeros((2, 3)), np.full((2, 1), np.inf)
    for parts in ([(y, log_sum), nothing], [nothing, (y, log_sum)]):
        joined, joined_sum = merged(parts)
        assert_close(joined, y)
        assert_close(joined_sum, log_sum)
    joined, joined_sum = merged([nothing, nothing])
    assert not joined.any()
    assert (joined_sum == np.inf).all()


def softmax_mean(scores, v):
    """The mean of v by the softmax of scores, and the logarithm of its sum."""
    e = np.exp(scores)
    total = e.sum(-1, keepdims=True)
    return e / total @ v, np.log(total)


def test_only_patterns_among_equals_are_split():
    x = np.zeros((2, 6, 3))
    strided = Pattern(causal=True, stride=2)
    assert can_split(x, x, None, None, strided)
    assert can_split(x, x, None, np.ones(6, bool), strided)
    assert can_split(x, x, None, np.ones((2, 1, 6), bool), strided)
    assert not can_split(x, x, None, None, Pattern(causal=True, window=2))
    assert not can_split(x, x, None, None, Pattern(causal=True, stride=2, prefix=1))
    assert not can_split(x[:, :3], x, None, None, strided)
    assert not can_split(x, x, np.zeros((6, 6)), None, strided)
    assert not can_split(x, x, None, np.ones((6, 6), bool), strided)
