"""Cross-entropy of half-precision logits on a GPU, by two kernels that read the logits once each.

They compute what `cross_entropy` and its gradient compute, which call them by themselves. Rows go through in runs of
columns: a running maximum and a running sum, rescaled whenever the maximum moves.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, namespace
from ..backend import on_one_gpu
from .gpu import runs_kernels

_RUN = 4096  # columns that a program reads at a time
_WARPS = 8


class FusedLossSaved(NamedTuple):
    logits: Array  # (..., V)
    targets: Array  # (...): a negative one does not count
    log_sum: Array  # (...): log Σ exp logits
    total: Array  # (): how many count


def can_fuse(logits: Array, class_weights: Array | None, smoothing: float) -> bool:
    """Tell whether the kernels cover a case: plain cross-entropy of a large vocabulary in half precision."""
    return (
        class_weights is None
        and not smoothing
        and logits.shape[-1] >= _RUN
        and logits.dtype.itemsize == 2
        and on_one_gpu(logits)
        and runs_kernels()
    )


def cross_entropy_fused(
    logits: Array, targets: Array, *, ignore: int, interpret: bool = False
) -> tuple[Array, FusedLossSaved]:
    """Return what `cross_entropy` returns."""
    xp = namespace(logits)
    log_sum = _log_sums(logits.reshape(-1, logits.shape[-1]), interpret).reshape(targets.shape)
    counted = targets != ignore
    safe = xp.where(counted, targets, 0)
    hit = xp.take_along_axis(logits, safe[..., None], axis=-1)[..., 0].astype(np.float32)
    total = xp.maximum(xp.sum(counted), 1).astype(np.float32)
    loss = xp.sum(xp.where(counted, log_sum - hit, 0)) / total
    return loss, FusedLossSaved(logits, xp.where(counted, targets, -1), log_sum, total)


def cross_entropy_fused_backward(dy: Array, saved: FusedLossSaved, *, interpret: bool = False) -> Array:
    """Gradient of `cross_entropy_fused`: dlogits = dy · (softmax(logits) − onehot(target)) / Σ counted."""
    xp = namespace(saved.logits)
    unit = xp.asarray(dy / saved.total, dtype=np.float32).reshape(1)
    rows = saved.logits.reshape(-1, saved.logits.shape[-1])
    slopes = _slopes(rows, saved.targets.reshape(-1), saved.log_sum.reshape(-1), unit, interpret)
    return slopes.reshape(saved.logits.shape)


def _log_sums(x: Array, interpret: bool) -> Array:
    """Return log Σ exp of every row of x (N, V)."""
    import jax
    from jax import lax
    from jax import numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    rows, width = x.shape

    def kernel(x_ref: Any, out_ref: Any) -> None:
        row = pl.program_id(0)

        def step(number: Any, sums: Any) -> Any:
            largest, total = sums
            places = number * _RUN + jnp.arange(_RUN, dtype=np.int32)
            part = triton.load(x_ref.at[row, places], mask=places < width, other=-np.inf).astype(jnp.float32)
            larger = jnp.maximum(largest, part)
            return larger, total * jnp.exp(largest - larger) + jnp.exp(part - larger)

        # One maximum and one sum for every column of a run: joined once, at the end.
        first = jnp.full(_RUN, np.finfo(np.float32).min), jnp.zeros(_RUN, np.float32)
        largest, total = lax.fori_loop(0, pl.cdiv(width, _RUN), step, first)
        top = jnp.max(largest)
        out_ref[row] = top + jnp.log(jnp.sum(total * jnp.exp(largest - top)))

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((rows,), np.float32),
        grid=(rows,),
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=_WARPS, num_stages=2),
        name="log_sums",
    )(x)


def _slopes(x: Array, targets: Array, log_sum: Array, unit: Array, interpret: bool) -> Array:
    """Return unit · (exp(x − log_sum) − onehot(targets)), zero for rows with a negative target."""
    import jax
    from jax import numpy as jnp
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    rows, width = x.shape

    def kernel(x_ref: Any, targets_ref: Any, log_sum_ref: Any, unit_ref: Any, out_ref: Any) -> None:
        row, run = pl.program_id(0), pl.program_id(1)
        target, shift = targets_ref[row], log_sum_ref[row]
        factor = jnp.where(target < 0, 0.0, unit_ref[0])
        places = run * _RUN + jnp.arange(_RUN, dtype=np.int32)
        inside = places < width
        part = triton.load(x_ref.at[row, places], mask=inside, other=-np.inf).astype(jnp.float32)
        slopes = factor * (jnp.exp(part - shift) - jnp.where(places == target, 1.0, 0.0))
        triton.store(out_ref.at[row, places], slopes.astype(out_ref.dtype), mask=inside)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(rows, pl.cdiv(width, _RUN)),
        interpret=interpret,
        compiler_params=None if interpret else triton.CompilerParams(num_warps=_WARPS, num_stages=1),
        name="loss_slopes",
    )(x, targets, log_sum, unit)
