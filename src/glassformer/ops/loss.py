"""Cross-entropy, fused with the softmax it follows."""

from __future__ import annotations

from typing import NamedTuple

from ..arrays import Array, cast, check_broadcast, check_ids, namespace, widen
from ..engine import accelerated
from ..errors import ConfigError, ShapeError
from .loss_fused import FusedLossSaved, can_fuse, cross_entropy_fused, cross_entropy_fused_backward
from .softmax import log_softmax

IGNORE = -100
"""The target of a position that does not count, as in PyTorch."""


class CrossEntropySaved(NamedTuple):
    log_p: Array  # (..., V): the logarithm of every probability
    targets: Array  # (...)
    losses: Array  # (...): the loss of every position, zero where ignored
    total: Array  # (): what their sum was divided by
    class_weights: Array | None
    kind: Array  # (0,): empty, in the type of the logits, which log_p may exceed


@accelerated
def cross_entropy(
    logits: Array,
    targets: Array,
    *,
    class_weights: Array | None = None,
    ignore: int = IGNORE,
    smoothing: float = 0.0,
) -> tuple[Array, CrossEntropySaved | FusedLossSaved]:
    """Average how surprised the logits (..., V) are by their targets (...).

        a = (1 − smoothing) · w[target] · onehot(target) + smoothing/V · w      (w = 1 without class weights)
        loss = Σ a · (−log softmax(logits)) / Σ w[target]

    Positions whose target is `ignore` count nowhere; if none counts the loss is zero. Equals PyTorch's definition.
    """
    _check_loss(logits, targets, class_weights, ignore, smoothing)
    if can_fuse(logits, class_weights, smoothing):
        return cross_entropy_fused(logits, targets, ignore=ignore)
    xp = namespace(logits)
    log_p, _ = log_softmax(widen(logits))
    counted, weight, safe = _weights(targets, class_weights, ignore, log_p)
    hit = xp.take_along_axis(log_p, safe[..., None], axis=-1)[..., 0]
    losses = xp.where(counted > 0, -weight * hit, xp.zeros((), dtype=log_p.dtype))
    if smoothing:
        spread = log_p if class_weights is None else log_p * class_weights
        even = xp.mean(spread, axis=-1) * counted
        losses = (1 - smoothing) * losses - smoothing * even
    total = xp.sum(weight)
    total = xp.where(total == 0, xp.ones((), dtype=total.dtype), total)
    kind = xp.zeros(0, dtype=logits.dtype)
    return xp.sum(losses) / total, CrossEntropySaved(log_p, targets, losses, total, class_weights, kind)


@accelerated
def cross_entropy_backward(
    dy: Array, saved: CrossEntropySaved | FusedLossSaved, *, ignore: int = IGNORE, smoothing: float = 0.0
) -> Array:
    """Gradient of `cross_entropy`: where the model puts its belief, less where it belongs.

    dlogits = dy · (softmax(logits) · Σ a − a) / Σ w[target]
    """
    if isinstance(saved, FusedLossSaved):
        return cross_entropy_fused_backward(dy, saved)
    xp = namespace(saved.log_p)
    p = xp.exp(saved.log_p)
    size = p.shape[-1]
    counted, weight, safe = _weights(saved.targets, saved.class_weights, ignore, p)
    onehot = xp.arange(size) == safe[..., None]
    # What every row is multiplied by is multiplied first, once for a row instead of once for a number.
    unit = dy / saved.total
    hit = (1 - smoothing) * weight[..., None] * unit
    a, total_a = xp.where(onehot, hit, xp.zeros((), dtype=p.dtype)), hit
    if smoothing:
        share = counted[..., None] * (smoothing / size) * unit
        spread = xp.ones(size, dtype=p.dtype) if saved.class_weights is None else saved.class_weights
        a, total_a = a + share * spread, total_a + share * xp.sum(spread)
    return cast(p * total_a - a, saved.kind.dtype)


def _weights(targets: Array, class_weights: Array | None, ignore: int, like: Array) -> tuple[Array, Array, Array]:
    """Return which targets count (as 0 and 1), the weight of each, and the targets with ignored ones set to 0."""
    xp = namespace(like)
    targets = xp.asarray(targets)
    counted = targets != ignore
    safe = xp.where(counted, targets, 0)
    counted = counted.astype(like.real.dtype)
    weight = counted if class_weights is None else class_weights[safe] * counted
    return counted, weight, safe


def _check_loss(logits: Array, targets: Array, class_weights: Array | None, ignore: int, smoothing: float) -> None:
    namespace(logits)
    size = logits.shape[-1]
    namespace(targets)
    if tuple(targets.shape) != tuple(logits.shape[:-1]):
        raise ShapeError(
            f"targets have shape {tuple(targets.shape)} but the logits {tuple(logits.shape)}",
            hint=f"each row of logits needs one target: expected {tuple(logits.shape[:-1])}",
        )
    check_ids(targets, size, what="targets", ignore=ignore)
    if class_weights is not None:
        check_broadcast(class_weights, (size,), what="class_weights")
    if not 0 <= smoothing < 1:
        raise ConfigError(f"label smoothing is {smoothing}", hint="use a value of at least 0 and below 1")
