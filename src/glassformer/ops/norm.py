"""Normalization of each vector by its own statistics."""

from __future__ import annotations

from typing import NamedTuple

from ..arrays import Array, cast, check_width, namespace, widen
from ..engine import accelerated
from ..errors import ShapeError
from .linear import flat
from .norm_fused import can_fuse, norm_fused, norm_fused_backward


class LayerNormSaved(NamedTuple):
    x: Array  # (..., D)
    mean: Array  # (..., 1)
    rstd: Array  # (..., 1): one over the standard deviation
    gamma: Array
    beta: Array | None


@accelerated
def layer_norm(x: Array, gamma: Array, beta: Array | None = None, *, eps: float = 1e-5) -> tuple[Array, LayerNormSaved]:
    """Give every vector mean zero and variance one, then scale and shift each feature.

    x̂ = (x − mean x) / √(var x + eps)      y = gamma · x̂ + beta
    """
    _check_scales(x, gamma, beta)
    if can_fuse(x):
        return _layer_norm_fused(x, gamma, beta, eps)
    xp = namespace(x)
    wide = widen(x)
    mean = xp.mean(wide, axis=-1, keepdims=True)
    centered = wide - mean
    rstd = 1 / xp.sqrt(xp.mean(centered * centered, axis=-1, keepdims=True) + eps)
    y = centered * rstd * gamma
    y = cast(y if beta is None else y + beta, x.dtype)
    return y, LayerNormSaved(x, mean, rstd, gamma, beta)


@accelerated
def layer_norm_backward(dy: Array, saved: LayerNormSaved) -> tuple[Array, Array, Array | None]:
    """Gradient of `layer_norm`.

        g = gamma · dy
        dx = (g − mean g − x̂ · mean(g · x̂)) / √(var x + eps)      dgamma = Σ dy · x̂      dbeta = Σ dy

    The two means are the parts of g that would only shift or rescale the vector, which normalization undoes.
    """
    if can_fuse(saved.x):
        return _layer_norm_fused_backward(dy, saved)
    xp = namespace(saved.x)
    dy = widen(dy)
    x_hat = (widen(saved.x) - saved.mean) * saved.rstd
    g = dy * saved.gamma
    along = xp.mean(g * x_hat, axis=-1, keepdims=True)
    dx = (g - xp.mean(g, axis=-1, keepdims=True) - x_hat * along) * saved.rstd
    dgamma = cast(flat(dy * x_hat).sum(axis=0), saved.gamma.dtype)
    dbeta = None if saved.beta is None else cast(flat(dy).sum(axis=0), saved.beta.dtype)
    return cast(dx, saved.x.dtype), dgamma, dbeta


class RMSNormSaved(NamedTuple):
    x: Array  # (..., D)
    rrms: Array  # (..., 1): one over the root mean square
    gamma: Array


@accelerated
def rms_norm(x: Array, gamma: Array, *, eps: float = 1e-6) -> tuple[Array, RMSNormSaved]:
    """Give every vector a root mean square of one, then scale each feature.

    y = gamma · x / √(mean x² + eps)
    """
    _check_scales(x, gamma, None)
    if can_fuse(x):
        y, _, rrms = norm_fused(x, gamma, None, eps=eps, centered=False)
        return y, RMSNormSaved(x, rrms, gamma)
    xp = namespace(x)
    wide = widen(x)
    rrms = 1 / xp.sqrt(xp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return cast(wide * rrms * gamma, x.dtype), RMSNormSaved(x, rrms, gamma)


@accelerated
def rms_norm_backward(dy: Array, saved: RMSNormSaved) -> tuple[Array, Array]:
    """Gradient of `rms_norm`.

    g = gamma · dy      x̂ = x / √(mean x² + eps)
    dx = (g − x̂ · mean(g · x̂)) / √(mean x² + eps)      dgamma = Σ dy · x̂
    """
    if can_fuse(saved.x):
        dx, dgamma, _ = norm_fused_backward(dy, saved.x, None, saved.rrms, saved.gamma)
        return dx, cast(dgamma, saved.gamma.dtype)
    xp = namespace(saved.x)
    dy = widen(dy)
    x_hat = widen(saved.x) * saved.rrms
    g = dy * saved.gamma
    dx = (g - x_hat * xp.mean(g * x_hat, axis=-1, keepdims=True)) * saved.rrms
    return cast(dx, saved.x.dtype), cast(flat(dy * x_hat).sum(axis=0), saved.gamma.dtype)


def _layer_norm_fused(x: Array, gamma: Array, beta: Array | None, eps: float) -> tuple[Array, LayerNormSaved]:
    y, mean, rstd = norm_fused(x, gamma, beta, eps=eps, centered=True)
    return y, LayerNormSaved(x, mean, rstd, gamma, beta)


def _layer_norm_fused_backward(dy: Array, saved: LayerNormSaved) -> tuple[Array, Array, Array | None]:
    dx, dgamma, dbeta = norm_fused_backward(dy, saved.x, saved.mean, saved.rstd, saved.gamma)
    return dx, cast(dgamma, saved.gamma.dtype), None if saved.beta is None else cast(dbeta, saved.beta.dtype)


def _check_scales(x: Array, gamma: Array, beta: Array | None) -> None:
    """Refuse scales and shifts that do not fit the features of x."""
    for name, scale in (("gamma", gamma), ("beta", beta)):
        if scale is None:
            continue
        namespace(scale)
        if scale.ndim != 1:
            raise ShapeError(f"{name} has shape {tuple(scale.shape)}", hint="expected one number per feature, (D,)")
        check_width(x, scale.shape[0])
