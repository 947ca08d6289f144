"""The contents of the vectors of a layer: linear probes, and the similarity of two layers.

    fit_probe      w = (xᵀ x + ridge)⁻¹ xᵀ y     the best map to numbers y, or to classes as 0 and 1, in closed form
    train_probe    loss = cross-entropy(x w + b)  logistic regression, step by step: dlogits = (softmax − onehot) / N

A probe shows what can be read, not that the model uses it: ablate or patch to know (Belinkov 2022).
Judge it on tokens that it has not seen.

    x = token_rows(run, "blocks.1")                                  (N, D)
    probe = fit_probe(x, labels, classes=2)
    probe.accuracy(token_rows(other, "blocks.1"), other_labels)

Linear CKA measures how alike vectors of two layers are, whatever basis they are in (Kornblith et al. 2019):

    CKA(x, y) = ‖xᵀ y‖² / (‖xᵀ x‖ · ‖yᵀ y‖)        x (N, D) and y (N, E), centered; ‖·‖ of Frobenius

1 where one is a rotation and scaling of the other, 0 where nothing linear connects them. It compares how N tokens lie
to each other, so N should be well above D: of few tokens even unrelated layers look alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import ops
from ..core.arrays import Array, Tree
from ..core.errors import ConfigError, ShapeError, TokenError
from ..core.settings import check_count
from ..core.show import html_of
from ..ops.linear import LinearSaved
from ..training import Adam, Optimizer
from .run import Run
from .stream import points, token_rows
from .sweep import Progress


@dataclass(frozen=True, eq=False)
class Probe:
    """A linear map y = x w + b, w (D, K)."""

    w: Array
    b: Array

    def read(self, x: Array) -> Array:
        """Return what the probe reads in x (N, D): numbers or scores (N, K)."""
        if np.ndim(x) < 1 or np.shape(x)[-1] != len(self.w):
            raise ShapeError(f"the vectors are {np.shape(x)}", hint=f"this probe reads {len(self.w)} features")
        return x @ self.w + self.b

    def __repr__(self) -> str:
        return f"<linear probe of {len(self.w)} features for {len(self.b)} outputs>"

    def _repr_html_(self) -> str:
        return html_of("a linear probe", vars(self))

    def classes(self, x: Array) -> Array:
        """Return the class that the probe reads in each vector, (N,)."""
        return self.read(x).argmax(axis=-1)

    def accuracy(self, x: Array, labels: Array) -> float:
        """Return the share of vectors in which the class is read that they have."""
        _check_rows(x, labels)
        return float(np.mean(self.classes(x) == labels))

    def explained(self, x: Array, y: Array) -> float:
        """Return which share of the variance of numbers y (N,) or (N, K) is read, R²: at most 1."""
        _check_rows(x, y)
        y = np.asarray(y).reshape(len(y), -1)
        left = np.sum((self.read(x) - y) ** 2)
        return float(1 - left / np.sum((y - y.mean(axis=0)) ** 2))


def fit_probe(x: Array, y: Array, *, classes: int | None = None, ridge: float = 1e-6) -> Probe:
    """Return the best linear map from x (N, D) to numbers y (N,) or (N, K), or to labels (N,) of `classes` classes.

    `ridge` times the mean of ‖x‖² / D is added to the diagonal: it keeps w small where x does not determine it.
    """
    _check_rows(x, y)
    if not ridge >= 0:
        raise ConfigError(f"ridge is {ridge}", hint="use zero or a positive number")
    targets = y if classes is None else _labels(y, classes)[:, None] == np.arange(classes)
    targets = np.asarray(targets, dtype=np.float64).reshape(len(x), -1)
    x = np.asarray(x, dtype=np.float64)
    mean_x, mean_y = x.mean(axis=0), targets.mean(axis=0)
    centered = x - mean_x
    square = centered.T @ centered
    strength = ridge * np.trace(square) / len(square)
    w = np.linalg.lstsq(square + strength * np.eye(len(square)), centered.T @ (targets - mean_y), rcond=None)[0]
    return Probe(w, mean_y - mean_x @ w)


def train_probe(
    x: Array,
    labels: Array,
    *,
    classes: int,
    steps: int = 200,
    optimizer: Optimizer | None = None,
    lr: float = 0.05,
    progress: Progress | None = None,
) -> tuple[Probe, Array]:
    """Return a probe trained by cross-entropy on all of x (N, D), from zero, and the loss before each step."""
    _check_rows(x, labels)
    labels = _labels(labels, classes)

    def loss_and_grads(params: Tree, step: int) -> tuple[Array, Tree]:
        logits, _ = ops.linear(x, params["w"], params["b"])
        loss, saved = ops.cross_entropy(logits, labels)
        dlogits = ops.cross_entropy_backward(1.0, saved)
        _, dw, db = ops.linear_backward(dlogits, LinearSaved(x, params["w"], params["b"]))
        return loss, {"w": dw, "b": db}

    start = {"w": np.zeros((x.shape[1], classes), x.dtype), "b": np.zeros(classes, x.dtype)}
    params, losses = descend(start, loss_and_grads, steps, optimizer, lr, progress)
    return Probe(params["w"], params["b"]), losses.astype(np.float64)


def descend(
    params: Tree,
    loss_and_grads: Callable[[Tree, int], tuple[Array, Tree]],
    steps: int,
    optimizer: Optimizer | None = None,
    lr: float | None = None,
    progress: Progress | None = None,
) -> tuple[Tree, Array]:
    """Take steps of an optimizer, Adam unless given; return the parameters, and the loss before each step."""
    optimizer = Adam() if optimizer is None else optimizer
    lr = optimizer.default_lr if lr is None else lr
    state, losses = optimizer.init(params), []
    for step in range(steps):
        loss, grads = loss_and_grads(params, step)
        losses.append(loss)
        params, state = optimizer.update(params, grads, state, lr=lr)
        if progress is not None:
            progress(step + 1, steps)
    return params, np.array(losses)


def probe_points(
    run: Run, labels: Array, test: Run, test_labels: Array, *, classes: int, at: str | Sequence[str] | None = None
) -> dict[str, float]:
    """Return how well classes of tokens can be read at each point of the stream: accuracy on a run not learned from.

    `labels` (B, T) belong to the tokens of a run, or (B,) to its examples; those of padding are left out.
    """
    found = {}
    for name in _points(run, at):
        x, other = token_rows(run, name), token_rows(test, name)
        probe = fit_probe(x, _of_tokens(run, labels), classes=classes)
        found[name] = probe.accuracy(other, _of_tokens(test, test_labels))
    return found


def _of_tokens(run: Run, labels: Array) -> Array:
    """Return the labels of the real tokens of a run, (N,)."""
    tokens, labels = np.shape(run.batch.tokens), np.asarray(labels)
    if labels.shape == tokens[:1]:
        labels = np.broadcast_to(labels[:, None], tokens)
    if labels.shape != tokens:
        raise ShapeError(f"the labels are {labels.shape}, the tokens {tokens}", hint="give one for each token")
    return labels.reshape(-1) if run.batch.mask is None else labels[np.asarray(run.batch.mask, dtype=bool)]


def _labels(labels: Array, classes: int) -> Array:
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iub":
        raise ShapeError(f"the labels are {labels.dtype} of shape {labels.shape}", hint="give a class for each vector")
    labels = labels.astype(np.int64)
    check_count("classes", classes, least=1)
    if labels.min() < 0 or labels.max() >= classes:
        raise TokenError(f"there is a class {labels.max()} of {classes}", hint="count classes from 0")
    return labels


def _check_rows(x: Array, y: Array) -> None:
    if np.ndim(x) != 2 or len(x) != len(np.atleast_1d(y)) or not len(x):
        raise ShapeError(f"the vectors are {np.shape(x)}, the targets {np.shape(y)}", hint="give one for each vector")


# --- similarity -------------------------------------------------------------------------------------------------------


def linear_cka(x: Array, y: Array) -> float:
    """Return how alike vectors x (N, D) and y (N, E) of the same N tokens are, from 0 to 1."""
    x, y = (np.asarray(value, dtype=np.float64) for value in (x, y))
    if x.ndim != 2 or y.ndim != 2 or len(x) != len(y) or len(x) < 2:
        raise ShapeError(f"the vectors are {x.shape} and {y.shape}", hint="pass (N, D) and (N, E), of the same tokens")
    x, y = x - x.mean(axis=0), y - y.mean(axis=0)
    if max(x.shape[1], y.shape[1]) > len(x):
        # ‖xᵀ y‖² = Σ (x xᵀ) · (y yᵀ), smaller where there are fewer tokens than features
        across, own, other = (float(np.sum((a @ a.T) * (b @ b.T))) for a, b in ((x, y), (x, x), (y, y)))
    else:
        across, own, other = (float(np.sum((a.T @ b) ** 2)) for a, b in ((x, y), (x, x), (y, y)))
    if own == 0 or other == 0:
        raise ConfigError("all vectors of a layer are equal", hint="similarity needs tokens that differ")
    return across / (own * other) ** 0.5


def layer_similarity(run: Run, other: Run | None = None, *, at: str | Sequence[str] | None = None) -> Array:
    """Return the CKA of all pairs of values (N, N): of points of the stream unless named, padding left out.

    `other` is a run of another model on the same tokens; then rows are of the one and columns of the other.
    """
    other = run if other is None else other
    if not np.array_equal(run.batch.tokens, other.batch.tokens):
        raise ConfigError("the two runs read different tokens", hint="watch both models on one batch")
    rows, columns = ([token_rows(one, name) for name in _points(one, at)] for one in (run, other))
    return np.array([[linear_cka(x, y) for y in columns] for x in rows])


def _points(run: Run, at: str | Sequence[str] | None) -> list[str]:
    """Return `at`, or all points of the residual stream."""
    return [at] if isinstance(at, str) else list(at or (point.name for point in points(run)))
