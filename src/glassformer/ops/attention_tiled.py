"""The same attention in tiles: memory grows with the length, not with its square.

The weights (..., H, T, S) are by far the largest array of a long sequence, and no step needs them all at once. The
softmax of a row is accumulated key tile by key tile (Milakov and Gimelshein 2018; Dao et al. 2022). Of all keys seen so
far it takes three things to go on:

    largest = max scores      total = Σ exp(scores − largest)      mixture = Σ exp(scores − largest) · v

A further tile may hold a larger score. What was summed relative to the old maximum is then too large by one factor, the
same for every term, because exp(s − largest) · exp(largest − larger) = exp(s − larger):

    larger = max(largest, max scores)      rescale = exp(largest − larger)      p = exp(scores − larger)
    total ← total · rescale + Σ p          mixture ← mixture · rescale + p v          largest ← larger

After the last tile y = mixture / total is what softmax and one product with v would have given: nothing was
approximated, and no exponential was ever taken of a positive number.

Of the weights only log_sum = largest + log total is kept, one number for each query. It is enough for the backward pass
to make any tile of them again, without looking at its neighbors: weights = exp(scores) / Σ exp(scores)
= exp(scores − log_sum). That costs the product q kᵀ once more, five products instead of four, and is often faster all
the same, because an array of T · S numbers is neither written nor read.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, check_broadcast, check_mask, namespace, unbroadcast
from ..core.dispatch import dispatched
from ..core.errors import ConfigError
from .attention import attention_scores, check_heads, default_scale, grouped, ungrouped
from .attention_strided import beyond, by_position, by_remainder, can_split, keys_by_remainder, merged, neighborhood
from .dropout import check_rate, dropped, keep_mask
from .mask import FULL, Pattern


class TiledSaved(NamedTuple):
    q: Array  # (..., H, T, C)
    k: Array  # (..., K, S, C)
    v: Array  # (..., K, S, C)
    bias: Array | None  # broadcasts to (..., H, T, S)
    mask: Array | None  # broadcasts to (..., H, T, S)
    key: Array | None  # (2,): dropout's mask is drawn again from it, tile by tile
    y: Array  # (..., H, T, C)
    log_sum: Array  # (..., H, T, 1): log Σ exp scores; +inf for a row with nothing to attend to


@dispatched(wide=("log_sum",))
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
    computed; `mask` is the rest, such as padding (B, 1, 1, S). A strided pattern is computed in two cheap parts (see
    `attention_strided`), unless a bias, a prefix or a mask of pairs stands in the way.
    """
    check_heads(q, k, v)
    check_rate(rate)
    if tile < 1:
        raise ConfigError(f"the tile size is {tile}", hint="use at least 1, such as 128")
    pattern.check_lengths(q.shape[-2], k.shape[-2])
    shape = (*q.shape[:-1], k.shape[-2])
    if mask is not None:
        check_mask(mask, shape)
    if bias is not None:
        check_broadcast(bias, shape, what="the bias")
    # y and log_sum are not known yet; q stands in their places until they are.
    saved = TiledSaved(q, k, v, bias, mask, key if rate > 0 else None, q, q)
    if can_split(q, k, bias, mask, pattern):
        near, far = _strided_parts(saved, pattern)
        y, log_sum = _attend(far, rate, scale, tile)
        length = q.shape[-2]
        y, log_sum = merged([_attend(near, rate, scale, tile), (by_position(y, length), by_position(log_sum, length))])
    else:
        y, log_sum = _attend(_all_of(saved, pattern), rate, scale, tile)
    y = _by_position(y)
    return y, saved._replace(y=y, log_sum=log_sum)


@dispatched
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

    The sum that softmax's gradient subtracts is Σ dweights · weights over all keys, which no tile sees. But
    Σ_s (dy · v_s) weights_s = dy · Σ_s weights_s v_s = dy · y, a sum over the channels that needs no weights. It holds
    with dropout too, whose factors stand in dweights as in y.
    """
    q, k, _, bias = saved[:4]
    xp = namespace(q)
    along = xp.sum(dy * saved.y, axis=-1, keepdims=True)  # (..., H, T, 1)
    # With the joint log_sum, p is a share of the joint softmax in either part: their gradients add up. Rows that only
    # fill up a remainder have dy = 0 and along = 0, and add nothing.
    if can_split(q, k, bias, saved.mask, pattern):
        assert pattern.stride is not None
        near, far = _strided_parts(saved, pattern)
        dy_far, along_far = (by_remainder(x, pattern.stride) for x in (dy, along))
        *near_grads, dbias = _attend_backward(near, dy, along, rate, scale, tile)
        *far_grads, _ = _attend_backward(far, dy_far, along_far, rate, scale, tile)
        dq, dk, dv = (a + by_position(b, q.shape[-2]) for a, b in zip(near_grads, far_grads, strict=True))
    else:
        dq, dk, dv, dbias = _attend_backward(_all_of(saved, pattern), dy, along, rate, scale, tile)
    return dq, dk, dv, dbias


def _by_position(y: Array) -> Array:
    """Return y (..., H, T, C) as it lies in memory as (..., T, H, C): putting the heads side by side moves nothing."""
    if y.ndim < 3:
        return y
    xp = namespace(y)
    return xp.swapaxes(xp.swapaxes(y, -3, -2).copy(), -3, -2)


class _Part(NamedTuple):
    """Queries and keys, and who may see whom among them."""

    saved: TiledSaved
    pattern: Pattern
    rows: Array | None  # (..., H, T): numbers of the rows of the weights, by which dropout knows them; None without it
    columns: Array | None  # (..., S)


def _all_of(saved: TiledSaved, pattern: Pattern) -> _Part:
    """Return attention as one part.

    Dropout asks for the place of a weight in the full array of them, so that a tile, and a sequence sorted by
    remainder, drop exactly what `attention` drops: each query carries the number of its row, each key that of its
    column.
    """
    if saved.key is None:
        return _Part(saved, pattern, None, None)
    shape = tuple(saved.q.shape[:-1])
    return _Part(saved, pattern, np.arange(math.prod(shape)).reshape(shape), np.arange(saved.k.shape[-2]))


def _strided_parts(saved: TiledSaved, pattern: Pattern) -> tuple[_Part, _Part]:
    """Return the neighborhood, and the rest sorted by remainder."""
    stride, axes = pattern.stride, saved.q.ndim
    assert stride is not None
    near = _all_of(saved, neighborhood(pattern))
    q, k, v, y, log_sum = (by_remainder(x, stride) for x in (saved.q, saved.k, saved.v, saved.y, saved.log_sum))
    mask = keys_by_remainder(saved.mask, saved.k.shape[-2], stride, axes=axes)
    rows = columns = None
    if near.rows is not None and near.columns is not None:
        rows = by_remainder(near.rows[..., None], stride)[..., 0]
        columns = np.matrix_transpose(by_remainder(near.columns.reshape(*(1,) * (axes - 2), -1, 1), stride))
    return near, _Part(TiledSaved(q, k, v, None, mask, saved.key, y, log_sum), beyond(pattern), rows, columns)


def _attend(part: _Part, rate: float, scale: float | None, tile: int) -> tuple[Array, Array]:
    """Return the mixtures of values and the logarithms of the sums, for one run of queries after the other."""
    q = part.saved.q
    runs = [_row_tile(namespace(q), part, rows, rate, scale, tile) for rows in _tiles(q.shape[-2], tile)]
    y, log_sum = (namespace(q).concatenate(pieces, axis=-2) for pieces in zip(*runs, strict=True))
    return y, log_sum


def _attend_backward(
    part: _Part, dy: Array, along: Array, rate: float, scale: float | None, tile: int
) -> tuple[Array, Array, Array, Array | None]:
    """Return the gradients of a part, for one run of keys after the other.

    dk and dv of a key collect from all queries, so keys are the outer loop here, and each run of them is finished
    before the next begins; dq collects from all keys, and grows piece by piece.
    """
    saved = part.saved
    xp = namespace(saved.q)
    row_tiles, column_tiles = _tiles(saved.q.shape[-2], tile), _tiles(saved.k.shape[-2], tile)
    dq = [xp.zeros_like(_cut(saved.q, rows)) for rows in row_tiles]
    dk, dv, dbias = [], [], []
    for columns in column_tiles:
        dk_tile, dv_tile = xp.zeros_like(_cut(saved.k, columns)), xp.zeros_like(_cut(saved.v, columns))
        dbias_column = []
        for i, rows in enumerate(row_tiles):
            if not _reaches(part, rows, columns):
                # All weights of the tile are zero; only the bias must be told so, to keep its shape.
                bias = _bias_tile(saved.bias, rows, columns)
                dbias_column.append(None if bias is None else xp.zeros_like(bias))
                continue
            dq_tile, dk_part, dv_part, dbias_tile = _tile_backward(xp, part, dy, along, rows, columns, rate, scale)
            dq[i] = dq[i] + dq_tile
            dk_tile, dv_tile = dk_tile + dk_part, dv_tile + dv_part
            dbias_column.append(dbias_tile)
        dk.append(dk_tile)
        dv.append(dv_tile)
        dbias.append(_joined(xp, dbias_column, saved.bias, -2))
    return (
        xp.concatenate(dq, axis=-2),
        xp.concatenate(dk, axis=-2),
        xp.concatenate(dv, axis=-2),
        _joined(xp, dbias, saved.bias, -1),
    )


def _tile_backward(
    xp: Any, part: _Part, dy: Array, along: Array, rows: range, columns: range, rate: float, scale: float | None
) -> tuple[Array, Array, Array, Array | None]:
    """Return what one tile adds to the gradients of its queries, keys, values and bias.

    Line by line this is `attention_backward`, with weights p that are made again and `along` for the sum over all keys.
    """
    saved = part.saved
    q, k, v = _cut(saved.q, rows), _cut(saved.k, columns), _cut(saved.v, columns)
    bias = _bias_tile(saved.bias, rows, columns)
    scores = _masked_scores(xp, part, rows, columns, scale)
    p = xp.exp(scores - _cut(saved.log_sum, rows))  # a row without keys has log_sum = +inf, and p = 0
    # y = mixing v,  mixing = dropout(p)
    dy = _cut(dy, rows)
    keep = _keep_tile(part, rows, columns, rate)
    mixing = p if keep is None else dropped(p, keep, rate=rate)
    dv = xp.matrix_transpose(grouped(mixing, v)) @ grouped(dy, v)
    dweights = ungrouped(grouped(dy, v) @ xp.matrix_transpose(v), p)
    if keep is not None:
        dweights = dropped(dweights, keep, rate=rate)
    # p = softmax(scores)
    dscores = p * (dweights - _cut(along, rows))
    # scores = q kᵀ · scale + bias
    dbias = None if bias is None else unbroadcast(dscores, tuple(bias.shape))
    dscores = grouped(dscores * (default_scale(q) if scale is None else scale), k)
    return ungrouped(dscores @ k, q), xp.matrix_transpose(dscores) @ grouped(q, k), dv, dbias


def _row_tile(xp: Any, part: _Part, rows: range, rate: float, scale: float | None, tile: int) -> tuple[Array, Array]:
    """Attend from one run of queries to all keys; return the mixture of values and the logarithm of the sum.

    The recurrence of this file's first page, beginning with largest = −inf, total = 0 and mixture = 0.
    """
    saved = part.saved
    q = _cut(saved.q, rows)
    lead = tuple(q.shape[:-1])
    largest = xp.full((*lead, 1), -xp.inf, dtype=q.dtype)
    total = xp.zeros((*lead, 1), dtype=q.dtype)
    mixture = xp.zeros((*lead, saved.v.shape[-1]), dtype=q.dtype)
    for columns in _tiles(saved.k.shape[-2], tile):
        if not _reaches(part, rows, columns):
            continue
        scores = _masked_scores(xp, part, rows, columns, scale)
        larger = xp.maximum(largest, xp.max(scores, axis=-1, keepdims=True, initial=-xp.inf))
        # A row that has seen no key yet has larger = −inf, and −inf − (−inf) is not a number: exp(−inf − 0) is zero.
        shift = xp.where(xp.isfinite(larger), larger, 0)
        p = xp.exp(scores - shift)
        rescale = xp.exp(largest - shift)  # zero for the first tile, one while the maximum stays
        total = total * rescale + xp.sum(p, axis=-1, keepdims=True)
        # Dropout acts on weights that are already divided by the sum of all, so what it drops stays in the total.
        keep = _keep_tile(part, rows, columns, rate)
        p = p if keep is None else dropped(p, keep, rate=rate)
        v = _cut(saved.v, columns)
        mixture = mixture * rescale + ungrouped(grouped(p, v) @ v, q)
        largest = larger
    empty = total == 0
    safe = xp.where(empty, 1, total)
    log_sum = xp.where(empty, xp.inf, largest + xp.log(safe))
    return mixture / safe, log_sum


def _masked_scores(xp: Any, part: _Part, rows: range, columns: range, scale: float | None) -> Array:
    """Return the scores of one tile, −inf where a query may not see a key: by its position, or by the mask."""
    saved = part.saved
    q, k = _cut(saved.q, rows), _cut(saved.k, columns)
    scores = attention_scores(q, k, _bias_tile(saved.bias, rows, columns), scale=scale)
    if not part.pattern.is_full:
        allowed = part.pattern.tile(np.asarray(_positions(saved, rows)), np.asarray(columns))
        scores = xp.where(allowed, scores, -xp.inf)
    mask = _bias_tile(saved.mask, rows, columns)
    return scores if mask is None else xp.where(mask, scores, -xp.inf)


def _keep_tile(part: _Part, rows: range, columns: range, rate: float) -> Array | None:
    """Return the tile of the mask that `dropout` would draw for the whole array of weights."""
    if part.rows is None or part.columns is None:
        return None
    numbers = part.rows[..., rows.start : rows.stop]
    return keep_mask(part.saved.key, numbers, part.columns[..., columns.start : columns.stop], rate=rate)


def _positions(saved: TiledSaved, rows: range) -> range:
    """Return the places of the queries among the keys: the queries are the last ones."""
    offset = saved.k.shape[-2] - saved.q.shape[-2]
    return range(rows.start + offset, rows.stop + offset)


def _reaches(part: _Part, rows: range, columns: range) -> bool:
    """Return whether a tile may have any weight. A causal pattern empties nearly half of the tiles, a window most."""
    return part.pattern.is_full or part.pattern.reaches(_positions(part.saved, rows), columns)


def _tiles(length: int, tile: int) -> list[range]:
    """Cut a length into runs of at most `tile`; a length of zero is one empty run."""
    return [range(start, min(start + tile, length)) for start in range(0, max(length, 1), tile)]


def _cut(x: Array, rows: range) -> Array:
    """Cut a run of positions out of (..., T, C)."""
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
        return xp.concatenate(tiles, axis=axis)
    return sum(tiles[1:], tiles[0])
