"""Kernels of a GPU for attention to a cache: of a prompt, and of one more token of each sequence."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from ...core.arrays import Array, Tree
from ...core.dispatch import replaces
from ...layers import Attention
from .fused import launched, load, on_one_gpu, pallas_and_triton, store
from .programs import FixedKeyValues

_KEYS = 256  # that a program reads at a time
_TOKENS = 64  # of a prompt that a program reads at a time, and as many keys
_FEWEST, _MOST = 16, 256  # channels of a head: Triton multiplies no smaller matrices


@replaces(Attention.attend_from)
def attend_from(
    self: Attention, cache: Any, q: Array, k: Array, v: Array, bias: Array | None, mask: Array | None
) -> tuple[Array, Tree]:
    if type(cache) is not FixedKeyValues or bias is not None or q.ndim != 4 or q.dtype.itemsize > 4:
        return NotImplemented
    if not can_attend(self) or not on_one_gpu() or (mask is not None and (mask.ndim != 3 or mask.shape[1] != 1)):
        return NotImplemented
    mask = None if mask is None else mask[:, 0]
    if q.shape[-2] == 1:
        return attended(self, cache, q, k, v, mask), None
    cache.append(k, v)
    return attended_prompt(self, cache, q, mask), None


def can_attend(attention: Attention) -> bool:
    """Return whether the kernels compute all that an attention layer does."""
    pattern, channels = attention.pattern, attention.channels
    is_power = channels & (channels - 1) == 0 and _FEWEST <= channels <= _MOST
    return pattern.causal and not pattern.prefix and pattern.stride is None and is_power


def attended(self: Attention, kept: Any, q: Array, k: Array, v: Array, mask: Array | None) -> Array:
    """Return what the heads mix for one token of each sequence, (B, H, 1, C), and remember its keys and values.

    q (B, H, 1, C) and k, v (B, K, 1, C) are turned already; mask (B, S) marks real tokens.
    """
    pallas, _ = pallas_and_triton()
    heads = heads_of(self, kept, len(q))
    inputs = {"query": q, "key": k, "value": v, **cache_arrays(kept, mask, None)}

    def kernel(*refs: Any) -> None:
        read, row = dict(zip((*inputs, "y", "keys", "values"), refs, strict=True)), pallas.program_id(0)
        key_head = pallas.program_id(1)

        def vector(name: str, head: Any, channel: Array) -> Array:
            return load(read[name], row, head, 0, channel, inside=channel >= 0)

        query_heads = [key_head * heads.shared + number for number in range(heads.shared)]
        for head, mixed in zip(query_heads, attend(heads, read, row, key_head, query_heads, vector, True), strict=True):
            every = jnp.arange(heads.channels, dtype=np.int32)
            store(read["y"], row, head, 0, every, inside=every >= 0, value=mixed)

    shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, kept.k, kept.v)]
    aliases = {len(inputs) - 2: 1, len(inputs) - 1: 2}
    warps = 8 if len(q) == 1 else 2
    run = launched(kernel, "attended", shapes, (len(q), heads.keys), warps=warps, input_output_aliases=aliases)
    y, kept.k, kept.v = run(*inputs.values())
    kept.seen = kept.seen + 1
    return y


def attended_prompt(self: Attention, kept: Any, q: Array, mask: Array | None) -> Array:
    """Return what the heads mix for the last tokens that a cache has seen, (B, H, T, C); mask (B, S): the real ones."""
    pallas, _ = pallas_and_triton()
    heads, length = heads_of(self, kept, len(q)), q.shape[-2]
    run = min(_TOKENS, max(_FEWEST, pallas.next_power_of_2(length)))
    # The heads stand last where q is made and where y is read.
    inputs = {"query": q.swapaxes(1, 2), **cache_arrays(kept, mask, None)}
    shape = jax.ShapeDtypeStruct(inputs["query"].shape, q.dtype)

    def kernel(*refs: Any) -> None:
        _attend_all(heads, dict(zip((*inputs, "y"), refs, strict=True)), length, run)

    grid = pallas.cdiv(length, run), self.heads, len(q)
    return launched(kernel, "attended_prompt", shape, grid, warps=4)(*inputs.values()).swapaxes(1, 2)


def _attend_all(heads: "Heads", read: dict[str, Any], length: int, run: int) -> None:
    """Attend in one head of a sequence, from a run of its last tokens, to one run of keys after the other."""
    pallas, triton = pallas_and_triton()
    multiply = partial(jax.lax.dot_general, precision="highest", preferred_element_type=np.float32)
    block, head, row = (pallas.program_id(axis) for axis in range(3))
    numbers, channel = (jnp.arange(size, dtype=np.int32) for size in (run, heads.channels))
    tokens, before = block * run + numbers, read["seen"][0] - length
    positions, last = before + tokens, before + jnp.minimum((block + 1) * run, length)
    inside = (tokens < length)[:, None] & (channel >= 0)[None, :]
    index = row, tokens[:, None], head, channel[None, :]
    query = triton.load(read["query"].at[index], mask=inside, other=0.0)

    def look(number: Any, sums: Any) -> Any:
        largest, total, mixed = sums
        columns = number * run + numbers
        there = (columns < last)[:, None] & (channel >= 0)[None, :]
        at = row, head // heads.shared, columns[:, None], channel[None, :]
        keys, values = (triton.load(read[name].at[at], mask=there, other=0.0) for name in ("keys", "values"))
        allowed = columns[None, :] <= positions[:, None]
        if heads.window is not None:
            allowed &= columns[None, :] > positions[:, None] - heads.window
        if "mask" in read:
            allowed &= (load(read["mask"], row, columns, inside=columns < last) != 0)[None, :]
        scores = jnp.where(allowed, multiply(query, keys, (((1,), (1,)), ((), ()))) * heads.scale, -np.inf)
        larger = jnp.maximum(largest, scores.max(axis=1))
        top = jnp.where(larger == -np.inf, 0.0, larger)  # padding sees nothing
        shares, faded = jnp.exp(scores - top[:, None]), jnp.exp(largest - top)
        more = multiply(shares.astype(values.dtype), values, (((1,), (0,)), ((), ())))
        return larger, total * faded + shares.sum(axis=1), mixed * faded[:, None] + more

    nothing = jnp.full(run, -np.inf, np.float32), jnp.zeros(run, np.float32)
    first = last * 0 if heads.window is None else jnp.maximum(before + block * run - heads.window + 1, 0) // run
    sums = *nothing, jnp.zeros((run, heads.channels), np.float32)
    _, total, mixed = jax.lax.fori_loop(first, (last + run - 1) // run, look, sums)
    mixed /= jnp.maximum(total, np.finfo(np.float32).tiny)[:, None]
    store(read["y"], *index, inside=inside, value=mixed)


def cache_arrays(kept: Any, mask: Array | None, rotation: Any) -> dict[str, Array]:
    """Return the arrays of a cache that a kernel reads, keys and values last, and the rotation of one position."""
    tables = {} if rotation is None else dict(zip(("cos", "sin"), rotation, strict=True))
    inputs = {"seen": kept.seen.reshape(1)} | {name: x.reshape(-1).astype(np.float32) for name, x in tables.items()}
    if mask is not None:
        batch, _, capacity, _ = kept.k.shape
        inputs["mask"] = jnp.broadcast_to(mask, (batch, capacity)).astype(np.int32)
    return {**inputs, "keys": kept.k, "values": kept.v}


def heads_of(attention: Attention, kept: Any, batch: int) -> "Heads":
    channels, (_, count, capacity, _) = attention.channels, kept.k.shape
    return Heads(
        keys=count,
        shared=attention.heads // count,
        channels=channels,
        is_halved=attention.pairing == "halves",
        scale=channels**-0.5 if attention.scale is None else attention.scale,
        window=attention.pattern.window,
        run=min(_KEYS if batch == 1 else _KEYS // 2, pallas_and_triton()[0].next_power_of_2(capacity)),
    )


class Heads(NamedTuple):
    """The settings of attention that kernels are compiled for."""

    keys: int  # how many heads have keys of their own
    shared: int  # heads that share a key
    channels: int
    is_halved: bool  # whether channel i turns with i + C/2; else with its neighbor
    scale: float
    window: int | None
    run: int  # keys that are read at a time

    @property
    def pairs(self) -> list[Array]:
        """The channels of a head as two halves, which are turned in pairs."""
        pair = jnp.arange(self.channels // 2, dtype=np.int32)
        return [pair, pair + self.channels // 2] if self.is_halved else [2 * pair, 2 * pair + 1]


def attend(
    heads: Heads, read: dict[str, Any], row: Any, key_head: Any, query_heads: Sequence[Any], vector: Any, remembers: Any
) -> list[Array]:
    """Return what some heads of one sequence mix, which share a key, of all it has seen and of the new token itself.

    vector       reads channels of a head's query, key or value: vector(name, head, channels)
    remembers    whether to write down the key and the value of the new token
    """
    every, seen = jnp.arange(heads.channels, dtype=np.int32), read["seen"][0]
    queries = [_turned(heads, read, vector, "query", head) for head in query_heads]
    key, value = _turned(heads, read, vector, "key", key_head), vector("value", key_head, every)
    fits = (seen < read["keys"].shape[2]) & remembers
    for part, half in zip(heads.pairs, key, strict=True):
        store(read["keys"], row, key_head, seen, part, inside=(part >= 0) & fits, value=half)
    store(read["values"], row, key_head, seen, every, inside=(every >= 0) & fits, value=value)
    # The token sees itself, whatever else it sees.
    start = tuple(((a * key[0] + b * key[1]).sum() * heads.scale, jnp.float32(1), value) for a, b in queries)
    first = seen * 0 if heads.window is None else jnp.maximum(seen - heads.window + 1, 0) // heads.run

    def look(block: Any, sums: Any) -> Any:
        return _look(heads, read, (row, key_head), block * heads.run, queries, sums)

    sums = jax.lax.fori_loop(first, (seen + heads.run - 1) // heads.run, look, start)
    return [mixed / total for _, total, mixed in sums]


def _turned(heads: Heads, read: dict[str, Any], vector: Any, name: str, head: Any) -> tuple[Array, Array]:
    """Return the two halves of a query or a key, turned and rounded as the op rounds them."""
    a, b = (vector(name, head, part) for part in heads.pairs)
    if "cos" in read:
        cos, sin = read["cos"][...], read["sin"][...]
        a, b = a * cos - b * sin, a * sin + b * cos
    dtype = read["keys"].dtype
    return a.astype(dtype).astype(np.float32), b.astype(dtype).astype(np.float32)


def _look(heads: Heads, read: dict[str, Any], index: Any, start: Any, queries: Any, sums: Any) -> Any:
    """Go on with the largest score, the sum of weights and the weighted values of each head over one run of keys."""
    row, head = index
    seen, every = read["seen"][0], jnp.arange(heads.channels, dtype=np.int32)
    slots = start + jnp.arange(heads.run, dtype=np.int32)
    inside = slots < seen
    if heads.window is not None:
        inside &= slots > seen - heads.window
    if "padding" in read:
        inside &= slots >= read["padding"][row]
    if "mask" in read:
        inside &= load(read["mask"], row, slots, inside=inside) != 0
    spots, across = inside[:, None], slots[:, None]
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
