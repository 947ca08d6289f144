"""The block whose sublayers stand side by side: the formula, against PyTorch, read on with a cache, watched by name."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.errors import ConfigError, ShapeError
from glassformer.interpret import gradients, put, watch
from glassformer.layers import Attention, FeedForward, LayerNorm, Parallel
from glassformer.ops import CAUSAL

SIZES = {"vocab": 7, "width": 8, "heads": 2, "layers": 2, "context": 9}


def block(**settings):
    return Parallel(Attention(8, 2, pattern=CAUSAL), FeedForward(8, 12), LayerNorm(8), **settings)


def test_both_sublayers_read_the_stream_as_it_came_in():
    layer, x = block(), np.random.default_rng(0).standard_normal((2, 5, 8))
    params = layer.init(1, np.float64)
    y, saved = layer.forward(params, x)
    norm = layer.norm
    a, _ = layer.attention.forward(params["attention"], norm.forward(params["attention_norm"], x)[0])
    f, _ = layer.feed_forward.forward(params["feed_forward"], norm.forward(params["feed_forward_norm"], x)[0])
    np.testing.assert_allclose(y, x + a + f, rtol=0, atol=1e-15)
    assert saved["output"] is y


def test_values_and_gradients_equal_those_of_pytorch(torch):
    model = gf.build(gf.DecoderConfig(**SIZES, block="parallel", activation="relu", norm_eps=1e-3, positions="none"))
    params = model.init(0, np.float64)
    ids = np.random.default_rng(1).integers(0, 7, (3, 6))
    loss, grads = model.loss_and_grads(params, gf.Batch(ids[:, :-1], ids[:, 1:]))
    leaves = {n: torch.tensor(x, requires_grad=True) for n, x in gf.tree.flatten(params).items()}
    F = torch.nn.functional

    def linear(name, x):
        return x @ leaves[f"{name}.w"] + leaves[f"{name}.b"]

    def normed(name, x):
        return F.layer_norm(x, (8,), leaves[f"{name}.gamma"], leaves[f"{name}.beta"], 1e-3)

    x = leaves["embedding.tokens.table"][torch.tensor(ids[:, :-1])]
    for i in range(2):
        at, n = f"blocks.{i}", normed(f"blocks.{i}.attention_norm", x)
        q, k, v = (linear(f"{at}.attention.{p}", n).unflatten(-1, (2, 4)).mT.mT.transpose(1, 2)
                   for p in ("query", "key", "value"))  # fmt: skip
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        hidden = F.relu(linear(f"{at}.feed_forward.up", normed(f"{at}.feed_forward_norm", x)))
        x = x + linear(f"{at}.attention.output", mixed) + linear(f"{at}.feed_forward.down", hidden)
    logits = normed("final_norm", x) @ leaves["embedding.tokens.table"].T
    want = F.cross_entropy(logits.flatten(0, 1), torch.tensor(ids[:, 1:]).flatten())
    want.backward()
    assert abs(float(loss) - want.item()) < 1e-12
    for name, dx in gf.tree.flatten(grads).items():
        np.testing.assert_allclose(dx, leaves[name].grad.numpy(), rtol=0, atol=1e-13, err_msg=name)


def test_a_change_of_one_sublayer_is_not_seen_by_the_other_of_the_same_block():
    model = gf.build(gf.DecoderConfig(**SIZES, block="parallel", norm="none"))
    run = watch(model, model.init(0, np.float64), gf.Batch(np.array([[1, 2, 3]]), np.array([[2, 3, 4]])))
    changed = run.changed(put("blocks.0.attention", np.ones((1, 3, 8))))
    assert np.array_equal(changed["blocks.0.feed_forward"], run["blocks.0.feed_forward"])
    assert not np.array_equal(changed["blocks.1.feed_forward"], run["blocks.1.feed_forward"])
    found = gradients(run)
    np.testing.assert_allclose(found["blocks.0.attention"], found["blocks.0.feed_forward"], rtol=0, atol=1e-15)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="norm_position of a parallel block"):
        block(norm_position="post")
    crossed = block(cross_attention=Attention(8, 2))
    with pytest.raises(ShapeError, match="attends to a memory"):
        crossed.forward(crossed.init(0), np.zeros((1, 2, 8)))
