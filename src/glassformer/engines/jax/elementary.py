"""The affine map, lookups, special functions, positions and writing to a cache, by functions of JAX.

Numbers of 16 bits are multiplied and looked up as they are; what is added up of them is added up in float32.

Positions that are not known yet, under `jax.jit`, are looked up in tables that the host makes in float64. Angles need
the digits: a position of many thousands times a frequency, in float32, would turn by another angle.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.lax import logistic as jax_logistic
from jax.scipy.special import erfc

from ... import ops
from ...core.arrays import Array, cast, check_ids, check_width, is_half, namespace, widen
from ...core.dispatch import replaces
from ...core.quantized import Quantized, check_learnable
from ...layers.cache import KeyValues
from ...layers.embedding import InputEmbedding
from ...layers.position import RotaryPositions
from ...ops import activation, position
from ...ops.embedding import EmbeddingSaved
from ...ops.embedding import scatter_add as written_scatter_add
from ...ops.linear import LinearSaved, check_matrix, flat


def called_back(function: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
    """Run a function that is written in NumPy, by a call back to the host where arguments are not known yet."""
    traced = [number for number, argument in enumerate(arguments) if isinstance(argument, jax.core.Tracer)]
    if not traced:
        return function(*arguments, **settings)

    def written(*arrays: Array) -> Any:
        known = dict(zip(traced, map(np.asarray, arrays), strict=True))
        y = function(*(known.get(number, argument) for number, argument in enumerate(arguments)), **settings)
        return jax.tree.map(lambda x: np.asarray(x, jax.dtypes.canonicalize_dtype(x.dtype)), y)

    arrays = [arguments[number] for number in traced]
    example = written(*(np.zeros(x.shape, x.dtype) for x in arrays))
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), example)
    return jax.pure_callback(written, shapes, *arrays, vmap_method="sequential")


@replaces(ops.linear)
def linear(x: Array, w: Array, b: Array | None = None) -> tuple[Array, LinearSaved]:
    """Multiply in the type of x; wider w and b, as master copies are, are rounded to it."""
    if isinstance(w, Quantized) or not is_half(x):
        return NotImplemented
    check_matrix(w, b)
    check_width(x, w.shape[0])
    y = x @ cast(w, x.dtype)
    return (y if b is None else y + cast(b, x.dtype)), LinearSaved(x, w, b)


@replaces(ops.linear_backward)
def linear_backward(dy: Array, saved: LinearSaved, *, frozen: bool = False) -> tuple[Array, Array, Array | None]:
    """Multiply in the type of x; the gradients of w and b are summed in float32 and have the types of w and b."""
    if not is_half(saved.x):
        return NotImplemented
    check_learnable(saved.w)
    dy = cast(dy, saved.x.dtype)  # that of logits comes wide
    rows = flat(dy)
    dw = None if frozen else cast(matmul_wide(flat(saved.x).T, rows), saved.w.dtype)
    db = None if saved.b is None else cast(widen(rows).sum(axis=0), saved.b.dtype)
    return dy @ cast(saved.w, dy.dtype).T, dw, db


def matmul_wide(a: Array, b: Array) -> Array:
    """Return a @ b of half-precision arrays, summed in float32 and not rounded."""
    return namespace(a).matmul(a, b, preferred_element_type=np.float32)


@replaces(ops.embedding)
def embedding(table: Array, ids: Array, *, scale: float = 1.0) -> tuple[Array, EmbeddingSaved]:
    """Look up rows of half precision, and widen only these."""
    if not is_half(table):
        return NotImplemented
    check_ids(ids, table.shape[0])
    y = table[ids]
    return (y if scale == 1 else cast(widen(y) * scale, y.dtype)), EmbeddingSaved(table, ids)


@replaces(written_scatter_add, as_written=called_back)
def scatter_add(rows: Array, ids: Array, *, shape: tuple[int, ...]) -> Array:
    """Add rows (..., D), in float32 where they are narrower, into zeros of `shape` (V, D) at `ids` (...)."""
    wide = widen(rows).reshape(-1, shape[-1])
    return cast(namespace(rows).zeros(shape, wide.dtype).at[ids.reshape(-1)].add(wide), rows.dtype)


@replaces(activation.logistic)
def logistic(x: Array) -> Array:
    return NotImplemented if is_half(x) else jax_logistic(x)


@replaces(activation.normal_cdf)
def normal_cdf(x: Array) -> Array:
    return NotImplemented if is_half(x) else 0.5 * erfc(-x * math.sqrt(0.5))


@replaces(RotaryPositions.rotation, as_written=called_back)
def rotation(self: RotaryPositions, positions: Array, limit: int | None = None) -> tuple[Array, Array]:
    """Look up cosines and sines of positions below `limit`."""
    if not isinstance(positions, jax.core.Tracer):
        return NotImplemented
    assert limit is not None
    cos, sin = (jax.numpy.asarray(table)[positions] for table in self.rotation(np.arange(limit)))
    return (cos, sin) if cos.ndim == 2 else (cos[..., None, :, :], sin[..., None, :, :])


@replaces(InputEmbedding.sinusoids, as_written=called_back)
def sinusoids(self: InputEmbedding, positions: Array) -> Array:
    if not isinstance(positions, jax.core.Tracer):
        return NotImplemented
    return jax.numpy.asarray(self.sinusoids(np.arange(self.context)))[positions]


@replaces(position.relative_buckets, as_written=called_back)
def relative_buckets(
    rows: Array, columns: Array, *, bidirectional: bool, buckets: int = 32, max_distance: int = 128
) -> Array:
    """Look up the buckets of distances; the rows are among the columns 0, 1, …."""
    if not isinstance(rows, jax.core.Tracer):
        return NotImplemented
    farthest = len(columns) - 1
    distances = np.arange(-farthest, farthest + 1)
    row = np.zeros(1, dtype=np.int64)
    settings: dict[str, Any] = {"bidirectional": bidirectional, "buckets": buckets, "max_distance": max_distance}
    table = position.relative_buckets(row, distances, **settings)[0]
    return jax.numpy.asarray(table)[columns - rows[:, None] + farthest]


@replaces(KeyValues.write)
def write(self: KeyValues, start: int, k: Array, v: Array) -> None:
    """Put new keys and values at `start`: arrays of JAX are not written into, but made anew."""

    def spliced(old: Array, new: Array) -> Array:
        if old is None:
            return new
        return namespace(new).concatenate((old[..., :start, :], new, old[..., start + new.shape[-2] :, :]), axis=-2)

    self.k, self.v = spliced(self.k, k), spliced(self.v, v)
