"""GELU, backward: a product rule and a chain rule.

Chapter: 5, 6

The forward pass was

    u = √(2/π) · (x + 0.044715 · x³)
    y = x/2 · (1 + tanh u)

You get dy, the gradient of the loss for y, and x. Return dx.

    dy, x, dx   (B, T, F)

x stands in the product twice: as itself, and inside u.
"""

import numpy as np

HINTS = [
    "The product rule gives two terms. The first keeps 1 + tanh u as it is.",
    "The derivative of tanh u by u is 1 − tanh² u. It must be multiplied by that of u by x.",
    "The derivative of x³ is 3x²: do not lose the 3.",
]
DERIVATION = {"dx": "dx = dy · (½ (1 + tanh u) + x/2 · (1 − tanh² u) · u′), u′ = √(2/π) · (1 + 3 · 0.044715 x²)"}


def gelu_backward(dy, x):
    """Return dx (B, T, F)."""
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    inner = np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    return dy * (0.5 * (1 + t) + 0.5 * x * (1 - t**2) * inner)


def example(draw):
    return draw.array("B", "T", "F"), draw.array("B", "T", "F")


def _t(x):
    return np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))


TERMS = {
    "dx": {
        "x as itself: dy · ½ (1 + tanh u)": lambda dy, x: dy * 0.5 * (1 + _t(x)),
        "x inside u, straight: dy · x/2 · (1 − tanh² u) · √(2/π)": lambda dy, x: (
            dy * 0.5 * x * (1 - _t(x) ** 2) * np.sqrt(2 / np.pi)
        ),
        "x inside u, the cube: dy · x/2 · (1 − tanh² u) · √(2/π) · 3 · 0.044715 x²": lambda dy, x: (
            dy * 0.5 * x * (1 - _t(x) ** 2) * np.sqrt(2 / np.pi) * 3 * 0.044715 * x**2
        ),
    }
}
