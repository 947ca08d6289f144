"""The cases of softmax and attention: every way in which queries, keys, heads, masks and tiles can meet."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import ops
from ..arrays import Array
from ..ops import CAUSAL, Pattern
from .case import OpCase


def softmax_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Softmax and log-softmax with masks, rows with nothing left, and scores of −inf."""
    for name in ("softmax", "log_softmax"):
        pair = (getattr(ops, name), getattr(ops, f"{name}_backward"))
        x = rng.standard_normal((3, 4))
        mask = np.array([[True, False, True, True], [False, False, False, True], [False] * 4])
        yield OpCase(name, *pair, (x,))
        yield OpCase(f"{name}, one row", *pair, (x[0],))
        yield OpCase(f"{name}, one entry", *pair, (x[:, :1],))
        yield OpCase(f"{name}, two batch axes", *pair, (rng.standard_normal((2, 2, 3)),))
        yield OpCase(f"{name}, masked, one row with nothing left", *pair, (x,), (), {"mask": mask})
        yield OpCase(f"{name}, one mask for all", *pair, (x,), (), {"mask": mask[0]})
        yield OpCase(f"{name}, scores of -inf", *pair, (np.where(mask | ~mask[0], x, -np.inf),))
        yield OpCase(f"{name}, far apart", *pair, (300 * x,))
        yield OpCase(f"{name}, no example", *pair, (np.zeros((0, 4)),))
        yield OpCase(f"{name}, strided", *pair, (rng.standard_normal((4, 6))[:, ::2].T,), (), {"mask": mask})


def attention_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Dense attention."""
    causal = ops.causal_mask(3)
    dropout = {"key": ops.new_key(3), "rate": 0.3}
    bias = rng.standard_normal((2, 3, 3))
    yield from _common_cases(rng, "attention", _dense)
    yield _dense("attention, batch", _heads(rng, (2, 2), 2, 2))
    yield _dense("attention, causal", _heads(rng, (2,), 3, 3), mask=causal)
    yield _dense("attention, one key head", _heads(rng, (2, 3), 2, 2, shared=1))
    yield _dense("attention, one query", _heads(rng, (2,), 1, 4))
    yield _dense("attention, dropout, mask, bias, groups", _heads(rng, (2,), 3, 3, 1, bias), mask=causal, **dropout)
    q, k, _, _ = _heads(rng, (2,), 2, 3)
    yield _dense("attention, wider values", (q, k, rng.standard_normal((2, 3, 3)), None))


def tiled_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Tiled attention; tiles of 2 do not divide 3, nor do tiles of 3 divide 5."""
    causal, padding = {"pattern": CAUSAL}, np.array([True, False, False])
    dropout = {"key": ops.new_key(3), "rate": 0.3}
    bias = rng.standard_normal((2, 3, 3))
    yield from _common_cases(rng, "attention_tiled", _tiled)
    yield _tiled("attention_tiled, one tile", _heads(rng, (2,), 3, 3), tile=128)
    yield _tiled("attention_tiled, tiles of one", _heads(rng, (1,), 2, 2), tile=1)
    yield _tiled("attention_tiled, causal", _heads(rng, (1,), 5, 5), tile=3, **causal)
    yield _tiled("attention_tiled, window", _heads(rng, (1,), 5, 5), pattern=Pattern(causal=True, window=2))
    yield _tiled("attention_tiled, stride", _heads(rng, (1,), 5, 5), tile=3, pattern=Pattern(stride=2))
    strided = {"pattern": Pattern(causal=True, stride=2)}
    masked = {"mask": np.array([True, True, False, True, True]), **dropout}
    yield _tiled("attention_tiled, stride, causal, padding, dropout", _heads(rng, (2, 2), 5, 5, 1), **strided, **masked)
    yield _tiled("attention_tiled, stride, bias", _heads(rng, (1,), 3, 3, bias=bias[0]), **strided)
    yield _tiled("attention_tiled, prefix", _heads(rng, (1,), 5, 5), tile=3, pattern=Pattern(causal=True, prefix=4))
    yield _tiled("attention_tiled, last queries of more keys", _heads(rng, (1,), 2, 5), **causal)
    yield _tiled("attention_tiled, everything", _heads(rng, (2,), 3, 3, 1, bias), mask=padding, **causal, **dropout)


def _common_cases(rng: np.random.Generator, name: str, case: Callable[..., OpCase]) -> Iterator[OpCase]:
    """What dense and tiled attention must do alike."""
    padding = ops.padding_mask(np.array([3, 1]), 3)[:, None, None, :]
    blind = ops.causal_mask(3) & (np.arange(3) > 0)[:, None]  # the first query sees nothing
    bias = rng.standard_normal((2, 3, 3))
    yield case(name, _heads(rng, (2,), 3, 3))
    yield case(f"{name}, no head axis", _heads(rng, (), 3, 3))
    yield case(f"{name}, two batch axes", _heads(rng, (2, 1, 2), 2, 3))
    yield case(f"{name}, a query that sees nothing", _heads(rng, (1,), 3, 3), mask=blind)
    yield case(f"{name}, grouped queries", _heads(rng, (4,), 2, 3, shared=2))
    yield case(f"{name}, cross with padding", _heads(rng, (2, 2), 2, 3), mask=padding)
    yield case(f"{name}, one position", _heads(rng, (2,), 1, 1))
    yield case(f"{name}, no example", _heads(rng, (0, 2), 3, 3), mask=blind)
    yield case(f"{name}, bias", _heads(rng, (2,), 3, 3, bias=bias))
    yield case(f"{name}, bias per head", _heads(rng, (2, 2), 3, 3, bias=rng.standard_normal((2, 1, 1))))
    yield case(f"{name}, bias per key", _heads(rng, (2,), 2, 3, bias=rng.standard_normal(3)))
    yield case(f"{name}, bias of -inf", _heads(rng, (2,), 3, 3, bias=np.where(blind, bias, -np.inf)))
    yield case(f"{name}, dropout", _heads(rng, (2, 2), 3, 3), key=ops.new_key(3), rate=0.3)
    yield case(f"{name}, own scale", _heads(rng, (2,), 2, 3), scale=1.0)
    # Views (H, T, C) of arrays (T, H, 2·C), as a layer cuts them out of one projection.
    q, k, v = np.swapaxes(rng.standard_normal((3, 3, 2, 4))[..., ::2], 1, 2)
    yield case(f"{name}, strided", (q, k, v, None), pattern=CAUSAL)


def _dense(name: str, arrays: tuple[Array | None, ...], **settings: Any) -> OpCase:
    return OpCase(name, ops.attention, ops.attention_backward, arrays, (), settings)


def _tiled(name: str, arrays: tuple[Array | None, ...], **settings: Any) -> OpCase:
    return OpCase(name, ops.attention_tiled, ops.attention_tiled_backward, arrays, (), {"tile": 2, **settings})


def _heads(
    rng: np.random.Generator,
    lead: tuple[int, ...],
    queries: int,
    keys: int,
    shared: int | None = None,
    bias: Array | None = None,
) -> tuple[Array | None, ...]:
    """Return q, k, v of two channels and the bias; `shared` key heads, as many as query heads unless given."""
    fewer = lead if shared is None else (*lead[:-1], shared)
    q = rng.standard_normal((*lead, queries, 2))
    k, v = rng.standard_normal((2, *fewer, keys, 2))
    return q, k, v, bias
