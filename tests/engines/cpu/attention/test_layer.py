"""Self-attention in one call: results, records and gradients are those of the layer as written."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.cpu.fused_cases import (
    BATCHES,
    LENGTHS,
    LIMITS,
    PAIRINGS,
    SEEDS,
    SIZES,
    SPANS,
    assert_one_call_equals_the_layer,
    calls,
    done,
)
from engines.cpu.kernel_cases import normal
from glassformer.layers import Attention, KeyValues, Linear
from glassformer.ops import CAUSAL

__all__ = ["calls"]


def make(kind, length, rng, **settings):
    layer = Attention(width=8, heads=2, **settings)
    return layer, layer.init(1, dtype=kind), normal(rng, (3, length, 8), kind)


@pytest.mark.parametrize("kind", LIMITS)
@given(BATCHES, LENGTHS, SIZES, SIZES, SIZES, SPANS, PAIRINGS, st.booleans(), st.booleans(), SEEDS)
def test_self_attention_in_one_call_equals_the_layer_as_written(
    kind, batch, length, width, heads, channels, pattern, pairing, bias, output_bias, seed
):
    channels += channels % 2 if pairing else 0
    layer = Attention(
        width, heads, head_width=channels, bias=bias, output_bias=output_bias, pattern=pattern,
        pairing=pairing or "halves", scale=0.3 if bias else None,
    )  # fmt: skip
    assert_one_call_equals_the_layer("Attention", layer, (batch, length, width), channels, kind, seed, pairing=pairing)


def test_a_scale_may_be_a_whole_number():
    layer = Attention(8, 2, pattern=CAUSAL, scale=1)
    assert_one_call_equals_the_layer("Attention", layer, (3, 5, 8), 4, "float64", 0, pairing=None)


@pytest.mark.parametrize("length", [5, 17, 40])
def test_the_record_of_masked_attention_goes_with_the_gradient_in_one_call(length):
    mask = np.random.default_rng(2).random((3, length, length)) < 0.6
    mask[1, 2] = False  # nothing to attend to
    layer = Attention(8, 2, pattern=CAUSAL)
    assert_one_call_equals_the_layer("Attention", layer, (3, length, 8), 4, "float64", 0, pairing=None, mask=mask)


class Doubled(Linear):
    """A linear map of one's own."""

    def forward(self, params, x):
        y, saved = super().forward(params, x)
        return 2 * y, saved


def test_a_linear_map_of_ones_own_is_heard(rng, calls):
    layer, params, x = make("float64", 5, rng)
    layer.parts["output"] = Doubled(8, 8)
    y, _ = layer.forward(params, x)
    assert done(calls) == set()
    np.testing.assert_allclose(y, 2 * make("float64", 5, rng)[0].forward(params, x)[0], atol=1e-12)


def test_parameters_beside_those_of_the_layer_are_left_to_it(rng, calls):
    layer, params, x = make("float64", 5, rng)
    layer.forward({**params, "key": {**params["key"], "scale": np.ones(1)}}, x)
    replace(layer, bias=False).forward(params, x)
    assert done(calls) == set()


def test_a_layer_with_a_cache_is_read_as_written(rng, calls):
    layer, params, x = make("float64", 5, rng)
    layer.forward(params, x, cache=KeyValues())
    assert done(calls) == set()
