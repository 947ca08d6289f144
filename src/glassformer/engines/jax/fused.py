"""Kernels for hot ops in half precision on one GPU: GELU, norms and the loss, each of which reads its arrays once.

The loss goes through the logits in runs of columns, with a running maximum and a running sum. It never writes down the
logarithms of all probabilities: the record computes them when they are asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from inspect import unwrap
from typing import Any

import jax
import numpy as np
from jax import numpy as jnp

from ... import ops
from ...core.arrays import Array, LazyArray, cast, check_ids, is_half
from ...core.dispatch import replaces
from ...core.reporting import log_once
from ...ops.linear import flat
from ...ops.loss import IGNORE, CrossEntropySaved
from ...ops.norm import LayerNormSaved, RMSNormSaved
from .stack import is_spread

_FIRST = 8  # of the compute capabilities: Ampere's
_LEAST, _MOST = 1 << 20, 1 << 31  # numbers: fewer are not worth a kernel; beyond, an index has more than 32 bits
_RUN = 2048  # numbers of GELU that a program computes
_WIDEST = 8192  # features of a norm
_NUMBERS = 4096  # of vectors that a program normalizes at a time, a group of 32 threads each thousand
_ROWS = 16  # vectors whose gradients a program adds up for gamma and beta
_COLUMNS = 2048  # logits that a program reads at a time


def runs_kernels() -> bool:
    """Return whether JAX computes on a GPU of NVIDIA from Ampere on: Triton and cuDNN's attention need one."""
    if jax.default_backend() != "gpu":
        return False
    capability = str(getattr(jax.local_devices()[0], "compute_capability", ""))
    if not capability:
        log_once(f"JAX {jax.__version__} does not say which GPU this is (compute_capability): no kernel is made for it")
    major = capability.partition(".")[0]
    return major.isdigit() and int(major) >= _FIRST


def on_one_gpu() -> bool:
    """Return whether a program is for a single such GPU: kernels of our own are not split over several."""
    return not is_spread() and runs_kernels() and pallas_and_triton() is not None


@cache
def pallas_and_triton() -> Any:
    """Return Pallas and its Triton part, whose import takes a quarter of a second; None, and say so, without them."""
    try:
        from jax.experimental import pallas
        from jax.experimental.pallas import triton

        _ = pallas.pallas_call, pallas.next_power_of_2, triton.CompilerParams, triton.load, triton.store
    except (ImportError, AttributeError) as error:
        what = "norms, GELU, the loss and writing have no kernels of their own, which is slower"
        log_once(f"JAX {jax.__version__} on a GPU: {error}; {what}")
        return None
    return pallas, triton


def launched(kernel: Any, name: str, shapes: Any, grid: Any, *, warps: int, stages: int = 1, **specs: Any) -> Any:
    """Return a function that runs a kernel: a grid of programs, each in `warps` groups of 32 threads."""
    pallas, triton = pallas_and_triton()
    params = triton.CompilerParams(num_warps=warps, num_stages=stages)
    return pallas.pallas_call(kernel, out_shape=shapes, grid=grid, compiler_params=params, name=name, **specs)


def load(ref: Any, *index: Any, inside: Array, other: float = 0.0) -> Array:
    return pallas_and_triton()[1].load(ref.at[index], mask=inside, other=other).astype(jnp.float32)


def store(ref: Any, *index: Any, inside: Array, value: Array) -> None:
    pallas_and_triton()[1].store(ref.at[index], value.astype(ref.dtype), mask=inside)


# --- GELU ------------------------------------------------------------------------------------------------------------


@replaces(ops.gelu_tanh)
def gelu_tanh(x: Array) -> tuple[Array, Array]:
    return (_elementwise(lambda x: unwrap(ops.gelu_tanh)(x)[0], x), x) if can_fuse_gelu(x) else NotImplemented


@replaces(ops.gelu_tanh_backward)
def gelu_tanh_backward(dy: Array, x: Array) -> Array:
    return _elementwise(unwrap(ops.gelu_tanh_backward), dy, x) if can_fuse_gelu(x) else NotImplemented


def can_fuse_gelu(x: Array) -> bool:
    """Return whether the kernels take an array: large, of half precision, on one GPU."""
    return is_half(x) and _LEAST <= x.size < _MOST and x.size % _RUN == 0 and on_one_gpu()


def _elementwise(function: Callable[..., Array], *arrays: Array) -> Array:
    """Return function(*arrays), computed in float32, number by number, in the type and shape of the last."""
    shape, dtype = arrays[-1].shape, arrays[-1].dtype

    def kernel(*refs: Any) -> None:
        *reads, write = refs
        write[...] = function(*(ref[...].astype(np.float32) for ref in reads)).astype(dtype)

    part = pallas_and_triton()[0].BlockSpec((_RUN,), lambda number: (number,))
    rows = [x.reshape(-1) for x in arrays]
    shapes, grid = jax.ShapeDtypeStruct(rows[-1].shape, dtype), (rows[-1].size // _RUN,)
    run = launched(kernel, "gelu_tanh", shapes, grid, warps=4, in_specs=[part] * len(rows), out_specs=part)
    return run(*rows).reshape(shape)


# --- norms -----------------------------------------------------------------------------------------------------------


@replaces(ops.layer_norm)
def layer_norm(x: Array, gamma: Array, beta: Array | None = None, *, eps: float = 1e-5) -> tuple[Array, LayerNormSaved]:
    if not can_fuse_norm(x, gamma, beta):
        return NotImplemented
    y, mean, rstd = norm_fused(x, gamma, beta, eps=eps, centered=True)
    return y, LayerNormSaved(x, mean, rstd, gamma, beta)


@replaces(ops.layer_norm_backward)
def layer_norm_backward(dy: Array, saved: LayerNormSaved) -> tuple[Array, Array, Array | None]:
    if not can_fuse_norm(saved.x, saved.gamma):
        return NotImplemented
    dx, dgamma, dbeta = norm_fused_backward(dy, saved.x, saved.mean, saved.rstd, saved.gamma)
    return dx, cast(dgamma, saved.gamma.dtype), None if saved.beta is None else cast(dbeta, saved.beta.dtype)


@replaces(ops.rms_norm)
def rms_norm(x: Array, gamma: Array, *, eps: float = 1e-6) -> tuple[Array, RMSNormSaved]:
    if not can_fuse_norm(x, gamma):
        return NotImplemented
    y, _, rrms = norm_fused(x, gamma, None, eps=eps, centered=False)
    return y, RMSNormSaved(x, rrms, gamma)


@replaces(ops.rms_norm_backward)
def rms_norm_backward(dy: Array, saved: RMSNormSaved) -> tuple[Array, Array]:
    if not can_fuse_norm(saved.x, saved.gamma):
        return NotImplemented
    dx, dgamma, _ = norm_fused_backward(dy, saved.x, None, saved.rrms, saved.gamma)
    return dx, cast(dgamma, saved.gamma.dtype)


def can_fuse_norm(x: Array, gamma: Array, beta: Array | None = None) -> bool:
    """Return whether the kernels take a case: many vectors of half precision on one GPU, and scales that fit them."""
    if not is_half(x) or not x.ndim:
        return False
    width = x.shape[-1]
    fits = all(scale is None or tuple(scale.shape) == (width,) for scale in (gamma, beta))
    fits = fits and width <= _WIDEST and x.size >= _LEAST and (x.size // width) % _ROWS == 0
    return fits and on_one_gpu()


def norm_fused(x: Array, gamma: Array, beta: Array | None, *, eps: float, centered: bool) -> tuple[Array, Array, Array]:
    """Return y, the means and one over the standard deviations (the root mean squares, if not `centered`)."""
    pallas, _ = pallas_and_triton()
    rows, width = flat(x).shape
    block = pallas.next_power_of_2(width)
    group = max(1, min(_ROWS, _NUMBERS // block))

    def kernel(x_ref: Any, gamma_ref: Any, beta_ref: Any, y_ref: Any, mean_ref: Any, rstd_ref: Any) -> None:
        row, columns = (jnp.arange(size, dtype=np.int32) for size in (group, block))
        row = pallas.program_id(0) * group + row
        inside = (columns < width)[None, :]
        every = inside & (row[:, None] >= 0)
        wide = load(x_ref, row[:, None], columns[None, :], inside=every)
        mean = jnp.sum(wide, axis=1) / width if centered else jnp.zeros(group, np.float32)
        part = jnp.where(inside, wide - mean[:, None], 0.0)
        rstd = 1 / jnp.sqrt(jnp.sum(part * part, axis=1) / width + eps)
        along = (load(ref, columns, inside=columns < width)[None, :] for ref in (gamma_ref, beta_ref))
        y = part * rstd[:, None] * next(along) + next(along)
        store(y_ref, row[:, None], columns[None, :], inside=every, value=y)
        for ref, value in ((mean_ref, mean), (rstd_ref, rstd)):
            store(ref, row, inside=row >= 0, value=value)

    statistics = jax.ShapeDtypeStruct((rows,), np.float32)
    shapes = jax.ShapeDtypeStruct((rows, width), x.dtype), statistics, statistics
    run = launched(kernel, "norm", shapes, (rows // group,), warps=_warps(group * block, 1024))
    y, mean, rstd = run(flat(x), gamma, jnp.zeros_like(gamma) if beta is None else beta)
    leading = (*x.shape[:-1], 1)
    return y.reshape(x.shape), mean.reshape(leading), rstd.reshape(leading)


def norm_fused_backward(
    dy: Array, x: Array, mean: Array | None, rstd: Array, gamma: Array
) -> tuple[Array, Array, Array]:
    """Return dx and, in float32, the gradients of gamma and beta; without means, of a norm that is not centered."""
    rows, width = flat(x).shape
    block = pallas_and_triton()[0].next_power_of_2(width)
    parts = jax.ShapeDtypeStruct((rows // _ROWS, width), np.float32)
    kernel = partial(_norm_backward_kernel, width=width, block=block, centered=mean is not None)
    shapes = jax.ShapeDtypeStruct((rows, width), x.dtype), parts, parts
    run = launched(kernel, "norm_backward", shapes, (rows // _ROWS,), warps=_warps(block, 256), stages=2)
    dx, dgamma, dbeta = run(flat(dy), flat(x), (rstd if mean is None else mean).reshape(-1), rstd.reshape(-1), gamma)
    return dx.reshape(x.shape), dgamma.sum(axis=0), dbeta.sum(axis=0)


def _norm_backward_kernel(*refs: Any, width: int, block: int, centered: bool) -> None:
    """Compute dx of some vectors, and what they add to the gradients of gamma and beta."""
    dy_ref, x_ref, mean_ref, rstd_ref, gamma_ref, dx_ref, dgamma_ref, dbeta_ref = refs
    program, columns = pallas_and_triton()[0].program_id(0), jnp.arange(block, dtype=np.int32)
    inside = columns < width
    gamma = load(gamma_ref, columns, inside=inside)

    def step(number: Any, sums: Any) -> Any:
        row = program * _ROWS + number
        dy, wide = load(dy_ref, row, columns, inside=inside), load(x_ref, row, columns, inside=inside)
        x_hat = (wide - mean_ref[row]) * rstd_ref[row] if centered else wide * rstd_ref[row]
        x_hat = jnp.where(inside, x_hat, 0.0)
        g = dy * gamma
        away = jnp.sum(g) / width if centered else jnp.float32(0)
        dx = (g - away - x_hat * (jnp.sum(g * x_hat) / width)) * rstd_ref[row]
        store(dx_ref, row, columns, inside=inside, value=dx)
        return sums[0] + dy * x_hat, sums[1] + dy

    dgamma, dbeta = jax.lax.fori_loop(0, _ROWS, step, (jnp.zeros(block, np.float32), jnp.zeros(block, np.float32)))
    store(dgamma_ref, program, columns, inside=inside, value=dgamma)
    store(dbeta_ref, program, columns, inside=inside, value=dbeta)


def _warps(numbers: int, each: int) -> int:
    """Return how many groups of 32 threads share `numbers`, each of them taking `each`."""
    return max(1, min(16, numbers // each))


# --- the loss --------------------------------------------------------------------------------------------------------


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
        return self.logits.astype(np.float32) - self.log_sum[..., None]


@replaces(ops.cross_entropy)
def cross_entropy(
    logits: Array, targets: Array, *, class_weights: Array | None = None, ignore: int = IGNORE, smoothing: float = 0.0
) -> tuple[Array, CrossEntropySaved]:
    if not can_fuse_loss(logits, class_weights, smoothing) or tuple(targets.shape) != tuple(logits.shape[:-1]):
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


@replaces(ops.cross_entropy_backward)
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
    return _dlogits(rows, targets.reshape(-1), log_sum.reshape(-1), unit).reshape(logits.shape)


def can_fuse_loss(logits: Array, class_weights: Array | None, smoothing: float) -> bool:
    """Return whether the kernels take a case: plain cross-entropy of a large vocabulary in half precision."""
    plain = class_weights is None and not smoothing
    return plain and logits.shape[-1] >= _COLUMNS and is_half(logits) and on_one_gpu()


def _log_sums(x: Array) -> Array:
    """Return log Σ exp of every row of x (N, V)."""
    pallas, _ = pallas_and_triton()
    rows, width = x.shape

    def kernel(x_ref: Any, out_ref: Any) -> None:
        row = pallas.program_id(0)

        def step(number: Any, sums: Any) -> Any:
            largest, total = sums
            columns = number * _COLUMNS + jnp.arange(_COLUMNS, dtype=np.int32)
            part = load(x_ref, row, columns, inside=columns < width, other=-np.inf)
            # Of the two exponentials exp(largest − larger) and exp(part − larger), one is 1.
            smaller = jnp.exp(-jnp.abs(part - largest))
            return jnp.maximum(largest, part), jnp.where(part > largest, total * smaller + 1, total + smaller)

        # One maximum and one sum for every column of a run: joined once, at the end.
        first = jnp.full(_COLUMNS, np.finfo(np.float32).min), jnp.zeros(_COLUMNS, np.float32)
        largest, total = jax.lax.fori_loop(0, pallas.cdiv(width, _COLUMNS), step, first)
        top = jnp.max(largest)
        out_ref[row] = top + jnp.log(jnp.sum(total * jnp.exp(largest - top)))

    return launched(kernel, "log_sums", jax.ShapeDtypeStruct((rows,), np.float32), (rows,), warps=8, stages=2)(x)


def _dlogits(x: Array, targets: Array, log_sum: Array, unit: Array) -> Array:
    """Return unit · (exp(x − log_sum) − onehot(targets)), zero for rows with a negative target."""
    pallas, _ = pallas_and_triton()
    rows, width = x.shape

    def kernel(x_ref: Any, targets_ref: Any, log_sum_ref: Any, unit_ref: Any, out_ref: Any) -> None:
        row, run = pallas.program_id(0), pallas.program_id(1)
        target, shift = targets_ref[row], log_sum_ref[row]
        factor = jnp.where(target < 0, 0.0, unit_ref[0])
        columns = run * _COLUMNS + jnp.arange(_COLUMNS, dtype=np.int32)
        inside = columns < width
        part = load(x_ref, row, columns, inside=inside, other=-np.inf)
        dx = factor * (jnp.exp(part - shift) - jnp.where(columns == target, 1.0, 0.0))
        store(out_ref, row, columns, inside=inside, value=dx)

    shape, grid = jax.ShapeDtypeStruct(x.shape, x.dtype), (rows, pallas.cdiv(width, _COLUMNS))
    return launched(kernel, "loss_gradients", shape, grid, warps=8)(x, targets, log_sum, unit)
