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
    in_kind,
)
from engines.cpu.kernel_cases import normal
from glassformer.dispatch import use_engine
from glassformer.errors import GlassformerError, ShapeError
from glassformer.layers import Attention, KeyValues, Linear
from glassformer.ops import CAUSAL, Pattern, rotary_angles

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


def test_what_one_call_does_not_cover_is_computed_op_by_op(rng, calls):
    layer, params, x = make("float64", 5, rng)
    layer.forward(params, x, mask=np.ones((5, 5), bool))
    layer.forward(params, x, bias=np.zeros((2, 5, 5)))
    layer.forward(params, x, memory=x)
    layer.forward(params, x[0])
    layer.forward(params, x[:0])
    layer.forward(params, np.asfortranarray(x))
    layer.forward(params, x.astype(np.complex128))
    layer.forward(in_kind(params, "float16"), x.astype(np.float16))
    replace(layer, dropout=0.5).forward(params, x, key=np.array([1, 2], np.uint32))
    replace(layer, tile=2).forward(params, x)
    replace(layer, pattern=Pattern(stride=2)).forward(params, x)
    assert done(calls) == set()
    with use_engine("numpy"):
        layer.forward(params, x)
    assert done(calls) == set()


def wrong_shapes(rng):
    """Arguments that a kernel which trusted them would read beyond the end of."""
    layer, params, x = make("float64", 5, rng)
    angles = rotary_angles(np.arange(5), 4)

    def changed(part, name, shape):
        return {**params, part: {**params[part], name: np.zeros(shape)}}

    return {
        "rows of w": lambda: layer.forward(changed("key", "w", (80, 8)), x),
        "columns of w": lambda: layer.forward(changed("value", "w", (8, 6)), x),
        "output": lambda: layer.forward(changed("output", "w", (80, 8)), x),
        "bias": lambda: layer.forward(changed("query", "b", (7,)), x),
        "angles for fewer positions": lambda: layer.forward(params, x, rotation=tuple(a[:3] for a in angles)),
        "angles for fewer channels": lambda: layer.forward(params, x, rotation=tuple(a[:, :1] for a in angles)),
        "input": lambda: layer.forward(params, x[..., :7]),
    }


@pytest.mark.parametrize("what", wrong_shapes(np.random.default_rng(0)))
def test_arrays_that_do_not_fit_never_reach_the_loops(rng, calls, what):
    refused = (GlassformerError, ValueError)  # NumPy's own, where an op relies on it
    with pytest.raises(refused) as by_kernel:
        wrong_shapes(rng)[what]()
    with use_engine("numpy"), pytest.raises(refused) as by_op:
        wrong_shapes(rng)[what]()
    assert done(calls) == set()
    assert type(by_kernel.value) is type(by_op.value)
    assert not isinstance(by_op.value, ShapeError) or str(by_kernel.value) == str(by_op.value)


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
