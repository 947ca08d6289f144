"""Norms in half precision on a GPU, by kernels that read each vector once."""

from functools import partial
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from .... import ops
from ....arrays import Array, cast, is_half, namespace
from ....dispatch import replaces
from ....ops.linear import flat
from ....ops.norm import LayerNormSaved, RMSNormSaved
from . import on_one_gpu

_WIDEST = 8192  # features
_LEAST = 1 << 20  # numbers: fewer are not worth a kernel
_ROWS = 16  # vectors whose gradients a program adds up for gamma and beta


@replaces(ops.layer_norm, ops.layer_norm_backward)
def layer_norm(x: Array, gamma: Array, beta: Array | None = None, *, eps: float = 1e-5) -> tuple[Array, LayerNormSaved]:
    """Normalize many vectors by a kernel."""
    if not can_fuse(x, gamma, beta):
        return NotImplemented
    y, mean, rstd = norm_fused(x, gamma, beta, eps=eps, centered=True)
    return y, LayerNormSaved(x, mean, rstd, gamma, beta)


@replaces(ops.layer_norm_backward, ops.layer_norm)
def layer_norm_backward(dy: Array, saved: LayerNormSaved) -> tuple[Array, Array, Array | None]:
    """Gradient of `layer_norm`, by a kernel."""
    if not can_fuse(saved.x, saved.gamma):
        return NotImplemented
    dx, dgamma, dbeta = norm_fused_backward(dy, saved.x, saved.mean, saved.rstd, saved.gamma)
    return dx, cast(dgamma, saved.gamma.dtype), None if saved.beta is None else cast(dbeta, saved.beta.dtype)


@replaces(ops.rms_norm, ops.rms_norm_backward)
def rms_norm(x: Array, gamma: Array, *, eps: float = 1e-6) -> tuple[Array, RMSNormSaved]:
    """Normalize many vectors by a kernel."""
    if not can_fuse(x, gamma):
        return NotImplemented
    y, _, rrms = norm_fused(x, gamma, None, eps=eps, centered=False)
    return y, RMSNormSaved(x, rrms, gamma)


@replaces(ops.rms_norm_backward, ops.rms_norm)
def rms_norm_backward(dy: Array, saved: RMSNormSaved) -> tuple[Array, Array]:
    """Gradient of `rms_norm`, by a kernel."""
    if not can_fuse(saved.x, saved.gamma):
        return NotImplemented
    dx, dgamma, _ = norm_fused_backward(dy, saved.x, None, saved.rrms, saved.gamma)
    return dx, cast(dgamma, saved.gamma.dtype)


def can_fuse(x: Array, gamma: Array, beta: Array | None = None) -> bool:
    """Tell whether the kernels take a case: many vectors of half precision on one GPU, and scales that fit them."""
    if not is_half(x) or not x.ndim:
        return False
    width = x.shape[-1]
    fits = all(scale is None or tuple(scale.shape) == (width,) for scale in (gamma, beta))
    fits = fits and width <= _WIDEST and x.size >= _LEAST and (x.size // width) % _ROWS == 0
    return fits and on_one_gpu()


def norm_fused(x: Array, gamma: Array, beta: Array | None, *, eps: float, centered: bool) -> tuple[Array, Array, Array]:
    """Return y, the means and one over the standard deviations (the root mean squares, if not `centered`)."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    rows, width = flat(x).shape
    block = pl.next_power_of_2(width)

    def kernel(x_ref: Any, gamma_ref: Any, beta_ref: Any, y_ref: Any, mean_ref: Any, rstd_ref: Any) -> None:
        row, places = pl.program_id(0), jnp.arange(block, dtype=np.int32)
        inside = places < width
        wide = triton.load(x_ref.at[row, places], mask=inside, other=0.0).astype(jnp.float32)
        mean = jnp.sum(wide) / width if centered else jnp.float32(0)
        part = jnp.where(inside, wide - mean, 0.0)
        rstd = 1 / jnp.sqrt(jnp.sum(part * part) / width + eps)
        y = part * rstd * triton.load(gamma_ref.at[places], mask=inside, other=0.0).astype(jnp.float32)
        y = y + triton.load(beta_ref.at[places], mask=inside, other=0.0).astype(jnp.float32)
        triton.store(y_ref.at[row, places], y.astype(y_ref.dtype), mask=inside)
        mean_ref[row], rstd_ref[row] = mean, rstd

    statistics = jax.ShapeDtypeStruct((rows,), np.float32)
    y, mean, rstd = pl.pallas_call(
        kernel,
        out_shape=(jax.ShapeDtypeStruct((rows, width), x.dtype), statistics, statistics),
        grid=(rows,),
        compiler_params=triton.CompilerParams(num_warps=_warps(block), num_stages=1),
        name="norm",
    )(flat(x), gamma, namespace(x).zeros_like(gamma) if beta is None else beta)
    leading = (*x.shape[:-1], 1)
    return y.reshape(x.shape), mean.reshape(leading), rstd.reshape(leading)


def norm_fused_backward(
    dy: Array, x: Array, mean: Array | None, rstd: Array, gamma: Array
) -> tuple[Array, Array, Array]:
    """Return dx and, in float32, the gradients of gamma and beta; without means, of a norm that is not centered."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    rows, width = flat(x).shape
    block = pl.next_power_of_2(width)
    parts = jax.ShapeDtypeStruct((rows // _ROWS, width), np.float32)
    dx, dgamma, dbeta = pl.pallas_call(
        partial(_backward_kernel, width=width, block=block, centered=mean is not None),
        out_shape=(jax.ShapeDtypeStruct((rows, width), x.dtype), parts, parts),
        grid=(rows // _ROWS,),
        compiler_params=triton.CompilerParams(num_warps=_warps(block), num_stages=2),
        name="norm_backward",
    )(flat(dy), flat(x), (rstd if mean is None else mean).reshape(-1), rstd.reshape(-1), gamma)
    return dx.reshape(x.shape), dgamma.sum(axis=0), dbeta.sum(axis=0)


def _backward_kernel(*refs: Any, width: int, block: int, centered: bool) -> None:
    """Compute dx of some vectors, and what they add to the gradients of gamma and beta."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    dy_ref, x_ref, mean_ref, rstd_ref, gamma_ref, dx_ref, dgamma_ref, dbeta_ref = refs
    program, places = pl.program_id(0), jnp.arange(block, dtype=np.int32)
    inside = places < width
    gamma = triton.load(gamma_ref.at[places], mask=inside, other=0.0).astype(jnp.float32)

    def step(number: Any, sums: Any) -> Any:
        row = program * _ROWS + number
        dy = triton.load(dy_ref.at[row, places], mask=inside, other=0.0).astype(jnp.float32)
        wide = triton.load(x_ref.at[row, places], mask=inside, other=0.0).astype(jnp.float32)
        x_hat = (wide - mean_ref[row]) * rstd_ref[row] if centered else wide * rstd_ref[row]
        x_hat = jnp.where(inside, x_hat, 0.0)
        g = dy * gamma
        away = jnp.sum(g) / width if centered else jnp.float32(0)
        dx = (g - away - x_hat * (jnp.sum(g * x_hat) / width)) * rstd_ref[row]
        triton.store(dx_ref.at[row, places], dx.astype(dx_ref.dtype), mask=inside)
        return sums[0] + dy * x_hat, sums[1] + dy

    dgamma, dbeta = jax.lax.fori_loop(0, _ROWS, step, (jnp.zeros(block, np.float32), jnp.zeros(block, np.float32)))
    triton.store(dgamma_ref.at[program, places], dgamma, mask=inside)
    triton.store(dbeta_ref.at[program, places], dbeta, mask=inside)


def _warps(block: int) -> int:
    """Return how many groups of 32 threads work on one vector."""
    return max(1, min(16, block // 256))
