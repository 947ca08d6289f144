"""Scaled dot-product attention."""

import numpy as np
import pytest

from compare import assert_close, assert_equals_torch, torch_gradients
from glassformer.ops import (
    attention,
    attention_backward,
    attention_scores,
    causal_mask,
    dropout,
    new_key,
    padding_mask,
)

PAIR = (attention, attention_backward)


def heads(rng, lead, queries, keys, shared=None, channels=4):
    fewer = lead if shared is None else (*lead[:-1], shared)
    q = rng.standard_normal((*lead, queries, channels))
    return q, *rng.standard_normal((2, *fewer, keys, channels))


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3), (0, 3)])
@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (1, 1), (1, 6), (5, 3)])
def test_attention_equals_pytorch(torch, rng, lead, queries, keys):
    f = torch.nn.functional.scaled_dot_product_attention
    assert_equals_torch(PAIR, f, heads(rng, lead, queries, keys))


def test_causal_attention_equals_pytorch(torch, rng):
    f = torch.nn.functional.scaled_dot_product_attention
    arrays = heads(rng, (2, 3), 5, 5)
    assert_equals_torch(PAIR, lambda q, k, v: f(q, k, v, is_causal=True), arrays, mask=causal_mask(5))


@pytest.mark.parametrize("shape", [(5, 6), (2, 1, 1, 6), (2, 3, 5, 6), (6,), (3, 1, 6)])
def test_masked_attention_equals_pytorch(torch, rng, shape):
    f = torch.nn.functional.scaled_dot_product_attention
    mask = rng.random(shape) < 0.6
    mask[..., 0] = True
    arrays = heads(rng, (2, 3), 5, 6)
    full = torch.tensor(np.broadcast_to(mask, (2, 3, 5, 6)).copy())
    assert_equals_torch(PAIR, lambda q, k, v: f(q, k, v, attn_mask=full), arrays, mask=mask)


@pytest.mark.parametrize("shared", [1, 2, 3, 6])
@pytest.mark.parametrize("lead", [(6,), (2, 6)])
def test_shared_key_heads_equal_pytorch(torch, rng, lead, shared):
    f = torch.nn.functional.scaled_dot_product_attention
    arrays = heads(rng, lead, 4, 5, shared)
    mask = rng.random((4, 5)) < 0.7
    mask[:, 0] = True

    def by_torch(q, k, v):
        batched = (x.reshape(-1, *x.shape[-3:]) for x in (q, k, v))
        return f(*batched, attn_mask=torch.tensor(mask), enable_gqa=True).reshape(q.shape)

    assert_equals_torch(PAIR, by_torch, arrays, mask=mask)


@pytest.mark.parametrize("shape", [(2, 3, 5, 6), (3, 5, 6), (3, 1, 1), (1, 6), (6,), (5, 1)])
def test_bias_and_its_gradient_equal_pytorch(torch, rng, shape):
    f = torch.nn.functional.scaled_dot_product_attention
    arrays = *heads(rng, (2, 3), 5, 6), rng.standard_normal(shape)

    def by_torch(q, k, v, bias):
        return f(q, k, v, attn_mask=bias.expand(2, 3, 5, 6))

    assert_equals_torch(PAIR, by_torch, arrays)


def test_a_scale_replaces_one_over_the_root_of_the_channels_which_keeps_the_variance(torch, rng):
    f = torch.nn.functional.scaled_dot_product_attention
    arrays = heads(rng, (2,), 3, 3)
    settings = {"scale": 0.3}
    assert_equals_torch(PAIR, lambda q, k, v: f(q, k, v, scale=0.3), arrays, backward=settings, **settings)
    q, k, _ = arrays
    assert_close(attention_scores(q, k), q @ k.swapaxes(-1, -2) / 2)

    q, k = rng.standard_normal((2, 400, 64))
    assert abs(attention_scores(q, k).var() - 1) < 0.05
    assert abs(attention_scores(q, k, scale=1.0).var() - 64) < 4


def test_dropout_falls_on_the_weights(torch, rng):
    q, k, v = heads(rng, (2, 3), 4, 5)
    key, rate = new_key(5), 0.4
    _, keep = dropout(np.ones((2, 3, 4, 5)), key, rate=rate)
    factor = torch.tensor(keep / (1 - rate))

    def by_torch(q, k, v):
        return (torch.softmax(q @ k.transpose(-1, -2) / 2, -1) * factor) @ v

    assert_equals_torch(PAIR, by_torch, (q, k, v), backward={"rate": rate}, key=key, rate=rate)
    _, saved = attention(q, k, v, key=key, rate=rate)
    assert_close(saved.weights.sum(-1), np.ones((2, 3, 4)))  # the record keeps them whole


def test_a_query_that_sees_nothing_gets_zeros_and_gives_no_gradient(rng):
    q, k, v = heads(rng, (2,), 3, 3)
    mask = np.array([[True, True, True], [False] * 3, [True, False, True]])
    y, saved = attention(q, k, v, mask=mask)
    dq, _, _, _ = attention_backward(rng.standard_normal(y.shape), saved)
    assert not y[:, 1].any()
    assert not dq[:, 1].any()
    others = attention(q[:, ::2], k, v, mask=mask[::2])[0]
    assert_close(y[:, ::2], others)


def test_padding_the_keys_changes_nothing(rng):
    q, k, v = heads(rng, (2, 3), 4, 5)
    mask = padding_mask(np.array([5, 3]), 5)[:, None, None, :]
    y, saved = attention(q, k, v, mask=mask)
    dy = rng.standard_normal(y.shape)
    _, dk, dv, _ = attention_backward(dy, saved)
    alone, alone_saved = attention(q[1], k[1, :, :3], v[1, :, :3])
    assert_close(y[1], alone)
    _, alone_dk, alone_dv, _ = attention_backward(dy[1], alone_saved)
    assert_close(dk[1, :, :3], alone_dk)
    assert_close(dv[1, :, :3], alone_dv)
    assert not dk[1, :, 3:].any()
    assert not dv[1, :, 3:].any()


def test_causal_attention_does_not_look_ahead_and_values_may_have_other_channels(rng, torch):
    q, k, v = heads(rng, (2,), 5, 5)
    before = attention(q, k, v, mask=causal_mask(5))[0]
    k[:, 3:] += 1
    v[:, 3:] += 1
    after = attention(q, k, v, mask=causal_mask(5))[0]
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert np.abs(before[:, 3:] - after[:, 3:]).max() > 0.1

    q, k, _ = heads(rng, (2,), 3, 4)
    v = rng.standard_normal((2, 4, 7))
    y, saved = attention(q, k, v)
    dy = rng.standard_normal(y.shape)
    expected, grads = torch_gradients(torch.nn.functional.scaled_dot_product_attention, (q, k, v), dy)
    assert_close(y, expected)
    for grad, other in zip(attention_backward(dy, saved)[:3], grads, strict=True):
        assert_close(grad, other, 1e-11)
