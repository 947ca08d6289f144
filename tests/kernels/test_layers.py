"""Layers and models on both engines: results, records and gradients agree.

Some kernels stand for a whole layer: self_attention and whole_block, with their gradients.
"""

from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassformer.engine import use_engine
from glassformer.errors import GlassformerError, ShapeError
from glassformer.kernels import RUNS
from glassformer.kernels.cores import at_most
from glassformer.layers import Attention, Block, FeedForward, LayerNorm, RMSNorm
from glassformer.ops import ACTIVATIONS, CAUSAL, Pattern, rotary_angles
from glassformer.proofs import layer_cases, model_cases
from glassformer.tree import flatten, tree_map
from kernels.cases import normal

LIMITS = {"float32": 1e-5, "float64": 1e-12}
CASES = layer_cases() + model_cases()


def in_kind(tree, kind):
    return tree_map(lambda x: x.astype(kind) if getattr(x, "dtype", np.dtype(int)).kind == "f" else x, tree)


def cast_case(case, kind):
    """The same case with all floats in another type."""
    if hasattr(case, "inputs"):
        return replace(case, params=in_kind(case.params, kind), inputs=in_kind(dict(case.inputs), kind))
    return replace(case, params=in_kind(case.params, kind))


def assert_same(have, want, limit):
    """Refuse trees that differ in a name or by more than rounding of their largest numbers."""
    have, want = flatten(have), flatten(want)
    assert have.keys() == want.keys()
    for name, x in want.items():
        assert np.shape(have[name]) == np.shape(x), name
        finite = np.isfinite(x)
        np.testing.assert_array_equal(have[name][~finite], x[~finite], err_msg=name)
        scale = max(1.0, np.max(np.abs(x[finite]), initial=0.0))
        difference = have[name][finite].astype(np.float64) - x[finite].astype(np.float64)
        assert np.max(np.abs(difference), initial=0.0) <= limit * scale, name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("kind", LIMITS)
def test_the_engines_agree_on_layers_and_models(case, kind):
    case = cast_case(case, kind)
    have = case.forward(), case.gradients()
    with use_engine("numpy"):
        want = case.forward(), case.gradients()
    assert_same(have, want, LIMITS[kind])


# --- self-attention in one call --------------------------------------------------------------------------------------

SIZES = st.sampled_from([1, 2, 3, 5, 8])
BATCHES = st.sampled_from([0, 1, 3])
LENGTHS = st.sampled_from([1, 2, 3, 15, 16, 17, 33, 129])  # few keys, short and long sequences go different ways
SPANS = st.sampled_from([Pattern(), CAUSAL, Pattern(causal=True, window=5), Pattern(causal=True, prefix=3)])
PAIRINGS = st.sampled_from([None, "halves", "interleaved"])
SEEDS = st.integers(0, 2**32 - 1)


@contextmanager
def noted_calls():
    """Note which kernels of a whole layer are used inside a `with` block, and whether they did the work."""
    used = []

    def noted(name, right):
        def run(*arguments):
            used.append((name, right(*arguments)))
            return used[-1][1]

        return run

    names = ("self_attention", "self_attention_backward", "whole_block", "whole_block_backward")
    with mock.patch.dict(RUNS, {name: noted(name, RUNS[name]) for name in names}), use_engine("cpu"):
        yield used  # entering an engine looks kernels up anew


@pytest.fixture
def calls():
    with noted_calls() as used:
        yield used


def make(kind, length, rng, **settings):
    layer = Attention(width=8, heads=2, **settings)
    return layer, layer.init(1, dtype=kind), normal(rng, (3, length, 8), kind)


def assert_one_call_equals_the_layer(name, layer, shape, channels, kind, seed, *, pairing, mask=None):
    """Compare result, record and gradients with the layer as written, and each one's record with the other's backward.

    The kernel called `name` must be the one that computes, unless there is nothing to compute.
    """
    rng = np.random.default_rng(seed)
    params = tree_map(lambda p: p + normal(rng, p.shape, kind) / 10, layer.init(1, dtype=kind))
    x, dy = normal(rng, (2, *shape), kind)
    given = {}
    if pairing is not None:
        given["rotation"] = tuple(t.astype(kind) for t in rotary_angles(np.arange(shape[-2]), channels))
    if mask is not None:
        given["mask"] = mask
    with noted_calls() as used, at_most(1):  # several cores would share out the heads of a long sequence
        y, saved = layer.forward(params, x, **given)
        grads = layer.backward(params, saved, dy)
    expected = [(f"{name}_backward", True)] if mask is not None else [(name, True), (f"{name}_backward", True)]
    assert used == (expected if x.size else [])
    with use_engine("numpy"):
        want, want_saved = layer.forward(params, x, **given)
        want_grads = layer.backward(params, want_saved, dy)
        crossed = layer.backward(params, saved, dy)
    assert_same((y, saved), (want, want_saved), LIMITS[kind])
    for found in (grads, crossed, layer.backward(params, want_saved, dy)):
        assert_same(found, want_grads, LIMITS[kind])


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
    assert_one_call_equals_the_layer(
        "self_attention", layer, (batch, length, width), channels, kind, seed, pairing=pairing
    )


@pytest.mark.parametrize("length", [5, 17, 40])
def test_the_record_of_masked_attention_goes_with_the_gradient_in_one_call(length):
    mask = np.random.default_rng(2).random((3, length, length)) < 0.6
    mask[1, 2] = False  # nothing to attend to
    layer = Attention(8, 2, pattern=CAUSAL)
    assert_one_call_equals_the_layer("self_attention", layer, (3, length, 8), 4, "float64", 0, pairing=None, mask=mask)


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
    assert calls == []
    with use_engine("numpy"):
        layer.forward(params, x)
    assert calls == []


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
def test_arrays_that_do_not_fit_never_reach_the_kernel(rng, calls, what):
    refused = (GlassformerError, ValueError)  # NumPy's own, where an op relies on it
    with pytest.raises(refused) as by_kernel:
        wrong_shapes(rng)[what]()
    with use_engine("numpy"), pytest.raises(refused) as by_op:
        wrong_shapes(rng)[what]()
    assert calls == []
    assert type(by_kernel.value) is type(by_op.value)
    assert not isinstance(by_op.value, ShapeError) or str(by_kernel.value) == str(by_op.value)


# --- a block in one call ---------------------------------------------------------------------------------------------

BLOCK = Block(Attention(width=8, heads=2, pattern=CAUSAL), FeedForward(8, 12), LayerNorm(8))


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@given(BATCHES, LENGTHS, st.sampled_from([5, 8, 9]), SIZES, SIZES, SIZES, SPANS, PAIRINGS, *[st.booleans()] * 3, SEEDS)
def test_a_block_in_one_call_equals_the_block_as_written(
    kind, activation, batch, length, width, hidden, heads, channels, pattern, pairing, bias, widens, shifts, seed
):
    pairing = pairing if activation == "gelu" else None  # every combination is compiled for itself
    channels += channels % 2 if pairing else 0
    attention = Attention(width, heads, head_width=channels, bias=bias, pattern=pattern, pairing=pairing or "halves")
    feed_forward = FeedForward(width, hidden, activation, bias=widens)
    block = Block(attention, feed_forward, LayerNorm(width, bias=shifts, eps=1e-3))
    assert_one_call_equals_the_layer(
        "whole_block", block, (batch, length, width), channels, kind, seed, pairing=pairing
    )


@pytest.mark.parametrize("length", [5, 17, 40])
def test_the_record_of_a_masked_block_goes_with_the_gradient_in_one_call(length):
    mask = np.random.default_rng(2).random((3, length, length)) < 0.6
    mask[1, 2] = False  # nothing to attend to
    assert_one_call_equals_the_layer("whole_block", BLOCK, (3, length, 8), 4, "float64", 0, pairing=None, mask=mask)


def test_what_a_block_in_one_call_does_not_cover_is_computed_layer_by_layer(rng, calls):
    params, x = BLOCK.init(1, dtype=np.float64), normal(rng, (3, 5, 8), "float64")
    others = [
        replace(BLOCK, norm_position="post"),
        replace(BLOCK, norm=RMSNorm(8)),
        replace(BLOCK, feed_forward=replace(BLOCK.feed_forward, gated=True)),
        replace(BLOCK, cross_attention=Attention(width=8, heads=2)),
    ]
    for block in others:
        block.forward(block.init(1, dtype=np.float64), x, **({"memory": x} if block.cross_attention else {}))
    BLOCK.forward(params, x, mask=np.ones((5, 5), bool))
    replace(BLOCK, dropout=0.5).forward(params, x, key=np.array([1, 2], np.uint32))
    BLOCK.forward(params, x[0])
    BLOCK.forward(params, np.asfortranarray(x))
    assert not {name for name, _ in calls} & {"whole_block"}


@pytest.mark.parametrize("place", ["query", "weights", "mean", "activation"])
def test_a_record_of_other_shapes_is_left_to_the_layers(rng, calls, place):
    params, x = BLOCK.init(1, dtype=np.float64), normal(rng, (3, 5, 8), "float64")
    _, saved = BLOCK.forward(params, x)
    attention, norm = saved["attention"], saved["feed_forward_norm"]
    if place == "query":
        saved["attention"] = attention._replace(query=attention.query._replace(x=np.zeros((3, 4, 8))))
    elif place == "weights":
        saved["attention"] = attention._replace(attend=attention.attend._replace(weights=np.zeros((3, 2, 4, 5))))
    elif place == "mean":
        saved["feed_forward_norm"] = norm._replace(mean=np.zeros((3, 5, 2)))
    else:
        saved["feed_forward"]["activation"] = np.zeros((3, 5, 11))
    with pytest.raises((GlassformerError, ValueError)):
        BLOCK.backward(params, saved, x)
    assert "whole_block_backward" not in {name for name, _ in calls}


@pytest.mark.parametrize("part", ["up", "down"])
def test_a_block_whose_arrays_do_not_fit_is_refused(rng, calls, part):
    params, x = BLOCK.init(1, dtype=np.float64), normal(rng, (3, 5, 8), "float64")
    params["feed_forward"][part]["w"] = np.zeros((80, 3))
    with pytest.raises(GlassformerError, match="expected"):
        BLOCK.forward(params, x)
    assert not {name for name, _ in calls} & {"whole_block"}
