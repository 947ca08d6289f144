"""The formulas of a run with letters in the place of an index: a page with the numbers, but no model, fills them in.

    found = Templates(cards).to_dict()
    found["of"]["blocks.0.attention"]     op, other names, readers, and the formula with where its operands stand

A part of an index is a number, a letter, or [sign, part, part]: "i0", "i1", … are the index of the entry itself, other
letters run from 0 on. ["table", 3, part, …] is an entry of a table that is part of the answer, such as the tokens;
["value", name, part, …] an entry of a value. If entries are made in several ways there are several cases: the first one
holds whose `when` is not 0.
"""

from collections.abc import Callable
from functools import partialmethod
from typing import Any, NamedTuple

from ..core.arrays import Array
from .arithmetic import parsed
from .card import Source, source_of
from .cards import Cards
from .explainer import Explainer
from .formula import Formula, Index, Letters, Operand, fill, running
from .formulas import TABLE, formula_of, key_head, moved_letters, rotated_pair, starts_with, visible_keys
from .graph import Step
from .names import MASK

LARGEST_TABLE = 100_000
"""Entries of an array without a name that is kept, at most."""


class Part:
    """A part of an index that is not known yet: what is computed with it is written down."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree

    def _with(self, sign: str, other: Any) -> Any:
        return Part([sign, self.tree, tree_of(other)])

    __add__, __sub__ = partialmethod(_with, "+"), partialmethod(_with, "-")
    __floordiv__, __mod__ = partialmethod(_with, "//"), partialmethod(_with, "%")

    def __mul__(self, other: Any) -> Any:
        return self._with("*", other) if other else 0


def tree_of(part: Any) -> Any:
    """Return a part of an index as plain data."""
    return part.tree if isinstance(part, Part) else int(part)


class Case(NamedTuple):
    """One way in which entries are made: which formula, what its letters stand for, which running ones count."""

    when: Any
    other: int
    letters: Letters
    counts: Any = None


class Templates(Explainer):
    """The templates of a run, from its cards."""

    def __init__(self, cards: Cards) -> None:
        super().__init__(cards.graph)
        self.cards = cards
        self.tables: dict[int, tuple[int, Array]] = {}
        self.sources: dict[str, Source] = {}

    def to_dict(self) -> dict[str, Any]:
        """Return the templates of all values by their names, with the tables and the lines of source they refer to."""
        of = {name: self._template(name) for name in self.graph.run}
        tables = [array.tolist() for _, array in self.tables.values()]
        return {"of": of, "tables": tables, "sources": {key: one._asdict() for key, one in self.sources.items()}}

    def value(self, text: str, array: Array, index: Index) -> Operand:
        """Return where entries of an array stand: under its name, or in a table."""
        name, place = self.graph.found(array, index)
        if name is not None and name not in self.graph.inputs:
            return Operand(text, 0.0, name, place)
        if array.size > LARGEST_TABLE:
            return Operand(text, 0.0, None)
        number, _ = self.tables.setdefault(id(array), (len(self.tables), array))
        return Operand(text, Part(["table", number, *map(tree_of, index)]))

    def _template(self, name: str) -> dict[str, Any]:
        run, array = self.graph.run, self.graph.run[name]
        also = [other for other in self.graph.names(array) if other != name]
        own: dict[str, Any] = {"feeds": list(dict.fromkeys(self.graph.fed(array))), "also": also, "cases": []}
        address = run.addresses[name]
        changes = [change.word for change in run.changes if run.addresses.get(change.name) == address]
        if changes or address.place == MASK:
            note = f"changed: {' and '.join(changes)}" if changes else "1 where a query may look"
            return {**own, "op": "ops.attention", "note": note}
        index = tuple(Part(f"i{axis}") for axis in range(array.ndim))
        step, place = self.maker(array, index)
        if step is None or "y" not in TABLE.get(step.rule, {}):
            by = step.op if step is not None else "lines between two calls"
            return {**own, "op": by, "note": f"computed by {by}, which has no formula here"}
        moved = "" if place is index else f"{name.rpartition('.')[2]}[{'n,h,t,c' if array.ndim == 4 else 'n,t,i'}] = "
        choose = TABLE[step.rule]["y"].choose
        changed = int(any(self.original(one) is not one for one in step.inputs.values()))
        cases = CASES[choose](self, step, place) if choose else [Case(None, changed, {})]
        return {**own, "op": step.op, "note": "", "cases": [self._case(step, place, one, moved) for one in cases]}

    def _case(self, step: Step, index: Index, case: Case, moved: str) -> dict[str, Any]:
        line = TABLE[step.rule]["y"]
        text = formula_of(step, "y", line.other if case.other and line.other else line.formula)
        find = self._symbols(step, line.formula.partition("[")[0])
        sizes: dict[str, int] = {}
        if not text.partition(" = ")[2].startswith("0, for"):
            letters = running(parsed(text.partition(" = ")[2]), find, {})
            sizes = {letter: int(numbers.max(initial=-1)) + 1 for letter, numbers in letters.items()}
        made = fill(text, find, index, {**{one: Part(one) for one in sizes}, **case.letters}, line.source)
        source = source_of(step.call.function, line.source)
        key = f"{step.op} {line.source}"
        if source is not None:
            self.sources[key] = source
        return {
            **_written(made, sizes, moved),
            "when": case.when and tree_of(case.when),
            "running": sizes,
            "counts": case.counts and tree_of(case.counts),
            "source": None if source is None else key,
        }

    def mask_at(self, step: Step, index: Index) -> Part | None:
        """Return the entry of the mask of a softmax, None where nothing is hidden."""
        name = f"{(self.graph.name(step.output) or '').rpartition('.')[0]}.{MASK}"
        return Part(["value", name, *map(tree_of, index)]) if name in self.graph.run else None


def _written(made: Formula, sizes: dict[str, int], moved: str) -> dict[str, Any]:
    """Return a formula, typeset, the same with places for the numbers that do not run, and where the numbers stand."""
    operands = []
    for one in made.operands.values():
        if isinstance(one.values, Part):
            own = {"at": one.values.tree}
        elif one.name is not None:
            own = {"at": ["value", one.name, *map(tree_of, one.index)]}
        else:
            own = {"value": float(one.values)}
        operands.append({"text": one.text, **own, "runs": [letter for letter in sizes if _has(own.get("at"), letter)]})
    blanks = tuple("" if one["runs"] or "[" not in one["text"] else one["text"] for one in operands)
    full = Formula(moved + made.result, made.expression, made.operands)
    return {"math": full.mathml, "filled_math": full.blank_mathml(blanks), "operands": operands}


def _has(tree: Any, letter: str) -> bool:
    return any(_has(one, letter) for one in tree[1:]) if isinstance(tree, list) else tree == letter


def _in_pairs(self: Templates, step: Step, index: Index) -> list[Case]:
    second, letters = rotated_pair(step, index)
    return [Case(second, 1, letters), Case(None, 0, letters)]


def _in_softmax(self: Templates, step: Step, index: Index) -> list[Case]:
    mask = self.mask_at(step, index)
    if mask is None:
        return [Case(None, 0, {"u": Part("u")})]
    return [Case(mask, 0, {"u": Part("u")}, self.mask_at(step, (*index[:-1], Part("u")))), Case(None, 1, {})]


CASES: dict[Any, Callable[[Templates, Step, Index], list[Case]]] = {
    key_head: lambda _, step, index: [Case(None, *key_head(step, index))],
    visible_keys: _in_softmax,
    rotated_pair: _in_pairs,
    moved_letters: lambda _, step, index: [Case(None, *moved_letters(step, index))],
    starts_with: lambda _, step, index: [Case(index[1], 1, {}), Case(None, 0, {})],
}
"""The cases of lines that choose, by the functions that choose for one entry."""
