"""The language of formulas: Python's arithmetic and a few functions, to be computed, taken apart and written.

    sum(x * w, k) + b        Σ_k x[n,t,k] · w[k,j] + b[j]        0.52 · 1.3 + 0.4 · (−0.2) + … + 126 more + 0.01

`sum`, `mean` and `max` run over the letters that follow, along operands that hold several numbers.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol

import numpy as np

SHOWN = 3
"""How many terms of a long sum are written out."""


class Text(Protocol):
    """How an operand is written."""

    @property
    def text(self) -> str: ...


class Line(Protocol):
    """A line with what stands in it: how each operand is written, and its numbers."""

    @property
    def operands(self) -> Mapping[str, Text]: ...

    @property
    def values(self) -> Mapping[str, Any]: ...


def _normal(x: float) -> float:
    """Return Φ(x), by the error function of the standard library: not as `ops` computes it."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "larger": max,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "sigma": lambda x: 0.5 * (1 + np.tanh(0.5 * x)),
    "Phi": _normal,
    "positive": lambda x: float(x > 0),
}
SIGNS: dict[str, str] = {"sqrt": "√", "sigma": "σ", "Phi": "Φ", "larger": "max"}
RUNNING = ("sum", "mean", "max")
OPERATORS: dict[type, tuple[str, int, Callable[[Any, Any], Any]]] = {
    ast.Add: (" + ", 1, lambda a, b: a + b),
    ast.Sub: (" − ", 1, lambda a, b: a - b),
    ast.Mult: (" · ", 2, lambda a, b: a * b),
    ast.Div: (" / ", 2, lambda a, b: a / b),
}
POWERS = {2: "²", 3: "³"}


@cache
def parsed(expression: str) -> Any:
    """Read a line once."""
    return ast.parse(expression, mode="eval").body


def computed(node: Any, values: Mapping[str, Any]) -> Any:
    """Compute a part of a line."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return math.pi if node.id == "pi" else values[node.id]
    if isinstance(node, ast.UnaryOp):
        return -computed(node.operand, values)
    if isinstance(node, ast.Call):
        name = _function(node)
        arguments = node.args[:1] if name in RUNNING else node.args
        return FUNCTIONS[name](*(computed(one, values) for one in arguments))
    if isinstance(node.op, ast.Pow):
        return computed(node.left, values) ** node.right.value
    return OPERATORS[type(node.op)][2](computed(node.left, values), computed(node.right, values))


def is_call(node: Any, *names: str) -> bool:
    """Tell whether a part of a line is a call of one of these functions."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _function(node: Any) -> str:
    return str(node.func.id)


@cache
def names_in(node: Any) -> list[str]:
    """Return the names that stand in a part of a line, in order."""
    return list(dict.fromkeys(one.id for one in ast.walk(node) if isinstance(one, ast.Name)))


@cache
def runs(node: Any) -> bool:
    """Tell whether there is a sum in a part of a line."""
    return any(is_call(one, *RUNNING) for one in ast.walk(node))


def addends(node: Any, sign: int = 1) -> list[tuple[int, Any]]:
    """Take a sum apart, each term with its sign."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        behind = -sign if isinstance(node.op, ast.Sub) else sign
        return [*addends(node.left, sign), *addends(node.right, behind)]
    if isinstance(node, ast.UnaryOp):
        return addends(node.operand, -sign)
    return [(sign, node)]


def factors(node: Any) -> list[Any]:
    """Take a product apart."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors(node.left), *factors(node.right)]
    return [node]


# --- how it is written -----------------------------------------------------------------------------------------------


def shown(number: float) -> str:
    """Write a number with four digits."""
    return f"{number + 0.0:.4g}".replace("-", "−")


def written(node: Any, line: Line, place: int | None, filled: bool, above: int = 0) -> str:
    """Write a part of a line, in letters or with its numbers; `above` is how strongly what is around it binds."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.Name):
        return _name_written(node.id, line, place, filled, above)
    if isinstance(node, ast.UnaryOp):
        return f"−{written(node.operand, line, place, filled, 2)}"
    if isinstance(node, ast.Call):
        return _call_written(node, line, place, filled, above)
    if isinstance(node.op, ast.Pow):
        return written(node.left, line, place, filled, 3) + POWERS[node.right.value]
    sign, strength, _ = OPERATORS[type(node.op)]
    loose = strength if strength > 1 else 0  # a sum may begin with a minus
    tight = strength + isinstance(node.op, ast.Sub | ast.Div)
    sides = (written(node.left, line, place, filled, loose), written(node.right, line, place, filled, tight))
    text = sign.join(sides)
    return f"({text})" if strength < above else text


def _name_written(name: str, line: Line, place: int | None, filled: bool, above: int) -> str:
    if name not in line.operands:
        return "π" if name == "pi" else name
    if not filled:
        return line.operands[name].text
    value = line.values[name]
    if np.ndim(value) and place is None:
        return line.operands[name].text
    number = float(value if np.ndim(value) == 0 else value[place])
    return f"({shown(number)})" if number < 0 and above else shown(number)


def _call_written(node: Any, line: Line, place: int | None, filled: bool, above: int) -> str:
    name = node.func.id
    if name == "positive":
        return f"[{written(node.args[0], line, place, filled)} > 0]"
    if name not in RUNNING:
        return f"{SIGNS.get(name, name)}({', '.join(written(one, line, place, filled) for one in node.args)})"
    inner, letters = node.args[0], ",".join(one.id for one in node.args[1:])
    if not filled:
        strength = 2 if name == "sum" else 0
        text = written(inner, line, None, False, strength)
        text = f"Σ_{letters} {text}" if name == "sum" else f"{name}_{letters}({text})"
        return f"({text})" if name == "sum" and above >= 2 else text
    values = np.atleast_1d(computed(inner, line.values))
    if name == "max":
        return shown(float(np.max(values)))
    text = _terms_written(inner, line, values)
    if name == "mean":
        return f"({text}) / {values.size}"
    return f"({text})" if above > 1 and values.size > 1 else text


def _terms_written(inner: Any, line: Line, values: Any) -> str:
    """Write the largest terms of a sum, and how many there are besides."""
    if values.size == 0:
        return "0"
    largest = np.argsort(-np.abs(values), kind="stable")[:SHOWN]
    text = " + ".join(written(inner, line, int(place), True, 1) for place in largest)
    return text if values.size <= SHOWN else f"{text} + … + {values.size - SHOWN} more"
