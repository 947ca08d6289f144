"""Blocks as one loop of a JAX program: it is compiled once, however many layers there are.

The arrays of the blocks' parameters, records and gradients then have the layers as their first axis.
"""

from collections.abc import Callable, Sequence

import jax

from ...arrays import Array, Tree
from ...dispatch import stands_for
from ...layers.layer import InputGrads
from ...layers.stack import Stack


@stands_for(Stack.run_blocks, Stack.run_blocks_backward)
def run_blocks(self: Stack, blocks: Tree, x: Array, given: Tree, keys: Sequence[Array | None]) -> tuple[Array, Tree]:
    """Return the result of all blocks, and their records."""
    if not isinstance(blocks, dict):
        return NotImplemented
    stacked = None if keys[0] is None else jax.numpy.stack([jax.numpy.asarray(key) for key in keys])
    rebuild: Callable[[list[Array]], Tree] = list

    def step(x: Array, own: tuple[Tree, Array | None]) -> tuple[Array, list[Array]]:
        nonlocal rebuild
        x, record = self.run_block(own[0], x, given, own[1])
        arrays, rebuild = _each_once(record)
        return x, arrays

    x, arrays = jax.lax.scan(step, x, (blocks, stacked))
    return x, rebuild(arrays)


@stands_for(Stack.run_blocks_backward, Stack.run_blocks)
def run_blocks_backward(self: Stack, blocks: Tree, records: Tree, given: Tree, dy: Array) -> tuple[InputGrads, Tree]:
    """Return the gradients of what the blocks read, and of their parameters."""
    if not isinstance(blocks, dict):
        return NotImplemented
    arrays, rebuild = _each_once((blocks, records))

    def step(later: InputGrads, own: list[Array]) -> tuple[InputGrads, Tree]:
        params, record = rebuild(own)
        read, grads = self.run_block_backward(params, record, given, later.x)
        return read.after(later), grads

    shapes, _ = jax.eval_shape(step, InputGrads(dy), [array[-1] for array in arrays])
    # Every block adds to the gradients of the memory and of the bias.
    sums = jax.tree.map(lambda part: jax.numpy.zeros(part.shape, part.dtype), shapes._replace(x=None))
    return jax.lax.scan(step, sums._replace(x=dy), arrays, reverse=True)


def _each_once(tree: Tree) -> tuple[list[Array], Callable[[list[Array]], Tree]]:
    """Return the arrays of a tree, and how to put others in their places.

    What stands at several places of a record, such as an input that several sublayers keep, goes through a loop once.
    """
    leaves, form = jax.tree.flatten(tree)
    arrays = list({id(leaf): leaf for leaf in leaves}.values())
    numbers = {id(array): number for number, array in enumerate(arrays)}
    places = [numbers[id(leaf)] for leaf in leaves]
    return arrays, lambda others: jax.tree.unflatten(form, [others[place] for place in places])
