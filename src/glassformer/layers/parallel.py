"""A block whose sublayers read the same: attention and feed-forward side by side instead of one after the other.

The feed-forward layer no longer sees what attention of the same block found; it gets to it one block later. In return
both can be computed at the same time. GPT-J and GPT-NeoX are made of such blocks; the one norm of GPT-J is two with
equal parameters here.
"""

from dataclasses import dataclass

from .. import ops
from ..core.arrays import Array, Tree
from ..core.dispatch import recorded
from ..core.errors import ConfigError
from .block import OUTPUT_KEYS, Block, child_key, sublayer_inputs
from .cache import BlockCache
from .layer import InputGrads, RecordShape
from .residual import Direct


@dataclass(frozen=True)
class Parallel(Block):
    """Every sublayer reads x through a norm of its own, and what they find is added to x at once.

    y = x + attention(norm x) + feed_forward(norm x)
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
