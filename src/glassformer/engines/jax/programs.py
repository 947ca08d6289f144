"""The programs of generation under JAX: each is compiled once for each size of batch, prompt and cache.

    remember   read the sources, once
    begin      make buffers for keys and values, and read the prompts, if they are short
    prefill    read a part of long prompts
    step       read one more token of each sequence; return the logits of what follows
    write      read and choose one token after the other without coming back to the host
    take       keep some of the sequences

The mathematics is that of `model.read`, traced with a cache of fixed size: how far its buffers are filled is a number
that the program reads, and what is not filled yet is masked, as is the padding before short prompts. A program uses up
the state that it is given, so that keys and values are written in place.

Tokens are chosen as `sampling.choose` does: by the same uniform numbers, from the host's generators, and the same steps
in the same order, so that a seed gives the same answers on every engine, up to rounding. The host does penalties.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import dynamic_update_slice_in_dim

from ...core.arrays import Array, Tree, cast, half_type, namespace, widen
from ...core.dispatch import replaces, use_engine
from ...core.sources import version
from ...generation.sampling import Sampling, choose, only_known
from ...generation.writer import Sequences
from ...layers.cache import BlockCache, Cache, KeyValues
from ...models import EncoderDecoder
from ...models.model import WritingModel
from ...ops import Pattern

BURST = 128  # tokens of each sequence that `write` writes at most before the host sees them

AT_ONCE = 8  # tokens between two looks of the host at whether to go on, for each of which a GPU waits

LIKELIEST, DRAWN, FILTERED = WAYS = ("likeliest", "drawn", "filtered")
"""Ways to choose the next token: the likeliest; drawn from all; drawn from those that top-k, top-p and min-p leave."""

_SMALLEST, _LARGEST = float(np.finfo(np.float32).tiny), 1e30
"""Numbers beyond mean the same as these, and would be 0 or infinite in float32, or one over them would."""

Sizes: TypeAlias = tuple[int, ...]
Remembered: TypeAlias = tuple[list[tuple[Array, Array]] | None, Array | None]
"""Keys and values (B, K, M, C) that each block has of the sources, and the mask (B, M) of these."""

_traces: Counter[tuple[str, Sizes]] = Counter()


def traces() -> dict[tuple[str, Sizes], int]:
    """Return how often each program was traced, and so compiled, by its name and its sizes."""
    return dict(_traces)


class FixedKeyValues(KeyValues):
    """Keys and values (B, K, S, C) of one attention layer, the first `seen` of S slots filled."""

    def __init__(self, k: Array, v: Array, seen: Array) -> None:
        super().__init__()
        self.k, self.v, self.seen = k, v, seen

    def columns(self, new: int) -> Array:
        return np.arange(self.k.shape[-2])

    def allowed(self, pattern: Pattern, new: int) -> Array:
        """Return which slots new tokens may see under a pattern, none of them a later one, (T, S)."""
        rows, columns = self.seen + np.arange(new), self.columns(new)
        return pattern.tile(rows, columns) & (columns <= rows[:, None])

    def append(self, k: Array, v: Array) -> tuple[Array, Array]:
        """Write new keys and values over the next slots; return all slots."""
        self.k = dynamic_update_slice_in_dim(self.k, cast(k, self.k.dtype), self.seen, axis=-2)
        self.v = dynamic_update_slice_in_dim(self.v, cast(v, self.v.dtype), self.seen, axis=-2)
        self.seen = self.seen + k.shape[-2]
        return self.k, self.v


class State(NamedTuple):
    """The keys and values of B sequences, padded on the left, so that their next tokens share a slot."""

    keys: list[Array]  # (B, K, S, C) of each block
    values: list[Array]
    memory: list[tuple[Array, Array]] | None  # keys and values (B, K, M, C) that each block has of a source
    memory_mask: Array | None  # (B, M) True for the real tokens of the source
    padding: Array  # (B,) how many slots of padding stand before each sequence
    seen: Array  # () how many slots are filled

    @property
    def sizes(self) -> tuple[int, int]:
        """The number of sequences, and of slots in each buffer."""
        return len(self.padding), self.keys[0].shape[-2]


class FixedCache(Cache):
    """A state as the layers read and write it."""

    def __init__(self, state: State) -> None:
        super().__init__(0)
        for number, (k, v) in enumerate(zip(state.keys, state.values, strict=True)):
            block = BlockCache()
            block.attention = FixedKeyValues(k, v, state.seen)
            block.memory = None if state.memory is None else state.memory[number]
            self.blocks.append(block)
        self.memory_mask, self.padding = state.memory_mask, state.padding
        self.capacity = state.sizes[1]
        self.mask: Array = np.arange(self.capacity) >= self.padding[:, None]

    def positions(self, new: int, context: int) -> Array:
        """Return where new tokens stand in their own sequences, (B, T); padding stands at 0."""
        return namespace(self.padding).clip(self.rows(new) - self.padding[:, None], 0, context - 1)

    def key_mask(self, new: int) -> Array:
        return self.mask[:, None, :]

    def note_padding(self, mask: Array | None, shape: tuple[int, ...]) -> None:
        """Do nothing: the padding is known."""


_source: ContextVar[Any] = ContextVar("source", default=None)


@contextlib.contextmanager
def source_checked() -> Iterator[None]:
    """Check once whether the source has changed, for all programs that are called inside a `with` block."""
    with use_engine("jax"):  # as where programs are called: what an engine needs is watched once it is in use
        token = _source.set(version())
    try:
        yield
    finally:
        _source.reset(token)


class Program:
    """A function that JAX compiles, and compiles anew when the source that it traces has changed."""

    def __init__(self, function: Callable[..., Any], **settings: Any) -> None:
        self.function, self.settings = function, settings
        self.made: tuple[Any, Any] = None, None

    def __call__(self, *arguments: Any, **settings: Any) -> Any:
        with use_engine("jax"):  # whatever the engine is where a reader or a trainer is used
            return self.current()(*arguments, **settings)

    def current(self) -> Any:
        """Return the compiled function for the source as it is now."""
        now = _source.get() or version()
        made, compiled = self.made
        if now != made:
            # JAX remembers what it traced for a function: another one is traced anew.
            fresh = wraps(self.function)(lambda *arguments, **settings: self.function(*arguments, **settings))
            compiled = jax.jit(fresh, **self.settings)
            self.made = now, compiled  # at once: other threads may call this
        return compiled


@partial(Program, static_argnames="model")
def remember(model: EncoderDecoder, params: Tree, source: Array, mask: Array) -> Remembered:
    """Return the keys and values that every block has of sources (B, M) with their mask (B, M), and that mask."""
    _traces["remember", tuple(source.shape)] += 1
    with _digits(model, params):
        cache = model.new_cache(params, source, source_mask=mask)
    return [block.memory for block in cache.blocks if block.memory is not None], mask


@partial(Program, static_argnames=("model", "capacity"))
def begin(
    model: WritingModel, params: Tree, tokens: Array, padding: Array, remembered: Remembered, *, capacity: int
) -> State:
    """Make buffers for `capacity` tokens of each sequence, and read prompts (B, T), which may be empty."""
    stack = model.decoder_stack(params)[0]
    attention, dtype = stack.block.attention, computed_type(model, params)
    shape = (len(padding), attention.key_heads, capacity, attention.channels)
    keys, values = ([jnp.zeros(shape, dtype) for _ in range(stack.layers)] for _ in range(2))
    state = State(keys, values, *remembered, padding.astype(jnp.int32), jnp.zeros((), jnp.int32))
    _traces["begin", (*state.sizes, tokens.shape[-1])] += 1
    return _read(model, params, state, tokens)[1] if tokens.size else state


@partial(Program, static_argnames="model", donate_argnames="state")
def prefill(model: WritingModel, params: Tree, state: State, tokens: Array) -> State:
    """Read further tokens (B, T) of the prompts."""
    _traces["prefill", (*state.sizes, tokens.shape[-1])] += 1
    return _read(model, params, state, tokens)[1]


@partial(Program, static_argnames="model", donate_argnames="state")
def step(model: WritingModel, params: Tree, state: State, tokens: Array) -> tuple[Array, State]:
    """Read one more token of each sequence, (B,); return the logits (B, V) of the tokens that follow."""
    _traces["step", state.sizes] += 1
    return _read(model, params, state, tokens[:, None])


class Drawing(NamedTuple):
    """Settings of `Sampling` as numbers that a program reads, so that none of them is a reason to compile another."""

    temperature: Array
    top_k: Array
    top_p: Array
    min_p: Array


def drawing_of(sampling: Sampling, vocab: int) -> tuple[str, Drawing]:
    """Return the way and the numbers of settings without penalties."""
    top_k = vocab if sampling.top_k is None else min(sampling.top_k, vocab)
    # Sums of all probabilities may exceed 1 by rounding: a limit that none of them reaches leaves all in.
    top_p = 2.0 if sampling.top_p == 1 else max(sampling.top_p, _SMALLEST)
    # The smallest temperature already leaves nothing but the largest logits, the largest makes all of them equal.
    temperature = min(max(sampling.temperature, _SMALLEST), _LARGEST)
    numbers = (temperature, top_k, top_p, sampling.min_p)
    filters = top_k < vocab or sampling.top_p < 1 or sampling.min_p > 0
    way = LIKELIEST if sampling.temperature == 0 else FILTERED if filters else DRAWN
    return way, Drawing(*(np.float64(number) for number in numbers))


class Orders(NamedTuple):
    """The arguments of `write` that may differ from call to call."""

    ended: Array  # (B,) True for sequences that are not to be written
    limits: Array  # (B,) how many tokens each may still write
    count: Array  # () how many tokens to write now, at most BURST; fewer are, if all sequences end before
    stop_ids: Array  # (N,) ids that end a sequence; negative ones stand for none
    known: Array  # () ids below this may be written
    uniforms: Array  # (B, BURST) numbers from [0, 1) that the draws follow
    drawing: Drawing


class Written(NamedTuple):
    """The tokens that `write` wrote."""

    ids: Array  # (B, BURST) the new tokens; −1 after the end of a sequence
    last: Array  # (B,) the last token of each, which is still to be read
    broken: Array  # () whether some logits were not finite numbers


@partial(Program, static_argnames=("model", "way", "at_once"), donate_argnames="state")
def write(
    model: WritingModel, way: str, params: Tree, state: State, tokens: Array, orders: Orders, *, at_once: int = 1
) -> tuple[Written, State]:
    """Read a token of each sequence, (B,), choose the next by a `way` of WAYS, read that, and so on.

    at_once   how many are read before a look at whether to go on: after the last one, some are read in vain
    """
    _traces["write", state.sizes] += 1

    def going(now: Any) -> Array:
        return jnp.any(now[3] > 0)

    def further(_: Any, now: Any) -> Any:
        """Write one more token, if there is one to write: what is read in vain is not counted as seen."""
        number, state, written, left = now
        active, goes_on, seen = left > 0, going(now), state.seen
        logits, state = _read(model, params, state, written.last[:, None])
        state = state._replace(seen=jnp.where(goes_on, state.seen, seen))
        logits = only_known(logits, orders.known)
        tokens = chosen(logits, orders.uniforms[:, number], orders.drawing, way)
        # The largest is that of the likeliest, which is one that is not a number if there is any.
        likeliest = tokens if way == LIKELIEST else jnp.argmax(logits, axis=-1)
        largest = jnp.take_along_axis(logits, likeliest[:, None], axis=-1)[:, 0]
        broken = written.broken | jnp.any(active & ~jnp.isfinite(largest))
        ids = written.ids.at[:, number].set(jnp.where(active, tokens, -1))
        last = jnp.where(goes_on, tokens, written.last)
        stopped = jnp.any(tokens[:, None] == orders.stop_ids, axis=-1)
        return number + goes_on, state, Written(ids, last, broken), jnp.where(active & ~stopped, left - 1, 0)

    nothing = Written(jnp.full(orders.uniforms.shape, -1, jnp.int32), tokens, jnp.zeros((), bool))
    left = jnp.where(orders.ended, 0, jnp.minimum(orders.limits, orders.count))
    start = (jnp.zeros((), jnp.int32), state, nothing, left)
    _, state, written, _ = jax.lax.while_loop(going, lambda now: jax.lax.fori_loop(0, at_once, further, now), start)
    return written, state


@Program
def take(state: State, rows: Array) -> State:
    """Keep these sequences, in this order; one may be kept several times."""
    _traces["take", (*state.sizes, len(rows))] += 1
    return jax.tree.map(lambda x: x[rows] if x.ndim else x, state)


def _read(model: WritingModel, params: Tree, state: State, tokens: Array) -> tuple[Array, State]:
    """Read further tokens (B, T) of all sequences; return the logits (B, V) after the last of them."""
    cache = FixedCache(state)
    positions = cache.positions(tokens.shape[-1], model.config.context)
    with _digits(model, params):
        logits = model.read(params, tokens, cache, positions=positions, last=True)[:, -1]
    kept = [block.attention for block in cache.blocks]
    return logits, state._replace(keys=[x.k for x in kept], values=[x.v for x in kept], seen=kept[0].seen)


def _digits(model: WritingModel, params: Tree) -> Any:
    """Return a context in which products of float32 numbers keep all digits: JAX drops some on some devices."""
    full = computed_type(model, params) == np.float32
    return jax.default_matmul_precision("highest") if full else contextlib.nullcontext()


def computed_type(model: WritingModel, params: Tree) -> Any:
    """Return the type of what a model computes from parameters."""
    table = params["embedding"]["tokens"]["table"]
    return table.dtype if model.execution.half is None else half_type(table, model.execution.half)


@replaces(choose, Sequences)
def chosen(logits: Array, uniforms: Array, drawing: Drawing, way: str) -> Array:
    """Return the next token of each sequence, (B,) int32, for logits (B, V) and numbers (B,) from [0, 1)."""
    if way == LIKELIEST:
        return jnp.argmax(logits, axis=-1).astype(np.int32)
    x = widen(logits)
    p = jnp.exp((x - jnp.max(x, axis=-1, keepdims=True)) / drawing.temperature)
    if way == FILTERED:
        p = jnp.where(_largest(p, jnp.ones_like(p), drawing.top_k), p, 0)
        p = p / jnp.sum(p, axis=-1, keepdims=True)
        p = jnp.where(_largest(p, p, drawing.top_p), p, 0)
        p = jnp.where(p >= drawing.min_p * jnp.max(p, axis=-1, keepdims=True), p, 0)
    cumulative = jnp.cumsum(p, axis=-1)
    # Sums that are computed in parallel may grow by rounding even where p is zero.
    beyond = (p > 0) & (cumulative > uniforms[:, None] * cumulative[:, -1:])
    last = p.shape[-1] - 1 - jnp.argmax(p[:, ::-1] > 0, axis=-1)
    return jnp.where(jnp.any(beyond, axis=-1), jnp.argmax(beyond, axis=-1), last).astype(np.int32)


def _largest(p: Array, weights: Array, limit: Array) -> Array:
    """Mark the largest entries of each row of p (B, V): those before which less than `limit` weighs, equals by place.

    With weights of 1 these are the `limit` largest, with weights p the fewest that sum to `limit`. The smallest of them
    is found by bisection: numbers from 0 on are ordered as the integers that share their bits, and V log V comparisons
    of a sort would take far longer.
    """
    integers = {4: np.int32, 8: np.int64}[p.dtype.itemsize]

    def heavier_than(bits: Array) -> Array:
        bound = jax.lax.bitcast_convert_type(bits, p.dtype)
        return jnp.sum(jnp.where(p > bound, weights, 0), axis=-1, keepdims=True)

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = ends
        middle = high - (high - low) // 2
        fits = heavier_than(middle) < limit
        return jnp.where(fits, low, middle), jnp.where(fits, middle, high)

    # Nothing weighs more than the largest entry; before 0 stands −1, which is never looked at.
    high = jax.lax.bitcast_convert_type(jnp.max(p, axis=-1, keepdims=True), integers)
    _, bits = jax.lax.fori_loop(0, 8 * p.dtype.itemsize, halve, (jnp.full_like(high, -1), high))
    equal = p == jax.lax.bitcast_convert_type(bits, p.dtype)
    earlier = jnp.cumsum(jnp.where(equal, weights, 0), axis=-1) - weights
    above = p > jax.lax.bitcast_convert_type(bits, p.dtype)
    return above | (equal & (heavier_than(bits) + earlier < limit))
