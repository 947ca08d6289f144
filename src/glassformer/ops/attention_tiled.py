"""The same attention in tiles: memory grows with the length, not with its square.

The softmax of a row is accumulated key tile by key tile (Milakov and Gimelshein 2018; Dao et al. 2022): a running
maximum, a running sum, and a running mixture that is rescaled whenever the maximum moves. The backward pass makes the
weights again, tile by tile, from the scores and the logarithm of each row's sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..arrays import Array, cast, check_broadcast, check_mask, namespace, unbroadcast, widen
from ..errors import ConfigError
from .attention import attention_scores, check_heads, default_scale, grouped, ungrouped
from .dropout import check_rate, dropped, keep_mask
from .mask import FULL, Pattern


class TiledSaved(NamedTuple):
    q: Array  # (..., H, T, C)
    k: Array  # (..., K, S, C)
    v: Array  # (..., K, S, C)
    bias: Array | None
    mask: Array | None
    key: Array | None
    y: Array  # (..., H, T, C)
    log_sum: Array  # (..., H, T, 1): log Σ exp scores; +inf for a row with nothing to attend to


def attention_tiled(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None = None,
    *,
    mask: Array | None = None,
    pattern: Pattern = FULL,
    key: Array | None = None,
    rate: float = 0.0,
    scale: float | None = None,
    tile: int = 128,
) -> tuple[Array, TiledSaved]:
    """Return the same numbers as `attention`, holding one tile of the weights at a time.

    `pattern` is the part of the mask that follows from positions, made tile by tile, and tiles it empties are never
    computed; `mask` is the rest, such as padding (B, 1, 1, S).
    """
    check_heads(q, k, v)
    check_rate(rate)
    _check_tiles(q, k, pattern, tile)
    shape = (*q.shape[:-1], k.shape[-2])
    if mask is not None:
        check_mask(mask, shape)
    if bias is not None:
        check_broadcast(bias, shape, what="the bias")
    xp = namespace(q)
    saved = TiledSaved(q, k, v, bias, mask, key if rate > 0 else None, q, q)
    parts = [_row_tile(xp, saved, rows, pattern, rate, scale, tile) for rows in _tiles(q.shape[-2], tile)]
    y, log_sum = (xp.concatenate(pieces, axis=-2) for pieces in zip(*parts, strict=True))
    return y, saved._replace(y=y, log_sum=log_sum)


def attention_tiled_backward(
    dy: Array,
    saved: TiledSaved,
    *,
    pattern: Pattern = FULL,
    rate: float = 0.0,
    scale: float | None = None,
    tile: int = 128,
) -> tuple[Array, Array, Array, Array | None]:
    """Gradient of `attention_tiled`, in the same tiles.

        p = exp(scores − log_sum)      dscores = p · (dy vᵀ − Σ dy · y)

    Σ dy · y over the channels is what Σ dweights · weights over the keys would be, and needs no weights.
    """
    xp = namespace(saved.q)
    row_tiles, column_tiles = _tiles(saved.q.shape[-2], tile), _tiles(saved.k.shape[-2], tile)
    along = xp.sum(widen(dy) * widen(saved.y), axis=-1, keepdims=True)
    dq: list[Any] = [None] * len(row_tiles)
    dk, dv, dbias = [], [], []
    for columns in column_tiles:
        dk_tile, dv_tile = xp.zeros_like(_cut(saved.k, columns)), xp.zeros_like(_cut(saved.v, columns))
        dbias_column = []
        for i, rows in enumerate(row_tiles):
            grads = _tile_backward(xp, dy, along, saved, rows, columns, pattern, rate, scale)
            dq[i] = grads.dq if dq[i] is None else dq[i] + grads.dq
            dk_tile, dv_tile = dk_tile + grads.dk, dv_tile + grads.dv
            dbias_column.append(grads.dbias)
        dk.append(dk_tile)
        dv.append(dv_tile)
        dbias.append(_joined(xp, dbias_column, saved.bias, -2))
    return (
        cast(xp.concatenate(dq, axis=-2), saved.q.dtype),
        cast(xp.concatenate(dk, axis=-2), saved.k.dtype),
        cast(xp.concatenate(dv, axis=-2), saved.v.dtype),
        _joined(xp, dbias, saved.bias, -1),
    )


def _check_tiles(q: Array, k: Array, pattern: Pattern, tile: int) -> None:
    if tile < 1:
        raise ConfigError(f"the tile size is {tile}", hint="use at least 1, such as 128")
    pattern.check_lengths(q.shape[-2], k.shape[-2])


class _TileGrads(NamedTuple):
    dq: Array
    dk: Array
    dv: Array
    dbias: Array | None


def _tile_backward(
    xp: Any,
    dy: Array,
    along: Array,
    saved: TiledSaved,
    rows: range,
    columns: range,
    pattern: Pattern,
    rate: float,
    scale: float | None,
) -> _TileGrads:
    """Return what one tile adds to the gradients of its queries, keys, values and bias."""
    q, k, v = _cut(saved.q, rows), _cut(saved.k, columns), _cut(saved.v, columns)
    bias = _bias_tile(saved.bias, rows, columns)
    if not _reaches(saved, rows, columns, pattern):
        return _TileGrads(*(None if x is None else xp.zeros_like(widen(x)) for x in (q, k, v, bias)))
    scores = _masked_scores(xp, saved, rows, columns, pattern, scale)
    p = xp.exp(scores - _cut(saved.log_sum, rows))
    dy = widen(_cut(dy, rows))
    keep = _keep_tile(saved, rows, columns, rate)
    mixing = p if keep is None else dropped(p, keep, rate=rate)
    dv = xp.matrix_transpose(grouped(mixing, v)) @ grouped(dy, v)
    dweights = ungrouped(grouped(dy, v) @ xp.matrix_transpose(widen(v)), p)
    if keep is not None:
        dweights = dropped(dweights, keep, rate=rate)
    dscores = p * (dweights - _cut(along, rows))
    dbias = None if bias is None else unbroadcast(dscores, tuple(bias.shape))
    dscores = grouped(dscores * (default_scale(q) if scale is None else scale), k)
    return _TileGrads(ungrouped(dscores @ widen(k), q), xp.matrix_transpose(dscores) @ widen(grouped(q, k)), dv, dbias)


def _row_tile(
    xp: Any, saved: TiledSaved, rows: range, pattern: Pattern, rate: float, scale: float | None, tile: int
) -> tuple[Array, Array]:
    """Attend from one run of queries to all keys; return the mixture of values and the logarithm of the sum."""
    q = _cut(saved.q, rows)
    lead = tuple(q.shape[:-1])
    kind = widen(q).dtype
    largest = xp.full((*lead, 1), -xp.inf, dtype=kind)
    total = xp.zeros((*lead, 1), dtype=kind)
    mixture = xp.zeros((*lead, saved.v.shape[-1]), dtype=kind)
    for columns in _tiles(saved.k.shape[-2], tile):
        if not _reaches(saved, rows, columns, pattern):
            continue
        scores = _masked_scores(xp, saved, rows, columns, pattern, scale)
        larger = xp.maximum(largest, xp.max(scores, axis=-1, keepdims=True, initial=-xp.inf))
        shift = xp.where(xp.isfinite(larger), larger, 0)
        p = xp.exp(scores - shift)
        rescale = xp.exp(largest - shift)
        total = total * rescale + xp.sum(p, axis=-1, keepdims=True)
        keep = _keep_tile(saved, rows, columns, rate)
        p = p if keep is None else dropped(p, keep, rate=rate)
        v = widen(_cut(saved.v, columns))
        mixture = mixture * rescale + ungrouped(grouped(p, v) @ v, q)
        largest = larger
    empty = total == 0
    safe = xp.where(empty, 1, total)
    log_sum = xp.where(empty, xp.inf, largest + xp.log(safe))
    return cast(mixture / safe, saved.v.dtype), log_sum


def _masked_scores(
    xp: Any, saved: TiledSaved, rows: range, columns: range, pattern: Pattern, scale: float | None
) -> Array:
    q, k = _cut(saved.q, rows), _cut(saved.k, columns)
    scores = attention_scores(q, k, _bias_tile(saved.bias, rows, columns), scale=scale)
    if not pattern.is_full:
        allowed = pattern.tile(np.asarray(_positions(saved, rows)), np.asarray(columns))
        scores = xp.where(allowed, scores, -xp.inf)
    mask = _bias_tile(saved.mask, rows, columns)
    return scores if mask is None else xp.where(mask, scores, -xp.inf)


def _keep_tile(saved: TiledSaved, rows: range, columns: range, rate: float) -> Array | None:
    """Return the tile of the mask that `dropout` would draw for the whole array of weights."""
    if saved.key is None:
        return None
    lead, length = tuple(saved.q.shape[:-2]), saved.q.shape[-2]
    first = np.arange(int(np.prod(lead))).reshape(*lead, 1) * length
    return keep_mask(saved.key, first + np.asarray(rows), np.asarray(columns), rate=rate)


def _positions(saved: TiledSaved, rows: range) -> range:
    """Return the places of the queries among the keys: the queries are the last ones."""
    offset = saved.k.shape[-2] - saved.q.shape[-2]
    return range(rows.start + offset, rows.stop + offset)


def _reaches(saved: TiledSaved, rows: range, columns: range, pattern: Pattern) -> bool:
    return pattern.is_full or pattern.reaches(_positions(saved, rows), columns)


def _tiles(length: int, tile: int) -> list[range]:
    """Cut a length into runs of at most `tile`; a length of zero is one empty run."""
    return [range(start, min(start + tile, length)) for start in range(0, max(length, 1), tile)]


def _cut(x: Array, rows: range) -> Array:
    return x[..., rows.start : rows.stop, :]


def _bias_tile(x: Array | None, rows: range, columns: range) -> Array | None:
    """Cut a tile out of an array (..., T, S) whose axes may have size 1."""
    if x is None:
        return None
    if x.ndim > 1 and x.shape[-2] > 1:
        x = x[..., rows.start : rows.stop, :]
    return x[..., columns.start : columns.stop] if x.shape[-1] > 1 else x


def _joined(xp: Any, tiles: list[Any], bias: Array | None, axis: int) -> Array | None:
    """Put the tiles of a bias gradient side by side, or add them up where the bias was broadcast."""
    if bias is None:
        return None
    if bias.ndim >= -axis and bias.shape[axis] > 1:
        return cast(xp.concatenate(tiles, axis=axis), bias.dtype)
    return cast(sum(tiles[1:], tiles[0]), bias.dtype)
