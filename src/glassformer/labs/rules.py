"""Rules by which people mistake one thing for another: from a place in a function to what may stand there instead.

Most are rows of `mistakes.txt`.
"""

import ast
import copy
import functools
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .patterns import called, filled, in_common, is_method, is_text, match, parsed, renamed, rows

REDUCTIONS = (
    "sum", "mean", "max", "min", "amax", "amin", "var", "std", "prod", "average", "argmax", "argmin", "norm", "cumsum",
)  # fmt: skip
MASKS = ("mask", "allowed", "keep", "counts", "ignore", "valid", "causal", "blocked", "pad")
KEPT = ("len", "range", "zeros", "ones", "reshape", "astype", "copy", "append", "array", "where", "concatenate")
"""Functions whose first argument does not take their place."""
INSERTED = {
    "A * 2": "wrong factor", "A / 2": "wrong factor", "A**2": "wrong factor", "np.sqrt(A)": "wrong factor",
    "A - A.mean(-1, keepdims=True)": "extra term", "A / A.sum(-1, keepdims=True)": "extra function",
    "1 - A": "extra term", "1 + A": "extra term", "-A": "wrong sign", "np.exp(A)": "extra function",
    "np.log(A)": "extra function", "np.tanh(A)": "extra function", "np.maximum(A, 0)": "extra function",
}  # fmt: skip
"""What may have been left out around an expression."""
AXES = "-1", "-2", "0", "1", "None", "(0, 1)"


Change = tuple[str, Any]
"""The kind of a mistake and the node that stands in the place of another; None leaves a statement out."""


class Scope:
    """The names of a function, the texts that it looks up, and how its variables are computed."""

    def __init__(self, home: ast.FunctionDef, shapes: Mapping[str, Any], solution: str) -> None:
        self.shapes, self.is_repair = shapes, bool(solution)
        both = [*ast.walk(home), *ast.walk(ast.parse(solution))]
        values: list[Any] = [node.value for node in both if isinstance(node, ast.Constant)]
        self.numbers = sorted({value for value in values if type(value) in (int, float)})
        nodes: list[Any] = list(ast.walk(home))
        loaded, stored = (
            {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ctx)}
            for ctx in (ast.Load, ast.Store)
        )
        self.arguments = [one.arg for one in home.args.args + home.args.kwonlyargs]
        # One that is computed and never used is the likeliest to be missing somewhere.
        self.names = sorted({*self.arguments} | stored, key=lambda name: (name in loaded, name))
        self.texts = sorted({n.value for n in nodes if is_text(n) and n.value.isidentifier()})
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
            first = in_common(a, b)
            last = 0 if first else in_common(a[::-1], b[::-1])
            if first or last:
                groups.setdefault((a[first : len(a) - last], b[first : len(b) - last]), {})[a] = b
        return [names for names in groups.values() if len(names) > 1]

    def others(self, name: str) -> list[str]:
        """Return the variables that fit in the place of one: those of its shape, as far as it is known."""
        shape = self.shapes.get(name)
        return [one for one in self.names if one != name and shape == self.shapes.get(one, shape)]

    def is_size(self, node: ast.AST) -> bool:
        """Return whether an expression is made of sizes and numbers alone."""
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


def removed(old: Any, new: Any) -> Any:
    """Return the operand that a change leaves out, if it does."""
    if isinstance(old, ast.BinOp):
        return old.right if new is old.left else old.left if new is old.right else None
    return old if new is None else None


def is_mask(node: ast.AST) -> bool:
    """Return whether a short expression is about a mask, by the names in it."""
    used = [one.id.casefold() for one in ast.walk(node) if isinstance(one, ast.Name)]
    return len(ast.unparse(node)) < 30 and any(word in name for name in used for word in MASKS)


# --- the rules, from a place to a kind of mistake and the node that stands there instead


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
                yield kind, filled(right, found)


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
            kept = [ast.keyword("keepdims", ast.Constant(True))] * keep
            yield "wrong axis", ast.Call(node.func, args, [*axis, *rest, *kept])


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
    if isinstance(node, ast.Module):
        yield "wrong order", ast.Module(node.body[::-1], [])
    if isinstance(node, ast.Call) and called(node) == "reshape" and is_method(node):
        yield "transposed", filled("np.swapaxes(A, -1, -2)", {"A": node.func.value})  # type: ignore[attr-defined]
    yield from _splits(node)
    if isinstance(node, ast.Tuple | ast.List) and not any(isinstance(one, ast.Slice) for one in node.elts):
        yield from (("swapped", type(node)(many, ast.Load())) for many in _exchanged(node.elts))
    if called(node) == "einsum" and is_text(node.args[0]):
        left, arrow, right = node.args[0].value.replace(" ", "").partition("->")
        parts = [*left.split(","), right]
        for at, part in enumerate(parts):
            for letters in _exchanged(part):
                changed = [*parts[:at], "".join(letters), *parts[at + 1 :]]
                text = ast.Constant(",".join(changed[:-1]) + arrow + changed[-1])
                yield "transposed", ast.Call(node.func, [text, *node.args[1:]], node.keywords)
    elif isinstance(node, ast.Call) and called(node) not in ("where", "swapaxes", "transpose"):
        yield from (("swapped", ast.Call(node.func, many, node.keywords)) for many in _exchanged(node.args))


def _splits(node: Any) -> Iterator[Change]:
    """Exchange two sizes of `A.reshape(sizes).transpose(order)`, and the axes with them."""
    inner: Any = node.func.value if called(node) == "transpose" and is_method(node) else None
    if called(inner) == "reshape" and len(inner.args) == len(node.args) > 2:
        for sizes, swap in zip(_exchanged(inner.args), _exchanged(range(len(node.args))), strict=True):
            order: list[Any] = [ast.Constant(swap[n]) for n in map(ast.literal_eval, node.args)]
            method = ast.Attribute(ast.Call(inner.func, sizes, []), "transpose", ast.Load())
            yield "transposed", ast.Call(method, order, [])


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
        others = (*place.scope.numbers, value * 2, value / 2, value * 10, value / 10, value + 1, value - 1)
        yield from (("wrong factor", ast.Constant(other)) for other in others)


def variables(place: Place) -> Iterator[Change]:
    """Take another variable, or another entry of a dict."""
    node, scope = place.node, place.scope
    if isinstance(node, ast.Name) and node.id in scope.names:
        is_size = getattr(place.parents[-1], "attr", "") == "shape"  # a variable of any shape has one
        for other in scope.names if is_size else scope.others(node.id):
            yield _skipped(scope, node.id, other), ast.Name(other, ast.Load())
    if is_text(node) and node.value in scope.texts:
        yield from (("wrong variable", ast.Constant(text)) for text in scope.texts)


def twins(place: Place) -> Iterator[Change]:
    """Take another variable throughout a statement, or those that go with others throughout a call."""
    node, scope = place.node, place.scope
    if isinstance(node, ast.Assign | ast.Return) and node.value is not None:
        used = [one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]
        repeated = sorted({n for n in used if used.count(n) > 1 and n in scope.names})
        for name, other in ((one, two) for one in repeated for two in scope.others(one)):
            changed = renamed(node.value, {name: other})
            yield _skipped(scope, name, other), type(node)(**{**vars(node), "value": changed})
    if isinstance(node, ast.Call | ast.Assign | ast.Return):
        for names in scope.twins:
            yield "wrong variable", renamed(node, names)


def _skipped(scope: Scope, name: str, other: str) -> str:
    """Name a variable's being taken for another: for one from which ours is computed, a step is left out."""
    # In a file that holds both, the step is there; another variable was written.
    value: Any = None if scope.is_repair else scope.values.get(name)
    sides = [value.left, value.right] if isinstance(value, ast.BinOp) else []
    inputs = value.args if isinstance(value, ast.Call) else sides
    if not any(isinstance(one, ast.Name) and one.id == other for one in inputs):
        return "wrong variable"
    is_product = called(value) in ("einsum", "multiply") or isinstance(getattr(value, "op", None), ast.Mult | ast.Div)
    is_sum = isinstance(getattr(value, "op", None), ast.Add | ast.Sub)
    return "wrong factor" if is_product else "missing term" if is_sum else "missing function"


def insertions(place: Place) -> Iterator[Change]:
    """Multiply by a variable once more, add one, or apply a function: what the other file lacks."""
    node = place.node
    if not isinstance(node, ast.BinOp | ast.Call | ast.Name) or place.zone == "index":
        return
    for form, kind in INSERTED.items():
        yield kind, filled(form, {"A": node})
    is_compared = isinstance(place.parents[-1], ast.Compare)
    for name in place.scope.names if isinstance(node, ast.BinOp) or is_compared else ():
        other = ast.Name(name, ast.Load())
        factor = "mask" if is_mask(other) else "wrong factor"
        for form, kind in {"+ -": "extra term", "* /": factor, "@": "extra function"}.items():
            for op in form.split()[: 2 if isinstance(node, ast.BinOp) or form == "+ -" else 0]:
                yield kind, filled(f"A {op} B", {"A": node, "B": other})


RULES: tuple[Any, ...] = from_table, axes, calls, orders, numbers, variables, twins, insertions
