"""Attention, backward: three gradients and one softmax between them.

Chapter: 2, 6

For each head by itself, the forward pass was

    weights = softmax(q kᵀ / √C)
    y = weights v

You get dy, the gradient of the loss for y, and all that the forward pass computed. Return dq, dk and dv.

    q, dq      (H, T, C)
    k, v       (H, S, C), and so are dk and dv
    weights    (H, T, S)   each row sums to one
    dy         (H, T, C)

Undo the lines from the last to the first. If y = a b, then da = dy bᵀ and db = aᵀ dy.
"""

import numpy as np

HINTS = [
    "From y = weights v: dv and dweights, each one matrix product.",
    "From weights = softmax(scores): dscores, row by row, as in the lab softmax_backward.",
    "From scores = q kᵀ / √C: dq and dk. The factor 1/√C belongs to both.",
]
DERIVATION = {
    "dq": "dq = dscores k / √C, with dscores = weights · (dweights − Σ dweights · weights) and dweights = dy vᵀ",
    "dk": "dk = dscoresᵀ q / √C, with dscores = weights · (dweights − Σ dweights · weights) and dweights = dy vᵀ",
    "dv": "dv = weightsᵀ dy",
}


def attention_backward(dy, q, k, v, weights):
    """Return dq (H, T, C), dk (H, S, C) and dv (H, S, C)."""
    dv = np.swapaxes(weights, -1, -2) @ dy
    dweights = dy @ np.swapaxes(v, -1, -2)
    dscores = weights * (dweights - np.sum(dweights * weights, axis=-1, keepdims=True))
    dscores = dscores / np.sqrt(q.shape[-1])
    dq = dscores @ k
    dk = np.swapaxes(dscores, -1, -2) @ q
    return dq, dk, dv


def example(draw):
    q, k, v = draw.array("H", "T", "C"), draw.array("H", "S", "C"), draw.array("H", "S", "C")
    e = np.exp(q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]))
    return draw.array("H", "T", "C"), q, k, v, e / e.sum(axis=-1, keepdims=True)


def _direct(dy, q, v, weights):
    """The weights' own share of the gradient of the scores."""
    return weights * (dy @ np.swapaxes(v, -1, -2)) / np.sqrt(q.shape[-1])


def _row(dy, q, v, weights):
    """The share of the row sums."""
    own = dy @ np.swapaxes(v, -1, -2)
    return -weights * np.sum(own * weights, axis=-1, keepdims=True) / np.sqrt(q.shape[-1])


TERMS = {
    "dq": {
        "the weights themselves: (weights · dweights) k / √C": lambda dy, q, k, v, w: _direct(dy, q, v, w) @ k,
        "the row sum of softmax: −(weights · Σ dweights · weights) k / √C": lambda dy, q, k, v, w: (
            _row(dy, q, v, w) @ k
        ),
    },
    "dk": {
        "the weights themselves: (weights · dweights)ᵀ q / √C": lambda dy, q, k, v, w: (
            np.swapaxes(_direct(dy, q, v, w), -1, -2) @ q
        ),
        "the row sum of softmax: −(weights · Σ dweights · weights)ᵀ q / √C": lambda dy, q, k, v, w: (
            np.swapaxes(_row(dy, q, v, w), -1, -2) @ q
        ),
    },
    "dv": {"dv: weightsᵀ dy": lambda dy, q, k, v, w: np.swapaxes(w, -1, -2) @ dy},
}
