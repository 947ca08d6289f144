"""Multi-head attention as a layer: one sequence (T, D), or a batch of them."""

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops
from glassformer.core.errors import ConfigError
from glassformer.core.tree import flatten, tree_map
from glassformer.layers import Attention
from layers.exact import assert_exact

T, S, D, H = 6, 5, 8, 2


@pytest.fixture
def x(rng):
    return rng.standard_normal((T, D))


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


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


def test_biases_and_the_memory_get_gradients_where_they_are_learned(x, rng):
    assert {n for n in flatten(Attention(D, H, bias=False).specs()) if n.endswith(".b")} == set()
    both = Attention(D, H, bias=False, output_bias=True).specs()
    assert {n for n in flatten(both) if n.endswith(".b")} == {"output.b"}
    layer = Attention(D, H, learned_bias=False)
    params = layer.init(0, np.float64)
    y, saved = layer.forward(params, x, bias=np.zeros((H, T, T)))
    assert layer.backward(params, saved, np.ones_like(y))[0].bias is None

    layer, memory = Attention(D, H), rng.standard_normal((S, D))
    assert_exact(layer, x=x, memory=memory)
    params = layer.init(0, np.float64)
    y, saved = layer.forward(params, x, memory)
    read, _ = layer.backward(params, saved, np.ones_like(y))
    assert read.memory.shape == memory.shape
    assert layer.backward(params, layer.forward(params, x)[1], np.ones_like(y))[0].memory is None


def test_heads_that_do_not_come_out_even_are_refused():
    with pytest.raises(ConfigError, match="width 10 is not divisible by 4 heads") as caught:
        Attention(10, 4)
    assert "head_width" in caught.value.hint
    with pytest.raises(ConfigError, match="4 heads cannot share 3 key/value heads") as caught:
        Attention(8, 4, kv_heads=3)
    assert "must divide" in caught.value.hint
