"""Layers: frozen settings that compose the ops; parameters are plain nested dicts kept outside."""

from .attention import Attention, AttentionRecord, InputGrads, merge_heads, split_heads
from .block import Block
from .cache import BlockCache, Cache, KeyValues
from .cache_fixed import FixedCache
from .embedding import Embedding, InputEmbedding
from .feed_forward import FeedForward
from .head import HeadGrads, TokenHead
from .layer import Layer, Spec
from .linear import Linear
from .norm import LayerNorm, Norm, RMSNorm
from .position import AlibiPositions, RelativePositions, RotaryPositions
from .stack import Stack

__all__ = [
    "AlibiPositions",
    "Attention",
    "AttentionRecord",
    "Block",
    "BlockCache",
    "Cache",
    "Embedding",
    "FeedForward",
    "FixedCache",
    "HeadGrads",
    "InputEmbedding",
    "InputGrads",
    "KeyValues",
    "Layer",
    "LayerNorm",
    "Linear",
    "Norm",
    "RMSNorm",
    "RelativePositions",
    "RotaryPositions",
    "Spec",
    "Stack",
    "TokenHead",
    "merge_heads",
    "split_heads",
]
