"""Beam search: keep the best few beginnings at every step, and return the best complete sequences with their scores."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import ConfigError
from ..models import Model
from .reader import CHUNK, checked, reading
from .sampling import likeliest, log_softmax, only_known
from .writer import LENGTH, STOP, Ids

LARGEST_EXPONENT = 300.0
Ends = Callable[[tuple[int, ...]], bool]


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
    length_penalty: float = 1.0,
    early_stopping: bool = False,
    stop_ids: Sequence[int] = (),
    ends: Ends | None = None,
    known: int | None = None,
    cache: bool = True,
    chunk: int = CHUNK,
    slide: bool = False,
) -> list[Hypothesis]:
    """Return up to `beams` complete sequences, the best first, as Hugging Face's `generate(num_beams=…)` finds them.

    length_penalty   above 0 favors longer sequences, below 0 shorter ones (scores are negative)
    early_stopping   True: stop as soon as `beams` sequences are complete; False: go on while the best beginning, if it
                     ended now, would beat the worst of them
    ends             called with the new ids of a sequence: True ends it there, as a stop id would
    known            None: any id may be written; else those below this: see `only_known`
    slide            a decoder goes on past the context: see `reader`
    """
    prompts, sources = checked(model, [prompt], None if source is None else [source])
    start, [limit] = reading(
        model, params, prompts, sources, max_new_tokens=max_new_tokens, cache=cache, chunk=chunk, slide=slide
    )
    _check(beams, length_penalty, limit)
    reader = start()
    live, complete = [_Beam()], list[Hypothesis]()
    for length in range(1, limit + 1):
        # Enough candidates that `beams` of them go on even if all the others end here.
        count = max(2, 1 + len(set(stop_ids))) * beams
        logits = reader.logits if known is None else only_known(reader.logits, known)
        candidates = _candidates(live, logits, count, frozenset(stop_ids), ends, last=length == limit)
        scale = length**length_penalty
        complete += [Hypothesis(c.ids, c.logs, c.total / scale, c.finish) for c in candidates[:beams] if c.finish]
        complete = sorted(complete, key=lambda hypothesis: -hypothesis.score)[:beams]
        live = [c for c in candidates if c.finish is None][:beams]
        # It may end when enough is complete, and what is open is not expected to do better.
        if not live or (len(complete) == beams and (early_stopping or live[0].total / scale <= complete[-1].score)):
            break
        reader.select(np.array([beam.parent for beam in live]))
        reader.read(np.array([beam.ids[-1] for beam in live]))
    return complete


def _check(beams: int, length_penalty: float, limit: int) -> None:
    """Refuse a search without beams, and a penalty with which length ** length_penalty would be infinite or zero."""
    if beams < 1 or not math.isfinite(length_penalty):
        raise ConfigError(
            f"beams is {beams} and length_penalty {length_penalty}", hint="use at least 1 beam and a finite penalty"
        )
    if abs(length_penalty) * math.log(max(limit, 1)) > LARGEST_EXPONENT:
        raise ConfigError(
            f"length_penalty is {length_penalty:g}, too much for answers of up to {limit:,} tokens",
            hint="use a number of about 1; 0 is none, those below favor short answers",
        )


def _candidates(
    live: list[_Beam], logits: Array, count: int, stop_ids: frozenset[int], ends: Ends | None, *, last: bool
) -> list[_Beam]:
    """Return the best continuations by one token of all beginnings together, the best first."""
    logs = log_softmax(logits)
    totals = np.array([beam.total for beam in live])[:, None] + logs
    found = []
    for place in likeliest(totals.reshape(-1), count):
        parent, token = divmod(int(place), logs.shape[-1])
        if not np.isfinite(totals[parent, token]):
            break
        before = live[parent]
        ids = (*before.ids, token)
        chosen = (*before.logs, float(logs[parent, token]))
        stopped = token in stop_ids or (ends is not None and ends(ids))
        finish = STOP if stopped else LENGTH if last else None
        found.append(_Beam(ids, chosen, float(totals[parent, token]), parent, finish))
    return found
