"""Layers: frozen settings that compose the ops; parameters are plain nested dicts kept outside.

    ids (..., T)
     │  InputEmbedding          a row for each token, and where it stands
     ▼
    x (..., T, D)               the residual stream, one vector for each token
     │  Stack of L blocks       each block: x ← x + Attention(norm x)      tokens gather from each other
     │                                      x ← x + FeedForward(norm x)    each token by itself      (pre-norm)
     │  perhaps a final norm
     ▼
    TokenHead                   logits (..., T, V)

A layer adds nothing to the mathematics of its ops: it names the parameters, says how their first values are drawn, and
calls the ops in order. Its `backward` calls their backwards in the reverse order, handing dy from one to the next; so a
forward and its backward are read side by side, one from the top and the other from the bottom. To read all files, begin
with layer, linear, feed_forward and attention; then residual, block and stack; then embedding, with the head.
"""

from ..core.sources import snapshot
from .attention import Attention, AttentionRecord
from .block import AttentionOnly, Block, FeedForwardOnly, NoResidual, Parallel, register_block
from .cache import BlockCache, Cache, KeyValues
from .embedding import Embedding, HeadGrads, InputEmbedding, TokenHead
from .feed_forward import FeedForward
from .layer import Frozen, InputGrads, Layer, RecordShape, Spec
from .linear import Linear
from .norm import LayerNorm, NoNorm, Norm, RMSNorm, register_norm
from .position import AlibiPositions, Positions, RelativePositions, RotaryPositions, register_positions
from .residual import Direct, Residual
from .stack import Stack

__all__ = [
    "AlibiPositions", "Attention", "AttentionOnly", "AttentionRecord", "Block", "BlockCache", "Cache", "Direct",
    "Embedding", "FeedForward", "FeedForwardOnly", "Frozen", "HeadGrads", "InputEmbedding", "InputGrads", "KeyValues",
    "Layer", "LayerNorm", "Linear", "NoNorm", "NoResidual", "Norm", "Parallel", "Positions", "RMSNorm",
    "RecordShape", "RelativePositions", "Residual", "RotaryPositions", "Spec", "Stack", "TokenHead",
    "register_block", "register_norm", "register_positions",
]  # fmt: skip
__dir__ = __all__.copy

snapshot(__name__)
