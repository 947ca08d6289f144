"""Kernels of whole rows: softmax, cross-entropy, normalization, and rotary positions of each head."""

from typing import Any

import numpy as np

from ... import ops
from ...core.arrays import Array
from ...core.dispatch import replaces
from ...ops.loss import IGNORE, CrossEntropySaved
from ...ops.norm import LayerNormSaved, RMSNormSaved
from ...ops.position import RotarySaved
from .compile import REAL, compiled, exp, inlined, is_array, is_plain, maximum, rows

# --- softmax ---------------------------------------------------------------------------------------------------------


@replaces(ops.softmax)
def softmax(x: Array, *, mask: Array | None = None) -> Any:
    if mask is not None or not is_plain(x) or x.ndim < 1:
        return NotImplemented
    y = x.copy()
    if y.size:  # there may be very many rows of nothing
        softmax_in_place(rows(y)[None], *_all_columns(x), 1.0)
    return y, y


@replaces(ops.softmax_backward)
def softmax_backward(dy: Array, y: Array) -> Any:
    if not is_plain(dy, y) or dy.shape != y.shape or y.ndim < 1:
        return NotImplemented
    dx = dy.copy()
    if dx.size:
        softmax_backward_in_place(rows(dx)[None], rows(y)[None], *_all_columns(y), 1.0)
    return dx


def _all_columns(x: Array) -> tuple[Array, Array]:
    return np.zeros(1, np.int64), np.full(1, x.shape[-1], np.int64)


@compiled
def softmax_in_place(x, first, last, scale):
    """Turn x (R, T, S) into softmax(x · scale), row t % len(first) over its columns first … last; zero elsewhere."""
    R, T, _ = x.shape
    for r in range(R):
        for t in range(T):
            start, stop = first[t % first.size], last[t % first.size]
            row = x[r, t]
            row[:start] = 0
            row[stop:] = 0
            softmax_row(row[start:stop], x.dtype.type(scale))


@compiled
def softmax_biased_in_place(x, bias, mask, scale):
    """Turn x (B, H, T, S) into softmax(x · scale + bias) where the mask is True, zero elsewhere."""
    B, H, T, S = x.shape
    for b in range(B):
        for h in range(H):
            for t in range(T):
                row = x[b, h, t]
                for s in range(S):
                    score = row[s] * x.dtype.type(scale) + bias[b, h, t, s]
                    row[s] = score if mask[b, h, t, s] else x.dtype.type(-np.inf)
                softmax_row(row, x.dtype.type(1))


@compiled
def softmax_backward_in_place(dy, y, first, last, scale):
    """Turn dy (R, T, S) into y · (dy − Σ dy · y) · scale over the columns first … last; zero elsewhere."""
    R, T, _ = y.shape
    for r in range(R):
        for t in range(T):
            start, stop = first[t % first.size], last[t % first.size]
            # Slices count from 0, which vectorizes.
            softmax_row_backward(dy[r, t, start:stop], y[r, t, start:stop], y.dtype.type(scale))
            dy[r, t, :start] = 0
            dy[r, t, stop:] = 0


@inlined
def exponentials(row, shift):
    """Turn a row into exp(row − shift); return the sum."""
    total = row.dtype.type(0)
    for s in range(row.size):
        row[s] = exp(row[s] - shift)
        total += row[s]
    return total


@inlined
def finite_or_zero(largest, real):
    """Return the largest score of a row, or 0 where there is nothing to attend to, or numbers that are none."""
    return largest if abs(largest) < np.inf else real(0)


@inlined
def softmax_row_backward(dy, y, scale):
    """Turn the row dy into y · (dy − Σ dy · y) · scale."""
    along = y.dtype.type(0)
    for s in range(y.size):
        along += y[s] * dy[s]
    for s in range(y.size):
        dy[s] = y[s] * (dy[s] - along) * scale


@inlined
def softmax_row(row, scale):
    """Turn a row into softmax(row · scale), or into zeros where it holds nothing to attend to."""
    real = row.dtype.type
    largest = real(-np.inf)
    for s in range(row.size):
        row[s] *= scale
        largest = maximum(largest, row[s])
    total = exponentials(row, finite_or_zero(largest, real))
    if total != 0:
        share = real(1) / total
        for s in range(row.size):
            row[s] *= share


# --- cross-entropy ---------------------------------------------------------------------------------------------------


@replaces(ops.cross_entropy)
def cross_entropy(
    logits: Array, targets: Array, *, class_weights: Array | None = None, ignore: int = IGNORE, smoothing: float = 0.0
) -> Any:
    if class_weights is not None or not _fits(logits, targets) or not 0 <= smoothing < 1:
        return NotImplemented
    dtype = logits.dtype
    log_p, losses = np.empty_like(logits), np.empty(targets.shape, dtype)
    flat = np.ascontiguousarray(targets, np.int64).reshape(-1)
    counted, loss = _cross_entropy(rows(logits), flat, ignore, smoothing, rows(log_p), losses.reshape(-1))
    if counted < 0:  # a target outside the vocabulary: the op says which
        return NotImplemented
    total = dtype.type(max(counted, 1))
    return dtype.type(loss) / total, CrossEntropySaved(log_p, targets, losses, np.asarray(total), None)


@replaces(ops.cross_entropy_backward)
def cross_entropy_backward(dy: Array, saved: CrossEntropySaved, *, ignore: int = IGNORE, smoothing: float = 0.0) -> Any:
    if not isinstance(saved, CrossEntropySaved):
        return NotImplemented
    log_p, targets = saved.log_p, saved.targets
    if saved.class_weights is not None or not _fits(log_p, targets) or np.ndim(saved.total):
        return NotImplemented
    if type(dy) is not float and (np.ndim(dy) > 0 or np.iscomplexobj(dy)):
        return NotImplemented
    dlogits = np.empty_like(log_p)
    flat = np.ascontiguousarray(targets, np.int64).reshape(-1)
    fits = _cross_entropy_backward(float(dy / saved.total), rows(log_p), flat, ignore, smoothing, rows(dlogits))
    return dlogits if fits else NotImplemented


def _fits(logits: Array, targets: Array) -> bool:
    if not is_plain(logits) or logits.ndim < 1 or logits.shape[-1] < 1:
        return False
    return type(targets) is np.ndarray and targets.dtype.kind in "iu" and targets.shape == logits.shape[:-1]


@compiled
def _cross_entropy(logits, targets, ignore, smoothing, log_p, losses):
    """Fill in log softmax(logits) and every loss; return how many targets count and the sum of their losses.

    The number is −1 if a target is out of range.
    """
    N, V = logits.shape
    real = logits.dtype.type
    counted, loss = 0, 0.0
    for n in range(N):
        row, out = logits[n], log_p[n]
        largest = real(-np.inf)
        for v in range(V):
            largest = maximum(largest, row[v])
        largest = finite_or_zero(largest, real)
        total = real(0)
        for v in range(V):
            total += exp(row[v] - largest)
        shift = largest + np.log(total if total != 0 else real(1))
        evenly = real(0)
        for v in range(V):
            out[v] = row[v] - shift
            evenly += out[v]
        target = targets[n]
        if target == ignore:
            losses[n] = 0
            continue
        if target < 0 or target >= V:
            return -1, loss
        counted += 1
        losses[n] = -out[target]
        if smoothing > 0:
            losses[n] = real(1 - smoothing) * losses[n] - real(smoothing) * evenly / real(V)
        loss += losses[n]
    return counted, loss


@compiled
def _cross_entropy_backward(dy, log_p, targets, ignore, smoothing, dlogits):
    """Fill in the gradient; False if a target is out of range."""
    N, V = log_p.shape
    real = log_p.dtype.type
    share = real(smoothing / V)
    for n in range(N):
        row, out = log_p[n], dlogits[n]
        if targets[n] == ignore:
            out[:] = 0
            continue
        if targets[n] < 0 or targets[n] >= V:
            return False
        for v in range(V):
            out[v] = (exp(row[v]) - share) * real(dy)
        out[targets[n]] -= real(1 - smoothing) * real(dy)
    return True


# --- normalization ---------------------------------------------------------------------------------------------------


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


# --- rotary positions, on heads as they lie in memory: (B, T, H, C) --------------------------------------------------


@replaces(ops.rotary)
def rotary(x: Array, cos: Array, sin: Array, *, pairing: str = "halves") -> Any:
    """Rotate by angles (T, C/2) that all sequences share."""
    if not type(x) is type(cos) is type(sin) is np.ndarray or x.dtype not in REAL or not cos.ndim == sin.ndim == 2:
        return NotImplemented
    cos, sin = (np.ascontiguousarray(table, x.dtype) for table in (cos, sin))
    y = _rotated(x, cos, sin, 1.0, pairing)
    return y if y is NotImplemented else (y, RotarySaved(cos, sin))


@replaces(ops.rotary_backward)
def rotary_backward(dy: Array, saved: RotarySaved, *, pairing: str = "halves") -> Any:
    return _rotated(dy, saved.cos, saved.sin, -1.0, pairing)


def _rotated(x: Array, cos: Array, sin: Array, direction: float, pairing: str) -> Any:
    if type(x) is not np.ndarray or x.ndim < 2 or x.dtype not in REAL or pairing not in PAIRINGS:
        return NotImplemented
    shape = x.shape[-2], x.shape[-1] // 2
    if x.shape[-1] % 2 or not is_array(cos, x.dtype, shape) or not is_array(sin, x.dtype, shape):
        return NotImplemented
    from_rows = x.ndim == 4 and x.swapaxes(1, 2).flags.c_contiguous  # heads cut out of rows
    if not from_rows and not x.flags.c_contiguous:
        return NotImplemented
    T, C = x.shape[-2:]
    memory = x.swapaxes(1, 2) if from_rows else x.reshape(x.size // max(T * C, 1), T, 1, C)
    y = np.empty(memory.shape, x.dtype)
    PAIRINGS[pairing](memory, cos, sin, direction, y)
    return y.swapaxes(1, 2) if from_rows else y.reshape(x.shape)


@compiled
def _rotate_halves(x, cos, sin, direction, y):
    B, T, H, C = x.shape
    half = C // 2
    sign = x.dtype.type(direction)
    for b in range(B):
        for t in range(T):
            for h in range(H):
                a, z = x[b, t, h, :half], x[b, t, h, half:]
                c, s = cos[t], sin[t]
                first, second = y[b, t, h, :half], y[b, t, h, half:]
                for i in range(half):
                    first[i] = a[i] * c[i] - z[i] * s[i] * sign
                for i in range(half):
                    second[i] = z[i] * c[i] + a[i] * s[i] * sign


@compiled
def _rotate_interleaved(x, cos, sin, direction, y):
    B, T, H, C = x.shape
    sign = x.dtype.type(direction)
    for b in range(B):
        for t in range(T):
            for h in range(H):
                row, c, s, out = x[b, t, h], cos[t], sin[t], y[b, t, h]
                for i in range(C // 2):
                    out[2 * i] = row[2 * i] * c[i] - row[2 * i + 1] * s[i] * sign
                    out[2 * i + 1] = row[2 * i + 1] * c[i] + row[2 * i] * s[i] * sign


PAIRINGS = {"halves": _rotate_halves, "interleaved": _rotate_interleaved}
