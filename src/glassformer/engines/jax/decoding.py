"""Kernels of a GPU for generation: attention of one token to a cache, and all blocks of a single sequence.

A single token is too little work for a GPU: launching kernels takes longer than reading all weights. XLA makes
dozens of a block; here it is one for each time that all of a vector must be known before work can go on:

    q, k, v = norm(x) query, norm(x) key, norm(x) value
    mixed   = attention(q, keys and k, values and v)       which also remembers k and v
    parts   = mixed output, by shares of the rows
    h       = act(norm(x + Σ parts) up)                    gated: act(norm(…) gate) · (norm(…) up)
    parts   = h down, by shares of the rows

Every program of a product adds up and normalizes x again, which takes less time than one more launch.
"""

from collections.abc import Sequence
from functools import partial
from inspect import unwrap
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jax import numpy as jnp

from ... import layers, ops
from ...arrays import Array, Tree
from ...dispatch import replaces
from ...layers import Attention, Block, Cache, FeedForward, LayerNorm, RMSNorm, Stack
from .fused import launched, load, on_one_gpu, pallas_and_triton, store
from .programs import FixedCache, FixedKeyValues

_ACTIVATIONS = ("gelu_tanh", "relu", "silu")
_LAYERS = Block, layers.Residual, Attention, FeedForward, LayerNorm, RMSNorm, layers.Linear, layers.Positions
_ELSEWHERE = ("attention_tiled", "dropout", "fold_key", "quantized_product")  # what is called where this declines
_ROWS, _COLUMNS = 1024, 32  # of a matrix that a program reads at a time
_PLACES = 256  # keys that a program looks at at a time
_WARPS = 8  # groups of 32 threads that a program of a product has
_ALONG = ("x", "gamma", "beta")  # vectors as long as x
_PROGRAMS = 64  # of a product at least: about half of what a GPU runs at once

Parts: TypeAlias = list[Array]  # of a vector, _ROWS numbers each; the last is filled up with zeros


class Stream(NamedTuple):
    """The vector x (D,) of a token and what is still to be added to it, in parts (P, D), when it is read next."""

    x: Array
    parts: Array | None


@replaces(Stack.read_blocks, *_LAYERS, excluding=_ELSEWHERE)
def read_blocks(self: Stack, params: Tree, x: Array, cache: Cache, rotation: tuple[Array, Array] | None) -> Array:
    if type(cache) is not FixedCache or x.size != x.shape[-1] or x.dtype.itemsize > 4:
        return NotImplemented
    if not is_readable(self) or not on_one_gpu():
        return NotImplemented
    stream = Stream(x.reshape(-1), None)
    for own, kept in zip(params["blocks"], cache.blocks, strict=True):
        stream = read_block(self.block, own, stream, kept.attention, cache.mask, rotation)
    assert stream.parts is not None
    return (stream.x + stream.parts.sum(axis=0)).astype(x.dtype).reshape(x.shape)


def read_block(block: Block, params: Tree, stream: Stream, kept: Any, mask: Array, rotation: Any) -> Stream:
    """Return what a block makes of the stream of one token."""
    own, attention = {**params["attention"], **params["feed_forward"]}, block.attention
    normed = block.norm, params["attention_norm"]
    # Those with as many columns go in one kernel.
    groups = (("query", "key", "value"),) if attention.key_heads == attention.heads else (("query",), ("key", "value"))
    found = []
    for names in groups:
        stream, products = projected(stream, [own[name] for name in names], normed=normed)
        found += [y.reshape(1, -1, 1, attention.channels) for y in products]
    q, k, v = found
    mixed = attended(attention, kept, q, k, v, mask, rotation).reshape(-1)
    stream = Stream(stream.x, partial_products(mixed, own["output"]))
    normed = block.norm, params["feed_forward_norm"]
    inward = ("gate", "up") if block.feed_forward.gated else ("up",)
    matrices = [own[name] for name in inward]
    stream, (h,) = projected(stream, matrices, normed=normed, act=block.feed_forward.activation)
    return Stream(stream.x, partial_products(h, own["down"]))


def is_readable(stack: Stack) -> bool:
    """Tell whether the kernels have all that a stack has."""
    block = stack.block
    attention, feed_forward, norm = block.attention, block.feed_forward, block.norm
    if (type(block), type(attention), type(feed_forward)) != (Block, Attention, FeedForward):
        return False
    known = [(type(residual), residual.name) for residual in block.residuals]
    return (
        known == [(layers.Residual, "attention"), (layers.Residual, "feed_forward")]
        and type(norm) in (LayerNorm, RMSNorm)
        and block.norm_position == "pre"
        and type(stack.positions) in (type(None), layers.RotaryPositions)
        and all(type(part) is layers.Linear for own in (attention, feed_forward) for part in own.parts.values())
        and can_attend(attention)
        and feed_forward.activation in _ACTIVATIONS
    )


# --- products --------------------------------------------------------------------------------------------------------


def projected(
    stream: Stream, matrices: Sequence[Tree], *, normed: tuple[Any, Tree], act: str = ""
) -> tuple[Stream, list[Array]]:
    """Return the stream, its parts added up, and the products of norm(x) and matrices (D, F) with their biases.

    With `act` there is one product: the first through that activation, times the second if there is one.
    """
    pallas, _ = pallas_and_triton()
    (depth, width), dtype = matrices[0]["w"].shape, stream.x.dtype
    run = min(_ROWS, pallas.next_power_of_2(depth))
    given = _given({"x": stream.x, "parts": stream.parts, **normed[1]}, matrices)
    groups = [range(len(matrices))] if act else [[number] for number in range(len(matrices))]
    tile = _COLUMNS if len(groups) * width >= _PROGRAMS * _COLUMNS else _COLUMNS // 2

    def kernel(*refs: Any) -> None:
        read, (summed, *write) = dict(zip(given, refs, strict=False)), refs[len(given) :]
        place, turn = pallas.program_id(0), pallas.program_id(1)
        columns = place * tile + jnp.arange(tile, dtype=np.int32)
        rows = [start + jnp.arange(run, dtype=np.int32) for start in range(0, depth, run)]

        def share(group: Sequence[int], out: Any) -> None:
            # All that is read is asked for at once, before anything has to wait for it.
            tiles = [_tiles(read[f"w{number}"], rows, columns, depth, width) for number in group]
            along = _vectors(read, rows, depth)
            biases = [_bias(read.get(f"b{number}"), columns, width) for number in group]
            x = _normalized(normed[0], along, rows, depth)
            products = [_product(x, own) + bias for own, bias in zip(tiles, biases, strict=True)]
            y = products[0]
            if act:
                y = unwrap(ops.activation_pair(act)[0])(y)[0]
                y = y if len(products) == 1 else y * products[1]
            store(out, columns, inside=columns < width, value=y)

            @pallas.when((place == 0) & (turn == 0))
            def _() -> None:
                for row, part in zip(rows, along["x"], strict=True):
                    store(summed, row, inside=row < depth, value=part)

        for number, group in enumerate(groups):
            pallas.when(turn == number)(partial(share, group, write[number]))

    shapes = [jax.ShapeDtypeStruct((size,), dtype) for size in (depth, *[width] * len(groups))]
    run_it = launched(kernel, "projected", shapes, (pallas.cdiv(width, tile), len(groups)), warps=_WARPS)
    x, *products = run_it(*given.values())
    return Stream(x, None), products


def partial_products(x: Array, matrix: Tree) -> Array:
    """Return parts (P, F), in float32, of the product of x (D,) and a matrix (D, F) with its bias: their sum is it.

    Each is of a share of the rows: a narrow matrix would not keep a GPU busy by its columns alone.
    """
    pallas, _ = pallas_and_triton()
    depth, width = matrix["w"].shape
    tiles = pallas.cdiv(width, _COLUMNS)
    parts = max(1, 1 << (2 * _PROGRAMS // tiles).bit_length() - 1) if tiles <= 2 * _PROGRAMS else 1
    each = pallas.cdiv(depth, parts)
    run = min(_ROWS, pallas.next_power_of_2(each))
    given = _given({"x": x}, [matrix])

    def kernel(*refs: Any) -> None:
        read, out = dict(zip(given, refs, strict=False)), refs[-1]
        columns = pallas.program_id(0) * _COLUMNS + jnp.arange(_COLUMNS, dtype=np.int32)
        part = pallas.program_id(1)
        last = jnp.minimum((part + 1) * each, depth)
        rows = [part * each + start + jnp.arange(run, dtype=np.int32) for start in range(0, each, run)]
        tiles = _tiles(read["w0"], rows, columns, last, width)
        vector = [load(read["x"], row, inside=row < last) for row in rows]
        bias = jnp.where(part == 0, _bias(read.get("b0"), columns, width), 0.0)
        store(out, part, columns, inside=columns < width, value=_product(vector, tiles) + bias)

    shape = jax.ShapeDtypeStruct((parts, width), np.float32)
    return launched(kernel, "partial_products", shape, (tiles, parts), warps=_WARPS)(*given.values())


def _given(arrays: dict[str, Array | None], matrices: Sequence[Tree]) -> dict[str, Array]:
    """Return what a kernel reads, by name: w0, b0, w1, … of the matrices."""
    numbered = {f"{name}{number}": own.get(name) for number, own in enumerate(matrices) for name in ("w", "b")}
    return {name: array for name, array in {**arrays, **numbered}.items() if array is not None}


def _vectors(read: dict[str, Any], rows: Parts, depth: int) -> dict[str, Parts]:
    """Return x, its parts added and rounded as the op `add` rounds, and the vectors of its norm."""
    found = {name: [load(read[name], row, inside=row < depth) for row in rows] for name in _ALONG if name in read}
    if "parts" in read:
        numbers, dtype = range(read["parts"].shape[0]), read["x"].dtype
        parts = [sum(load(read["parts"], number, row, inside=row < depth) for number in numbers) for row in rows]
        found["x"] = [(x + own).astype(dtype).astype(np.float32) for x, own in zip(found["x"], parts, strict=True)]
    return found


def _tiles(w: Any, rows: Parts, columns: Array, depth: Any, width: int) -> Parts:
    inside = columns[None, :] < width
    return [load(w, row[:, None], columns[None, :], inside=(row[:, None] < depth) & inside) for row in rows]


def _bias(b: Any, columns: Array, width: int) -> Array:
    return jnp.zeros(columns.shape, np.float32) if b is None else load(b, columns, inside=columns < width)


def _product(x: Parts, tiles: Parts) -> Array:
    return sum(part[:, None] * own for part, own in zip(x, tiles, strict=True)).sum(axis=0)


def _normalized(norm: Any, read: dict[str, Parts], rows: Parts, width: int) -> Parts:
    """Return norm(x), in float32."""
    x, y = read["x"], []
    if type(norm) is LayerNorm:
        mean = sum(part.sum() for part in x) / width
        x = [jnp.where(row < width, part - mean, 0.0) for part, row in zip(x, rows, strict=True)]
    scale = 1 / jnp.sqrt(sum((part * part).sum() for part in x) / width + norm.eps)
    for number, part in enumerate(x):
        h = part * scale * read["gamma"][number]
        y.append(h + read["beta"][number] if "beta" in read else h)
    return y


# --- attention -------------------------------------------------------------------------------------------------------


@replaces(Attention.attend_from, excluding=_ELSEWHERE)
def attend_from(
    self: Attention, cache: Any, q: Array, k: Array, v: Array, bias: Array | None, mask: Array | None
) -> tuple[Array, Tree]:
    if type(cache) is not FixedKeyValues or bias is not None or q.ndim != 4 or q.shape[-2] != 1:
        return NotImplemented
    if q.dtype.itemsize > 4 or not can_attend(self) or not on_one_gpu():
        return NotImplemented
    if mask is not None and mask.ndim != 3:
        return NotImplemented
    return attended(self, cache, q, k, v, None if mask is None else mask[:, 0]), None


def can_attend(attention: Attention) -> bool:
    """Tell whether the kernel has all that an attention layer has."""
    pattern, channels = attention.pattern, attention.channels
    return pattern.causal and not pattern.prefix and pattern.stride is None and channels & (channels - 1) == 0


def attended(
    self: Attention, kept: Any, q: Array, k: Array, v: Array, mask: Array | None, rotation: Any = None
) -> Array:
    """Return what the heads mix for one token of each sequence, (B, H, 1, C), and remember its keys and values.

    q (B, H, 1, C) and k, v (B, K, 1, C) are turned by a `rotation` of one place; mask (B, S) tells real tokens.
    """
    pallas, _ = pallas_and_triton()
    (batch, heads, _, channels), (_, key_heads, capacity, _) = q.shape, kept.k.shape
    heads_of = Heads(
        shared=heads // key_heads,
        channels=channels,
        is_halved=self.pairing == "halves",
        scale=channels**-0.5 if self.scale is None else self.scale,
        window=self.pattern.window,
        run=min(_PLACES if batch == 1 else _PLACES // 2, pallas.next_power_of_2(capacity)),
    )
    more = {} if rotation is None else dict(zip(("cos", "sin"), rotation, strict=True))
    more = {name: table.reshape(-1).astype(np.float32) for name, table in more.items()}
    if mask is not None:
        more["mask"] = jnp.broadcast_to(mask, (batch, capacity)).astype(np.int32)
    given = {"q": q, "k": k, "v": v, "seen": kept.seen.reshape(1), **more, "keys": kept.k, "values": kept.v}

    def kernel(*refs: Any) -> None:
        # Keys and values are written where they lie: what is read of them is the result.
        read = dict(zip(given, refs, strict=False)) | dict(zip(("y", "keys", "values"), refs[-3:], strict=True))
        _attend(heads_of, read, pallas.program_id(0), pallas.program_id(1))

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, kept.k, kept.v)]
    aliases = {len(given) - 2: 1, len(given) - 1: 2}
    warps = 8 if batch == 1 else 2
    run = launched(kernel, "attended", shapes, (batch, key_heads), warps=warps, input_output_aliases=aliases)
    y, kept.k, kept.v = run(*given.values())
    kept.seen = kept.seen + 1
    return y


class Heads(NamedTuple):
    """What the kernel must know of attention."""

    shared: int  # heads that share a key
    channels: int
    is_halved: bool  # whether channel i turns with i + C/2; else with its neighbor
    scale: float
    window: int | None
    run: int  # keys that are looked at at a time

    @property
    def pairs(self) -> list[Array]:
        """The channels of a head as two halves, which are turned in pairs."""
        pair = jnp.arange(self.channels // 2, dtype=np.int32)
        return [pair, pair + self.channels // 2] if self.is_halved else [2 * pair, 2 * pair + 1]


def _attend(heads: Heads, read: dict[str, Any], row: Any, head: Any) -> None:
    """Let the heads that share a key attend to all that one sequence has seen, and to the new token itself."""
    every, seen = jnp.arange(heads.channels, dtype=np.int32), read["seen"][0]
    inside = every >= 0
    queries = [_turned(heads, read, "q", row, head * heads.shared + number) for number in range(heads.shared)]
    key, value = _turned(heads, read, "k", row, head), load(read["v"], row, head, 0, every, inside=inside)
    fits = seen < read["keys"].shape[2]
    for part, own in zip(heads.pairs, key, strict=True):
        store(read["keys"], row, head, seen, part, inside=(part >= 0) & fits, value=own)
    store(read["values"], row, head, seen, every, inside=inside & fits, value=value)
    # The token sees itself, whatever else it sees.
    start = tuple(((a * key[0] + b * key[1]).sum() * heads.scale, jnp.float32(1), value) for a, b in queries)
    first = seen * 0 if heads.window is None else jnp.maximum(seen - heads.window + 1, 0) // heads.run

    def look(block: Any, sums: Any) -> Any:
        return _look(heads, read, (row, head), block * heads.run, queries, sums)

    sums = jax.lax.fori_loop(first, (seen + heads.run - 1) // heads.run, look, start)
    for number, (_, total, mixed) in enumerate(sums):
        store(read["y"], row, head * heads.shared + number, 0, every, inside=inside, value=mixed / total)


def _turned(heads: Heads, read: dict[str, Any], name: str, row: Any, head: Any) -> tuple[Array, Array]:
    """Return the two halves of a query or a key, turned and rounded as the op rounds them."""
    a, b = (load(read[name], row, head, 0, part, inside=part >= 0) for part in heads.pairs)
    if "cos" in read:
        cos, sin = read["cos"][...], read["sin"][...]
        a, b = a * cos - b * sin, a * sin + b * cos
    dtype = read[name].dtype
    return a.astype(dtype).astype(np.float32), b.astype(dtype).astype(np.float32)


def _look(heads: Heads, read: dict[str, Any], own: Any, start: Any, queries: Any, sums: Any) -> Any:
    """Go on with the largest score, the sum of weights and the weighted values of each head over one run of keys."""
    row, head = own
    seen, every = read["seen"][0], jnp.arange(heads.channels, dtype=np.int32)
    places = start + jnp.arange(heads.run, dtype=np.int32)
    inside = places < seen
    if heads.window is not None:
        inside &= places > seen - heads.window
    if "mask" in read:
        inside &= load(read["mask"], row, places, inside=inside) != 0
    spots, across = inside[:, None], places[:, None]
    near, far = (load(read["keys"], row, head, across, part[None, :], inside=spots) for part in heads.pairs)
    values = load(read["values"], row, head, across, every[None, :], inside=spots)
    new = []
    for (a, b), (largest, total, mixed) in zip(queries, sums, strict=True):
        scores = (near * a[None, :] + far * b[None, :]).sum(axis=1) * heads.scale
        scores = jnp.where(inside, scores, -np.inf)
        larger = jnp.maximum(largest, scores.max())
        shares, faded = jnp.exp(scores - larger), jnp.exp(largest - larger)
        mixed = mixed * faded + (shares[:, None] * values).sum(axis=0)
        new.append((larger, total * faded + shares.sum(), mixed))
    return tuple(new)
