"""Where the arrays of a training run lie: on one device, or on a mesh of many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import Array, Tree
from ..backend import Spreading
from ..models import Batch
from ..ops import IGNORE
from ..parallel.mesh import MeshShape, build_mesh
from ..parallel.sharding import param_shardings, sharding, state_shardings, working_shardings
from ..tree import flatten, tree_map

_ROWS = ("data", "fsdp")


class Placement:
    """The devices of a run; `mesh` is None on a single device."""

    def __init__(self, shape: MeshShape) -> None:
        import jax

        self.mesh = build_mesh(shape) if shape.size > 1 or jax.process_count() > 1 else None
        self.replicas = shape.replicas

    def of_state(self, trees: Tree) -> Tree:
        """Return the sharding of every array of a state."""
        if self.mesh is None:
            device = self._device()
            return tree_map(lambda _: device, trees)
        return {
            name: (param_shardings if name == "params" else state_shardings)(tree, self.mesh)
            for name, tree in trees.items()
        }

    def pinned(self, trees: Tree) -> Tree:
        """Say in a traced program that a new state lies where the old one lay."""
        if self.mesh is None:
            return trees
        import jax

        return tree_map(jax.lax.with_sharding_constraint, trees, self.of_state(trees))

    def outside_blocks(self, change: Callable[[Tree], Tree], tree: Tree) -> Tree:
        """Apply `change` to what belongs to no block: blocks do it for themselves, one at a time."""
        if self.mesh is None or not isinstance(tree, dict):
            return tree
        parts = {name: part for name, part in flatten(tree).items() if "blocks" not in name.split(".")}
        changed = change(parts)
        return _with_leaves(tree, changed)

    def working(self, params: Tree) -> Tree:
        """Say in a traced program that parameters are brought together along fsdp where they are used."""
        import jax

        return tree_map(jax.lax.with_sharding_constraint, params, working_shardings(params, self.mesh))

    def resting(self, grads: Tree) -> Tree:
        """Say in a traced program that gradients are added up, then shared out as the parameters are.

        On the way they lie as the parameters do while they are used: the partitioner knows how to get there.
        """
        import jax

        grads = self.working(grads)
        return tree_map(jax.lax.with_sharding_constraint, grads, param_shardings(grads, self.mesh))

    @property
    def spreading(self) -> Spreading | None:
        """How a model's arrays lie in a traced program: every device has its own sequences."""
        if self.mesh is None:
            return None
        import jax

        target = sharding(self.mesh, (_ROWS,))
        return Spreading(
            activations=lambda x: jax.lax.with_sharding_constraint(x, target) if x.ndim == 3 else x,
            weights=self.working,
            slopes=self.resting,
        )

    def batch(self, rows: Callable[[Array], Batch], size: int, parts: int) -> Batch:
        """Return `size` rows as arrays (parts, size / parts, ...); every process asks `rows` for its own alone."""
        numbers = np.arange(size).reshape(parts, size // parts)
        if self.mesh is None:
            return _narrow(rows(numbers.reshape(-1)), (parts, size // parts))
        target = sharding(self.mesh, (None, _ROWS))
        known: dict[tuple[int, ...], Batch] = {}

        def part(field: str, index: tuple[slice, ...]) -> Array:
            wanted = numbers[index[:2]]
            if (own := tuple(wanted.reshape(-1).tolist())) not in known:
                known[own] = _narrow(rows(wanted.reshape(-1)), wanted.shape)
            return getattr(known[own], field)[(slice(None), slice(None), *index[2:])]

        shapes = rows(numbers[0, :1])
        return Batch(
            *(
                None
                if one is None
                else self._gathered((*numbers.shape, *np.shape(one)[1:]), target, _part_of(part, field))
                for field, one in shapes._asdict().items()
            )
        )

    def whole(self, batch: Batch, rows: int, length: int) -> Batch:
        """Return a batch that every process has, padded to `rows` examples of `length` tokens."""
        padded = _narrow(_padded(batch, rows, length), (rows,))
        if self.mesh is None:
            return padded
        target = sharding(self.mesh, (_ROWS,))
        return tree_map(lambda x: self._gathered(x.shape, target, lambda index: x[index]), padded)

    def _gathered(self, shape: tuple[int, ...], target: Any, part: Callable[[Any], Array]) -> Array:
        import jax

        return jax.make_array_from_callback(shape, target, part)

    def _device(self) -> Any:
        import jax

        return jax.sharding.SingleDeviceSharding(jax.local_devices()[0])


def _with_leaves(tree: Tree, leaves: dict[str, Any], name: str = "") -> Tree:
    """Return the tree with some leaves replaced, by their dotted names."""
    if isinstance(tree, dict):
        return {part: _with_leaves(below, leaves, f"{name}.{part}" if name else part) for part, below in tree.items()}
    return leaves.get(name, tree)


def _part_of(part: Callable[[str, Any], Array], field: str) -> Callable[[Any], Array]:
    return lambda index: part(field, index)


def _narrow(batch: Batch, leading: tuple[int, ...]) -> Batch:
    """Give every array of a batch these leading axes, and ids 32 bits."""

    def shaped(x: Array) -> Array:
        x = np.asarray(x)
        return x.astype(np.int32 if x.dtype.kind == "i" else x.dtype).reshape(*leading, *x.shape[1:])

    return tree_map(shaped, batch)


def _padded(batch: Batch, rows: int, length: int) -> Batch:
    """Fill up a batch with examples and tokens that do not count, so that all batches have one shape."""
    count, given = np.shape(batch.tokens)[0], batch._asdict()
    for name, mask in (("tokens", "mask"), ("source", "source_mask")):
        if given[name] is not None and given[mask] is None:
            given[mask] = np.ones(np.shape(given[name]), bool)

    def fill(name: str, x: Array) -> Array:
        x = np.asarray(x)
        sizes = [(0, rows - count), *([(0, max(length - x.shape[1], 0))] if x.ndim > 1 else [])]
        return np.pad(x, sizes, constant_values=IGNORE if name == "targets" else 0)

    return Batch(**{name: None if x is None else fill(name, x) for name, x in given.items()})
