"""Writing: tokens are drawn, for all prompts of a batch at once, or the likeliest text is searched for with beams."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import ConfigError
from ..models import Model
from .reader import Reader, start_reader
from .request import Ids, Request
from .sampling import TokenHistory, choose, likeliest, log_softmax, only_known

STOP, LENGTH = "stop", "length"
"""Why a sequence ended: at a stop id or stop string; or at `max_new_tokens` or the end of the context."""


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
    model: Model, params: Tree, prompts: Sequence[Ids], *, max_new_tokens: int, **settings: Any
) -> Iterator[Step]:
    """Continue every prompt until a stop id, `max_new_tokens` or the end of the context; yield a `Step` at a time.

    settings   those of `Request`: sources, sampling, n, seed, stop_ids, ends, log_probabilities, known, …
    """
    request = Request.of({**settings, "prompts": prompts, "max_new_tokens": max_new_tokens})
    if request.beams is not None:
        raise ConfigError("generate_steps has no beams", hint="call beam_search")
    return Sequences(model, params, request).write()


class Sequences:
    """The sequences being written: which are still open, how far they are, and the generator that each draws from."""

    def __init__(self, model: Model, params: Tree, request: Request) -> None:
        self.model, self.params, self.request = model, params, request.checked(model.config)
        self.limits = np.repeat(self.request.limits(model.config.context), request.n)
        self.rows = np.arange(len(self.limits))  # the sequences still open
        self.prompts = self.rows // request.n
        self.rngs = [np.random.default_rng((request.seed, row % request.n)) for row in range(len(self.rows))]
        history = TokenHistory.of(self.request.prompts, model.config.vocab) if request.sampling.has_penalties else None
        self.history = None if history is None else history.select(self.prompts)
        self.written = 0  # tokens of each open sequence

    def write(self) -> Iterator[Step]:
        """Read the prompts, and write to the end of all sequences."""
        reader = start_reader(self.model, self.params, self.request)
        reader.select(self.prompts)  # a prompt is read once, whatever the number of samples
        # Penalties and log-probabilities need the logits of every token here.
        is_free = self.history is None and self.request.log_probabilities is None
        yield from self._bursts(reader) if is_free else self._steps(reader)

    def _steps(self, reader: Reader) -> Iterator[Step]:
        """Write one token of each sequence at a time, chosen here from the logits."""
        while True:
            logits, known = reader.logits, self.request.known
            logits = logits if known is None or known >= logits.shape[-1] else only_known(logits, known)
            history = None if self.history is None else self.history.select(self.rows)
            chosen = choose(logits, history, self.request.sampling, [self.rngs[row] for row in self.rows])
            step = self._step(chosen)
            step = step._replace(**self._log_probabilities(logits, step.ids))
            yield step
            going = self._close(step)
            if not going.any():
                return
            if not going.all():
                reader.select(np.flatnonzero(going))
            reader.read(step.ids[self.rows])

    def _bursts(self, reader: Reader) -> Iterator[Step]:
        """Write several tokens of each sequence at a time, chosen where they are computed.

        A sequence that `ends` has ended is thrown away from there on.
        """
        while len(self.rows):
            rngs = [self.rngs[row] for row in self.rows]
            left = self.limits[self.rows] - self.written
            count, going = len(self.rows), np.arange(len(self.rows))
            burst = reader.write(self.request.burst, left, rngs, self.request)
            if burst is NotImplemented:
                yield from self._steps(reader)
                return
            for chosen in burst:
                step = self._step(chosen[going])
                yield step
                going = going[self._close(step)]
                if not len(going):
                    return
            if len(going) < count:
                reader.select(going)

    def _close(self, step: Step) -> Array:
        """Forget the sequences that ended with this step; return which of the open ones go on, (R,)."""
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
            if token in self.request.stop_ids or (self.request.ends is not None and self.request.ends(row, token)):
                finish[row] = STOP
            elif self.written >= self.limits[row]:
                finish[row] = LENGTH
        return Step(ids, tuple(finish))

    def _log_probabilities(self, logits: Array, ids: Array) -> dict[str, Array]:
        """Return the fields of a step that hold the model's own probabilities."""
        top = self.request.log_probabilities
        if top is None:
            return {}
        logs = log_softmax(logits)
        chosen = np.full(len(ids), np.nan)
        chosen[self.rows] = logs[np.arange(len(logs)), ids[self.rows]]
        if top == 0:
            return {"log_probabilities": chosen}
        count = min(top, logs.shape[-1])
        top_ids = np.full((len(ids), count), -1, dtype=np.int64)
        top_logs = np.full((len(ids), count), np.nan)
        for row, log in zip(self.rows, logs, strict=True):
            top_ids[row] = likeliest(log, count)
            top_logs[row] = log[top_ids[row]]
        return {"log_probabilities": chosen, "top_ids": top_ids, "top_log_probabilities": top_logs}


# --- beam search ------------------------------------------------------------------------------------------------------


LARGEST_EXPONENT = 300.0


class Hypothesis(NamedTuple):
    """A complete sequence.

    ids                 the new tokens, an end token included
    log_probabilities   of each of them
    score               Σ log_probabilities / length ** length_penalty
    finish              why it ended: "stop" or "length"
    """

    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    score: float
    finish: str


class _Beam(NamedTuple):
    """A beginning: its tokens, their log-probabilities and the sum of these; which beam it continues; why it ended."""

    ids: tuple[int, ...] = ()
    logs: tuple[float, ...] = ()
    total: float = 0.0
    parent: int = 0
    finish: str | None = None


def beam_search(
    model: Model,
    params: Tree,
    prompt: Ids,
    *,
    source: Ids | None = None,
    beams: int,
    max_new_tokens: int,
    **settings: Any,
) -> list[Hypothesis]:
    """Return up to `beams` complete sequences, the best first, as Hugging Face's `generate(num_beams=…)` finds them.

    settings   those of `Request`: length_penalty, early_stopping, stop_ids, ends, known, cache, chunk, slide
    """
    inputs = {"prompts": [prompt], "sources": None if source is None else [source]}
    return search(model, params, Request.of({**settings, **inputs, "beams": beams, "max_new_tokens": max_new_tokens}))


def search(model: Model, params: Tree, request: Request) -> list[Hypothesis]:
    """Return the best complete sequences that continue the one prompt of a request."""
    request = request.checked(model.config)
    [limit], beams = request.limits(model.config.context), request.beams or 1
    length_penalty = 1.0 if request.length_penalty is None else request.length_penalty
    _check_penalty(beams, length_penalty, limit)
    reader = start_reader(model, params, request)
    live, complete = [_Beam()], list[Hypothesis]()
    for length in range(1, limit + 1):
        logits = reader.logits if request.known is None else only_known(reader.logits, request.known)
        candidates = _candidates(live, logits, request, last=length == limit)
        scale = length**length_penalty
        complete += [Hypothesis(c.ids, c.logs, c.total / scale, c.finish) for c in candidates[:beams] if c.finish]
        complete = sorted(complete, key=lambda hypothesis: -hypothesis.score)[:beams]
        live = [c for c in candidates if c.finish is None][:beams]
        # It may end when enough is complete, and what is open is not expected to do better.
        is_enough = len(complete) == beams
        if not live or (is_enough and (request.early_stopping or live[0].total / scale <= complete[-1].score)):
            break
        reader.select(np.array([beam.parent for beam in live]))
        reader.read(np.array([beam.ids[-1] for beam in live]))
    return complete


def _check_penalty(beams: int, length_penalty: float, limit: int) -> None:
    """Refuse a penalty with which length ** length_penalty would be infinite or zero."""
    if not math.isfinite(length_penalty):
        raise ConfigError(
            f"beams is {beams} and length_penalty {length_penalty}", hint="use at least 1 beam and a finite penalty"
        )
    if abs(length_penalty) * math.log(max(limit, 1)) > LARGEST_EXPONENT:
        raise ConfigError(
            f"length_penalty is {length_penalty:g}, too much for answers of up to {limit:,} tokens",
            hint="use a number of about 1; 0 is none, those below favor short answers",
        )


def _candidates(live: list[_Beam], logits: Array, request: Request, *, last: bool) -> list[_Beam]:
    """Return the best continuations by one token of all beginnings together, the best first."""
    logs = log_softmax(logits)
    totals = np.array([beam.total for beam in live])[:, None] + logs
    # Enough candidates that `beams` of them go on even if all the others end here.
    count = max(2, 1 + len(set(request.stop_ids))) * (request.beams or 1)
    candidates = []
    for index in likeliest(totals.reshape(-1), count):
        parent, token = divmod(int(index), logs.shape[-1])
        if not np.isfinite(totals[parent, token]):
            break
        before = live[parent]
        ids = (*before.ids, token)
        chosen = (*before.logs, float(logs[parent, token]))
        stopped = token in request.stop_ids or (request.ends is not None and request.ends(ids))
        finish = STOP if stopped else LENGTH if last else None
        candidates.append(_Beam(ids, chosen, float(totals[parent, token]), parent, finish))
    return candidates
