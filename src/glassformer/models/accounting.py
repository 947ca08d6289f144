"""What a model costs, before anything is allocated: parameters, arithmetic and memory."""

import math
from dataclasses import dataclass
from typing import Any

from ..config import EncoderConfig, EncoderDecoderConfig, TransformerConfig
from ..execution import PLAIN, Execution
from ..tree import named_leaves
from . import build
from .activations import activation_bytes


@dataclass(frozen=True)
class Costs:
    """What a model costs to hold, to run and to train on `batch` sequences of `length` tokens.

    Memory is in bytes. The optimizer is Adam in float32 (two moments per parameter). A FLOP is one addition or one
    multiplication in a matrix product; an encoder-decoder reads a source as long as its target.
    """

    parts: dict[str, int]  # parameters of each part
    parameters: int
    estimate: int  # 12 · L · D², the rule of thumb for the blocks
    batch: int
    length: int
    flops_forward: int  # per token
    flops_training: int  # per token: the backward pass costs twice the forward pass
    weights: int
    gradients: int
    optimizer: int
    activations: int
    kv_cache: int

    @property
    def training(self) -> int:
        """Memory while training: weights, gradients, optimizer and activations."""
        return self.weights + self.gradients + self.optimizer + self.activations


def costs(
    config: TransformerConfig,
    *,
    batch: int = 1,
    length: int | None = None,
    itemsize: int = 4,
    execution: Execution = PLAIN,
) -> Costs:
    """Count everything for a config; numbers take `itemsize` bytes."""
    length = config.context if length is None else length
    parts = parameters_by_part(config)
    parameters = sum(parts.values())
    flops = flops_per_token(config, length)
    return Costs(
        parts=parts,
        parameters=parameters,
        estimate=12 * _depth(config) * config.width**2,
        batch=batch,
        length=length,
        flops_forward=flops,
        flops_training=3 * flops,
        weights=parameters * itemsize,
        gradients=parameters * itemsize,
        optimizer=2 * 4 * parameters,
        activations=activation_bytes(config, batch, length, itemsize, execution=execution),
        kv_cache=kv_cache_bytes(config, batch, length, itemsize),
    )


def parameters_by_part(config: TransformerConfig) -> dict[str, int]:
    """Count parameters, the blocks of a stack taken together: "blocks.attention", "embedding.tokens", …"""
    parts: dict[str, int] = {}
    for name, spec in named_leaves(build(config).specs()):
        part = _part(name)
        parts[part] = parts.get(part, 0) + math.prod(spec.shape)
    return parts


def flops_per_token(config: TransformerConfig, length: int) -> int:
    """Count the FLOPs of the forward pass per token of a sequence of `length`.

    2 per weight of every matrix, and 4 · keys · H · C per attention: scores, then the mixture of values. The keys are
    as many as a token sees at most: all of the length, though causal tokens see half of it on average, or those that a
    window or a stride lets it see.
    """
    specs = named_leaves(build(config).specs())
    products = sum(2 * math.prod(spec.shape) for name, spec in specs if _is_matrix(name, spec))
    if config.tied_head and not (isinstance(config, EncoderConfig) and config.head != "tokens"):
        products += 2 * config.vocab * config.width
    causal = not isinstance(config, EncoderConfig)
    keys = config.layers * _keys_seen(config, length, causal=causal)
    if isinstance(config, EncoderDecoderConfig):
        keys += config.encoder_depth * _keys_seen(config, length, causal=False)
        keys += config.layers * length  # all of the source, by every block of the decoder
    return products + 4 * keys * config.heads * config.channels


def kv_cache_bytes(config: TransformerConfig, batch: int, length: int, itemsize: int = 4) -> int:
    """Return the memory for the keys and values that decoding remembers; none for an encoder."""
    if isinstance(config, EncoderConfig):
        return 0
    kept = length if config.window is None else min(length, config.window)
    if isinstance(config, EncoderDecoderConfig):
        kept += length  # the keys and values of the source
    return 2 * config.layers * config.key_heads * config.channels * kept * batch * itemsize


def _is_matrix(name: str, spec: Any) -> bool:
    """Whether a parameter enters a matrix product, as tables that are only looked up do not."""
    return len(spec.shape) == 2 and not name.endswith("table")


def _part(name: str) -> str:
    steps = [step for step in name.split(".") if not step.isdigit()]
    outside = 2 if steps[0] in ("embedding", "source_embedding") else 1
    return ".".join(steps[: steps.index("blocks") + 2 if "blocks" in steps else outside])


def _keys_seen(config: TransformerConfig, length: int, *, causal: bool) -> int:
    """Return how many keys a token sees at most, itself included: on one side of it, or on both."""
    both = (lambda size: size) if causal else (lambda size: 2 * size - 1)
    within = length if config.window is None else min(length, both(config.window))
    if config.stride is None:
        return within
    return min(within, both(config.stride) + (within - 1) // config.stride)  # its neighbors, and every so many beyond


def _depth(config: TransformerConfig) -> int:
    return config.layers + (config.encoder_depth if isinstance(config, EncoderDecoderConfig) else 0)
