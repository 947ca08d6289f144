"""The Transformer block: tokens look at each other, then each thinks for itself.

The two halves divide the work. Attention moves information between places, but only averages what it finds; the
feed-forward layer bends each vector, but sees one place alone. By turns they do what neither does: the next block's
queries ask for what this block has worked out.

A block is a list of residual connections, and its backward pass is the same list from the end. Its record holds, for
each of them, what its norm and its sublayer kept, by their names, and `output`, the stream as it leaves the block.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from .. import ops
from ..core import registry
from ..core.arrays import Array, Tree
from ..core.dispatch import dispatched, record_methods, recorded
from ..core.errors import ConfigError, ShapeError
from .attention import Attention
from .cache import BlockCache
from .feed_forward import FeedForward
from .layer import InputGrads, Layer, RecordShape
from .norm import Norm
from .residual import Direct, Residual

# Which child of a block's dropout key is whose: outputs of sublayers first, then the weights of attention. The numbers
# are fixed, so that a block without cross-attention drops the same as one that has it, wherever they do the same.
OUTPUT_KEYS = {"attention": 0, "cross_attention": 1, "feed_forward": 2}
_WEIGHT_KEYS = {"attention": 3, "cross_attention": 4}


@dataclass(frozen=True)
class Block(Layer):
    """Attention, perhaps attention over a memory, and a feed-forward layer, each added to what came in.

        pre-norm:  x + f(norm x)        post-norm:  norm(x + f(x))

    A decoder's block reads its own sequence first and the memory next, so that it asks of the source with what it has
    understood of the target so far (Vaswani et al. 2017). Attention sees places by its pattern, its mask and its
    positions; cross-attention has only a mask, since places of source and target do not correspond.
    """

    attention: Attention
    feed_forward: FeedForward
    norm: Norm  # the form of all norms of the block; each has parameters of its own
    cross_attention: Attention | None = None  # None but in the decoder of an encoder-decoder
    norm_position: str = "pre"
    dropout: float = 0.0  # of what each sublayer adds; attention has a rate of its own for its weights

    residual_type: ClassVar[type[Residual]] = Residual

    def __post_init__(self) -> None:
        if self.norm_position not in ("pre", "post"):
            raise ConfigError(f"norm_position is {self.norm_position!r}", hint='use "pre" or "post"')

    @cached_property
    def residuals(self) -> tuple[Residual, ...]:
        """The block as a list: attention, perhaps cross-attention, feed-forward."""
        sublayers = {name: getattr(self, name) for name in OUTPUT_KEYS}
        return tuple(
            self.residual_type(name, sublayer, self.norm, self.norm_position, self.dropout)
            for name, sublayer in sublayers.items()
            if sublayer is not None
        )

    def specs(self) -> Tree:
        """Return the specs of all sublayers and of a norm for each, side by side under the names they go by."""
        specs: dict[str, Tree] = {}
        for residual in self.residuals:
            specs |= residual.specs()
        return specs

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of what all sublayers keep, and of the stream after each, which the next one reads."""
        shapes: dict[str, Tree] = {}
        for residual in self.residuals:
            shapes |= residual.record_shapes(shape)
        return shapes | {"output": RecordShape((len(self.residuals), *shape))}

    @dispatched(by="x")
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
        cache: BlockCache | None = None,
    ) -> tuple[Array, Tree]:
        """Run the block on x (..., T, D); masks broadcast to (..., T, S), a `key` turns dropout on.

        memory     (..., S, D) what cross-attention looks at: the source, after the last block of the encoder
        bias       (H, T, S) added to the scores of attention, for positions that enter there
        rotation   cosines and sines (..., T, C/2) that queries and keys are turned by

        With a `cache`, x are further tokens of sequences whose earlier ones it remembers: they attend to all of them.
        """
        extra_inputs = sublayer_inputs(self, memory, bias, mask, memory_mask, rotation, key, cache)
        # x ← x + f(norm x), for each sublayer f in turn
        saved: dict[str, Tree] = {}
        for residual in self.residuals:
            own_key = child_key(key, OUTPUT_KEYS[residual.name])
            x, record = residual.forward(params, x, extra_inputs[residual.name], own_key)
            saved |= record
        saved["output"] = x
        return x, saved

    @dispatched(by="dy")
    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[InputGrads, Tree]:
        """Return the gradients of all that was read, and of the parameters: the list, reversed.

        dy (..., T, D) runs down the stream: what one residual connection returns for its input is the gradient of the
        output of the one before it. Memory and bias come in from the side, and collect from all their readers.
        """
        grads: dict[str, Tree] = {}
        read = InputGrads(dy)
        for residual in reversed(self.residuals):
            # x, record = residual.forward(params, x, extra_inputs, key)
            below, part = residual.backward(params, saved, read.x)
            grads |= part
            read = below.after(read)
        return read, grads


@dataclass(frozen=True)
class AttentionOnly(Block):
    """A block without a feed-forward layer: x + a(norm x). Tokens look at each other, and nothing else happens.

    What such a model does can be read off its weights: every path from a token to a logit leads through matrices and
    patterns of attention alone, a product for each choice of heads on the way (Elhage et al. 2021). Two of these blocks
    are the smallest model that learns to continue what it has seen before, by a head that reads what another wrote.
    """

    @cached_property
    def residuals(self) -> tuple[Residual, ...]:
        """The block as a list: attention, perhaps cross-attention."""
        return tuple(residual for residual in super().residuals if residual.name != "feed_forward")


@dataclass(frozen=True)
class FeedForwardOnly(Block):
    """A block without attention: x + f(norm x). No token ever learns of another.

    Such a model tells what can be known from each token alone: as a language model, it is a table of pairs of tokens.
    """

    @cached_property
    def residuals(self) -> tuple[Residual, ...]:
        """The block as a list of one."""
        return super().residuals[-1:]

    def forward(
        self, params: Tree, x: Array, *extra_inputs: Any, cache: BlockCache | None = None, **settings: Any
    ) -> tuple[Array, Tree]:
        """Run the block on x (..., T, D), given what `Block.forward` is given; a cache only counts the tokens."""
        if cache is not None:
            cache.attention.seen = cache.attention.seen + x.shape[-2]
        return super().forward(params, x, *extra_inputs, **settings)


@dataclass(frozen=True)
class NoResidual(Block):
    """A block without residual connections: f(norm x) in place of x + f(norm x).

    The sum is what lets a deep stack learn (He et al. 2016): without it, each block must pass on all that later ones
    need, and rank collapses: attention alone makes all tokens equal, faster with every block (Dong et al. 2021).
    """

    residual_type = Direct  # each replaces what came in


@dataclass(frozen=True)
class Parallel(Block):
    """A block whose sublayers read the same x, each through a norm of its own, and are added to it at once.

        y = x + attention(norm x) + feed_forward(norm x)

    The feed-forward layer learns one block later what attention found. In return both can be computed at the same time.
    GPT-J and GPT-NeoX are made of such blocks; the one norm of GPT-J is two with equal parameters here.
    """

    residual_type = Direct  # x is added once, here

    def __post_init__(self) -> None:
        if self.norm_position != "pre":
            raise ConfigError(f"norm_position of a parallel block is {self.norm_position!r}", hint='use "pre"')

    def record_shapes(self, shape: tuple[int, ...]) -> Tree:
        """Return the shapes of what all sublayers keep, and of the one sum."""
        return super().record_shapes(shape) | {"output": RecordShape(shape)}

    @recorded
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
        cache: BlockCache | None = None,
    ) -> tuple[Array, Tree]:
        """Run the block on x (..., T, D), given what `Block.forward` is given."""
        extra_inputs = sublayer_inputs(self, memory, bias, mask, memory_mask, rotation, key, cache)
        # y = x + Σ f(norm x), over the sublayers f
        saved: dict[str, Tree] = {}
        y = x
        for residual in self.residuals:
            own_key = child_key(key, OUTPUT_KEYS[residual.name])
            h, record = residual.forward(params, x, extra_inputs[residual.name], own_key)
            saved |= record
            y, _ = ops.add(y, h)
        saved["output"] = y
        return y, saved

    def backward(self, params: Tree, saved: Tree, dy: Array) -> tuple[InputGrads, Tree]:
        """Return the gradients of all that was read, and of the parameters."""
        grads: dict[str, Tree] = {}
        # y = x + Σ f(norm x): x gets all of dy, and so does every sublayer, which sends its part back to x
        total = InputGrads(dy)
        for residual in reversed(self.residuals):
            dy, dh = ops.add_backward(dy, None)
            read, part = residual.backward(params, saved, dh)
            grads |= part
            total = read._replace(x=ops.add(total.x, read.x)[0]).after(total)
        return total, grads


def sublayer_inputs(
    block: Block,
    memory: Array | None,
    bias: Array | None,
    mask: Array | None,
    memory_mask: Array | None,
    rotation: tuple[Array, Array] | None,
    key: Array | None,
    cache: BlockCache | None,
) -> dict[str, dict[str, Any]]:
    """Return what each sublayer reads besides the stream x, by its name, of what `Block.forward` is given."""
    if block.cross_attention is not None and memory is None and (cache is None or cache.memory is None):
        raise ShapeError("this block attends to a memory, but none was given", hint="pass memory (..., S, D)")
    return {
        "attention": {
            "bias": bias,
            "mask": mask,
            "rotation": rotation,
            "key": child_key(key, _WEIGHT_KEYS["attention"]),
            "cache": None if cache is None else cache.attention,
        },
        "cross_attention": {
            "memory": memory,
            "mask": memory_mask,
            "key": child_key(key, _WEIGHT_KEYS["cross_attention"]),
            "cache": None if cache is None else cache.memory,
        },
        "feed_forward": {},
    }


def child_key(key: Array | None, number: int) -> Array | None:
    """Return the key of a child, None where there is no key."""
    return None if key is None else ops.fold_key(key, number)


def register_block(name: str, block: Any) -> None:
    """Register a block of your own under a name, for configs: block="name".

    `block` is a class derived from `Block`, with the same settings and its own `forward` and `backward`. A `forward`
    that hands its `cache` on to attention writes with a cache, too; another is refused there, and writes without one.
    """
    if not (isinstance(block, type) and issubclass(block, Block)):
        raise ConfigError(f"{block!r} is no class of blocks", hint="derive it from glassformer.layers.Block")
    record_methods(block)
    registry.register("block", name, block)
