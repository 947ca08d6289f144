"""Every op with the inputs under which its gradient is proved: small, from a fixed seed, and hard where it matters.

Shapes cover no, one and two leading axes, a single position, no example at all, and views that are not contiguous.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import ops
from ..config import RotaryScaling
from ..core import registry
from ..core.arrays import Array
from ..ops import CAUSAL, IGNORE, Pattern
from .case import OpCase

Arrays = tuple[Array | None, ...]
Rng = np.random.Generator


def op_cases() -> list[OpCase]:
    """Return all cases of all ops, made afresh."""
    return [case for source in SOURCES for case in source(np.random.default_rng(0))]


def _case(name: str, arrays: Arrays, *extra: Any, **settings: Any) -> OpCase:
    """Return a case of the op whose name comes before the comma."""
    op = name.partition(",")[0]
    forward, backward = ops.ACTIVATIONS.get(op) or (getattr(ops, op), getattr(ops, f"{op}_backward"))
    return OpCase(name, forward, backward, arrays, extra, settings)


def _strided(rng: Rng, *shape: int) -> Array:
    """Return normal numbers as a view of every other entry, its last two axes (if any) swapped."""
    if len(shape) < 2:
        return rng.standard_normal((*shape[:-1], 2 * shape[-1]))[..., ::2]
    x = rng.standard_normal((*shape[:-2], shape[-1], 2 * shape[-2]))[..., ::2]
    return np.swapaxes(x, -1, -2)


def _shapes(rng: Rng, name: str, width: int, others: Arrays = (), *extra: Any, **settings: Any) -> Iterator[OpCase]:
    """Yield an op on one vector, a batch with two axes, no example, and a view that is not contiguous."""
    yield _case(f"{name}, one vector", (rng.standard_normal(width), *others), *extra, **settings)
    yield _case(f"{name}, two batch axes", (rng.standard_normal((2, 2, width)), *others), *extra, **settings)
    yield _case(f"{name}, no example", (np.zeros((0, 2, width)), *others), *extra, **settings)
    views = [None if x is None else np.repeat(x, 2, axis=-1)[..., ::2] for x in others]
    yield _case(f"{name}, strided", (_strided(rng, 2, 2, width), *views), *extra, **settings)


def linear_cases(rng: Rng) -> Iterator[OpCase]:
    """With and without a bias, one output, and transposed weights (a tied head)."""
    normal = rng.standard_normal
    w, b = normal((3, 4)), normal(4)
    yield _case("linear", (normal((5, 3)), w, b))
    yield _case("linear, no bias", (normal((5, 3)), w, None))
    yield _case("linear, one output", (normal((2, 1, 3)), normal((3, 1)), normal(1)))
    yield _case("linear, transposed weights", (normal((2, 3)), normal((4, 3)).T, b))
    yield from _shapes(rng, "linear", 3, (w, b))


def embedding_cases(rng: Rng) -> Iterator[OpCase]:
    """Ids that repeat, one id, no ids, scaled, and a strided table."""
    table, repeated = rng.standard_normal((5, 3)), np.array([[1, 4, 1], [1, 0, 4]])
    yield _case("embedding, repeated ids", (table,), repeated)
    yield _case("embedding, scaled", (table,), repeated, scale=3.0**0.5)
    yield _case("embedding, one id", (table,), np.array(2))
    yield _case("embedding, two batch axes", (table,), np.array([[[0, 1]], [[1, 1]]]))
    yield _case("embedding, no example", (table,), np.zeros((0, 4), dtype=int))
    yield _case("embedding, strided", (_strided(rng, 5, 3),), repeated.T)


def mean_pool_cases(rng: Rng) -> Iterator[OpCase]:
    """With and without padding, one position, a row with nothing to average, no example."""
    normal = rng.standard_normal
    mask = np.array([[True, True, False, True], [True, False, False, False], [False] * 4])
    yield _case("mean_pool", (normal((4, 3)),))
    yield _case("mean_pool, masked", (normal((3, 4, 2)),), mask=mask)
    yield _case("mean_pool, one mask for all", (normal((2, 2, 4, 2)),), mask=mask[0])
    yield _case("mean_pool, one position", (normal((2, 1, 3)),))
    yield _case("mean_pool, no example", (normal((0, 4, 3)),))
    yield _case("mean_pool, strided", (_strided(rng, 3, 4, 2),), mask=mask)


def activation_cases(rng: Rng) -> Iterator[OpCase]:
    """Each activation far out on both sides, and where all of them bend; relu away from its kink at 0; gated forms."""
    for name in ops.ACTIVATIONS:
        away = rng.choice([-1, 1], (2, 3, 4)) * rng.uniform(0.1, 3, (2, 3, 4))
        yield _case(name, (away,))
        yield _case(f"{name}, far out", (np.array([-500.0, -39, -20, -6, 6, 20, 39, 500]),))
        yield _case(f"{name}, near zero", (np.array([-1e-3, -1e-8, 1e-8, 1e-3]),))
        yield _case(f"{name}, no example", (np.zeros((0, 4)),))
        yield _case(f"{name}, strided", (away.swapaxes(0, 2)[::2],))
    for name in ops.ACTIVATIONS:
        gate = rng.choice([-1, 1], (2, 5)) * rng.uniform(0.1, 3, (2, 5))
        yield _case(f"gated, {name}", (gate, rng.standard_normal((2, 5))), activation=name)
    yield _case("gated, one vector", (rng.standard_normal(3), rng.standard_normal(3)))
    yield _case("gated, no example", (np.zeros((0, 2, 3)), np.zeros((0, 2, 3))))
    yield _case("gated, strided", (_strided(rng, 2, 2, 3), _strided(rng, 2, 2, 3)))


def norm_cases(rng: Rng) -> Iterator[OpCase]:
    """Both norms, at eps that matters and eps that does not."""
    normal = rng.standard_normal
    gamma, beta = normal((2, 5))
    yield _case("layer_norm, no shift", (normal((3, 5)), gamma, None))
    for name, learned in {"layer_norm": (gamma, beta), "rms_norm": (gamma,)}.items():
        for eps in (1e-5, 1e-6, 1e-12):
            yield _case(f"{name}, eps {eps}", (normal((2, 5)), *learned), eps=eps)
        # The variance is 1e-6 here, so that eps is most of what stands under the root.
        yield _case(f"{name}, eps inside the root", (1e-3 * normal((2, 5)), *learned), eps=1e-5)
        yield _case(f"{name}, all equal", (np.full((1, 5), 0.75), *learned))
        yield _case(f"{name}, zeros", (np.zeros((1, 5)), *learned), eps=1e-2)
        yield from _shapes(rng, name, 5, learned)


def dropout_cases(rng: Rng) -> Iterator[OpCase]:
    """Several rates, zero among them, with a fixed key."""
    key = ops.new_key(7)
    for rate in (0.0, 0.1, 0.5, 0.9):
        yield _case(f"dropout, rate {rate}", (rng.standard_normal((2, 2, 5)),), key, rate=rate)
    yield from _shapes(rng, "dropout", 6, (), ops.fold_key(key, 3), rate=0.4)


def softmax_cases(rng: Rng) -> Iterator[OpCase]:
    """Softmax and log-softmax with masks, rows with nothing left, and scores of −inf."""
    x = rng.standard_normal((3, 4))
    mask = np.array([[True, False, True, True], [False, False, False, True], [False] * 4])
    for name in ("softmax", "log_softmax"):
        yield _case(name, (x,))
        yield _case(f"{name}, one entry", (x[:, :1],))
        yield _case(f"{name}, masked, one row with nothing left", (x,), mask=mask)
        yield _case(f"{name}, masked, strided", (_strided(rng, 3, 4),), mask=mask)
        yield _case(f"{name}, one mask for all", (x,), mask=mask[0])
        yield _case(f"{name}, scores of -inf", (np.where(mask | ~mask[0], x, -np.inf),))
        yield _case(f"{name}, far apart", (300 * x,))
        yield from _shapes(rng, name, 4)


def attention_cases(rng: Rng) -> Iterator[OpCase]:
    """Dense and tiled attention; tiles of 2 do not divide 3, nor do tiles of 3 divide 5."""
    causal, window, stride = ({"pattern": Pattern(causal=True, **how)} for how in ({}, {"window": 2}, {"stride": 2}))
    mask, padding = ops.causal_mask(3), np.array([True, False, False])
    dropout = {"key": ops.new_key(3), "rate": 0.3}
    bias = rng.standard_normal((2, 3, 3))
    yield from _common_cases(rng, "attention")
    yield _case("attention, batch", _heads(rng, (2, 2), 2, 2))
    yield _case("attention, causal", _heads(rng, (2,), 3, 3), mask=mask)
    yield _case("attention, one key head", _heads(rng, (2, 3), 2, 2, shared=1))
    yield _case("attention, one query", _heads(rng, (2,), 1, 4))
    yield _case("attention, dropout, mask, bias, groups", _heads(rng, (2,), 3, 3, 1, bias), mask=mask, **dropout)
    q, k, _, _ = _heads(rng, (2,), 2, 3)
    yield _case("attention, wider values", (q, k, rng.standard_normal((2, 3, 3)), None))

    yield from _common_cases(rng, "attention_tiled", tile=2)
    tiled: dict[str, tuple[Arrays, dict[str, Any]]] = {
        "one tile": (_heads(rng, (2,), 3, 3), {"tile": 128}),
        "tiles of one": (_heads(rng, (1,), 2, 2), {"tile": 1}),
        "causal": (_heads(rng, (1,), 5, 5), {"tile": 3, **causal}),
        "window": (_heads(rng, (1,), 5, 5), window),
        "stride": (_heads(rng, (1,), 5, 5), {"tile": 3, "pattern": Pattern(stride=2)}),
        "stride, causal, padding, dropout": (
            _heads(rng, (2, 2), 5, 5, 1),
            {"mask": np.array([True, True, False, True, True]), **stride, **dropout},
        ),
        "stride, bias": (_heads(rng, (1,), 3, 3, bias=bias[0]), stride),
        "prefix": (_heads(rng, (1,), 5, 5), {"tile": 3, "pattern": Pattern(causal=True, prefix=4)}),
        "last queries of more keys": (_heads(rng, (1,), 2, 5), causal),
        "everything": (_heads(rng, (2,), 3, 3, 1, bias), {"mask": padding, **causal, **dropout}),
    }
    for what, (arrays, settings) in tiled.items():
        yield _case(f"attention_tiled, {what}", arrays, **{"tile": 2, **settings})


def _common_cases(rng: Rng, name: str, **settings: Any) -> Iterator[OpCase]:
    """Yield cases that dense and tiled attention have in common."""
    padding = ops.padding_mask(np.array([3, 1]), 3)[:, None, None, :]
    blind = ops.causal_mask(3) & (np.arange(3) > 0)[:, None]  # the first query sees nothing
    bias = rng.standard_normal((2, 3, 3))
    yield _case(name, _heads(rng, (2,), 3, 3), **settings)
    yield _case(f"{name}, no head axis", _heads(rng, (), 3, 3), **settings)
    yield _case(f"{name}, two batch axes", _heads(rng, (2, 1, 2), 2, 3), **settings)
    yield _case(f"{name}, a query that sees nothing", _heads(rng, (1,), 3, 3), mask=blind, **settings)
    yield _case(f"{name}, grouped queries", _heads(rng, (4,), 2, 3, shared=2), **settings)
    yield _case(f"{name}, cross with padding", _heads(rng, (2, 2), 2, 3), mask=padding, **settings)
    yield _case(f"{name}, one position", _heads(rng, (2,), 1, 1), **settings)
    yield _case(f"{name}, no example", _heads(rng, (0, 2), 3, 3), mask=blind, **settings)
    yield _case(f"{name}, bias", _heads(rng, (2,), 3, 3, bias=bias), **settings)
    yield _case(f"{name}, bias per head", _heads(rng, (2, 2), 3, 3, bias=bias[:, :1, :1]), **settings)
    yield _case(f"{name}, bias per key", _heads(rng, (2,), 2, 3, bias=bias[0, 0]), **settings)
    yield _case(f"{name}, bias of -inf", _heads(rng, (2,), 3, 3, bias=np.where(blind, bias, -np.inf)), **settings)
    yield _case(f"{name}, dropout", _heads(rng, (2, 2), 3, 3), key=ops.new_key(3), rate=0.3, **settings)
    yield _case(f"{name}, own scale", _heads(rng, (2,), 2, 3), scale=1.0, **settings)
    # Views (H, T, C) of arrays (T, H, 2·C), as a layer cuts them out of one projection.
    q, k, v = np.swapaxes(rng.standard_normal((3, 3, 2, 4))[..., ::2], 1, 2)
    yield _case(f"{name}, strided", (q, k, v, None), pattern=CAUSAL, **settings)


def _heads(
    rng: Rng, lead: tuple[int, ...], queries: int, keys: int, shared: int | None = None, bias: Array | None = None
) -> Arrays:
    """Return q, k, v of two channels and the bias; `shared` key heads, as many as query heads unless given."""
    fewer = lead if shared is None else (*lead[:-1], shared)
    q = rng.standard_normal((*lead, queries, 2))
    k, v = rng.standard_normal((2, *fewer, keys, 2))
    return q, k, v, bias


def loss_cases(rng: Rng) -> Iterator[OpCase]:
    """Ignored targets, smoothing, class weights, all together, and nothing that counts."""
    normal = rng.standard_normal
    logits, targets = normal((2, 3, 5)), np.array([[0, IGNORE, 4], [2, 2, IGNORE]])
    weights = {"class_weights": rng.uniform(0.2, 2, 5)}
    smooth = {"smoothing": 0.1}
    yield _case("cross_entropy", (normal((4, 5)),), np.array([3, 0, 0, 4]))
    yield _case("cross_entropy, one row", (normal(5),), np.array(2))
    yield _case("cross_entropy, ignored targets", (logits,), targets)
    yield _case("cross_entropy, smoothing", (logits,), targets, **smooth)
    yield _case("cross_entropy, class weights", (logits,), targets, **weights)
    yield _case("cross_entropy, class weights and smoothing", (logits,), targets, **weights, **smooth)
    yield _case("cross_entropy, another ignored number", (logits,), np.array([[0, 1, 1], [2, 3, 4]]), ignore=1)
    yield _case("cross_entropy, all ignored", (logits,), np.full((2, 3), IGNORE), **smooth)
    yield _case("cross_entropy, no example", (normal((0, 5)),), np.zeros(0, dtype=int))
    yield _case("cross_entropy, large logits", (100 * logits,), targets)
    yield _case("cross_entropy, strided", (_strided(rng, 2, 3, 5),), targets, **smooth)
    yield _case("cross_entropy, impossible class", (np.where(np.arange(5) == 1, -np.inf, logits),), targets)


def position_cases(rng: Rng) -> Iterator[OpCase]:
    """Rotations in both pairings, stretched as in Llama 3, and learned biases by distance."""
    normal = rng.standard_normal
    angles = ops.rotary_angles(np.arange(3), 4)
    for pairing in ("halves", "interleaved"):
        yield _case(f"rotary, {pairing}", (normal((2, 3, 4)),), *angles, pairing=pairing)
        yield _case(f"rotary, {pairing}, strided", (_strided(rng, 3, 4),), *angles, pairing=pairing)
    stretched = ops.rotary_angles(np.array([5, 100_000]), 6, base=500_000.0, scaling=RotaryScaling())
    yield _case("rotary, Llama 3 scaling", (normal((2, 1, 2, 6)),), *stretched)
    yield _case("rotary, one position", (normal((1, 2)),), *ops.rotary_angles(np.array([9]), 2))
    yield _case("rotary, no example", (np.zeros((0, 2, 3, 4)),), *angles)
    yield _case("rotary, own positions", (normal((2, 3, 2)),), *ops.rotary_angles(np.array([[0, 1, 2]] * 2), 2))
    positions = np.arange(4)
    both = ops.relative_buckets(positions, positions, bidirectional=True, buckets=8, max_distance=4)
    past = ops.relative_buckets(positions[-1:], positions, bidirectional=False, buckets=4, max_distance=8)
    yield _case("relative_bias", (normal((8, 2)),), both)
    yield _case("relative_bias, one query", (normal((4, 3)),), past)
    yield _case("relative_bias, no query", (normal((4, 3)),), past[:0])
    yield _case("relative_bias, strided", (_strided(rng, 8, 2),), both.T)


def arrange_cases(rng: Rng) -> Iterator[OpCase]:
    """Sums, of which a term may be broadcast, and rearrangements of positions and heads."""
    normal = rng.standard_normal
    yield _case("add", (normal((2, 3, 4)), normal((2, 3, 4))))
    yield _case("add, broadcast", (normal((2, 3, 4)), normal((3, 4))))
    yield _case("add, both broadcast", (normal((2, 1, 4)), normal((3, 1))))
    yield _case("add, no example", (normal((0, 4)), normal((0, 4))))
    yield _case("add, strided", (_strided(rng, 2, 3, 4), _strided(rng, 3, 4)))
    yield _case("scale", (normal((2, 3)),), factor=-0.7)
    yield _case("copy", (normal((2, 3)),))
    views = {"": normal((2, 3, 6)), ", one sequence": normal((3, 6)), ", strided": _strided(rng, 2, 3, 6)}
    for what, x in views.items():
        yield _case(f"split_heads{what}", (x,), heads=2)
        yield _case(f"merge_heads{what}", (x.reshape(*x.shape[:-1], 2, 3).swapaxes(-3, -2),), heads=2)
        yield _case(f"take_first{what}", (x,))
        yield _case(f"prepend{what}", (normal(6), x))


def own_cases(rng: Rng) -> Iterator[OpCase]:
    """Registered ops at their own examples; registered activations are in the table already."""
    for name, (forward, backward, arrays, settings) in registry.own("op").items():
        yield OpCase(name, forward, backward, arrays, (), settings)


SOURCES: tuple[Callable[[Rng], Iterator[OpCase]], ...] = (
    linear_cases, embedding_cases, mean_pool_cases, activation_cases, norm_cases, dropout_cases, softmax_cases,
    attention_cases, loss_cases, position_cases, arrange_cases, own_cases,
)  # fmt: skip
