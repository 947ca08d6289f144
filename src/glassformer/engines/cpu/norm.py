"""Normalization of rows: one pass for the statistics, one for the result."""

from typing import Any

import numpy as np

from ... import ops
from ...core.arrays import Array
from ...core.dispatch import replaces
from ...ops.norm import LayerNormSaved, RMSNormSaved
from .compile import compiled, inlined, is_plain, rows


@replaces(ops.layer_norm)
def layer_norm(x: Array, gamma: Array, beta: Array | None = None, *, eps: float = 1e-5) -> Any:
    if not is_plain(x, gamma) or x.ndim < 1 or gamma.shape != x.shape[-1:]:
        return NotImplemented
    shift = np.zeros(gamma.shape, gamma.dtype) if beta is None else beta
    if not is_plain(x, shift) or shift.shape != gamma.shape:
        return NotImplemented
    one = (*x.shape[:-1], 1)
    y, mean, rstd = np.empty(x.shape, x.dtype), np.empty(one, x.dtype), np.empty(one, x.dtype)
    normalize(rows(x), gamma, shift, eps, rows(y), mean.reshape(-1), rstd.reshape(-1))
    return y, LayerNormSaved(x, mean, rstd, gamma, beta)


@replaces(ops.layer_norm_backward)
def layer_norm_backward(dy: Array, saved: LayerNormSaved) -> Any:
    x, mean, rstd, gamma, beta = saved
    if not is_plain(dy, x, mean, rstd, gamma) or dy.shape != x.shape or gamma.shape != x.shape[-1:]:
        return NotImplemented
    if not mean.shape == rstd.shape == (*x.shape[:-1], 1):
        return NotImplemented
    dx = np.empty(x.shape, x.dtype)
    dgamma, dbeta = np.zeros(gamma.shape, gamma.dtype), np.zeros(gamma.shape, gamma.dtype)
    normalize_backward(rows(dy), rows(x), mean.reshape(-1), rstd.reshape(-1), gamma, rows(dx), dgamma, dbeta)
    return dx, dgamma, None if beta is None else dbeta


@replaces(ops.rms_norm)
def rms_norm(x: Array, gamma: Array, *, eps: float = 1e-6) -> Any:
    if not is_plain(x, gamma) or x.ndim < 1 or gamma.shape != x.shape[-1:]:
        return NotImplemented
    y, rrms = np.empty(x.shape, x.dtype), np.empty((*x.shape[:-1], 1), x.dtype)
    normalize(rows(x), gamma, None, eps, rows(y), None, rrms.reshape(-1))
    return y, RMSNormSaved(x, rrms, gamma)


@replaces(ops.rms_norm_backward)
def rms_norm_backward(dy: Array, saved: RMSNormSaved) -> Any:
    x, rrms, gamma = saved
    if not is_plain(dy, x, rrms, gamma) or dy.shape != x.shape or gamma.shape != x.shape[-1:]:
        return NotImplemented
    if rrms.shape != (*x.shape[:-1], 1):
        return NotImplemented
    dx, dgamma = np.empty(x.shape, x.dtype), np.zeros(gamma.shape, gamma.dtype)
    normalize_backward(rows(dy), rows(x), None, rrms.reshape(-1), gamma, rows(dx), dgamma, None)
    return dx, dgamma


@inlined
def inverse_root(x, real):
    """Return 1 / √x, which is 0 for infinity: the estimate that a processor may begin with would make it NaN."""
    return real(0) if x == real(np.inf) else real(1) / np.sqrt(x)


@compiled
def normalize(x, gamma, beta, eps, y, means, rstds):
    """Fill in y = gamma · (x − mean) · rstd + beta and the statistics of each row; RMS norm has no mean and no beta."""
    N, D = x.shape
    real = x.dtype.type
    for n in range(N):
        row, out = x[n], y[n]
        mean = real(0)
        if means is not None:
            total = real(0)
            for i in range(D):
                total += row[i]
            mean = total / real(D)
            means[n] = mean
        square = real(0)
        for i in range(D):
            centered = row[i] - mean
            square += centered * centered
        rstd = inverse_root(square / real(D) + real(eps), real)
        rstds[n] = rstd
        for i in range(D):
            out[i] = (row[i] - mean) * rstd * gamma[i] + (real(0) if beta is None else beta[i])


@compiled
def normalize_backward(dy, x, means, rstds, gamma, dx, dgamma, dbeta):
    """Fill in dx; add to dgamma and dbeta; RMS norm has no means and no dbeta."""
    N, D = x.shape
    real = x.dtype.type
    for n in range(N):
        row, dout, drow = x[n], dy[n], dx[n]
        mean = real(0) if means is None else means[n]
        rstd = rstds[n]
        total, along = real(0), real(0)
        for i in range(D):
            g = dout[i] * gamma[i]
            if means is not None:
                total += g
            along += g * (row[i] - mean) * rstd
        total /= real(D)
        along /= real(D)
        for i in range(D):
            drow[i] = (dout[i] * gamma[i] - total - (row[i] - mean) * rstd * along) * rstd
        for i in range(D):
            dgamma[i] += dout[i] * (row[i] - mean) * rstd
        if dbeta is not None:
            for i in range(D):
                dbeta[i] += dout[i]
