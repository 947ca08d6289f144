"""A block without a feed-forward layer: tokens look at each other, and nothing else happens.

What such a model does can be read off its weights: every path from a token to a logit leads through matrices and
patterns of attention alone, a product for each choice of heads on the way (Elhage et al. 2021). Two of these blocks are
the smallest model that learns to continue what it has seen once before, by a head that reads what another head wrote.
"""

from dataclasses import dataclass
from functools import cached_property

from .block import Block
from .residual import Residual


@dataclass(frozen=True)
class AttentionOnly(Block):
    """Attention, and perhaps attention over a memory, each added to what came in; the feed-forward layer is left out.

    x + a(norm x)
    """

    @cached_property
    def residuals(self) -> tuple[Residual, ...]:
        """The block as a list: attention, perhaps cross-attention."""
        return tuple(residual for residual in super().residuals if residual.name != "feed_forward")
