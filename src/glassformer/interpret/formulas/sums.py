"""Sums, means, and entries that are only moved."""

from __future__ import annotations

import numpy as np

from ...arrays import Array
from ..formula import Formula, Index, Operand
from ..graph import Step, moved, moved_back
from .operands import GradientReader, OperandReader, broadcast_index, kept, nothing, plain, rows_of, written


def total(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = x + h."""
    letters = f"{rows_of(step.output)}j"
    operands = {
        name: reader.value(name, array, letters[len(index) - array.ndim :], broadcast_index(array, index))
        for name, array in step.inputs.items()
    }
    return Formula(written("y", letters), "x + h", operands, "x + h")


def total_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """Every term gets all of dy; one that served all examples, as positions do, gets it from each."""
    letters, array = f"{rows_of(step.output)}j", step.inputs[role]
    result = written(f"d{role}", letters[step.output.ndim - array.ndim :])
    if array.ndim == step.output.ndim:
        return Formula(result, "dy", {"dy": reader.gradient("dy", step.output, letters, index)}, "return dy, dy")
    dy = reader.gradient("dy", step.output, letters, (np.arange(step.output.shape[0]), *index))
    return Formula(result, "sum(dy, n)", {"dy": dy}, "unbroadcast(")


def placed(reader: OperandReader, step: Step, index: Index) -> Formula:
    """An entry of heads that were split, or put side by side, is the entry where it stood before."""
    letters, result = ("nti", "heads[n,h,t,c]") if step.rule == "split_heads" else ("nhtc", "merged[n,t,i]")
    x = reader.value("y", step.inputs["x"], letters, moved_back(step, index))
    return Formula(result, "x", {"x": x}, "return")


def placed_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """The gradient of an entry that was moved is the one where it stands now."""
    letters, result = ("nhtc", "dx[n,t,i]") if step.rule == "split_heads" else ("nti", "dx[n,h,t,c]")
    dy = reader.gradient("dy", step.output, letters, moved(step, index))
    return Formula(result, "dy", {"dy": dy}, "return")


def copy(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = x."""
    letters = f"{rows_of(step.output)}j"
    return Formula(written("y", letters), "x", {"x": reader.value("x", step.inputs["x"], letters, index)}, "+x")


def copy_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dx = dy."""
    letters = f"{rows_of(step.output)}j"
    return Formula(written("dx", letters), "dy", {"dy": reader.gradient("dy", step.output, letters, index)}, "+dy")


def scale(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = x · factor."""
    x = reader.value("x", step.inputs["x"], "ntj", index)
    operands = {"x": x, "factor": plain("factor", step.settings["factor"])}
    return Formula("y[n,t,j]", "x * factor", operands, "x * factor")


def scale_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dx = dy · factor."""
    dy = reader.gradient("dy", step.output, "ntj", index)
    operands = {"dy": dy, "factor": plain("factor", step.settings["factor"])}
    return Formula("dx[n,t,j]", "dy * factor", operands, "dy * factor")


# --- one vector for a sequence ---------------------------------------------------------------------------------------


def first(reader: OperandReader, step: Step, index: Index) -> Formula:
    """The first vector stands for the sequence."""
    n, j = index
    x = reader.value("x", step.inputs["x"], "n0j", (n, 0, j))
    return Formula("pooled[n,j]", "x", {"x": x}, "x[..., 0, :]")


def first_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """Only the first vector was read."""
    n, t, j = index
    if t:
        return nothing("dx[n,t,j]", "only the first position is read", "return")
    dpooled = reader.gradient("dpooled", step.output, "nj", (n, j))
    return Formula("dx[n,0,j]", "dpooled", {"dpooled": dpooled}, "return")


def prepend(reader: OperandReader, step: Step, index: Index) -> Formula:
    """One vector, and behind it the sequence."""
    n, t, j = index
    if t == 0:
        first = reader.value("first", step.inputs["first"], "j", (j,))
        return Formula("y[n,0,j]", "first", {"first": first}, "concatenate(")
    x = reader.value("x", step.inputs["x"], "", (n, t - 1, j))
    return Formula("y[n,t,j]", "x", {"x": Operand("x[n,t−1,j]", x.values, x.name, x.index)}, "concatenate(")


def prepend_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """The vector stood before every sequence."""
    if role == "first":
        n = np.arange(step.output.shape[0])
        dy = reader.gradient("dy", step.output, "n0j", (n, 0, index[0]))
        return Formula("dfirst[j]", "sum(dy, n)", {"dy": dy}, "return")
    n, t, j = index
    dy = reader.gradient("dy", step.output, "", (n, t + 1, j))
    dy = Operand("dy[n,t+1,j]", dy.values, dy.name, dy.index, gradient=True)
    return Formula("dx[n,t,j]", "dy", {"dy": dy}, "return")


def mean_pool(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = Σ x / count, over the positions that count."""
    n, j = index
    t = _counted(step, n)
    if not t.size:
        return nothing("y[n,j]", "no position counts", "xp.sum(x * share")
    operands = {"x": reader.value("x", step.inputs["x"], "ntj", (n, t, j)), "count": plain("count[n]", t.size)}
    return Formula("y[n,j]", "sum(x / count, t)", operands, "xp.sum(x * share")


def mean_pool_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dx = dy / count."""
    n, t, j = index
    counted = _counted(step, n)
    if t not in counted:
        return nothing("dx[n,t,j]", "the position does not count", "saved.share")
    operands = {"dy": reader.gradient("dy", step.output, "nj", (n, j)), "count": plain("count[n]", counted.size)}
    return Formula("dx[n,t,j]", "dy / count", operands, "saved.share")


def _counted(step: Step, example: int) -> Array:
    """Return the positions that a mean is taken over."""
    return np.flatnonzero(step.settings["saved"].share[example, :, 0])


# --- dropout ---------------------------------------------------------------------------------------------------------


def dropout(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = keep · x / (1 − rate)."""
    letters = f"{rows_of(step.output)}j"
    operands = {"keep": kept(step, index, letters), "x": reader.value("x", step.inputs["x"], letters, index)}
    return Formula(written("y", letters), "keep * x", operands, "dropped(x, keep")


def dropout_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dx = keep · dy / (1 − rate)."""
    letters = f"{rows_of(step.output)}j"
    operands = {"keep": kept(step, index, letters), "dy": reader.gradient("dy", step.output, letters, index)}
    return Formula(written("dx", letters), "keep * dy", operands, "dropped(dy, keep")
