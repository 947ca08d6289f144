"""Blocks as one loop of a JAX program: it is compiled once, however many layers there are.

The arrays of the blocks' parameters, records and gradients then have the layers as their first axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arrays import Array, Tree
from ..errors import ConfigError
from .attention import InputGrads


def forward(
    run: Callable[..., tuple[Array, Tree]], params: Tree, x: Array, keys: Sequence[Array | None]
) -> tuple[Array, Tree]:
    """Return the result of all blocks, and their records."""
    jax = _jax(x)
    stacked = None if keys[0] is None else jax.numpy.stack([jax.numpy.asarray(key) for key in keys])
    return jax.lax.scan(lambda x, own: run(own[0], x, own[1]), x, (params, stacked))


def backward(
    run_back: Callable[..., tuple[InputGrads, Tree]], params: Tree, records: Tree, dy: Array
) -> tuple[InputGrads, Tree]:
    """Return the gradients of what the blocks read, and of their parameters."""
    jax = _jax(dy)
    first = jax.tree.map(lambda part: part[-1], (params, records))
    shapes, _ = jax.eval_shape(run_back, *first, dy)
    # Every block adds to the gradients of the memory and of the bias.
    sums = jax.tree.map(lambda part: jax.numpy.zeros(part.shape, part.dtype), shapes._replace(x=None))

    def step(later: InputGrads, own: tuple[Tree, Tree]) -> tuple[InputGrads, Tree]:
        read, grads = run_back(*own, later.x)
        return read.after(later), grads

    return jax.lax.scan(step, sums._replace(x=dy), (params, records), reverse=True)


def _jax(x: Array) -> Any:
    if not x.__array_namespace__().__name__.startswith("jax"):
        raise ConfigError(
            "the parameters of the blocks are stacked, which only JAX can run",
            hint="give the blocks as a list, or use the engine jax",
        )
    import jax

    return jax
