"""Kernels for a GPU: interpreted here, they compute what the ops compute; and they know their limits."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import Phase, example, given
from hypothesis import strategies as st

from draws import draws
from glassformer import ops
from glassformer.engines.jax import attention as attention_jax
from glassformer.engines.jax import fused as kernels
from glassformer.engines.jax.stack import is_spread, spreading
from glassformer.execution import Execution
from glassformer.mesh.sharding import stack_blocks, unstack_blocks
from glassformer.models import Batch, build
from glassformer.ops import IGNORE
from glassformer.ops.mask import Pattern
from glassformer.tree import flatten, tree_map
from one_gpu import assert_near, half, interpret, quickly, struct
from oracles import require

few = draws(times=0.1, phases=(Phase.explicit, Phase.generate))  # compiling is too slow to look for the simplest
seeds = st.integers(0, 99)


# --- loss ------------------------------------------------------------------------------------------------------------


def loss_and_gradients(logits, targets, dy=2.0):
    value, saved = kernels.cross_entropy(logits, targets)
    return value, saved, kernels.cross_entropy_backward(dy, saved)


@few
@example(seed=0, width=35, rows=(2, 3))
@given(seed=seeds, width=st.sampled_from([17, 31, 48]), rows=st.sampled_from([(3,), (2, 2)]))
def test_the_loss_equals_its_op(seed, width, rows):
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        interpret(patch)
        patch.setattr(kernels, "can_fuse_loss", lambda *_: True)
        patch.setattr(kernels, "_COLUMNS", 16)  # so that a row takes several runs, the last one perhaps in part
        x, exact = half(rng, *rows, width, scale=5.0)
        targets = np.where(rng.random(rows) < 0.3, IGNORE, rng.integers(0, width, rows))
        found, saved, dx = quickly(loss_and_gradients, x, targets)
    expected, record = ops.cross_entropy(exact, targets)
    assert found.dtype == np.float32
    assert dx.dtype == x.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(saved.losses, record.losses, rtol=1e-5, atol=1e-5)
    assert saved.log_p.shape == record.log_p.shape
    np.testing.assert_allclose(saved.log_p.compute(), record.log_p, rtol=1e-5, atol=1e-5)
    assert_near(dx, ops.cross_entropy_backward(2.0, record))
    assert not np.asarray(dx, np.float32)[targets == IGNORE].any()


def test_the_loss_of_extreme_logits_is_finite(jax, monkeypatch):
    interpret(monkeypatch)
    monkeypatch.setattr(kernels, "can_fuse_loss", lambda *_: True)
    monkeypatch.setattr(kernels, "_COLUMNS", 4)
    x = jax.numpy.asarray([[3e38, -3e38, 0, 1, 2], [-200.0] * 5], "bfloat16")
    found, _, dx = quickly(loss_and_gradients, x, np.array([0, 4]))
    assert found == pytest.approx(np.log(5) / 2, rel=1e-5)
    dx = np.asarray(dx, np.float32)
    np.testing.assert_allclose(dx[1], [0.2, 0.2, 0.2, 0.2, -0.8], rtol=0.01)
    assert not dx[0].any()


def test_the_loss_goes_to_the_kernel_where_it_can(interpreted):
    jax = require("jax")
    x, exact = half(np.random.default_rng(0), 3, 20)
    targets = np.array([1, 2, 19])

    def both(logits, targets):
        value, saved = ops.cross_entropy(logits, targets)
        return value, saved, ops.cross_entropy_backward(1.0, saved)

    value, saved, dx = quickly(both, x, targets)
    expected, record = ops.cross_entropy(exact, targets)
    assert isinstance(saved.log_p, kernels.LogProbabilities)
    assert float(value) == pytest.approx(float(expected), rel=1e-5)
    assert_near(dx, ops.cross_entropy_backward(1.0, record))
    # What the kernel does not take goes another way.
    for other in (
        partial(ops.cross_entropy, smoothing=0.1),
        partial(ops.cross_entropy, class_weights=jax.numpy.ones(20)),
        lambda logits, targets: ops.cross_entropy(logits[:, :15], np.array([1, 2, 3])),
        lambda logits, targets: ops.cross_entropy(logits.astype("float32"), targets),
    ):
        assert isinstance(jax.eval_shape(other, x, targets)[1].log_p, jax.ShapeDtypeStruct)


# --- norms -----------------------------------------------------------------------------------------------------------


@few
@example(seed=0, width=13, front=(2, 16))
@given(seed=seeds, width=st.sampled_from([1, 7, 8]), front=st.sampled_from([(16,), (4, 2, 4)]))
def test_norms_equal_their_ops(seed, width, front):
    rng = np.random.default_rng(seed)
    (x, exact), (dy, exact_dy) = half(rng, *front, width, scale=3.0, shift=2.0), half(rng, *front, width)
    gamma, beta = (rng.standard_normal(width).astype(np.float32) for _ in range(2))

    (y, mean, rstd), found = quickly(partial(norm_and_gradients, True), x, dy, gamma, beta)
    want, saved = ops.layer_norm(exact, gamma, beta, eps=1e-3)
    assert y.dtype == x.dtype
    assert_near(y, want)
    np.testing.assert_allclose(mean, saved.mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(rstd, saved.rstd, rtol=1e-4)
    check_gradients(found, ops.layer_norm_backward(exact_dy, saved), x.dtype, width)

    (y, _, rrms), found = quickly(partial(norm_and_gradients, False), x, dy, gamma, None)
    want, saved = ops.rms_norm(exact, gamma, eps=1e-3)
    assert_near(y, want)
    np.testing.assert_allclose(rrms, saved.rrms, rtol=1e-5)
    check_gradients(found[:2], ops.rms_norm_backward(exact_dy, saved), x.dtype, None)


def norm_and_gradients(centered, x, dy, gamma, beta):
    with pytest.MonkeyPatch.context() as patch:
        interpret(patch)
        y, mean, rstd = kernels.norm_fused(x, gamma, beta, eps=1e-3, centered=centered)
        return (y, mean, rstd), kernels.norm_fused_backward(dy, x, mean if centered else None, rstd, gamma)


def check_gradients(found, expected, dtype, width):
    assert [x.dtype for x in found] == [dtype] + [np.float32] * (len(found) - 1)
    for have, want in zip(found[1 if width == 1 else 0 :], expected[1 if width == 1 else 0 :], strict=True):
        assert_near(have, want)


# --- activation ------------------------------------------------------------------------------------------------------


# --- limits ----------------------------------------------------------------------------------------------------------

LARGE = (16, 1 << 16)


def test_without_a_gpu_nothing_is_fused():
    x = struct(LARGE, "bfloat16")
    assert not kernels.on_one_gpu()
    assert not kernels.can_fuse_loss(x, None, 0.0)
    assert not kernels.can_fuse_norm(struct((256, 8192), "bfloat16"), np.ones(8192))
    assert not kernels.can_fuse_gelu(x)
    q = struct((2, 4, 16, 8), "bfloat16")
    assert not attention_jax.is_for_cudnn(q, q, q, None, None, Pattern(causal=True), 0.0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_on_a_gpu_large_arrays_of_half_precision_are_fused(on_gpu, dtype):
    assert kernels.can_fuse_loss(struct((3, 2048), dtype), None, 0.0)
    assert not kernels.can_fuse_loss(struct((3, 2047), dtype), None, 0.0)
    assert not kernels.can_fuse_loss(struct((3, 2048), dtype), None, 0.1)
    assert not kernels.can_fuse_loss(struct((3, 2048), dtype), np.ones(4096), 0.0)
    assert kernels.can_fuse_norm(struct((128, 8192), dtype), np.ones(8192))
    assert not kernels.can_fuse_norm(struct((128, 8193), dtype), np.ones(8193))  # too wide
    assert not kernels.can_fuse_norm(struct((136, 8000), dtype), np.ones(8000))  # rows that do not divide
    assert not kernels.can_fuse_norm(struct((64, 8192), dtype), np.ones(8192))  # too small
    assert kernels.can_fuse_gelu(struct((1 << 20,), dtype))
    assert not kernels.can_fuse_gelu(struct(((1 << 20) + 16,), dtype))
    assert not kernels.can_fuse_gelu(struct((1 << 19,), dtype))
    assert not kernels.can_fuse_gelu(struct((1 << 16, 1 << 15), dtype))  # places need more than 32 bits


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
    assert kernels.can_fuse_loss(x, None, 0.0) == fused
    assert kernels.can_fuse_norm(x, np.ones(x.shape[-1])) == fused
    assert kernels.can_fuse_gelu(x) == fused
    assert attention_jax.is_for_cudnn(q, q, q, None, None, Pattern(causal=True), 0.0) == fused


def test_float32_and_several_devices_are_not_fused(on_gpu):
    x = struct((256, 8192), "float32")
    assert not kernels.can_fuse_loss(x, None, 0.0)
    assert not kernels.can_fuse_norm(x, np.ones(x.shape[-1]))
    assert not kernels.can_fuse_gelu(x)
    x = struct((256, 8192), "bfloat16")
    assert kernels.can_fuse_norm(x, np.ones(x.shape[-1]))
    with spreading(object()):
        assert not kernels.can_fuse_loss(x, None, 0.0)
        assert not kernels.can_fuse_norm(x, np.ones(x.shape[-1]))
        assert not kernels.can_fuse_gelu(x)
    assert not is_spread()


# --- attention -------------------------------------------------------------------------------------------------------

CAUSAL = Pattern(causal=True)
Q, K = (2, 4, 16, 8), (2, 2, 16, 8)


@pytest.mark.parametrize(
    ("change", "fused"),
    [
        ({}, True),
        ({"pattern": Pattern()}, True),
        ({"pattern": Pattern(causal=True, window=3)}, True),
        ({"dtype": "float16"}, True),
        ({"rate": 0.1}, False),
        ({"bias": np.zeros((4, 16, 16))}, False),
        ({"mask": np.ones((16, 16), bool)}, False),
        ({"dtype": "float32"}, False),
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
def test_cudnn_gets_what_its_kernels_cover(on_gpu, change, fused):
    case = {"q": Q, "k": K, "dtype": "bfloat16", "bias": None, "mask": None, "pattern": CAUSAL, "rate": 0.0} | change
    q, k = struct(case["q"], case["dtype"]), struct(case["k"], case["dtype"])
    assert attention_jax.is_for_cudnn(q, k, k, case["bias"], case["mask"], case["pattern"], case["rate"]) == fused


@pytest.mark.parametrize("tile", [None, 4])
@pytest.mark.parametrize("pattern", [Pattern(), CAUSAL, Pattern(causal=True, window=3)], ids=str)
def test_attention_goes_to_the_pair_where_it_can(interpreted, pattern, tile):
    rng = np.random.default_rng(0)
    (q, exact_q), (k, exact_k), (v, exact_v), (dy, exact_dy) = (half(rng, *shape) for shape in (Q, K, K, Q))
    attend, attend_back, tiles = ops.attention, ops.attention_backward, {}
    if tile is not None:
        attend, attend_back, tiles = ops.attention_tiled, ops.attention_tiled_backward, {"tile": tile}

    def both(q, k, v, dy):
        y, saved = attend(q, k, v, pattern=pattern, scale=0.3, **tiles)
        return y, saved, attend_back(dy, saved, pattern=pattern, scale=0.3, **tiles)

    y, saved, found = quickly(both, q, k, v, dy)
    want, record = ops.attention(exact_q, exact_k, exact_v, pattern=pattern, scale=0.3)
    assert y.dtype == q.dtype
    assert_near(y, want, 0.02)
    if tile is None:
        # The record has the same names; the weights come when they are asked for.
        assert isinstance(saved.weights, attention_jax.CudnnWeights)
        assert saved._fields == record._fields
        assert saved.weights.shape == record.weights.shape
        assert saved.weights.dtype == q.dtype
        assert_near(saved.weights.compute(), record.weights, 0.02)
    assert found[3] is None
    for have, expected in zip(found, ops.attention_backward(exact_dy, record, pattern=pattern, scale=0.3), strict=True):
        if expected is not None:
            assert have.dtype == q.dtype
            assert_near(have, expected, 0.03)


def test_with_dropout_weights_are_kept(interpreted):
    jax = require("jax")
    q, k, v = (half(np.random.default_rng(0), *shape)[0] for shape in (Q, K, K))
    dropped = partial(ops.attention, key=ops.new_key(0), rate=0.5, pattern=CAUSAL)
    assert isinstance(jax.eval_shape(dropped, q, k, v)[1].weights, jax.ShapeDtypeStruct)


def test_the_pair_is_cudnns_own_on_a_gpu(jax):
    """Lowering for a GPU needs none: the program calls both of cuDNN's kernels, each once."""
    q, k = jax.ShapeDtypeStruct(Q, "bfloat16"), jax.ShapeDtypeStruct(K, "bfloat16")
    given = {"pattern": Pattern(causal=True, window=5), "scale": 0.125}

    def both(q, k, v, dy):
        y, log_sum = attention_jax.cudnn_forward(q, k, v, **given)
        return y, log_sum, attention_jax.cudnn_backward(dy, q, k, v, y, log_sum, **given)

    y, log_sum, grads = jax.eval_shape(both, q, k, k, q)
    assert (y.shape, log_sum.shape, log_sum.dtype) == (Q, Q[:3], np.float32)
    assert [(x.shape, str(x.dtype)) for x in grads] == [(shape, "bfloat16") for shape in (Q, K, K)]
    text = jax.jit(both).trace(q, k, k, q).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("__cudnn$fmhaSoftmax(") == 1
    assert text.count("__cudnn$fmhaSoftmaxBackward(") == 1
    assert text.count(r"\22sliding_window_length\22: 5") == 2
    assert "CAUSAL" in text


def test_a_version_of_jax_without_the_pair_keeps_the_weights(on_gpu):
    home = __import__("jax._src.cudnn.fused_attention_stablehlo", fromlist=["MaskType"])
    q = struct(Q, "bfloat16")
    try:
        for other in (lambda query, key, value, unheard_of: None, None):
            with pytest.MonkeyPatch.context() as patch:
                if other is None:
                    patch.delattr(home, "_dot_product_attention_bwd_p_wrapper")
                else:
                    patch.setattr(home, "_dot_product_attention_bwd_impl", other)
                attention_jax.cudnn_pair.cache_clear()
                assert attention_jax.cudnn_pair() is None
                assert not attention_jax.is_for_cudnn(q, q, q, None, None, CAUSAL, 0.0)
    finally:
        attention_jax.cudnn_pair.cache_clear()
    assert attention_jax.is_for_cudnn(q, q, q, None, None, CAUSAL, 0.0)


@pytest.mark.parametrize("remat", [False, True])
def test_weights_that_nobody_kept_go_through_loops_and_programs(interpreted, remat):
    jax = require("jax")
    config = {"vocab": 48, "width": 32, "heads": 4, "context": 16, "kv_heads": 2, "feed_forward": 64}
    config |= {"attention_bias": False, "feed_forward_bias": False}  # of fewer arrays: each takes its time to compile
    config["layers"] = 2 if remat else 1  # a list takes as long to compile as it is deep
    plain = build("gpt2", **config)
    params = tree_map(lambda x: np.asarray(x, np.float32), plain.init(0))
    tokens = np.random.default_rng(0).integers(0, 48, (2, 16))
    batch = Batch(tokens, np.roll(tokens, -1, axis=1))
    model = build("gpt2", Execution(precision="bfloat16", remat=remat), **config)

    def both(params, batch):
        looped = model.loss_and_grads(stack_blocks(params), batch)
        looped = looped[0], unstack_blocks(looped[1])
        if remat:
            return None, looped
        return model.forward(params, batch.tokens)[1], looped, model.loss_and_grads(params, batch)

    saved, *found = quickly(both, params, batch)
    loss, grads = plain.loss_and_grads(params, batch)
    for value, own in found:
        assert float(value) == pytest.approx(float(loss), rel=0.01)
        for name, x in flatten(own).items():
            assert x.dtype == np.float32
            assert_near(x, flatten(grads)[name], 0.1)
    if not remat:
        attention = saved["blocks"][0]["attention"]
        assert isinstance(attention.attend.weights, attention_jax.CudnnWeights)
        _, record = plain.forward(params, tokens)
        assert_near(attention.weights, record["blocks"][0]["attention"].weights, 0.05)
        assert flatten(saved).keys() == flatten(record).keys()
        assert jax.tree.structure(found[0]) == jax.tree.structure(found[1])
