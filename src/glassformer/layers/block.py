"""The Transformer block."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from .. import ops
from ..arrays import Array, Tree
from ..errors import ConfigError, ShapeError
from . import block_whole
from .attention import Attention, InputGrads
from .cache import BlockCache
from .feed_forward import FeedForward
from .layer import Layer
from .norm import Norm

_CHILD = {"attention": 0, "cross_attention": 1, "feed_forward": 2}  # which dropout key belongs to which sublayer


@dataclass(frozen=True)
class Block(Layer):
    """Attention, perhaps attention over a memory, and a feed-forward layer, each added to what came in.

    pre-norm:  x + f(norm x)        post-norm:  norm(x + f(x))
    """

    attention: Attention
    feed_forward: FeedForward
    norm: Norm
    cross_attention: Attention | None = None
    norm_position: str = "pre"
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.norm_position not in ("pre", "post"):
            raise ConfigError(f"norm_position is {self.norm_position!r}", hint='use "pre" or "post"')

    @cached_property
    def whole(self) -> block_whole.Whole | None:
        """What the kernel for whole blocks must know of this one, None where it does not take it."""
        return block_whole.whole(self)

    @property
    def _drops(self) -> bool:
        return bool(self.dropout or self.attention.dropout)

    def specs(self) -> Tree:
        specs: dict[str, Tree] = {}
        for name in _CHILD:
            sublayer = getattr(self, name)
            if sublayer is not None:
                specs[f"{name}_norm"] = self.norm.specs()
                specs[name] = sublayer.specs()
        return specs

    def forward(
        self,
        params: Tree,
        x: Array,
        memory: Array | None = None,
        bias: Array | None = None,
        *,
        mask: Array | None = None,
        memory_mask: Array | None = None,
        rotation: tuple[Array, Array] | None = None,
        key: Array | None = None,
    ) -> tuple[Array, Tree]:
        """Run the block on x (..., T, D); masks broadcast to (..., T, S), a `key` turns dropout on."""
        if memory is None and bias is None and mask is None and (key is None or not self._drops):
            whole = block_whole.forward(self, params, x, rotation)
            if whole is not None:
                return whole
        saved: dict[str, Tree] = {}
        h = self._enter("attention", params, x, saved)
        y, saved["attention"] = self.attention.forward(
            params["attention"], h, None, bias, mask=mask, rotation=rotation, key=_child(key, 3)
        )
        x = self._leave("attention", params, x, y, saved, key)
        if self.cross_attention is not None:
            if memory is None:
                raise ShapeError("this block attends to a memory, but none was given", hint="pass memory (..., S, D)")
            h = self._enter("cross_attention", params, x, saved)
            y, saved["cross_attention"] = self.cross_attention.forward(
                params["cross_attention"], h, memory, mask=memory_mask, key=_child(key, 4)
            )
            x = self._leave("cross_attention", params, x, y, saved, key)
        h = self._enter("feed_forward", params, x, saved)
        y, saved["feed_forward"] = self.feed_forward.forward(params["feed_forward"], h)
        x = self._leave("feed_forward", params, x, y, saved, key)
        saved["output"] = x
        return x, saved

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[InputGrads, Tree]:
        """The forward list, from the end."""
        whole = block_whole.backward(self, params, saved, dy)
        if whole is not None:
            return InputGrads(whole[0]), whole[1]
        grads: dict[str, Tree] = {}
        dx, dbranch = self._leave_backward("feed_forward", params, dy, saved, grads)
        dh, grads["feed_forward"] = self.feed_forward.backward(params["feed_forward"], saved["feed_forward"], dbranch)
        dx = self._enter_backward("feed_forward", params, dx, dh, saved, grads)
        dmemory = None
        if self.cross_attention is not None:
            dx, dbranch = self._leave_backward("cross_attention", params, dx, saved, grads)
            crossed, grads["cross_attention"] = self.cross_attention.backward(
                params["cross_attention"], saved["cross_attention"], dbranch
            )
            dx = self._enter_backward("cross_attention", params, dx, crossed.x, saved, grads)
            dmemory = crossed.memory
        dx, dbranch = self._leave_backward("attention", params, dx, saved, grads)
        attended, grads["attention"] = self.attention.backward(params["attention"], saved["attention"], dbranch)
        dx = self._enter_backward("attention", params, dx, attended.x, saved, grads)
        return InputGrads(dx, dmemory, attended.bias), grads

    def read(
        self,
        params: Tree,
        x: Array,
        cache: BlockCache,
        bias: Array | None = None,
        *,
        mask: Array | None = None,
        memory_mask: Array | None = None,
        rotation: tuple[Array, Array] | None = None,
    ) -> Array:
        """Return what `forward` gives for further tokens x, which attend to all tokens in the cache."""
        h = self._enter("attention", params, x, {})
        y = self.attention.read(params["attention"], h, cache.attention, bias, mask=mask, rotation=rotation)
        x = self._leave("attention", params, x, y, {}, None)
        if self.cross_attention is not None:
            if cache.memory is None:
                raise ShapeError("this block attends to a memory, but the cache has none", hint="encode a source first")
            h = self._enter("cross_attention", params, x, {})
            y = self.cross_attention.recall(params["cross_attention"], h, cache.memory, mask=memory_mask)
            x = self._leave("cross_attention", params, x, y, {}, None)
        h = self._enter("feed_forward", params, x, {})
        y, _ = self.feed_forward.forward(params["feed_forward"], h)
        return self._leave("feed_forward", params, x, y, {}, None)

    def _enter(self, name: str, params: Tree, x: Array, saved: dict[str, Tree]) -> Array:
        """Return what a sublayer reads."""
        if self.norm_position == "post":
            return x
        h, saved[f"{name}_norm"] = self.norm.forward(params[f"{name}_norm"], x)
        return h

    def _enter_backward(
        self, name: str, params: Tree, dx: Array, dh: Array, saved: Tree, grads: dict[str, Tree]
    ) -> Array:
        """Add what came back through the sublayer to what came back along the residual."""
        if self.norm_position == "pre":
            dh, grads[f"{name}_norm"] = self.norm.backward(params[f"{name}_norm"], saved[f"{name}_norm"], dh)
        return dx + dh

    def _leave(self, name: str, params: Tree, x: Array, y: Array, saved: dict[str, Tree], key: Array | None) -> Array:
        """Add what a sublayer found to what came in."""
        if key is not None and self.dropout > 0:
            y, saved[f"{name}_dropout"] = ops.dropout(y, _child(key, _CHILD[name]), rate=self.dropout)
        x = x + y
        if self.norm_position == "post":
            x, saved[f"{name}_norm"] = self.norm.forward(params[f"{name}_norm"], x)
        return x

    def _leave_backward(
        self, name: str, params: Tree, dx: Array, saved: Tree, grads: dict[str, Tree]
    ) -> tuple[Array, Array]:
        """Return the gradients along the residual and into the sublayer."""
        if self.norm_position == "post":
            dx, grads[f"{name}_norm"] = self.norm.backward(params[f"{name}_norm"], saved[f"{name}_norm"], dx)
        if f"{name}_dropout" in saved:
            return dx, ops.dropout_backward(dx, saved[f"{name}_dropout"], rate=self.dropout)
        return dx, dx


def _child(key: Array | None, number: int) -> Array | None:
    return None if key is None else ops.fold_key(key, number)
