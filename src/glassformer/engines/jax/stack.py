"""Blocks as one loop of a JAX program, and the sharding of their arrays in a program for several devices.

A loop is compiled once, however many layers there are. The arrays of the blocks' parameters, records and gradients then
have the layers as their first axis.

XLA adds the messages between devices by itself. Left alone it may gather activations in the place of weights, or all
weights before the first block; so each block constrains its own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import unwrap
from typing import Any

import jax
from jax.lax import optimization_barrier

from ...core.arrays import Array, Tree
from ...core.dispatch import replaces
from ...core.tree import Named, NamedList
from ...layers.layer import Frozen, InputGrads
from ...layers.stack import RematInputs, Stack
from ...training.trainable import AdaptedWeights

_register = jax.tree_util.register_pytree_node
_register(Named, lambda tree: ((dict(tree),), None), lambda _, parts: parts[0])
_register(NamedList, lambda tree: (tuple(tree), None), lambda _, parts: list(parts))
_register(Frozen, lambda tree: ((dict(tree),), None), lambda _, parts: Frozen(*parts))
_register(
    AdaptedWeights,
    lambda tree: ((dict(tree), tree.a, tree.b), tree.scale),
    lambda scale, parts: AdaptedWeights(parts[0], parts[1], parts[2], scale),
)


@replaces(Stack.run_blocks)
def run_blocks(
    self: Stack, blocks: Tree, x: Array, extra_inputs: Tree, keys: Sequence[Array | None]
) -> tuple[Array, Tree]:
    if not isinstance(blocks, dict):
        return NotImplemented
    stacked = None if keys[0] is None else jax.numpy.stack([jax.numpy.asarray(key) for key in keys])
    rebuild: Callable[[list[Array]], Tree] = list

    def step(x: Array, inputs: tuple[Tree, Array | None]) -> tuple[Array, list[Array]]:
        nonlocal rebuild
        x, record = self.run_block(inputs[0], x, extra_inputs, inputs[1])
        arrays, rebuild = _each_once(record)
        return x, arrays

    x, arrays = jax.lax.scan(step, x, (blocks, stacked))
    return x, rebuild(arrays)


@replaces(Stack.run_blocks_backward)
def run_blocks_backward(
    self: Stack, blocks: Tree, records: Tree, extra_inputs: Tree, dy: Array
) -> tuple[InputGrads, Tree]:
    if not isinstance(blocks, dict):
        return NotImplemented
    arrays, rebuild = _each_once((blocks, records))

    def step(later: InputGrads, inputs: list[Array]) -> tuple[InputGrads, Tree]:
        params, record = rebuild(inputs)
        read, grads = self.run_block_backward(params, record, extra_inputs, later.x)
        return read.after(later), grads

    shapes, _ = jax.eval_shape(step, InputGrads(dy), [array[-1] for array in arrays])
    # Every block adds to the gradients of the memory and of the bias.
    sums = jax.tree.map(lambda part: jax.numpy.zeros(part.shape, part.dtype), shapes._replace(x=None))
    return jax.lax.scan(step, sums._replace(x=dy), arrays, reverse=True)


def _each_once(tree: Tree) -> tuple[list[Array], Callable[[list[Array]], Tree]]:
    """Return the arrays of a tree, each once though several sublayers may keep it, and what rebuilds it of others."""
    leaves, form = jax.tree.flatten(tree)
    arrays = list({id(leaf): leaf for leaf in leaves}.values())
    numbers = {id(array): number for number, array in enumerate(arrays)}
    indices = [numbers[id(leaf)] for leaf in leaves]
    return arrays, lambda others: jax.tree.unflatten(form, [others[index] for index in indices])


_spreading: ContextVar[Any] = ContextVar("spreading", default=None)


@contextmanager
def spreading(placement: Any) -> Iterator[None]:
    """Trace for several devices inside a `with` block, in which a `Placement` says where the arrays of a block go."""
    token = _spreading.set(placement)
    try:
        yield
    finally:
        _spreading.reset(token)


def is_spread() -> bool:
    """Return whether a program for several devices is being traced."""
    return _spreading.get() is not None


@replaces(Stack.run_block)
def run_block(self: Stack, params: Tree, x: Array, extra_inputs: Tree, key: Array | None) -> tuple[Array, Tree]:
    placement = _spreading.get()
    if placement is None:
        return NotImplemented
    y, record = unwrap(Stack.run_block)(self, placement.working(params), x, extra_inputs, key)
    return placement.spread(y), record


@replaces(Stack.run_block_backward)
def run_block_backward(
    self: Stack, params: Tree, record: Tree, extra_inputs: Tree, dy: Array
) -> tuple[InputGrads, Tree]:
    """Run a block backward, its weights gathered before and its gradients sharded after."""
    placement = _spreading.get()
    if isinstance(record, RematInputs):
        # What a block read waits for dy: else XLA sees the forward pass repeated, and keeps its results.
        x, dy = optimization_barrier((record.x, dy))
        record = record._replace(x=x)
    elif placement is None:
        return NotImplemented
    if placement is None:
        return unwrap(Stack.run_block_backward)(self, params, record, extra_inputs, dy)
    read, grads = unwrap(Stack.run_block_backward)(self, placement.working(params), record, extra_inputs, dy)
    return read._replace(x=placement.spread(read.x)), placement.resting(grads)
