"""Plant a bug in functions of the package that is loaded: they get the code that another text of their file has.

To import the package anew takes several times as long as to find most bugs.
"""

import ast
import gc
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType

Functions = dict[tuple[str, str], list[FunctionType]]


@cache
def functions() -> Functions:
    """All functions that are loaded, by file and qualified name, also those that a decorator has wrapped."""
    found: Functions = defaultdict(list)
    for one in gc.get_objects():
        if type(one) is FunctionType:  # whatever asks more of an object may wake it
            found[one.__code__.co_filename, one.__code__.co_qualname].append(one)
    return found


def can_be_planted(path: Path, text: str) -> bool:
    """Tell whether another text of a file differs from it inside of functions alone."""
    return outline(path.read_text(encoding="utf-8")) == outline(text)


def outline(text: str) -> str:
    """Return all of a file but what its functions do."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = []
    return ast.dump(tree)


def plant(path: Path, text: str) -> None:
    """Let the functions of a file do what they would do with another text."""
    before, after = (bodies(compile(source, str(path), "exec")) for source in (path.read_text(encoding="utf-8"), text))
    changed = [name for name in before if before[name] != after[name]]
    assert changed
    for name in changed:
        loaded = functions()[str(path), name]
        assert loaded, f"{name} of {path} is not loaded"
        for function in loaded:
            function.__code__ = after[name]


def bodies(code: CodeType) -> dict[str, CodeType]:
    """The code of the functions and methods of a file by qualified name; functions inside of them are parts of it."""
    found = {}
    for part in code.co_consts:
        if isinstance(part, CodeType):
            is_class = "__qualname__" in part.co_names and "__module__" in part.co_names
            found |= bodies(part) if is_class else {part.co_qualname: part}
    return found
