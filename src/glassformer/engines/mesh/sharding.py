"""Arrays on the devices of a mesh: where each part goes, how it gets there, and how it comes back."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.arrays import Array, Tree, namespace
from ...core.errors import ShapeError
from ...core.tree import flatten, map_named, tree_map
from .rules import RULES, Rules, axes_for, require_jax, shape_of

ROOTS = frozenset({
    "embedding", "source_embedding", "blocks", "encoder", "decoder", "final_norm", "relative", "head", "classifier",
    "cls", "pooled_linear",
})  # fmt: skip
"""The first steps of parameters' names."""


def param_shardings(tree: Tree, mesh: Any, rules: Rules = RULES) -> Tree:
    """Return the `NamedSharding` of every parameter (anything with a shape), or of what a state keeps, by dotted name.

    {"step": …, "mean": {"blocks": …}}: what an optimizer or an average remembers about a parameter is split as the
    parameter is, whose name begins at the first step that parameters' names begin with. Scalars are on every device.
    """
    shape = shape_of(mesh)

    def resting(name: str, array: Array) -> Any:
        steps = name.split(".")
        first = next((index for index, step in enumerate(steps) if step in ROOTS), 0)
        parameter = ".".join(steps[first:])
        return sharding(mesh, axes_for(parameter, array.shape, shape, rules) if len(array.shape) else ())

    return map_named(resting, tree)


def working_shardings(tree: Tree, mesh: Any, rules: Rules = RULES) -> Tree:
    """Return the `NamedSharding` of every parameter while it is used: split over tensor alone.

    A compiled step has to ask for it with `jax.lax.with_sharding_constraint`, and inside a loop over blocks for one
    block at a time, by names such as "attention.query.w". Else XLA gathers activations in the place of weights, or all
    weights at once. A block's gradients are asked to have this sharding first and then that of `param_shardings`.
    """
    shape = shape_of(mesh)

    def working(name: str, p: Array) -> Any:
        axes = axes_for(name, p.shape, shape, rules)
        return sharding(mesh, [None if axis == "fsdp" else axis for axis in axes])

    return map_named(working, tree)


def sharding(mesh: Any, axes: Sequence[Any]) -> Any:
    """Return the `NamedSharding` that splits the first axes of an array over these axes of the mesh."""
    jax = require_jax()
    return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))


def place(tree: Tree, shardings: Tree) -> Tree:
    """Put arrays that every process has whole onto the devices; each process copies only what its own devices hold.

    As everywhere in JAX, numbers of 64 bits become numbers of 32 unless `jax_enable_x64` is set.
    """
    jax = require_jax()

    def placed(array: Array, target: Any) -> Any:
        host = np.asarray(array)
        return jax.make_array_from_callback(host.shape, target, lambda index: host[index])

    return tree_map(placed, tree, shardings)


def fetch(tree: Tree, *, wanted: bool = True) -> Tree:
    """Return whole NumPy arrays; all processes must call this, and one that does not want them gets None."""
    arrays = tree_map(lambda array: _fetched(array, wanted), tree)
    return arrays if wanted else None


def _fetched(array: Array, wanted: bool) -> np.ndarray | None:
    # What a device of this process holds whole, or the devices of this process hold in all, needs no message to others.
    if getattr(array, "is_fully_addressable", True) or array.is_fully_replicated:
        return np.asarray(array) if wanted else None
    from jax.experimental.multihost_utils import process_allgather

    gathered = np.empty(array.shape, array.dtype) if wanted else None
    # On its way it is whole on every device, which cannot hold all layers of a large model at once.
    for index in range(array.shape[0]) if array.ndim > 2 else [...]:
        part = np.asarray(process_allgather(array[index], tiled=True))
        if gathered is not None:
            gathered[index] = part
    return gathered


# --- two layouts of blocks --------------------------------------------------------------------------------------------
#
#     blocks.0.attention.query.w (D, H·C), blocks.1.attention.query.w, …   a list, as models and checkpoints have it
#     blocks.attention.query.w (L, D, H·C)                                 stacked, as one compiled loop reads it
#
# Both functions change every list of blocks in a tree, wherever it stands: parameters of all architectures, and what
# optimizers and averages keep of them.

BLOCKS = "blocks"


def stack_blocks(tree: Tree) -> Tree:
    """Return the tree with every list of blocks as one block of stacked arrays; what is stacked already stays."""
    return _changed(tree, list, _stacked)


def unstack_blocks(tree: Tree) -> Tree:
    """Return the tree with every stacked block as a list of blocks; what is a list already stays."""
    return _changed(tree, dict, _unstacked)


def names_in_list(name: str, layers: int) -> list[str]:
    """Return the names, in a list of blocks, of what one stacked array holds.

    "blocks.attention.query.w" → "blocks.0.attention.query.w", "blocks.1.attention.query.w", …
    """
    steps = name.split(".")
    index = steps.index(BLOCKS) + 1
    return [".".join([*steps[:index], str(layer), *steps[index:]]) for layer in range(layers)]


def _changed(tree: Tree, container: type, change: Any) -> Tree:
    if isinstance(tree, dict):
        return {
            name: change(part) if name == BLOCKS and isinstance(part, container) else _changed(part, container, change)
            for name, part in tree.items()
        }
    return tree


def _stacked(blocks: list[Tree]) -> Tree:
    first = _shapes(blocks[0]) if blocks else {}
    for number, block in enumerate(blocks):
        shapes = _shapes(block)
        for name in sorted(first.keys() | shapes.keys()):
            if first.get(name) != shapes.get(name):
                here, there = (s.get(name, "missing") for s in (first, shapes))
                raise ShapeError(
                    f"blocks cannot be stacked: {name} is {here} in block 0 and {there} in block {number}",
                    hint="only blocks of the same kind can; keep them as a list",
                )
    return tree_map(lambda *arrays: namespace(arrays[0]).stack(arrays), *blocks) if blocks else []


def _unstacked(block: Tree) -> Tree:
    if block and all(name.isdigit() for name in block):
        return block  # some blocks of a list, such as those with adapters
    lengths = {name: array.shape[0] if array.shape else 0 for name, array in flatten(block).items()}
    if len(set(lengths.values())) > 1:
        raise ShapeError(
            f"the arrays of stacked blocks differ in their number of layers: {lengths}",
            hint="the first axis of every array must be the layers",
        )
    layers = next(iter(lengths.values()), 0)
    return [tree_map(lambda array, at=layer: array[at], block) for layer in range(layers)]


def _shapes(block: Tree) -> dict[str, tuple[Any, ...]]:
    return {name: (*array.shape, str(array.dtype)) for name, array in flatten(block).items()}
