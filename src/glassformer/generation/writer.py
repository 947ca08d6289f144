"""The engine that writes: all prompts of a batch at once, one token of each per step, as they come."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array, Tree
from ..core.setting import check_count
from ..models import Model
from .reader import CHUNK, Reader, WriteOrder, checked, reading
from .sampling import Sampling, TokenHistory, choose, likeliest, log_softmax, only_known

STOP, LENGTH = "stop", "length"
"""Why a sequence ended: at a stop id or stop string; or at `max_new_tokens` or the end of the context."""

Ids = Sequence[int] | Array


class Step(NamedTuple):
    """One more token of every sequence that has not ended. Sequence r is sample r % n of prompt r // n.

    ids                     (R,) the new tokens, an end token included; −1 where a sequence had ended before
    finish                  R reasons: why a sequence ended with this token, None where it did not
    log_probabilities       (R,) of the new tokens under the model itself, whatever the sampling; None unless asked for
    top_ids                 (R, k) the likeliest tokens, best first; None unless asked for
    top_log_probabilities   (R, k) theirs
    """

    ids: Array
    finish: tuple[str | None, ...]
    log_probabilities: Array | None = None
    top_ids: Array | None = None
    top_log_probabilities: Array | None = None


def generate_steps(
    model: Model,
    params: Tree,
    prompts: Sequence[Ids],
    *,
    sources: Sequence[Ids] | None = None,
    max_new_tokens: int,
    sampling: Sampling | None = None,
    n: int = 1,
    seed: int = 0,
    stop_ids: Sequence[int] = (),
    ends: Callable[[int, int], bool] | None = None,
    log_probabilities: int | None = None,
    known: int | None = None,
    cache: bool = True,
    chunk: int = CHUNK,
    burst: int | None = None,
    slide: bool = False,
) -> Iterator[Step]:
    """Continue every prompt until a stop id, `max_new_tokens` or the end of the context; yield a `Step` at a time.

    prompts             ids of different lengths; for an encoder-decoder what the answers start with, such as <bos>
    sources             ids that an encoder-decoder reads, one sequence for each prompt
    n, seed             samples of each prompt; what sample i of a prompt says depends on the prompt, the seed and i
                        alone, so that it says the same in any batch
    ends                called with a sequence and its new id: True ends it there, as a stop id would
    log_probabilities   None: none; 0: those of the chosen tokens; k: those of the k likeliest as well
    known               None: any id may be written; else those below this: see `only_known`
    cache, chunk        False: read everything again at every step; else read the prompts in chunks of this many tokens
    burst               tokens that a reader may write before it returns the first of them (None: as many as it
                        can), unless penalties or log-probabilities need the logits in between; 1: each as it comes
    slide               a decoder goes on past the context: see `reader`
    """
    read, sources = checked(model, prompts, sources)
    for name, value in {"n": n, "chunk": chunk, "burst": 1 if burst is None else burst}.items():
        check_count(name, value, least=1)
    for name, value in {"seed": seed, "log_probabilities": log_probabilities or 0}.items():
        check_count(name, value, least=0)
    start, rooms = reading(
        model, params, read, sources, max_new_tokens=max_new_tokens, cache=cache, chunk=chunk, slide=slide
    )
    limits = np.repeat(rooms, n)
    sampling = Sampling() if sampling is None else sampling
    history = TokenHistory.of(read, model.config.vocab) if sampling.has_penalties else None

    known = model.config.vocab if known is None else known
    writer = Sequences(n, limits, sampling, history, seed, frozenset(stop_ids), ends, log_probabilities, known)
    return writer.write(start, burst)


@dataclass
class Sequences:
    """The sequences being written: which are still open, how far they are, and the generator that each draws from."""

    n: int
    limits: Array
    sampling: Sampling
    history: TokenHistory | None
    seed: int
    stop_ids: frozenset[int]
    ends: Callable[[int, int], bool] | None
    top: int | None
    known: int

    def __post_init__(self) -> None:
        self.rows = np.arange(len(self.limits))  # the sequences still open
        self.prompts = self.rows // self.n
        self.history = None if self.history is None else self.history.select(self.prompts)
        self.rngs = [np.random.default_rng((self.seed, row % self.n)) for row in range(len(self.limits))]
        self.written = 0  # tokens of each open sequence

    def write(self, start: Callable[[], Reader], burst: int | None) -> Iterator[Step]:
        """Read the prompts, and write to the end of all sequences."""
        reader = start()
        reader.select(self.prompts)  # a prompt is read once, whatever the number of samples
        # Penalties and log-probabilities need the logits of every token here.
        is_free = self.history is None and self.top is None
        yield from self._bursts(reader, burst) if is_free else self._steps(reader)

    def _steps(self, reader: Reader) -> Iterator[Step]:
        """Write one token of each sequence at a time, chosen here from the logits."""
        while True:
            logits = reader.logits
            logits = logits if self.known >= logits.shape[-1] else only_known(logits, self.known)
            history = None if self.history is None else self.history.select(self.rows)
            chosen = choose(logits, history, self.sampling, [self.rngs[row] for row in self.rows])
            step = self._step(chosen)
            step = step._replace(**self._log_probabilities(logits, step.ids))
            yield step
            going = self._close(step)
            if not going.any():
                return
            if not going.all():
                reader.select(np.flatnonzero(going))
            reader.read(step.ids[self.rows])

    def _bursts(self, reader: Reader, size: int | None) -> Iterator[Step]:
        """Write up to `size` tokens of each sequence at a time, chosen where they are computed.

        A sequence that `ends` has ended is thrown away from there on.
        """
        while len(self.rows):
            rngs = [self.rngs[row] for row in self.rows]
            left = self.limits[self.rows] - self.written
            open_rows, places = self.rows, np.arange(len(self.rows))
            found = reader.write(size, WriteOrder(left, self.sampling, rngs, self.stop_ids, self.known))
            if found is NotImplemented:
                yield from self._steps(reader)
                return
            for chosen in found:
                step = self._step(chosen[places])
                yield step
                places = places[self._close(step)]
                if not len(places):
                    return
            if len(places) < len(open_rows):
                reader.select(places)

    def _close(self, step: Step) -> Array:
        """Forget the sequences that ended with this step; tell of the open ones which go on, (R,)."""
        going = np.array([step.finish[row] is None for row in self.rows])
        self.rows = self.rows[going]
        return going

    def _step(self, chosen: Array) -> Step:
        """Note the next token of each open sequence."""
        self.written += 1
        ids = np.full(len(self.limits), -1, dtype=np.int64)
        finish: list[str | None] = [None] * len(self.limits)
        for row, token in zip(self.rows.tolist(), chosen.tolist(), strict=True):
            ids[row] = token
            if self.history is not None:
                self.history.add(row, token)
            if token in self.stop_ids or (self.ends is not None and self.ends(row, token)):
                finish[row] = STOP
            elif self.written >= self.limits[row]:
                finish[row] = LENGTH
        return Step(ids, tuple(finish))

    def _log_probabilities(self, logits: Array, ids: Array) -> dict[str, Array]:
        """Return what a step tells about the model's own probabilities."""
        if self.top is None:
            return {}
        logs = log_softmax(logits)
        chosen = np.full(len(ids), np.nan)
        chosen[self.rows] = logs[np.arange(len(logs)), ids[self.rows]]
        if self.top == 0:
            return {"log_probabilities": chosen}
        count = min(self.top, logs.shape[-1])
        top_ids = np.full((len(ids), count), -1, dtype=np.int64)
        top_logs = np.full((len(ids), count), np.nan)
        for row, log in zip(self.rows, logs, strict=True):
            top_ids[row] = likeliest(log, count)
            top_logs[row] = log[top_ids[row]]
        return {"log_probabilities": chosen, "top_ids": top_ids, "top_log_probabilities": top_logs}
