"""Positions that enter through attention: rotations of queries and keys, biases on the scores."""

from __future__ import annotations

from dataclasses import dataclass

from .. import ops
from ..arrays import Array, Tree
from ..config import RotaryScaling
from .layer import Layer, Spec


@dataclass(frozen=True)
class RotaryPositions:
    """Turn queries and keys by angles that grow with the position."""

    channels: int
    base: float = 10000.0
    scaling: RotaryScaling | None = None

    def rotation(self, positions: Array) -> tuple[Array, Array]:
        """Return cosines and sines for positions (T,) or (..., T), with an axis for the heads in the latter case."""
        cos, sin = ops.rotary_angles(positions, self.channels, base=self.base, scaling=self.scaling)
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
