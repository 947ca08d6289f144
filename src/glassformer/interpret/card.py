"""The card of a number: where any entry of any value, parameter or gradient of a run comes from.

    cards = Cards(run)                                         found once, asked often
    made = cards.card("blocks.0.attention", (0, 4, 2))
    made.formula      y[n,t,j] = Σ_k x[n,t,k] · w[k,j] + b[j]
    made.filled       0.31 = 0.52 · 1.3 + … + 29 more + 0.01
    evaluate(made)    the same number, from what stands on the card alone
    cards.card("blocks.0.attention", (0, 4, 2), gradient=True)

A gradient is the sum of what all readers of a value send back, and the card says how much each of them does: of the
residual stream, what comes through a sublayer and what comes past it.
"""

import ast
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import ConfigError
from .formula import Formula, Link, Operand, Part, Term, links_of

PACKAGE = Path(__file__).resolve().parents[1]


class Source(NamedTuple):
    """The text of a function.

    name    of the function, or of the method with its class
    file    from the package on; of a registered function, the name of its file alone
    line    where it begins
    lines   the first and the last of the lines that computed what is asked about, as far as that can be told
    """

    name: str
    file: str
    line: int
    text: str
    lines: tuple[int, int]


MOST = 40
"""How many terms and links are handed on as plain data: the largest."""


@dataclass(frozen=True, eq=False)
class Reader:
    """The part of a gradient that one reader of a value sends back to it.

    source   the lines that computed it; `undoes`, what they undo
    """

    label: str
    op: str
    made: Formula
    source: Source | None = None
    undoes: Source | None = None

    @property
    def operand(self) -> Operand:
        """Its part of the sum of all."""
        return Operand(self.label, self.made.number(), inner=lambda place: self.made)


@dataclass(frozen=True, eq=False)
class Card:
    """One number, and everything about it.

    axes       what each part of the index is called
    kind       value, parameter, gradient or input
    op         who computed it
    made       the formula with its numbers; None where it is not known, and `note` says so
    feeds      names of what was computed from it; of a gradient, of what it goes on to
    also       other names of the same value
    readers    of a gradient: what each reader of the value sends back
    source     the lines that computed it, and those that computed its gradient; of a gradient, those that they undo
    gradient   the gradient of the entry, None where it has none, for a `reason`; of a gradient, itself
    """

    name: str
    index: tuple[int, ...]
    axes: list[str]
    shape: tuple[int, ...]
    value: float
    kind: str
    op: str
    made: Formula | None = None
    note: str = ""
    feeds: list[str] = field(default_factory=list)
    also: list[str] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    source: dict[str, Source | None] = field(default_factory=dict)
    gradient: float | None = None
    reason: str = ""
    read: list[str] = field(default_factory=list)  # the names of what was read, where entries are not known

    def __repr__(self) -> str:
        return f"<card of {self.name}{list(self.index)}: {self.filled or self.op}>"

    @property
    def formula(self) -> str | None:
        """The formula, in the names of the code."""
        return None if self.made is None else self.made.text

    @property
    def filled(self) -> str | None:
        """The formula with its numbers, of long sums the largest terms."""
        return None if self.made is None else self.made.filled

    @property
    def mathml(self) -> str | None:
        """The formula, typeset as presentation MathML."""
        return None if self.made is None else self.made.mathml

    @property
    def terms(self) -> list[Term]:
        """All terms of the formula."""
        return [] if self.made is None else self.made.terms()

    @property
    def inputs(self) -> Iterator[Link]:
        """The entries that it was made from."""
        return iter(()) if self.made is None else self.made.links()

    def to_dict(self, most: int = MOST) -> dict[str, Any]:
        """Return plain data, of long formulas the `most` largest terms and how much the others are."""
        own = {name: _plain(value) for name, value in vars(self).items() if name not in ("made", "readers")}
        each = most // max(len(self.readers), 1) + 4
        readers = [{"label": reader.label, "op": reader.op, **_formula(reader.made, each)} for reader in self.readers]
        return {**own, **_formula(self.made, most), "readers": readers}


def evaluate(card: Card) -> float:
    """Compute a number again, from the formula and the numbers on its card."""
    if card.made is None:
        raise ConfigError(f"the card of {card.name} has no formula", hint=card.note or "its op is not in the table")
    return card.made.number()


def _formula(made: Formula | None, most: int) -> dict[str, Any]:
    """Return a formula as plain data."""
    if made is None:
        return {"formula": None, "math": None, "evaluated": None, "terms": [], "inputs": []}
    terms, count = made.terms(most), made.link_count()
    rest = made.total() - math.fsum(term.value for term in terms) if made.size > len(terms) else 0.0
    links = list(made.links()) if count <= 2 * most else links_of(terms)
    return {
        "formula": made.text,
        "filled": made.filled,
        "math": made.mathml,
        "filled_math": made.filled_mathml,
        "combine": made.combine,
        "evaluated": _plain(made.number()),
        "terms": _plain(terms),
        "more": made.size - len(terms),
        "rest": _plain(rest),
        "inputs": _plain(links),
        "more_inputs": count - len(links) if count > 2 * most else 0,
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON has it; a number that is not finite as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Term | Source):
        return _plain(value._asdict())
    if isinstance(value, Part | Link):
        return _plain(vars(value))
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


# --- the lines of source ----------------------------------------------------------------------------------------------


def source_of(function: Callable[..., Any] | None, piece: str = "") -> Source | None:
    """Return the source of a function and the lines with a piece of text; None where there is no file to read."""
    if function is None:
        return None
    raw = inspect.unwrap(function)
    found = _text(raw)
    if found is None:
        return None
    file, first, text = found
    rows = text.splitlines()
    hits = [number for number, row in enumerate(rows) if piece and piece in row]
    # Docstrings quote formulas: what computes stands below.
    hits = [number for number in hits if number >= _body(text)] or list(range(_body(text), len(rows)))
    return Source(raw.__qualname__, file, first, text, (first + hits[0], first + hits[-1]))


@cache
def _text(function: Callable[..., Any]) -> tuple[str, int, str] | None:
    try:
        rows, first = inspect.getsourcelines(function)
        path = Path(inspect.getsourcefile(function) or "")
    except (OSError, TypeError):
        return None
    # A lambda has the line around it, and what was made by `exec` the line of `python -c`: neither is its source.
    if getattr(_definition("".join(rows)), "name", None) != function.__name__:
        return None
    inside = path.is_relative_to(PACKAGE)
    return path.relative_to(PACKAGE).as_posix() if inside else path.name, first, "".join(rows)


@cache
def _definition(text: str) -> Any:
    """Return the statement of a text, None if it cannot be read alone."""
    try:
        return ast.parse(textwrap.dedent(text)).body[0]
    except (SyntaxError, IndexError):
        return None


def _body(text: str) -> int:
    """Return the number of the first row behind the signature and the docstring."""
    function = _definition(text)
    is_documented = ast.get_docstring(function) is not None and len(function.body) > 1
    return int(function.body[is_documented].lineno) - 1
