"""Numbers at the edge: huge scores, half precision, −inf and rows with nothing left stay finite and keep their type."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops
from oracles import require

EPS = {"float64": 1e-12, "float32": 1e-6, "float16": 2e-3, "bfloat16": 2e-2}
BLIND = np.array([[True, True, False, False], [False, False, False, True], [False] * 4])


def library(request, name):
    """NumPy or JAX by name."""
    return np if name == "numpy" else request.getfixturevalue("jax").numpy


@pytest.fixture(params=["numpy", "jax"])
def xp(request):
    """The library the arrays come from."""
    return library(request, request.param)


NUMPY_KINDS = [("numpy", dtype) for dtype in ("float64", "float32", "float16")]
JAX_KINDS = [("jax", dtype) for dtype in ("float32", "float16", "bfloat16")]


@pytest.fixture(params=NUMPY_KINDS + JAX_KINDS, ids="-".join)
def kind(request):
    """A library and a floating type; JAX's float64 is test_jax.py's business."""
    return library(request, request.param[0]), request.param[1]


def computed(function, *arrays):
    """Return function(*arrays), on JAX as one program: to compile its steps one by one takes far longer.

    What is narrow stays narrow between the steps, as if each were a program.
    """
    if isinstance(arrays[0], np.ndarray):
        return function(*arrays)
    return require("jax").jit(function, compiler_options={"xla_allow_excess_precision": False})(*arrays)


def values(x):
    return np.asarray(x).astype(np.float64)


def assert_finite(*arrays):
    assert all(np.isfinite(values(x)).all() for x in arrays if x is not None)


def assert_rows_sum_to_one(weights, dtype, blind=None):
    total = values(weights).sum(-1)
    assert_close(
        total, np.ones_like(total) if blind is None else np.broadcast_to(blind.any(-1), total.shape), EPS[dtype]
    )


def test_softmax_of_scores_of_ten_thousand(kind):
    xp, dtype = kind
    x = xp.asarray([[1e4, -1e4, 0.0, 1e4], [-1e4, -1e4, -1e4, -1e4], [3.0, 1e4, 2.0, 1.0]], dtype=dtype)

    def both(x):
        y, saved = ops.softmax(x)
        return y, ops.softmax_backward(xp.ones_like(x) * x[2], saved)

    y, dx = computed(both, x)
    assert y.dtype == x.dtype
    assert_finite(y)
    assert_rows_sum_to_one(y, dtype)
    assert dx.dtype == x.dtype
    assert_finite(dx)


def test_log_softmax_of_scores_of_ten_thousand(kind):
    xp, dtype = kind
    x = xp.asarray([1e4, -1e4, 0.0], dtype=dtype)

    def both(x):
        y, saved = ops.log_softmax(x)
        return y, ops.log_softmax_backward(xp.ones_like(x), saved)

    y, dx = computed(both, x)
    assert y.dtype == x.dtype
    assert_close(values(y), values(xp.asarray([0.0, -2e4, -1e4], dtype=dtype)), EPS[dtype])
    assert_finite(dx)


@pytest.mark.parametrize("additive", [False, True], ids=["mask", "bias of -inf"])
def test_softmax_gives_nothing_to_masked_entries(kind, additive):
    xp, dtype = kind
    x = np.random.default_rng(0).standard_normal((3, 4)) * 50
    if additive:
        x, settings = np.where(BLIND, x, -np.inf), {}
    else:
        settings = {"mask": xp.asarray(BLIND)}
    x = xp.asarray(x, dtype=dtype)

    def both(x):
        y, saved = ops.softmax(x, **settings)
        return y, ops.softmax_backward(xp.ones_like(x), saved)

    y, dx = computed(both, x)
    assert_finite(y, dx)
    assert_rows_sum_to_one(y, dtype, BLIND)
    assert not values(y)[~BLIND].any()
    assert not values(dx)[~BLIND].any()


@pytest.mark.parametrize("additive", [False, True], ids=["mask", "bias of -inf"])
@pytest.mark.parametrize("size", [1.0, 100.0])
def test_attention_stays_finite_and_ignores_what_is_masked(kind, additive, size):
    xp, dtype = kind
    rng = np.random.default_rng(0)
    q, k, v = (xp.asarray(factor * rng.standard_normal((2, length, 4)), dtype=dtype) for factor, length in
               ((size, 3), (size, 4), (1.0, 4)))  # fmt: skip
    settings = {} if additive else {"mask": xp.asarray(BLIND)}
    bias = xp.asarray(np.where(BLIND, 0, -np.inf), dtype=dtype) if additive else None

    def both(q, k, v):
        y, saved = ops.attention(q, k, v, bias, **settings)
        tiled, tiled_saved = ops.attention_tiled(q, k, v, bias, tile=3, **settings)
        dy = xp.ones_like(y)
        tiled_grads = ops.attention_tiled_backward(dy, tiled_saved, tile=3)
        return y, saved.weights, ops.attention_backward(dy, saved), tiled, tiled_grads

    y, weights, (dq, dk, dv, dbias), tiled, tiled_grads = computed(both, q, k, v)
    for x in (y, weights, dq, dk, dv, tiled, *tiled_grads[:3]):
        assert x.dtype == q.dtype
        assert_finite(x)
    assert_finite(dbias, tiled_grads[3])
    assert_rows_sum_to_one(weights, dtype, BLIND)
    assert not values(weights)[:, ~BLIND].any()
    # The last query sees nothing; no query sees the third key.
    assert not values(y)[:, 2].any()
    assert not values(tiled)[:, 2].any()
    for grads in ((dq, dk, dv), tiled_grads[:3]):
        assert not any(values(g)[:, 2].any() for g in grads)
    assert_close(values(tiled), values(y), 2 * EPS[dtype])


def test_attention_of_scores_of_ten_thousand(kind):
    xp, dtype = kind
    q = xp.asarray([[100.0, 0.0], [0.0, -100.0]], dtype=dtype)

    def both(q):
        y, saved = ops.attention(q, q, q, scale=1.0)
        tiled, tiled_saved = ops.attention_tiled(q, q, q, scale=1.0, tile=1)
        dy = xp.ones_like(y)
        tiled_grads = ops.attention_tiled_backward(dy, tiled_saved, scale=1.0, tile=1)
        return (y, tiled), (*ops.attention_backward(dy, saved, scale=1.0), *tiled_grads)

    results, grads = computed(both, q)
    for y in results:
        assert_close(values(y), values(q), EPS[dtype])
    assert_finite(*grads)


@pytest.mark.parametrize("size", [1e4, 6e4])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms_of_half_precision_values_do_not_overflow(xp, name, size):
    # The square of 1e4 is already beyond float16.
    op, backward = getattr(ops, name), getattr(ops, f"{name}_backward")
    x = xp.asarray(size * np.cos(np.arange(8.0)), dtype="float16")
    gamma = xp.ones(8, dtype="float16")

    def both(x, gamma):
        y, saved = op(x, gamma)
        return y, op(x.astype("float64"), gamma.astype("float64"))[0], backward(xp.ones_like(x), saved)

    y, wide, grads = computed(both, x, gamma)
    assert y.dtype == x.dtype
    assert_close(values(y), values(wide), 1e-3)
    assert_finite(*grads)
    assert all(g.dtype == x.dtype for g in grads if g is not None)


def test_norms_of_constant_vectors_are_zero_not_infinite(kind):
    xp, dtype = kind
    x, gamma = xp.asarray(np.full((2, 4), 3.0), dtype=dtype), xp.asarray(np.ones(4), dtype=dtype)

    def both(x, gamma):
        dy, (y, saved) = xp.ones_like(x), ops.layer_norm(x, gamma)
        zero, zero_saved = ops.rms_norm(xp.zeros_like(x), gamma)
        return y, zero, (*ops.layer_norm_backward(dy, saved), *ops.rms_norm_backward(dy, zero_saved))

    y, zero, grads = computed(both, x, gamma)
    assert_close(values(y), np.zeros((2, 4)), 1e-6)
    assert not values(zero).any()
    assert_finite(*grads)


@pytest.mark.parametrize("name", ops.ACTIVATIONS)
def test_activations_keep_their_type_and_do_not_overflow(kind, name):
    xp, dtype = kind
    op, backward = ops.ACTIVATIONS[name]
    # 6e4 is the largest round number of float16; its cube overflows float32's little brother, not float32.
    x = xp.asarray([-6e4, -100.0, -1.0, 0.0, 1.0, 100.0, 6e4], dtype=dtype)

    def both(x):
        y, saved = op(x)
        return y, backward(xp.ones_like(x), saved)

    y, dx = computed(both, x)
    assert y.dtype == dx.dtype == x.dtype
    assert_finite(y, dx)
    far = [0, 1, 5, 6]
    assert_close(values(y)[far], np.maximum(values(x)[far], 0), EPS[dtype])
    assert_close(values(dx)[far], values(x)[far] > 0, EPS[dtype])


def test_cross_entropy_of_logits_of_ten_thousand(kind):
    xp, dtype = kind
    logits = xp.asarray([[1e4, -1e4, 0.0], [0.0, 1e4, 0.0]], dtype=dtype)

    def both(logits, targets):
        loss, saved = ops.cross_entropy(logits, targets, smoothing=0.1)
        return loss, ops.cross_entropy_backward(xp.ones_like(loss), saved, smoothing=0.1)

    loss, dlogits = computed(both, logits, np.array([0, 2]))
    assert_finite(loss, dlogits)
    assert dlogits.dtype == loss.dtype  # as wide as what it was computed from
    assert_close(values(dlogits).sum(-1), np.zeros(2), EPS[dtype])


def test_ops_keep_the_type_of_their_input(kind):
    xp, dtype = kind
    x = xp.asarray(np.random.default_rng(0).standard_normal((3, 4)), dtype=dtype)
    key, angles = xp.asarray(ops.new_key(0)), ops.rotary_angles(np.arange(3), 4)

    def both(x):
        found = {}
        for name, ((y, saved), backward, settings) in all_ops(xp, x, key, angles).items():
            grads = backward(xp.ones_like(y), saved, **settings)
            found[name] = (y, *(grads if isinstance(grads, tuple) else (grads,)))
        return found

    for name, arrays in computed(both, x).items():
        assert {str(a.dtype) for a in arrays if a is not None} == {dtype}, name


def all_ops(xp, x, key, angles):
    """The results of ops of each kind, their backward and its settings."""
    ones = xp.ones(4, dtype=x.dtype)
    return {
        "linear": (ops.linear(x, x.T, x[:, 0]), ops.linear_backward, {}),
        "layer_norm": (ops.layer_norm(x, ones, ones), ops.layer_norm_backward, {}),
        "rms_norm": (ops.rms_norm(x, ones), ops.rms_norm_backward, {}),
        "gated": (ops.gated(x, x), ops.gated_backward, {}),
        "dropout": (ops.dropout(x, key, rate=0.5), ops.dropout_backward, {"rate": 0.5}),
        "mean_pool": (ops.mean_pool(x), ops.mean_pool_backward, {}),
        "rotary": (ops.rotary(x, *angles), ops.rotary_backward, {}),
        "embedding": (ops.embedding(x, xp.asarray([0, 0, 2]), scale=1.5), ops.embedding_backward, {"scale": 1.5}),
        "relative_bias": (ops.relative_bias(x, xp.asarray([[0, 1]])), ops.relative_bias_backward, {}),
        "attention": (ops.attention(x, x, x, key=key, rate=0.5), ops.attention_backward, {"rate": 0.5}),
    }


def test_half_precision_attends_in_its_type_and_embedding_gradients_are_summed_in_full(xp):
    q = xp.ones((2, 3, 4), dtype="float16")
    y, saved = ops.attention(q, q, q, xp.zeros((3, 3), dtype="float32"))
    grads = ops.attention_backward(xp.ones_like(y), saved)
    assert [str(g.dtype) for g in (y, *grads)] == ["float16"] * 4 + ["float32"]

    # Adding 1 to 2048 in float16 changes nothing, so a sum in half precision would stop there.
    ids = xp.zeros(3000, dtype=int)
    _, saved = ops.embedding(xp.zeros((1, 1), dtype="float16"), ids)
    dtable = ops.embedding_backward(xp.ones((3000, 1), dtype="float16"), saved)
    assert values(dtable)[0, 0] == 3000
