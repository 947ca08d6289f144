"""Activations and gates, number by number; of registered ones, their results and a complex step through them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops import ACTIVATIONS
from ..formula import Formula, Index, Link, Operand
from ..graph import Step
from .operands import GradientReader, OperandReader, plain, rows_of, written

STEP = 1e-30
TWICE_U = "2 * sqrt(2 / pi) * ({0} + 0.044715 * {0}**3)"
CURVES = {"gelu": "Phi({0})", "gelu_tanh": f"sigma({TWICE_U})", "silu": "sigma({0})"}
"""The curve that rises from 0 to 1, by which x is weighed."""

ACTIVATED = {"relu": "larger({0}, 0)", **{name: f"{{0}} * {curve}" for name, curve in CURVES.items()}}
DERIVED = {
    "relu": "positive({0})",
    "gelu": "(s + {0} * exp(-{0}**2 / 2) / sqrt(2 * pi))",
    "gelu_tanh": "(s + {0} * s * (1 - s) * 2 * sqrt(2 / pi) * (1 + 3 * 0.044715 * {0}**2))",
    "silu": "s * (1 + {0} * (1 - s))",
}
"""The derivative of each, with s for its curve."""


def activation(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = act(x)."""
    expression, operands, also = _activated(reader, step, "x", index)
    return Formula(written("y", f"{rows_of(step.output)}f"), expression, operands, "return", also)


def activation_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dx = dy · act′(x)."""
    letters = f"{rows_of(step.output)}f"
    operands = {"dy": reader.gradient("dy", step.output, letters, index)}
    expression, read, also = _derived(reader, step, "x", index)
    return Formula(written("dx", letters), f"dy * {expression}", operands | read, "return", also)


def gated(reader: OperandReader, step: Step, index: Index) -> Formula:
    """y = act(gate) · up."""
    letters = f"{rows_of(step.output)}f"
    expression, operands, also = _activated(reader, step, "gate", index)
    operands["up"] = reader.value("up", step.inputs["up"], letters, index)
    return Formula(written("y", letters), f"{expression} * up", operands, "opened * up", also)


def gated_backward(reader: GradientReader, step: Step, role: str, index: Index) -> Formula:
    """dgate = dy · up · act′(gate), dup = dy · act(gate)."""
    letters = f"{rows_of(step.output)}f"
    operands = {"dy": reader.gradient("dy", step.output, letters, index)}
    if role == "up":
        expression, read, also = _activated(reader, step, "gate", index)
        return Formula(written("dup", letters), f"dy * {expression}", operands | read, "return", also)
    operands["up"] = reader.value("up", step.inputs["up"], letters, index)
    expression, read, also = _derived(reader, step, "gate", index)
    return Formula(written("dgate", letters), f"dy * up * {expression}", operands | read, "return", also)


Line = tuple[str, dict[str, Operand], tuple[Link, ...]]
"""A part of a formula, what it reads, and entries that it depends on besides."""


def _activated(reader: OperandReader, step: Step, role: str, index: Index) -> Line:
    """Return act(x) for one of the inputs; of a registered activation, only the number."""
    name, x = _name(step), _input(reader, step, role, index)
    if name in ACTIVATED:
        return ACTIVATED[name].format(role), {role: x}, ()
    forward, _ = ACTIVATIONS[name]
    return "opened", {"opened": plain(f"{name}({x.text})", forward(_alone(x))[0][0])}, _links(x)


def _derived(reader: OperandReader, step: Step, role: str, index: Index) -> Line:
    """Return act′(x) for one of the inputs; of a registered activation, by the complex step."""
    name, x = _name(step), _input(reader, step, role, index)
    if name not in DERIVED:
        return "rise", {"rise": plain(f"{name}′({x.text})", _complex_step(name, _alone(x)))}, _links(x)
    read = {role: x}
    if name in CURVES:
        curve = Formula("s", CURVES[name].format(role), {role: x})
        read["s"] = Operand(curve.text.removeprefix("s = "), curve)
    return DERIVED[name].format(role), read, ()


def _complex_step(name: str, x: Any) -> float:
    """Return act′(x) = Im act(x + ih) / h; of an activation for real numbers alone, what its own backward says."""
    forward, backward = ACTIVATIONS[name]
    try:
        y = forward(x + 1j * STEP)[0]
    except (TypeError, ValueError):
        y = x
    if np.iscomplexobj(y):
        return float(np.imag(y)[0] / STEP)
    return float(backward(np.ones_like(x), forward(x)[1])[0])


def _name(step: Step) -> str:
    return str(step.settings.get("activation", "silu"))


def _input(reader: OperandReader, step: Step, role: str, index: Index) -> Operand:
    return reader.value(role, step.inputs[role], f"{rows_of(step.output)}f", index)


def _alone(x: Operand) -> Any:
    return np.asarray(x.values, dtype=np.float64)[None]


def _links(x: Operand) -> tuple[Link, ...]:
    return tuple(x.links())
