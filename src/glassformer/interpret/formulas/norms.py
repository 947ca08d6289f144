"""Norms: a vector by its own statistics, which have entries and gradients of their own."""

from __future__ import annotations

from ..formula import Formula, Index, Operand
from ..graph import Step
from .operands import GradientReader, OperandReader, along, every, plain, rows_of, running, written

DX = "dx = (dx_hat"
"""The line that folds the gradients of the statistics into that of x."""


def layer_norm(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = gamma · (x − mean) · rstd + beta."""
    *row, j = index
    lead = rows_of(step.inputs["x"])
    operands = {
        "x": reader.value("x", step.inputs["x"], f"{lead}j", index),
        "mean": reader.value("mean", step.inputs["mean"], lead, (*row, 0)),
        "rstd": reader.value("rstd", step.inputs["rstd"], lead, (*row, 0)),
        "gamma": reader.value("gamma", step.inputs["gamma"], "j", (j,)),
    }
    expression = "(x - mean) * rstd * gamma"
    if "beta" in step.inputs:
        operands["beta"] = reader.value("beta", step.inputs["beta"], "j", (j,))
        expression += " + beta"
    return Formula(written("y", f"{lead}j"), expression, operands, "centered * rstd * gamma")


def layer_norm_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dx = (dx̂ − mean dx̂ − x̂ · mean(dx̂ · x̂)) · rstd, dx̂ = gamma · dy; for the statistics, its parts."""
    lead = rows_of(step.output)
    if role in ("gamma", "beta"):
        return _shared(reader, step, role, index)
    read = _row(reader, step, index[:-1])
    if role == "rstd":
        return Formula(written("drstd", lead), "sum(dys * gammas * (xs - mean), i)", _without(read, "rstd"), DX)
    if role == "mean":
        read |= _through_root(reader, step, index[:-1])
        expression = "-sum(dys * gammas * rstd - (xs - mean) * made**3 * drstd / D, i)"
        return Formula(written("dmean", lead), expression, read, DX)
    if reader.is_changed(step.inputs["mean"]) or reader.is_changed(step.inputs["rstd"]):
        return _held(reader, step, index)
    read |= _entry(reader, step, index)
    hat = "dys * gammas * (xs - mean) * rstd"
    expression = f"(dy * gamma - mean(dys * gammas, i) - (x - mean) * rstd * mean({hat}, i)) * rstd"
    return Formula(written("dx", f"{lead}j"), expression, read, DX)


def rms_norm(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = gamma · x · rrms."""
    *row, j = index
    lead = rows_of(step.inputs["x"])
    operands = {
        "x": reader.value("x", step.inputs["x"], f"{lead}j", index),
        "rrms": reader.value("rrms", step.inputs["rrms"], lead, (*row, 0)),
        "gamma": reader.value("gamma", step.inputs["gamma"], "j", (j,)),
    }
    return Formula(written("y", f"{lead}j"), "x * rrms * gamma", operands, "x * rrms * gamma")


def rms_norm_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dx = (dx̂ − x̂ · mean(dx̂ · x̂)) · rrms, dx̂ = gamma · dy."""
    lead = rows_of(step.output)
    if role == "gamma":
        return _shared(reader, step, role, index)
    read = _row(reader, step, index[:-1])
    if role == "rrms":
        return Formula(written("drrms", lead), "sum(dys * gammas * xs, i)", _without(read, "rrms"), DX)
    if reader.is_changed(step.inputs["rrms"]):
        return _held(reader, step, index)
    read |= _entry(reader, step, index)
    expression = "(dy * gamma - x * rrms * mean(dys * gammas * xs * rrms, i)) * rrms"
    return Formula(written("dx", f"{lead}j"), expression, read, DX)


def mean(reader: OperandReader, step: Step, index: Index) -> Formula:
    """The mean of a vector."""
    x, lead = step.inputs["x"], rows_of(step.inputs["x"])
    row = reader.value("x", x, f"{lead}i", (*index[:-1], along(x.shape[-1])))
    return Formula(written("mean", lead), "mean(x, i)", {"x": row}, ".mean(")


def root(reader: OperandReader, step: Step, index: Index) -> Formula:
    """One over the root of the mean square, of what is left of a vector without its mean where there is one."""
    x, lead = step.inputs["x"], rows_of(step.inputs["x"])
    operands = {"x": reader.value("x", x, f"{lead}i", (*index[:-1], along(x.shape[-1])))}
    inner = "x**2"
    if "mean" in step.inputs:
        operands["mean"] = reader.value("mean", step.inputs["mean"], lead, (*index[:-1], 0))
        inner = "(x - mean)**2"
    operands["eps"] = plain("eps", step.settings["eps"])
    return Formula(written(step.rule, lead), f"1 / sqrt(mean({inner}, i) + eps)", operands, "sqrt")


def _row(reader: GradientReader, step: Step, row: Index) -> dict[str, Operand]:
    """Return all features of one vector, what came back for them, and its statistics."""
    lead, i = rows_of(step.output), along(step.output.shape[-1])
    read = {
        "dys": reader.gradient("dy", step.output, f"{lead}i", (*row, i)),
        "gammas": reader.value("gamma", step.inputs["gamma"], "i", (i,)),
        "xs": reader.value("x", step.inputs["x"], f"{lead}i", (*row, i)),
    }
    return read | _statistics(reader, step, (*row, 0))


def _statistics(reader: GradientReader, step: Step, index: Index) -> dict[str, Operand]:
    lead = rows_of(step.output)
    names = [name for name in ("mean", "rstd", "rrms") if name in step.inputs]
    return {name: reader.value(name, step.inputs[name], lead, index) for name in names}


def _entry(reader: GradientReader, step: Step, index: Index) -> dict[str, Operand]:
    """Return the one feature that is asked for."""
    lead = rows_of(step.output)
    return {
        "dy": reader.gradient("dy", step.output, f"{lead}j", index),
        "gamma": reader.value("gamma", step.inputs["gamma"], "j", index[-1:]),
        "x": reader.value("x", step.inputs["x"], f"{lead}j", index),
    }


def _through_root(reader: GradientReader, step: Step, row: Index) -> dict[str, Operand]:
    """Return the root as it was computed, and the gradient that passes through its changes: dv = −root³/2 · droot."""
    lead, root = rows_of(step.output), "rstd" if "rstd" in step.inputs else "rrms"
    array = step.inputs[root]
    before = reader.before(array)
    return {
        "made": reader.value(root, before, lead, (*row, 0)) if before is array else plain(root, before[(*row, 0)]),
        f"d{root}": reader.undone(f"d{root}", array, lead, (*row, 0)),
        "D": plain("D", step.output.shape[-1]),
    }


def _held(reader: GradientReader, step: Step, index: Index) -> Formula:
    """Return dx of a norm whose statistics were changed: what comes back past them, and through each of them."""
    lead, row = rows_of(step.output), index[:-1]
    read = _entry(reader, step, index) | _statistics(reader, step, (*row, 0)) | _through_root(reader, step, row)
    if "mean" not in step.inputs:
        expression = "dy * gamma * rrms - x * made**3 * drrms / D"
    else:
        read["dmean"] = reader.undone("dmean", step.inputs["mean"], lead, (*row, 0))
        expression = "dy * gamma * rstd - (x - mean) * made**3 * drstd / D + dmean / D"
    return Formula(written("dx", f"{lead}j"), expression, read, DX)


def _without(operands: dict[str, Operand], name: str) -> dict[str, Operand]:
    return {own: operand for own, operand in operands.items() if own != name}


def _shared(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """Return the gradient of gamma or beta, which served every vector."""
    lead, row = rows_of(step.output), every(step.output.shape[:-1])
    read = {"dy": reader.gradient("dy", step.output, f"{lead}j", (*row, index[0]))}
    if role == "beta":
        return Formula("dbeta[j]", f"sum(dy, {running(lead)})", read, "dbeta =")
    read["x"] = reader.value("x", step.inputs["x"], f"{lead}j", (*row, index[0]))
    read |= _statistics(reader, step, (*row, 0 * row[0]))
    hat = "(x - mean) * rstd" if "mean" in step.inputs else "x * rrms"
    return Formula("dgamma[j]", f"sum(dy * {hat}, {running(lead)})", read, "dgamma =")
