"""Beam search: keep the best few beginnings at every step, and return the best complete sequences with their scores."""

import math
from typing import Any, NamedTuple

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import ConfigError
from ..models import Model
from .reader import start_reader
from .request import Ids, Request
from .sampling import likeliest, log_softmax, only_known
from .writer import LENGTH, STOP

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
