"""Layers by themselves, as in a lecture: one sequence (T, D), no model, no batch."""

import dataclasses

import numpy as np
import pytest

from compare import assert_close
from glassformer import ops
from glassformer.errors import ConfigError, DTypeError, GlassformerError, ShapeError
from glassformer.layers import (
    AlibiPositions,
    Attention,
    Block,
    Embedding,
    FeedForward,
    InputEmbedding,
    LayerNorm,
    Linear,
    RelativePositions,
    RMSNorm,
    RotaryPositions,
    Stack,
    TokenHead,
    merge_heads,
    split_heads,
)
from glassformer.tree import count, flatten, tree_map

T, D, H = 6, 8, 2


@pytest.fixture
def x(rng):
    return rng.standard_normal((T, D))


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def test_attention_is_what_the_blackboard_says(x):
    layer = Attention(D, H)
    params = layer.init(0, np.float64)
    y, saved = layer.forward(params, x)
    q, k, v = (x @ params[name]["w"] + params[name]["b"] for name in ("query", "key", "value"))
    heads = []
    for h in range(H):
        own = slice(h * D // H, (h + 1) * D // H)
        weights = softmax(q[:, own] @ k[:, own].T / np.sqrt(D / H))
        assert_close(saved.weights[h], weights)
        heads.append(weights @ v[:, own])
    assert_close(y, np.concatenate(heads, axis=-1) @ params["output"]["w"] + params["output"]["b"])


def test_grouped_queries_read_the_keys_of_their_group(x):
    grouped, full = Attention(D, 4, kv_heads=2), Attention(D, 4)
    params = grouped.init(0, np.float64)

    def repeated(part):
        """Write each shared head out once per query head."""
        return tree_map(lambda p: np.repeat(p.reshape(*p.shape[:-1], 2, 2), 2, axis=-2).reshape(*p.shape[:-1], 8), part)

    wide = {**params, "key": repeated(params["key"]), "value": repeated(params["value"])}
    assert_close(grouped.forward(params, x)[0], full.forward(wide, x)[0])


def test_the_feed_forward_layer_is_what_the_blackboard_says(x):
    layer = FeedForward(D, 16, "relu")
    params = layer.init(0, np.float64)
    hidden = np.maximum(x @ params["up"]["w"] + params["up"]["b"], 0)
    assert_close(layer.forward(params, x)[0], hidden @ params["down"]["w"] + params["down"]["b"])
    gated = FeedForward(D, 16, "silu", gated=True, bias=False)
    params = gated.init(0, np.float64)
    gate = x @ params["gate"]["w"]
    hidden = gate / (1 + np.exp(-gate)) * (x @ params["up"]["w"])
    assert_close(gated.forward(params, x)[0], hidden @ params["down"]["w"])


@pytest.mark.parametrize("place", ["pre", "post"])
def test_the_block_is_what_the_blackboard_says(x, place):
    attention, feed_forward, norm = Attention(D, H, pattern=ops.CAUSAL), FeedForward(D, 16), LayerNorm(D)
    block = Block(attention, feed_forward, norm, norm_position=place)
    params = block.init(0, np.float64)
    y, saved = block.forward(params, x)
    for name, layer in (("attention", attention), ("feed_forward", feed_forward)):
        own = params[f"{name}_norm"]
        if place == "pre":
            x = x + layer.forward(params[name], norm.forward(own, x)[0])[0]
        else:
            x, _ = norm.forward(own, x + layer.forward(params[name], x)[0])
    assert_close(y, x)
    assert saved["output"] is y
    assert saved["attention"].weights.shape == (H, T, T)


def test_backward_answers_for_the_input_and_every_parameter(x, rng):
    block = Block(Attention(D, H), FeedForward(D, 16), RMSNorm(D))
    params = block.init(0, np.float64)
    y, saved = block.forward(params, x)
    read, grads = block.backward(params, saved, np.ones_like(y))
    assert read.x.shape == x.shape
    assert read.memory is None
    assert read.bias is None
    assert {n: g.shape for n, g in flatten(grads).items()} == {n: p.shape for n, p in flatten(params).items()}
    # A small step against the gradient lowers Σ y.
    lower = tree_map(lambda p, g: p - 1e-4 * g, params, {name: grads[name] for name in params})
    assert block.forward(lower, x)[0].sum() < y.sum()


def test_a_stack_is_its_blocks_in_turn(x):
    block, norm = Block(Attention(D, H), FeedForward(D, 16), LayerNorm(D)), LayerNorm(D)
    stack = Stack(block, 3, norm)
    params = stack.init(0, np.float64)
    y, saved = stack.forward(params, x)
    assert len(saved["blocks"]) == 3
    for own in params["blocks"]:
        x, _ = block.forward(own, x)
    assert_close(y, norm.forward(params["final_norm"], x)[0])


def test_heads_split_and_merge(rng):
    x = rng.standard_normal((2, 3, 8))
    heads = split_heads(x, 4)
    assert heads.shape == (2, 4, 3, 2)
    np.testing.assert_array_equal(heads[:, 1], x[..., 2:4])
    np.testing.assert_array_equal(merge_heads(heads), x)


def test_positions_that_enter_through_attention():
    cos, sin = RotaryPositions(4).rotation(np.arange(3))
    assert cos.shape == sin.shape == (3, 2)
    assert RotaryPositions(4).rotation(np.zeros((2, 3), int))[0].shape == (2, 1, 3, 2)
    bias = AlibiPositions(2).bias(np.arange(3), np.arange(3))
    np.testing.assert_array_equal(bias[0], -(2.0**-4) * np.abs(np.arange(3)[:, None] - np.arange(3)))
    relative = RelativePositions(2, 8, 6)
    learned, _ = relative.forward(relative.init(), np.arange(5), np.arange(5))
    assert learned.shape == (2, 5, 5)
    np.testing.assert_array_equal(learned[:, 0, 1], learned[:, 3, 4])


def test_scores_with_rotary_positions_depend_on_distance_alone(rng):
    q, k = rng.standard_normal((2, 1, 4))
    for pairing in ("halves", "interleaved"):
        products = []
        for place in (0, 7):
            turned_q, _ = ops.rotary(q, *RotaryPositions(4).rotation(np.array([place + 3])), pairing=pairing)
            turned_k, _ = ops.rotary(k, *RotaryPositions(4).rotation(np.array([place])), pairing=pairing)
            products.append(turned_q @ turned_k.T)
        assert_close(products[0], products[1])


LAYERS = [
    Linear(3, 4),
    LayerNorm(4),
    RMSNorm(4),
    Embedding(5, 4),
    InputEmbedding(Embedding(5, 4), 6, segments=2, norm=LayerNorm(4)),
    FeedForward(4, 8, gated=True),
    Attention(8, 4, kv_heads=2),
    Block(Attention(8, 4), FeedForward(8, 8), LayerNorm(8)),
    TokenHead(4, 5, tied=False, bias=True, transform=LayerNorm(4)),
    RelativePositions(2),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_a_layer_is_frozen_comparable_and_draws_the_same_from_the_same_seed(layer):
    name = dataclasses.fields(layer)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(layer, name, 1)
    assert dataclasses.replace(layer) == layer
    assert hash(dataclasses.replace(layer)) == hash(layer)
    first, again, other = (flatten(layer.init(seed, np.float64)) for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert count(first) == sum(int(np.prod(spec.shape)) for spec in flatten(layer.specs()).values())
    drawn = [name for name, spec in flatten(layer.specs()).items() if spec.std > 0]
    assert all(not np.array_equal(first[name], other[name]) for name in drawn)
    assert {x.dtype for x in flatten(layer.init()).values()} == {np.dtype(np.float32)}


def test_first_weights_keep_the_spread_of_their_input(rng):
    x = rng.standard_normal((100, 256))
    for layer in (Linear(256, 256), FeedForward(256, 512)):
        y, _ = layer.forward(layer.init(0, np.float64), x)
        assert 0.3 < y.std() < 1.5
    params = Linear(256, 8, std=0.02).init(0, np.float64)
    assert abs(params["w"].std() - 0.02) < 0.002
    assert not params["b"].any()
    assert (LayerNorm(4).init()["gamma"] == 1).all()


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: Attention(10, 4), ConfigError, "width 10 is not divisible by 4 heads"),
        (lambda: Attention(8, 4, kv_heads=3), ConfigError, "4 heads cannot share 3 key/value heads"),
        (lambda: FeedForward(4, 8, "gelo"), ConfigError, "did you mean 'gelu'"),
        (lambda: Block(Attention(4, 2), FeedForward(4, 8), LayerNorm(4), norm_position="mid"), ConfigError, "'mid'"),
        (lambda: RotaryPositions(3).rotation(np.arange(2)), ConfigError, "a head has 3"),
    ],
)
def test_settings_that_cannot_be_are_refused(make, kind, words):
    with pytest.raises(kind, match=words) as caught:
        make()
    assert isinstance(caught.value, GlassformerError)
    assert caught.value.hint


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
    crossed = Block(attention, FeedForward(D, 8), LayerNorm(D), Attention(D, H))
    with pytest.raises(ShapeError, match="attends to a memory, but none was given"):
        crossed.forward(crossed.init(0, np.float64), x)


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
