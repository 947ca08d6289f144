"""The language of formulas: Python's arithmetic and a few functions, to be computed, taken apart and written.

    sum(x[n,t,k] * w[k,j], k) + b[j]      Σ_k x[n,t,k] · w[k,j] + b[j]      0.52 · 1.3 + … + 126 more + 0.01

`sum`, `mean` and `max` run over the letters that follow, along operands that hold several numbers. An operand is a
name, or a name with its index; it has the key "b" or "b[j]" among the values of a formula.
"""

import ast
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from typing import Any, NamedTuple

import numpy as np

from ..core.format import digits
from ..ops import ACTIVATIONS
from ..proofs.gradient import STEP

SHOWN = 3
"""How many terms of a long sum are written out."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "mean": np.mean,
    "max": np.max,
    "larger": max,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "sigma": lambda x: 0.5 * (1 + np.tanh(0.5 * x)),
    "Phi": lambda x: 0.5 * math.erfc(-x / math.sqrt(2)),  # by the standard library: not as `ops` computes it
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


@cache
def parsed(expression: str) -> Any:
    """Read a line once."""
    return ast.parse(expression, mode="eval").body


@cache
def key_of(node: Any) -> str:
    """Return the key of an operand: its name, with its index where it has one."""
    return ast.unparse(node).replace(" ", "")


def computed(node: Any, values: Mapping[str, Any]) -> Any:
    """Compute a part of a line."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name | ast.Subscript):
        key = key_of(node)
        return math.pi if key == "pi" else values[key]
    if isinstance(node, ast.UnaryOp):
        return -computed(node.operand, values)
    if isinstance(node, ast.Call):
        name = key_of(node.func)
        arguments = [computed(one, values) for one in (node.args[:1] if name in RUNNING else node.args)]
        return FUNCTIONS[name](*arguments) if name in FUNCTIONS else _registered(name, *arguments)
    if isinstance(node.op, ast.Pow):
        return computed(node.left, values) ** node.right.value
    return OPERATORS[type(node.op)][2](computed(node.left, values), computed(node.right, values))


def _registered(name: str, x: float) -> float:
    """Return a registered activation, act_square(x), or its slope, slope_square(x) = Im act(x + ih) / h.

    The slope of an activation for real numbers alone is what its own backward returns.
    """
    way, _, own = name.partition("_")
    forward, backward = ACTIVATIONS[own]
    row = np.array([x], dtype=np.float64)
    if way == "act":
        return float(forward(row)[0][0])
    try:
        y = forward(row + 1j * STEP)[0]
    except (TypeError, ValueError):
        y = row
    if np.iscomplexobj(y):
        return float(np.imag(y)[0] / STEP)
    return float(backward(np.ones_like(row), forward(row)[1])[0])


def is_call(node: Any, *names: str) -> bool:
    """Return whether a part of a line is a call of one of these functions."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


@cache
def operands_in(node: Any) -> list[Any]:
    """Return the operands of a part of a line, in order, each once."""
    if isinstance(node, ast.Name | ast.Subscript):
        return [node]
    inner = ast.iter_child_nodes(node)
    if isinstance(node, ast.Call):
        inner = iter(node.args[:1] if is_call(node, *RUNNING) else node.args)
    found = {key_of(one): one for child in inner for one in operands_in(child)}
    return list(found.values())


@cache
def runs(node: Any) -> bool:
    """Return whether there is a sum in a part of a line."""
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


POWERS = {2: "²", 3: "³"}
OPERAND = re.compile(r"[^\W\d]\w*(\[[^ ]*\])?")
PIECES = re.compile(r"([^\W\d]\w*)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]|(\d+)|(\w+)|(\W)")
NUMBER = re.compile(r"(−?[\d.]+)e(−?)\+?0*(\d+)")


class Text:
    """Formulas as plain text."""

    fractions = False  # whether a quotient is a fraction, which needs no parentheses

    def symbol(self, text: str) -> str:
        """Write an operand, x[n,t,k], or words."""
        return text

    def number(self, text: str) -> str:
        """Write a number."""
        return text

    def sign(self, text: str) -> str:
        """Write an operator."""
        return text

    def group(self, inner: str, ends: str = "()") -> str:
        """Write parentheses around a part."""
        return f"{ends[0]}{inner}{ends[1]}"

    def divide(self, top: str, bottom: str) -> str:
        """Write a quotient."""
        return f"{top} / {bottom}"

    def in_line(self) -> "Text":
        """Return the same without fractions, for the inside of a root: not every font draws tall ones."""
        return self

    def power(self, base: str, exponent: int) -> str:
        """Write a power."""
        return base + POWERS[exponent]

    def call(self, name: str, arguments: list[str]) -> str:
        """Write a function of its arguments."""
        return f"{name}({', '.join(arguments)})"

    def over(self, name: str, letters: str, inner: str) -> str:
        """Write a sum, a mean or a maximum over letters."""
        return f"Σ_{letters} {inner}" if name == "sum" else f"{name}_{letters}({inner})"

    def more(self, count: int) -> str:
        """Write how many terms are left out."""
        return f"… + {count} more"


class MathML(Text):
    """Formulas as presentation MathML."""

    def __init__(self, *, fractions: bool = True) -> None:
        self.fractions = fractions

    def symbol(self, text: str) -> str:
        return _pieces(text) if OPERAND.fullmatch(text) else f"<mtext>{escape(text)}</mtext>"

    def number(self, text: str) -> str:
        if found := NUMBER.fullmatch(text):
            return f"<mn>{found[1]}</mn><mo>·</mo><msup><mn>10</mn><mn>{found[2]}{found[3]}</mn></msup>"
        return f"<mn>{text}</mn>"

    def sign(self, text: str) -> str:
        return f"<mo>{text.strip()}</mo>"

    def group(self, inner: str, ends: str = "()") -> str:
        tall = "" if "<mfrac>" in inner or "∑" in inner else ' stretchy="false"'
        return f"<mrow><mo{tall}>{ends[0]}</mo>{inner}<mo{tall}>{ends[1]}</mo></mrow>"

    def divide(self, top: str, bottom: str) -> str:
        fraction = f"<mfrac><mrow>{top}</mrow><mrow>{bottom}</mrow></mfrac>"
        return fraction if self.fractions else f"{top}<mo>/</mo>{bottom}"

    def in_line(self) -> "MathML":
        return MathML(fractions=False)

    def power(self, base: str, exponent: int) -> str:
        return f"<msup><mrow>{base}</mrow><mn>{exponent}</mn></msup>"

    def call(self, name: str, arguments: list[str]) -> str:
        if name == "√":
            return f"<msqrt>{arguments[0]}</msqrt>"
        return f"<mi>{escape(name)}</mi>{self.group('<mo>,</mo>'.join(arguments))}"

    def over(self, name: str, letters: str, inner: str) -> str:
        below = f"<mrow>{_pieces(letters)}</mrow>"
        if name == "sum":
            return f"<munder><mo>∑</mo>{below}</munder>{inner}"
        return f"<msub><mi>{name}</mi>{below}</msub>{self.group(inner)}"

    def more(self, count: int) -> str:
        return f"<mo>…</mo><mo>+</mo><mtext>{count} more</mtext>"


TEXT = Text()


def equation(*sides: str) -> str:
    """Return typeset sides as an equation, an element of its own."""
    inside = "<mo>=</mo>".join(f"<mrow>{side}</mrow>" for side in sides)
    return f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">{inside}</math>'


def _pieces(text: str) -> str:
    """Typeset names with their indices, letters, whole numbers and signs."""
    found = []
    for name, index, number, word, sign in PIECES.findall(text):
        if name:
            found.append(f"<msub><mi>{name}</mi><mrow>{_pieces(index)}</mrow></msub>")
        elif number or word:
            found.append(f"<mn>{number}</mn>" if number else f"<mi>{word}</mi>")
        elif sign == ",":
            found.append('<mo lspace="0" rspace=".1em">,</mo>')
        else:
            found.append(f"<mo>{escape(sign)}</mo>")
    return "".join(found)


class Writer(NamedTuple):
    """Writes a line, with its numbers where `values` are given; `texts` are how its operands are written."""

    texts: Mapping[str, str]
    values: Mapping[str, Any] | None = None
    script: Text = TEXT

    def write(self, node: Any, place: int | None = None, above: int = 0) -> str:
        """Write a part of a line, of several numbers the one at `place`; `above` is how strongly its context binds."""
        script = self.script
        if isinstance(node, ast.Constant):
            return script.number(str(node.value))
        if isinstance(node, ast.Name | ast.Subscript):
            return self._operand(key_of(node), place, above)
        if isinstance(node, ast.UnaryOp):
            return script.sign("−") + self.write(node.operand, place, 2)
        if isinstance(node, ast.Call):
            return self._call(node, place, above)
        if isinstance(node.op, ast.Pow):
            return script.power(self.write(node.left, place, 3), node.right.value)
        sign, strength, _ = OPERATORS[type(node.op)]
        if isinstance(node.op, ast.Div) and script.fractions:
            return script.divide(self.write(node.left, place), self.write(node.right, place))
        loose = strength if strength > 1 else 0  # a sum may begin with a minus
        left = self.write(node.left, place, loose)
        right = self.write(node.right, place, strength + isinstance(node.op, ast.Sub | ast.Div))
        text = script.divide(left, right) if isinstance(node.op, ast.Div) else f"{left}{script.sign(sign)}{right}"
        return script.group(text) if strength < above else text

    def _operand(self, key: str, place: int | None, above: int) -> str:
        if key not in self.texts:
            return self.script.symbol("π" if key == "pi" else key)
        if self.values is None or (np.ndim(self.values[key]) and place is None):
            return self.script.symbol(self.texts[key])
        value = self.values[key]
        return self._number(float(value if np.ndim(value) == 0 else value[place]), above)

    def _number(self, number: float, above: int = 0) -> str:
        text = self.script.number(digits(number))
        return self.script.group(text) if number < 0 and above else text

    def _call(self, node: Any, place: int | None, above: int) -> str:
        name, inner, script = node.func.id, node.args[0], self.script
        if name == "positive":
            return script.group(f"{self.write(inner, place)}{script.sign(' > ')}{script.number('0')}", "[]")
        if name not in RUNNING:
            way, _, own = name.partition("_")
            sign = SIGNS.get(name, f"{own}{'′' if way == 'slope' else ''}" if own else name)
            inside = self._replace(script=script.in_line()) if name == "sqrt" else self
            return script.call(sign, [inside.write(one, place) for one in node.args])
        if self.values is None:
            letters = ",".join(one.id for one in node.args[1:])
            text = script.over(name, letters, self.write(inner, above=2 * (name == "sum")))
            return script.group(text) if name == "sum" and above >= 2 else text
        terms = np.atleast_1d(computed(inner, self.values))
        if name == "max":
            return self._number(float(np.max(terms)))
        text = self._terms(inner, terms)
        if name == "mean":
            return script.divide(text if script.fractions else f"({text})", script.number(str(terms.size)))
        return script.group(text) if above > 1 and terms.size > 1 else text

    def _terms(self, inner: Any, terms: Any) -> str:
        """Write the largest terms of a sum, and how many there are besides."""
        if terms.size == 0:
            return self.script.number("0")
        plus = self.script.sign(" + ")
        largest = np.argsort(-np.abs(terms), kind="stable")[:SHOWN]
        parts = [self.write(inner, int(place), 1) for place in largest]
        return plus.join(parts if terms.size <= SHOWN else [*parts, self.script.more(terms.size - SHOWN)])
