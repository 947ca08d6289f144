"""Cross-entropy of half-precision logits on a GPU, by two kernels that read the logits once each.

Rows go through in runs of columns: a running maximum and a running sum, rescaled whenever the maximum moves. The
logarithms of all probabilities are never written down; whoever asks the record for them has them computed.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from .... import ops
from ....arrays import Array, LazyArray, check_ids, is_half
from ....dispatch import replaces
from ....ops.loss import IGNORE, CrossEntropySaved
from . import on_one_gpu

_RUN = 4096  # columns that a program reads at a time
_WARPS = 8


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class LogProbabilities(LazyArray):
    """log softmax(logits), (..., V), of which only the logits and log Σ exp logits, (...), are kept."""

    logits: Array
    log_sum: Array

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(self.logits.shape)

    @property
    def dtype(self) -> Any:
        return self.log_sum.dtype

    def compute(self) -> Array:
        """Return logits − log Σ exp logits."""
        return self.logits.astype(np.float32) - self.log_sum[..., None]


@replaces(ops.cross_entropy, ops.cross_entropy_backward)
def cross_entropy(
    logits: Array, targets: Array, *, class_weights: Array | None = None, ignore: int = IGNORE, smoothing: float = 0.0
) -> tuple[Array, CrossEntropySaved]:
    """Average the losses of a large vocabulary by a kernel."""
    if not can_fuse(logits, class_weights, smoothing) or tuple(targets.shape) != tuple(logits.shape[:-1]):
        return NotImplemented
    check_ids(targets, logits.shape[-1], what="targets", ignore=ignore)
    targets = jnp.asarray(targets)
    log_sum = _log_sums(logits.reshape(-1, logits.shape[-1])).reshape(targets.shape)
    counted = targets != ignore
    hit = jnp.take_along_axis(logits, jnp.where(counted, targets, 0)[..., None], axis=-1)[..., 0].astype(np.float32)
    losses = jnp.where(counted, log_sum - hit, 0)
    total = jnp.maximum(jnp.sum(counted), 1).astype(np.float32)
    saved = CrossEntropySaved(LogProbabilities(logits, log_sum), targets, losses, total, None)
    return jnp.sum(losses) / total, saved


@replaces(ops.cross_entropy_backward, ops.cross_entropy)
def cross_entropy_backward(
    dy: Array, saved: CrossEntropySaved, *, ignore: int = IGNORE, smoothing: float = 0.0
) -> Array:
    """Return dlogits = dy · (softmax(logits) − onehot(target)) / Σ counted, where a kernel computed the losses."""
    if not isinstance(saved.log_p, LogProbabilities):
        return NotImplemented
    logits, log_sum = saved.log_p.logits, saved.log_p.log_sum
    unit = jnp.asarray(dy / saved.total, dtype=np.float32).reshape(1)
    targets = jnp.where(saved.targets == ignore, -1, saved.targets)
    rows = logits.reshape(-1, logits.shape[-1])
    return _gradients(rows, targets.reshape(-1), log_sum.reshape(-1), unit).reshape(logits.shape)


def can_fuse(logits: Array, class_weights: Array | None, smoothing: float) -> bool:
    """Tell whether the kernels take a case: plain cross-entropy of a large vocabulary in half precision."""
    plain = class_weights is None and not smoothing
    return plain and logits.shape[-1] >= _RUN and is_half(logits) and on_one_gpu()


def _log_sums(x: Array) -> Array:
    """Return log Σ exp of every row of x (N, V)."""
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
        largest, total = jax.lax.fori_loop(0, pl.cdiv(width, _RUN), step, first)
        top = jnp.max(largest)
        out_ref[row] = top + jnp.log(jnp.sum(total * jnp.exp(largest - top)))

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((rows,), np.float32),
        grid=(rows,),
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=2),
        name="log_sums",
    )(x)


def _gradients(x: Array, targets: Array, log_sum: Array, unit: Array) -> Array:
    """Return unit · (exp(x − log_sum) − onehot(targets)), zero for rows with a negative target."""
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
        dx = factor * (jnp.exp(part - shift) - jnp.where(places == target, 1.0, 0.0))
        triton.store(out_ref.at[row, places], dx.astype(out_ref.dtype), mask=inside)

    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(rows, pl.cdiv(width, _RUN)),
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=1),
        name="loss_gradients",
    )(x, targets, log_sum, unit)
