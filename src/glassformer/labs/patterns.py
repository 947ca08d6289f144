"""Forms of Python code: `A + B` is any sum, `where(A, B, C)` any call of a function of that name."""

from __future__ import annotations

import ast
import functools
from pathlib import Path
from typing import Any

TABLE = Path(__file__).parent / "mistakes.txt"


@functools.cache
def rows() -> list[tuple[str, Any, list[Any]]]:
    """Return the rows of the table: a kind, the right form and the wrong ones."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    parts = [(line[:18].strip(), *line[18:].split(" => ")) for line in lines]
    return [(kind, parsed(left), [parsed(one) for one in right.split(" | ")]) for kind, left, right in parts]


def parsed(text: str) -> Any:
    node = ast.parse(text.strip()).body[0]
    return node.value if isinstance(node, ast.Expr) else node


def match(pattern: Any, node: Any, found: dict[str, Any]) -> bool:
    """Tell whether a node has the form of a pattern; note what its capital letters stand for."""
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


class Filled(ast.NodeTransformer):
    """Write what capital letters stand for."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self.found.get(node.id, node)


def called(node: Any) -> str:
    """Return the name of the function that a call calls."""
    func = node.func if isinstance(node, ast.Call) else None
    return str(func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", ""))


def is_method(node: Any) -> bool:
    """Tell x.sum() from np.sum(x)."""
    modules = ("np", "numpy", "math", "np.linalg")
    return isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) not in modules
