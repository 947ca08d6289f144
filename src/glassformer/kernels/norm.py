"""Normalization of rows: one pass for the statistics, one for the result."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ..arrays import Array
from ..ops.norm import LayerNormSaved, RMSNormSaved
from .compile import compiled
from .layout import is_plain, rows
from .memory import empty_like


def layer_norm(x: Array, gamma: Array, beta: Array | None = None, *, eps: float = 1e-5) -> Any:
    """Stand for `ops.layer_norm`."""
    shift = _zeros(gamma.shape, gamma.dtype) if beta is None else beta
    if x.ndim < 1 or gamma.shape != x.shape[-1:] or shift.shape != gamma.shape or not is_plain(x, gamma, shift):
        return NotImplemented
    one = (*x.shape[:-1], 1)
    y, mean, rstd = empty_like(x), np.empty(one, x.dtype), np.empty(one, x.dtype)
    _layer_norm(rows(x), gamma, shift, eps, rows(y), mean.reshape(-1), rstd.reshape(-1))
    return y, LayerNormSaved(x, mean, rstd, gamma, beta)


def layer_norm_backward(dy: Array, saved: LayerNormSaved) -> Any:
    """Stand for `ops.layer_norm_backward`."""
    x, mean, rstd, gamma, beta = saved
    if dy.shape != x.shape or gamma.shape != x.shape[-1:] or not is_plain(dy, x, mean, rstd, gamma):
        return NotImplemented
    if not mean.size == rstd.size == len(rows(x)):
        return NotImplemented
    dx, dgamma, dbeta = empty_like(x), np.zeros(gamma.shape, gamma.dtype), np.zeros(gamma.shape, gamma.dtype)
    _layer_norm_backward(rows(dy), rows(x), mean.reshape(-1), rstd.reshape(-1), gamma, rows(dx), dgamma, dbeta)
    return dx, dgamma, None if beta is None else dbeta


def rms_norm(x: Array, gamma: Array, *, eps: float = 1e-6) -> Any:
    """Stand for `ops.rms_norm`."""
    if x.ndim < 1 or gamma.shape != x.shape[-1:] or not is_plain(x, gamma):
        return NotImplemented
    y, rrms = empty_like(x), np.empty((*x.shape[:-1], 1), x.dtype)
    _rms_norm(rows(x), gamma, eps, rows(y), rrms.reshape(-1))
    return y, RMSNormSaved(x, rrms, gamma)


def rms_norm_backward(dy: Array, saved: RMSNormSaved) -> Any:
    """Stand for `ops.rms_norm_backward`."""
    x, rrms, gamma = saved
    if dy.shape != x.shape or gamma.shape != x.shape[-1:] or not is_plain(dy, x, rrms, gamma):
        return NotImplemented
    if rrms.size != len(rows(x)):
        return NotImplemented
    dx, dgamma = empty_like(x), np.zeros(gamma.shape, gamma.dtype)
    _rms_norm_backward(rows(dy), rows(x), rrms.reshape(-1), gamma, rows(dx), dgamma)
    return dx, dgamma


@lru_cache
def _zeros(shape: tuple[int, ...], dtype: Any) -> Array:
    return np.zeros(shape, dtype)


@compiled
def _layer_norm(x, gamma, beta, eps, y, means, rstds):
    N, D = x.shape
    kind = x.dtype.type
    for n in range(N):
        row, out = x[n], y[n]
        total = kind(0)
        for i in range(D):
            total += row[i]
        mean = total / kind(D)
        square = kind(0)
        for i in range(D):
            centered = row[i] - mean
            square += centered * centered
        rstd = kind(1) / np.sqrt(square / kind(D) + kind(eps))
        means[n] = mean
        rstds[n] = rstd
        for i in range(D):
            out[i] = (row[i] - mean) * rstd * gamma[i] + beta[i]


@compiled
def _layer_norm_backward(dy, x, means, rstds, gamma, dx, dgamma, dbeta):
    N, D = x.shape
    kind = x.dtype.type
    for n in range(N):
        row, slope, out = x[n], dy[n], dx[n]
        mean, rstd = means[n], rstds[n]
        total, along = kind(0), kind(0)
        for i in range(D):
            g = slope[i] * gamma[i]
            total += g
            along += g * (row[i] - mean) * rstd
        total /= kind(D)
        along /= kind(D)
        for i in range(D):
            out[i] = (slope[i] * gamma[i] - total - (row[i] - mean) * rstd * along) * rstd
        for i in range(D):
            dgamma[i] += slope[i] * (row[i] - mean) * rstd
        for i in range(D):
            dbeta[i] += slope[i]


@compiled
def _rms_norm(x, gamma, eps, y, rrmss):
    N, D = x.shape
    kind = x.dtype.type
    for n in range(N):
        row, out = x[n], y[n]
        square = kind(0)
        for i in range(D):
            square += row[i] * row[i]
        rrms = kind(1) / np.sqrt(square / kind(D) + kind(eps))
        rrmss[n] = rrms
        for i in range(D):
            out[i] = row[i] * rrms * gamma[i]


@compiled
def _rms_norm_backward(dy, x, rrmss, gamma, dx, dgamma):
    N, D = x.shape
    kind = x.dtype.type
    for n in range(N):
        row, slope, out = x[n], dy[n], dx[n]
        rrms = rrmss[n]
        along = kind(0)
        for i in range(D):
            along += slope[i] * gamma[i] * row[i] * rrms
        along /= kind(D)
        for i in range(D):
            out[i] = (slope[i] * gamma[i] - row[i] * rrms * along) * rrms
        for i in range(D):
            dgamma[i] += slope[i] * row[i] * rrms
