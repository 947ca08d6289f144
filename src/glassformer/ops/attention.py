"""Scaled dot-product attention: the only place where tokens meet.

    scores = q kᵀ · scale + bias      weights = softmax(scores)      y = weights v

A query is compared with every key, the comparison becomes a weight, and the values are averaged by these weights
(Vaswani et al. 2017). It is a soft lookup: a dictionary returns the value whose key equals the query, attention returns
a mixture of all values, mostly of those whose keys have the largest dot products with the query: by their direction,
and by their length. Being soft, it has a gradient.

Every query meets every key, so work and weights grow with T · S; `attention_tiled` gives the same numbers without
keeping the weights. The backward pass undoes the three lines from the last to the first.
"""

import math
from typing import NamedTuple

from ..core.arrays import Array, check_broadcast, check_mask, namespace, unbroadcast
from ..core.dispatch import dispatched
from ..core.errors import ShapeError
from .dropout import check_rate, dropout, dropped
from .mask import FULL, Pattern
from .softmax import softmax, softmax_backward


class AttentionSaved(NamedTuple):
    q: Array  # (..., H, T, C)
    k: Array  # (..., K, S, C)
    v: Array  # (..., K, S, C)
    bias: Array | None  # broadcasts to (..., H, T, S)
    weights: Array  # (..., H, T, S): each row sums to one
    keep: Array | None  # (..., H, T, S): which weights dropout kept


@dispatched
def attention(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None = None,
    *,
    mask: Array | None = None,
    pattern: Pattern = FULL,
    key: Array | None = None,
    rate: float = 0.0,
    scale: float | None = None,
) -> tuple[Array, AttentionSaved]:
    """Gather for every query the values whose keys it matches.

        weights = softmax(q kᵀ · scale + bias)      y = dropout(weights) v      scale = 1/√C unless given

    q is (T, C), (H, T, C) or (..., H, T, C); k and v have the same axes with S keys, and may have fewer heads: K heads
    of keys serve H/K heads of queries each. `mask` (True = may attend) and `bias` broadcast to (..., H, T, S);
    `pattern` is the part of the mask that follows from positions. A query that may attend to nothing gets zeros.
    """
    check_heads(q, k, v)
    check_rate(rate)
    scores = attention_scores(q, k, bias, scale=scale)  # (..., H, T, S)
    if mask is not None:
        check_mask(mask, tuple(scores.shape))
    if not pattern.is_full:
        allowed = namespace(q).asarray(pattern.dense(q.shape[-2], k.shape[-2]))
        mask = allowed if mask is None else mask & allowed
    weights, _ = softmax(scores, mask=mask)
    # A score of −inf becomes a weight of exactly zero: what is masked is not merely unlikely, it has no influence.
    # What is kept is what softmax gave: dropout acts on the mixture, and a heat map shows the weights before it.
    mixing, keep = weights, None
    if key is not None and rate > 0:
        mixing, keep = dropout(weights, key, rate=rate)
    y = ungrouped(grouped(mixing, v) @ v, q)  # (..., H, T, C)
    return y, AttentionSaved(q, k, v, bias, weights, keep)


@dispatched
def attention_backward(
    dy: Array, saved: AttentionSaved, *, pattern: Pattern = FULL, rate: float = 0.0, scale: float | None = None
) -> tuple[Array, Array, Array, Array | None]:
    """Gradient of `attention` for q, k, v and the bias.

        dv = weightsᵀ dy      dweights = dy vᵀ      dscores by softmax_backward
        dq = dscores k · scale      dk = dscoresᵀ q · scale      dbias = Σ dscores over the axes it was broadcast along

    Heads that share keys add up their gradients: they stand as further rows of the same product. `pattern` only says
    where the weights are zero.
    """
    q, k, v, bias, weights, keep = saved
    xp = namespace(q)
    scale = default_scale(q) if scale is None else scale
    # y = mixing v,  mixing = dropout(weights): a product of matrices, undone as in `linear`
    dy = grouped(dy, v)  # (..., K, H/K · T, C)
    mixing = weights if keep is None else dropped(weights, keep, rate=rate)
    dv = xp.matrix_transpose(grouped(mixing, v)) @ dy  # (..., K, S, C)
    dweights = ungrouped(dy @ xp.matrix_transpose(v), weights)  # (..., H, T, S)
    if keep is not None:
        dweights = dropped(dweights, keep, rate=rate)
    # weights = softmax(scores); a masked weight is zero and sends nothing back
    dscores = softmax_backward(dweights, weights)
    # scores = q kᵀ · scale + bias
    dbias = None if bias is None else unbroadcast(dscores, tuple(bias.shape))
    dscores = grouped(dscores * scale, k)
    dq = ungrouped(dscores @ k, q)
    dk = xp.matrix_transpose(dscores) @ grouped(q, k)
    return dq, dk, dv, dbias


def attention_scores(q: Array, k: Array, bias: Array | None = None, *, scale: float | None = None) -> Array:
    """Return q kᵀ · scale + bias, (..., H, T, S), before any mask and softmax."""
    check_heads(q, k)
    xp = namespace(q)
    scale = default_scale(q) if scale is None else scale
    shape = (*q.shape[:-1], k.shape[-2])
    scores = (grouped(q, k) @ xp.matrix_transpose(k) * scale).reshape(shape)
    if bias is None:
        return scores
    check_broadcast(bias, shape, what="the bias")
    return scores + bias


def default_scale(q: Array) -> float:
    """Return 1/√C: a sum of C independent products of variance one has variance C, and this brings it back to one.

    Larger scores would push softmax to where one weight is 1, the others 0 and every gradient nearly zero.
    """
    return 1 / math.sqrt(q.shape[-1])


def grouped(x: Array, shared: Array) -> Array:
    """View (..., H, T, X) as (..., K, H/K · T, X), so that the queries of a group meet the keys they share.

    Grouped-query attention (Ainslie et al. 2023; with K = 1, Shazeer 2019) keeps fewer keys and values than queries,
    because a cache has to hold the former. A group's queries are further rows of one product: no key is copied.
    """
    if shared.ndim < 3 or x.shape[-3] == shared.shape[-3]:
        return x
    heads = shared.shape[-3]
    return x.reshape(*x.shape[:-3], heads, x.shape[-3] // heads * x.shape[-2], x.shape[-1])


def ungrouped(x: Array, q: Array) -> Array:
    """Undo `grouped`: give x the heads and rows of q again."""
    return x.reshape(*q.shape[:-1], x.shape[-1])


def check_heads(q: Array, k: Array, v: Array | None = None) -> None:
    """Refuse queries, keys and values that do not belong together."""
    for x in (q, k) if v is None else (q, k, v):
        namespace(x)
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}" + ("" if v is None else f", v {tuple(v.shape)}")
    if q.ndim < 2 or k.ndim != q.ndim or q.shape[-1] != k.shape[-1] or q.shape[:-3] != k.shape[:-3]:
        raise ShapeError(
            f"queries and keys do not fit: {shapes}",
            hint="expected q (..., H, T, C) and k (..., K, S, C) with the same leading axes and channels",
        )
    if q.ndim > 2 and (k.shape[-3] == 0 or q.shape[-3] % k.shape[-3]):
        raise ShapeError(
            f"{q.shape[-3]} query heads cannot share {k.shape[-3]} key heads evenly: {shapes}",
            hint="the number of query heads must be a multiple of the number of key heads",
        )
    if v is not None and v.shape[:-1] != k.shape[:-1]:
        raise ShapeError(f"keys and values do not fit: {shapes}", hint="there must be one value for every key")
