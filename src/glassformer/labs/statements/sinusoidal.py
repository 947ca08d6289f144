"""Sinusoidal positions: a clock with many hands.

Chapter: 4

Attention by itself sees a set, not a sequence. The original Transformer adds to every token a vector that depends on
its position p alone. Each pair of features is a hand of a clock, and each hand turns more slowly than the one before:

    PE[p, 2i]     = sin(p / 10000^(2i/D))
    PE[p, 2i + 1] = cos(p / 10000^(2i/D))

    length   T, how many positions there are: 0, 1, …, T − 1
    width    D, an even number
    PE       (T, D), float64
"""

import numpy as np

HINTS = [
    "A column of positions, (T, 1), divided by a row of numbers, (D/2,), gives all angles (T, D/2) at once.",
    "Both features of a pair have the same angle. The exponent of pair i is 2i/D: 0, 2/D, 4/D, …",
    "PE[:, 0::2] are the even features, PE[:, 1::2] the odd ones.",
]
DERIVATION = {"PE": "PE[p, 2i] = sin(p / 10000^(2i/D)), PE[p, 2i + 1] = cos(p / 10000^(2i/D))"}


def sinusoidal(length, width):
    """Return the encoding (T, D) of the positions 0 to T − 1."""
    positions = np.arange(length)[:, None]
    angle = positions / 10000.0 ** (np.arange(0, width, 2) / width)
    encoding = np.zeros((length, width))
    encoding[:, 0::2] = np.sin(angle)
    encoding[:, 1::2] = np.cos(angle)
    return encoding


def example(draw):
    return draw.size("T", 1, 8), 2 * draw.size("D/2", 1, 5)


def _made(exponent, first=np.sin, second=np.cos):
    def made(length, width):
        angle = np.arange(length)[:, None] / 10000.0 ** exponent(np.arange(width // 2), width)
        return np.stack([first(angle), second(angle)], axis=-1).reshape(length, width)

    return made


MISTAKES = {
    "wrong factor: when the exponent of pair i is i/D instead of 2i/D": _made(lambda i, D: i / D),
    "wrong factor: when the exponent of feature j is 2j/D instead of that of its pair": lambda length, width: np.where(
        np.arange(width) % 2 == 0,
        np.sin(np.arange(length)[:, None] / 10000.0 ** (2 * np.arange(width) / width)),
        np.cos(np.arange(length)[:, None] / 10000.0 ** (2 * np.arange(width) / width)),
    ),
    "swapped: with sine and cosine exchanged": _made(lambda i, D: 2 * i / D, np.cos, np.sin),
    "wrong axis: with all sines first and all cosines behind them": lambda length, width: np.concatenate(
        [f(np.arange(length)[:, None] / 10000.0 ** (np.arange(0, width, 2) / width)) for f in (np.sin, np.cos)], axis=-1
    ),
}
