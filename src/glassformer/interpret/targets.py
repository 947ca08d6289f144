"""The number that gradients are of, and the mask: what is no step of a run, and has formulas all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..arrays import Array
from ..ops import FULL, IGNORE
from .fill import Symbol, fill, given
from .formula import Formula, Index, Link, Operand
from .formulas import SOFTMAX
from .gradients import Logit, Loss, Sum, Target
from .names import MASK
from .run import Run
from .tracing import Call

Read = Callable[[str, Array, Index], Operand]
LOSS_NAME = "loss"
LOSS_GRADIENT = "p * total_a - a"
"""The line of `cross_entropy_backward` that makes the gradient of the logits."""


def loss(read: Read, run: Run) -> Formula:
    """Σ (log Σ_v exp(logits) − logits[target]) / count, over the positions that have a target."""
    targets = np.asarray(run.targets)
    row = np.nonzero(targets != IGNORE)
    if not row[0].size:
        return given("loss", "0, for no position has a target", 0.0, "xp.sum(losses)")
    letters = "nt"[: targets.ndim]
    at = ",".join(letters)
    rows = np.asarray(run.logits[row], dtype=np.float64)
    largest = rows.max(axis=-1)
    symbols = {
        "log_sum": Operand(
            f"(log Σ_v exp logits[{at},v])", largest + np.log(np.exp(rows - largest[:, None]).sum(axis=-1))
        ),
        "logits": Symbol(run.logits, read),
        "targets": Symbol(targets, read),
        "count": row[0].size,
    }
    line = f"loss = sum((log_sum - logits[{at},targets[{at}]]) / count, {at})"
    return fill(line, symbols.__getitem__, (), dict(zip(letters, row, strict=True)), "xp.sum(losses)")


def of_logits(read: Read, run: Run, target: Target, index: Index) -> Formula | None:
    """Return what a target says of a logit, None for one that says nothing of it."""
    if isinstance(target, Logit):  # 1 for the one that is asked about, −1 for the one it is compared with
        result = "dlogits[n,t,v]" if len(index) == 3 else "dlogits[n,v]"
        return given(result, "asked", float(target.seed(run)[0][tuple(index)]))
    if not isinstance(target, Loss):
        return None
    *row, v = index
    targets = np.asarray(run.targets)
    at = ",".join("nt"[: targets.ndim])
    hit = int(targets[tuple(row)])
    if hit == IGNORE:
        return given(f"dlogits[{at},v]", "0, for the position has no target", 0.0, LOSS_GRADIENT)
    symbols = {
        "logits": Symbol(run.logits, read),
        "hit": Operand(f"[v = targets[{at}]]", float(hit == v)),
        "count": np.sum(targets != IGNORE),
    }
    line = f"dlogits[*,v] = ({SOFTMAX.format('logits', 'v')} - hit) / count".replace("*,", f"{at},")
    made = fill(line, symbols.__getitem__, index, source=LOSS_GRADIENT)
    return replace(made, also=(Link("targets", tuple(int(one) for one in row)),))


def of_value(run: Run, target: Target, name: str | None, index: Index) -> Formula | None:
    """Return what a target says of a value directly: the weight of an entry in a sum."""
    if not isinstance(target, Sum) or name is None or target.change.name not in run.addresses:
        return None
    if run.addresses[target.change.name] != run.addresses.get(name):
        return None
    weights = target.change.apply(np.zeros(run[name].shape), run.heads)
    return given("weight", "weight", float(weights[tuple(index)]))


def value_of(target: Target) -> str:
    """Return what a target is called."""
    if isinstance(target, Loss):
        return "loss"
    if isinstance(target, Logit):
        against = "" if target.against is None else f" − logit {target.against}"
        return f"logit {target.token}{against} of example {target.example} at {target.position}"
    return f"the sum of {target.change.name}"


def mask(run: Run, call: Call, index: Index) -> Formula:
    """mask[n,h,t,s] = pattern[t,s] · real[n,s], of a softmax in attention; one where there is neither."""
    n, _, t, s = index
    outer = call.parent
    padding = None if outer is None else outer.settings.get(MASK)
    pattern = FULL if outer is None else outer.settings.get("pattern", FULL)
    scores = call.arguments[0]
    operands = {}
    if not pattern.is_full:
        operands["pattern"] = Operand("pattern[t,s]", float(pattern.dense(*scores.shape[-2:])[t, s]))
    if padding is not None:
        real = bool(np.broadcast_to(padding, scores.shape)[index])
        name = next((own for own in (MASK, "source_mask") if _is_part(getattr(run.batch, own), padding)), None)
        operands["real"] = Operand("mask[n,s]", float(real), name, (n, s) if name else ())
    if not operands:
        operands["all"] = Operand("1, for nothing is hidden", 1.0)
    return Formula("mask[n,h,t,s]", " * ".join(operands), operands, "mask & allowed")


def _is_part(mask: object, padding: object) -> bool:
    both = isinstance(mask, np.ndarray) and isinstance(padding, np.ndarray)
    return both and np.may_share_memory(mask, padding)
