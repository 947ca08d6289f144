"""The programs of generation under JAX: each is compiled once for each size of batch, prompt and cache.

    remember   read the sources, once
    prefill    read a part of the prompts
    step       read one more token of each sequence; return the logits of what follows
    write      read and choose one token after the other without coming back to the host
    take       keep some of the sequences

The mathematics is that of `model.read`, traced with a cache of fixed size. A program uses up the state that it is
given, so that keys and values are written in place. `traces` tells what was compiled.
"""

import contextlib
from collections import Counter
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...arrays import Array, Tree, half_type
from ...dispatch import use_engine
from ...generation.sampling import only_known
from ...models import EncoderDecoder
from ...models.model import Writer
from ...sources import version
from .cache import FixedCache, State
from .sampling import Drawing, chosen

BURST = 32
"""Tokens of each sequence that `write` writes at most before the host sees them."""

Sizes: TypeAlias = tuple[int, ...]
Remembered: TypeAlias = tuple[list[tuple[Array, Array]] | None, Array | None]
"""Keys and values (B, K, M, C) that each block has of the sources, and the mask (B, M) of these."""

_traces: Counter[tuple[str, Sizes]] = Counter()


def traces() -> dict[tuple[str, Sizes], int]:
    """Return how often each program was traced, and so compiled, by its name and its sizes."""
    return dict(_traces)


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
        now = version()
        made, compiled = self.made
        if now != made:
            # JAX remembers what it traced for a function: another one is traced anew.
            fresh = wraps(self.function)(lambda *arguments, **settings: self.function(*arguments, **settings))
            compiled = jax.jit(fresh, **self.settings)
            self.made = now, compiled  # at once: other threads may call this
        return compiled


def new_state(
    model: Writer, params: Tree, padding: Array, capacity: int, remembered: Remembered = (None, None)
) -> State:
    """Return buffers for so many tokens of as many sequences as `padding` (B,) tells of, nothing read yet.

    remembered   what `remember` returned, for a model with a source
    """
    stack, _ = model.decoder_stack(params)
    attention = stack.block.attention
    shape = (len(padding), attention.key_heads, capacity, attention.channels)
    dtype = _computed(model, params)
    keys, values = ([jnp.zeros(shape, dtype) for _ in range(stack.layers)] for _ in range(2))
    memory, mask = remembered
    return State(keys, values, memory, mask, jnp.asarray(padding, jnp.int32), jnp.zeros((), jnp.int32))


@partial(Program, static_argnames="model")
def remember(model: EncoderDecoder, params: Tree, source: Array, mask: Array) -> Remembered:
    """Return the keys and values that every block has of sources (B, M) with their mask (B, M), and that mask."""
    _traces["remember", tuple(source.shape)] += 1
    with _digits(model, params):
        cache = model.new_cache(params, source, source_mask=mask)
    return [block.memory for block in cache.blocks if block.memory is not None], mask


@partial(Program, static_argnames="model", donate_argnames="state")
def prefill(model: Writer, params: Tree, state: State, tokens: Array) -> State:
    """Read further tokens (B, T) of the prompts."""
    _traces["prefill", (*state.sizes, tokens.shape[-1])] += 1
    return _read(model, params, state, tokens)[1]


@partial(Program, static_argnames="model", donate_argnames="state")
def step(model: Writer, params: Tree, state: State, tokens: Array) -> tuple[Array, State]:
    """Read one more token of each sequence, (B,); return the logits (B, V) of the tokens that follow."""
    _traces["step", state.sizes] += 1
    return _read(model, params, state, tokens[:, None])


class Orders(NamedTuple):
    """What is to be written.

    ended      (B,) True for sequences that are not to be written
    limits     (B,) how many tokens each may still write
    count      () how many tokens to write now, at most BURST; fewer are, if all sequences end before
    stop_ids   (N,) ids that end a sequence; negative ones stand for none
    known      () ids below this may be written
    uniforms   (B, BURST) numbers from [0, 1) that the draws follow
    drawing    how to draw
    """

    ended: Array
    limits: Array
    count: Array
    stop_ids: Array
    known: Array
    uniforms: Array
    drawing: Drawing


class Written(NamedTuple):
    """What was written.

    ids      (B, BURST) the new tokens; −1 after the end of a sequence
    last     (B,) the last token of each, which nobody has read yet
    broken   () whether some logits were not finite numbers
    """

    ids: Array
    last: Array
    broken: Array


@partial(Program, static_argnames=("model", "way"), donate_argnames="state")
def write(model: Writer, way: str, params: Tree, state: State, tokens: Array, orders: Orders) -> tuple[Written, State]:
    """Read a token of each sequence, (B,), choose the next by a `way` of WAYS, read that, and so on."""
    _traces["write", state.sizes] += 1

    def going(now: Any) -> Array:
        number, _, _, ended = now
        return (number < orders.count) & ~jnp.all(ended)

    def further(now: Any) -> Any:
        number, state, written, ended = now
        logits, state = _read(model, params, state, written.last[:, None])
        logits = only_known(logits, orders.known)
        broken = written.broken | jnp.any(~ended & ~jnp.isfinite(jnp.max(logits, axis=-1)))
        tokens = chosen(logits, orders.uniforms[:, number], orders.drawing, way)
        ids = written.ids.at[:, number].set(jnp.where(ended, -1, tokens))
        ended = ended | jnp.any(tokens[:, None] == orders.stop_ids, axis=-1) | (number + 1 >= orders.limits)
        return number + 1, state, Written(ids, tokens, broken), ended

    nothing = Written(jnp.full(orders.uniforms.shape, -1, jnp.int32), tokens, jnp.zeros((), bool))
    start = (jnp.zeros((), jnp.int32), state, nothing, orders.ended)
    _, state, written, _ = jax.lax.while_loop(going, further, start)
    return written, state


@Program
def take(state: State, rows: Array) -> State:
    """Keep these sequences, in this order; one may be kept several times."""
    _traces["take", (*state.sizes, len(rows))] += 1
    return jax.tree.map(lambda x: x[rows] if x.ndim else x, state)


def _read(model: Writer, params: Tree, state: State, tokens: Array) -> tuple[Array, State]:
    """Read further tokens (B, T) of all sequences; return the logits (B, V) after the last of them."""
    cache = FixedCache(state)
    positions = cache.positions(tokens.shape[-1], model.config.context)
    with _digits(model, params):
        logits = model.read(params, tokens, cache, positions=positions, last=True)[:, -1]
    kept = [block.attention for block in cache.blocks]
    return logits, state._replace(keys=[own.k for own in kept], values=[own.v for own in kept], seen=kept[0].seen)


def _digits(model: Writer, params: Tree) -> Any:
    """Let products of float32 numbers have all their digits: JAX takes fewer on some devices unless asked."""
    full = _computed(model, params) == np.float32
    return jax.default_matmul_precision("highest") if full else contextlib.nullcontext()


def _computed(model: Writer, params: Tree) -> Any:
    """Return the type of what a model computes from parameters."""
    table = params["embedding"]["tokens"]["table"]
    return table.dtype if model.execution.half is None else half_type(table, model.execution.half)
