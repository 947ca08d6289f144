"""A pre-norm block, backward: the list of the forward pass, reversed.

Chapter: 5, 6

The forward pass was

    a = x + multi_head(layer_norm(x, gamma1, beta1), wq, wk, wv, wo)
    y = a + feed_forward(layer_norm(a, gamma2, beta2), w1, b1, w2, b2)

    feed_forward(x) = relu(x w1 + b1) w2 + b2

You get dy, the gradient of the loss for y, and the arguments of the forward pass. Return dx, and a dict with the
gradient of every parameter under its name.

    dy, x, dx       (B, T, D)
    params, grads   gamma1, beta1, gamma2, beta2 (D,); wq, wk, wv, wo (D, D); w1 (D, F); b1 (F,); w2 (F, D); b2 (D,)
    heads           H, which divides D; the block is causal

`normalize` and `multi_head` compute the forward pass again. Write `feed_forward_backward` and `block_backward`;
`layer_norm_backward` and `multi_head_backward` are those of the labs before. Each is checked with ours in the place of
the others.
"""

import numpy as np

from .layer_norm_backward import layer_norm_backward
from .multi_head_backward import multi_head_backward

HINTS = [
    "feed_forward_backward: undo hidden w2 + b2, then relu (nothing comes back where hidden is 0), then x w1 + b1.",
    "y = a + …: the gradient of a is dy itself, plus what comes back through the norm and the feed-forward layer.",
    "Do the same once more for x, with the gradient of a in the place of dy.",
]
FILL_IN = ("layer_norm_backward", "multi_head_backward", "feed_forward_backward", "block_backward")
GIVEN = ("split", "merge", "heads_forward", "normalize", "multi_head")
DERIVATION = {
    "feed_forward_backward": {
        "dx": "dx = dhidden w1ᵀ, with dhidden = (dy w2ᵀ) where hidden > 0",
        "dw1": "dw1 = xᵀ dhidden, summed over all tokens",
        "db1": "db1 = Σ dhidden over all tokens",
        "dw2": "dw2 = hiddenᵀ dy, summed over all tokens",
        "db2": "db2 = Σ dy over all tokens",
    },
    "block_backward": {
        "dx": "da = dy + layer_norm_backward(feed_forward_backward(dy)), dx = da + layer_norm_backward(…(da))",
        "grads": "each parameter's gradient, as the backward of its layer returns it",
    },
}


def split(x, heads):
    """Return (B, T, D) as (B, H, T, C)."""
    B, T, D = x.shape
    return np.swapaxes(x.reshape(B, T, heads, D // heads), 1, 2)


def merge(x):
    """Return (B, H, T, C) as (B, T, D)."""
    B, H, T, C = x.shape
    return np.swapaxes(x, 1, 2).reshape(B, T, H * C)


def heads_forward(x, wq, wk, wv, heads, mask):
    """Return q, k, v (B, H, T, C) and the weights (B, H, T, T) of the forward pass."""
    q, k, v = (split(x @ w, heads) for w in (wq, wk, wv))
    scores = np.where(mask, q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]), -np.inf)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return q, k, v, e / np.sum(e, axis=-1, keepdims=True)


def normalize(x):
    """Return x_hat (B, T, D) and rstd (B, T, 1) of a layer norm."""
    rstd = 1 / np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-5)
    return (x - np.mean(x, axis=-1, keepdims=True)) * rstd, rstd


def multi_head(x, wq, wk, wv, wo, heads, mask):
    """Return what H heads of attention make of x (B, T, D): (B, T, D)."""
    _, _, v, weights = heads_forward(x, wq, wk, wv, heads, mask)
    return merge(weights @ v) @ wo


def feed_forward_backward(dy, x, w1, b1, w2, b2):
    """Return dx (B, T, D), dw1 (D, F), db1 (F,), dw2 (F, D) and db2 (D,)."""
    hidden = np.maximum(x @ w1 + b1, 0)
    dw2 = np.einsum("btf,btd->fd", hidden, dy)
    db2 = np.sum(dy, axis=(0, 1))
    dhidden = np.where(hidden > 0, dy @ w2.T, 0)
    dw1 = np.einsum("btd,btf->df", x, dhidden)
    db1 = np.sum(dhidden, axis=(0, 1))
    return dhidden @ w1.T, dw1, db1, dw2, db2


def block_backward(dy, x, params, heads):
    """Return dx (B, T, D) and a dict with the gradients of all parameters."""
    p, grads = params, {}
    mask = np.tril(np.ones((x.shape[1], x.shape[1]), dtype=bool))
    x_hat1, rstd1 = normalize(x)
    normed = p["gamma1"] * x_hat1 + p["beta1"]
    a = x + multi_head(normed, p["wq"], p["wk"], p["wv"], p["wo"], heads, mask)
    x_hat2, rstd2 = normalize(a)
    again = p["gamma2"] * x_hat2 + p["beta2"]
    # y = a + feed_forward(again)
    dagain, *rest = feed_forward_backward(dy, again, p["w1"], p["b1"], p["w2"], p["b2"])
    grads["w1"], grads["b1"], grads["w2"], grads["b2"] = rest
    through, grads["gamma2"], grads["beta2"] = layer_norm_backward(dagain, x_hat2, rstd2, p["gamma2"])
    da = dy + through
    # a = x + multi_head(normed)
    dnormed, *rest = multi_head_backward(da, normed, p["wq"], p["wk"], p["wv"], p["wo"], heads, mask)
    grads["wq"], grads["wk"], grads["wv"], grads["wo"] = rest
    through, grads["gamma1"], grads["beta1"] = layer_norm_backward(dnormed, x_hat1, rstd1, p["gamma1"])
    return da + through, grads


def params_of(draw, D):
    vectors = {name: draw.array(D) for name in ("gamma1", "beta1", "gamma2", "beta2", "b2")}
    matrices = {name: draw.array(D, D) for name in ("wq", "wk", "wv", "wo")}
    return vectors | matrices | {"w1": draw.array(D, "F"), "b1": draw.array("F"), "w2": draw.array("F", D)}


def example(draw):
    heads = draw.size("H", 1, 2)
    D = heads * draw.size("C", 2, 3)
    return draw.array("B", "T", D), draw.array("B", "T", D), params_of(draw, D), heads


EXAMPLES = {
    "feed_forward_backward": lambda draw: (
        draw.array("B", "T", "D"),
        draw.array("B", "T", "D"),
        draw.array("D", "F"),
        draw.array("F"),
        draw.array("F", "D"),
        draw.array("D"),
    )
}
