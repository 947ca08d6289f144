"""The placement of a training run's arrays: on one device, or on a mesh of many."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from ...core.arrays import Array, Tree, cast, half_type
from ...core.execution import MeshShape
from ...core.sources import SourceGuard
from ...core.tree import flatten, rebuilt, tree_map
from ...layers import Layer
from ...models import Batch
from ...ops import IGNORE
from ..mesh.rules import RULES, Rules, build_mesh
from ..mesh.sharding import names_in_list, param_shardings, place, sharding, stack_blocks, working_shardings

DRAWING = SourceGuard("Placement.drawn", Layer)

_ROWS = ("data", "fsdp")


class Placement:
    """The devices of a run.

    mesh      their arrangement; None on a single device
    compute   the half precision that a run computes in, if it does
    rules     how parameters are split
    """

    def __init__(self, shape: MeshShape, compute: str | None = None, rules: Rules = RULES) -> None:
        self.compute, self.rules = compute, rules
        self.mesh = build_mesh(shape) if shape.size > 1 or jax.process_count() > 1 else None
        self.replicas = shape.replicas

    def of_state(self, trees: Tree) -> Tree:
        if self.mesh is None:
            device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
            return tree_map(lambda _: device, trees)
        return {name: param_shardings(tree, self.mesh, self.rules) for name, tree in trees.items()}

    def shapes(self, trees: Tree, *, stack: bool) -> Tree:
        """Return the shape, type and sharding of every array of a state, its blocks stacked or not."""
        trees = tree_map(lambda x: jax.ShapeDtypeStruct(x.shape, getattr(x, "dtype", np.float32)), trees)
        trees = jax.eval_shape(stack_blocks, trees) if stack else trees
        return tree_map(
            lambda x, home: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=home), trees, self.of_state(trees)
        )

    def put(self, trees: Tree, *, stack: bool) -> Tree:
        """Return a state of NumPy arrays on the devices; blocks are stacked one array at a time."""
        return self._arranged(flatten(trees), self.shapes(trees, stack=stack))

    def drawn(self, specs: Tree, seed: int, *, stack: bool) -> Tree:
        """Draw parameters as `init` does, if DRAWING is current: each is on its devices before the next is made."""
        rng = np.random.default_rng(seed)
        homes = flatten(self.of_state({"params": specs})["params"])
        leaves = {
            name: jax.block_until_ready(place(spec.draw(rng, np.float32), homes[name]))
            for name, spec in flatten(specs).items()
        }
        return self._arranged(leaves, self.shapes({"params": specs}, stack=stack)["params"])

    def _arranged(self, leaves: dict[str, Array], shapes: Tree) -> Tree:
        """Return leaves, which are used up, as a tree of arrays on the devices, as large as `shapes` says."""
        arrays = {}
        for name, shape in flatten(shapes).items():
            alone = name in leaves
            parts = [leaves.pop(name)] if alone else [leaves.pop(part) for part in names_in_list(name, shape.shape[0])]
            if isinstance(parts[0], np.ndarray):
                arrays[name] = place(parts[0] if alone else np.stack(parts), shape.sharding)
            else:
                # Waited for: what the parts took is free before more is asked for.
                stack = jax.jit(jax.numpy.stack, out_shardings=shape.sharding)
                arrays[name] = parts[0] if alone else jax.block_until_ready(stack(parts))
            del parts
        return rebuilt(shapes, arrays)

    def pinned(self, trees: Tree) -> Tree:
        """Constrain a new state, in a traced program, to the sharding of the old one."""
        if self.mesh is None:
            return trees
        return tree_map(jax.lax.with_sharding_constraint, trees, self.of_state(trees))

    def outside_blocks(self, change: Callable[[Tree], Tree], tree: Tree) -> Tree:
        """Apply `change` to what belongs to no block: blocks do it for themselves, one at a time."""
        if self.mesh is None or not isinstance(tree, dict):
            return tree
        parts = {name: part for name, part in flatten(tree).items() if "blocks" not in name.split(".")}
        return rebuilt(tree, flatten(tree) | change(parts))

    def working(self, params: Tree) -> Tree:
        """Gather parameters along fsdp, in a traced program, where they are used.

        In half precision what is split is rounded before it travels. Then it is widened again, so that the gradients
        keep the type of the parameters; ops that round it once more get the same numbers.
        """
        constrain = jax.lax.with_sharding_constraint

        def gathered(p: Array, home: Any, work: Any) -> Array:
            if self.compute is None or home.is_equivalent_to(work, p.ndim):
                return constrain(p, work)
            rounded = constrain(cast(p, half_type(p, self.compute)), home)
            return cast(constrain(rounded, work), p.dtype)

        home, work = param_shardings(params, self.mesh, self.rules), working_shardings(params, self.mesh, self.rules)
        return tree_map(gathered, params, home, work)

    def resting(self, grads: Tree) -> Tree:
        """Add up gradients, in a traced program, as wide as they are, and shard them as the parameters.

        On the way they have the sharding of parameters in use: the partitioner knows how to get there.
        """
        for shardings in (working_shardings, param_shardings):
            home = shardings(grads, self.mesh, self.rules)
            grads = tree_map(jax.lax.with_sharding_constraint, grads, home)
        return grads

    def spread(self, x: Array) -> Array:
        """Shard activations (B, T, D), in a traced program, by sequence."""
        return jax.lax.with_sharding_constraint(x, sharding(self.mesh, (_ROWS,))) if x.ndim == 3 else x

    def batch(self, rows: Callable[[Array], Batch], size: int, parts: int) -> Batch:
        """Return `size` rows as arrays (parts, size / parts, ...); every process asks `rows` for its own alone."""
        numbers = np.arange(size).reshape(parts, size // parts)
        if self.mesh is None:
            return _narrow(rows(numbers.reshape(-1)), (parts, size // parts))
        target = sharding(self.mesh, (None, _ROWS))
        known: dict[tuple[int, ...], Batch] = {}

        def part(field: str, index: tuple[slice, ...]) -> Array:
            wanted = numbers[index[:2]]
            if (key := tuple(wanted.reshape(-1).tolist())) not in known:
                known[key] = _narrow(rows(wanted.reshape(-1)), wanted.shape)
            return getattr(known[key], field)[(slice(None), slice(None), *index[2:])]

        shapes = rows(numbers[0, :1])
        gathered = {
            field: jax.make_array_from_callback((*numbers.shape, *np.shape(array)[1:]), target, partial(part, field))
            for field, array in shapes._asdict().items()
            if array is not None
        }
        return shapes._replace(**gathered)

    def padded(self, batch: Batch, rows: int, length: int) -> Batch:
        """Return a batch that every process has, filled up with examples and tokens that do not count."""
        count, arrays = np.shape(batch.tokens)[0], batch._asdict()
        for name, mask in (("tokens", "mask"), ("source", "source_mask")):
            if arrays[name] is not None and arrays[mask] is None:
                arrays[mask] = np.ones(np.shape(arrays[name]), bool)

        def fill(name: str, x: Array) -> Array:
            x = np.asarray(x)
            sizes = [(0, rows - count), *([(0, max(length - x.shape[1], 0))] if x.ndim > 1 else [])]
            return np.pad(x, sizes, constant_values=IGNORE if name == "targets" else 0)

        filled = Batch(**{name: None if x is None else fill(name, x) for name, x in arrays.items()})
        filled = _narrow(filled, (rows,))
        if self.mesh is None:
            return filled
        target = sharding(self.mesh, (_ROWS,))
        return place(filled, tree_map(lambda _: target, filled))


def _narrow(batch: Batch, leading: tuple[int, ...]) -> Batch:
    """Give every array of a batch these leading axes, and ids 32 bits."""

    def shaped(x: Array) -> Array:
        x = np.asarray(x)
        return x.astype(np.int32 if x.dtype.kind == "i" else x.dtype).reshape(*leading, *x.shape[1:])

    return tree_map(shaped, batch)
