"""Softmax: weights from scores.

Chapter: 2

Turn scores of any sign into weights that are positive and sum to one along the last axis:

    y_i = exp(x_i) / Σ_k exp(x_k)

    x   (B, T, S)   the scores
    y   (B, T, S)   the weights

Scores may be as large as 1000, and exp(1000) is more than a float holds. Adding a constant to all scores of a row
changes no weight, and you are free to choose the constant.
"""

import numpy as np

HINTS = [
    "exp of what is at most 0 never overflows. Which constant, subtracted from a row, leaves only such numbers?",
    "A sum along the last axis loses that axis. keepdims=True keeps it with size 1, so that you can divide by it.",
]
DERIVATION = {"y": "y = exp(x − max x) / Σ exp(x − max x), with max and Σ along the last axis"}


def softmax(x):
    """Return the weights (B, T, S) for scores x (B, T, S)."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def example(draw):
    return draw.array("B", "T", "S")


UNEQUAL = np.array([[[1000.0], [-1000.0]], [[-1000.0], [1000.0]]])
EDGES = {
    "scores near 1000": lambda draw: 1000 + draw.array("B", "T", "S"),
    "rows of very unequal size": lambda draw: UNEQUAL + draw.array(2, 2, "S"),
}
