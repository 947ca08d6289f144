"""For every op that has a kernel: arguments that it must cover, made from a shape, a type and a seed."""

from collections.abc import Callable
from typing import Any

import numpy as np

from glassformer import ops
from glassformer.engines.cpu import ENGINE
from glassformer.ops import CAUSAL, FULL, IGNORE, Pattern
from glassformer.proofs.case import OpCase

KERNELS: dict[str, Callable[..., Any]] = {name: found.function for name, found in ENGINE.table.items()}
"""The kernels by the name of what they stand for."""

PATTERNS = (
    FULL,
    CAUSAL,
    Pattern(causal=True, window=3),
    Pattern(window=2),
    Pattern(causal=True, prefix=2),
    Pattern(stride=3),
)
KEY = ops.new_key(5)

Arguments = tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]
"""Arrays with a gradient, further arguments, settings."""


def normal(rng: np.random.Generator, shape: tuple[int, ...], kind: Any) -> np.ndarray:
    return np.asarray(rng.standard_normal(shape), dtype=kind)


def one_of(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[rng.integers(len(choices))]


def _linear(rng, shape, kind) -> Arguments:
    outputs = one_of(rng, 0, 1, 3, 8)
    w = one_of(rng, normal(rng, (shape[-1], outputs), kind), normal(rng, (outputs, shape[-1]), kind).T)
    return (normal(rng, shape, kind), w, one_of(rng, None, normal(rng, (outputs,), kind))), (), {}


def _embedding(rng, shape, kind) -> Arguments:
    table = normal(rng, (7, one_of(rng, 1, 3, 8)), kind)
    ids = rng.integers(7, size=shape).astype(one_of(rng, np.int64, np.int32, np.uint8))
    return (table,), (ids,), one_of(rng, {}, {"scale": 2.5})


def _activation(rng, shape, kind) -> Arguments:
    return (4 * normal(rng, shape, kind),), (), {}


def _gated(rng, shape, kind) -> Arguments:
    return (normal(rng, shape, kind), normal(rng, shape, kind)), (), {"activation": one_of(rng, *ops.ACTIVATIONS)}


def _layer_norm(rng, shape, kind) -> Arguments:
    shape = (*shape[:-1], max(shape[-1], 2))  # nothing has no mean, and one number leaves nothing but rounding
    gamma, beta = normal(rng, (2, shape[-1]), kind)
    return (normal(rng, shape, kind), gamma, one_of(rng, None, beta)), (), {"eps": one_of(rng, 1e-5, 1e-2)}


def _rms_norm(rng, shape, kind) -> Arguments:
    shape = (*shape[:-1], max(shape[-1], 1))
    return (normal(rng, shape, kind), normal(rng, shape[-1:], kind)), (), {"eps": one_of(rng, 1e-6, 1e-2)}


def _softmax(rng, shape, kind) -> Arguments:
    x = one_of(rng, 1, 50) * normal(rng, shape, kind)
    return (np.where(rng.random(shape) < 0.2, x.dtype.type(-np.inf), x),), (), {}


def _dropout(rng, shape, kind) -> Arguments:
    return (normal(rng, shape, kind),), (KEY,), {"rate": one_of(rng, 0.0, 0.3, 0.9)}


def _cross_entropy(rng, shape, kind) -> Arguments:
    size = max(shape[-1], 1)
    targets = np.where(rng.random(shape[:-1]) < 0.3, IGNORE, rng.integers(size, size=shape[:-1]))
    logits = one_of(rng, 1, 30) * normal(rng, (*shape[:-1], size), kind)
    return (logits,), (targets.astype(one_of(rng, np.int64, np.int32)),), {"smoothing": one_of(rng, 0.0, 0.1)}


def _rotary(rng, shape, kind) -> Arguments:
    shape = (*shape[:-1], 2 * shape[-1])
    cos, sin = rng.standard_normal((2, *shape[-2:-1], shape[-1] // 2))
    return (_laid_out(rng, shape, kind),), (cos, sin), {"pairing": one_of(rng, "halves", "interleaved")}


def _laid_out(rng, shape, kind) -> np.ndarray:
    """Heads (..., H, T, C) in C order, or as they are cut out of rows (..., T, H, C)."""
    if len(shape) == 4 and rng.random() < 0.5:
        return normal(rng, (shape[0], shape[2], shape[1], shape[3]), kind).swapaxes(1, 2)
    return normal(rng, shape, kind)


def _heads(rng, shape, kind, *, groups: int) -> tuple[Any, ...]:
    """q, k, v of the shape (..., H, T, C), with at least one channel and as many keys as queries or more."""
    *lead, heads, queries, channels = shape
    keys = queries + one_of(rng, 0, 0, 3)
    size = (*lead, max(heads, 1) * groups, queries, channels + 1)
    q = _laid_out(rng, size, kind)
    k, v = (_laid_out(rng, (*lead, max(heads, 1), keys, channels + 1), kind) for _ in range(2))
    return q, k, v


def _attention(rng, shape, kind) -> Arguments:
    q, k, v = _heads(rng, shape, kind, groups=one_of(rng, 1, 1, 2))
    weights = (*q.shape[:-1], k.shape[-2])
    settings: dict[str, Any] = {"pattern": one_of(rng, *PATTERNS)}
    bias = normal(rng, one_of(rng, weights[-2:], (*weights[-3:-2], 1, 1)), kind) if rng.random() < 0.3 else None
    if rng.random() < 0.3:
        settings["mask"] = rng.random(one_of(rng, weights, (1, *weights[-1:]))) < 0.7
    if rng.random() < 0.3:
        settings |= {"key": KEY, "rate": 0.4}
    return (q, k, v, bias), (), settings | one_of(rng, {}, {"scale": 0.3})


def _attention_tiled(rng, shape, kind) -> Arguments:
    arrays, extra, settings = _attention(rng, tuple(max(size, 1) for size in shape), kind)
    return arrays, extra, {**settings, "tile": one_of(rng, 2, 128)}


# By the name of the op: how many axes it needs at least, and its arguments.
PAIRS: dict[str, tuple[int, Callable[..., Arguments]]] = {
    "linear": (1, _linear),
    "embedding": (1, _embedding),
    "relu": (1, _activation),
    "gelu": (1, _activation),
    "gelu_tanh": (1, _activation),
    "silu": (1, _activation),
    "gated": (1, _gated),
    "layer_norm": (1, _layer_norm),
    "rms_norm": (1, _rms_norm),
    "softmax": (1, _softmax),
    "dropout": (1, _dropout),
    "cross_entropy": (1, _cross_entropy),
    "rotary": (2, _rotary),
    "attention": (3, _attention),
    "attention_tiled": (3, _attention_tiled),
}


def case_of(name: str, shape: tuple[int, ...], kind: Any, seed: int) -> OpCase:
    """The op called `name` with arguments for a shape, to which axes are added if it needs more."""
    axes, draw = PAIRS[name]
    shape = (*(2,) * (axes - len(shape)), *shape)
    arrays, extra, settings = draw(np.random.default_rng(seed), shape, kind)
    return OpCase(name, getattr(ops, name), getattr(ops, f"{name}_backward"), arrays, extra, settings)


def _adam_update(rng, shape, kind) -> tuple[tuple[Any, ...], dict[str, Any]]:
    p, g, mean = normal(rng, (3, *shape), kind)
    settings = {"rate": 0.1, "root": 0.3, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8}
    decay = one_of(rng, {}, {"penalty": 0.1}, {"shrink": 0.9})
    return (p, g, mean, np.square(normal(rng, shape, kind))), settings | decay


def _lion_update(rng, shape, kind) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(normal(rng, (3, *shape), kind)), {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "shrink": 0.9}


def _sum_of_squares(rng, shape, kind) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return tuple(normal(rng, shape, kind) for _ in range(one_of(rng, 1, 2, 5))), {}


def _fold_key(rng, shape, kind) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (rng.integers(2**32, size=2, dtype=np.uint32), int(rng.integers(2**40))), {}


# Ops without a backward: arguments and settings.
SINGLES: dict[str, Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "adam_update": _adam_update,
    "lion_update": _lion_update,
    "sum_of_squares": _sum_of_squares,
    "fold_key": _fold_key,
}
