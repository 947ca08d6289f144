"""Formulas as text, or typeset as presentation MathML, in the names of the code.

TEXT      y[n,t,j] = Σ_k x[n,t,k] · w[k,j]
MATHML    <msub><mi>y</mi>…</msub><mo>=</mo><munder><mo>∑</mo><mi>k</mi></munder>…
"""

import re
from html import escape

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
