"""Nested parameters as data: functions on dicts, lists and named tuples of arrays.

A leaf has a dotted name: `params["blocks"][0]["attention"]["query"]["w"]` is "blocks.0.attention.query.w".
"""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any

import numpy as np

from .arrays import Array, Tree, namespace
from .errors import ShapeError, some

__all__ = [
    "Named", "NamedList", "add", "check_same", "count", "flatten", "leaf", "library", "like", "map_named", "named",
    "named_leaves", "rebuilt", "tree_map", "unflatten", "zeros_like",
]  # fmt: skip
__dir__ = __all__.copy

_ARRAYS = {np.ndarray}


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Apply `function` to the leaves of one tree, or to the corresponding leaves of several; None stays None."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {name: tree_map(function, part, *(_part(o, name) for o in others)) for name, part in tree.items()}
    if _is_record(tree):
        return type(tree)(*(tree_map(function, *parts) for parts in zip(tree, *others, strict=True)))
    if isinstance(tree, list | tuple):
        parts = (tree_map(function, *each) for each in zip(tree, *others, strict=True))
        return list(parts) if isinstance(tree, NamedList) else type(tree)(parts)
    return function(tree, *others)


def map_named(function: Callable[[str, Any], Any], tree: Tree) -> Tree:
    """Apply `function(name, leaf)` to every leaf under its dotted name; None stays None."""
    names = iter(flatten(tree))
    return tree_map(lambda leaf: function(next(names), leaf), tree)


def rebuilt(like: Tree, leaves: Mapping[str, Any]) -> Tree:
    """Return a tree with the structure of `like`, its empty parts included, and other leaves by dotted name."""
    return map_named(lambda name, _: leaves[name], like)


def named_leaves(tree: Tree, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every leaf with its dotted name, in order; None is not a leaf."""
    leaves: dict[str, Any] = {}
    _collect(tree, prefix, leaves)
    yield from leaves.items()


def flatten(tree: Tree) -> dict[str, Any]:
    """Return the leaves by their dotted names."""
    if type(tree) is dict and {*map(type, tree.values())} == _ARRAYS:  # already flat, as gradients in a step are
        return dict(zip(map(str, tree), tree.values(), strict=True))
    leaves: dict[str, Any] = {}
    _collect(tree, "", leaves)
    return leaves


def _collect(tree: Tree, name: str, leaves: dict[str, Any]) -> None:
    if isinstance(tree, dict):
        parts: Any = tree.items()
    elif isinstance(tree, (list, tuple)):  # a union would be built in every call
        parts = zip(getattr(tree, "_fields", range(len(tree))), tree, strict=True)
    else:
        if tree is not None:
            leaves[name] = tree
        return
    before = name + "." if name else ""
    for step, part in parts:
        # Most parts are an array or a dict of one; a call for each would take longer than everything else.
        path = f"{before}{step}"
        if type(part) is dict and len(part) == 1:
            ((last, part),) = part.items()
            path = f"{path}.{last}"
        if type(part) is np.ndarray:
            leaves[path] = part
        else:
            _collect(part, path, leaves)


def unflatten(leaves: dict[str, Any]) -> Tree:
    """Build nested dicts and lists from leaves by dotted name; parts numbered 0, 1, … become a list."""
    if "" in leaves:
        return leaves[""]
    groups: dict[str, dict[str, Any]] = {}
    for name, leaf in leaves.items():
        head, _, rest = name.partition(".")
        groups.setdefault(head, {})[rest] = leaf
    tree = {head: unflatten(rest) for head, rest in groups.items()}
    if tree and set(tree) == {str(i) for i in range(len(tree))}:
        return [tree[str(i)] for i in range(len(tree))]
    return tree


def leaf(tree: Tree, name: str) -> Any:
    """Return the part of `tree` at a dotted name."""
    for step in name.split("."):
        if isinstance(tree, list) or (isinstance(tree, tuple) and not _is_record(tree)):
            tree = tree[int(step)]
        elif isinstance(tree, dict):
            tree = tree[step]
        else:
            tree = getattr(tree, step)
    return tree


def add(a: Tree, b: Tree) -> Tree:
    """Add two trees of the same structure leaf by leaf."""
    return tree_map(lambda x, y: x + y, a, b)


def count(tree: Tree) -> int:
    """Count the numbers in all arrays."""
    return sum(int(np.prod(x.shape, dtype=object)) for _, x in named_leaves(tree))


def check_same(tree: Tree, expected: Tree) -> None:
    """Refuse a tree whose names or shapes differ from the expected ones (arrays or anything with a shape)."""
    have, want = flatten(tree), flatten(expected)
    missing, extra = sorted(want.keys() - have.keys()), sorted(have.keys() - want.keys())
    if missing or extra:
        raise ShapeError(
            f"parameters do not match the model: missing {some(missing)}, unexpected {some(extra)}",
            hint="build them with init() of a model with the same config",
        )
    for name, array in have.items():
        if tuple(array.shape) != tuple(want[name].shape):
            raise ShapeError(
                f"{name} has shape {tuple(array.shape)}, the model expects {tuple(want[name].shape)}",
                hint="check the config: width, heads, layers, vocab and context decide the shapes",
            )


def library(tree: Tree) -> Any:
    """Return the library of the first array, NumPy when there is none."""
    return next((namespace(x) for _, x in named_leaves(tree)), np)


def like(tree: Tree, xp: Any) -> Tree:
    """Return the same tree with every array in the library `xp` (numpy or jax.numpy)."""
    return tree_map(xp.asarray, tree)


def zeros_like(array: Array) -> Array:
    """Return zeros with the shape and type of `array`, in its own library."""
    return array.__array_namespace__().zeros(array.shape, dtype=array.dtype)


class Named(dict):
    """A part of a tree that knows its dotted name there, `path`; so do its parts, and those that it does not have."""

    path = ""

    def get(self, name: str, default: Any = None) -> Any:
        if name in self or not isinstance(default, dict):
            return super().get(name, default)
        return named(default, _joined(self.path, name))

    def __or__(self, other: Any) -> "Named":
        return named({**self, **other}, self.path)


class NamedList(list):
    """A list in such a tree."""

    path = ""


def named(tree: Tree, path: str = "") -> Tree:
    """Return a copy of a tree in which every part knows its dotted name; a layer can tell from it where it stands."""
    if isinstance(tree, dict):
        own: Any = Named(tree) if type(tree) in (dict, Named) else copy(tree)
        own.update({name: named(part, _joined(path, name)) for name, part in tree.items()})
    elif type(tree) in (list, NamedList):
        own = NamedList(named(part, _joined(path, number)) for number, part in enumerate(tree))
    else:
        return tree
    own.path = path
    return own


def _joined(path: str, name: Any) -> str:
    return f"{path}.{name}" if path else str(name)


def _is_record(tree: Any) -> bool:
    return isinstance(tree, tuple) and hasattr(tree, "_fields")


def _part(tree: Any, name: str) -> Any:
    try:
        return tree[name]
    except (KeyError, TypeError):
        raise ShapeError(f"the trees differ: one has no part {name!r}", hint="compare their dotted names") from None
