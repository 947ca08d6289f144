"""Sums, means, and what is only moved: the lines of layers between their ops."""

from __future__ import annotations

import numpy as np

from ...arrays import Array
from ..formula import Formula, Index, Operand
from ..step import Step, moved, moved_back
from .sight import BackSight, Sight, broadcast_index, kept, nothing, plain, rows_of, written

PIECES = {"h": "y = x + h", "tokens": "x = x +"}
UNDONE = {"h": "dx + dh", "tokens": "self.parts[name].backward("}
"""The line of each sum, and the one that undoes it, by the name of one of its terms."""


def total(sight: Sight, step: Step, index: Index) -> Formula:
    """y = x + h, or a sum of more."""
    letters = f"{rows_of(step.output)}j"
    operands = {
        name: sight.value(name, array, letters[len(index) - array.ndim :], broadcast_index(array, index))
        for name, array in step.inputs.items()
    }
    piece = next((PIECES[name] for name in PIECES if name in operands), "y = y + h")
    return Formula(written("y", letters), " + ".join(operands), operands, piece)


def total_backward(sight: BackSight, step: Step, role: str, index: Index) -> Formula:
    """Every term gets all of dy; one that served all examples, as positions do, gets it from each."""
    letters, array = f"{rows_of(step.output)}j", step.inputs[role]
    result = written(f"d{role}", letters[step.output.ndim - array.ndim :])
    if array.ndim == step.output.ndim:
        piece = next((UNDONE[name] for name in UNDONE if name in step.inputs), "total.x + dx")
        return Formula(result, "dy", {"dy": sight.gradient("dy", step.output, letters, index)}, piece)
    dy = sight.gradient("dy", step.output, letters, (np.arange(step.output.shape[0]), *index))
    return Formula(result, "sum(dy, n)", {"dy": dy}, "unbroadcast(")


def placed(sight: Sight, step: Step, index: Index) -> Formula:
    """An entry of heads that were split, or put side by side, is the entry where it stood before."""
    letters, result = ("nti", "heads[n,h,t,c]") if step.rule == "split" else ("nhtc", "merged[n,t,i]")
    x = sight.value("y", step.inputs["x"], letters, moved_back(step, index))
    return Formula(result, "x", {"x": x}, "= self._heads(" if step.rule == "split" else "merge_heads(")


def placed_backward(sight: BackSight, step: Step, role: str, index: Index) -> Formula:
    """The gradient of an entry that was moved is the one where it stands now."""
    letters, result = ("nhtc", "dx[n,t,i]") if step.rule == "split" else ("nti", "dx[n,h,t,c]")
    dy = sight.gradient("dy", step.output, letters, moved(step, index))
    return Formula(result, "dy", {"dy": dy}, "merge_heads(" if step.rule == "split" else "split_heads(")


def copy(sight: Sight, step: Step, index: Index) -> Formula:
    """y = x."""
    letters = f"{rows_of(step.output)}j"
    return Formula(written("y", letters), "x", {"x": sight.value("x", step.inputs["x"], letters, index)}, "+x")


def copy_backward(sight: BackSight, step: Step, role: str, index: Index) -> Formula:
    """dx = dy."""
    letters = f"{rows_of(step.output)}j"
    return Formula(written("dx", letters), "dy", {"dy": sight.gradient("dy", step.output, letters, index)}, "+dy")


def scale(sight: Sight, step: Step, index: Index) -> Formula:
    """h = x · scale."""
    operands = {"x": sight.value("x", step.inputs["x"], "ntj", index), "scale": plain("scale", step.settings["scale"])}
    return Formula("h[n,t,j]", "x * scale", operands, "x * self.scale")


def scale_backward(sight: BackSight, step: Step, role: str, index: Index) -> Formula:
    """dx = dh · scale."""
    dy = sight.gradient("dh", step.output, "ntj", index)
    operands = {"dy": dy, "scale": plain("scale", step.settings["scale"])}
    return Formula("dx[n,t,j]", "dy * scale", operands, "dx * self.scale")


# --- one vector for a sequence ---------------------------------------------------------------------------------------


def first(sight: Sight, step: Step, index: Index) -> Formula:
    """The first vector stands for the sequence."""
    n, j = index
    x = sight.value("x", step.inputs["x"], "n0j", (n, 0, j))
    return Formula("pooled[n,j]", "x", {"x": x}, "pooled = x[..., 0, :]")


def first_backward(sight: BackSight, step: Step, role: str, index: Index) -> Formula:
    """Only the first vector was read."""
    n, t, j = index
    if t:
        return nothing("dx[n,t,j]", "only the first position is read", "self._unpool(")
    dpooled = sight.gradient("dpooled", step.output, "nj", (n, j))
    return Formula("dx[n,0,j]", "dpooled", {"dpooled": dpooled}, "self._unpool(")


def prepend(sight: Sight, step: Step, index: Index) -> Formula:
    """The learned vector, and behind it the embedded tokens."""
    n, t, j = index
    if t == 0:
        return Formula("x[n,0,j]", "cls", {"cls": sight.value("cls", step.inputs["cls"], "j", (j,))}, "_prepend(")
    x = sight.value("embedded", step.inputs["x"], "", (n, t - 1, j))
    return Formula("x[n,t,j]", "x", {"x": Operand("embedded[n,t−1,j]", x.values, x.name, x.index)}, "_prepend(")


def prepend_backward(sight: BackSight, step: Step, role: str, index: Index) -> Formula:
    """The learned vector stood before every sequence."""
    if role == "cls":
        n = np.arange(step.output.shape[0])
        dx = sight.gradient("dx", step.output, "n0j", (n, 0, index[0]))
        return Formula("dcls[j]", "sum(dx, n)", {"dx": dx}, 'grads["cls"]')
    n, t, j = index
    dx = sight.gradient("dx", step.output, "", (n, t + 1, j))
    dx = Operand("dx[n,t+1,j]", dx.values, dx.name, dx.index, gradient=True)
    return Formula("dembedded[n,t,j]", "dx", {"dx": dx}, "dx = dx[..., 1:, :]")


def mean_pool(sight: Sight, step: Step, index: Index) -> Formula:
    """y = Σ x / count, over the positions that count."""
    n, j = index
    t = _counted(step, n)
    if not t.size:
        return nothing("y[n,j]", "no position counts", "xp.sum(x * share")
    operands = {"x": sight.value("x", step.inputs["x"], "ntj", (n, t, j)), "count": plain("count[n]", t.size)}
    return Formula("y[n,j]", "sum(x / count, t)", operands, "xp.sum(x * share")


def mean_pool_backward(sight: BackSight, step: Step, role: str, index: Index) -> Formula:
    """dx = dy / count."""
    n, t, j = index
    counted = _counted(step, n)
    if t not in counted:
        return nothing("dx[n,t,j]", "the position does not count", "saved.share")
    operands = {"dy": sight.gradient("dy", step.output, "nj", (n, j)), "count": plain("count[n]", counted.size)}
    return Formula("dx[n,t,j]", "dy / count", operands, "saved.share")


def _counted(step: Step, example: int) -> Array:
    """Return the positions that a mean is taken over."""
    return np.flatnonzero(step.settings["saved"].share[example, :, 0])


# --- dropout ---------------------------------------------------------------------------------------------------------


def dropout(sight: Sight, step: Step, index: Index) -> Formula:
    """y = keep · x / (1 − rate)."""
    letters = f"{rows_of(step.output)}j"
    operands = {"keep": kept(step, index, letters), "x": sight.value("x", step.inputs["x"], letters, index)}
    return Formula(written("y", letters), "keep * x", operands, "dropped(x, keep")


def dropout_backward(sight: BackSight, step: Step, role: str, index: Index) -> Formula:
    """dx = keep · dy / (1 − rate)."""
    letters = f"{rows_of(step.output)}j"
    operands = {"keep": kept(step, index, letters), "dy": sight.gradient("dy", step.output, letters, index)}
    return Formula(written("dx", letters), "keep * dy", operands, "dropped(dy, keep")
