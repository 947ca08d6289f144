"""The kernel of `ops.attention`, which keeps all weights.

The usual case, heads cut out of rows and no mask but that of positions, goes head by head (`strategies`) and skips what
cannot be seen. Everything else takes products of all heads of a batch, with the softmax between them in place. Results
lie in memory as (B, T, H, C), so that putting the heads side by side again copies nothing.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from .... import ops
from ....core.arrays import Array, cast, unbroadcast
from ....core.dispatch import replaces
from ....ops.attention import AttentionSaved, default_scale, grouped
from ....ops.dropout import MOST, dropped
from ....ops.mask import FULL, Pattern
from ..compile import REAL, is_array
from ..cores import each
from ..dropout import dropout, is_key
from ..products import gemm_address
from ..softmax import softmax_backward_in_place, softmax_biased_in_place, softmax_in_place
from .strategies import BACKWARD, FORWARD, PRODUCTS, has_products, head_plan, shares, spans, strategy_for

_BOOL = np.dtype(np.bool_)


@replaces(ops.attention)
def attention(
    q: Array, k: Array, v: Array, bias: Array | None = None, *, mask: Array | None = None, pattern: Pattern = FULL,
    key: Array | None = None, rate: float = 0.0, scale: float | None = None,
) -> Any:  # fmt: skip
    if not _fits(q, k, v) or (q.shape[-2] > k.shape[-2] and not pattern.is_full) or not 0 <= rate < MOST:
        return NotImplemented
    weights = np.empty((*q.shape[:-1], k.shape[-2]), q.dtype)
    scale = default_scale(q) if scale is None else float(scale)
    drops = key is not None and rate > 0
    if drops and not is_key(key):
        return NotImplemented
    if mask is None and bias is None and not drops and _goes_by_heads(pattern, q, k, v):
        y = _heads(q)
        _by_heads(pattern, scale, (q, k, v, weights), y)
        return y, AttentionSaved(q, k, v, bias, weights, None)
    np.matmul(grouped(q, k), k.swapaxes(-1, -2), out=grouped(weights, k))
    if not _softmax(weights, bias, mask, pattern, scale):
        return NotImplemented
    mixing, keep = dropout(weights, key, rate=rate) if drops else (weights, None)
    if q.shape[-3] == k.shape[-3]:
        y = np.matmul(mixing, v, out=_heads(q))
    else:
        y = np.matmul(grouped(mixing, v), v).reshape(q.shape)
    return y, AttentionSaved(q, k, v, bias, weights, keep)


@replaces(ops.attention_backward)
def attention_backward(
    dy: Array, saved: AttentionSaved, *, pattern: Pattern = FULL, rate: float = 0.0, scale: float | None = None
) -> Any:
    q, k, v, bias, weights, keep = saved
    if not _fits(q, k, v) or q.shape[-3] != k.shape[-3]:
        return NotImplemented
    for x, shape in ((dy, q.shape), (weights, (*q.shape[:-1], k.shape[-2]))):
        if type(x) is not np.ndarray or x.shape != shape or x.dtype != q.dtype:
            return NotImplemented
    if keep is not None and not is_array(keep, _BOOL, weights.shape):
        return NotImplemented
    if bias is not None and (type(bias) is not np.ndarray or bias.dtype not in REAL):
        return NotImplemented
    scale = default_scale(q) if scale is None else float(scale)
    dq, dk, dv = map(_heads, (q, k, v))
    if bias is None and keep is None and _goes_by_heads(pattern, dy, q, k, v) and weights.flags.c_contiguous:
        dk[...] = 0
        dv[...] = 0
        _by_heads(pattern, scale, (q, k, v, weights), dy, (dq, dk, dv))
        return dq, dk, dv, None
    mixing = weights if keep is None else dropped(weights, keep, rate=rate)
    np.matmul(mixing.swapaxes(-1, -2), dy, out=dv)
    dscores = np.matmul(dy, v.swapaxes(-1, -2), out=np.empty(weights.shape, q.dtype))  # in C order whatever dy's
    if keep is not None:
        dscores = dropped(dscores, keep, rate=rate)
    T, S = weights.shape[-2:]
    softmax_backward_in_place(_stacked(dscores), _stacked(weights), *spans(FULL, T, S), 1.0)
    dbias = None if bias is None else cast(unbroadcast(dscores, tuple(bias.shape)), bias.dtype)
    dscores *= q.dtype.type(scale)
    np.matmul(dscores, k, out=dq)
    np.matmul(dscores.swapaxes(-1, -2), q, out=dk)
    return dq, dk, dv, dbias


def _by_heads(pattern: Pattern, scale: float, heads: tuple[Array, ...], y: Array, dheads: Any = ()) -> None:
    """Fill in weights and mixtures y, given heads (q, k, v, weights), or, given dy in the place of y, dheads."""
    q, k, v, weights = heads
    plan = head_plan(pattern, *weights.shape[-2:], gemm_address(q.dtype), scale)
    strategy = strategy_for(q.dtype, k.shape[-2], q.shape[-1])

    def part(rows: slice) -> None:
        own, out = (*[_memory(x)[rows] for x in (q, k, v)], weights[rows]), _memory(y)[rows]
        if dheads:
            BACKWARD[strategy](plan, out, own, tuple([_memory(x)[rows] for x in dheads]))
        else:
            FORWARD[strategy](plan, own, out)

    # A few keys are done with sooner than handed out.
    parts = shares(len(weights), weights.size) if strategy == PRODUCTS else [slice(None)]
    each([partial(part, rows) for rows in parts])


def _softmax(weights: Array, bias: Array | None, mask: Array | None, pattern: Pattern, scale: float) -> bool:
    """Turn products of queries and keys into weights, in place; False where bias or mask do not fit."""
    T, S = weights.shape[-2:]
    if mask is None and bias is None and pattern.stride is None:
        softmax_in_place(_stacked(weights), *spans(pattern, T, S), scale)
        return True
    if mask is not None and (type(mask) is not np.ndarray or mask.dtype != np.bool_):
        return False
    if bias is not None and (type(bias) is not np.ndarray or bias.dtype not in REAL):
        return False
    allowed = np.True_ if pattern.is_full else pattern.dense(T, S)
    try:
        allowed = allowed if mask is None else mask & allowed
        over = [
            np.broadcast_to(x, weights.shape).reshape(_four(weights.shape))
            for x in (weights.dtype.type(0) if bias is None else np.asarray(bias, weights.dtype), allowed)
        ]
    except ValueError:
        return False
    softmax_biased_in_place(weights.reshape(_four(weights.shape)), *over, scale)
    return True


def _goes_by_heads(pattern: Pattern, *heads: Array) -> bool:
    """Tell whether heads (B, H, T, C), as many of queries as of keys, lie in memory as (B, T, H, C)."""
    if pattern.stride is not None or not has_products(heads[0].dtype) or heads[0].shape[1:2] != heads[-1].shape[1:2]:
        return False
    return all(x.ndim == 4 and x.size and _memory(x).flags.c_contiguous for x in heads)


def _memory(heads: Array) -> Array:
    return heads.swapaxes(-3, -2)


def _fits(q: Array, k: Array, v: Array) -> bool:
    """Tell whether heads (..., H, T, C) of one real type fit each other."""
    if not type(q) is type(k) is type(v) is np.ndarray or q.dtype not in REAL or not q.dtype == k.dtype == v.dtype:
        return False
    if not q.ndim == k.ndim > 2 or k.shape != v.shape or q.shape[:-3] != k.shape[:-3]:
        return False
    return q.shape[-1] == k.shape[-1] > 0 and k.shape[-3] > 0 and q.shape[-3] % k.shape[-3] == 0


def _heads(x: Array) -> Array:
    """Return an array as x (..., H, T, C) that lies in memory as (..., T, H, C)."""
    *lead, H, T, C = x.shape
    return np.empty((*lead, T, H, C), x.dtype).swapaxes(-3, -2)


def _stacked(x: Array) -> Array:
    return x.reshape(x.size // max(x.shape[-1] * x.shape[-2], 1), *x.shape[-2:])


def _four(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (math.prod(shape[:-3]), *shape[-3:])
