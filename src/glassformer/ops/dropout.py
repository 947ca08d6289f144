"""Dropout, and the small counter-based generator that decides what is dropped.

A key is two 32-bit words. Whether entry (row, column) of an array is kept depends on the key and on that place alone,
so the same key gives the same mask in every array library and for any tile of the array. A generator with a state could
not promise that: what it draws depends on everything that was drawn before.

Dropout (Srivastava et al. 2014) keeps a layer from relying on any single number, because any may be missing. In
evaluation nothing is dropped, and because what is kept was scaled up while training, nothing needs to be scaled
down then.
"""

from typing import Any

import numpy as np

from ..core.arrays import Array, namespace
from ..core.dispatch import dispatched
from ..core.errors import ConfigError

MOST = 1 - 2**-33
"""From this rate on nothing would be kept: it is compared with 32 bits."""
_GOLDEN = 0x9E3779B9  # 2³² divided by the golden ratio: consecutive multiples spread evenly


def new_key(seed: int) -> Array:
    """Return the key of a non-negative seed."""
    if seed < 0:
        raise ConfigError(f"the seed is {seed}", hint="use a seed of zero or more")
    return np.asarray([seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF], dtype=np.uint32)


@dispatched
def fold_key(key: Array, number: int) -> Array:
    """Return the key of child `number`: keys of different children are unrelated.

    A model gives every place where it drops a child of the step's key. With one key for all, two layers of the same
    width would drop the same features.
    """
    xp = namespace(key)
    step = _word(xp, (number * _GOLDEN) & 0xFFFFFFFF)
    low = _mix(xp, _mix(xp, key[0:1] + step) ^ key[1:2])
    high = _mix(xp, low + key[0:1] + _word(xp, _GOLDEN))
    return xp.concatenate((low, high))


def keep_mask(key: Array, rows: Array, columns: Array, *, rate: float) -> Array:
    """Return True, with probability 1 − rate, for each pair of a row (...) and a column (n,): shape (..., n)."""
    xp = namespace(key)
    rows = xp.asarray(rows).astype(xp.uint32)[..., None]
    columns = xp.asarray(columns).astype(xp.uint32)
    start = _mix(xp, rows ^ key[0:1])
    # Rows are mixed first, then every column steps on from its row: one mix less for each entry.
    bits = _mix(xp, start + columns * _word(xp, _GOLDEN)) ^ (start + key[1:2])
    # Mixed bits are as likely to be one number below 2³² as any other: a share `rate` of them lies below the bound.
    return _mix(xp, bits) >= _word(xp, round(rate * 2**32))


@dispatched
def dropout(x: Array, key: Array, *, rate: float) -> tuple[Array, Array]:
    """Set each entry of x (..., n) to zero with probability `rate` and scale the others up, so that the mean stays.

        y = keep · x / (1 − rate)

    The record is `keep` (..., n), True where an entry stayed.
    """
    namespace(x)
    check_rate(rate)
    leading = tuple(x.shape[:-1])
    rows = namespace(key).arange(int(np.prod(leading)), dtype=np.uint32).reshape(leading)
    keep = keep_mask(key, rows, np.arange(x.shape[-1]), rate=rate)
    return dropped(x, keep, rate=rate), keep


@dispatched
def dropout_backward(dy: Array, keep: Array, *, rate: float) -> Array:
    """Gradient of `dropout`: the same entries, the same factor, dx = keep · dy / (1 − rate).

    Given its mask, dropout multiplies every number by a constant: zero, or 1 / (1 − rate).
    """
    # y = keep · x / (1 − rate)
    return dropped(dy, keep, rate=rate)


def dropped(x: Array, keep: Array, *, rate: float) -> Array:
    """Return keep · x / (1 − rate)."""
    xp = namespace(x)
    return xp.where(keep, x * (1 / (1 - rate)), xp.zeros((), dtype=x.dtype))


def check_rate(rate: float) -> None:
    """Refuse a rate outside [0, 1), or so near to 1 that nothing would be kept."""
    if not 0 <= rate < MOST:
        raise ConfigError(f"the dropout rate is {rate}", hint="use a rate of at least 0 and below 1 − 2⁻³³")


def _word(xp: Any, value: int) -> Array:
    return xp.asarray(value, dtype=xp.uint32)


def _mix(xp: Any, x: Array) -> Array:
    """Mix 32 bits so that each influences every other (the multipliers are those of Chris Wellons's lowbias32)."""
    x = (x ^ (x >> _word(xp, 16))) * _word(xp, 0x7FEB352D)
    x = (x ^ (x >> _word(xp, 15))) * _word(xp, 0x846CA68B)
    return x ^ (x >> _word(xp, 16))
