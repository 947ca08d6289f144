"""Kernels of a GPU for all blocks that read one more token of a single sequence.

A single token is too little work for a GPU: launching kernels takes longer than reading all weights. XLA makes dozens
of a block; here it is one for each time that all of a vector must be known before work can go on:

    q, k, v = norm(x) query, norm(x) key, norm(x) value
    x       = x + attention(q, keys and k, values and v) output     which also remembers k and v
    h       = norm(x) up                                            gated: norm(x) gate as well
    x       = x + act(h) down                                       gated: act(norm(x) gate) · h

A matrix is read by many programs at once, each of which has some of its columns and a part of its rows. So a product
is left in parts, one for each part of the rows, and the kernel that reads it next adds them up. Each program computes
for itself what it multiplies, be it the norm of x or what a head mixes: to launch one more kernel would take longer.
"""

from collections.abc import Callable, Sequence
from functools import partial
from inspect import unwrap
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from ... import ops
from ...core.arrays import Array, Tree
from ...core.dispatch import replaces
from ...layers import Attention, Block, Cache, LayerNorm, Stack
from .. import is_readable
from .cached_attention import attend, cache_arrays, can_attend, heads_of
from .fused import launched, load, on_one_gpu, pallas_and_triton, store
from .programs import FixedCache

_ACTIVATIONS = ("gelu_tanh", "relu", "silu")
_WIDEST = 8192  # numbers of x that a program adds up at once
_ROWS, _COLUMNS = 512, 64  # of a matrix that a program reads at a time
_PROGRAMS = 96  # of a product at least: most of what a GPU runs at once
_WARPS = 8  # groups of 32 threads that a program has


class Stream(NamedTuple):
    """The vector x (D,) of a token and what is still to be added to it, in parts (P, D), when it is read next."""

    x: Array
    parts: Array | None


@replaces(Stack.read_blocks)
def read_blocks(self: Stack, params: Tree, x: Array, cache: Cache, rotation: tuple[Array, Array] | None) -> Array:
    if type(cache) is not FixedCache or x.size != x.shape[-1] or x.size > _WIDEST or x.dtype.itemsize > 4:
        return NotImplemented
    if not is_readable(self, _ACTIVATIONS) or not can_attend(self.block.attention) or not on_one_gpu():
        return NotImplemented
    stream = Stream(x.reshape(-1), None)
    for block_params, kept in zip(params["blocks"], cache.blocks, strict=True):
        stream = read_block(self.block, block_params, stream, kept.attention, cache.padding, rotation)
    assert stream.parts is not None
    return (stream.x + stream.parts.sum(axis=0)).astype(x.dtype).reshape(x.shape)


def read_block(block: Block, params: Tree, stream: Stream, kept: Any, padding: Array, rotation: Any) -> Stream:
    """Run one block on the stream of one token."""
    layers, attention = {**params["attention"], **params["feed_forward"]}, block.attention
    normed = block.norm, params["attention_norm"]
    # Those with as many columns go in one kernel.
    groups = (("query", "key", "value"),) if attention.key_heads == attention.heads else (("query",), ("key", "value"))
    heads: list[Array] = []
    for names in groups:
        stream, products = projected(stream, [layers[name] for name in names], normed)
        heads += products
    stream = Stream(stream.x, attended_output(attention, kept, heads, layers["output"], padding, rotation))
    normed = block.norm, params["feed_forward_norm"]
    inward = ("gate", "up") if block.feed_forward.gated else ("up",)
    stream, h = projected(stream, [layers[name] for name in inward], normed)
    return Stream(stream.x, activated_product(h, block.feed_forward.activation, layers["down"], stream.x.dtype))


# --- products --------------------------------------------------------------------------------------------------------


class Tiling(NamedTuple):
    """The division of a matrix (depth, width) among programs: some columns of one part of its rows each."""

    depth: int
    width: int
    parts: int

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.width // _COLUMNS), self.parts

    @property
    def product(self) -> jax.ShapeDtypeStruct:
        """The parts (P, F) whose sum is the product of a vector and the matrix."""
        return jax.ShapeDtypeStruct((self.parts, self.width), np.float32)


def tiling_of(matrix: Tree, beside: int = 1) -> Tiling:
    """Return a tiling that keeps a GPU busy; `beside`: how many matrices of this shape are multiplied at a time."""
    depth, width = matrix["w"].shape
    programs = beside * -(-width // _COLUMNS)
    return Tiling(depth, width, pallas_and_triton()[0].next_power_of_2(-(-_PROGRAMS // programs)))


class Tile:
    """The columns and rows of a matrix that one program multiplies."""

    def __init__(self, tiling: Tiling) -> None:
        pallas, _ = pallas_and_triton()
        self.strip, self.part = pallas.program_id(0), pallas.program_id(1)
        each = pallas.cdiv(tiling.depth, tiling.parts)
        run = min(_ROWS, pallas.next_power_of_2(each))
        self.columns = self.strip * _COLUMNS + jnp.arange(_COLUMNS, dtype=np.int32)
        self.inside = self.columns < tiling.width
        last = jnp.minimum((self.part + 1) * each, tiling.depth)
        rows = [self.part * each + start + jnp.arange(run, dtype=np.int32) for start in range(0, each, run)]
        self.rows = [(numbers, numbers < last) for numbers in rows]

    def load(self, w: Any) -> list[Array]:
        """Start to load the tile of a matrix; the program waits for it only when it multiplies."""
        load = pallas_and_triton()[1].load
        masks = [inside[:, None] & self.inside[None, :] for _, inside in self.rows]
        return [
            load(w.at[indices[:, None], self.columns[None, :]], mask=mask, other=0.0)
            for (indices, _), mask in zip(self.rows, masks, strict=True)
        ]

    def multiply(self, vector: Callable[[Array, Array], Array], loaded: list[Array], b: Any, out: Any) -> None:
        """Write the product of a vector, read by its rows and the mask of those inside, and the loaded tile."""
        y = jnp.zeros(_COLUMNS, np.float32)
        for (rows, inside), w in zip(self.rows, loaded, strict=True):
            y += (vector(rows, inside)[:, None] * w.astype(jnp.float32)).sum(axis=0)
        if b is not None:
            y += jnp.where(self.part == 0, load(b, self.columns, inside=self.inside), 0.0)
        store(out, self.part, self.columns, inside=self.inside, value=y)


def projected(stream: Stream, matrices: Sequence[Tree], norm: tuple[Any, Tree]) -> tuple[Stream, list[Array]]:
    """Return the stream, its parts added up, and the products of norm(x) and matrices with their biases, in parts."""
    pallas, _ = pallas_and_triton()
    tiling, width = tiling_of(matrices[0], len(matrices)), stream.x.size
    inputs = _inputs({"x": stream.x, "parts": stream.parts, **norm[1]}, matrices)

    def kernel(*refs: Any) -> None:
        read, (summed, *write) = dict(zip(inputs, refs, strict=False)), refs[len(inputs) :]
        tile, turn = Tile(tiling), pallas.program_id(2)

        def multiply(number: int) -> None:
            loaded = tile.load(read[f"w{number}"])
            every = jnp.arange(pallas.next_power_of_2(width), dtype=np.int32)
            inside = every < width
            x = _added(read, every, inside)
            scaled = _norm_of(norm[0], read, x, inside, width)
            tile.multiply(scaled, loaded, read.get(f"b{number}"), write[number])

            @pallas.when((tile.strip == 0) & (tile.part == 0) & (turn == 0))
            def _() -> None:
                store(summed, every, inside=inside, value=x)

        for number in range(len(matrices)):
            pallas.when(turn == number)(partial(multiply, number))

    shapes = [jax.ShapeDtypeStruct((width,), stream.x.dtype), *[tiling.product] * len(matrices)]
    run = launched(kernel, "projected", shapes, (*tiling.grid, len(matrices)), warps=_WARPS)
    x, *products = run(*inputs.values())
    return Stream(x, None), products


def attended_output(
    attention: Attention, kept: Any, products: list[Array], matrix: Tree, padding: Array, rotation: Any
) -> Array:
    """Return the product of what the heads mix for one token and a matrix, a part for each head; remember the token.

    products    the query, the key and the value, in parts (P, H·C) and (P, K·C)
    """
    heads, dtype = heads_of(attention, kept, 1), kept.k.dtype
    depth, width = matrix["w"].shape
    tiling = Tiling(depth, width, attention.heads)
    named = dict(zip(("query", "key", "value"), products, strict=True))
    inputs = _inputs(named, [matrix]) | {"padding": padding} | cache_arrays(kept, None, rotation)

    def kernel(*refs: Any) -> None:
        read, tile = dict(zip((*inputs, "parts", "keys", "values"), refs, strict=True)), Tile(tiling)
        loaded, head = tile.load(read["w0"]), tile.part

        def vector(name: str, head: Any, channel: Array) -> Array:
            return _rounded(_sum(read[name], head * heads.channels + channel, channel >= 0), dtype)

        remembers = (tile.strip == 0) & (head % heads.shared == 0)
        (mixed,) = attend(heads, read, 0, head // heads.shared, [head], vector, remembers)
        tile.multiply(lambda *_: _rounded(mixed, dtype), loaded, read.get("b0"), read["parts"])

    shapes = [tiling.product, *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (kept.k, kept.v))]
    aliases = {len(inputs) - 2: 1, len(inputs) - 1: 2}
    run = launched(kernel, "attended_output", shapes, tiling.grid, warps=_WARPS, input_output_aliases=aliases)
    parts, kept.k, kept.v = run(*inputs.values())
    kept.seen = kept.seen + 1
    return parts


def activated_product(h: list[Array], activation: str, matrix: Tree, dtype: Any) -> Array:
    """Return the product of act(h) and a matrix in parts; with two vectors h, of act(the first) · the second."""
    tiling, act = tiling_of(matrix), unwrap(ops.activation_pair(activation)[0])
    inputs = _inputs({f"h{number}": parts for number, parts in enumerate(h)}, [matrix])

    def kernel(*refs: Any) -> None:
        read, out = dict(zip(inputs, refs, strict=False)), refs[-1]
        tile = Tile(tiling)
        loaded = tile.load(read["w0"])

        def vector(*indices: Array) -> Array:
            first, *others = (_rounded(_sum(read[f"h{number}"], *indices), dtype) for number in range(len(h)))
            y = act(first)[0]
            return y * others[0] if others else y

        tile.multiply(vector, loaded, read.get("b0"), out)

    return launched(kernel, "activated_product", tiling.product, tiling.grid, warps=_WARPS)(*inputs.values())


def _inputs(arrays: dict[str, Array | None], matrices: Sequence[Tree]) -> dict[str, Array]:
    """Return what a kernel reads, by name: w0, b0, w1, … of the matrices."""
    numbered = {f"{name}{number}": matrix.get(name) for number, matrix in enumerate(matrices) for name in ("w", "b")}
    return {name: array for name, array in {**arrays, **numbered}.items() if array is not None}


def _sum(parts: Any, indices: Array, inside: Array) -> Array:
    return sum(load(parts, number, indices, inside=inside) for number in range(parts.shape[0]))


def _rounded(x: Array, dtype: Any) -> Array:
    """Round as an op of this type rounds its result."""
    return x.astype(dtype).astype(np.float32)


def _added(read: dict[str, Any], indices: Array, inside: Array) -> Array:
    """Return x with its parts added, rounded as the ops round."""
    x, dtype = load(read["x"], indices, inside=inside), read["x"].dtype
    return _rounded(x + _rounded(_sum(read["parts"], indices, inside), dtype), dtype) if "parts" in read else x


def _norm_of(norm: Any, read: dict[str, Any], x: Array, inside: Array, width: int) -> Callable[[Array, Array], Array]:
    """Return a function that reads norm(x), given all of x."""
    mean = x.sum() / width if type(norm) is LayerNorm else 0.0
    away = jnp.where(inside, x - mean, 0.0)
    scale = 1 / jnp.sqrt((away * away).sum() / width + norm.eps)

    def scaled(indices: Array, inside: Array) -> Array:
        y = (_added(read, indices, inside) - mean) * scale * load(read["gamma"], indices, inside=inside)
        return y + load(read["beta"], indices, inside=inside) if "beta" in read else y

    return scaled
