"""From a config to layers: the one place where settings become parts.

A config is flat and says what a model is; layers are nested and say how it is computed. To see what a setting does,
find here which layer it goes to.
"""

import math

from .. import layers
from ..config import EncoderConfig, TransformerConfig
from ..core import registry
from ..core.dispatch import record_methods
from ..core.execution import PLAIN, Execution
from ..layers.position import build_own_positions
from ..ops import FULL, Pattern

BLOCKS: dict[str, type[layers.Block]] = {
    "residual": layers.Block,
    "parallel": layers.Parallel,
    "attention_only": layers.AttentionOnly,
    "feed_forward_only": layers.FeedForwardOnly,
    "no_residual": layers.NoResidual,
}
"""The blocks that are built in, by the name that a config chooses."""


def build_norm(config: TransformerConfig) -> layers.Norm:
    """Return the norm that all parts of a model use."""
    if config.norm == "rms":
        return layers.RMSNorm(config.width, config.norm_eps)
    if config.norm == "none":
        return layers.NoNorm(config.width, config.norm_eps)
    if config.norm != "layer":
        made = registry.find("norm", config.norm)(config.width, config.norm_eps)
        record_methods(type(made))
        return made
    return layers.LayerNorm(config.width, config.norm_eps, config.norm_bias)


def build_attention(
    config: TransformerConfig,
    execution: Execution = PLAIN,
    *,
    pattern: Pattern = FULL,
    depth: int = 1,
    learned_bias: bool = False,
) -> layers.Attention:
    """Return one attention layer of a stack of `depth` blocks."""
    return layers.Attention(
        width=config.width,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_width=config.head_width,
        bias=config.attention_bias,
        output_bias=config.output_bias,
        scale=None if config.scale_scores else 1.0,
        pattern=pattern,
        pairing=config.rotary_pairing,
        dropout=config.weight_dropout,
        tile=execution.tile,
        learned_bias=learned_bias,
        std=config.init_std,
        output_scale=_output_scale(config, depth),
    )


def build_block(
    config: TransformerConfig,
    execution: Execution = PLAIN,
    *,
    causal: bool,
    cross: bool = False,
    depth: int = 1,
    learned_bias: bool = False,
) -> layers.Block:
    """Return the block of which a stack of `depth` is made."""
    pattern = Pattern(causal=causal, window=config.window, stride=config.stride)
    block = BLOCKS.get(config.block) or registry.find("block", config.block)
    return block(
        attention=build_attention(config, execution, pattern=pattern, depth=depth, learned_bias=learned_bias),
        feed_forward=layers.FeedForward(
            width=config.width,
            hidden=config.hidden,
            activation=config.activation,
            gated=config.gated,
            bias=config.feed_forward_bias,
            std=config.init_std,
            output_scale=_output_scale(config, depth),
        ),
        norm=build_norm(config),
        cross_attention=build_attention(config, execution, depth=depth) if cross else None,
        norm_position=config.norm_position,
        dropout=config.dropout,
    )


def build_stack(
    config: TransformerConfig,
    execution: Execution = PLAIN,
    *,
    causal: bool,
    cross: bool = False,
    depth: int | None = None,
) -> layers.Stack:
    """Return the blocks of an encoder or a decoder."""
    depth = config.layers if depth is None else depth
    positions = _build_positions(config, bidirectional=not causal)
    learned_bias = positions is not None and bool(positions.specs())
    return layers.Stack(
        block=build_block(config, execution, causal=causal, cross=cross, depth=depth, learned_bias=learned_bias),
        layers=depth,
        final_norm=build_norm(config) if config.has_final_norm else None,
        positions=positions,
        remat=execution.remat,
    )


def build_embedding(
    config: TransformerConfig, execution: Execution = PLAIN, *, vocab: int | None = None
) -> layers.InputEmbedding:
    """Return the layer that turns token ids into vectors."""
    counted = isinstance(config, EncoderConfig) and config.padding_id is not None
    return layers.InputEmbedding(
        tokens=layers.Embedding(
            vocab=config.vocab if vocab is None else vocab,
            width=config.width,
            scale=math.sqrt(config.width) if config.embedding_scale else 1.0,
            std=config.init_std,
        ),
        context=config.context + counted,  # the first position is that of padding
        positions=_added_positions(config),
        segments=config.segments if isinstance(config, EncoderConfig) else 0,
        norm=build_norm(config) if config.embedding_norm else None,
        dropout=config.input_dropout,
        compute=execution.half,
    )


def build_head(config: TransformerConfig, *, transform: bool = False) -> layers.TokenHead:
    """Return the layer that gives one logit per token of the vocabulary."""
    return layers.TokenHead(
        width=config.width,
        vocab=config.vocab,
        tied=config.tied_head,
        bias=config.head_bias,
        scale=1 / math.sqrt(config.width) if config.head_scale else 1.0,
        transform=build_norm(config) if transform else None,
        activation=config.activation,
        std=config.init_std,
    )


def _build_positions(config: TransformerConfig, *, bidirectional: bool) -> layers.Positions | None:
    if config.positions == "rotary":
        return layers.RotaryPositions(
            config.channels, config.rotary_base, config.rotary_scaling, config.rotary_channels
        )
    if config.positions == "alibi":
        return layers.AlibiPositions(config.heads)
    if config.positions == "relative":
        return layers.RelativePositions(config.heads, config.relative_buckets, config.relative_distance, bidirectional)
    if config.positions in registry.BUILT_IN["positions"]:
        return None  # they enter with the tokens, or not at all
    return build_own_positions(config, bidirectional=bidirectional)


def _added_positions(config: TransformerConfig) -> str:
    """Return which vectors are added to the tokens; registered positions say so themselves."""
    if config.positions in registry.BUILT_IN["positions"]:
        return config.positions
    return build_own_positions(config, bidirectional=config.architecture != "decoder").vectors


def _output_scale(config: TransformerConfig, depth: int) -> float:
    """Return the factor that lets the 2 · depth outputs of a pre-norm residual start with the variance of one (GPT-2).

    A sum of n independent terms has n times their variance. With post-norm each sum is normalized, and nothing grows;
    without residuals nothing is added up.
    """
    return 1 / math.sqrt(2 * depth) if config.norm_position == "pre" and config.block != "no_residual" else 1.0
