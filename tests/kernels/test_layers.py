"""Layers and models on both engines: results, records and gradients agree.

Some kernels stand for a whole layer: self_attention and whole_block, with their gradients.
"""

from dataclasses import replace

import numpy as np
import pytest

from glassformer.engine import use_engine
from glassformer.errors import GlassformerError, ShapeError
from glassformer.kernels import RUNS
from glassformer.layers import Attention, Block, FeedForward, LayerNorm, RMSNorm
from glassformer.ops import ACTIVATIONS, CAUSAL, Pattern, rotary_angles
from glassformer.proofs import layer_cases, model_cases
from glassformer.tree import flatten, tree_map
from kernels.cases import normal

LIMITS = {"float32": 2e-5, "float64": 1e-12}
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


@pytest.fixture
def calls(monkeypatch):
    """How often the kernels of a whole layer were used."""
    used = []
    for name in ("self_attention", "self_attention_backward", "whole_block", "whole_block_backward"):
        right = RUNS[name]

        def noted(*arguments, _name=name, _right=right):
            result = _right(*arguments)
            used.append((_name, result))
            return result

        monkeypatch.setitem(RUNS, name, noted)
    with use_engine("cpu"):  # which looks them up anew
        yield used


BOTH = [("self_attention", True), ("self_attention_backward", True)]


def make(kind, length, rng, **settings):
    layer = Attention(width=8, heads=2, **settings)
    return layer, layer.init(1, dtype=kind), normal(rng, (3, length, 8), kind)


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("length", [1, 2, 16, 17, 40, 130])
@pytest.mark.parametrize("pattern", [Pattern(), CAUSAL, Pattern(causal=True, window=5)], ids=str)
@pytest.mark.parametrize("pairing", [None, "halves", "interleaved"])
def test_self_attention_in_one_call_equals_the_layer_as_written(rng, calls, kind, length, pattern, pairing):
    layer, params, x = make(kind, length, rng, pattern=pattern, pairing=pairing or "halves")
    rotation = None
    if pairing is not None:
        rotation = tuple(table.astype(kind) for table in rotary_angles(np.arange(length), 4))
    dy = normal(rng, x.shape, kind)
    y, saved = layer.forward(params, x, rotation=rotation)
    grads = layer.backward(params, saved, dy)
    assert calls == BOTH
    with use_engine("numpy"):
        want, want_saved = layer.forward(params, x, rotation=rotation)
        want_grads = layer.backward(params, want_saved, dy)
        crossed = layer.backward(params, saved, dy)
    limit = LIMITS[kind]
    assert_same((y, saved), (want, want_saved), limit)
    assert_same(grads, want_grads, limit)
    assert_same(crossed, want_grads, limit)
    assert_same(layer.backward(params, want_saved, dy), want_grads, limit)


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

WHOLE = [("whole_block", True), ("whole_block_backward", True)]
BLOCK = Block(Attention(width=8, heads=2, pattern=CAUSAL), FeedForward(8, 12), LayerNorm(8))


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("length", [1, 16, 17, 130])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_a_block_in_one_call_equals_the_block_as_written(rng, calls, kind, length, activation, bias):
    block = replace(
        BLOCK,
        attention=replace(BLOCK.attention, bias=bias, output_bias=bias),
        feed_forward=replace(BLOCK.feed_forward, activation=activation, bias=bias),
        norm=replace(BLOCK.norm, bias=bias, eps=1e-3),
    )
    params = tree_map(lambda p: p + normal(rng, p.shape, kind) / 10, block.init(1, dtype=kind))
    x, dy = normal(rng, (2, 3, length, 8), kind)
    rotation = tuple(table.astype(kind) for table in rotary_angles(np.arange(length), 4)) if bias else None
    y, saved = block.forward(params, x, rotation=rotation)
    grads = block.backward(params, saved, dy)
    assert calls == WHOLE
    with use_engine("numpy"):
        want, want_saved = block.forward(params, x, rotation=rotation)
        want_grads = block.backward(params, want_saved, dy)
        crossed = block.backward(params, saved, dy)
    limit = LIMITS[kind]
    assert_same((y, saved), (want, want_saved), limit)
    for found in (grads, crossed, block.backward(params, want_saved, dy)):
        assert_same(found, want_grads, limit)


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


@pytest.mark.parametrize("part", ["up", "down"])
def test_a_block_whose_arrays_do_not_fit_is_refused(rng, calls, part):
    params, x = BLOCK.init(1, dtype=np.float64), normal(rng, (3, 5, 8), "float64")
    params["feed_forward"][part]["w"] = np.zeros((80, 3))
    with pytest.raises(GlassformerError, match="expected"):
        BLOCK.forward(params, x)
    assert not {name for name, _ in calls} & {"whole_block"}
