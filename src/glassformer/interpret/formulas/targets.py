"""The number that gradients are of: the loss, a logit, or the sum of a value."""

from __future__ import annotations

import numpy as np

from ...errors import ConfigError
from ...ops import IGNORE
from ..formula import Formula, Index, Link, Operand
from ..gradients import Logit, Loss, Sum, Target
from ..run import Run
from .operands import OperandReader, along, nothing, plain, written

LOSS_NAME = "loss"
LOSS_GRADIENT = "p * total_a - a"
"""The line of `cross_entropy_backward` that makes the gradient of the logits."""


def loss(reader: OperandReader, run: Run) -> Formula:
    """Σ (log Σ_v exp(logits) − logits[target]) / count, over the positions that have a target."""
    targets = np.asarray(run.targets)
    row = np.nonzero(targets != IGNORE)
    if not row[0].size:
        return nothing("loss", "no position has a target", "xp.sum(losses)")
    lead = "nt"[: targets.ndim]
    rows = np.asarray(run.logits[row], dtype=np.float64)
    largest = rows.max(axis=-1)
    log_sum = largest + np.log(np.exp(rows - largest[:, None]).sum(axis=-1))
    place = written("targets", lead)
    hit = reader.value("logits", run.logits, "", (*row, targets[row]))
    operands = {
        "log_sum": Operand(f"(log Σ_v exp {written('logits', lead + 'v')})", log_sum),
        "hit": Operand(f"logits[{','.join(lead)},{place}]", hit.values, hit.name, hit.index),
        "count": plain("count", row[0].size),
    }
    return Formula("loss", f"sum((log_sum - hit) / count, {', '.join(lead)})", operands, "xp.sum(losses)")


def of_logits(reader: OperandReader, run: Run, target: Target, index: Index) -> Formula | None:
    """Return what a target says of a logit, None for one that says nothing of it."""
    if isinstance(target, Logit):
        return _of_logit(run, target, index)
    if not isinstance(target, Loss):
        return None
    *row, v = index
    targets = np.asarray(run.targets)
    lead = "nt"[: targets.ndim]
    result, hit = written("dlogits", f"{lead}v"), int(targets[tuple(row)])
    if hit == IGNORE:
        return nothing(result, "the position has no target", LOSS_GRADIENT)
    u = along(run.logits.shape[-1])
    operands = {
        "x": reader.value("logits", run.logits, f"{lead}v", index),
        "row": reader.value("logits", run.logits, f"{lead}u", (*row, u)),
        "hit": plain(f"[v = {written('targets', lead)}]", hit == v),
        "count": plain("count", np.sum(targets != IGNORE)),
    }
    expression = "(exp(x - max(row, u)) / sum(exp(row - max(row, u)), u) - hit) / count"
    also = (Link("targets", tuple(int(one) for one in row)),)
    return Formula(result, expression, operands, LOSS_GRADIENT, also)


def _of_logit(run: Run, target: Logit, index: Index) -> Formula:
    """Return 1 for the logit that is asked about, −1 for the one it is compared with, 0 for all others."""
    number, shape = 0.0, run.logits.shape
    for token, sign in ((target.token, 1.0), (target.against, -1.0)):
        if token is not None:
            place = tuple(part % size for part, size in zip(target.place(run, token), shape, strict=True))
            number += sign * (place == tuple(index))
    return Formula(written("dlogits", "ntv" if len(shape) == 3 else "nv"), "asked", {"asked": plain("asked", number)})


def of_value(run: Run, target: Target, name: str | None, index: Index) -> Formula | None:
    """Return what a target says of a value directly: the weight of an entry in a sum."""
    if not isinstance(target, Sum) or name is None or target.change.name not in run.addresses:
        return None
    if run.addresses[target.change.name] != run.addresses.get(name):
        return None
    change = target.change
    shape = run[name].shape
    weights = np.zeros(shape)
    weights[change.where.index(change.name, shape, run.heads)] = change.value
    return Formula("weight", "asked", {"asked": plain("weight", weights[tuple(index)])})


def value_of(target: Target) -> str:
    """Return what a target is called."""
    if isinstance(target, Loss):
        return "loss"
    if isinstance(target, Logit):
        against = "" if target.against is None else f" − logit {target.against}"
        return f"logit {target.token}{against} of example {target.example} at {target.position}"
    if isinstance(target, Sum):
        return f"the sum of {target.change.name}"
    raise ConfigError(f"{target!r} is no target", hint="use Loss(), Logit(token) or Sum(name)")
