"""Arrays on the devices of a mesh: where each part goes, how it gets there, and how it comes back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from ..tree import flatten, tree_map
from .mesh import require_jax, shape_of
from .rules import RULES, Rules, axes_for

ROOTS = frozenset(
    {
        *("embedding", "source_embedding", "blocks", "encoder", "decoder", "final_norm", "relative"),
        *("head", "classifier", "cls"),
    }
)
"""The first steps of parameters' names."""


def param_shardings(tree: Tree, mesh: Any, rules: Rules = RULES) -> Tree:
    """Return the `NamedSharding` of every parameter (anything with a shape), by its dotted name."""
    shape = shape_of(mesh)
    return _rebuilt(tree, [sharding(mesh, axes_for(name, p.shape, shape, rules)) for name, p in flatten(tree).items()])


def working_shardings(tree: Tree, mesh: Any, rules: Rules = RULES) -> Tree:
    """Return the `NamedSharding` of every parameter while it is used: split over tensor alone.

    A compiled step has to ask for it with `jax.lax.with_sharding_constraint`, and inside a loop over blocks for one
    block at a time, by names such as "attention.query.w". Else XLA gathers activations in the place of weights, or all
    weights at once. A block's gradients are asked to have this sharding first and then that of `param_shardings`.
    """
    shape = shape_of(mesh)
    found = []
    for name, p in flatten(tree).items():
        axes = axes_for(name, p.shape, shape, rules)
        found.append(sharding(mesh, [None if axis == "fsdp" else axis for axis in axes]))
    return _rebuilt(tree, found)


def state_shardings(tree: Tree, mesh: Any, rules: Rules = RULES) -> Tree:
    """Return the `NamedSharding` of every array in a state: an optimizer's, an average's, or a tree of several.

    {"step": …, "mean": {"blocks": …}}: what is remembered about a parameter is split as the parameter is; the name of
    the parameter begins at the first step that parameters' names begin with. Scalars are on every device.
    """
    shape = shape_of(mesh)
    found = []
    for name, array in flatten(tree).items():
        axes = axes_for(_parameter(name), array.shape, shape, rules) if len(array.shape) else ()
        found.append(sharding(mesh, axes))
    return _rebuilt(tree, found)


def batch_sharding(mesh: Any) -> Any:
    """Return the `NamedSharding` of arrays (B, ...): the sequences are shared by the devices of data and fsdp."""
    return sharding(mesh, (("data", "fsdp"),))


def replicated(mesh: Any) -> Any:
    """Return the `NamedSharding` of an array that every device holds whole."""
    return sharding(mesh, ())


def sharding(mesh: Any, axes: Sequence[Any]) -> Any:
    """Return the `NamedSharding` that splits the first axes of an array over these axes of the mesh."""
    jax = require_jax()
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))


def place(tree: Tree, shardings: Tree) -> Tree:
    """Put arrays that every process has whole onto the devices; each process copies only what its own devices hold.

    As everywhere in JAX, numbers of 64 bits become numbers of 32 unless `jax_enable_x64` is set.
    """
    return tree_map(_placed, tree, shardings)


def fetch(tree: Tree) -> Tree:
    """Return whole NumPy arrays, on every process: all processes must call this together."""
    return tree_map(_fetched, tree)


def fetch_for(wanted: bool, tree: Tree) -> Tree | None:
    """Fetch together with the other processes; one that does not want it keeps nothing, and returns None."""
    if wanted:
        return fetch(tree)
    for array in flatten(tree).values():
        _sent(array)
    return None


def _placed(array: Array, target: Any) -> Any:
    host = np.asarray(array)
    return require_jax().make_array_from_callback(host.shape, target, lambda index: host[index])


def _fetched(array: Array) -> np.ndarray:
    # What a device of this process holds whole, or together with its neighbors here, needs no message to others.
    if getattr(array, "is_fully_addressable", True) or array.is_fully_replicated:
        return np.asarray(array)
    whole = np.empty(array.shape, array.dtype)
    for index, part in _pieces(array):
        whole[index] = part
    return whole


def _sent(array: Array) -> None:
    """Take part in `_fetched` of others."""
    if not (getattr(array, "is_fully_addressable", True) or array.is_fully_replicated):
        for _ in _pieces(array):
            pass


def _pieces(array: Array) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield an array of several processes bit by bit, and where it belongs.

    On its way it is whole on every device, which has no room for all layers of a large model at once.
    """
    from jax.experimental.multihost_utils import process_allgather

    for index in range(array.shape[0]) if array.ndim > 2 else [...]:
        yield index, np.asarray(process_allgather(array[index], tiled=True))


def _parameter(name: str) -> str:
    """Return what stands at the end of the name of a state's array: the name of the parameter it belongs to."""
    steps = name.split(".")
    first = next((place for place, step in enumerate(steps) if step in ROOTS), 0)
    return ".".join(steps[first:])


def _rebuilt(tree: Tree, leaves: list[Any]) -> Tree:
    values = iter(leaves)
    return tree_map(lambda _: next(values), tree)
