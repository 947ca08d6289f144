"""Arguments and results: arrays, alone and in tuples and dicts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..core.arrays import Array


def results(value: Any, names: Sequence[str]) -> dict[str, Array]:
    """Return what was returned as arrays by name; a ValueError says what is wrong with it."""
    if isinstance(value, dict):
        return {str(name): _array(part) for name, part in value.items()}
    is_many = isinstance(value, tuple | list) and (len(names) > 1 or (isinstance(value, tuple) and len(value) == 1))
    many = list(value) if is_many else [value]
    if len(many) != len(names):
        raise ValueError(f"it returns {len(many)} {'result' if len(many) == 1 else 'results'}, not {len(names)}")
    found: dict[str, Array] = {}
    for name, part in zip(names, many, strict=True):
        if isinstance(part, dict):
            found |= {f"{name}[{key!r}]": _array(inner) for key, inner in flat(part).items()}
        else:
            found[name] = _array(part)
    return found


def flat(tree: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested dicts as one, with dotted names."""
    found: dict[str, Any] = {}
    for name, part in tree.items():
        found |= flat(part, f"{before}{name}.") if isinstance(part, dict) else {f"{before}{name}": part}
    return found


def _array(value: Any) -> Array:
    if value is None:
        raise ValueError("it returns None")
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise ValueError(f"it returns {type(value).__name__}, which is not an array of numbers")
    return array


def arrays_in(tree: Any) -> list[Array]:
    """Return all arrays of the arguments."""
    if isinstance(tree, np.ndarray):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [x for part in tree for x in arrays_in(part)] if isinstance(tree, tuple | list) else []


def cast_floats(tree: Any, dtype: Any) -> Any:
    """Return arguments whose arrays of floating-point numbers have another dtype; all arrays are copied."""
    if isinstance(tree, np.ndarray):
        return tree.astype(dtype) if tree.dtype.kind == "f" else tree.copy()
    if isinstance(tree, dict):
        return {name: cast_floats(part, dtype) for name, part in tree.items()}
    if isinstance(tree, tuple | list):
        return type(tree)(cast_floats(part, dtype) for part in tree)
    return tree
