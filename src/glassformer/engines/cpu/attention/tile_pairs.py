"""What is said about single pairs of a query and a key: biases, masks, gaps in a pattern, and dropout."""

from typing import NamedTuple

import numpy as np

from ....arrays import Array
from ....ops.attention_strided import Others
from ....ops.attention_tiled import TiledSaved
from ....ops.mask import Pattern
from ..compile import compiled
from ..dropout import GOLDEN, mix


class Pairs(NamedTuple):
    """Everything that may change the score or the weight of one pair."""

    plain: bool  # nothing changes a score
    biased: bool
    bias: Array  # (2, B, H, T, S), of any size if there is none
    masked: bool
    mask: Array  # (2, B, H, T, S)
    stride: int  # keys at least so far away are seen if the distance is a multiple; 0: all are
    apart: bool  # no query sees itself
    offset: int  # the place of the first query among the keys
    drops: bool
    key: Array
    border: np.uint32  # a weight is dropped if its bits, those of `keep_mask`, are below
    factor: float  # on weights that are not dropped


def pairs_of(saved: TiledSaved, pattern: Pattern, rate: float) -> Pairs:
    """Gather what is said about pairs."""
    q, k, _, bias, mask, key = saved[:6]
    shape = (*q.shape[:-1], k.shape[-2])
    stride = pattern.stride or 0
    apart = isinstance(pattern, Others) and not pattern.is_span
    return Pairs(
        plain=bias is None and mask is None and stride == 0 and not apart,
        biased=bias is not None,
        bias=_wide(np.zeros((1, 1), q.dtype) if bias is None else np.broadcast_to(bias, shape)),
        masked=mask is not None,
        mask=_wide(np.ones((1, 1), bool) if mask is None else np.broadcast_to(mask, shape)),
        stride=stride,
        apart=apart,
        offset=k.shape[-2] - q.shape[-2],
        drops=key is not None,
        key=np.zeros(2, np.uint32) if key is None else key,
        border=np.uint32(round(rate * 2**32)),
        factor=1 / (1 - rate),
    )


def _wide(x: Array) -> Array:
    """View x (..., T, S) as (2, B, H, T, S): the first axis keeps it out of C order, so that one kernel serves all."""
    heads = x.shape[-3] if x.ndim > 2 else 1
    x = x.reshape(-1, heads, *x.shape[-2:])
    return np.broadcast_to(x, (2, *x.shape))


@compiled
def settle(scores, place, step, scale, pairs):
    """Turn some scores of one query into scores · scale + bias, −inf where the pair is not allowed.

    place = (example, head, query, first key); the keys are `step` apart.
    """
    b, h, t, s = place
    real = scores.dtype.type
    for i in range(scores.size):
        score = scores[i] * real(scale)
        column = s + step * i
        distance = abs(t + pairs.offset - column)
        if pairs.biased:
            score += pairs.bias[0, b, h, t, column]
        if pairs.masked and not pairs.mask[0, b, h, t, column]:
            score = real(-np.inf)
        if (pairs.apart and distance == 0) or (pairs.stride and distance >= pairs.stride and distance % pairs.stride):
            score = real(-np.inf)
        scores[i] = score


@compiled
def drop(weights, row, column, step, pairs):
    """Apply dropout to some weights of one row, which are in columns column, column + step, … of all weights."""
    real, u = weights.dtype.type, np.uint32
    start = mix(u(row) ^ pairs.key[0])
    end, place, stride = u(start + pairs.key[1]), u(start + u(u(column) * u(GOLDEN))), u(u(step) * u(GOLDEN))
    for s in range(weights.size):
        bits = mix(u(mix(u(place + u(u(s) * stride))) ^ end))
        kept = weights[s] * real(pairs.factor)
        weights[s] = kept if bits >= pairs.border else real(0)


@compiled
def add_to_bias(dbias, dscores, place, step):
    """Add the gradients of some scores of one query to dbias (B, H, T, S), whose axes may have size 1."""
    b, h, t, s = place
    row = dbias[min(b, dbias.shape[0] - 1), min(h, dbias.shape[1] - 1), min(t, dbias.shape[2] - 1)]
    for i in range(dscores.size):
        row[min(s + step * i, row.size - 1)] += dscores[i]
