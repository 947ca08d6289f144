"""The kernel of `ops.attention_tiled`: attention in tiles over all cores.

Cores share nothing but what they read. Where two of them work on keys of the same head, the second collects its part
of the queries' gradients apart, and it is added when both are done.
"""

from functools import partial
from typing import Any

import numpy as np

from .... import ops
from ....arrays import Array, check_broadcast, check_mask
from ....dispatch import replaces
from ....errors import GlassformerError
from ....ops.attention import check_heads, default_scale
from ....ops.attention_tiled import TiledSaved
from ....ops.dropout import check_rate
from ....ops.mask import FULL, Pattern
from ..blas import gemm_address
from ..cores import each
from ..dropout import is_key
from ..layout import REAL
from .tile_jobs import Stage, backward_jobs, begun, forward_jobs, stages
from .tile_pairs import pairs_of
from .tiles import Grads, Problem, attend_tiles, attend_tiles_backward

ROWS, COLUMNS = 128, 256  # queries and keys of a tile: with these, BLAS is fast, and two tiles fit into a core's cache
FEW_ROWS, FEW = 64, 512  # where each query sees at most FEW keys, tiles of more queries would hold many unseen ones


@replaces(ops.attention_tiled)
def attention_tiled(
    q: Array, k: Array, v: Array, bias: Array | None = None, *, mask: Array | None = None, pattern: Pattern = FULL,
    key: Array | None = None, rate: float = 0.0, scale: float | None = None, tile: int = 128,
) -> Any:  # fmt: skip
    """Attend in tiles of the size that suits the machine."""
    if not _covers(q, k, v, bias, mask, key, pattern, rate) or tile < 1:
        return NotImplemented
    y = _zeros((*q.shape[:-1], v.shape[-1]), q.dtype)
    # A query that has seen nothing has the logarithm of zero, until all is done.
    log_sum = np.full((*q.shape[:-1], 1), -np.inf, q.dtype)
    saved = TiledSaved(q, k, v, bias, mask, key if rate > 0 else None, y, log_sum)
    for stage in stages(saved, pattern):
        problem = _problem(saved, stage, rate, scale)
        examples, _, heads, _ = problem.q.shape
        size = _rows(stage)
        shares = forward_jobs(stage, examples, heads, size)
        each([partial(attend_tiles, jobs, problem, size, COLUMNS) for jobs in shares])
    log_sum[log_sum == -np.inf] = np.inf
    return y, saved


@replaces(ops.attention_tiled_backward)
def attention_tiled_backward(
    dy: Array, saved: TiledSaved, *,
    pattern: Pattern = FULL, rate: float = 0.0, scale: float | None = None, tile: int = 128,
) -> Any:  # fmt: skip
    q, k, v, bias = saved[:4]
    if not _covers(*saved[:6], pattern, rate):
        return NotImplemented
    wanted, levels = (*q.shape[:-1], v.shape[-1]), (*q.shape[:-1], 1)
    for x, shape in ((dy, wanted), (saved.y, wanted), (saved.log_sum, levels)):
        if type(x) is not np.ndarray or x.shape != shape or x.dtype != q.dtype:
            return NotImplemented
    dq, dk, dv = (_zeros(x.shape, q.dtype) for x in (q, k, v))
    dbias = np.zeros((1,) * 4 if bias is None else (*(1,) * (4 - bias.ndim), *bias.shape), q.dtype)
    along = _levels(np.vecdot(dy, saved.y)[..., None])
    grads = Grads(_by_position(dy), along, _by_position(dq), _by_position(dk), _by_position(dv), dbias)
    for stage in stages(saved, pattern):
        _add_stage(_problem(saved, stage, rate, scale), grads, stage)
    dq *= _scale(q, scale)
    dk *= _scale(q, scale)
    return dq, dk, dv, None if bias is None else dbias.reshape(bias.shape)


def _add_stage(problem: Problem, grads: Grads, stage: Stage) -> None:
    """Add to the gradients what one stage gives."""
    examples, _, heads, _ = problem.k.shape
    shares = backward_jobs(stage, examples, heads, COLUMNS)
    size, own = _rows(stage), [grads]
    for joins in begun(shares)[1:]:
        own.append(grads._replace(dbias=np.zeros_like(grads.dbias), dq=np.zeros_like(grads.dq) if joins else grads.dq))
    each([partial(attend_tiles_backward, jobs, problem, x, size, COLUMNS) for jobs, x in zip(shares, own, strict=True)])
    for x in own[1:]:
        grads.dbias[...] += x.dbias
        if x.dq is not grads.dq:
            grads.dq[...] += x.dq


def _problem(saved: TiledSaved, stage: Stage, rate: float, scale: float | None) -> Problem:
    q, k, v, y = map(_by_position, (saved.q, saved.k, saved.v, saved.y))
    gemm, log_sum, pairs = gemm_address(q.dtype), _levels(saved.log_sum), pairs_of(saved, stage.pattern, rate)
    return Problem(gemm, q, k, v, y, log_sum, _scale(q, scale), stage.step, stage.first, stage.last, pairs)


def _scale(q: Array, scale: float | None) -> float:
    return float(default_scale(q) if scale is None else scale)


def _rows(stage: Stage) -> int:
    """Return how many queries make a tile."""
    return FEW_ROWS if (stage.last - stage.first).max() <= FEW else ROWS


def _zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    """Return zeros (..., H, T, C) that lie by position, so that putting the heads side by side moves nothing."""
    if len(shape) == 2:
        return np.zeros(shape, dtype)
    return np.zeros((*shape[:-3], shape[-2], shape[-3], shape[-1]), dtype).swapaxes(-3, -2)


def _by_position(heads: Array) -> Array:
    """View (..., H, T, C) as (B, T, H, C) in C order, or copy it if it lies differently."""
    x = heads[None] if heads.ndim == 2 else heads
    x = np.ascontiguousarray(x.swapaxes(-3, -2))
    return x.reshape(-1, *x.shape[-3:])


def _levels(x: Array) -> Array:
    """View (..., H, T, 1) as (B, H, T) in C order, or copy it if it lies differently."""
    return np.ascontiguousarray(x).reshape(-1, x.shape[-3] if x.ndim > 2 else 1, x.shape[-2])


def _covers(q: Array, k: Array, v: Array, bias: Any, mask: Any, key: Any, pattern: Pattern, rate: float) -> bool:
    """Tell whether everything is plain, real, of one type, not empty and of fitting shapes."""
    arrays = [x for x in (q, k, v, bias) if x is not None]
    if not all(type(x) is np.ndarray and x.dtype == q.dtype for x in arrays) or q.dtype not in REAL:
        return False
    if not gemm_address(q.dtype) or type(mask) not in (type(None), np.ndarray) or not (key is None or is_key(key)):
        return False
    try:
        check_heads(q, k, v)
        check_rate(rate)
        pattern.check_lengths(q.shape[-2], k.shape[-2])
        shape = (*q.shape[:-1], k.shape[-2])
        if mask is not None:
            check_mask(mask, shape)
        if bias is not None:
            check_broadcast(bias, shape, what="the bias")
    except GlassformerError:
        return False
    return q.size > 0 and v.size > 0 and (bias is None or q.ndim <= 4)
