"""Matrices and tables: what is one column laid over a vector, and what is one row looked up."""

from __future__ import annotations

import numpy as np

from ..formula import Formula, Index, Link, Operand
from ..graph import Step
from .operands import GradientReader, OperandReader, along, every, nothing, plain, rows_of, running, written


def linear(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = x w + b, one column of w laid over a row of x."""
    *row, j = index
    x, lead = step.inputs["x"], rows_of(step.inputs["x"])
    k = along(x.shape[-1])
    operands = {"x": reader.value("x", x, f"{lead}k", (*row, k))}
    if "table" in step.inputs:  # logits = h Eᵀ
        operands["w"] = reader.value("table", step.inputs["table"], "jk", (j, k))
    else:
        operands["w"] = reader.value("w", step.inputs["w"], "kj", (k, j))
    expression = "sum(x * w, k)"
    if "b" in step.inputs:
        operands["b"] = reader.value("b", step.inputs["b"], "j", (j,))
        expression += " + b"
    return Formula(written("y", f"{lead}j"), expression, operands, "x @ w")


def linear_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dx = dy wᵀ, dw = xᵀ dy, db = Σ dy."""
    x, y, lead = step.inputs["x"], step.output, rows_of(step.output)
    if role == "x":
        *row, k = index
        j = along(y.shape[-1])
        dy = reader.gradient("dy", y, f"{lead}j", (*row, j))
        if "table" in step.inputs:
            w = reader.value("table", step.inputs["table"], "jk", (j, k))
        else:
            w = reader.value("w", step.inputs["w"], "kj", (k, j))
        return Formula(written("dx", f"{lead}k"), "sum(dy * w, j)", {"dy": dy, "w": w}, "dx = dy @")
    rows = every(y.shape[:-1])
    if role == "b":
        dy = reader.gradient("dy", y, f"{lead}j", (*rows, index[0]))
        return Formula("db[j]", f"sum(dy, {running(lead)})", {"dy": dy}, "db =")
    k, j = index if role == "w" else index[::-1]
    operands = {
        "x": reader.value("x", x, f"{lead}k", (*rows, k)),
        "dy": reader.gradient("dy", y, f"{lead}j", (*rows, j)),
    }
    result = "dw[k,j]" if role == "w" else "dtable[j,k]"
    return Formula(result, f"sum(x * dy, {running(lead)})", operands, "dw =")


def embedding(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = scale · table[ids]."""
    *row, i = index
    ids, scale = step.settings["ids"], step.settings.get("scale", 1.0)
    lead = "t" if ids.ndim == 1 else "nt"
    which = int(ids[tuple(row)])
    name = reader.graph.name(ids)
    also = () if name is None else (Link(name, tuple(int(one) for one in row)),)
    table = reader.value("table", step.inputs["table"], "", (which, i))
    table = Operand(f"table[ids[{','.join(lead)}],i]", table.values, table.name, table.index)
    operands = {"table": table} if scale == 1 else {"scale": plain("scale", scale), "table": table}
    return Formula(written("y", f"{lead}i"), " * ".join(operands), operands, "table[ids]", also)


def embedding_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dtable[v] = scale · Σ dy, over the places where v was looked up."""
    v, i = index
    ids, scale = step.settings["ids"], step.settings.get("scale", 1.0)
    lead = "t" if ids.ndim == 1 else "nt"
    row = np.nonzero(ids == v)
    if not row[0].size:
        return nothing("dtable[v,i]", f"row {v} was not looked up", "scatter_add(")
    operands = {"dy": reader.gradient("dy", step.output, f"{lead}i", (*row, i))}
    if scale != 1:
        operands["scale"] = plain("scale", scale)
    return Formula("dtable[v,i]", f"sum({' * '.join(operands)}, {running(lead)})", operands, "scatter_add(")


def relative_bias(reader: OperandReader, step: Step, index: Index) -> Formula:
    """bias = table[buckets], one number for each head."""
    h, t, s = index
    which = int(step.settings["ids"][t, s])
    table = reader.value("table", step.inputs["table"], "", (which, h))
    table = Operand("table[buckets[t,s],h]", table.values, table.name, table.index)
    return Formula("bias[h,t,s]", "table", {"table": table}, "table[buckets]")


def relative_bias_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dtable[b] = Σ dbias, over the pairs of positions in bucket b."""
    bucket, h = index
    t, s = np.nonzero(step.settings["ids"] == bucket)
    if not t.size:
        return nothing("dtable[b,h]", f"no distance falls into bucket {bucket}", "scatter_add(")
    dbias = reader.gradient("dbias", step.output, "hts", (h, t, s))
    return Formula("dtable[b,h]", "sum(dbias, t, s)", {"dbias": dbias}, "scatter_add(")
