"""The same weights in PyTorch's own modules: the same outputs, the same attention weights, the same gradients."""

import numpy as np
import pytest

from compare import assert_close, assert_same
from glassformer.layers import Attention, Block, FeedForward, LayerNorm, Stack
from glassformer.ops import CAUSAL, causal_mask

B, T, S, D, H, HIDDEN = 3, 5, 4, 8, 2, 12
PADDING = np.arange(T) < np.array([5, 3, 4])[:, None]
MEMORY_PADDING = np.arange(S) < np.array([2, 4, 1])[:, None]


def scatter(torch, module):
    """Move every parameter away from its first value, where biases are zero and gammas one."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module.train()  # no dropout is set, and the fast path of evaluation is not taken


def linear(module, of):
    return {"w": of(module.weight).T, "b": of(module.bias)}


def norm(module, of):
    return {"gamma": of(module.weight), "beta": of(module.bias)}


def attention(module, of):
    """The parameters of nn.MultiheadAttention, whose three projections are stacked in one matrix."""
    matrices, biases = np.split(of(module.in_proj_weight), 3), np.split(of(module.in_proj_bias), 3)
    parts = {name: {"w": w.T, "b": b} for name, w, b in zip(("query", "key", "value"), matrices, biases, strict=True)}
    return {**parts, "output": linear(module.out_proj, of)}


def block(module, of):
    """The parameters of an encoder or a decoder layer."""
    crossed = hasattr(module, "multihead_attn")
    params = {
        "attention_norm": norm(module.norm1, of),
        "attention": attention(module.self_attn, of),
        "feed_forward_norm": norm(module.norm3 if crossed else module.norm2, of),
        "feed_forward": {"up": linear(module.linear1, of), "down": linear(module.linear2, of)},
    }
    if crossed:
        params["cross_attention_norm"] = norm(module.norm2, of)
        params["cross_attention"] = attention(module.multihead_attn, of)
    return params


def stack(module, of):
    return {"blocks": [block(layer, of) for layer in module.layers], "final_norm": norm(module.norm, of)}


def value(parameter):
    return parameter.detach().numpy()


def gradient(parameter):
    return parameter.grad.numpy()


def tensor(torch, x):
    return torch.tensor(x, requires_grad=True)


@pytest.mark.parametrize("padded", [False, True], ids=["all keys", "padding"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_self_attention_equals_multihead_attention(torch, rng, causal, padded):
    module = scatter(torch, torch.nn.MultiheadAttention(D, H, batch_first=True))
    layer = Attention(D, H, pattern=CAUSAL) if causal else Attention(D, H)
    x, dy = rng.standard_normal((2, B, T, D))
    given = tensor(torch, x)
    expected, weights = module(
        given,
        given,
        given,
        attn_mask=torch.tensor(~causal_mask(T)) if causal else None,
        key_padding_mask=torch.tensor(~PADDING) if padded else None,
        average_attn_weights=False,
    )
    expected.backward(torch.tensor(dy))
    params = attention(module, value)
    y, saved = layer.forward(params, x, mask=PADDING[:, None, :] if padded else None)
    read, grads = layer.backward(params, saved, dy)
    assert_close(y, value(expected), 1e-12)
    assert_close(saved.weights, value(weights), 1e-12)
    assert_close(read.x, gradient(given), 1e-11)
    assert_same(grads, attention(module, gradient), 1e-11)


@pytest.mark.parametrize("tile", [None, 3], ids=["dense", "tiled"])
def test_cross_attention_equals_multihead_attention(torch, rng, tile):
    module = scatter(torch, torch.nn.MultiheadAttention(D, H, batch_first=True))
    layer = Attention(D, H, tile=tile)
    x, memory, dy = rng.standard_normal((B, T, D)), rng.standard_normal((B, S, D)), rng.standard_normal((B, T, D))
    own = rng.random((T, S)) < 0.7
    own[:, 0] = True  # every query sees at least the key that no padding hides
    queries, keys = tensor(torch, x), tensor(torch, memory)
    settings = {"attn_mask": torch.tensor(~own), "key_padding_mask": torch.tensor(~MEMORY_PADDING)}
    expected, weights = module(queries, keys, keys, average_attn_weights=False, **settings)
    expected.backward(torch.tensor(dy))
    params = attention(module, value)
    y, saved = layer.forward(params, x, memory, mask=own & MEMORY_PADDING[:, None, :])
    read, grads = layer.backward(params, saved, dy)
    assert_close(y, value(expected), 1e-12)
    assert_close(layer.weights(saved), value(weights), 1e-12)
    assert_close(read.x, gradient(queries), 1e-11)
    assert_close(read.memory, gradient(keys), 1e-11)
    assert_same(grads, attention(module, gradient), 1e-11)


def test_an_additive_mask_is_a_bias_on_the_scores(torch, rng):
    module = scatter(torch, torch.nn.MultiheadAttention(D, H, batch_first=True))
    x, dy = rng.standard_normal((2, T, D))
    added = np.where(causal_mask(T), rng.standard_normal((H, T, T)), -np.inf)
    bias = tensor(torch, added)
    expected, weights = module(*[torch.tensor(x)] * 3, attn_mask=bias, average_attn_weights=False)
    expected.backward(torch.tensor(dy))
    layer, params = Attention(D, H), attention(module, value)
    y, saved = layer.forward(params, x, bias=added)
    read, _ = layer.backward(params, saved, dy)
    assert_close(y, value(expected), 1e-12)
    assert_close(saved.weights, value(weights), 1e-12)
    assert_close(read.bias, gradient(bias), 1e-11)


def our_block(activation, norm_first, *, causal=False, cross=False):
    return Block(
        Attention(D, H, pattern=CAUSAL) if causal else Attention(D, H),
        FeedForward(D, HIDDEN, activation),
        LayerNorm(D, 1e-5),
        Attention(D, H) if cross else None,
        "pre" if norm_first else "post",
    )


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [True, False], ids=["norm first", "norm last"])
def test_two_stacks_equal_the_whole_transformer(torch, rng, norm_first, activation):
    settings = {"dropout": 0.0, "activation": activation, "norm_first": norm_first, "batch_first": True}
    module = scatter(torch, torch.nn.Transformer(D, H, 2, 3, HIDDEN, **settings))
    encoder = Stack(our_block(activation, norm_first), 2, LayerNorm(D))
    decoder = Stack(our_block(activation, norm_first, causal=True, cross=True), 3, LayerNorm(D))
    source, x, dy = rng.standard_normal((B, S, D)), rng.standard_normal((B, T, D)), rng.standard_normal((B, T, D))
    read, written = tensor(torch, source), tensor(torch, x)
    expected = module(
        read,
        written,
        tgt_mask=torch.tensor(~causal_mask(T)),
        src_key_padding_mask=torch.tensor(~MEMORY_PADDING),
        tgt_key_padding_mask=torch.tensor(~PADDING),
        memory_key_padding_mask=torch.tensor(~MEMORY_PADDING),
    )
    expected.backward(torch.tensor(dy))
    params = {"encoder": stack(module.encoder, value), "decoder": stack(module.decoder, value)}
    seen = MEMORY_PADDING[:, None, :]
    memory, encoded = encoder.forward(params["encoder"], source, mask=seen)
    y, decoded = decoder.forward(params["decoder"], x, memory, mask=PADDING[:, None, :], memory_mask=seen)
    below, decoder_grads = decoder.backward(params["decoder"], decoded, dy)
    above, encoder_grads = encoder.backward(params["encoder"], encoded, below.memory)
    assert_close(y, value(expected), 1e-12)
    assert_close(below.x, gradient(written), 1e-11)
    assert_close(above.x, gradient(read), 1e-11)
    assert_same(decoder_grads, stack(module.decoder, gradient), 1e-11)
    assert_same(encoder_grads, stack(module.encoder, gradient), 1e-11)
