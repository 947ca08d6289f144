"""Softmax, backward: every score pays for every weight.

Chapter: 2, 6

The forward pass computed, along the last axis,

    y_i = exp(x_i) / Σ_k exp(x_k)

You get dy, the gradient of the loss for y. Return dx, the gradient for x. Since y tells all that matters about x, you
get y instead of x.

    dy, y, dx   (B, T, S)

A score x_j stands in y_i at two places: in the numerator if i = j, and in the sum below for every i.
"""

import numpy as np

HINTS = [
    "Write y_i = e_i / total with e_i = exp(x_i), and differentiate by x_j: once for i = j, once for i ≠ j.",
    "∂y_i/∂x_j = y_i − y_i·y_j if i = j, and −y_i·y_j if not. The chain rule sums dy_i times that over i.",
    "In Σ_i dy_i · y_i · y_j the factor y_j does not depend on i. What is left is one number for each row.",
]
DERIVATION = {"dx": "dx = y · (dy − Σ dy · y), with Σ along the last axis"}


def softmax_backward(dy, y):
    """Return dx (B, T, S) for dy (B, T, S), where softmax returned y (B, T, S)."""
    return y * (dy - np.sum(dy * y, axis=-1, keepdims=True))


def example(draw):
    e = np.exp(draw.array("B", "T", "S"))
    return draw.array("B", "T", "S"), e / e.sum(axis=-1, keepdims=True)


TERMS = {
    "dx": {
        "a score's own weight: y · dy": lambda dy, y: y * dy,
        "the row sum: −y · Σ dy · y": lambda dy, y: -y * np.sum(dy * y, axis=-1, keepdims=True),
    }
}
