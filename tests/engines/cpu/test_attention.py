"""The strategies of attention, by products and in vector registers: both equal the op."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.cpu.kernel_cases import normal
from glassformer import ops
from glassformer.engines.cpu.attention import BACKWARD, FORWARD, PRODUCTS, VECTORS, head_plan
from glassformer.engines.cpu.products import gemm_address
from glassformer.ops import CAUSAL, FULL, Pattern

PATTERNS = [FULL, CAUSAL, Pattern(causal=True, window=3), Pattern(window=2), Pattern(causal=True, prefix=2)]
STRATEGIES = {"products": PRODUCTS, "vectors": VECTORS}
NOT_WRITTEN = np.float32(7)  # what stands in memory before


def attend_by(strategy, q, k, v, dy, pattern, scale):
    """Weights, mixtures and gradients of heads (B, T, H, C)."""
    B, T, H, _ = q.shape
    how = head_plan(pattern, T, T, gemm_address(q.dtype), scale)
    weights, y = np.full((B, H, T, T), NOT_WRITTEN), np.full(q.shape, NOT_WRITTEN)
    FORWARD[STRATEGIES[strategy]](how, (q, k, v, weights), y)
    dq, dk, dv = np.full(q.shape, NOT_WRITTEN), np.zeros_like(k), np.zeros_like(v)
    BACKWARD[STRATEGIES[strategy]](how, dy, (q, k, v, weights), (dq, dk, dv))
    return weights, y, dq, dk, dv


def attend_by_op(q, k, v, dy, pattern, scale):
    heads = [x.swapaxes(1, 2).astype(np.float64) for x in (q, k, v, dy)]
    y, saved = ops.attention.__wrapped__(*heads[:3], pattern=pattern, scale=scale)
    grads = ops.attention_backward.__wrapped__(heads[3], saved, pattern=pattern, scale=scale)[:3]
    return saved.weights, *(x.swapaxes(1, 2) for x in (y, *grads))


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(
    st.sampled_from([1, 2, 5]),
    st.integers(1, 16),
    st.sampled_from([1, 3, 4]),
    st.sampled_from([4, 8, 12, 32]),
    st.sampled_from(PATTERNS),
    st.sampled_from([0.0, 0.35, 40.0]),
    st.integers(0, 2**32 - 1),
)
def test_a_few_keys_are_attended_to_as_the_op_says(strategy, batch, length, heads, channels, pattern, scale, seed):
    rng = np.random.default_rng(seed)
    arrays = [normal(rng, (batch, length, heads, channels), np.float32) for _ in range(4)]
    # Products of hundreds are rounded before the softmax takes their differences.
    limit = 1e-5 if scale < 1 else 1e-3
    for have, want in zip(
        attend_by(strategy, *arrays, pattern, scale), attend_by_op(*arrays, pattern, scale), strict=True
    ):
        assert have.dtype == np.float32
        assert np.abs(have - want).max() <= limit * max(1, np.abs(want).max())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_infinite_scores_and_numbers_that_are_none_stay_in_their_rows(strategy, rng):
    q, k, v, dy = (normal(rng, (2, 6, 2, 8), np.float32) for _ in range(4))
    q[0, 3, 1, 2] = np.nan
    weights, y, *_ = attend_by(strategy, q, k, v, dy, CAUSAL, 0.3)
    broken = np.isnan(y).any(axis=-1)
    assert broken[0, 3, 1]
    assert broken.sum() == 1
    assert np.isnan(weights[0, 1, 3, :4]).all()
