"""What is said of arrays while a program for several devices is traced: where they lie, and when they move.

XLA adds the messages between devices by itself. Left alone it may gather activations in the place of weights, or all
weights before the first block; so each block says what it wants.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from inspect import unwrap
from typing import NamedTuple

from jax.lax import optimization_barrier

from ...arrays import Array, Tree
from ...dispatch import stands_for
from ...layers.layer import InputGrads
from ...layers.stack import Again, Stack


class Spreading(NamedTuple):
    """Where the arrays of a block go."""

    activations: Callable[[Array], Array]  # (B, T, D), as a block returns them
    weights: Callable[[Tree], Tree]  # parameters of a block, before it uses them
    gradients: Callable[[Tree], Tree]  # of the parameters of a block, as soon as it has them


_spreading: ContextVar[Spreading | None] = ContextVar("spreading", default=None)


@contextmanager
def spreading(how: Spreading | None) -> Iterator[None]:
    """Trace for several devices inside a `with` block."""
    token = _spreading.set(how)
    try:
        yield
    finally:
        _spreading.reset(token)


def is_spread() -> bool:
    """Tell whether a program for several devices is being traced."""
    return _spreading.get() is not None


@stands_for(Stack.run_block)
def run_block(self: Stack, params: Tree, x: Array, given: Tree, key: Array | None) -> tuple[Array, Tree]:
    """Run a block whose weights are brought together just before."""
    how = _spreading.get()
    if how is None:
        return NotImplemented
    y, record = unwrap(Stack.run_block)(self, how.weights(params), x, given, key)
    return how.activations(y), record


@stands_for(Stack.run_block_backward)
def run_block_backward(self: Stack, params: Tree, record: Tree, given: Tree, dy: Array) -> tuple[InputGrads, Tree]:
    """Run a block backward, its weights brought together before and its gradients shared out after."""
    how = _spreading.get()
    if isinstance(record, Again):
        # What a block read waits for dy: else XLA sees the forward pass repeated, and keeps its results.
        x, dy = optimization_barrier((record.x, dy))
        record = record._replace(x=x)
    elif how is None:
        return NotImplemented
    if how is None:
        return unwrap(Stack.run_block_backward)(self, params, record, given, dy)
    read, grads = unwrap(Stack.run_block_backward)(self, how.weights(params), record, given, dy)
    return read._replace(x=how.activations(read.x)), how.gradients(grads)
