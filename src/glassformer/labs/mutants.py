"""Typical mistakes, made by rule: every way to change one place of a function as people do.

The checker uses them both ways. A changed solution that gives the learner's numbers names the mistake in the terms of
the derivation; a change of the learner's own file that gives the right numbers names the line. Most rules are rows of
`mistakes.txt`.
"""

from __future__ import annotations

import ast
import copy
import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .patterns import Filled, called, is_method, match, parsed, rows

REDUCTIONS = (
    "sum", "mean", "max", "min", "amax", "amin", "var", "std", "prod", "average", "argmax", "argmin", "norm", "cumsum",
)  # fmt: skip
MASKS = ("mask", "allowed", "keep", "counts", "ignore", "valid", "causal", "blocked", "pad")
KEPT = ("len", "range", "zeros", "ones", "reshape", "astype", "copy", "append", "array", "where", "concatenate")
"""Functions whose first argument does not take their place."""
WRAPPED = (
    "np.sqrt(A)", "np.exp(A)", "np.log(A)", "np.tanh(A)", "np.maximum(A, 0)", "A**2", "A / A.sum(-1, keepdims=True)",
)  # fmt: skip
"""What may have been left out around an expression."""
BEGINNINGS = {
    "{a}, {b} = {b}, {a}": "swapped",
    "{a}, {b} = {a}[:-1], {b}[1:]": "off by one",
    "{b}, {a} = {b}[:-1], {a}[1:]": "off by one",
    "{a} = np.swapaxes({a}, -1, -2)": "transposed",
    "{a} = np.ones_like({a})": "mask",
    "{a} = ~{a}": "mask",
    "{a} = -{a}": "wrong sign",
}
"""Mistakes that amount to other arguments."""
INTO_ITSELF = re.compile(r"\b(\w+)\.(?:append|extend)\(\(?\1\b")  # NumPy makes an array without end of such a list
AXES = "-1", "-2", "0", "1", "None", "(0, 1)"

Change = tuple[str, Any]
"""The kind of a mistake and the node that stands in the place of another; None leaves a statement out."""


@dataclass(frozen=True)
class Mutant:
    """A function with one mistake."""

    kind: str
    words: str
    """What the mistake is, as the end of the sentence "your result is what comes out …"."""
    line: int
    function: str
    source: str
    """The text of the function alone."""


class Scope:
    """The names of a function, the texts that it looks up, and how its variables are computed."""

    def __init__(self, home: ast.FunctionDef) -> None:
        nodes: list[Any] = list(ast.walk(home))
        loaded, stored = (
            {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ctx)}
            for ctx in (ast.Load, ast.Store)
        )
        self.arguments = [one.arg for one in home.args.args + home.args.kwonlyargs]
        self.names = sorted({*self.arguments} | (loaded & stored))
        self.texts = sorted({n.value for n in nodes if _is_text(n) and n.value.isidentifier()})
        assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        self.values = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
        self.sizes: set[str] = set()
        for node in assigned:
            if self.is_size(node.value):
                self.sizes |= {one.id for one in ast.walk(node.targets[0]) if isinstance(one, ast.Name)}

    @functools.cached_property
    def twins(self) -> list[dict[str, str]]:
        """Names that go together: gamma1 and beta1 for gamma2 and beta2, m and v for new_m and new_v."""
        groups: dict[tuple[str, str], dict[str, str]] = {}
        for a, b in itertools.permutations((*self.names, *self.texts), 2):
            first = _in_common(a, b)
            last = 0 if first else _in_common(a[::-1], b[::-1])
            if first or last:
                groups.setdefault((a[first : len(a) - last], b[first : len(b) - last]), {})[a] = b
        return [names for names in groups.values() if len(names) > 1]

    def is_size(self, node: ast.AST) -> bool:
        """Tell whether an expression is made of sizes and numbers alone."""
        text = ast.unparse(node)
        loads = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} - {"np", "math", "len"}
        return bool(loads) and all(n in self.sizes or f"{n}.shape" in text or f"len({n})" in text for n in loads)


@dataclass(frozen=True)
class Place:
    """A node of a function that can be exchanged, and what stands around it."""

    node: Any
    parents: tuple[ast.AST, ...]
    scope: Scope

    @functools.cached_property
    def zone(self) -> str:
        """Tell a place in a row of places ("index") and a number made of sizes ("factor") from all others."""
        node = self.node
        for parent in reversed(self.parents):
            is_index = isinstance(parent, ast.Subscript) and node is parent.slice
            if is_index or called(parent) in ("range", "arange", "tril", "triu"):
                return "index"
            if isinstance(getattr(parent, "op", None), ast.Mult | ast.Div) and self.scope.is_size(node):
                return "factor"
            if not isinstance(parent, ast.expr):
                break
            node = parent
        return ""

    def name(self, kind: str, new: Any) -> str:
        """Return what a change is called here."""
        lost = removed(self.node, new)
        if lost is not None and is_mask(lost) and kind in ("missing term", "wrong factor"):
            return "mask"
        operands = [getattr(self.node, side, None) for side in ("left", "right")]
        has_number = any(isinstance(one, ast.Constant) and type(one.value) is int for one in operands)
        is_shift = kind != "wrong factor" and has_number and "arange(" in ast.unparse(self.node)
        is_place = self.zone == "index" and (kind != "wrong sign" or has_number)
        if (is_place or is_shift) and kind in ("missing term", "extra term", "wrong sign", "wrong factor"):
            return "off by one"
        return "wrong factor" if self.zone == "factor" and kind not in ("wrong sign", "off by one") else kind


def mutants(source: str, *functions: str) -> Iterator[Mutant]:
    """Yield copies of functions with one change, or with one kind of change throughout, plain ones first."""
    homes = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name in functions]
    homes.sort(key=lambda node: functions.index(node.name))
    texts = ["\n".join(source.splitlines()[home.lineno - 1 : home.end_lineno]) for home in homes]
    places = [list(_places(home)) for home in homes]
    seen = {*texts}
    for rule in RULES:
        for home, text, found in zip(homes, texts, places, strict=True):
            yield from beginnings(text, home) if rule is RULES[0] else ()
            same: dict[str, list[tuple[Place, str, Any]]] = {}
            for place in found:
                for number, (kind, new) in enumerate(rule(place)):
                    change = place, place.name(kind, new), new
                    form = "" if rule is axes else f"{type(place.node)} {called(place.node)}"
                    same.setdefault(f"{number} {kind} {form}", []).append(change)
                    yield from _made(text, home, [change], seen)
            for many in same.values() if rule in (from_table, axes) else ():
                yield from _made(text, home, many, seen)


def _made(text: str, home: ast.FunctionDef, changes: list[tuple[Place, str, Any]], seen: set[str]) -> Iterator[Mutant]:
    """Write changes into the text of a function."""
    data = text.encode()
    starts = [0, *itertools.accumulate(len(line) + 1 for line in data.split(b"\n"))]
    first = len(data)
    for place, _, new in sorted(changes, key=lambda change: (-change[0].node.lineno, -change[0].node.col_offset)):
        start = starts[place.node.lineno - home.lineno] + place.node.col_offset
        end = starts[place.node.end_lineno - home.lineno] + place.node.end_col_offset
        if end <= first:  # else it holds what was changed already
            written = "pass" if new is None else ast.unparse(ast.fix_missing_locations(new))
            data = data[:start] + (f"({written})" if isinstance(new, ast.expr) else written).encode() + data[end:]
            first = start
    (place, kind, new), source = changes[0], data.decode()
    if source not in seen and not INTO_ITSELF.search(source):
        seen.add(source)
        words = _words(place.node, new) + ", and so throughout" * (len(changes) > 1)
        yield Mutant(kind, words, place.node.lineno, home.name, source)


def beginnings(text: str, home: ast.FunctionDef) -> Iterator[Mutant]:
    """Yield copies that begin with other arguments: exchanged, shifted, transposed, turned."""
    names, lines = Scope(home).arguments, text.splitlines()
    at = home.body[0].lineno - home.lineno
    for form, kind in BEGINNINGS.items() if at else ():
        for a, b in itertools.combinations(names, 2) if "{b}" in form else ((name, "") for name in names):
            if kind != "mask" or is_mask(ast.Name(a)):
                line = form.format(a=a, b=b)
                source = "\n".join([*lines[:at], " " * home.body[0].col_offset + line, *lines[at:]])
                yield Mutant(kind, f"with `{line}` before all else", home.lineno, home.name, source)


def removed(old: Any, new: Any) -> Any:
    """Return the operand that a change leaves out, if it does."""
    if isinstance(old, ast.BinOp):
        return old.right if new is old.left else old.left if new is old.right else None
    return old if new is None else None


def _words(old: Any, new: Any) -> str:
    lost = removed(old, new)
    if lost is None:
        return f"with {_said(new)} in place of {_said(old)}"
    return f"without {_said(lost)}" + f" in {_said(old)}" * (lost is not old)


def _said(node: Any) -> str:
    text = ast.unparse(ast.fix_missing_locations(node))
    return f"`{text if len(text) <= 70 else text[:69] + '…'}`"


def _places(home: ast.FunctionDef) -> Iterator[Place]:
    scope = Scope(home)

    def visit(node: Any, parents: tuple[ast.AST, ...]) -> Iterator[Place]:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text or isinstance(node, ast.JoinedStr | ast.arguments):
            return
        is_fixed = isinstance(getattr(node, "ctx", None), ast.Store) or isinstance(node, ast.Slice | ast.Starred)
        if isinstance(node, ast.expr | ast.stmt) and not is_fixed and parents:
            yield Place(node, parents, scope)
        for child in ast.iter_child_nodes(node):
            if not _names_axis(node, child):
                yield from visit(child, (*parents, node))

    yield from visit(home, ())


def _names_axis(node: Any, child: ast.AST) -> bool:
    """Tell whether a child holds the number of an axis, which one rule changes as a whole."""
    if isinstance(node, ast.keyword):
        return node.arg in ("axis", "keepdims", "axes", "dtype")
    is_axis = called(node) in ("swapaxes", "transpose", "moveaxis", *REDUCTIONS)
    return is_axis and child in node.args[0 if is_method(node) else 1 :]


def is_mask(node: ast.AST) -> bool:
    """Tell whether a short expression is about a mask, by the names in it."""
    used = [one.id.casefold() for one in ast.walk(node) if isinstance(one, ast.Name)]
    return len(ast.unparse(node)) < 30 and any(word in name for name in used for word in MASKS)


def _in_common(a: str, b: str) -> int:
    return sum(itertools.takewhile(bool, (x == y for x, y in zip(a, b, strict=False))))


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


# --- rules: from a place to a kind of mistake and the node that stands there instead ----------------------------------


def from_table(place: Place) -> Iterator[Change]:
    """Apply the rows of the table that fit."""
    for kind, left, rights in rows():
        found: dict[str, Any] = {}
        if not match(left, place.node, found):
            continue
        for right in rights:
            if isinstance(right, ast.Pass | ast.Name):
                yield kind, None if isinstance(right, ast.Pass) else found[right.id]
            elif isinstance(right, ast.Call) and not right.args:  # another function, whatever its arguments
                func = copy.copy(place.node.func)
                setattr(func, "attr" if isinstance(func, ast.Attribute) else "id", called(right))
                yield kind, ast.Call(func, place.node.args, place.node.keywords)
            else:
                yield kind, Filled(found).visit(copy.deepcopy(right))


def axes(place: Place) -> Iterator[Change]:
    """Reduce over another axis, or over all of them; keep the axis or drop it."""
    node = place.node
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        yield from (("wrong axis", ast.Subscript(node.value, parsed(new), ast.Load())) for new in AXES[:4])
    given = {one.arg: one.value for one in node.keywords} if isinstance(node, ast.Call) else {}
    is_reduction = called(node) in REDUCTIONS
    if not is_reduction and "axis" not in given:
        return
    at = 0 if is_method(node) else 1
    args = node.args[:at] if is_reduction else node.args
    old = given.pop("axis", node.args[at] if len(node.args) > at else None)
    keeps = given.pop("keepdims", None) is not None
    rest = [ast.keyword(name, value) for name, value in given.items()]
    for keep in (keeps, not keeps) if is_reduction else (False,):
        for new in (*AXES, old):
            chosen = parsed(new) if isinstance(new, str) else new
            axis = [ast.keyword("axis", chosen)] if chosen is not None else []
            yield (
                "wrong axis",
                ast.Call(node.func, args, [*axis, *rest, *[ast.keyword("keepdims", ast.Constant(True))] * keep]),
            )


def calls(place: Place) -> Iterator[Change]:
    """Leave out a sum, a function, or what is done on a condition."""
    node = place.node
    if isinstance(node, ast.If):
        yield "missing function", None
        yield "missing function", node.body[0] if len(node.body) == 1 else None
    if not isinstance(node, ast.Call) or called(node) in KEPT:
        return
    inner = node.func.value if is_method(node) else node.args[0] if node.args else None  # type: ignore[attr-defined]
    if inner is not None and not isinstance(inner, ast.Starred | ast.GeneratorExp):
        yield "not summed" if called(node) in REDUCTIONS[:-1] else "missing function", inner


def orders(place: Place) -> Iterator[Change]:
    """Exchange two entries, two arguments, or two letters of an einsum."""
    node = place.node
    if isinstance(node, ast.Tuple | ast.List) and not any(isinstance(one, ast.Slice) for one in node.elts):
        yield from (("swapped", type(node)(many, ast.Load())) for many in _exchanged(node.elts))
    if called(node) == "einsum" and _is_text(node.args[0]):
        left, arrow, right = node.args[0].value.replace(" ", "").partition("->")
        parts = [*left.split(","), right]
        for at, part in enumerate(parts):
            for letters in _exchanged(part):
                changed = [*parts[:at], "".join(letters), *parts[at + 1 :]]
                text = ast.Constant(",".join(changed[:-1]) + arrow + changed[-1])
                yield "transposed", ast.Call(node.func, [text, *node.args[1:]], node.keywords)
    elif isinstance(node, ast.Call) and called(node) not in ("where", "swapaxes", "transpose"):
        yield from (("swapped", ast.Call(node.func, many, node.keywords)) for many in _exchanged(node.args))


def _exchanged(many: Any) -> Iterator[list[Any]]:
    for a, b in itertools.combinations(range(len(many)), 2):
        changed = list(many)
        changed[a], changed[b] = changed[b], changed[a]
        yield changed


def numbers(place: Place) -> Iterator[Change]:
    """Miss a place by one; take another number."""
    value: Any = getattr(place.node, "value", None)
    if type(value) not in (int, float) or (type(value) is int and isinstance(place.parents[-1], ast.keyword)):
        return
    if type(value) is int and place.zone == "index":
        yield from (("off by one", ast.Constant(value + step)) for step in (1, -1))
    else:
        others = (value * 2, value / 2, value * 10, value / 10, value + 1, value - 1)
        yield from (("wrong factor", ast.Constant(other)) for other in others)


def variables(place: Place) -> Iterator[Change]:
    """Take another variable, or another entry of a dict."""
    node, scope = place.node, place.scope
    if isinstance(node, ast.Name) and node.id in scope.names:
        for other in scope.names:
            yield _skipped(scope.values.get(node.id), other), ast.Name(other, ast.Load())
    if _is_text(node) and node.value in scope.texts:
        yield from (("wrong variable", ast.Constant(text)) for text in scope.texts)


def twins(place: Place) -> Iterator[Change]:
    """Take another variable throughout a statement, or those that go with others throughout a call."""
    node, scope = place.node, place.scope
    if isinstance(node, ast.Assign | ast.Return) and node.value is not None:
        used = [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]
        for name, other in itertools.product({n for n in used if used.count(n) > 1 and n in scope.names}, scope.names):
            changed = _Renamed({name: other}).visit(copy.deepcopy(node.value))
            yield _skipped(scope.values.get(name), other), type(node)(**{**vars(node), "value": changed})
    if isinstance(node, ast.Call | ast.Assign | ast.Return):
        for names in scope.twins:
            yield "wrong variable", _Renamed(names).visit(copy.deepcopy(node))


class _Renamed(ast.NodeTransformer):
    """Take variables for others."""

    def __init__(self, found: dict[str, str]) -> None:
        self.found = found

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_stored = isinstance(node.ctx, ast.Store)
        return node if is_stored else ast.Name(self.found.get(node.id, node.id), node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant(self.found.get(node.value, node.value) if isinstance(node.value, str) else node.value)


def _skipped(value: Any, other: str) -> str:
    """Name a variable's being taken for another: for one from which it is computed, a step is left out."""
    is_product = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Div)
    inputs = value.args if isinstance(value, ast.Call) else [value.left, value.right] if is_product else []
    if any(isinstance(one, ast.Name) and one.id == other for one in inputs):
        return "wrong factor" if is_product else "missing function"
    return "wrong variable"


def insertions(place: Place) -> Iterator[Change]:
    """Multiply by a variable once more, add one, or apply a function: what the other file lacks."""
    node = place.node
    if not isinstance(node, ast.BinOp | ast.Call | ast.Name) or place.zone == "index":
        return
    for name in place.scope.names if isinstance(node, ast.BinOp) else ():
        other = ast.Name(name, ast.Load())
        factor = "mask" if is_mask(other) else "wrong factor"
        for form, kind in {"* /": factor, "+ -": "extra term", "@": "extra function"}.items():
            for op in form.split():
                yield kind, Filled({"A": node, "B": other}).visit(parsed(f"A {op} B"))
    for text in WRAPPED:
        yield "extra function", Filled({"A": node}).visit(parsed(text))


RULES: tuple[Any, ...] = from_table, axes, calls, orders, numbers, variables, twins, insertions
