"""Normalization: each vector by its own statistics, so that no layer has to cope with the scale of the one before.

    x̂ = (x − mean x) / √(var x + eps)      y = gamma · x̂ + beta

The means run over the D features of one token (Ba et al. 2016); tokens never see each other here, so it makes no
difference what else is in the batch, or how long a sequence is.
"""

from typing import NamedTuple

from ..core.arrays import Array, check_width, namespace
from ..core.dispatch import dispatched
from ..core.errors import ShapeError
from .linear import sum_rows


class LayerNormSaved(NamedTuple):
    x: Array  # (..., D)
    mean: Array  # (..., 1)
    rstd: Array  # (..., 1): one over the standard deviation
    gamma: Array  # (D,)
    beta: Array | None  # (D,)


@dispatched(wide=("mean", "rstd"))
def layer_norm(x: Array, gamma: Array, beta: Array | None = None, *, eps: float = 1e-5) -> tuple[Array, LayerNormSaved]:
    """Give every vector (..., D) mean zero and variance one, then scale and shift each feature.

        x̂ = (x − mean x) · rstd      rstd = 1 / √(var x + eps)      y = gamma · x̂ + beta

    The variance is that of all D features, not of a sample: it is divided by D. eps stands inside the root.
    """
    check_scales(x, gamma, beta)
    mean = average(x)
    centered = x - mean
    rstd = inverse_root(average(centered * centered), eps=eps)
    y = centered * rstd * gamma
    return (y if beta is None else y + beta), LayerNormSaved(x, mean, rstd, gamma, beta)


@dispatched
def layer_norm_backward(dy: Array, saved: LayerNormSaved) -> tuple[Array, Array, Array | None]:
    """Gradient of `layer_norm`.

    dx̂ = gamma · dy
    dx = (dx̂ − mean dx̂ − x̂ · mean(dx̂ · x̂)) · rstd      dgamma = Σ dy · x̂      dbeta = Σ dy
    """
    x, mean, rstd, gamma, beta = saved
    x_hat = (x - mean) * rstd
    # y = gamma · x̂ + beta
    dbeta = None if beta is None else sum_rows(dy)
    dgamma = sum_rows(dy * x_hat)
    dx_hat = dy * gamma
    # x̂ = (x − mean) · rstd, and mean and rstd depend on x too: what they undo is the part of
    # dx̂ that would only shift the vector (along ones) or rescale it (along x̂).
    dx = (dx_hat - average(dx_hat) - x_hat * average(dx_hat * x_hat)) * rstd
    return dx, dgamma, dbeta


class RMSNormSaved(NamedTuple):
    x: Array  # (..., D)
    rrms: Array  # (..., 1): one over the root mean square
    gamma: Array  # (D,)


@dispatched(wide=("rrms",))
def rms_norm(x: Array, gamma: Array, *, eps: float = 1e-6) -> tuple[Array, RMSNormSaved]:
    """Give every vector (..., D) a root mean square of one, then scale each feature.

        y = gamma · x · rrms      rrms = 1 / √(mean x² + eps)

    A layer norm that leaves the mean alone: it only rescales, which is most of the benefit for half of the work
    (Zhang and Sennrich 2019).
    """
    check_scales(x, gamma, None)
    rrms = inverse_root(average(x * x), eps=eps)
    return x * rrms * gamma, RMSNormSaved(x, rrms, gamma)


@dispatched
def rms_norm_backward(dy: Array, saved: RMSNormSaved) -> tuple[Array, Array]:
    """Gradient of `rms_norm`.

    x̂ = x · rrms      dx̂ = gamma · dy
    dx = (dx̂ − x̂ · mean(dx̂ · x̂)) · rrms      dgamma = Σ dy · x̂
    """
    x, rrms, gamma = saved
    x_hat = x * rrms
    # y = gamma · x̂
    dgamma = sum_rows(dy * x_hat)
    dx_hat = dy * gamma
    # x̂ = x · rrms: without a mean to subtract, only the part along x̂ is undone.
    dx = (dx_hat - x_hat * average(dx_hat * x_hat)) * rrms
    return dx, dgamma


@dispatched
def average(x: Array) -> Array:
    """Return the mean over the features, (..., D) to (..., 1)."""
    return namespace(x).mean(x, axis=-1, keepdims=True)


@dispatched
def inverse_root(x: Array, *, eps: float) -> Array:
    """Return 1 / √(x + eps)."""
    return 1 / namespace(x).sqrt(x + eps)


def check_scales(x: Array, gamma: Array, beta: Array | None) -> None:
    """Refuse scales and shifts that do not fit the features of x."""
    for name, scale in (("gamma", gamma), ("beta", beta)):
        if scale is None:
            continue
        namespace(scale)
        if scale.ndim != 1:
            raise ShapeError(f"{name} has shape {tuple(scale.shape)}", hint="expected one number per feature, (D,)")
        check_width(x, scale.shape[0])
