"""The reader of the engine jax: batches, prompts and caches of a few sizes, each compiled once.

Sizes are rounded up to powers of two: padding fills the batch, the prompts from the left, and the cache. It costs less
than another compilation.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...core.arrays import Array, Tree, is_integer
from ...core.errors import ConfigError
from ...core.quantized import Quantized
from ...core.settings import check_known
from ...core.sources import SourceGuard
from ...core.tree import tree_map
from ...data.examples import stack
from ...generation.reader import CachedReader, Reader, Rngs
from ...generation.request import CHUNK, Request, Rows
from ...generation.sampling import check_finite
from ...generation.storage import STORAGES
from ...layers import Cache
from ...models import Decoder, EncoderDecoder, Model
from . import programs as compiled
from .programs import AT_ONCE, BURST, Orders, Remembered, State, chosen, drawing_of

LEAST = 16  # tokens of the smallest prompt and the smallest cache
FIRST_BURST = 32  # tokens that are written before the first are shown ...
SMOOTH = 0.1  # ... and later twice as many as before, if those took fewer seconds than this
STOPS = 8  # stop ids come in multiples of it
DEVICE_STORAGES = ("float32", "bfloat16", "float16")  # the model computes in the type of its weights

_CACHE = SourceGuard("FixedCache", Cache)


def check_device_storage(weights: str) -> None:
    """Refuse a way to keep weights that the engine jax does not know."""
    if weights in STORAGES and weights not in DEVICE_STORAGES:
        raise ConfigError(
            f"the engine jax does not keep weights as {weights}",
            hint=f"choose one of {', '.join(DEVICE_STORAGES)}, or the engine cpu",
        )
    check_known("weights cannot be kept as", weights, DEVICE_STORAGES)


def to_device(params: Tree, weights: str | None = None) -> Tree:
    """Return parameters as JAX arrays, kept as `weights` (None: as they are); what is on a device already stays there.

    Weights in blocks become float32 numbers: only the engines on the host multiply from blocks.
    """
    if weights is not None:
        check_device_storage(weights)

    def put(leaf: Any) -> Any:
        if weights is None and isinstance(leaf, jax.Array):
            return leaf
        x = jnp.asarray(leaf.dequantize() if isinstance(leaf, Quantized) else leaf)
        return x if weights is None or is_integer(x) else x.astype(weights)

    return tree_map(put, params)


def runs_ahead() -> bool:
    """Return whether the device computes while the host already asks for more, so that each look at a result costs."""
    return jax.default_backend() != "cpu"


def rounded(size: int, least: int = 1) -> int:
    """Return the power of two that is not below `size` and `least`."""
    return max(least, 1 << (size - 1).bit_length())


def make_reader(model: Model, params: Tree, prompts: Rows, sources: Rows | None, **sizes: Any) -> Reader:
    """Return a reader with a cache of fixed size, or the one that every engine has if caches have changed."""
    if _CACHE.is_current():
        return JaxReader(model, params, prompts, sources, **sizes)
    return CachedReader(model, to_device(params), prompts, sources, **sizes)


class JaxReader(Reader):
    """Reads every token once and keeps keys and values on the device, in buffers that are updated in place.

    The last token of a sequence is read when what follows it is asked for. Up to `room` tokens may follow the prompts,
    the last of which is never read. Parameters that are not on the device yet are moved there for this reader alone;
    `TrainedModel.kept_as` moves them once.
    """

    def __init__(
        self, model: Model, params: Tree, prompts: Rows, sources: Rows | None, *, room: int, chunk: int = CHUNK
    ) -> None:
        assert isinstance(model, Decoder | EncoderDecoder)
        self.model, self.params = model, to_device(params)
        self.vocab = model.config.vocab
        rows, self.burst = rounded(len(prompts)), FIRST_BURST
        self.rows = np.arange(len(prompts))  # of each sequence in the batch
        self.next = np.zeros(rows, np.int32)  # what each row reads next
        self.next[self.rows] = [prompt[-1] for prompt in prompts]
        # The size of the prompts' buffer is a power of two, the context, or a multiple of `chunk`.
        length = max(len(prompt) for prompt in prompts) - 1
        size = min(rounded(length, LEAST), model.config.context) if length else 0
        size = size if size <= chunk else -(-length // chunk) * chunk
        tokens, mask = stack([prompt[:-1] for prompt in prompts], rows=rows, size=size, left=True)
        with compiled.source_checked():
            self.state = self._begin(tokens, mask, sources, rounded(size + room, LEAST), chunk)
        self._logits: Array | None = None

    def _begin(self, tokens: Array, mask: Array, sources: Rows | None, capacity: int, chunk: int) -> State:
        """Return the state after sources and prompts (R, P) with their mask."""
        model = self.model
        remembered: Remembered = (None, None)
        if sources is not None:  # padded on the right; rows without one read nothing but padding
            assert isinstance(model, EncoderDecoder)
            longest = min(rounded(max(map(len, sources)), LEAST), model.config.context)
            remembered = compiled.remember(model, self.params, *stack(sources, rows=len(tokens), size=longest))
        padding, length = (~mask).sum(axis=1), tokens.shape[1]
        at_once = tokens if length <= chunk else tokens[:, :0]
        state = compiled.begin(model, self.params, at_once, padding, remembered, capacity=capacity)
        for start in range(at_once.shape[1], length, chunk):
            state = compiled.prefill(model, self.params, state, tokens[:, start : start + chunk])
        return state

    @property
    def logits(self) -> Array:
        return self._read_next()[self.rows]

    def read(self, ids: Array) -> None:
        self._read_next()
        self.next[self.rows] = ids
        self._logits = None

    def select(self, rows: Array) -> None:
        """Keep these sequences, in this order; nothing moves on the device unless one is kept several times."""
        kept = self.rows[rows]
        if len(np.unique(kept)) == len(kept):
            self.rows = kept
            return
        taken = np.full(rounded(len(kept)), kept[0])
        taken[: len(kept)] = kept
        self.state = compiled.take(self.state, taken)
        self.next = self.next[taken]
        self._logits = None if self._logits is None else self._logits[taken]
        self.rows = np.arange(len(kept))

    def write(self, count: int | None, limits: Array, rngs: Rngs, request: Request) -> Any:
        """Write up to `count` tokens of each sequence on the device; see `Reader`.

        Without a count, there are more of them each time, up to BURST, as long as they take less than SMOOTH seconds.

        The device chooses tokens as `choose` was written: if that has changed, the host is to choose them.
        """
        if not chosen.kernel.is_current():  # type: ignore[attr-defined]
            return NotImplemented
        sampling, stop_ids = request.sampling, request.stop_ids
        way, drawing = drawing_of(sampling, self.vocab)
        rows, count = len(self.next), min(count or self.burst, BURST, int(np.max(limits)))
        ended, left = np.ones(rows, bool), np.zeros(rows, np.int32)
        ended[self.rows], left[self.rows] = False, limits
        uniforms = np.zeros((rows, BURST))
        if sampling.temperature > 0:
            uniforms[self.rows, :count] = [rng.random(count) for rng in rngs]
        stops = np.full(-(-max(len(stop_ids), 1) // STOPS) * STOPS, -1, np.int32)
        stops[: len(stop_ids)] = sorted(stop_ids)
        known = self.vocab if request.known is None else request.known
        orders = Orders(ended, left, np.int32(count), stops, np.int32(known), uniforms, drawing)
        if self._logits is not None:  # the last tokens were read for these: they are read again, into the same slots
            self.state = self.state._replace(seen=self.state.seen - 1)
        at_once = AT_ONCE if count >= AT_ONCE and runs_ahead() else 1
        began = time.perf_counter()
        arguments = self.model, way, self.params, self.state, self.next, orders
        written, self.state = compiled.write(*arguments, at_once=at_once)
        written = jax.device_get(written)
        if time.perf_counter() - began < SMOOTH:
            self.burst = min(2 * self.burst, BURST)
        check_finite(np.where(written.broken, np.nan, 0.0))
        ids = written.ids[self.rows]
        self.next, self._logits = np.array(written.last), None
        return ids[:, (ids >= 0).any(axis=0)].T

    def _read_next(self) -> Array:
        """Read the last tokens unless they are read; return the logits (B, V) after them."""
        if self._logits is None:
            logits, self.state = compiled.step(self.model, self.params, self.state, self.next)
            self._logits = np.asarray(logits)
        return self._logits
