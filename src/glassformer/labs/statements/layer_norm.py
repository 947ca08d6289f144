"""Layer norm: each vector by its own mean and spread.

Chapter: 5

Give every vector of D features mean zero and variance one, then scale and shift each feature:

    mean = (1/D) Σ x        var = (1/D) Σ (x − mean)²
    y = gamma · (x − mean) / √(var + 1e-5) + beta

    x             (B, T, D)
    gamma, beta   (D,)
    y             (B, T, D)

The means run over the D features of one token. Tokens never see each other here.
"""

import numpy as np

HINTS = [
    "Means along the last axis, with keepdims=True, can be subtracted from x as they are.",
    "The 1e-5 stands inside the root. The variance divides by D, not by D − 1.",
]
DERIVATION = {"y": "y = gamma · (x − mean) / √(var + 1e-5) + beta, with mean and var over the features"}


def layer_norm(x, gamma, beta):
    """Return y (B, T, D)."""
    centered = x - np.mean(x, axis=-1, keepdims=True)
    var = np.mean(centered * centered, axis=-1, keepdims=True)
    return gamma * centered / np.sqrt(var + 1e-5) + beta


def example(draw):
    draw.size("D", 2, 6)
    return draw.array("B", "T", "D"), draw.array("D"), draw.array("D")


def _made(x, gamma, beta, *, axis=-1, inside=1e-5, outside=0.0, ddof=0, center=True):
    mean = np.mean(x, axis=axis, keepdims=True) if center else 0.0
    spread = np.sqrt(np.var(x, axis=axis, keepdims=True, ddof=ddof) + inside) + outside
    return gamma * (x - mean) / spread + beta


TERMS = {
    "y": {
        "x by itself: gamma · x / √(var + eps)": lambda x, gamma, beta: _made(x, gamma, 0 * beta, center=False),
        "the mean: −gamma · mean / √(var + eps)": lambda x, gamma, beta: (
            _made(x, gamma, 0 * beta) - _made(x, gamma, 0 * beta, center=False)
        ),
        "the shift: beta": lambda x, gamma, beta: beta + 0 * x,
    }
}
MISTAKES = {
    "wrong factor: when the variance divides by D − 1": lambda *args: _made(*args, ddof=1),
    "missing term: without the 1e-5 under the root": lambda *args: _made(*args, inside=0.0),
    "wrong factor: when the 1e-5 is added to the root instead of under it": lambda *args: _made(
        *args, inside=0.0, outside=1e-5
    ),
    "wrong axis: when mean and variance run over the tokens": lambda *args: _made(*args, axis=-2),
    "wrong axis: when mean and variance run over all tokens and features": lambda *args: _made(*args, axis=(-2, -1)),
    "wrong axis: when mean and variance run over the whole batch": lambda *args: _made(*args, axis=None),
}
