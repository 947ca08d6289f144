"""Cross-entropy, in one with the softmax it follows.

−log p of what came true is how surprised a model is: 0 if it was certain and right, without bound if it was certain and
wrong. A model that knows nothing gives each of V classes 1/V and loses log V, where most training runs begin. The mean
of −log p is least when p is the distribution that the targets come from: minimizing it learns that distribution. The
exponential of the loss, the perplexity, says among how many equally likely classes a model still hesitates.

Softmax and logarithm together have the simplest gradient of all: softmax(logits) − onehot(target), what the model
believes less what is true. Apart, the loss would divide by tiny probabilities only for softmax to multiply by them
again.
"""

from typing import NamedTuple

from ..core.arrays import Array, check_broadcast, check_ids, namespace
from ..core.dispatch import dispatched
from ..core.errors import ConfigError, ShapeError
from .softmax import log_softmax

IGNORE = -100
"""The target of a position that does not count, as in PyTorch."""


class CrossEntropySaved(NamedTuple):
    log_p: Array  # (..., V): the logarithm of every probability
    targets: Array  # (...)
    losses: Array  # (...): the loss of every position, zero where ignored
    total: Array  # (): what their sum was divided by
    class_weights: Array | None  # (V,)


@dispatched(wide=("y", "log_p", "losses", "total"))
def cross_entropy(
    logits: Array, targets: Array, *, class_weights: Array | None = None, ignore: int = IGNORE, smoothing: float = 0.0
) -> tuple[Array, CrossEntropySaved]:
    """Average how surprised the logits (..., V) are by their targets (...).

        a = (1 − smoothing) · w[target] · onehot(target) + smoothing/V · w      (w = 1 without class weights)
        loss = Σ a · (−log softmax(logits)) / Σ w[target]

    Positions whose target is `ignore`, such as padding, count nowhere; if none counts the loss is zero. Class weights
    let rare classes weigh as much as frequent ones. Equals PyTorch's definition.
    """
    check_loss(logits, targets, class_weights, ignore, smoothing)
    xp = namespace(logits)
    log_p, _ = log_softmax(logits)
    counted, weight, safe = _weights(targets, class_weights, ignore, log_p)
    hit = xp.take_along_axis(log_p, safe[..., None], axis=-1)[..., 0]  # (...): log_p of each target
    losses = xp.where(counted > 0, -weight * hit, xp.zeros((), dtype=log_p.dtype))
    if smoothing:
        # A part of the target is spread evenly over all classes, so that certainty never pays without end: without it a
        # correct logit could gain by growing forever (Szegedy et al. 2016; Vaswani et al. 2017 use 0.1).
        spread = log_p if class_weights is None else log_p * class_weights
        even = xp.where(counted > 0, xp.mean(spread, axis=-1), xp.zeros((), dtype=log_p.dtype))  # (...)
        losses = (1 - smoothing) * losses - smoothing * even
    total = xp.sum(weight)
    total = xp.where(total == 0, xp.ones((), dtype=total.dtype), total)
    return xp.sum(losses) / total, CrossEntropySaved(log_p, targets, losses, total, class_weights)


@dispatched
def cross_entropy_backward(
    dy: Array, saved: CrossEntropySaved, *, ignore: int = IGNORE, smoothing: float = 0.0
) -> Array:
    """Gradient of `cross_entropy`: where the model puts its belief, less where it belongs.

        dlogits = dy · (softmax(logits) · Σ a − a) / Σ w[target]

    loss = −Σ a · log_p by the row, and dlog_p goes back as in `log_softmax`: −a, less softmax times its sum −Σ a.
    Every row of dlogits sums to zero, for raising all logits of a row alike changes no probability.
    """
    xp = namespace(saved.log_p)
    # loss = Σ a · (−log_p) / total,  log_p = log softmax(logits)
    p = xp.exp(saved.log_p)
    size = p.shape[-1]
    counted, weight, safe = _weights(saved.targets, saved.class_weights, ignore, p)
    onehot = xp.arange(size) == safe[..., None]  # (..., V)
    # What every row is multiplied by is multiplied first, once for a row instead of once for a number.
    unit = dy / saved.total
    hit = (1 - smoothing) * weight[..., None] * unit
    a, total_a = xp.where(onehot, hit, xp.zeros((), dtype=p.dtype)), hit
    if smoothing:
        # a holds smoothing/V · w besides, in the rows that count
        share = counted[..., None] * (smoothing / size) * unit
        spread = xp.ones(size, dtype=p.dtype) if saved.class_weights is None else saved.class_weights
        a, total_a = a + share * spread, total_a + share * xp.sum(spread)
    # A row that does not count sends nothing back, not even where its logits are NaN.
    return xp.where(counted[..., None] > 0, p * total_a - a, xp.zeros((), dtype=p.dtype))


def _weights(targets: Array, class_weights: Array | None, ignore: int, like: Array) -> tuple[Array, Array, Array]:
    """Return which targets count (as 0 and 1), the weight of each, and the targets with ignored ones set to 0."""
    xp = namespace(like)
    targets = xp.asarray(targets)
    counted = targets != ignore
    safe = xp.where(counted, targets, 0)
    counted = counted.astype(like.real.dtype)
    weight = counted if class_weights is None else class_weights[safe] * counted
    return counted, weight, safe


def check_loss(logits: Array, targets: Array, class_weights: Array | None, ignore: int, smoothing: float) -> None:
    """Refuse targets that do not fit the logits, and settings out of range."""
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
