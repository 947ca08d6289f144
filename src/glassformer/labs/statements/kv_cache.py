"""A key-value cache: read each token once.

Chapter: 8

While a model writes, every new token attends to all tokens before it. Their keys and values never change, so they are
kept. One step of one head, for the newest token only:

    q = x wq      k = x wk      v = x wv               of the new token
    append k and v to the cache, behind those of the tokens before
    y = softmax(q · keys / √C) values                  over all tokens so far, the new one included

    x              (B, D)      the vector of the new token
    keys, values   (B, S, C)   the cache: S tokens so far, possibly none; do not write into it
    wq, wk, wv     (D, C)
    result         y (B, C), and the new keys and values (B, S + 1, C)
"""

import numpy as np

HINTS = [
    "np.concatenate joins arrays along an axis that both have: give the new key the shape (B, 1, C) first.",
    "The new token sees itself: append first, then attend.",
    "No mask is needed. Nothing in the cache comes after the new token.",
]
DERIVATION = {
    "y": "y = softmax(q · keys / √C) values, over the S + 1 tokens so far",
    "keys": "keys with x wk behind them",
    "values": "values with x wv behind them",
}


def kv_cache(x, keys, values, wq, wk, wv):
    """Return y (B, C), and the keys and values (B, S + 1, C)."""
    q = x @ wq
    keys = np.concatenate([keys, (x @ wk)[:, None]], axis=1)
    values = np.concatenate([values, (x @ wv)[:, None]], axis=1)
    scores = np.einsum("bc,bsc->bs", q, keys) / np.sqrt(q.shape[-1])
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return np.einsum("bs,bsc->bc", weights, values), keys, values


def example(draw):
    S = draw.size("S", 0, 4)
    cache = draw.array("B", S, "C"), draw.array("B", S, "C")
    return draw.array("B", "D"), *cache, *(draw.array("D", "C") for _ in range(3))


def _step(x, keys, values, wq, wk, wv, *, scale=True, itself=True, front=False):
    q, k, v = x @ wq, (x @ wk)[:, None], (x @ wv)[:, None]
    new = [np.concatenate(pair[::-1] if front else pair, axis=1) for pair in ((keys, k), (values, v))]
    seen = new if itself else (keys, values)
    scores = np.einsum("bc,bsc->bs", q, seen[0]) / (np.sqrt(q.shape[-1]) if scale else 1)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True, initial=-1e9))
    return np.einsum("bs,bsc->bc", e / np.maximum(np.sum(e, axis=-1, keepdims=True), 1e-300), seen[1]), *new


MISTAKES = {
    "wrong factor: without the 1/√C": lambda *args: _step(*args, scale=False),
    "off by one: when the new token does not see itself": lambda *args: _step(*args, itself=False),
    "swapped: when the new token is put in front of the others": lambda *args: _step(*args, front=True),
}
