"""From a config to layers: every setting arrives where it belongs."""

import math

import pytest

from glassformer.config import DecoderConfig
from glassformer.models.building import build_attention

SIZES = {"vocab": 9, "width": 8, "heads": 4, "layers": 3, "context": 6}


def config(**settings):
    return DecoderConfig(**SIZES, **settings)


def test_outputs_that_add_up_start_smaller_the_deeper_the_stack():
    for depth in (1, 3):
        assert build_attention(config(), depth=depth).output_scale == pytest.approx(1 / math.sqrt(2 * depth))
    assert build_attention(config(norm_position="post"), depth=3).output_scale == 1
