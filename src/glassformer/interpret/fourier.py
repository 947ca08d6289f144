"""Fourier components over the vocabulary: how a model that learned arithmetic modulo n stores its numbers.

    found = fourier(model.params["embedding"]["tokens"]["table"][:113])
    found.top(5)                                    the frequencies that hold most of the embedding, with their shares
    basis = fourier_basis(113)
    basis @ logits @ basis.T                        logits (113, 113) of all a + b, by pairs of components

A network that groks modular addition keeps a few frequencies k and computes cos(2π k (a + b) / n) by trigonometric
identities (Nanda et al. 2023, "Progress measures for grokking via mechanistic interpretability").
"""

from dataclasses import dataclass

import numpy as np

from ..core.arrays import Array
from ..core.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Fourier:
    """The components of rows x (n, D) over their number.

    cosines, sines   (F, D) coefficients of each frequency 0, 1, …, n // 2 in an orthonormal basis
    share            (F,) of Σ x², which sums to 1
    """

    cosines: Array
    sines: Array
    share: Array

    def __repr__(self) -> str:
        return f"<Fourier: {', '.join(f'frequency {k} {share:.1%}' for k, share in self.top())}, …>"

    def top(self, count: int = 5) -> list[tuple[int, float]]:
        """Return the frequencies with the largest shares, the largest first."""
        order = np.argsort(-self.share, kind="stable")[:count]
        return [(int(k), float(self.share[k])) for k in order]


def fourier_basis(n: int) -> Array:
    """Return the orthonormal basis (n, n) of functions of 0 … n − 1: 1, cos 1, sin 1, cos 2, sin 2, …

    Row 2k − 1 is the cosine of frequency k, row 2k its sine. Of an even n the last row is the alternating one.
    """
    if n < 1:
        raise ShapeError(f"there are {n} rows", hint="give at least one")
    angles = 2 * np.pi / n * np.outer(np.arange(1, n // 2 + 1), np.arange(n))
    waves = np.stack((np.cos(angles), np.sin(angles)), axis=1).reshape(-1, n)[: n - 1]
    basis = np.concatenate((np.full((1, n), n**-0.5), waves * (2 / n) ** 0.5))
    if n % 2 == 0:
        basis[-1] *= 0.5**0.5  # the alternating row has no sine beside it
    return basis


def fourier(x: Array) -> Fourier:
    """Return the Fourier components of rows x (n, D), such as the embeddings of n numbers."""
    x = np.asarray(x, np.float64)
    if x.ndim != 2:
        raise ShapeError(f"the rows have shape {x.shape}", hint="pass (n, D): one row for each number")
    coefficients = fourier_basis(len(x)) @ x
    cosines = np.concatenate((coefficients[:1], coefficients[1::2]))
    sines = np.zeros_like(cosines)
    pairs = coefficients[2::2]
    sines[1 : 1 + len(pairs)] = pairs
    power = np.sum(cosines**2 + sines**2, axis=1)
    return Fourier(cosines, sines, power / np.sum(power))
