"""Multi-head attention, backward: a product of matrices on either side of the heads.

Chapter: 3, 6

The forward pass was

    q, k, v = split(x wq), split(x wk), split(x wv)         (B, H, T, C) each
    mixed = merge(softmax(q kᵀ / √C, −inf where masked) v)   (B, T, D)
    y = mixed wo

You get dy, the gradient of the loss for y, and the arguments of the forward pass. `heads_forward` computes again what
you need of it. Return dx, dwq, dwk, dwv and dwo.

    dy, x, dx        (B, T, D)
    wq, wk, wv, wo   (D, D), and so are their gradients
    heads, mask      as in the forward pass

x stands in three products. What is split on the way there is merged on the way back.
"""

import numpy as np

HINTS = [
    "If y = a w for every token, then da = dy wᵀ, and dw = Σ aᵀ dy, summed over all B · T tokens.",
    "A sum over tokens is a product: give a and dy the shape (B · T, D), and multiply one's transpose by the other.",
    "The middle is the lab attention_backward, with one axis more.",
    "dx has three parts, one for each of q, k and v.",
]
DERIVATION = {
    "dx": "dx = dq wqᵀ + dk wkᵀ + dv wvᵀ, with dq, dk, dv merged to (B, T, D)",
    "dwq": "dwq = xᵀ dq, summed over all tokens",
    "dwk": "dwk = xᵀ dk, summed over all tokens",
    "dwv": "dwv = xᵀ dv, summed over all tokens",
    "dwo": "dwo = mixedᵀ dy, summed over all tokens",
}
GIVEN = ("split", "merge", "heads_forward")


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


def multi_head_backward(dy, x, wq, wk, wv, wo, heads, mask):
    """Return dx (B, T, D), dwq, dwk, dwv and dwo (D, D)."""
    q, k, v, weights = heads_forward(x, wq, wk, wv, heads, mask)
    D = x.shape[-1]
    rows = x.reshape(-1, D)
    mixed = merge(weights @ v)
    dwo = mixed.reshape(-1, D).T @ dy.reshape(-1, D)
    dmixed = split(dy @ wo.T, heads)
    dv = merge(np.swapaxes(weights, -1, -2) @ dmixed)
    dweights = dmixed @ np.swapaxes(v, -1, -2)
    dscores = weights * (dweights - np.sum(dweights * weights, axis=-1, keepdims=True))
    dscores = dscores / np.sqrt(q.shape[-1])
    dq = merge(dscores @ k)
    dk = merge(np.swapaxes(dscores, -1, -2) @ q)
    dx = dq @ wq.T + dk @ wk.T + dv @ wv.T
    return dx, rows.T @ dq.reshape(-1, D), rows.T @ dk.reshape(-1, D), rows.T @ dv.reshape(-1, D), dwo


def example(draw):
    heads = draw.size("H", 1, 3)
    D = heads * draw.size("C", 1, 3)
    mask = draw.booleans("T", "T") | np.eye(draw.size("T"), dtype=bool)
    return draw.array("B", "T", D), draw.array("B", "T", D), *(draw.array(D, D) for _ in range(4)), heads, mask


def _parts(dy, x, wq, wk, wv, wo, heads, mask):
    q, k, v, weights = heads_forward(x, wq, wk, wv, heads, mask)
    dmixed = split(dy @ wo.T, heads)
    dweights = dmixed @ np.swapaxes(v, -1, -2)
    dscores = weights * (dweights - np.sum(dweights * weights, axis=-1, keepdims=True)) / np.sqrt(q.shape[-1])
    return (
        merge(dscores @ k) @ wq.T,
        merge(np.swapaxes(dscores, -1, -2) @ q) @ wk.T,
        merge(np.swapaxes(weights, -1, -2) @ dmixed) @ wv.T,
    )


TERMS = {
    "dx": {
        "by way of q: dq wqᵀ": lambda *args: _parts(*args)[0],
        "by way of k: dk wkᵀ": lambda *args: _parts(*args)[1],
        "by way of v: dv wvᵀ": lambda *args: _parts(*args)[2],
    }
}
