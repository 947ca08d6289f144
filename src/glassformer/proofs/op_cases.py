"""Every op with the inputs under which its gradient is proved: small, from a fixed seed, and hard where it matters.

Shapes cover no, one and two leading axes, a single position, no example at all, and views that are not contiguous.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import ops, registry
from ..arrays import Array
from ..config import RotaryScaling
from ..ops import CAUSAL, IGNORE, Pattern
from .case import OpCase


def op_cases() -> list[OpCase]:
    """Return all cases of all ops, made afresh."""
    return [case for source in SOURCES for case in source(np.random.default_rng(0))]


def strided(rng: np.random.Generator, *shape: int) -> Array:
    """Return normal numbers as a view of every other entry, its last two axes (if any) swapped."""
    if len(shape) < 2:
        return rng.standard_normal((*shape[:-1], 2 * shape[-1]))[..., ::2]
    x = rng.standard_normal((*shape[:-2], shape[-1], 2 * shape[-2]))[..., ::2]
    return np.swapaxes(x, -1, -2)


def linear_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """One vector, batches, no batch, with and without a bias, and transposed weights (a tied head)."""
    normal = rng.standard_normal
    pair = (ops.linear, ops.linear_backward)
    w, b = normal((3, 4)), normal(4)
    yield OpCase("linear", *pair, (normal((5, 3)), w, b))
    yield OpCase("linear, no bias", *pair, (normal((5, 3)), w, None))
    yield OpCase("linear, one vector", *pair, (normal(3), w, b))
    yield OpCase("linear, two batch axes", *pair, (normal((2, 2, 3)), w, b))
    yield OpCase("linear, one output", *pair, (normal((2, 1, 3)), normal((3, 1)), normal(1)))
    yield OpCase("linear, no example", *pair, (normal((0, 2, 3)), w, b))
    yield OpCase("linear, strided", *pair, (strided(rng, 2, 4, 3), normal((4, 3)).T, strided(rng, 4)))


def embedding_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Ids that repeat, one id, no ids, scaled, and a strided table."""
    pair = (ops.embedding, ops.embedding_backward)
    table = rng.standard_normal((5, 3))
    repeated = np.array([[1, 4, 1], [1, 0, 4]])
    yield OpCase("embedding, repeated ids", *pair, (table,), (repeated,))
    yield OpCase("embedding, scaled", *pair, (table,), (repeated,), {"scale": 3.0**0.5})
    yield OpCase("embedding, one id", *pair, (table,), (np.array(2),))
    yield OpCase("embedding, two batch axes", *pair, (table,), (np.array([[[0, 1]], [[1, 1]]]),))
    yield OpCase("embedding, no example", *pair, (table,), (np.zeros((0, 4), dtype=int),))
    yield OpCase("embedding, strided", *pair, (strided(rng, 5, 3),), (repeated.T,))


def mean_pool_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """With and without padding, one position, a row with nothing to average, no example."""
    normal = rng.standard_normal
    pair = (ops.mean_pool, ops.mean_pool_backward)
    mask = np.array([[True, True, False, True], [True, False, False, False], [False] * 4])
    yield OpCase("mean_pool", *pair, (normal((4, 3)),))
    yield OpCase("mean_pool, masked", *pair, (normal((3, 4, 2)),), (), {"mask": mask})
    yield OpCase("mean_pool, one mask for all", *pair, (normal((2, 2, 4, 2)),), (), {"mask": mask[0]})
    yield OpCase("mean_pool, one position", *pair, (normal((2, 1, 3)),))
    yield OpCase("mean_pool, no example", *pair, (normal((0, 4, 3)),))
    yield OpCase("mean_pool, strided", *pair, (strided(rng, 3, 4, 2),), (), {"mask": mask})


def activation_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Each activation far out on both sides, and where all of them bend; relu away from its kink at 0."""
    for name, (op, backward) in ops.ACTIVATIONS.items():
        away = rng.choice([-1, 1], (2, 3, 4)) * rng.uniform(0.1, 3, (2, 3, 4))
        yield OpCase(name, op, backward, (away,))
        yield OpCase(f"{name}, far out", op, backward, (np.array([-500.0, -39, -20, -6, 6, 20, 39, 500]),))
        yield OpCase(f"{name}, near zero", op, backward, (np.array([-1e-3, -1e-8, 1e-8, 1e-3]),))
        yield OpCase(f"{name}, no example", op, backward, (np.zeros((0, 4)),))
        yield OpCase(f"{name}, strided", op, backward, (away.swapaxes(0, 2)[::2],))


def gated_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """The gated form of each activation."""
    pair = (ops.gated, ops.gated_backward)
    for name in ops.ACTIVATIONS:
        gate = rng.choice([-1, 1], (2, 5)) * rng.uniform(0.1, 3, (2, 5))
        yield OpCase(f"gated, {name}", *pair, (gate, rng.standard_normal((2, 5))), (), {"activation": name})
    yield OpCase("gated, one vector", *pair, (rng.standard_normal(3), rng.standard_normal(3)))
    yield OpCase("gated, no example", *pair, (np.zeros((0, 2, 3)), np.zeros((0, 2, 3))))
    yield OpCase("gated, strided", *pair, (strided(rng, 2, 2, 3), strided(rng, 2, 2, 3)))


def norm_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Both norms, at eps that matters and eps that does not."""
    layer = (ops.layer_norm, ops.layer_norm_backward)
    beta = rng.standard_normal(5)
    yield from _norm_cases(rng, "layer_norm", layer, (beta,))
    yield OpCase("layer_norm, no shift", *layer, (rng.standard_normal((3, 5)), beta, None))
    yield from _norm_cases(rng, "rms_norm", (ops.rms_norm, ops.rms_norm_backward), ())


def _norm_cases(
    rng: np.random.Generator, name: str, pair: tuple[Callable, Callable], shift: tuple[Array, ...]
) -> Iterator[OpCase]:
    normal = rng.standard_normal
    gamma = normal(5)
    for eps in (1e-5, 1e-6, 1e-12):
        yield OpCase(f"{name}, eps {eps}", *pair, (normal((2, 5)), gamma, *shift), (), {"eps": eps})
    # The variance is 1e-6 here, so that eps is most of what stands under the root.
    yield OpCase(f"{name}, eps inside the root", *pair, (1e-3 * normal((2, 5)), gamma, *shift), (), {"eps": 1e-5})
    yield OpCase(f"{name}, all equal", *pair, (np.full((1, 5), 0.75), gamma, *shift))
    yield OpCase(f"{name}, zeros", *pair, (np.zeros((1, 5)), gamma, *shift), (), {"eps": 1e-2})
    yield OpCase(f"{name}, one vector", *pair, (normal(5), gamma, *shift))
    yield OpCase(f"{name}, two batch axes", *pair, (normal((2, 2, 5)), gamma, *shift))
    yield OpCase(f"{name}, no example", *pair, (normal((0, 2, 5)), gamma, *shift))
    yield OpCase(f"{name}, strided", *pair, (strided(rng, 2, 2, 5), strided(rng, 5), *shift))


def dropout_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Several rates, zero among them, with a fixed key."""
    pair = (ops.dropout, ops.dropout_backward)
    key = ops.new_key(7)
    for rate in (0.0, 0.1, 0.5, 0.9):
        yield OpCase(f"dropout, rate {rate}", *pair, (rng.standard_normal((2, 2, 5)),), (key,), {"rate": rate})
    yield OpCase("dropout, one vector", *pair, (rng.standard_normal(6),), (key,), {"rate": 0.4})
    yield OpCase("dropout, no example", *pair, (np.zeros((0, 3)),), (key,), {"rate": 0.4})
    yield OpCase("dropout, strided", *pair, (strided(rng, 3, 4),), (ops.fold_key(key, 3),), {"rate": 0.4})


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


def loss_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Ignored targets, smoothing, class weights, all together, and nothing that counts."""
    normal = rng.standard_normal
    logits, targets = normal((2, 3, 5)), np.array([[0, IGNORE, 4], [2, 2, IGNORE]])
    weights = rng.uniform(0.2, 2, 5)
    smooth: dict[str, Any] = {"smoothing": 0.1}
    yield _loss("cross_entropy", normal((4, 5)), np.array([3, 0, 0, 4]))
    yield _loss("cross_entropy, one row", normal(5), np.array(2))
    yield _loss("cross_entropy, ignored targets", logits, targets)
    yield _loss("cross_entropy, smoothing", logits, targets, **smooth)
    yield _loss("cross_entropy, class weights", logits, targets, class_weights=weights)
    yield _loss("cross_entropy, class weights and smoothing", logits, targets, class_weights=weights, **smooth)
    yield _loss("cross_entropy, another ignored number", logits, np.array([[0, 1, 1], [2, 3, 4]]), ignore=1)
    yield _loss("cross_entropy, all ignored", logits, np.full((2, 3), IGNORE), **smooth)
    yield _loss("cross_entropy, no example", normal((0, 5)), np.zeros(0, dtype=int))
    yield _loss("cross_entropy, large logits", 100 * logits, targets)
    yield _loss("cross_entropy, strided", strided(rng, 2, 3, 5), targets, **smooth)
    impossible = np.where(np.arange(5) == 1, -np.inf, logits)
    yield _loss("cross_entropy, impossible class", impossible, targets)


def _loss(name: str, logits: Array, targets: Array, **settings: Any) -> OpCase:
    return OpCase(name, ops.cross_entropy, ops.cross_entropy_backward, (logits,), (targets,), settings)


def position_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Rotations in both pairings, stretched as in Llama 3, and learned biases by distance."""
    normal = rng.standard_normal
    pair = (ops.rotary, ops.rotary_backward)
    angles = ops.rotary_angles(np.arange(3), 4)
    for pairing in ("halves", "interleaved"):
        yield OpCase(f"rotary, {pairing}", *pair, (normal((2, 3, 4)),), angles, {"pairing": pairing})
        yield OpCase(f"rotary, {pairing}, strided", *pair, (strided(rng, 3, 4),), angles, {"pairing": pairing})
    stretched = ops.rotary_angles(np.array([5, 100_000]), 6, base=500_000.0, scaling=RotaryScaling())
    yield OpCase("rotary, Llama 3 scaling", *pair, (normal((2, 1, 2, 6)),), stretched)
    yield OpCase("rotary, one position", *pair, (normal((1, 2)),), ops.rotary_angles(np.array([9]), 2))
    yield OpCase("rotary, no example", *pair, (np.zeros((0, 2, 3, 4)),), angles)
    yield OpCase("rotary, own positions", *pair, (normal((2, 3, 2)),), ops.rotary_angles(np.array([[0, 1, 2]] * 2), 2))

    lookup = (ops.relative_bias, ops.relative_bias_backward)
    places = np.arange(4)
    both = ops.relative_buckets(places, places, bidirectional=True, buckets=8, max_distance=4)
    past = ops.relative_buckets(places[-1:], places, bidirectional=False, buckets=4, max_distance=8)
    yield OpCase("relative_bias", *lookup, (normal((8, 2)),), (both,))
    yield OpCase("relative_bias, one query", *lookup, (normal((4, 3)),), (past,))
    yield OpCase("relative_bias, no query", *lookup, (normal((4, 3)),), (past[:0],))
    yield OpCase("relative_bias, strided", *lookup, (strided(rng, 8, 2),), (both.T,))


def arrange_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Sums, of which a term may be broadcast, and rearrangements of positions and heads."""
    normal = rng.standard_normal
    pair = (ops.add, ops.add_backward)
    yield OpCase("add", *pair, (normal((2, 3, 4)), normal((2, 3, 4))))
    yield OpCase("add, broadcast", *pair, (normal((2, 3, 4)), normal((3, 4))))
    yield OpCase("add, both broadcast", *pair, (normal((2, 1, 4)), normal((3, 1))))
    yield OpCase("add, no example", *pair, (normal((0, 4)), normal((0, 4))))
    yield OpCase("add, strided", *pair, (strided(rng, 2, 3, 4), strided(rng, 3, 4)))
    yield OpCase("scale", ops.scale, ops.scale_backward, (normal((2, 3)),), (), {"factor": -0.7})
    yield OpCase("copy", ops.copy, ops.copy_backward, (normal((2, 3)),))
    for name, x in {
        "": normal((2, 3, 6)),
        ", one sequence": normal((3, 6)),
        ", strided": strided(rng, 2, 3, 6),
    }.items():
        yield OpCase(f"split_heads{name}", ops.split_heads, ops.split_heads_backward, (x,), (), {"heads": 2})
        heads = x.reshape(*x.shape[:-1], 2, 3).swapaxes(-3, -2)
        yield OpCase(f"merge_heads{name}", ops.merge_heads, ops.merge_heads_backward, (heads,), (), {"heads": 2})
        yield OpCase(f"take_first{name}", ops.take_first, ops.take_first_backward, (x,), (), {"length": 3})
        yield OpCase(f"prepend{name}", ops.prepend, ops.prepend_backward, (normal(6), x))


def own_cases(rng: np.random.Generator) -> Iterator[OpCase]:
    """Registered ops at their own examples; registered activations are in the table already."""
    for name, (forward, backward, arrays, settings) in registry.own("op").items():
        yield OpCase(name, forward, backward, arrays, (), settings)


SOURCES: tuple[Callable[[np.random.Generator], Iterator[OpCase]], ...] = (
    linear_cases, embedding_cases, mean_pool_cases, activation_cases, gated_cases, norm_cases, dropout_cases,
    softmax_cases, attention_cases, tiled_cases, loss_cases, position_cases, arrange_cases, own_cases,
)  # fmt: skip
