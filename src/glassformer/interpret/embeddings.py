"""Tables of embeddings: the similarity of positions by their distance, and Fourier components over the vocabulary.

    found = fourier(model.params["embedding"]["tokens"]["table"][:113])
    found.top(5)                                    the frequencies that hold most of the embedding, with their shares
    basis = fourier_basis(113)
    basis @ logits @ basis.T                        logits (113, 113) of all a + b, by pairs of components

A network that groks modular addition keeps a few frequencies k and computes cos(2π k (a + b) / n) by trigonometric
identities (Nanda et al. 2023, "Progress measures for grokking via mechanistic interpretability").
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree, widen
from ..core.errors import ConfigError, ShapeError
from ..core.tree import flatten, rebuilt
from ..models import EncoderDecoder, Model
from ..weights.loaded_model import trained_or_pair
from .run import Run, watch

MARKED_DISTANCES = (1, 5, 10, 25)
"""The distances that tables and curves name."""


class Similarity(NamedTuple):
    """The cosine similarity of encodings k positions apart, over all pairs: one entry per distance."""

    distance: Array
    mean: Array
    low: Array
    high: Array

    def at(self, distances: Sequence[int] = MARKED_DISTANCES) -> dict[int, float]:
        """Return the mean similarity at some distances; those longer than the table are left out."""
        known = {int(k): float(value) for k, value in zip(self.distance, self.mean, strict=True)}
        return {k: known[k] for k in distances if k in known}


@trained_or_pair
def position_table(model: Model, params: Tree, *, stack: str | None = None) -> Array | None:
    """Return the vectors (N, D) that a model adds for its positions, or None if positions enter elsewhere.

    A trained model stands for `model` and `params`. `stack` is "encoder" or "decoder"; it matters for an
    encoder-decoder, which learns one table for each.
    """
    config = model.config
    if config.positions == "sinusoidal":
        return ops.sinusoidal(np.arange(config.context), config.width)
    if config.positions != "learned":
        return None
    if stack not in (None, "encoder", "decoder"):
        raise ConfigError(f"there is no stack {stack!r}", hint='use "encoder" or "decoder"')
    of_source = isinstance(model, EncoderDecoder) and stack == "encoder"
    table = np.asarray(widen(params["source_embedding" if of_source else "embedding"]["positions"]["table"]))
    return table if len(table) == config.context else table[1:]  # the first row is that of padding


def similarity_matrix(table: Array) -> Array:
    """Return the cosine of every pair of positions, (N, N) for a table (N, D); with a zero vector it is 0.

    cos(p, r) = PE(p) · PE(r) / (‖PE(p)‖ ‖PE(r)‖)
    """
    table = np.asarray(table, dtype=np.float64)
    if table.ndim != 2 or table.size == 0:
        raise ShapeError(f"a table of positions has shape (N, D), got {table.shape}", hint="pass position_table(...)")
    length = np.linalg.norm(table, axis=-1, keepdims=True)
    unit = np.divide(table, length, out=np.zeros_like(table), where=length > 0)
    return unit @ unit.T


def similarity_by_distance(table: Array) -> Similarity:
    """Average the cosines of a table (N, D) over all pairs that are k positions apart, for k = 0 … N − 1."""
    cosines = similarity_matrix(table)
    rows = [np.diagonal(cosines, k) for k in range(len(cosines))]
    mean, low, high = (np.array([reduce(row) for row in rows]) for reduce in (np.mean, np.min, np.max))
    return Similarity(np.arange(len(rows)), mean, low, high)


def without_positions(run: Run) -> Run:
    """Return the run of the same model without its positions: with positions "none"."""
    config = run.model.config
    if config.positions == "none":
        raise ConfigError("this model knows no positions", hint="a decoder tells them by its causal mask alone")
    unset = {"rotary_scaling": None, "rotary_channels": None, "rotary_pairing": "halves", "padding_id": None}
    bare = replace(config, positions="none", **{n: value for n, value in unset.items() if hasattr(config, n)})
    model: Model = replace(run.model, config=bare)  # type: ignore[type-var]
    return watch(model, rebuilt(model.specs(), flatten(run.params)), run.batch, labels=run.labels)


# --- Fourier components -----------------------------------------------------------------------------------------------


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
