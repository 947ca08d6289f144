"""Forms of Python code: `A + B` is any sum, `where(A, B, C)` any call of a function of that name."""

import ast
import functools
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "mistakes.txt"


@functools.cache
def rows() -> list[tuple[str, Any, list[Any]]]:
    """Return the rows of the table: a kind, the right form and the wrong ones."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    parts = [(line[:18].strip(), *line[18:].split(" => ")) for line in lines]
    return [(kind, parsed(left), [parsed(one) for one in right.split(" | ")]) for kind, left, right in parts]


@functools.cache
def parsed(text: str) -> Any:
    node = ast.parse(text.strip()).body[0]
    return node.value if isinstance(node, ast.Expr) else node


def match(pattern: Any, node: Any, found: dict[str, Any]) -> bool:
    """Return whether a node has the form of a pattern; note what its capital letters stand for."""
    if isinstance(pattern, list):
        is_list = isinstance(node, list) and len(node) == len(pattern)
        return is_list and all(match(a, b, found) for a, b in zip(pattern, node, strict=True))
    if not isinstance(pattern, ast.AST):
        return bool(pattern == node)
    if isinstance(pattern, ast.Name) and pattern.id.isupper():
        found[pattern.id] = node
        return isinstance(node, ast.expr) and not isinstance(node, ast.Slice)
    if type(pattern) is not type(node):
        return False
    if isinstance(node, ast.Call) and isinstance(pattern, ast.Call) and isinstance(pattern.func, ast.Name):
        found[pattern.func.id] = node.func
        if called(node) != pattern.func.id or not pattern.args:
            return called(node) == pattern.func.id
        return not is_method(node) and match([pattern.args, pattern.keywords], [node.args, node.keywords], found)
    return all(match(value, getattr(node, name), found) for name, value in ast.iter_fields(pattern) if name != "ctx")


def rebuilt(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a copy of a node; what `change` returns for a part stands in its place."""
    if isinstance(node, list):
        return [rebuilt(one, change) for one in node]
    if not isinstance(node, ast.AST):
        return node
    new = change(node)
    return type(node)(**{k: rebuilt(x, change) for k, x in vars(node).items()}) if new is node else new


def filled(text: str | ast.AST, found: dict[str, Any]) -> Any:
    """Write what capital letters stand for."""
    form = parsed(text) if isinstance(text, str) else text
    return rebuilt(form, lambda node: found.get(node.id, node) if isinstance(node, ast.Name) else node)


def renamed(node: Any, names: dict[str, str]) -> Any:
    """Take variables, and texts that name entries, for others."""

    def change(part: Any) -> Any:
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            return ast.Name(names.get(part.id, part.id), part.ctx)
        return ast.Constant(names.get(part.value, part.value)) if is_text(part) else part

    return rebuilt(node, change)


def is_text(node: Any) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def called(node: Any) -> str:
    """Return the name of the function that a call calls."""
    func = node.func if isinstance(node, ast.Call) else None
    return str(func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", ""))


def is_method(node: Any) -> bool:
    """Tell x.sum() from np.sum(x)."""
    modules = ("np", "numpy", "math", "np.linalg")
    return isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in modules


def in_common(a: str, b: str) -> int:
    """Return how many characters two texts begin with alike."""
    return sum(itertools.takewhile(bool, (x == y for x, y in zip(a, b, strict=False))))
