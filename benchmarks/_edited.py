"""Small edits of source files, on disk and in memory, for `edits.py`."""

from __future__ import annotations

import ast
import copy
import inspect
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Path = tuple[tuple[str, int | None], ...]
"""The way to a node: names of fields, and the number in a list."""


class Edit(NamedTuple):
    """One edit of a file.

    kind       what was done, one of _CHANGES
    function   the qualified name of the outermost function that it is in, of a class, or "" for a line of the module
    path       where it is in the syntax tree
    text       the file with the edit
    """

    kind: str
    line: int
    function: str
    path: Path
    text: str


NOT_COMPUTED = ("check_", "_check", "register_", "__repr__", "__post_init__")
"""How functions begin that compute no numbers."""
OFTEN_IN_VAIN = ("swapped arguments", "condition")
"""Kinds of edits that mostly fail or show in nothing: they come last."""
_OTHER = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_BEYOND = {ast.Lt: ast.GtE, ast.LtE: ast.Gt, ast.Gt: ast.LtE, ast.GtE: ast.Lt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_NO_ARRAYS = ("params", "self", "cls", "saved", "record", "records", "rng", "config", "execution", "name", "None")


def edits_of(text: str, count: int, seed: int) -> Iterator[Edit]:
    """Yield edits of a file in random order, first one of each function and kind."""
    tree = ast.parse(text)
    sites = [*_sites(tree, "", ())]
    rng = random.Random(seed)
    rng.shuffle(sites)
    seen: dict[tuple[str, str], int] = {}

    def nth(site: tuple[Any, ...]) -> int:
        key = site[2], site[0]
        seen[key] = seen.get(key, 0) + 1
        return seen[key]

    for kind, line, function, path in sorted(sites, key=lambda site: nth(site) + 2 * (site[0] in OFTEN_IN_VAIN))[
        :count
    ]:
        edited = copy.deepcopy(tree)
        _put(edited, path, _CHANGES[kind](_at(edited, path)))
        yield Edit(kind, line, function, path, ast.unparse(ast.fix_missing_locations(edited)) + "\n")


def _sites(node: ast.AST, function: str, path: Path) -> Iterator[tuple[str, int, str, Path]]:
    """Yield what can be edited below a node: kind, line, function and path."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "exc", "msg", "bases", "type_comment"):
            continue
        for number, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST):
                continue
            own, inside = function, (*path, (field, number))
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                if child.name.startswith(NOT_COMPUTED):
                    continue
                if isinstance(node, ast.Module | ast.ClassDef):
                    own = f"{function}.{child.name}".lstrip(".")
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            yield from ((kind, child.lineno, own, inside) for kind in _kinds(child, field))
            yield from _sites(child, own, inside)


def _kinds(node: Any, field: str) -> Iterator[str]:
    is_default = field in ("defaults", "kw_defaults")
    if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
        yield "default" if is_default else "constant"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign"
    if isinstance(node, ast.BinOp) and type(node.op) in _OTHER:
        yield "operator"
        yield "dropped term"
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _BEYOND:
        yield "comparison"
    if isinstance(node, ast.Call) and len(node.args) >= 2 and not any(isinstance(a, ast.Starred) for a in node.args):
        yield "swapped arguments"
    if field == "test" and not isinstance(node, ast.Compare):
        yield "condition"
    if (
        isinstance(node, ast.Return)
        and isinstance(node.value, ast.BinOp | ast.IfExp | ast.Name | ast.Tuple)
        and _scaled_one(node)
    ):
        yield "scaled result"
    is_named = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    if is_named and isinstance(node.value, ast.BinOp | ast.Call | ast.IfExp):
        yield "scaled value"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _argument(node) is not None:
        yield "scaled argument"


def _at(tree: Any, path: Path) -> Any:
    for field, number in path:
        tree = getattr(tree, field) if number is None else getattr(tree, field)[number]
    return tree


def _put(tree: Any, path: Path, node: ast.AST) -> None:
    *way, (field, number) = path
    parent = _at(tree, tuple(way))
    if number is None:
        setattr(parent, field, node)
    else:
        getattr(parent, field)[number] = node


def _constant(node: Any) -> Any:
    value = node.value
    if isinstance(value, bool):
        return ast.Constant(not value)
    return ast.Constant(value + 1 if isinstance(value, int) else value * 1.5 or 0.5)


def _operator(node: Any) -> Any:
    return ast.BinOp(node.left, _OTHER[type(node.op)](), node.right)


def _comparison(node: Any) -> Any:
    return ast.Compare(node.left, [_BEYOND[type(node.ops[0])]()], node.comparators)


def _swapped(node: Any) -> Any:
    return ast.Call(node.func, [*node.args[1::-1], *node.args[2:]], node.keywords)


def _scaled_one(node: Any) -> bool:
    """Tell whether a function returns what may be an array, alone or first in a tuple."""
    value = node.value.elts[0] if isinstance(node.value, ast.Tuple) and node.value.elts else node.value
    return isinstance(value, ast.BinOp | ast.Name | ast.Subscript | ast.Call | ast.IfExp)


def _scaled(node: Any) -> Any:
    value = node.value
    if isinstance(value, ast.Tuple):
        return ast.Return(ast.Tuple([_larger(value.elts[0]), *value.elts[1:]], ast.Load()))
    return ast.Return(_larger(value))


def _argument(node: Any) -> int | None:
    """Return which of the arguments of a call may be the first array; None: none."""
    names = ((i, part.id) for i, part in enumerate(node.args) if isinstance(part, ast.Name))
    return next((i for i, name in names if name not in _NO_ARRAYS), None)


def _scaled_argument(node: Any) -> Any:
    place = _argument(node)
    return ast.Call(node.func, [_larger(own) if i == place else own for i, own in enumerate(node.args)], node.keywords)


def _larger(node: Any) -> Any:
    return ast.BinOp(node, ast.Mult(), ast.Constant(1.25))


_CHANGES: dict[str, Callable[[Any], Any]] = {
    "constant": _constant,
    "default": _constant,
    "sign": lambda node: node.operand,
    "operator": _operator,
    "dropped term": lambda node: node.left,
    "comparison": _comparison,
    "swapped arguments": _swapped,
    "condition": lambda node: ast.UnaryOp(ast.Not(), node),
    "scaled value": lambda node: ast.Assign(node.targets, _larger(node.value)),
    "scaled result": _scaled,
    "scaled argument": _scaled_argument,
}


# --- in memory -------------------------------------------------------------------------------------------------------


def put_into_memory(edit: Edit, module: Any, *, in_place: bool) -> Callable[[], None] | None:
    """Make an edit in a module that is imported; return what undoes it, or None if it cannot be made there.

    in_place   give the function other code; otherwise, put another function, undecorated, in its place: in the module
               and in the package that hands it on
    """
    tree = ast.parse(edit.text)
    if not edit.function:
        line: Any = tree.body[edit.path[0][1] or 0]
        target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
        if not isinstance(target, ast.Name) or getattr(line, "value", None) is None:
            return None
        return _replaced(module, target.id, eval(_compiled(line.value), vars(module)))
    *owners, name = edit.function.split(".")
    owner = module
    for part in owners:
        owner = getattr(owner, part, None)
    found = vars(owner).get(name) if owner is not None else None
    function = inspect.unwrap(found) if callable(found) else None
    code = next(_codes(compile(edit.text, module.__file__, "exec"), edit.function), None)
    if not isinstance(function, types.FunctionType) or code is None:
        return None
    if code.co_freevars != function.__code__.co_freevars:
        return None
    defaults, named = function.__defaults__, function.__kwdefaults__
    if edit.kind == "default":
        written: Any = _definition(tree, edit.function)
        values = [eval(_compiled(node), vars(module)) for node in written.args.defaults]
        pairs = zip(written.args.kwonlyargs, written.args.kw_defaults, strict=True)
        defaults = tuple(values) or None
        named = {own.arg: eval(_compiled(node), vars(module)) for own, node in pairs if node is not None} or None
    if in_place:
        before = function.__code__, function.__defaults__, function.__kwdefaults__
        _give(function, code, defaults, named)
        return lambda: _give(function, *before)
    other = types.FunctionType(code, function.__globals__, name, defaults, function.__closure__)
    other.__kwdefaults__, other.__qualname__ = named, function.__qualname__
    return _replaced(owner, name, other)


def _give(function: Any, code: Any, defaults: Any, named: Any) -> None:
    function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, named


def _replaced(owner: Any, name: str, value: Any) -> Callable[[], None]:
    before = vars(owner)[name]
    package = sys.modules.get(getattr(owner, "__package__", None) or "")
    holders = [owner, package] if package is not None and vars(package).get(name) is before else [owner]
    for holder in holders:
        setattr(holder, name, value)

    def undo() -> None:
        for holder in holders:
            setattr(holder, name, before)

    return undo


def _compiled(node: ast.expr) -> Any:
    return compile(ast.Expression(node), "", "eval")


def _definition(tree: Any, function: str) -> Any:
    for part in function.split("."):
        tree = next(node for node in tree.body if getattr(node, "name", None) == part)
    return tree


def _codes(code: Any, function: str) -> Iterator[Any]:
    for constant in code.co_consts:
        if hasattr(constant, "co_qualname"):
            if constant.co_qualname == function:
                yield constant
            yield from _codes(constant, function)
