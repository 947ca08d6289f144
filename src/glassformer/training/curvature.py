"""Second derivatives of the loss, and how much gradients differ from example to example.

    loss, grads = model.loss_and_grads(params, batch)
    hvp(model, params, batch, grads)                    how the gradient changes along itself
    per_example_gradients(model, params, batch)         one gradient for each example
    gradient_noise_scale(model, params, batch)          the batch size beyond which larger batches gain little

A trained model stands for `model, params` in all of them.

The gradients are derived by hand, so they are ordinary functions of the parameters, and the complex step differentiates
them once more: H v = Im grads(params + i h v) / h, exact to rounding because nothing is subtracted.
"""

from typing import NamedTuple

import numpy as np

from ..core.arrays import Array, Tree
from ..core.dispatch import use_engine
from ..core.errors import ConfigError, ShapeError
from ..core.tree import flatten, tree_map
from ..models import Batch, Model
from ..weights.loaded_model import trained_or_pair

STEP = 1e-30
"""Its square vanishes beside any double."""


class ExampleGradients(NamedTuple):
    """The loss of each example, (B,), and its gradients: the tree of the parameters, with an axis of examples first."""

    losses: Array
    grads: Tree


class NoiseScale(NamedTuple):
    """Spread of the gradients of single examples (McCandlish et al. 2018, "An Empirical Model of Large-Batch
    Training").

    scale      trace / squared_norm, the batch size at which noise and signal are equal
    trace      of the covariance of the examples' gradients
    squared_norm   of the true gradient; both are unbiased estimates, and this one can be negative where noise prevails
    """

    scale: float
    trace: float
    squared_norm: float


@trained_or_pair
def hvp(model: Model, params: Tree, batch: Batch, vector: Tree) -> Tree:
    """Return the product of the Hessian of the mean loss with a vector, a tree like the parameters.

        H v = d/dt grads(params + t v) at t = 0

    It is computed in float64 with the ops as written, whatever the engine and the type of the parameters.
    ReLU has no second derivative at 0; there, and for ops of your own that are not analytic, the result is undefined.
    """
    wanted, have = flatten(params), flatten(vector)
    for name in [*wanted, *have]:
        shapes = [np.shape(tree[name]) if name in tree else "nothing" for tree in (wanted, have)]
        if shapes[0] != shapes[1]:
            fact = f"the vector has {shapes[1]} at {name}, the parameters have {shapes[0]}"
            raise ShapeError(fact, hint="give a tree like the parameters, such as their gradients")

    def moved(x: Array, v: Array) -> Array:
        return np.asarray(x, np.float64) + 1j * STEP * np.asarray(v, np.float64)

    with use_engine("numpy"):
        _, grads = model.loss_and_grads(tree_map(moved, params, vector), batch)
    if not all(np.iscomplexobj(leaf) for leaf in flatten(grads).values()):
        raise ConfigError(
            "a part of this model returns real gradients for complex parameters, which hides the second derivative",
            hint="an op or layer of your own must not cast to a real type or take .real",
        )
    return tree_map(lambda g: np.imag(g) / STEP, grads)


@trained_or_pair
def per_example_gradients(model: Model, params: Tree, batch: Batch) -> ExampleGradients:
    """Return the loss and the gradients of every example of a batch, each as if it were a batch of one.

    An example's loss is the mean over its own targets. Examples with equally many targets average to the gradients of
    the batch.
    """
    results = [model.loss_and_grads(params, example) for example in _examples(batch)]
    losses = np.stack([np.asarray(loss) for loss, _ in results])
    return ExampleGradients(losses, tree_map(lambda *leaves: np.stack(leaves), *(grads for _, grads in results)))


@trained_or_pair
def gradient_noise_scale(model: Model, params: Tree, batch: Batch) -> NoiseScale:
    """Estimate the gradient noise scale from the examples of one batch: trace(Σ) / |G|².

        trace(Σ) = Σᵢ |gᵢ − ḡ|² / (B − 1)        |G|² = |ḡ|² − trace(Σ) / B

    Gradients of one example at a time are held, besides two sums.
    """
    examples = _examples(batch)
    count = len(examples)
    if count < 2:
        raise ShapeError("the batch has one example, whose gradient cannot vary", hint="pass two examples or more")
    total: Tree = None
    squares = 0.0
    for example in examples:
        _, grads = model.loss_and_grads(params, example)
        grads = tree_map(lambda g: np.asarray(g, np.float64), grads)
        squares += _squared_norm(grads)
        total = grads if total is None else tree_map(np.add, total, grads)
    mean = _squared_norm(total) / count**2
    trace = (squares - count * mean) / (count - 1)
    norm = mean - trace / count
    return NoiseScale(trace / norm if norm > 0 else float("inf"), trace, norm)


def _squared_norm(tree: Tree) -> float:
    return sum(float(np.vdot(leaf, leaf)) for leaf in flatten(tree).values())


def _examples(batch: Batch) -> list[Batch]:
    """Return each example as a batch of one."""
    if np.ndim(batch.tokens) != 2 or not len(batch.tokens):
        raise ShapeError(
            f"the tokens have shape {np.shape(batch.tokens)}", hint="pass a batch (examples, positions) with examples"
        )
    return [Batch(*(None if x is None else x[n : n + 1] for x in batch)) for n in range(len(batch.tokens))]
