"""A pre-norm block: what a decoder repeats.

Chapter: 5

A block reads from the residual stream x and adds to it, twice. Each time a norm stands first:

    a = x + multi_head(layer_norm(x, gamma1, beta1), wq, wk, wv, wo)
    y = a + feed_forward(layer_norm(a, gamma2, beta2), w1, b1, w2, b2)

    feed_forward(x) = relu(x w1 + b1) w2 + b2

    x        (B, T, D)
    params   a dict: gamma1, beta1, gamma2, beta2 (D,); wq, wk, wv, wo (D, D); w1 (D, F); b1 (F,); w2 (F, D); b2 (D,)
    heads    H, which divides D
    y        (B, T, D)

The block is causal: a token sees itself and those before it. Write all four functions; `layer_norm` and `multi_head`
are those of the labs before. They are checked one by one, each with ours in the place of the others.
"""

import numpy as np

from .layer_norm import layer_norm
from .multi_head import multi_head

HINTS = [
    "The stream itself is never normalized: what the norm returns goes into the sublayer only.",
    "The second half reads a, the stream after attention, not x.",
    "A causal mask (T, T): np.tril(np.ones((T, T), dtype=bool)).",
]
FILL_IN = ("layer_norm", "multi_head", "feed_forward", "block")
DERIVATION = {
    "feed_forward": {"y": "y = relu(x w1 + b1) w2 + b2"},
    "block": {"y": "a = x + multi_head(layer_norm(x)), y = a + feed_forward(layer_norm(a))"},
}


def feed_forward(x, w1, b1, w2, b2):
    """Return relu(x w1 + b1) w2 + b2 for every token: (B, T, D)."""
    hidden = np.maximum(x @ w1 + b1, 0)
    return hidden @ w2 + b2


def block(x, params, heads):
    """Return what the block makes of the stream x (B, T, D): (B, T, D)."""
    p = params
    mask = np.tril(np.ones((x.shape[1], x.shape[1]), dtype=bool))
    normed = layer_norm(x, p["gamma1"], p["beta1"])
    a = x + multi_head(normed, p["wq"], p["wk"], p["wv"], p["wo"], heads, mask)
    again = layer_norm(a, p["gamma2"], p["beta2"])
    return a + feed_forward(again, p["w1"], p["b1"], p["w2"], p["b2"])


def params_of(draw, D):
    vectors = {name: draw.array(D) for name in ("gamma1", "beta1", "gamma2", "beta2", "b2")}
    matrices = {name: draw.array(D, D) for name in ("wq", "wk", "wv", "wo")}
    return vectors | matrices | {"w1": draw.array(D, "F"), "b1": draw.array("F"), "w2": draw.array("F", D)}


def example(draw):
    heads = draw.size("H", 1, 2)
    D = heads * draw.size("C", 2, 3)
    return draw.array("B", "T", D), params_of(draw, D), heads


EXAMPLES = {
    "feed_forward": lambda draw: (
        draw.array("B", "T", "D"),
        draw.array("D", "F"),
        draw.array("F"),
        draw.array("F", "D"),
        draw.array("D"),
    )
}


def _variant(*, residual=(True, True), normed=(True, True), causal=True, post=False, second="a"):
    def made(x, params, heads):
        p = params
        length = x.shape[1]
        mask = np.tril(np.ones((length, length), dtype=bool)) | (not causal)
        h = layer_norm(x, p["gamma1"], p["beta1"]) if normed[0] and not post else x
        out = multi_head(h, p["wq"], p["wk"], p["wv"], p["wo"], heads, mask)
        a = (x if residual[0] else 0) + out
        a = layer_norm(a, p["gamma1"], p["beta1"]) if post else a
        source = a if second == "a" else x
        h = layer_norm(source, p["gamma2"], p["beta2"]) if normed[1] and not post else source
        y = (a if residual[1] else 0) + feed_forward(h, p["w1"], p["b1"], p["w2"], p["b2"])
        return layer_norm(y, p["gamma2"], p["beta2"]) if post else y

    return made


MISTAKES = {
    "missing term: without the residual connection around attention": _variant(residual=(False, True)),
    "missing term: without the residual connection around the feed-forward layer": _variant(residual=(True, False)),
    "missing function: without the norm before attention": _variant(normed=(False, True)),
    "missing function: without the norm before the feed-forward layer": _variant(normed=(True, False)),
    "mask: when a token sees those after it": _variant(causal=False),
    "wrong variable: when the feed-forward layer reads x instead of a": _variant(second="x"),
    "wrong variable: when the norms stand after the sums (post-norm)": _variant(post=True),
}
