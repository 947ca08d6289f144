"""Two strategies for attention in which only positions decide which keys a query sees, and the choice between them.

Each strategy is a pair of compiled functions of the same arguments, on heads that lie in memory as (B, T, H, C):

    forward(plan, heads, y)               heads = (q, k, v, weights); fills in weights (B, H, T, S) and mixtures y
    backward(plan, dy, heads, dheads)     dheads = (dq, dk, dv), of which dk and dv start at zero
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numba import from_dtype, typeof, types

from ....arrays import Array
from ....errors import ShapeError
from ....ops.mask import Pattern
from ..blas import gemm_address
from ..compile import address_of
from ..cores import cores
from ..layout import REAL
from .by_products import attend_by_products, attend_by_products_backward
from .by_vectors import attend_by_vectors, attend_by_vectors_backward

FORWARD = (attend_by_products, attend_by_vectors)
BACKWARD = (attend_by_products_backward, attend_by_vectors_backward)
PRODUCTS, VECTORS = range(2)

RUN = 32  # queries at a time ...
SHORT_RUN, SHORT = 16, 128  # ... and where there are at most SHORT keys
FEW = 16  # keys, for which products are not worth calling
WORTHWHILE = 1 << 17  # pairs of a query and a key; fewer are not worth a second core


class HeadPlan(NamedTuple):
    """What every strategy is told; query t sees its keys first[t] … last[t] − 1, which never move back."""

    gemm: int  # the address of BLAS's product
    first: Array  # (T,)
    last: Array  # (T,)
    run: int  # queries at a time
    scale: float  # factor on the scores


@lru_cache(maxsize=256)
def head_plan(pattern: Pattern, T: int, S: int, dtype: np.dtype, scale: float) -> HeadPlan:
    """Return what every strategy is told about T queries and S keys."""
    return HeadPlan(gemm_address(dtype), *spans(pattern, T, S), SHORT_RUN if S <= SHORT else RUN, scale)


@lru_cache(maxsize=256)
def spans(pattern: Pattern, T: int, S: int) -> tuple[Array, Array]:
    """Return the first key that each of T queries may see, and the one after the last."""
    return checked_spans(pattern, range(S - T, S) if T <= S else range(T), S)


def checked_spans(pattern: Pattern, queries: range, S: int) -> tuple[Array, Array]:
    """Return the spans of a pattern, which may be one's own, as loops may trust them: in range, never moving back."""
    first, last = (np.ascontiguousarray(ends, np.int64) for ends in pattern.spans(queries, S))
    fits = first.shape == last.shape == (len(queries),)
    if fits and len(first):
        fits = first[0] >= 0 and last[-1] <= S and bool((first <= last).all())
        fits = fits and bool((np.diff(first) >= 0).all() and (np.diff(last) >= 0).all())
    if not fits:
        raise ShapeError(
            f"the spans of {pattern} for {len(queries)} queries and {S} keys leave the keys, or move back",
            hint="return 0 <= first <= last <= keys for every query, neither of them falling",
        )
    return first, last


def strategy_for(dtype: np.dtype, keys: int, channels: int) -> int:
    """Return the strategy for this many keys."""
    return VECTORS if keys <= FEW and dtype == np.float32 and channels % 4 == 0 else PRODUCTS


def strategy_address(strategy: int, plan: HeadPlan, dtype: np.dtype, *, backward: bool) -> int:
    """Return the address of a strategy's code, for contiguous heads of this type."""
    heads = types.Array(from_dtype(dtype), 4, "C")
    four, three = types.UniTuple(heads, 4), types.UniTuple(heads, 3)
    if backward:
        return address_of(BACKWARD[strategy], typeof(plan), heads, four, three)
    return address_of(FORWARD[strategy], typeof(plan), four, heads)


def has_products(dtype: np.dtype) -> bool:
    """Tell whether loops can call BLAS for arrays of this type."""
    return dtype in REAL and gemm_address(dtype) != 0


def are_worth_sharing(batch: int, pairs: int) -> bool:
    """Tell whether several cores do so many pairs of a query and a key sooner than one."""
    return batch > 1 and pairs >= 2 * WORTHWHILE


def shares(batch: int, pairs: int) -> list[slice]:
    """Cut a batch with so many pairs of a query and a key into one part for each core, where that is worthwhile."""
    parts = min(cores(), batch, pairs // WORTHWHILE) if are_worth_sharing(batch, pairs) else 1
    return [slice(batch * n // parts, batch * (n + 1) // parts) for n in range(parts)]
