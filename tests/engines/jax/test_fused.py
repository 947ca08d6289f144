"""Kernels for a GPU: interpreted here, they compute what the ops compute; and they know their limits."""

import re
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
from glassformer.ops import IGNORE
from glassformer.ops.mask import Pattern
from one_gpu import assert_near, half, interpret, quickly, struct
from oracles import require

few = draws(times=0.1, phases=(Phase.explicit, Phase.generate))  # compiling is too slow to look for the simplest
seeds = st.integers(0, 99)


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
def test_gpus_without_the_kernels_run_the_ops_as_written(on_gpu, device, fused, caplog):
    on_gpu.setattr(require("jax"), "local_devices", lambda: [SimpleNamespace(**device)])
    x, q = struct((256, 8192), "float16"), struct((2, 4, 16, 8), "float16")
    assert kernels.can_fuse_loss(x, None, 0.0) == fused
    assert kernels.can_fuse_norm(x, np.ones(x.shape[-1])) == fused
    assert kernels.can_fuse_gelu(x) == fused
    assert attention_jax.is_for_cudnn(q, q, q, None, None, Pattern(causal=True), 0.0) == fused
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (not device)
    assert all("does not say which GPU this is (compute_capability)" in line for line in said)


def test_a_version_of_jax_without_triton_says_so_once_and_runs_the_ops_as_written(on_gpu, caplog):
    triton = __import__("jax.experimental.pallas.triton", fromlist=["load"])
    x = struct((256, 8192), "float16")
    assert kernels.can_fuse_gelu(x)
    kernels.pallas_and_triton.cache_clear()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(triton, "load")
            assert not kernels.can_fuse_gelu(x)
            assert not kernels.can_fuse_loss(x, None, 0.0)
    finally:
        kernels.pallas_and_triton.cache_clear()
    (record,) = caplog.records
    assert re.search("on a GPU: .*'load'.* have no kernels of their own, which is slower", record.getMessage())


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
