"""Rotary positions: turn queries and keys by their place.

Chapter: 4

Take the C channels of a head as C/2 pairs (a, b): channel i and channel i + C/2. At position t, turn pair i by the
angle t · ω_i:

    ω_i = 10000^(−2i/C)
    a′ = a · cos − b · sin
    b′ = b · cos + a · sin

    x        (H, T, C)   queries or keys; C is even
    result   (H, T, C)

If queries and keys are both turned, their dot product depends on their distance alone.
"""

import numpy as np

HINTS = [
    "The angles (T, C/2) are an outer product of the positions 0, …, T − 1 and the C/2 speeds ω.",
    "a is the first half of the channels, b the second half: x[..., :half] and x[..., half:].",
    "Join the two turned halves with np.concatenate along the last axis.",
]
DERIVATION = {"y": "a′ = a cos − b sin, b′ = b cos + a sin, with the angle t · 10000^(−2i/C) for pair i at position t"}


def rotary(x):
    """Return x (H, T, C) with every pair of channels turned by the angle of its position."""
    half = x.shape[-1] // 2
    speed = 10000.0 ** (-np.arange(half) / half)
    angle = np.arange(x.shape[-2])[:, None] * speed
    cos, sin = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def example(draw):
    return draw.array("H", "T", 2 * draw.size("C/2", 1, 4))


def _turned(x, speed, sign=1, first=0):
    half = x.shape[-1] // 2
    angle = (first + np.arange(x.shape[-2]))[:, None] * speed(half)
    cos, sin = np.cos(angle), sign * np.sin(angle)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def _neighbors(x):
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[-2])[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angle), np.sin(angle)
    a, b = x[..., 0::2], x[..., 1::2]
    return np.stack([a * cos - b * sin, b * cos + a * sin], axis=-1).reshape(x.shape)


def _part(x, use_sin):
    """What all cosines, or all sines, contribute."""
    half = x.shape[-1] // 2
    angle = np.arange(x.shape[-2])[:, None] * 10000.0 ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    parts = [-b * np.sin(angle), a * np.sin(angle)] if use_sin else [a * np.cos(angle), b * np.cos(angle)]
    return np.concatenate(parts, axis=-1)


TERMS = {
    "y": {
        "the cosines: a cos, b cos": lambda x: _part(x, False),
        "the sines: −b sin, a sin": lambda x: _part(x, True),
    }
}
MISTAKES = {
    "wrong sign: when everything is turned the other way": lambda x: _turned(
        x, lambda half: 10000.0 ** (-np.arange(half) / half), -1
    ),
    "wrong sign: with a plus in the exponent of the speeds": lambda x: _turned(
        x, lambda half: 10000.0 ** (np.arange(half) / half)
    ),
    "wrong factor: with −i/C instead of −2i/C in the exponent": lambda x: _turned(
        x, lambda half: 10000.0 ** (-np.arange(half) / (2 * half))
    ),
    "off by one: when positions are counted from 1": lambda x: _turned(
        x, lambda half: 10000.0 ** (-np.arange(half) / half), first=1
    ),
    "wrong axis: when neighboring channels (2i, 2i + 1) are paired": _neighbors,
}
