"""Multi-head attention: several lookups side by side.

Chapter: 3

Each head has C = D / H channels of its own, and looks things up by itself:

    q = x wq      k = x wk      v = x wv                (B, T, D) each
    split D into H heads of C channels: head 0 gets the first C of them
    attention in every head by itself: y = softmax(q kᵀ / √C, −inf where masked) v
    put the heads side by side again, and mix them: (B, T, D) times wo

    x                (B, T, D)
    wq, wk, wv, wo   (D, D)
    heads            H, which divides D
    mask             (T, T)   True where a query may look at a key; at least one in each row
    result           (B, T, D)
"""

import numpy as np

HINTS = [
    "Split: reshape (B, T, D) to (B, T, H, C), then bring the heads before the tokens: (B, H, T, C).",
    "Reshaping (B, T, D) straight to (B, H, T, C) mixes tokens and channels. The order of the axes must change, too.",
    "Merge in the reverse order: bring the heads back behind the tokens, then reshape to (B, T, D).",
]
DERIVATION = {"y": "y = merge(softmax(q kᵀ / √C) v) wo, with q, k, v = split(x wq), split(x wk), split(x wv)"}


def multi_head(x, wq, wk, wv, wo, heads, mask):
    """Return what H heads of attention make of x (B, T, D): (B, T, D)."""
    B, T, D = x.shape
    q, k, v = (np.swapaxes((x @ w).reshape(B, T, heads, D // heads), 1, 2) for w in (wq, wk, wv))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(D // heads)
    scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    mixed = weights @ v
    return np.swapaxes(mixed, 1, 2).reshape(B, T, D) @ wo


def example(draw):
    heads = draw.size("H", 1, 3)
    D = heads * draw.size("C", 1, 3)
    mask = draw.booleans("T", "T") | np.eye(draw.size("T"), dtype=bool)
    return draw.array("B", "T", D), *(draw.array(D, D) for _ in range(4)), heads, mask


def _without(*, scale=True, masked=True, merged=True, divided=True):
    def made(x, wq, wk, wv, wo, heads, mask):
        B, T, D = x.shape
        q, k, v = (np.swapaxes((x @ w).reshape(B, T, heads, D // heads), 1, 2) for w in (wq, wk, wv))
        scores = q @ np.swapaxes(k, -1, -2) / np.sqrt((D // heads if divided else D) if scale else 1)
        scores = np.where(mask | (not masked), scores, -np.inf)
        e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
        mixed = e / np.sum(e, axis=-1, keepdims=True) @ v
        return (np.swapaxes(mixed, 1, 2) if merged else mixed).reshape(B, T, D) @ wo

    return made


def _mixed_up(x, wq, wk, wv, wo, heads, mask):
    B, T, D = x.shape
    q, k, v = ((x @ w).reshape(B, heads, T, D // heads) for w in (wq, wk, wv))
    scores = np.where(mask, q @ np.swapaxes(k, -1, -2) / np.sqrt(D // heads), -np.inf)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return (e / np.sum(e, axis=-1, keepdims=True) @ v).reshape(B, T, D) @ wo


MISTAKES = {
    "wrong factor: when the scores are divided by √D instead of √C": _without(divided=False),
    "wrong axis: when the heads are merged without bringing them behind the tokens": _without(merged=False),
    "wrong axis: when (B, T, D) is reshaped straight to (B, H, T, C), which mixes tokens and channels": _mixed_up,
}
