"""Positions that enter through attention: rotations of queries and keys, biases on the scores.

All three forms make a score depend on how far a key is from its query. They differ in what they can express. A rotation
lets q and k of each head decide which distances suit them, and costs no parameters; ALiBi fixes the preference for near
keys beforehand; a relative bias learns one curve of distance for each head, whatever the tokens are.

They are made once and handed to every block. A bias is so read L times, and its gradient is the sum over the blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import ops
from ..config import RotaryScaling
from ..core import registry
from ..core.arrays import Array, Tree
from ..core.dispatch import dispatched, record_methods
from ..core.errors import ConfigError
from .layer import Layer, RecordShape, Spec


class Positions(Layer):
    """The way attention learns where tokens stand. Your own kind overrides what it needs; the rest does nothing.

    name      under which its parameters and its record stand, where it has any
    vectors   "learned" or "sinusoidal": such vectors are added to the tokens too, by their places
    """

    name = "positions"
    vectors = "none"

    def specs(self) -> Tree:
        return {}

    @property
    def follows_tokens(self) -> bool:
        """Whether places depend on the tokens: each sequence is then read from its beginning, without a cache."""
        return type(self).places is not Positions.places

    def places(self, tokens: Array) -> Array | None:
        """Return where tokens (..., T) of a decoder stand, (..., T) below its context; None for 0, 1, …

        A token's place may depend on the tokens before it, and on no later one.
        """
        return None

    def rotation(self, positions: Array, limit: int | None = None) -> tuple[Array, Array] | None:
        """Return cosines and sines (..., T, C/2) that queries and keys are turned by, None for none."""
        return None

    def forward(self, params: Tree, rows: Array, columns: Array) -> tuple[Array | None, Tree]:
        """Return the bias (H, T, S) on the scores of queries at `rows` (T,) and keys at `columns` (S,), and its record.

        A bias without a record, such as a table of constants, gets no gradient.
        """
        return None, None

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[None, Tree]:
        """Return the gradients of the parameters for one of the bias."""
        return None, {}


@dataclass(frozen=True)
class RotaryPositions(Positions):
    """Turn queries and keys by angles that grow with the position (Su et al. 2021; see `ops.rotary`)."""

    channels: int  # C, of one head: every head turns by the same angles
    base: float = 10000.0  # a larger one turns more slowly, and tells places apart over longer texts
    scaling: RotaryScaling | None = None
    turning: int | None = None  # how many of the channels turn; None: all

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of cosines and sines, (T, C/2) each."""
        return {name: RecordShape((shape[-2], self.channels // 2), "params") for name in ("cos", "sin")}

    @dispatched
    def rotation(self, positions: Array, limit: int | None = None) -> tuple[Array, Array]:
        """Return cosines and sines for positions (T,) or (..., T), with an axis for the heads in the latter case.

        All positions lie below the `limit`, where one is given.
        """
        channels, scaling, turning = self.channels, self.scaling, self.turning
        cos, sin = ops.rotary_angles(positions, channels, base=self.base, scaling=scaling, turning=turning)
        return (cos, sin) if cos.ndim == 2 else (cos[..., None, :, :], sin[..., None, :, :])


@dataclass(frozen=True)
class AlibiPositions(Positions):
    """Lower the scores of distant keys, each head at its own pace (Press et al. 2022)."""

    heads: int

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shape of the bias, (H, T, T)."""
        return {"bias": RecordShape((self.heads, shape[-2], shape[-2]), "params")}

    def forward(self, params: Tree, rows: Array, columns: Array) -> tuple[Array, None]:
        """Return the bias (H, T, S); it has no parameters, and so no record."""
        return ops.alibi_bias(self.heads, rows, columns), None


@dataclass(frozen=True)
class RelativePositions(Positions):
    """Learn one number per head and bucket of distances, added to the scores of every block (T5, Raffel et al. 2020).

    One table (buckets, H) serves all blocks: distance means the same in each, and there are few numbers to learn.
    """

    name = "relative"

    heads: int
    buckets: int = 32
    distance: int = 128  # from here on all keys share the last bucket
    bidirectional: bool = True  # whether keys after the query have buckets of their own
    std: float = 0.02

    def specs(self) -> Tree:
        return {"table": Spec((self.buckets, self.heads), self.std)}

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shape of the bias, (H, T, T)."""
        return {"bias": RecordShape((self.heads, shape[-2], shape[-2]), "params")}

    def forward(self, params: Tree, rows: Array, columns: Array) -> tuple[Array, Tree]:
        """Return the bias (H, T, S) for queries at `rows` (T,) and keys at `columns` (S,)."""
        buckets = ops.relative_buckets(
            rows, columns, bidirectional=self.bidirectional, buckets=self.buckets, max_distance=self.distance
        )
        bias, saved = ops.relative_bias(params["table"], buckets)
        return bias, saved._replace(table=None)

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[None, Tree]:
        """Return the gradient of the table for one of the bias (H, T, S)."""
        # bias[h, t, s] = table[buckets[t, s], h]
        return None, {"table": ops.relative_bias_backward(dy, saved._replace(table=params["table"]))}


def register_positions(name: str, make: Callable[..., Positions]) -> None:
    """Register positions of your own under a name, for configs: positions="name".

    make(config, bidirectional=…) returns a `Positions`; bidirectional is False in a decoder, which never looks ahead.
    """
    if not callable(make):
        raise ConfigError(f"{make!r} cannot be called", hint="pass a function of a config that returns Positions")
    registry.register("positions", name, make)


def build_own_positions(config: Any, *, bidirectional: bool) -> Positions:
    """Return registered positions for a config."""
    made = registry.find("positions", config.positions)(config, bidirectional=bidirectional)
    if not isinstance(made, Positions):
        raise ConfigError(
            f"the positions {config.positions!r} are {made!r}", hint="return a glassformer.layers.Positions"
        )
    if made.follows_tokens and config.architecture != "decoder":
        fact = f"the positions {config.positions!r} follow from the tokens that a decoder reads"
        raise ConfigError(f"{fact}, but this is an {config.architecture}", hint="use a decoder, or other positions")
    record_methods(type(made), "places", "rotation")
    return made
