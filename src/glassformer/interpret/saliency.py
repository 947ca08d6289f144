"""Saliency: how much each token of the input has to do with an answer, by gradients at its embedding.

    saliency              ‖dx‖                                    how strongly the answer would react
    gradient × input      Σ x · dx                                what x adds, were the model linear
    integrated gradients  Σ (x − x₀) · ∫ dx(x₀ + a (x − x₀)) da   what going from x₀ to x adds: sums to the difference

Each gives one number per token, (B, T). The input is "embedding", or "source_embedding" of an encoder-decoder.

Integrated gradients (Sundararajan et al. 2017) are complete: they sum to answer(x) − answer(x₀). Here completeness also
steers the integral: a piece of the way whose gradients do not add up to what the answer did on it is cut in two.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array
from ..core.errors import ConfigError, ShapeError
from ..core.show import Map, Result, Tabled
from .changes import put
from .gradients import Gradients, Target, gradients
from .run import Run
from .sweep import Answer, Progress, answer

INPUT = "embedding"
NODES = 8
"""Gradients that each piece of the way takes: Gauss's rule is then exact for polynomials of degree 15."""


def saliency(run: Run, of: Target | Gradients, name: str = INPUT) -> Array:
    """Return the length of the gradient at every token, (B, T); of an answer, or of gradients that are there."""
    return np.linalg.norm(_gradients(run, of)[name], axis=-1)


def gradient_times_input(run: Run, of: Target | Gradients, name: str = INPUT) -> Array:
    """Return Σ x · dx at every token, (B, T); of an answer, or of gradients that are there."""
    return np.sum(run[name] * _gradients(run, of)[name], axis=-1)


def _gradients(run: Run, of: Target | Gradients) -> Gradients:
    return of if isinstance(of, Gradients) else gradients(run, of)


@dataclass(frozen=True, eq=False, repr=False)
class Integrated(Tabled):
    """Integrated gradients (B, T), and what they should sum to: answer(x) − answer(x₀)."""

    tokens: Array
    difference: float
    gradients: int  # how many it took

    @property
    def missing(self) -> float:
        """By how much the sum is off."""
        return self.difference - float(self.tokens.sum())

    def result(self) -> Result:
        """Return a row for each example."""
        largest = float(np.abs(self.tokens).max())
        rows = [[f"example {n}", Map(own, largest), float(own.sum())] for n, own in enumerate(self.tokens)]
        notes = [f"they should sum to {self.difference:.6g}, and miss it by {self.missing:.2g}"]
        return Result(f"integrated gradients, by {self.gradients:,} gradients", ("", "by token", ">sum"), rows, notes)


def integrated_gradients(
    run: Run,
    of: Answer,
    *,
    baseline: Array | float | None = 0.0,
    name: str = INPUT,
    tolerance: float | None = None,
    most: int = 1024,
    progress: Progress | None = None,
) -> Integrated:
    """Return what each token adds to the answer on the straight way from a baseline to the input.

    baseline    x₀, a number or an array that broadcasts to the embedding (B, T, D); None: the mean of its vectors, from
                where the way is short and passes no norm of nothing
    tolerance   what may be missing, of the larger of 1 and the difference (none: 1e-6, or 1e-3 in single precision)
    most        gradients after which pieces of the way are no longer cut in two: `missing` is what is left out
    """
    x = run[name]
    start = _baseline(baseline, x)
    if tolerance is None:
        tolerance = 1e-6 if x.dtype == np.float64 else 1e-3

    def at(share: float) -> Run:
        return run.changed(put(name, start + share * (x - start))) if share < 1 else run

    first, last = answer(of, at(0.0)), answer(of, run)
    allowed = tolerance * max(1.0, abs(last - first))
    total, used, done = np.zeros(x.shape[:2]), 0, 0.0
    pieces = [(0.0, 1.0, first, last)]
    while pieces:
        a, b, at_a, at_b = pieces.pop()
        piece = np.sum((x - start) * _integral(lambda share: gradients(at(share), of)[name], a, b), axis=-1)
        used += NODES
        # Short pieces, where the way is steep, may miss more than their length's share: there are few of them.
        if used > most or abs(at_b - at_a - piece.sum()) <= allowed * max(b - a, 0.02):
            total, done = total + piece, done + b - a
        else:
            middle = (a + b) / 2
            at_middle = answer(of, at(middle))
            pieces += [(middle, b, at_middle, at_b), (a, middle, at_a, at_middle)]
        if progress is not None:
            progress(round(100 * done), 100)
    found = Integrated(total, last - first, used)
    if abs(found.missing) > allowed:
        logging.getLogger("glassformer").warning(
            "after %s gradients the integral misses %.2g of %.4g: allow more of them (most=…), or take a baseline where"
            " the model is smooth", f"{used:,}", abs(found.missing), found.difference,
        )  # fmt: skip
    return found


def _integral(dx: Callable[[float], Array], a: float, b: float) -> Array:
    """Return ∫ dx from a to b, by Gauss's rule."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    half = (b - a) / 2
    return sum(w * half * dx(a + half + half * float(node)) for node, w in zip(nodes, weights, strict=True))


def _baseline(baseline: Array | float | None, x: Array) -> Array:
    if x.ndim != 3:
        raise ConfigError(f"the input has shape {x.shape}", hint="use embedding, or another value (B, T, D)")
    if baseline is None:
        baseline = np.mean(x, axis=1, keepdims=True)
    try:
        return np.broadcast_to(np.asarray(baseline, dtype=x.dtype), x.shape)
    except ValueError:
        fact = f"the baseline is {np.shape(baseline)}, the input {x.shape}"
        raise ShapeError(fact, hint="give a number, or as many vectors") from None
