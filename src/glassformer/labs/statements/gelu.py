"""GELU: a bend between two matrices.

Chapter: 5

Without a bend between them, two matrices in a row are one matrix. GPT-2 bends every number by itself:

    u = √(2/π) · (x + 0.044715 · x³)
    y = x/2 · (1 + tanh u)

    x, y   (B, T, F)
"""

import numpy as np

HINTS = [
    "np.tanh acts on every number by itself, and so do + and ·. No loop is needed.",
    "Compute u first. Check by hand that y is nearly 0 far to the left and nearly x far to the right.",
]
DERIVATION = {"y": "y = x/2 · (1 + tanh u), u = √(2/π) · (x + 0.044715 x³)"}


def gelu(x):
    """Return y (B, T, F)."""
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return 0.5 * x * (1 + np.tanh(u))


def example(draw):
    return draw.array("B", "T", "F", scale=2.0)


EDGES = {"numbers as large as 100": lambda draw: draw.array("B", "T", "F", scale=100.0)}
TERMS = {
    "y": {
        "the straight half: x/2": lambda x: x / 2,
        "the bent half: x/2 · tanh u": lambda x: x / 2 * np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    }
}
MISTAKES = {
    "wrong factor: with a square instead of a cube in u": lambda x: (
        0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**2)))
    ),
}
