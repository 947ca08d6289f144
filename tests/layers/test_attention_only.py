"""The block of attention alone: the formula, no parameter too many, and whole models of it on every engine."""

import numpy as np
import pytest

import glassformer as gf
from glassformer.generation import generate_steps
from glassformer.layers import Attention, AttentionOnly, FeedForward, LayerNorm

SIZES = {"vocab": 11, "width": 8, "heads": 2, "layers": 2, "context": 16}
MODELS = {
    "attention only": {"block": "attention_only"},
    "attention only, no norms, free head, own head width": {
        "block": "attention_only", "norm": "none", "tied_head": False, "head_bias": True, "head_width": 5,
    },
    "attention only, post-norm": {"block": "attention_only", "norm_position": "post"},
    "parallel": {"block": "parallel"},
    "parallel, rotary": {"block": "parallel", "positions": "rotary"},
    "parallel, no norms": {"block": "parallel", "norm": "none"},
    "no norms": {"norm": "none"},
}  # fmt: skip


@pytest.fixture(params=MODELS, ids=list(MODELS))
def model(request):
    return gf.build(gf.DecoderConfig(**SIZES, **MODELS[request.param]))


def test_attention_is_added_and_nothing_else():
    layer = AttentionOnly(Attention(8, 2), FeedForward(8, 12), LayerNorm(8))
    params, x = layer.init(0, np.float64), np.random.default_rng(0).standard_normal((2, 5, 8))
    y, _ = layer.forward(params, x)
    a, _ = layer.attention.forward(params["attention"], layer.norm.forward(params["attention_norm"], x)[0])
    np.testing.assert_allclose(y, x + a, rtol=0, atol=1e-15)
    assert set(params) == {"attention", "attention_norm"}


def counting(rows=4):
    ids = (np.arange(9) + np.arange(rows)[:, None]) % SIZES["vocab"]
    return gf.Batch(ids[:, :-1], ids[:, 1:])


@pytest.mark.parametrize("engine", ["cpu", "numpy"])
def test_a_model_of_it_learns_and_writes_the_same_with_and_without_a_cache(model, engine):
    params, optimizer = model.init(0), gf.training.Adam()
    state, losses = optimizer.init(params), []
    with gf.use_engine(engine):
        for _ in range(20):
            loss, grads = model.loss_and_grads(params, counting())
            params, state = optimizer.update(params, grads, state, lr=0.02)
            losses.append(float(loss))
        assert losses[-1] < 0.7 * losses[0]
        prompts = [[1, 2, 3], [4]]
        cached, uncached = (
            [step.ids.tolist() for step in generate_steps(model, params, prompts, max_new_tokens=5, cache=cache)]
            for cache in (True, False)
        )
    assert cached == uncached


def test_engines_agree_and_none_complains_about_a_block_of_the_library(model, caplog):
    params = model.init(1)
    with gf.use_engine("numpy"):
        want = gf.tree.flatten(model.loss_and_grads(params, counting()))
    with gf.use_engine("cpu"):
        have = gf.tree.flatten(model.loss_and_grads(params, counting()))
    assert set(have) == set(want)
    assert not caplog.records
    for name, expected in want.items():
        np.testing.assert_allclose(have[name], expected, rtol=1e-3, atol=1e-5, err_msg=name)
