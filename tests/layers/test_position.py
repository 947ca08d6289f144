"""Positions that enter through attention: rotations of queries and keys, biases on the scores."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops
from glassformer.config import DecoderConfig, RotaryScaling
from glassformer.core.errors import ConfigError
from glassformer.layers import RelativePositions, RotaryPositions
from glassformer.models.decoder import Decoder
from glassformer.proofs.case import scattered

# Heads of six channels: with two there is one angle, and neither base nor scaling nor pairing can be seen.
MANNER = {"positions": "rotary", "activation": "gelu_tanh"}
SIZES = {"vocab": 9, "width": 12, "heads": 2, "layers": 2, "context": 8, **MANNER}
TOKENS = np.array([[1, 4, 1, 0, 7, 2], [1, 1, 8, 3, 3, 5]])


def decoder(**settings):
    model = Decoder(DecoderConfig(**SIZES, **settings))
    return model, scattered(model, np.random.default_rng(0))


def test_rotations_have_an_axis_for_the_heads_where_sequences_have_positions_of_their_own():
    cos, sin = RotaryPositions(4).rotation(np.arange(3))
    assert cos.shape == sin.shape == (3, 2)
    own, _ = RotaryPositions(4).rotation(np.array([[0, 1, 2], [5, 6, 7]]))
    assert own.shape == (2, 1, 3, 2)
    assert_close(own[0, 0], cos)


@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
@pytest.mark.parametrize("base", [10000.0, 50.0])
@pytest.mark.parametrize("scaling", [None, RotaryScaling(4.0, 1.0, 3.0, 8)], ids=["plain", "stretched"])
def test_queries_and_keys_are_turned_as_the_config_says(pairing, base, scaling):
    model, params = decoder(rotary_pairing=pairing, rotary_base=base, rotary_scaling=scaling)
    _, saved = model.forward(params, TOKENS)
    angles = ops.rotary_angles(np.arange(6), 6, base=base, scaling=scaling)
    for weights, block in zip(params["blocks"], saved["blocks"], strict=True):
        record = block["attention"]
        for name, turned in (("query", record.attend.q), ("key", record.attend.k)):
            part = weights["attention"][name]
            straight = ops.split_heads(record.query.x @ part["w"] + part["b"], heads=2)[0]
            assert_close(turned, ops.rotary(straight, *angles, pairing=pairing)[0])


def test_rotary_settings_matter_and_some_channels_turn_as_if_there_were_no_others():
    _, params = decoder()
    settings = ({}, {"rotary_pairing": "interleaved"}, {"rotary_base": 50.0}, {"rotary_scaling": RotaryScaling()})
    logits = [decoder(**chosen)[0].forward(params, TOKENS)[0] for chosen in settings]
    for i, one in enumerate(logits):
        assert all(np.abs(one - other).max() > 1e-6 for other in logits[:i])

    cos, sin = RotaryPositions(10, turning=4).rotation(np.arange(3))
    alone = RotaryPositions(4).rotation(np.arange(3))
    for found, angles, still in ((cos, alone[0], 1), (sin, alone[1], 0)):
        np.testing.assert_array_equal(found[:, :2], angles)
        assert (found[:, 2:] == still).all()

    with pytest.raises(ConfigError, match="a head has 3") as caught:
        RotaryPositions(3).rotation(np.arange(2))
    assert caught.value.hint


def test_a_learned_bias_is_the_same_for_the_same_distance_of_what_is_seen():
    layer = RelativePositions(2, 8, 6)
    assert {name: spec.shape for name, spec in layer.specs().items()} == {"table": (8, 2)}
    bias, _ = layer.forward(layer.init(), np.arange(5), np.arange(5))
    assert bias.shape == (2, 5, 5)
    np.testing.assert_array_equal(bias[:, 0, 1], bias[:, 3, 4])
    assert (bias[:, 0, 1] != bias[:, 1, 0]).all()

    layer = RelativePositions(2, 8, 6, bidirectional=False)
    bias, _ = layer.forward(layer.init(), np.arange(5), np.arange(5))
    np.testing.assert_array_equal(bias[:, 0, 1:], bias[:, :1, 0].repeat(4, axis=1))
