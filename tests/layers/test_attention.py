"""Multi-head attention as a layer: one sequence (T, D), or a batch of them."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops
from glassformer.errors import ConfigError, DTypeError, ShapeError
from glassformer.layers import Attention, RotaryPositions
from glassformer.tree import flatten, tree_map
from layers.exact import assert_exact

T, S, D, H = 6, 5, 8, 2


@pytest.fixture
def x(rng):
    return rng.standard_normal((T, D))


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


# --- what it computes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [None, 1.0], ids=["scaled by 1/√C", "own scale"])
def test_it_is_what_the_blackboard_says(x, scale):
    layer = Attention(D, H, scale=scale)
    params = layer.init(0, np.float64)
    y, saved = layer.forward(params, x)
    q, k, v = (x @ params[name]["w"] + params[name]["b"] for name in ("query", "key", "value"))
    heads = []
    for h in range(H):
        own = slice(h * D // H, (h + 1) * D // H)
        weights = softmax(q[:, own] @ k[:, own].T * (1 / np.sqrt(D / H) if scale is None else scale))
        assert_close(saved.weights[h], weights)
        heads.append(weights @ v[:, own])
    assert_close(y, np.concatenate(heads, axis=-1) @ params["output"]["w"] + params["output"]["b"])


def test_keys_and_values_come_from_the_memory_where_there_is_one(x, rng):
    layer, memory = Attention(D, H), rng.standard_normal((S, D))
    params = layer.init(0, np.float64)
    y, saved = layer.forward(params, x, memory)
    assert saved.weights.shape == (H, T, S)
    again, _ = layer.forward(params, x, memory[::-1])
    assert_close(again, y)  # a set of keys has no order
    assert_close(layer.forward(params, x, x)[0], layer.forward(params, x)[0])


def test_grouped_queries_read_the_keys_of_their_group(x):
    grouped, full = Attention(D, 4, kv_heads=2), Attention(D, 4)
    params = grouped.init(0, np.float64)

    def repeated(part):
        """Write each shared head out once per query head."""
        return tree_map(lambda p: np.repeat(p.reshape(*p.shape[:-1], 2, 2), 2, axis=-2).reshape(*p.shape[:-1], 8), part)

    wide = {**params, "key": repeated(params["key"]), "value": repeated(params["value"])}
    assert_close(grouped.forward(params, x)[0], full.forward(wide, x)[0])


@pytest.mark.parametrize("pattern", [ops.CAUSAL, ops.Pattern(causal=True, window=2), ops.Pattern(stride=2)], ids=str)
def test_a_pattern_is_a_mask(x, pattern):
    free, bound = Attention(D, H), Attention(D, H, pattern=pattern)
    params = free.init(0, np.float64)
    assert_close(bound.forward(params, x)[0], free.forward(params, x, mask=pattern.dense(T, T))[0])


def test_tiles_compute_the_same_and_their_weights_are_made_when_asked_for(x):
    dense, tiled = Attention(D, H, pattern=ops.CAUSAL), Attention(D, H, pattern=ops.CAUSAL, tile=4)
    params = dense.init(0, np.float64)
    (y, record), (same, kept) = dense.forward(params, x), tiled.forward(params, x)
    assert_close(same, y)
    assert_close(tiled.weights(kept), dense.weights(record))


def test_a_query_that_may_see_nothing_gathers_nothing(x):
    layer = Attention(D, H)
    params = layer.init(0, np.float64)
    mask = np.ones((T, T), bool)
    mask[2] = False
    y, saved = layer.forward(params, x, mask=mask)
    assert not saved.weights[:, 2].any()
    assert_close(y[2], params["output"]["b"])
    read, _ = layer.backward(params, saved, np.ones_like(y))
    assert np.isfinite(read.x).all()


def test_dropout_needs_a_key_and_the_same_key_drops_the_same(x):
    layer, key = Attention(D, H, dropout=0.5), ops.new_key(3)
    params = layer.init(0, np.float64)
    kept, _ = layer.forward(params, x)
    first, again, other = (layer.forward(params, x, key=k)[0] for k in (key, key, ops.fold_key(key, 1)))
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, kept)
    assert not np.allclose(first, other)


# --- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "shapes"),
    [
        ({}, {"query": (D, D), "key": (D, D), "value": (D, D), "output": (D, D)}),
        ({"kv_heads": 1}, {"query": (D, D), "key": (D, 4), "value": (D, 4), "output": (D, D)}),
        ({"head_width": 3}, {"query": (D, 6), "key": (D, 6), "value": (D, 6), "output": (6, D)}),
    ],
)
def test_its_parameters_are_four_maps(settings, shapes):
    specs = Attention(D, H, **settings).specs()
    assert {name: part["w"].shape for name, part in specs.items()} == shapes
    assert {name: part["b"].shape for name, part in specs.items()} == {n: s[1:] for n, s in shapes.items()}


def test_the_output_may_have_a_bias_of_its_own():
    assert {n for n in flatten(Attention(D, H, bias=False).specs()) if n.endswith(".b")} == set()
    both = Attention(D, H, bias=False, output_bias=True).specs()
    assert {n for n in flatten(both) if n.endswith(".b")} == {"output.b"}


# --- gradients -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tile", [None, 4], ids=["dense", "tiled"])
@pytest.mark.parametrize("kv_heads", [2, 1])
def test_its_gradients_are_exact(x, rng, kv_heads, tile):
    layer = Attention(D, H, kv_heads, pattern=ops.CAUSAL, dropout=0.3, tile=tile)
    rotation = RotaryPositions(4).rotation(np.arange(T))
    assert_exact(
        layer, x=x, bias=rng.standard_normal((H, T, T)), settings={"rotation": rotation, "key": ops.new_key(1)}
    )


def test_the_memory_gets_gradients_through_keys_and_values(x, rng):
    layer, memory = Attention(D, H), rng.standard_normal((S, D))
    assert_exact(layer, x=x, memory=memory)
    params = layer.init(0, np.float64)
    y, saved = layer.forward(params, x, memory)
    read, _ = layer.backward(params, saved, np.ones_like(y))
    assert read.memory.shape == memory.shape
    assert layer.backward(params, layer.forward(params, x)[1], np.ones_like(y))[0].memory is None


def test_a_bias_that_is_not_learned_gets_no_gradient(x):
    layer = Attention(D, H, learned_bias=False)
    params = layer.init(0, np.float64)
    y, saved = layer.forward(params, x, bias=np.zeros((H, T, T)))
    assert layer.backward(params, saved, np.ones_like(y))[0].bias is None


# --- heads, and what is refused --------------------------------------------------------------------------------------


def test_heads_that_do_not_come_out_even_are_refused():
    with pytest.raises(ConfigError, match="width 10 is not divisible by 4 heads") as caught:
        Attention(10, 4)
    assert "head_width" in caught.value.hint
    with pytest.raises(ConfigError, match="4 heads cannot share 3 key/value heads") as caught:
        Attention(8, 4, kv_heads=3)
    assert "must divide" in caught.value.hint


def test_inputs_that_do_not_fit_are_refused(rng):
    attention = Attention(D, H)
    params = attention.init(0, np.float64)
    x = rng.standard_normal((2, T, D))
    with pytest.raises(ShapeError, match=r"shape \(2, 6, 7\), expected \(..., 8\)"):
        attention.forward(params, x[..., :7])
    with pytest.raises(ShapeError, match="the mask has shape"):
        attention.forward(params, x, mask=np.ones((3, 1, T), bool))
    with pytest.raises(DTypeError, match="must be boolean"):
        attention.forward(params, x, mask=np.ones((T, T)))
    with pytest.raises(ShapeError, match="the bias has shape"):
        attention.forward(params, x, bias=np.zeros((3, T, T)))
    with pytest.raises(DTypeError, match="expected an array, got list"):
        attention.forward(params, x.tolist())
    with pytest.raises(ShapeError):
        attention.forward(params, x, rng.standard_normal((3, T, D)))
