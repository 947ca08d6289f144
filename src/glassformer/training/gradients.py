"""Gradients between the backward pass and the optimizer: norms, clipping, accumulation."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree, cast, is_integer, namespace, widen
from ..core.errors import ConfigError
from ..core.tree import flatten, named_leaves, tree_map


def global_norm(tree: Tree) -> Array:
    """Return √Σ x² over all numbers of all arrays; zero for an empty tree.

    Arrays are added by name, so the last bit does not depend on the order in which a dict was filled.
    """
    leaves = flatten(tree)
    arrays = [leaves[name] for name in sorted(leaves)]
    if not arrays:
        return np.zeros(())
    total = ops.sum_of_squares(*arrays)
    return namespace(total).sqrt(total)


def clip(grads: Tree, max_norm: float) -> tuple[Tree, Array]:
    """Shorten the gradients, all together, to a global norm of at most `max_norm`; return them and the norm before.

        grads · min(1, max_norm / (norm + 1e-6))

    This is PyTorch's definition: gradients below the limit are returned as they are, those above end a millionth short
    of it. A norm that is infinite or not a number makes gradients that are not numbers; see `all_finite`.
    """
    if not max_norm > 0:
        raise ConfigError(f"max_norm is {max_norm}", hint="use a positive number, such as 1.0")
    norm = global_norm(grads)
    xp = namespace(norm)
    scale = xp.minimum(xp.asarray(1.0, dtype=norm.dtype), max_norm / (norm + 1e-6))
    if isinstance(scale, np.generic) and scale == 1:
        return grads, norm
    return tree_map(lambda g: g * cast(scale, g.dtype), grads), norm


def accumulate(parts: Iterable[tuple[Array, Tree, Any]]) -> tuple[Array, Tree, Any]:
    """Combine microbatches, each (mean loss, its gradients, number of counted targets), into one large batch.

        loss = Σ nᵢ lossᵢ / Σ nᵢ      grads = Σ nᵢ gradsᵢ / Σ nᵢ

    Weighing by the number of targets makes this exact when microbatches hold different numbers of them; a plain mean of
    means would not be. Returns (loss, grads, Σ nᵢ). `parts` may be a generator: one microbatch is held at a time.
    """
    total: Any = 0
    sums: Any = None
    dtypes: Any = None
    for loss, grads, count in parts:
        scaled = tree_map(lambda x, n=count: widen(x) * _like(n, widen(x)), (loss, grads))
        dtypes = tree_map(lambda x: x.dtype, (loss, grads))
        sums = scaled if sums is None else tree_map(lambda x, y: x + y, sums, scaled)
        total = total + count
    if sums is None:
        raise ConfigError("there is no microbatch to accumulate", hint="pass at least one")
    # Where nothing was counted the sums are zero, and so is their mean.
    divisor = total + (total == 0)
    loss, grads = tree_map(lambda x, dtype: cast(x / _like(divisor, x), dtype), sums, dtypes)
    return loss, grads, total


def target_shares(counts: Array) -> Array:
    """Return what each part of a batch is worth in the mean over all targets, by how many targets it counts, (parts,).

    share = n / Σ n, zero where nothing is counted at all
    """
    return counts / namespace(counts).maximum(counts.sum(), 1)


def all_finite(tree: Tree) -> Array:
    """Return whether no array holds an infinity or something that is not a number."""
    checks = [_is_finite(x) for _, x in named_leaves(tree) if not is_integer(x)]
    if not checks:
        return np.asarray(True)
    verdict = checks[0]
    for check in checks[1:]:
        verdict = verdict & check
    return verdict


def _is_finite(x: Array) -> Array:
    xp = namespace(x)
    if type(x) is np.ndarray:
        # A sum is finite only if everything in it is, and cheaper than one answer per number.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(x.sum()):
                return np.True_
    return xp.all(xp.isfinite(x))


def _like(number: Any, x: Array) -> Array:
    """Return a number as a scalar of the library and type of x."""
    return namespace(x).asarray(number, dtype=x.dtype)
