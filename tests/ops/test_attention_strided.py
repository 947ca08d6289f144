"""Strided patterns fall into two parts that add up."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from glassformer.ops import Pattern
from glassformer.ops.attention_strided import beyond, neighborhood

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
