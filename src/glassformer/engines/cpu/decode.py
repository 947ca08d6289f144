"""The kernel of `layers.Stack.read_blocks`: one more token of a few sequences, through all blocks in one call.

Generation takes this way where it can, which is most of the time: a decoder with norms before its sublayers, float32 or
quantized matrices that lie as (outputs, inputs), and positions that are learned or rotated. Everything else is read by
the blocks as written. Python would take longer to name all these steps than the processor to take them.
"""

from collections.abc import Iterator
from itertools import chain
from operator import is_
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numba import carray

from ...core.arrays import Array, Tree
from ...core.dispatch import replaces
from ...core.errors import ConfigError, ShapeError
from ...core.tree import flatten
from ...layers import Cache, FeedForward, KeyValues, RMSNorm, Stack
from .. import is_readable
from .compile import call, compiled, is_array
from .cores import on_all_cores, pointer_to, share_out
from .elementwise import LOOPS, activation_address
from .linear import MOST_ROWS_OF, described, multiply, workspace
from .parts import MIX, PADDED, SIZE, MixJob
from .rowwise import inverse_root
from .simd import bits_of_float, floats_pointer

_PARTS = ("query", "key", "value", "output")
_VECTORS = (*_PARTS, "up", "gate", "down")
_FLOAT = np.dtype(np.float32)
_NOTHING: Array = np.zeros((0, 1), _FLOAT)
MOST_SEQUENCES = min(MOST_ROWS_OF.values())


@replaces(Stack.read_blocks)
def read_blocks(self: Stack, params: Tree, x: Array, cache: Cache, rotation: tuple[Array, Array] | None) -> Any:
    if type(x) is not np.ndarray or x.ndim < 2 or x.dtype != _FLOAT or x.shape[-2] != 1:
        return NotImplemented
    if not 0 < x.size <= MOST_SEQUENCES * x.shape[-1] or type(cache) is not Cache:
        return NotImplemented
    plan = _plans.get(cache)
    if plan is None or not plan.is_about(self, params["blocks"]):
        if not is_readable(self, LOOPS):
            return NotImplemented
        plan = _plans[cache] = Plan(self, params["blocks"])
    if x.shape[-1] != plan.sizes.width or plan.tables is None or not plan.fits(cache, x.shape[:-2], rotation):
        return NotImplemented
    mask = None if cache.mask is None else np.ascontiguousarray(cache.key_mask(1), bool)
    if mask is not None and (mask.shape != (*x.shape[:-1], cache.columns(1).size) or not mask.any(axis=-1).all()):
        return NotImplemented
    cos, sin = (_NOTHING, _NOTHING) if rotation is None else (np.ascontiguousarray(y, _FLOAT) for y in rotation)
    angles = cos.reshape(-1, cos.shape[-1]), sin.reshape(-1, cos.shape[-1])
    y = x.reshape(-1, x.shape[-1]).copy()
    if not plan.lock.acquire(blocking=False):
        raise ConfigError("this cache is being read in another thread", hint="give every thread a cache of its own")
    try:
        tables, sizes = plan.reserve(cache, x.shape[:-2])
        sizes = sizes._replace(mask=_address(mask))
        on_all_cores(_read_token, y, tables, sizes, angles, self.block.norm.eps, plan.scale, size=plan.size)
        for kept in cache.blocks:
            kept.attention.seen += 1
    finally:
        plan.lock.release()
    return y.reshape(x.shape)


class Sizes(NamedTuple):
    width: int
    heads: int
    key_heads: int
    channels: int
    hidden: int
    activation: int  # the address of its code
    interleaved: int  # the channels that rotate together are neighbors
    rms: int
    capacity: int = 0  # keys that the memory of a block has room for ...
    slot: int = 0  # ... where the new one goes ...
    looked_at: int = 0  # ... and how many of the first count
    mask: int = 0  # the address of which of them are real, for each sequence; 0: all are


class Tables(NamedTuple):
    """Where everything lies, one row for each block: addresses, 0 for what is not there, matrices as `described`."""

    norms: np.ndarray  # (L, 4): scale and shift before attention, scale and shift before the feed-forward layer
    biases: np.ndarray  # (L, 7) of `_VECTORS`
    keys: np.ndarray  # (L, 2): keys (N, K, capacity, C) and values
    inward: np.ndarray  # (L, 3, 4): query, key and value
    output: np.ndarray  # (L, 1, 4)
    widening: np.ndarray  # (L, 1, 4) up, or (L, 2, 4) up and gate
    narrowing: np.ndarray  # (L, 1, 4) down


class Plan:
    """Where the parameters of all blocks and what they remember lie; `tables` is None if the loops cannot read it."""

    def __init__(self, stack: Stack, blocks: list[Tree]) -> None:
        block = stack.block
        attention, feed_forward = block.attention, block.feed_forward
        self.stack = stack
        self.blocks, self.dicts = blocks, _dicts(blocks)
        self.contents = list(self.listed())  # stay alive, because the addresses of arrays are in the tables
        self.scale = attention.channels**-0.5 if attention.scale is None else attention.scale
        sizes = attention.width, attention.heads, attention.key_heads, attention.channels, feed_forward.hidden
        activation = activation_address(feed_forward.activation, _FLOAT)
        interleaved = int(attention.pairing == "interleaved")
        self.sizes = Sizes(*sizes, activation, interleaved, rms=int(type(block.norm) is RMSNorm))
        # The loops read where the shapes say they should: shapes are never taken on trust.
        wanted = _shapes(block.specs())
        known = len(blocks) == stack.layers and all(_shapes(params) == wanted for params in blocks)
        self.tables: Any = _tables(blocks, feed_forward) if known else None
        self.size = sum(leaf.nbytes for params in blocks for leaf in flatten(params).values()) if known else 0
        self.lock = Lock()  # what is noted here holds for one token at a time
        self.buffers: list[Array] = []  # keys and values of all blocks, when their addresses were last looked up

    def listed(self) -> Iterator[Any]:
        """Go through all that stands in the list of blocks and in its dicts, in order."""
        return chain(self.blocks, chain.from_iterable(map(dict.values, self.dicts)), (_NOTHING,))

    def is_about(self, stack: Stack, blocks: list[Tree]) -> bool:
        """Return whether every parameter still is the one whose address was noted."""
        return stack is self.stack and blocks is self.blocks and all(map(is_, self.listed(), self.contents))

    def fits(self, cache: Cache, lead: tuple[int, ...], rotation: tuple[Array, Array] | None) -> bool:
        """Return whether each token has one position, and the cache float32 keys of all sequences, or none yet."""
        half = self.sizes.channels // 2
        if rotation is not None and any(y.size != half and y.shape != (*lead, 1, 1, half) for y in rotation):
            return False
        kept, heads = [block.attention for block in cache.blocks], (*lead, self.sizes.key_heads)
        if len(kept) != self.stack.layers:
            return False
        first, buffers = kept[0], [x for keys in kept for x in (keys.k, keys.v)]
        if self.buffers and all(map(is_, buffers, self.buffers)):
            return first.k.shape[:-2] == heads
        self.buffers = []
        if any(type(keys) is not KeyValues or (keys.seen, keys.window) != (first.seen, first.window) for keys in kept):
            return False
        if first.k is None:
            return all(x is None for x in buffers)
        shape = *heads, first.k.shape[-2], self.sizes.channels
        fitting = (type(x) is np.ndarray and x.dtype == _FLOAT and x.shape == shape for x in buffers)
        return all(fitting) and all(x.flags.writeable for x in buffers)

    def reserve(self, cache: Cache, lead: tuple[int, ...]) -> tuple[Any, Any]:
        """Reserve memory for one more token in all blocks; return the tables and the sizes."""
        first = cache.blocks[0].attention
        shape = (*lead, self.sizes.key_heads, 1, self.sizes.channels)
        slot = first.reserve(shape, _FLOAT)
        if not self.buffers or first.k is not self.buffers[0]:  # the others' have changed with it
            self.buffers = []
            for row, block in zip(self.tables.keys, cache.blocks, strict=True):
                kept = block.attention
                kept.reserve(shape, _FLOAT)
                kept.k, kept.v = np.ascontiguousarray(kept.k), np.ascontiguousarray(kept.v)
                row[:] = _address(kept.k), _address(kept.v)
                self.buffers += kept.k, kept.v
        looked_at = first.seen + 1 if first.window is None else min(first.seen + 1, first.window)
        capacity = first.k.shape[-2]
        if not 0 <= slot < looked_at <= capacity:
            raise ShapeError(
                f"the cache has room for {capacity} keys and is said to hold {first.seen}, window {first.window}",
                hint="leave `seen` and `window` to the cache, or start a new one",
            )
        return self.tables, self.sizes._replace(capacity=capacity, slot=slot, looked_at=looked_at)


_plans: WeakKeyDictionary[Cache, Plan] = WeakKeyDictionary()


def _dicts(blocks: list[Tree]) -> list[dict[str, Any]]:
    dicts = [block for block in blocks if isinstance(block, dict)]
    for outer in dicts:  # grows while it is gone through
        dicts += [inner for inner in outer.values() if isinstance(inner, dict)]
    return dicts


def _shapes(tree: Tree) -> dict[str, tuple[int, ...]]:
    return {name: tuple(leaf.shape) for name, leaf in flatten(tree).items()}


def _tables(blocks: list[Tree], feed_forward: FeedForward) -> Any:
    """Gather the addresses of all parameters; None where some array is not laid out as the loops read it."""
    widening = ("up", "gate") if feed_forward.gated else ("up",)
    rows: list[Any] = []
    for params in blocks:
        parts = {**params["attention"], **params["feed_forward"]}
        before = params["attention_norm"], params["feed_forward_norm"]
        norms = [norm.get(name) for norm in before for name in ("gamma", "beta")]
        biases = [parts.get(name, {}).get("b") for name in _VECTORS]
        groups = _PARTS[:3], _PARTS[3:], widening, ("down",)
        matrices = [[described(parts[name]["w"]) for name in names] for names in groups]
        vectors = [x for x in (*norms, *biases) if x is not None]
        if any(None in group for group in matrices) or not all(is_array(x, _FLOAT, x.shape) for x in vectors):
            return None
        rows.append([[_address(x) for x in norms], [_address(x) for x in biases], [0, 0], *matrices])
    return Tables(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))


def _address(array: Array | None) -> int:
    return 0 if array is None else array.__array_interface__["data"][0]


@compiled
def _read_token(x, tables, sizes, rotation, eps, scale, queue):
    """Turn vectors x (N, D) of tokens into what the last block makes of them, in place; remember their keys.

    rotation    cosines and sines by which heads are rotated: (N, C/2), or (1, C/2) for all, or none
    """
    N, f = len(x), np.float32
    h, inner = np.empty((N, sizes.width), f), np.empty((N, sizes.hidden), f)
    mixed = np.empty((N, sizes.heads * sizes.channels), f)
    # One for each width that is multiplied. They are made here once, and stay until the last block is done.
    work = workspace(N, sizes.width), workspace(N, sizes.heads * sizes.channels), workspace(N, sizes.hidden)
    for layer in range(len(tables.norms)):
        norms, biases = tables.norms[layer], tables.biases[layer]
        _normalize(x, norms[0], norms[1], eps, sizes.rms, h)
        _attend_to_all(h, tables, layer, sizes, rotation, scale, mixed, work[0], queue)
        _add_product(mixed, tables.output[layer], biases[3], x, work[1], queue)
        _normalize(x, norms[2], norms[3], eps, sizes.rms, h)
        _widen(h, tables.widening[layer], biases[4], biases[5], sizes, inner, work[0], queue)
        _add_product(inner, tables.narrowing[layer], biases[6], x, work[2], queue)


@compiled
def _normalize(x, gamma, beta, eps, rms, y):
    f, D = np.float32, x.shape[1]
    scales = carray(floats_pointer(gamma), (D,))
    for n in range(len(x)):
        mean, square = f(0), f(0)
        if rms == 0:
            for i in range(D):
                mean += x[n, i]
            mean /= f(D)
        for i in range(D):
            square += (x[n, i] - mean) * (x[n, i] - mean)
        rstd = inverse_root(square / f(D) + f(eps), f)
        for i in range(D):
            y[n, i] = (x[n, i] - mean) * rstd * scales[i]
        _add_vector(beta, y[n])


@compiled
def _add_vector(address, y):
    if address != 0:
        b = carray(floats_pointer(address), (y.size,))
        for i in range(y.size):
            y[i] += b[i]


@compiled
def _add_product(h, matrix, bias, x, work, queue):
    padded = matrix[0, PADDED]
    y = np.empty(len(x) * padded, np.float32)
    multiply(h, matrix, y, work, queue)
    for n in range(len(x)):
        for i in range(x.shape[1]):
            x[n, i] += y[n * padded + i]
        _add_vector(bias, x[n])


@compiled
def _widen(h, matrices, up_bias, gate_bias, sizes, inner, work, queue):
    """Write act(h up), or act(h gate) · h up where there is a gate."""
    width, last = matrices[0, PADDED], matrices[-1, PADDED]
    start = len(h) * width if len(matrices) == 2 else 0
    y = np.empty(start + len(h) * last, np.float32)  # no sum(): to load its code, Numba would import SciPy
    multiply(h, matrices, y, work, queue)
    for n in range(len(h)):
        up, gate = y[n * width :][: sizes.hidden], y[start + n * last :][: sizes.hidden]
        _add_vector(up_bias, up)
        if len(matrices) == 2:
            _add_vector(gate_bias, gate)
        call(sizes.activation, (gate, inner[n]))
        if len(matrices) == 2:
            for i in range(sizes.hidden):
                inner[n, i] *= up[i]


@compiled
def _attend_to_all(h, tables, layer, sizes, rotation, scale, mixed, work, queue):
    """Write what the heads gather for the tokens h, side by side, into mixed; their keys and values join the others."""
    N, H, K, C = len(h), sizes.heads, sizes.key_heads, sizes.channels
    matrices, biases, cos, sin = tables.inward[layer], tables.biases[layer], rotation[0], rotation[1]
    widths = matrices[0, PADDED], matrices[1, PADDED], matrices[2, PADDED]
    key_start, value_start = N * widths[0], N * (widths[0] + widths[1])
    y = np.empty(value_start + N * widths[2], np.float32)
    multiply(h, matrices, y, work, queue)
    keys = carray(floats_pointer(tables.keys[layer, 0]), (N, K, sizes.capacity, C))
    values = carray(floats_pointer(tables.keys[layer, 1]), (N, K, sizes.capacity, C))
    for n in range(N):
        q = y[n * widths[0] :][: H * C]
        k, v = y[key_start + n * widths[1] :][: K * C], y[value_start + n * widths[2] :][: K * C]
        _add_vector(biases[0], q)
        _add_vector(biases[1], k)
        _add_vector(biases[2], v)
        if cos.size:
            position = min(n, len(cos) - 1)
            _rotate(q, cos[position], sin[position], sizes.interleaved)
            _rotate(k, cos[position], sin[position], sizes.interleaved)
        for head in range(K):
            for c in range(C):
                keys[n, head, sizes.slot, c] = k[head * C + c]
                values[n, head, sizes.slot, c] = v[head * C + c]
    parts = max(1, min(N * H, 8 * N * H * C * sizes.looked_at // SIZE))
    job = MixJob(
        queries=pointer_to(y), mixed=pointer_to(mixed), keys=tables.keys[layer, 0], values=tables.keys[layer, 1],
        head_bytes=sizes.capacity * C * 4, served=H // K, H=H, C=C, key_count=sizes.looked_at,
        scale=bits_of_float(np.float32(scale)), N=N, row=widths[0], mask=sizes.mask, parts=parts,
    )  # fmt: skip
    share_out(queue, MIX, job, parts)
    return y  # which must live until all parts are done


@compiled
def _rotate(x, cos, sin, interleaved):
    """Rotate the pairs of channels of heads that stand side by side, as `ops.rotary` does."""
    half = cos.size
    apart, step = (1, 2) if interleaved else (half, 1)
    for first in range(0, x.size, 2 * half):
        for i in range(half):
            at = first + step * i
            a, b = x[at], x[at + apart]
            x[at] = a * cos[i] - b * sin[i]
            x[at + apart] = b * cos[i] + a * sin[i]
