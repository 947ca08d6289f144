"""Kernels for a GPU: interpreted here, they compute what the ops compute; and they know their limits."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from glassformer import backend, ops
from glassformer.backend import Spreading, on_one_gpu, spreading
from glassformer.ops import IGNORE, activation, activation_fused, attention_fused, loss, loss_fused, norm, norm_fused
from glassformer.ops.attention_fused import FusedSaved
from glassformer.ops.attention_tiled import TiledSaved
from glassformer.ops.loss import CrossEntropySaved
from glassformer.ops.loss_fused import FusedLossSaved
from glassformer.ops.mask import Pattern
from oracles import QUICK, require

few = settings(
    max_examples=2, phases=(Phase.explicit, Phase.generate)
)  # compiling is too slow to look for the simplest
seeds = st.integers(0, 99)


def half(rng, *shape, scale=1.0, shift=0.0, kind="bfloat16"):
    """Random numbers in half precision: the array of JAX, and the same numbers in NumPy's float32."""
    x = require("jax").numpy.asarray(rng.standard_normal(shape) * scale + shift, kind)
    return x, np.asarray(x, np.float32)


def quickly(function, *arrays):
    """Return function(*arrays), compiled without optimizing; the arrays may be NumPy's."""
    return require("jax").jit(function, compiler_options=QUICK)(*arrays)


def record_of(function, *arrays):
    """Return the kind of record that an op makes, without computing anything."""
    kinds = []
    require("jax").eval_shape(lambda *traced: kinds.append(type(function(*traced)[1])), *arrays)
    return kinds[0]


def assert_near(actual, expected, limit=0.01):
    """Compare with a result in float32, relative to its largest number; half precision keeps two digits."""
    actual = np.asarray(actual, np.float32)
    assert actual.shape == np.shape(expected)
    largest = np.abs(expected).max(initial=0)
    assert np.abs(actual - expected).max(initial=0) <= limit * largest


@pytest.fixture
def on_gpu(monkeypatch):
    """As on a machine with one GPU, where kernels are interpreted."""
    jax = require("jax")
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [SimpleNamespace(compute_capability="9.0")])
    return monkeypatch


# --- loss ------------------------------------------------------------------------------------------------------------


def loss_and_slopes(logits, targets, dy=2.0):
    value, saved = loss_fused.cross_entropy_fused(logits, targets, ignore=IGNORE, interpret=True)
    return value, loss_fused.cross_entropy_fused_backward(dy, saved, interpret=True)


@few
@example(seed=0, width=35, rows=(2, 3))
@given(seed=seeds, width=st.sampled_from([17, 31, 48]), rows=st.sampled_from([(3,), (2, 2)]))
def test_the_loss_equals_its_op(seed, width, rows):
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loss_fused, "_RUN", 16)  # so that a row takes several runs, the last one perhaps in part
        x, exact = half(rng, *rows, width, scale=5.0)
        targets = np.where(rng.random(rows) < 0.3, IGNORE, rng.integers(0, width, rows))
        found, slopes = quickly(loss_and_slopes, x, targets)
    expected, record = ops.cross_entropy(exact, targets)
    assert found.dtype == np.float32
    assert slopes.dtype == x.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert_near(slopes, ops.cross_entropy_backward(2.0, record))
    assert not np.asarray(slopes, np.float32)[targets == IGNORE].any()


def test_the_loss_of_extreme_logits_is_finite(jax, monkeypatch):
    monkeypatch.setattr(loss_fused, "_RUN", 4)
    x = jax.numpy.asarray([[3e38, -3e38, 0, 1, 2], [-200.0] * 5], "bfloat16")
    found, slopes = quickly(loss_and_slopes, x, np.array([0, 4]))
    assert found == pytest.approx(np.log(5) / 2, rel=1e-5)
    slopes = np.asarray(slopes, np.float32)
    np.testing.assert_allclose(slopes[1], [0.2, 0.2, 0.2, 0.2, -0.8], rtol=0.01)
    assert not slopes[0].any()


def test_the_loss_goes_to_the_kernel_where_it_can(on_gpu):
    jax = require("jax")
    on_gpu.setattr(loss_fused, "_RUN", 16)
    for name in ("cross_entropy_fused", "cross_entropy_fused_backward"):
        on_gpu.setattr(loss, name, partial(getattr(loss_fused, name), interpret=True))
    x, exact = half(np.random.default_rng(0), 3, 20)
    targets = np.array([1, 2, 19])

    def both(logits, targets):
        value, saved = ops.cross_entropy(logits, targets)
        return value, ops.cross_entropy_backward(1.0, saved)

    value, slopes = quickly(both, x, targets)
    expected, record = ops.cross_entropy(exact, targets)
    assert float(value) == pytest.approx(float(expected), rel=1e-5)
    assert_near(slopes, ops.cross_entropy_backward(1.0, record))
    assert record_of(ops.cross_entropy, x, targets) is FusedLossSaved
    # What the kernel does not cover goes another way.
    for other in (
        partial(ops.cross_entropy, smoothing=0.1),
        partial(ops.cross_entropy, class_weights=jax.numpy.ones(20)),
        lambda logits, targets: ops.cross_entropy(logits[:, :15], targets),
        lambda logits, targets: ops.cross_entropy(logits.astype("float32"), targets),
    ):
        assert record_of(other, x, targets) is CrossEntropySaved


# --- norms -----------------------------------------------------------------------------------------------------------


@few
@example(seed=0, width=13, front=(2, 16))
@given(seed=seeds, width=st.sampled_from([1, 7, 8]), front=st.sampled_from([(16,), (4, 2, 4)]))
def test_norms_equal_their_ops(seed, width, front):
    rng = np.random.default_rng(seed)
    (x, exact), (dy, slopes) = half(rng, *front, width, scale=3.0, shift=2.0), half(rng, *front, width)
    gamma, beta = (rng.standard_normal(width).astype(np.float32) for _ in range(2))

    (y, mean, rstd), found = quickly(partial(norm_and_slopes, True), x, dy, gamma, beta)
    want, saved = ops.layer_norm(exact, gamma, beta, eps=1e-3)
    assert y.dtype == x.dtype
    assert_near(y, want)
    np.testing.assert_allclose(mean, saved.mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rstd, saved.rstd, rtol=1e-4)
    check_slopes(found, ops.layer_norm_backward(slopes, saved), x.dtype, width)

    (y, _, rrms), found = quickly(partial(norm_and_slopes, False), x, dy, gamma, None)
    want, saved = ops.rms_norm(exact, gamma, eps=1e-3)
    assert_near(y, want)
    np.testing.assert_allclose(rrms, saved.rrms, rtol=1e-5)
    check_slopes(found[:2], ops.rms_norm_backward(slopes, saved), x.dtype, None)


def norm_and_slopes(centered, x, dy, gamma, beta):
    y, mean, rstd = norm_fused.norm_fused(x, gamma, beta, eps=1e-3, centered=centered, interpret=True)
    slopes = norm_fused.norm_fused_backward(dy, x, mean if centered else None, rstd, gamma, interpret=True)
    return (y, mean, rstd), slopes


def check_slopes(found, expected, kind, width):
    assert [x.dtype for x in found] == [kind] + [np.float32] * (len(found) - 1)
    for have, want in zip(found[1 if width == 1 else 0 :], expected[1 if width == 1 else 0 :], strict=True):
        assert_near(have, want)


@pytest.mark.parametrize("shifted", [True, False])
def test_norms_go_to_the_kernels_where_they_can(on_gpu, shifted):
    rng = np.random.default_rng(0)
    (x, exact), (dy, slopes) = half(rng, 16, 6, kind="float16"), half(rng, 16, 6, kind="float16")
    calls = []

    def noted(function, *arrays, **given_settings):
        calls.append(function.__name__)
        return function(*arrays, **given_settings, interpret=True)

    on_gpu.setattr(norm, "can_fuse", lambda x: True)
    for name in ("norm_fused", "norm_fused_backward"):
        on_gpu.setattr(norm, name, partial(noted, getattr(norm_fused, name)))
    gamma = rng.standard_normal(6).astype(np.float32)
    beta = gamma[::-1].copy() if shifted else None

    def norms(x, dy, gamma, beta):
        y, saved = ops.layer_norm(x, gamma, beta)
        root, other = ops.rms_norm(x, gamma)
        return y, *ops.layer_norm_backward(dy, saved), root, *ops.rms_norm_backward(dy, other)

    y, dx, dgamma, dbeta, root, *root_back = quickly(norms, x, dy, gamma, beta)
    assert sorted(calls) == ["norm_fused", "norm_fused", "norm_fused_backward", "norm_fused_backward"]
    on_gpu.undo()
    want, record = ops.layer_norm(exact, gamma, beta)
    back = ops.layer_norm_backward(slopes, record)
    assert (dbeta is None) == (not shifted)
    for have, expected in zip((y, dx, dgamma, dbeta), (want, *back), strict=True):
        if have is not None:
            assert_near(have, expected)
    want, record = ops.rms_norm(exact, gamma)
    for have, expected in zip((root, *root_back), (want, *ops.rms_norm_backward(slopes, record)), strict=True):
        assert_near(have, expected)


# --- activation ------------------------------------------------------------------------------------------------------


@few
@given(
    seed=seeds,
    shape=st.sampled_from([(16,), (4, 8), (2, 3, 16), (1, 48)]),
    kind=st.sampled_from(["bfloat16", "float16"]),
)
def test_gelu_equals_its_op(seed, shape, kind):
    rng = np.random.default_rng(seed)
    (x, exact), (dy, slopes) = half(rng, *shape, scale=3.0, kind=kind), half(rng, *shape, kind=kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(activation_fused, "_RUN", 16)
        patch.setattr(activation, "can_fuse", lambda x: True)
        patch.setattr(activation, "elementwise", partial(activation_fused.elementwise, interpret=True))
        y, dx = quickly(lambda x, dy: (ops.gelu_tanh(x)[0], ops.gelu_tanh_backward(dy, x)), x, dy)
    want, record = ops.gelu_tanh(exact)
    assert (y.dtype, dx.dtype) == (x.dtype, x.dtype)
    assert_near(y, want)
    assert_near(dx, ops.gelu_tanh_backward(slopes, record))


# --- limits ----------------------------------------------------------------------------------------------------------

LARGE = (16, 1 << 16)


def struct(shape, kind):
    """What the limits look at: a traced array, which takes no memory."""
    jax = require("jax")
    seen = []
    jax.eval_shape(lambda x: seen.append(x), jax.ShapeDtypeStruct(shape, kind))
    return seen[0]


def test_without_a_gpu_nothing_is_fused():
    x = struct(LARGE, "bfloat16")
    assert not on_one_gpu(x)
    assert not loss_fused.can_fuse(x, None, 0.0)
    assert not norm_fused.can_fuse(struct((256, 8192), "bfloat16"))
    assert not activation_fused.can_fuse(x)
    q = struct((2, 4, 16, 8), "bfloat16")
    assert not attention_fused.can_fuse(q, q, q, None, None, Pattern(causal=True), 0.0)


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_on_a_gpu_large_arrays_of_half_precision_are_fused(on_gpu, kind):
    assert loss_fused.can_fuse(struct((3, 4096), kind), None, 0.0)
    assert not loss_fused.can_fuse(struct((3, 4095), kind), None, 0.0)
    assert not loss_fused.can_fuse(struct((3, 4096), kind), None, 0.1)
    assert not loss_fused.can_fuse(struct((3, 4096), kind), np.ones(4096), 0.0)
    assert norm_fused.can_fuse(struct((128, 8192), kind))
    assert not norm_fused.can_fuse(struct((128, 8193), kind))  # too wide
    assert not norm_fused.can_fuse(struct((136, 8000), kind))  # rows that do not divide
    assert not norm_fused.can_fuse(struct((64, 8192), kind))  # too small
    assert activation_fused.can_fuse(struct((1 << 20,), kind))
    assert not activation_fused.can_fuse(struct(((1 << 20) + 16,), kind))
    assert not activation_fused.can_fuse(struct((1 << 19,), kind))
    assert not activation_fused.can_fuse(struct((1 << 16, 1 << 15), kind))  # places need more than 32 bits


@pytest.mark.parametrize(
    ("device", "fused"),
    [
        ({"compute_capability": "8.0"}, True),
        ({"compute_capability": "10.3"}, True),
        ({"compute_capability": "7.5"}, False),
        ({"compute_capability": "gfx942"}, False),
        ({}, False),
    ],
    ids=str,
)
def test_gpus_without_the_kernels_run_the_ops_as_written(on_gpu, device, fused):
    on_gpu.setattr(require("jax"), "local_devices", lambda: [SimpleNamespace(**device)])
    x, q = struct((256, 8192), "float16"), struct((2, 4, 16, 8), "float16")
    assert on_one_gpu(x)
    assert loss_fused.can_fuse(x, None, 0.0) == fused
    assert norm_fused.can_fuse(x) == fused
    assert activation_fused.can_fuse(x) == fused
    assert attention_fused.can_fuse(q, q, q, None, None, Pattern(causal=True), 0.0) == fused


def test_float32_numpy_and_several_devices_are_not_fused(on_gpu):
    for x in (struct((256, 8192), "float32"), np.zeros((256, 4096), np.float16)):
        assert not loss_fused.can_fuse(x, None, 0.0)
        assert not norm_fused.can_fuse(x)
        assert not activation_fused.can_fuse(x)
    x = struct((256, 8192), "bfloat16")
    assert norm_fused.can_fuse(x)
    as_is = Spreading(lambda x: x, lambda x: x, lambda x: x)
    with spreading(as_is):
        assert not loss_fused.can_fuse(x, None, 0.0)
        assert not norm_fused.can_fuse(x)
        assert not activation_fused.can_fuse(x)
    assert backend._spreading.get() is None


# --- attention -------------------------------------------------------------------------------------------------------

CAUSAL = Pattern(causal=True)
Q, K = (2, 4, 16, 8), (2, 2, 16, 8)


@pytest.mark.parametrize(
    ("change", "fused"),
    [
        ({}, True),
        ({"pattern": Pattern()}, True),
        ({"pattern": Pattern(causal=True, window=3)}, True),
        ({"kind": "float16"}, True),
        ({"rate": 0.1}, False),
        ({"bias": np.zeros((4, 16, 16))}, False),
        ({"mask": np.ones((16, 16), bool)}, False),
        ({"kind": "float32"}, False),
        ({"pattern": Pattern(window=3)}, False),
        ({"pattern": Pattern(causal=True, stride=4)}, False),
        ({"pattern": Pattern(causal=True, prefix=2)}, False),
        ({"q": (2, 4, 5, 8)}, False),
        ({"q": (2, 4, 16, 12), "k": (2, 2, 16, 12)}, False),
        ({"q": (2, 4, 16, 136), "k": (2, 2, 16, 136)}, False),
        ({"q": (2, 4, 1, 8), "k": (2, 2, 1, 8)}, False),
        ({"q": (4, 16, 8), "k": (2, 16, 8)}, False),
    ],
)
def test_attention_is_fused_where_the_kernels_cover_it(on_gpu, change, fused):
    case = {"q": Q, "k": K, "kind": "bfloat16", "bias": None, "mask": None, "pattern": CAUSAL, "rate": 0.0} | change
    q, k = struct(case["q"], case["kind"]), struct(case["k"], case["kind"])
    can = attention_fused.can_fuse(q, k, k, case["bias"], case["mask"], case["pattern"], case["rate"])
    assert can == fused
    assert not attention_fused.can_fuse(np.zeros(Q, np.float16), k, k, None, None, CAUSAL, 0.0)


@pytest.fixture
def stand_in(on_gpu):
    """JAX's own attention in the place of cuDNN's, which has the same layout and settings."""
    jax = require("jax")
    real = jax.nn.dot_product_attention

    def attend(*arrays, implementation, **given_settings):
        assert implementation == "cudnn"
        return real(*arrays, implementation="xla", **given_settings)

    on_gpu.setattr(jax.nn, "dot_product_attention", attend)
    return jax


@pytest.mark.parametrize("pattern", [Pattern(), CAUSAL, Pattern(causal=True, window=3)], ids=str)
@pytest.mark.parametrize("scale", [None, 0.7])
def test_fused_attention_equals_attention(stand_in, pattern, scale):
    rng = np.random.default_rng(0)
    q, k, v, dy = (rng.standard_normal(shape) for shape in (Q, K, K, Q))

    def both(q, k, v, dy):
        y, saved = attention_fused.attention_fused(q, k, v, pattern=pattern, scale=scale)
        return y, attention_fused.attention_fused_backward(dy, saved)

    y, found = quickly(both, q, k, v, dy)
    want, record = ops.attention(q, k, v, pattern=pattern, scale=scale)
    expected = ops.attention_backward(dy, record, pattern=pattern, scale=scale)
    np.testing.assert_allclose(y, want, atol=1e-6)
    assert found[3] is None
    for have, slope in zip(found[:3], expected[:3], strict=True):
        np.testing.assert_allclose(have, slope, atol=1e-6)


def test_tiles_go_to_the_kernel_where_it_can(stand_in):
    rng = np.random.default_rng(0)
    (q, exact_q), (k, exact_k), (v, exact_v), (dy, slopes) = (half(rng, *shape) for shape in (Q, K, K, Q))
    assert record_of(partial(ops.attention_tiled, pattern=CAUSAL, tile=4), q, k, v) is FusedSaved

    def both(q, k, v, dy):
        y, saved = ops.attention_tiled(q, k, v, pattern=CAUSAL, tile=4)
        return y, ops.attention_tiled_backward(dy, saved, pattern=CAUSAL, tile=4)

    y, found = quickly(both, q, k, v, dy)
    want, record = ops.attention(exact_q, exact_k, exact_v, pattern=CAUSAL)
    assert y.dtype == q.dtype
    assert_near(y, want, 0.02)
    for have, slope in zip(found[:3], ops.attention_backward(slopes, record, pattern=CAUSAL)[:3], strict=True):
        assert_near(have, slope, 0.03)
    dropped = partial(ops.attention_tiled, key=ops.new_key(0), rate=0.5, pattern=CAUSAL, tile=8)
    assert record_of(dropped, q, k, v) is TiledSaved
