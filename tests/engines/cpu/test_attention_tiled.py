"""The strategies of attention: by products, in vector registers and by tiles on several cores; all equal the op."""

import importlib
from contextlib import ExitStack
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare import assert_close
from draws import draws
from engines.cpu.kernel_cases import KERNELS, normal
from glassformer import ops
from glassformer.core.threads import at_most
from glassformer.engines.cpu.attention import BACKWARD, FORWARD, PRODUCTS, VECTORS, head_plan
from glassformer.engines.cpu.attention_tiled import backward_jobs, begun, forward_jobs, joined, stages
from glassformer.engines.cpu.products import gemm_address
from glassformer.ops import CAUSAL, FULL, Pattern, attention, attention_backward, merge_heads, new_key
from glassformer.ops.attention_tiled import TiledSaved

KERNEL = importlib.import_module("glassformer.engines.cpu.attention_tiled")
LIMITS = {"float64": 1e-12, "float32": 1e-5}
PATTERNS = (
    FULL,
    CAUSAL,
    Pattern(causal=True, window=5),
    Pattern(window=4),
    Pattern(causal=True, prefix=7),
    Pattern(causal=True, stride=4),
    Pattern(stride=3),
    Pattern(causal=True, stride=3, window=11),
    Pattern(causal=True, stride=3, prefix=5),
)


def small_tiles(*, rows, columns, workers):
    """Let tiles be small and every bit of work be worth another core, inside a `with` block."""
    stack = ExitStack()
    sizes = {"ROWS": rows, "COLUMNS": columns}
    for name, size in sizes.items():
        stack.enter_context(mock.patch.object(KERNEL, name, size))
    stack.enter_context(mock.patch.object(KERNEL, "WORTHWHILE", 1))
    stack.enter_context(at_most(workers))
    return stack


@st.composite
def problems(draw):
    """Random shapes, layouts, heads, masks, biases, dropout and patterns."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    kind = draw(st.sampled_from(["float64", "float64", "float32"]))
    shared, group, examples = draw(st.integers(1, 2)), draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(1, 2))
    pattern = draw(st.sampled_from(PATTERNS))
    keys = draw(st.integers(1, 40))
    queries = draw(st.integers(1, 40) if pattern.is_full else st.sampled_from([keys, keys, max(1, keys // 2)]))
    by_position = draw(st.booleans())

    def heads(number, length, channels):
        x = rng.standard_normal((examples, length, number, channels)).astype(kind).swapaxes(1, 2)
        return x if by_position else np.ascontiguousarray(x)

    channels = draw(st.sampled_from([1, 3, 4]))
    q, k, v = heads(shared * group, queries, channels), heads(shared, keys, channels), heads(shared, keys, 3)
    weights = (examples, shared * group, queries, keys)
    shapes = [(queries, keys), (examples, 1, 1, keys), (keys,), (shared * group, 1, 1), weights]
    bias = draw(st.none() | st.none() | st.sampled_from(shapes))
    mask = draw(st.none() | st.none() | st.sampled_from(shapes))
    return {
        "arrays": (q, k, v, None if bias is None else rng.standard_normal(bias).astype(kind)),
        "mask": None if mask is None else rng.random(mask) < 0.8,
        "pattern": pattern,
        **draw(st.sampled_from([{}, {}, {"key": new_key(4), "rate": 0.3}])),
    }


def assert_kernel_equals_dense(arrays, *, pattern, mask=None, key=None, rate=0.0):
    """Compare the kernel, which must not decline, with dense attention as written."""
    limit = LIMITS[arrays[0].dtype.name]
    y, saved = attention.__wrapped__(*arrays, mask=mask, pattern=pattern, key=key, rate=rate)
    dy = np.random.default_rng(9).standard_normal(y.shape).astype(y.dtype)
    grads = attention_backward.__wrapped__(dy, saved, rate=rate)
    found, found_saved = KERNELS["attention_tiled"](*arrays, mask=mask, pattern=pattern, key=key, rate=rate)
    assert_close(found, y, limit)
    found_grads = KERNELS["attention_tiled_backward"](dy, found_saved, pattern=pattern, rate=rate)
    for grad, other in zip(found_grads, grads, strict=True):
        assert (grad is None) == (other is None)
        if grad is not None:
            assert_close(grad, other, limit)


@draws(times=10)
@given(problems(), st.integers(1, 9), st.integers(1, 9), st.integers(1, 3))
def test_many_small_tiles_on_several_cores_equal_dense(problem, rows, columns, workers):
    with small_tiles(rows=rows, columns=columns, workers=workers):
        assert_kernel_equals_dense(**problem)


OWN = {"causal": CAUSAL, "window": Pattern(causal=True, window=100), "stride": Pattern(causal=True, stride=20)}


@pytest.mark.parametrize("pattern", OWN.values(), ids=OWN)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_tiles_of_their_own_size_equal_dense(rng, pattern, kind):
    q, k, v = (rng.standard_normal((1, 700, 2, 8)).astype(kind).swapaxes(1, 2) for _ in range(3))
    with at_most(2):
        assert_kernel_equals_dense((q, k, v, None), pattern=pattern)


@pytest.mark.parametrize("pattern", PATTERNS, ids=str)
@pytest.mark.parametrize("heads", [1, 3])
def test_several_cores_give_the_same_bits_every_time(rng, pattern, heads):
    q, k, v = rng.standard_normal((3, 1, heads, 40, 4)).astype("float32")

    def run():
        y, saved = KERNELS["attention_tiled"](q, k, v, pattern=pattern)
        return (y, *KERNELS["attention_tiled_backward"](np.ones_like(y), saved, pattern=pattern)[:3])

    with small_tiles(rows=4, columns=8, workers=3):
        first, second = run(), run()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_gradients_lie_by_position_so_that_merging_heads_moves_nothing(rng):
    q, k, v = rng.standard_normal((3, 2, 3, 5, 4))
    y, saved = KERNELS["attention_tiled"](q, k, v)
    for x in KERNELS["attention_tiled_backward"](np.ones_like(y), saved)[:3]:
        assert np.shares_memory(merge_heads(x, heads=x.shape[-3])[0], x)


def saved_of(queries, keys, *, heads=1):
    q, k = np.zeros((1, heads, queries, 1)), np.zeros((1, heads, keys, 1))
    return TiledSaved(q, k, k, None, None, None, q, q)


def pairs_of(jobs):
    """The pairs of a query and a key that jobs go through."""
    return int(((jobs[:, 5] - jobs[:, 4]) * (jobs[:, 7] - jobs[:, 6])).sum())


def test_a_single_head_uses_all_cores_in_runs_of_nearly_equal_work():
    with at_most(2):
        for cut in (forward_jobs, backward_jobs):
            (stage,) = stages(saved_of(4096, 4096), CAUSAL)
            shares = cut(stage, 1, 1, 128)
            assert len(shares) == 2
            work = [pairs_of(share) for share in shares]
            assert max(work) <= 1.1 * min(work)
            assert begun(shares) == [False, True]
            assert begun(cut(stage, 1, 2, 128)) == [False, False]

    with at_most(2):
        (stage,) = stages(saved_of(4096, 4096), CAUSAL)
        first, second = (joined(jobs).tolist() for jobs in forward_jobs(stage, 1, 1, 128))
    assert first == [[0, 0, 0, 4096, 0, first[0][5], 0, first[0][5]]]
    assert second == [[0, 0, 0, 4096, first[0][5], 4096, 0, 4096]]

    with at_most(2):
        (stage,) = stages(saved_of(64, 64), CAUSAL)
        assert len(forward_jobs(stage, 1, 2, 64)) == 1


@pytest.mark.parametrize("cut", [forward_jobs, backward_jobs])
def test_the_work_of_a_window_grows_like_the_length_and_of_a_stride_like_its_power_of_one_and_a_half(cut):
    def work(pattern, length):
        return sum(
            pairs_of(share) for stage in stages(saved_of(length, length), pattern) for share in cut(stage, 1, 1, 16)
        )

    for length in (1024, 4096):
        window, root = Pattern(causal=True, window=64), int(length**0.5)
        assert work(window, length) <= length * (64 + 16)
        assert work(Pattern(causal=True, stride=root), length) <= 2 * length * (root + 16)
        assert work(Pattern(stride=root), length) <= 4 * length * (root + 16)


FEW_KEYS = [FULL, CAUSAL, Pattern(causal=True, window=3), Pattern(window=2), Pattern(causal=True, prefix=2)]
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
    st.sampled_from(FEW_KEYS),
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
