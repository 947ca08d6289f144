"""Cross-entropy, fused with the softmax it follows, and its gradient."""

from typing import Any

import numpy as np

from ... import ops
from ...core.arrays import Array
from ...core.dispatch import replaces
from ...ops.loss import IGNORE, CrossEntropySaved
from .compile import compiled, exp, is_plain, maximum, rows


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
        if not abs(largest) < np.inf:
            largest = real(0)
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
