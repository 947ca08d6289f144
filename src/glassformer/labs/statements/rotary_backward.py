"""Rotary positions, backward: turn back.

Chapter: 4, 6

The forward pass turned pairs of channels, channel i and channel i + C/2, by angles whose cosines and sines you get:

    a′ = a · cos − b · sin
    b′ = b · cos + a · sin

You get dy, the gradient of the loss for the result. Return dx, the gradient for x.

    dy, dx     (H, T, C)
    cos, sin   (T, C/2)
"""

import numpy as np

HINTS = [
    "a stands in both results: in a′ with the factor cos, in b′ with the factor sin. What is da, then?",
    "Do the same for b, and mind its sign in a′.",
    "A rotation matrix is undone by its transpose. Compare your lines with those of the forward pass.",
]
DERIVATION = {"dx": "da = da′ cos + db′ sin, db = db′ cos − da′ sin"}


def rotary_backward(dy, cos, sin):
    """Return dx (H, T, C)."""
    half = dy.shape[-1] // 2
    da, db = dy[..., :half], dy[..., half:]
    return np.concatenate([da * cos + db * sin, db * cos - da * sin], axis=-1)


def example(draw):
    angle = draw.array("T", "C/2")
    return draw.array("H", "T", 2 * draw.size("C/2")), np.cos(angle), np.sin(angle)


def _only(part, of, at):
    """A half of the gradient, with zeros for the other half."""
    zeros = np.zeros_like(part * of)
    return np.concatenate([part * of, zeros] if at == 0 else [zeros, part * of], axis=-1)


def _half(dy, at):
    half = dy.shape[-1] // 2
    return dy[..., half:] if at else dy[..., :half]


TERMS = {
    "dx": {
        "a by way of a′: da′ · cos": lambda dy, cos, sin: _only(_half(dy, 0), cos, 0),
        "a by way of b′: db′ · sin": lambda dy, cos, sin: _only(_half(dy, 1), sin, 0),
        "b by way of b′: db′ · cos": lambda dy, cos, sin: _only(_half(dy, 1), cos, 1),
        "b by way of a′: −da′ · sin": lambda dy, cos, sin: _only(_half(dy, 0), -sin, 1),
    }
}
