"""Positions that are not known yet: under `jax.jit` they are looked up in tables that the host makes, in float64.

Angles need the digits: a position of many thousands times a frequency, in float32, would turn by another angle.
"""

from typing import Any

import jax
import numpy as np

from ...arrays import Array
from ...dispatch import replaces
from ...layers.embedding import InputEmbedding
from ...layers.position import RotaryPositions
from ...ops import position


@replaces(RotaryPositions.rotation)
def rotation(self: RotaryPositions, positions: Array, limit: int | None = None) -> tuple[Array, Array]:
    """Look up cosines and sines of positions below `limit`."""
    if not isinstance(positions, jax.core.Tracer):
        return NotImplemented
    assert limit is not None
    cos, sin = (jax.numpy.asarray(table)[positions] for table in self.rotation(np.arange(limit)))
    return (cos, sin) if cos.ndim == 2 else (cos[..., None, :, :], sin[..., None, :, :])


@replaces(InputEmbedding.sinusoids)
def sinusoids(self: InputEmbedding, positions: Array) -> Array:
    """Look up the sinusoids of positions within the context."""
    if not isinstance(positions, jax.core.Tracer):
        return NotImplemented
    return jax.numpy.asarray(self.sinusoids(np.arange(self.context)))[positions]


@replaces(position.relative_buckets)
def relative_buckets(
    rows: Array, columns: Array, *, bidirectional: bool, buckets: int = 32, max_distance: int = 128
) -> Array:
    """Look up the buckets of distances; the rows are among the columns 0, 1, …."""
    if not isinstance(rows, jax.core.Tracer):
        return NotImplemented
    farthest = len(columns) - 1
    distances = np.arange(-farthest, farthest + 1)
    one = np.zeros(1, dtype=np.int64)
    settings: dict[str, Any] = {"bidirectional": bidirectional, "buckets": buckets, "max_distance": max_distance}
    table = position.relative_buckets(one, distances, **settings)[0]
    return jax.numpy.asarray(table)[columns - rows[:, None] + farthest]
