"""What planted bugs once survived: settings of rotary positions that models with two channels per head cannot see."""

import numpy as np
import pytest

from compare import assert_close
from glassformer.config import DecoderConfig, RotaryScaling
from glassformer.layers.attention import split_heads
from glassformer.models.decoder import Decoder
from glassformer.ops import rotary, rotary_angles
from glassformer.proofs.layer_cases import scattered

SIZES = {"vocab": 9, "width": 12, "heads": 2, "layers": 2, "context": 8, "positions": "rotary"}
TOKENS = np.array([[1, 4, 1, 0, 7, 2], [1, 1, 8, 3, 3, 5]])


def decoder(**settings):
    model = Decoder(DecoderConfig(**SIZES, **settings))
    return model, scattered(model, np.random.default_rng(0))


@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
@pytest.mark.parametrize("base", [10000.0, 50.0])
@pytest.mark.parametrize("scaling", [None, RotaryScaling(4.0, 1.0, 3.0, 8)], ids=["plain", "stretched"])
def test_queries_and_keys_are_turned_as_the_config_says(pairing, base, scaling):
    model, params = decoder(rotary_pairing=pairing, rotary_base=base, rotary_scaling=scaling)
    _, saved = model.forward(params, TOKENS)
    angles = rotary_angles(np.arange(6), 6, base=base, scaling=scaling)
    for weights, block in zip(params["blocks"], saved["blocks"], strict=True):
        record = block["attention"]
        for name, turned in (("query", record.attend.q), ("key", record.attend.k)):
            part = weights["attention"][name]
            straight = split_heads(record.query.x @ part["w"] + part["b"], 2)
            assert_close(turned, rotary(straight, *angles, pairing=pairing)[0])


def test_the_settings_of_rotary_positions_matter():
    _, params = decoder()
    settings = ({}, {"rotary_pairing": "interleaved"}, {"rotary_base": 50.0}, {"rotary_scaling": RotaryScaling()})
    logits = [decoder(**chosen)[0].forward(params, TOKENS)[0] for chosen in settings]
    for i, one in enumerate(logits):
        assert all(np.abs(one - other).max() > 1e-6 for other in logits[:i])


@pytest.mark.parametrize("batched", [False, True], ids=["one for all", "each its own"])
def test_given_positions_leave_the_same_gap_as_a_hidden_token(batched):
    model, params = decoder()
    seen = np.arange(6) != 2
    whole, _ = model.forward(params, TOKENS, mask=np.broadcast_to(seen, TOKENS.shape))
    positions = np.flatnonzero(seen)
    positions = np.broadcast_to(positions, (2, 5)) if batched else positions
    without, _ = model.forward(params, TOKENS[:, seen], positions=positions)
    assert_close(without, whole[:, seen])
