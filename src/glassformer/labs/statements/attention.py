"""Attention: a soft lookup.

Chapter: 2

Compare every query with every key, turn the comparisons into weights, and average the values by these weights:

    scores = q kᵀ / √C        (T, S)
    weights = softmax(scores)   along the last axis
    y = weights v             (T, C)

    q      (H, T, C)   queries, for each of H heads
    k, v   (H, S, C)   keys and values
    mask   (T, S)      True where a query may look at a key, the same for all heads; at least one in each row
    y      (H, T, C)

A masked key must have a weight of exactly zero.
"""

import numpy as np

HINTS = [
    "q @ k.T works for one head. For all heads at once, exchange the last two axes of k: np.swapaxes(k, -1, -2).",
    "exp(−inf) is exactly 0: let masked scores be −inf before the softmax, with np.where.",
    "A sum of C products of numbers with variance one has variance C. The √C brings the scores back to variance one.",
]
DERIVATION = {"y": "y = softmax(q kᵀ / √C, −inf where masked) v"}


def attention(q, k, v, mask):
    """Return y (H, T, C): for each query the average of the values, weighted by how well their keys match."""
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    scores = np.where(mask, scores, -np.inf)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = e / np.sum(e, axis=-1, keepdims=True)
    return weights @ v


def example(draw):
    mask = draw.booleans("T", "S")
    mask[np.arange(draw.size("T")), draw.ids("S", "T")] = True
    return draw.array("H", "T", "C"), draw.array("H", "S", "C"), draw.array("H", "S", "C"), mask


EDGES = {
    "rows of very unequal scores": lambda draw: (
        draw.array("H", 2, "C") + np.array([[1000.0], [-1000.0]]),
        np.abs(draw.array("H", "S", "C")) + 1,
        draw.array("H", "S", "C"),
        np.ones(draw.shape(2, "S"), bool),
    ),
    "large scores": lambda draw: (
        draw.array("H", "T", "C", scale=60.0),
        draw.array("H", "S", "C", scale=60.0),
        draw.array("H", "S", "C"),
        np.ones(draw.shape("T", "S"), bool),
    ),
}
