"""The engine that writes: all prompts of a batch at once, one token of each per step, as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ..arrays import Array, Tree
from ..errors import ConfigError
from ..models import Model
from .reader import CHUNK, CachedReader, PlainReader, Reader, checked, room
from .sampling import History, Sampling, choose, likeliest, log_softmax

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
    cache: bool = True,
    chunk: int = CHUNK,
) -> Iterator[Step]:
    """Continue every prompt until a stop id, `max_new_tokens` or the end of the context; yield a `Step` at a time.

    prompts             ids of different lengths; for an encoder-decoder what the answers start with, such as <bos>
    sources             ids that an encoder-decoder reads, one sequence for each prompt
    n, seed             samples of each prompt; what sample i of a prompt says depends on the prompt, the seed and i
                        alone, so that it says the same in any batch
    ends                called with a sequence and its new id: True ends it there, as a stop id would
    log_probabilities   None: none; 0: those of the chosen tokens; k: those of the k likeliest as well
    cache, chunk        False: read everything anew at every step; else read the prompts so many tokens at a time
    """
    read, sources = checked(model, prompts, sources)
    if n < 1 or chunk < 1 or seed < 0 or (log_probabilities or 0) < 0:
        raise ConfigError(
            f"n is {n}, chunk {chunk}, seed {seed}, log_probabilities {log_probabilities}",
            hint="use n and chunk of at least 1, a seed and log_probabilities of at least 0",
        )
    limits = np.repeat([room(model, prompt, max_new_tokens) for prompt in read], n)
    sampling = Sampling() if sampling is None else sampling
    history = History.of(read, model.config.vocab) if sampling.has_penalties else None

    def start() -> Reader:
        if cache:
            return CachedReader(model, params, read, sources, chunk)
        return PlainReader(model, params, read, sources)

    writer = _Writer(n, limits, sampling, history, seed, frozenset(stop_ids), ends, log_probabilities)
    return writer.steps(start)


class _Writer:
    """The sequences being written: which are still open, how far they are, and the generator that each draws from."""

    def __init__(
        self,
        n: int,
        limits: Array,
        sampling: Sampling,
        history: History | None,
        seed: int,
        stop_ids: frozenset[int],
        ends: Callable[[int, int], bool] | None,
        log_probabilities: int | None,
    ) -> None:
        self.n, self.limits, self.sampling = n, limits, sampling
        self.stop_ids, self.ends, self.top = stop_ids, ends, log_probabilities
        self.rows = np.arange(len(limits))  # the sequences still open
        self.prompts = self.rows // n
        self.history = None if history is None else history.select(self.prompts)
        self.rngs = [np.random.default_rng((seed, row % n)) for row in range(len(limits))]

    def steps(self, start: Callable[[], Reader]) -> Iterator[Step]:
        reader = start()
        reader.select(self.prompts)  # a prompt is read once, whatever the number of samples
        written = 0
        while True:
            written += 1
            step = self._step(reader.logits, written)
            yield step
            going = np.array([step.finish[row] is None for row in self.rows])
            if not going.any():
                return
            if not going.all():
                reader.select(np.flatnonzero(going))
                self.rows = self.rows[going]
            reader.read(step.ids[self.rows])

    def _step(self, logits: Array, written: int) -> Step:
        history = None if self.history is None else self.history.select(self.rows)
        rows = self.rows.tolist()
        chosen = choose(logits, history, self.sampling, [self.rngs[row] for row in rows])
        ids = np.full(len(self.limits), -1, dtype=np.int64)
        finish: list[str | None] = [None] * len(self.limits)
        for row, token in zip(rows, chosen.tolist(), strict=True):
            ids[row] = token
            if self.history is not None:
                self.history.add(row, token)
            if token in self.stop_ids or (self.ends is not None and self.ends(row, token)):
                finish[row] = STOP
            elif written >= self.limits[row]:
                finish[row] = LENGTH
        return Step(ids, tuple(finish), *self._log_probabilities(logits, ids))

    def _log_probabilities(self, logits: Array, ids: Array) -> tuple[Array | None, Array | None, Array | None]:
        if self.top is None:
            return None, None, None
        logs = log_softmax(logits)
        chosen = np.full(len(ids), np.nan)
        chosen[self.rows] = logs[np.arange(len(logs)), ids[self.rows]]
        if self.top == 0:
            return chosen, None, None
        count = min(self.top, logs.shape[-1])
        top_ids = np.full((len(ids), count), -1, dtype=np.int64)
        top_logs = np.full((len(ids), count), np.nan)
        for row, log in zip(self.rows, logs, strict=True):
            top_ids[row] = likeliest(log, count)
            top_logs[row] = log[top_ids[row]]
        return chosen, top_ids, top_logs
