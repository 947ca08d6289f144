"""Positions that enter through attention: rotations of queries and keys, biases on the scores."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .. import ops
from ..arrays import Array, Tree, is_traced, namespace
from ..config import RotaryScaling
from .layer import Layer, Spec


def rows_of(table: Array, positions: Array) -> Array:
    """Look up positions that are not known yet in a table that the host made in float64: angles need the digits."""
    return namespace(positions).asarray(table)[positions]


@dataclass(frozen=True)
class RotaryPositions:
    """Turn queries and keys by angles that grow with the position."""

    channels: int
    base: float = 10000.0
    scaling: RotaryScaling | None = None

    def rotation(self, positions: Array, limit: int | None = None) -> tuple[Array, Array]:
        """Return cosines and sines for positions (T,) or (..., T), with an axis for the heads in the latter case.

        Positions that are not known yet, as under `jax.jit`, lie below the `limit`.
        """
        known = positions
        if is_traced(positions):
            assert limit is not None
            known = np.arange(limit)
        cos, sin = ops.rotary_angles(known, self.channels, base=self.base, scaling=self.scaling)
        if known is not positions:
            cos, sin = rows_of(cos, positions), rows_of(sin, positions)
        return (cos, sin) if cos.ndim == 2 else (cos[..., None, :, :], sin[..., None, :, :])


@dataclass(frozen=True)
class AlibiPositions:
    """Lower the scores of distant keys, each head at its own slope."""

    heads: int

    def bias(self, rows: Array, columns: Array) -> Array:
        """Return the bias (H, T, S) for queries at `rows` (T,) and keys at `columns` (S,)."""
        return ops.alibi_bias(self.heads, rows, columns)


@dataclass(frozen=True)
class RelativePositions(Layer):
    """Learn one number per head and bucket of distances, added to the scores of every block (T5)."""

    heads: int
    buckets: int = 32
    distance: int = 128
    bidirectional: bool = True
    std: float = 0.02

    def specs(self) -> Tree:
        return {"table": Spec((self.buckets, self.heads), self.std)}

    def forward(self, params: Tree, rows: Array, columns: Array) -> tuple[Array, Tree]:
        """Return the bias (H, T, S) for queries at `rows` (T,) and keys at `columns` (S,)."""
        buckets = ops.relative_buckets(
            rows, columns, bidirectional=self.bidirectional, buckets=self.buckets, max_distance=self.distance
        )
        bias, saved = ops.relative_bias(params["table"], buckets)
        return bias, saved._replace(table=None)

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[None, Tree]:
        return None, {"table": ops.relative_bias_backward(dy, saved._replace(table=params["table"]))}
