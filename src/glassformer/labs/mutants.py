"""Typical mistakes, made by rule: every way to change one place of a function as people do.

The checker uses them both ways. A changed solution that gives the learner's numbers names the mistake in the terms of
the derivation; a change of the learner's own file that gives the right numbers names the line.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

REDUCTIONS = {"sum", "mean", "max", "min", "var", "std", "prod", "average"}
TURNED = {"transpose", "swapaxes", "matrix_transpose"}
UNWRAPPED = {"sqrt", "exp", "log", "tanh", "square", "cumsum", "conj", "sin", "cos"}
COMPARISONS: dict[type, type] = {ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Lt: ast.LtE, ast.LtE: ast.Lt}
MIRRORED: dict[type, type] = {ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Lt: ast.Gt, ast.LtE: ast.GtE}
MASKS = ("mask", "allowed", "keep", "counts", "ignore", "valid")


@dataclass(frozen=True)
class Mutant:
    """A function with one mistake."""

    kind: str
    words: str
    """What the mistake is, as the end of the sentence "your result is what comes out …"."""
    line: int
    source: str
    """The text of the function alone."""


Change = tuple[str, str, ast.expr | ast.stmt | None]


def mutants(source: str, function: str) -> Iterator[Mutant]:
    """Yield copies of a function of a source with one change in it, plain ones first."""
    tree = ast.parse(source)
    home = next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == function), None)
    if home is None:
        return
    names = sorted({node.id for node in ast.walk(home) if isinstance(node, ast.Name)} & _local_names(home))
    seen = {ast.unparse(home)}
    for rule in RULES:
        if rule is masks:  # after one axis, all of them
            yield from _all_axes(home)
        for place in _places(home):
            old = place.get()
            for kind, words, new in list(rule(old, names)):
                place.put(new)
                text = ast.unparse(ast.fix_missing_locations(home))
                place.put(old)
                if text not in seen:
                    seen.add(text)
                    yield Mutant(kind, words, getattr(old, "lineno", 0), text)


def _all_axes(home: ast.FunctionDef) -> Iterator[Mutant]:
    """Yield copies in which all sums, means and maxima run over other axes than the last."""
    for new in ("None", "-2", "0", "(-2, -1)"):
        changed = copy.deepcopy(home)
        found = [node for node in ast.walk(changed) if isinstance(node, ast.keyword) and node.arg == "axis"]
        for keyword in found:
            keyword.value = ast.parse(new, mode="eval").body
        words = "over everything at once" if new == "None" else f"over axis {new}"
        if len(found) > 1:
            text = ast.unparse(ast.fix_missing_locations(changed))
            yield Mutant("wrong axis", f"when all sums, means and maxima run {words}", home.lineno, text)


@dataclass
class _Place:
    """A field of a node, or an entry of a list in one, that can be exchanged."""

    node: ast.AST
    field: str
    at: int | None

    def get(self) -> ast.AST:
        value = getattr(self.node, self.field)
        return value if self.at is None else value[self.at]

    def put(self, new: ast.AST | None) -> None:
        new = ast.Pass() if new is None else new
        if self.at is None:
            setattr(self.node, self.field, new)
        else:
            getattr(self.node, self.field)[self.at] = new


def _places(home: ast.FunctionDef) -> list[_Place]:
    found: list[_Place] = []

    def visit(node: ast.AST) -> None:
        for field, value in ast.iter_fields(node):
            if field in ("decorator_list", "args", "annotation", "returns") and isinstance(node, ast.FunctionDef):
                continue
            if _names_axes(node, field):
                continue
            many = value if isinstance(value, list) else [value]
            for at, child in enumerate(many):
                if isinstance(node, ast.Call) and at > 0 and field == "args" and _called(node) in TURNED:
                    continue
                is_factor = isinstance(getattr(node, "op", None), ast.Mult | ast.Div)
                if is_factor and isinstance(child, ast.Constant) and type(child.value) is int:
                    continue  # not a place, which can be missed by one
                if isinstance(child, ast.expr | ast.stmt):
                    is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
                    if not is_text and not (isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)):
                        found.append(_Place(node, field, at if isinstance(value, list) else None))
                if isinstance(child, ast.AST):
                    visit(child)

    visit(home)
    return found


def _names_axes(node: ast.AST, field: str) -> bool:
    """Tell whether a field holds the number of an axis or a power, which other rules change as a whole."""
    is_keyword = isinstance(node, ast.keyword) and node.arg in ("axis", "keepdims", "axes")
    is_shape = isinstance(node, ast.Subscript) and field == "slice" and ast.unparse(node.value).endswith(".shape")
    is_turn = isinstance(node, ast.Call) and field == "args" and _called(node) in TURNED and not _is_function(node)
    is_power = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.right, ast.Constant)
    return is_keyword or is_shape or is_turn or (is_power and field == "right")


def _local_names(home: ast.FunctionDef) -> set[str]:
    stored = {node.id for node in ast.walk(home) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {argument.arg for argument in home.args.args + home.args.kwonlyargs}


# --- rules: from a node to (kind, words, what stands in its place) ----------------------------------------------------


def _said(node: ast.AST) -> str:
    text = ast.unparse(node)
    return f"`{text if len(text) <= 70 else text[:69] + '…'}`"


def _is_mask(node: ast.AST) -> bool:
    used = [one.id.casefold() for one in ast.walk(node) if isinstance(one, ast.Name)]
    return len(ast.unparse(node)) < 30 and any(word in name for name in used for word in MASKS)


def terms(node: ast.AST, _: list[str]) -> Iterator[Change]:
    """Leave out a term of a sum, or turn its sign."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        if isinstance(node.left, ast.Constant) or isinstance(node.right, ast.Constant):
            left = node.left if isinstance(node.right, ast.Constant) else node.right
            yield "missing term", f"without the constant in {_said(node)}", left
        else:
            lost = "mask" if _is_mask(node.right) else "missing term"
            yield lost, f"without {_said(node.right)} in {_said(node)}", node.left
            first = node.right if isinstance(node.op, ast.Add) else ast.UnaryOp(ast.USub(), node.right)
            yield "missing term", f"without {_said(node.left)} in {_said(node)}", first
        other = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
        yield "wrong sign", f"with the other sign before {_said(node.right)}", ast.BinOp(node.left, other, node.right)
        if isinstance(node.op, ast.Sub):
            yield "wrong sign", f"with {_said(node)} the other way round", ast.BinOp(node.right, node.op, node.left)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield "wrong sign", f"without the minus in {_said(node)}", node.operand
    if isinstance(node, ast.AugAssign):
        yield "missing term", f"without {_said(node)}", None
        if isinstance(node.op, ast.Add | ast.Sub):
            changed = copy.copy(node)
            changed.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
            yield "wrong sign", f"with the other sign in {_said(node)}", changed
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        yield ("mask" if _is_mask(node) else "missing term"), f"without {_said(node)}", None


def axes(node: ast.AST, _: list[str]) -> Iterator[Change]:
    """Reduce over another axis, or over all of them."""
    if isinstance(node, ast.Subscript) and _names_axes(node, "slice") and not isinstance(node.slice, ast.Slice):
        for new in ("-1", "-2", "0"):
            changed: ast.expr = ast.parse(f"{ast.unparse(node.value)}[{new}]", mode="eval").body
            yield "wrong axis", f"with {_said(changed)} for {_said(node)}", changed
    if not isinstance(node, ast.Call):
        return
    for at, keyword in enumerate(node.keywords):
        if keyword.arg == "axis":
            for new in ("-1", "-2", "0", "1", "None"):
                other = copy.deepcopy(node)
                other.keywords[at].value = ast.parse(new, mode="eval").body
                words = "all axes" if new == "None" else f"axis {new}"
                yield "wrong axis", f"when {_said(node)} runs over {words}", other
        if keyword.arg == "keepdims":
            other = copy.deepcopy(node)
            del other.keywords[at]
            yield "wrong axis", f"when {_said(node)} drops its axis (keepdims=False)", other
    given = {keyword.arg for keyword in node.keywords}
    if _called(node) in REDUCTIONS and "keepdims" not in given:
        for axis in (None,) if "axis" in given or len(node.args) > _is_function(node) else ("-1", "0", "-2"):
            for keeps in (True, False):
                if axis is None and not keeps:
                    continue
                other = copy.deepcopy(node)
                added = [] if axis is None else [ast.keyword("axis", ast.parse(axis, mode="eval").body)]
                other.keywords += [*added, *([ast.keyword("keepdims", ast.Constant(True))] if keeps else [])]
                words = f"runs over axis {axis}" if axis else "keeps its axis (keepdims=True)"
                yield "wrong axis", f"when {_said(node)} {words}", other


def masks(node: ast.AST, _: list[str]) -> Iterator[Change]:
    """Ignore a mask, or turn it around."""
    if isinstance(node, ast.Call) and _called(node) == "where" and len(node.args) == 3:
        yield "mask", f"when the condition in {_said(node)} is ignored", node.args[1]
        yield "mask", f"when the condition in {_said(node)} is turned around", _where(node, 0, 2, 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and _is_mask(node.right) != _is_mask(node.left):
        kept, lost = (node.left, node.right) if _is_mask(node.right) else (node.right, node.left)
        yield "mask", f"when {_said(lost)} is ignored", kept
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr):
        yield "mask", f"without {_said(node.right)} in {_said(node)}", node.left
        yield "mask", f"without {_said(node.left)} in {_said(node)}", node.right
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
        yield "mask", f"when {_said(node)} is turned around", node.operand


def shifts(node: ast.AST, _: list[str]) -> Iterator[Change]:
    """Miss by one: in a comparison, a slice, a range, an offset."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARISONS:
        kind = type(node.ops[0])
        yield "off by one", f"when the border in {_said(node)} moves by one", _compared(node, COMPARISONS[kind])
        turned = _compared(node, MIRRORED[kind])
        yield "mask", f"when {_said(node)} is turned around", turned
        yield "mask", f"when {_said(node)} is turned around", _compared(node, COMPARISONS[MIRRORED[kind]])
    if isinstance(node, ast.Constant) and type(node.value) is int:
        for new in (node.value + 1, node.value - 1):
            yield "off by one", f"with {new} for {node.value}", ast.Constant(new)
    if isinstance(node, ast.Call) and _called(node) in ("arange", "range"):
        yield "off by one", f"when {_said(node)} begins one later", _plus_one(node)
        changed = copy.deepcopy(node)
        changed.args[-1 if len(changed.args) < 3 else 1] = ast.BinOp(changed.args[-1], ast.Sub(), ast.Constant(1))
        yield "off by one", f"when {_said(node)} ends one earlier", changed
    if isinstance(node, ast.Call) and _called(node) in ("tril", "triu") and len(node.args) == 1 and not node.keywords:
        for k in (1, -1):
            changed = copy.deepcopy(node)
            changed.keywords = [ast.keyword("k", ast.Constant(k))]
            yield "off by one", f"when {_said(node)} moves by one", changed
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and isinstance(node.right, ast.Constant):
        yield "off by one", f"without the {_said(node.right)} in {_said(node)}", node.left


def transposes(node: ast.AST, _: list[str]) -> Iterator[Change]:
    """Leave out a transpose, add one, or exchange the factors of a matrix product."""
    if isinstance(node, ast.Call) and _called(node) == "einsum" and isinstance(node.args[0], ast.Constant):
        for text in _other_subscripts(str(node.args[0].value)):
            yield (
                "transposed",
                f"with {text!r} in {_said(node)}",
                ast.Call(node.func, [ast.Constant(text), *node.args[1:]], node.keywords),
            )
    inner = None
    if isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
        inner = node.value
    if isinstance(node, ast.Call) and _called(node) in TURNED:
        inner = node.args[0] if _is_function(node) else node.func.value  # type: ignore[attr-defined]
    if inner is not None:
        yield "transposed", f"without the transpose in {_said(node)}", inner
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        for left, right in ((True, False), (False, True), (True, True)):
            new = ast.BinOp(_turned(node.left) if left else node.left, node.op, node.left)
            new.right = _turned(node.right) if right else node.right
            yield (
                "transposed",
                f"with {'both factors' if left and right else 'a factor'} of {_said(node)} transposed",
                new,
            )
        swapped = ast.BinOp(node.right, node.op, node.left)
        yield "transposed", f"with the factors of {_said(node)} exchanged", swapped
        yield "transposed", f"when {_said(node)} is transposed", _turned(node)


def factors(node: ast.AST, _: list[str]) -> Iterator[Change]:
    """Leave out a factor, divide instead of multiplying, take a mean for a sum."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        yield "wrong factor", f"without {'×' if isinstance(node.op, ast.Mult) else '÷'} {_said(node.right)}", node.left
        if isinstance(node.op, ast.Mult):
            yield "wrong factor", f"without {_said(node.left)} × in {_said(node)}", node.right
        other = ast.Div() if isinstance(node.op, ast.Mult) else ast.Mult()
        words = "divided by" if isinstance(node.op, ast.Mult) else "multiplied by"
        yield "wrong factor", f"when {words} {_said(node.right)}", ast.BinOp(node.left, other, node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        yield "wrong factor", f"without the power in {_said(node)}", node.left
        yield "wrong sign", f"with the other sign in the power {_said(node)}", _negative_power(node)
    if isinstance(node, ast.Constant) and type(node.value) is float:
        for factor in (2.0, 0.5, 10.0, 0.1):
            yield "wrong factor", f"with {node.value * factor:g} for {node.value:g}", ast.Constant(node.value * factor)
    if isinstance(node, ast.Call) and _called(node) in ("sum", "mean"):
        changed = copy.deepcopy(node)
        assert isinstance(changed.func, ast.Attribute)
        changed.func.attr = "mean" if node.func.attr == "sum" else "sum"  # type: ignore[attr-defined]
        yield "wrong factor", f"with a {changed.func.attr} for the {_called(node)} in {_said(node)}", changed
    if isinstance(node, ast.Call) and _called(node) in ("var", "std"):
        changed = copy.deepcopy(node)
        changed.keywords.append(ast.keyword("ddof", ast.Constant(1)))
        yield "wrong factor", f"when {_said(node)} divides by one less (ddof=1)", changed


def lost_calls(node: ast.AST, _: list[str]) -> Iterator[Change]:
    """Leave out a sum over an axis, or a function."""
    if not isinstance(node, ast.Call) or (not node.args and not isinstance(node.func, ast.Attribute)):
        return
    inner = node.args[0] if _is_function(node) and node.args else getattr(node.func, "value", None)
    if inner is None or (isinstance(inner, ast.Name) and inner.id == "np"):
        return
    if _called(node) in REDUCTIONS:
        yield "not summed", f"when {_said(node)} is left out", inner
    elif _called(node) in UNWRAPPED:
        yield "missing function", f"without {_called(node)} in {_said(node)}", inner


def names(node: ast.AST, known: list[str]) -> Iterator[Change]:
    """Take another variable, or the other arguments' order."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in known:
        for other in known:
            if other != node.id:
                yield "wrong variable", f"with `{other}` where `{node.id}` belongs", ast.Name(other, ast.Load())
    if isinstance(node, ast.Tuple) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        for at in range(len(node.elts) - 1):
            changed = copy.deepcopy(node)
            changed.elts[at], changed.elts[at + 1] = changed.elts[at + 1], changed.elts[at]
            yield "wrong variable", f"with two entries of {_said(node)} exchanged", changed


def insertions(node: ast.AST, known: list[str]) -> Iterator[Change]:
    """Multiply by a variable once more, or add one: what is left out of the other file."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult | ast.Div | ast.Add | ast.Sub):
        return
    for name in known:
        other = ast.Name(name, ast.Load())
        if isinstance(node.op, ast.Mult | ast.Div):
            yield "wrong factor", f"with × `{name}` at {_said(node)}", ast.BinOp(node, ast.Mult(), other)
            yield "wrong factor", f"with ÷ `{name}` at {_said(node)}", ast.BinOp(node, ast.Div(), other)
        yield "extra term", f"with + `{name}` at {_said(node)}", ast.BinOp(node, ast.Add(), other)
        yield "extra term", f"with − `{name}` at {_said(node)}", ast.BinOp(node, ast.Sub(), other)


Rule = Callable[[ast.AST, list[str]], Iterator[Change]]
RULES: tuple[Rule, ...] = (terms, axes, masks, shifts, transposes, factors, lost_calls, insertions, names)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _is_function(node: ast.Call) -> bool:
    """Tell np.sum(x) from x.sum()."""
    return not isinstance(node.func, ast.Attribute) or (
        isinstance(node.func.value, ast.Name) and node.func.value.id in ("np", "numpy", "xp")
    )


def _other_subscripts(text: str) -> Iterator[str]:
    """Yield the subscripts of an einsum with two letters of an operand, or of the result, exchanged."""
    parts = text.replace(" ", "").replace("->", ",").split(",")
    for at, part in enumerate(parts):
        for first in range(len(part) - 1):
            new = part[:first] + part[first + 1] + part[first] + part[first + 2 :]
            changed = [*parts[:at], new, *parts[at + 1 :]]
            if "->" in text and new != part:
                yield ",".join(changed[:-1]) + "->" + changed[-1]


def _turned(node: ast.expr) -> ast.expr:
    return ast.Call(ast.parse("np.swapaxes", mode="eval").body, [node, ast.Constant(-1), ast.Constant(-2)], [])


def _where(node: ast.Call, *order: int) -> ast.Call:
    return ast.Call(node.func, [node.args[at] for at in order], node.keywords)


def _compared(node: ast.Compare, kind: type) -> ast.Compare:
    return ast.Compare(node.left, [kind()], node.comparators)


def _plus_one(node: ast.Call) -> ast.BinOp | ast.Call:
    if _called(node) == "arange":
        return ast.BinOp(node, ast.Add(), ast.Constant(1))
    changed = copy.deepcopy(node)
    if len(changed.args) == 1:
        changed.args.insert(0, ast.Constant(1))
    else:
        changed.args[0] = ast.BinOp(changed.args[0], ast.Add(), ast.Constant(1))
    return changed


def _negative_power(node: ast.BinOp) -> ast.BinOp:
    right = node.right
    turned = right.operand if isinstance(right, ast.UnaryOp) else ast.UnaryOp(ast.USub(), right)
    return ast.BinOp(node.left, ast.Pow(), turned)
