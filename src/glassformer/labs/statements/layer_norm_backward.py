"""Layer norm, backward: the mean and the variance send something back, too.

Chapter: 5, 6

The forward pass gave every vector of D features mean zero and variance one, then scaled and shifted it:

    x̂ = (x − mean) · rstd       rstd = 1 / √(var + eps)
    y = gamma · x̂ + beta

You get dy, the gradient of the loss for y, and what the forward pass computed. Return dx, dgamma and dbeta.

    dy, x_hat, dx           (B, T, D)
    rstd                    (B, T, 1)
    gamma, dgamma, dbeta    (D,)

x_j enters x̂_i in three ways: as itself, through the mean, and through rstd. All B · T vectors share gamma and beta.
"""

import numpy as np

HINTS = [
    "Begin with y = gamma · x̂ + beta: dgamma and dbeta are sums over all vectors, and dx̂ = dy · gamma.",
    "The mean: ∂mean/∂x_j = 1/D for every j. So the mean takes the same amount from every feature of a vector.",
    "rstd: ∂rstd/∂x_j = −rstd² · x̂_j / D. It multiplies dx̂_i · (x_i − mean); sum over i, with x_i − mean = x̂_i / rstd.",
    "Two averages over the D features appear: that of dx̂, and that of dx̂ · x̂.",
]
DERIVATION = {
    "dx": "dx = (dx̂ − mean(dx̂) − x̂ · mean(dx̂ · x̂)) · rstd, with dx̂ = dy · gamma and means over the features",
    "dgamma": "dgamma = Σ dy · x̂, summed over all vectors",
    "dbeta": "dbeta = Σ dy, summed over all vectors",
}


def layer_norm_backward(dy, x_hat, rstd, gamma):
    """Return dx (B, T, D), dgamma (D,) and dbeta (D,)."""
    dbeta = np.sum(dy, axis=(0, 1))
    dgamma = np.sum(dy * x_hat, axis=(0, 1))
    dx_hat = dy * gamma
    shift = np.mean(dx_hat, axis=-1, keepdims=True)
    stretch = x_hat * np.mean(dx_hat * x_hat, axis=-1, keepdims=True)
    dx = (dx_hat - shift - stretch) * rstd
    return dx, dgamma, dbeta


def example(draw):
    draw.size("D", 2, 6)
    x = draw.array("B", "T", "D")
    rstd = 1 / np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-5)
    x_hat = (x - np.mean(x, axis=-1, keepdims=True)) * rstd
    return draw.array("B", "T", "D"), x_hat, rstd, draw.array("D")


TERMS = {
    "dx": {
        "x itself: dx̂ · rstd": lambda dy, x_hat, rstd, gamma: dy * gamma * rstd,
        "the mean's share: −mean(dx̂) · rstd": lambda dy, x_hat, rstd, gamma: (
            -np.mean(dy * gamma, axis=-1, keepdims=True) * rstd + 0 * x_hat
        ),
        "the variance's share: −x̂ · mean(dx̂ · x̂) · rstd": lambda dy, x_hat, rstd, gamma: (
            -x_hat * np.mean(dy * gamma * x_hat, axis=-1, keepdims=True) * rstd
        ),
    },
    "dgamma": {"dgamma: Σ dy · x̂": lambda dy, x_hat, rstd, gamma: np.sum(dy * x_hat, axis=(0, 1))},
    "dbeta": {"dbeta: Σ dy": lambda dy, x_hat, rstd, gamma: np.sum(dy, axis=(0, 1))},
}
