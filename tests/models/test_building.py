"""From a config to layers: every setting arrives where it belongs."""

import math

import pytest

from glassformer.config import DecoderConfig, EncoderConfig
from glassformer.layers import AlibiPositions, LayerNorm, RelativePositions, RMSNorm, RotaryPositions
from glassformer.models.building import (
    build_attention,
    build_block,
    build_embedding,
    build_head,
    build_norm,
    build_stack,
)
from glassformer.ops import Pattern

SIZES = {"vocab": 9, "width": 8, "heads": 4, "layers": 3, "context": 6}


def config(**settings):
    return DecoderConfig(**SIZES, **settings)


def test_a_norm_is_of_the_kind_with_the_eps_and_the_shift_of_the_config():
    assert build_norm(config(norm="rms", norm_eps=1e-3)) == RMSNorm(8, 1e-3)
    assert build_norm(config(norm_eps=1e-3, norm_bias=False)) == LayerNorm(8, 1e-3, bias=False)


def test_attention_has_the_heads_the_biases_and_the_scale_of_the_config():
    settings = {"kv_heads": 2, "head_width": 6, "attention_bias": False, "output_bias": True, "scale_scores": False}
    layer = build_attention(config(**settings))
    assert (layer.heads, layer.key_heads, layer.channels) == (4, 2, 6)
    assert (layer.bias, layer.output_bias, layer.scale) == (False, True, 1.0)
    assert build_attention(config()).scale is None


@pytest.mark.parametrize("causal", [True, False])
def test_a_block_sees_what_the_config_lets_it_see(causal):
    block = build_block(config(window=3), causal=causal)
    assert block.attention.pattern == Pattern(causal=causal, window=3)
    assert block.cross_attention is None


def test_a_memory_is_seen_as_a_whole():
    block = build_block(config(window=3), causal=True, cross=True)
    assert block.cross_attention.pattern == Pattern()


def test_a_block_takes_over_hidden_width_activation_gate_and_dropout():
    settings = {"feed_forward": 20, "activation": "silu", "gated": True, "dropout": 0.1, "norm_position": "post"}
    block = build_block(config(**settings), causal=True)
    forward = block.feed_forward
    assert (forward.width, forward.hidden, forward.activation, forward.gated) == (8, 20, "silu", True)
    assert (block.dropout, block.norm_position) == (0.1, "post")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("rotary", RotaryPositions), ("alibi", AlibiPositions), ("relative", RelativePositions), ("learned", type(None))],
)
def test_positions_that_enter_through_attention_belong_to_the_stack(name, kind):
    stack = build_stack(config(positions=name), causal=True)
    assert isinstance(stack.positions, kind)
    if name == "relative":
        assert not stack.positions.bidirectional
        assert build_stack(config(positions=name), causal=False).positions.bidirectional


def test_a_stack_is_as_deep_as_the_config_or_as_it_is_told():
    assert build_stack(config(), causal=True).layers == 3
    assert build_stack(config(), causal=True, layers=1).layers == 1


def test_outputs_that_add_up_start_smaller_the_deeper_the_stack():
    for depth in (1, 3):
        assert build_attention(config(), depth=depth).output_scale == pytest.approx(1 / math.sqrt(2 * depth))
    assert build_attention(config(norm_position="post"), depth=3).output_scale == 1


def test_embedding_and_head_are_scaled_as_the_config_says():
    scaled = config(embedding_scale=True, head_scale=True)
    assert build_embedding(scaled).tokens.scale == pytest.approx(math.sqrt(8))
    assert build_head(scaled).scale == pytest.approx(1 / math.sqrt(8))
    assert build_embedding(config()).tokens.scale == build_head(config()).scale == 1


def test_the_source_may_have_a_vocabulary_of_its_own_and_an_encoder_segments():
    assert build_embedding(config(), vocab=20).tokens.vocab == 20
    assert build_embedding(EncoderConfig(**SIZES, segments=2, head="none")).segments == 2
    assert build_embedding(config()).segments == 0
