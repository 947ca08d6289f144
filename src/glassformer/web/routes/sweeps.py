"""Sweeps: one run for each head that is switched off, or for each vector that is taken from another text."""

from typing import Any, Literal

import numpy as np

from ...core.errors import ConfigError
from ...interpret import Logit, Loss, ablate_heads, bytes_at_once, patch_stream
from ...interpret.names import VECTORS
from ...interpret.stream import ATTENTIONS, chosen_stack, points, stacks, sublayers
from ...interpret.sweep import Answer, answer, bytes_of
from ..explorer import RunSession
from ..jobs import Job, Work
from ..router import route
from .runs import said_of, tokens_of

MOST = 4096
"""Most variants of one sweep; each is a run of the model."""
Kind = Literal["heads", "stream"]
LOT, SMALL = 8, 1 << 25
"""Variants that are run at once, or as many as fit into these bytes; a sweep can be stopped between two lots."""


@route("sweep_cost")
def sweep_cost(session: RunSession, kind: Kind, stack: str | None = None) -> dict[str, Any]:
    """Return how many runs a sweep takes, and how much memory at once."""
    count = _count(session, kind, stack)
    size = bytes_at_once(session.run, count, _memory(session))
    return {"runs": count, "bytes": size, "stacks": list(stacks(session.run)), "most": MOST}


@route("sweep")
def sweep(session: RunSession, kind: Kind, other: str = "", stack: str | None = None) -> Work:
    """Begin a sweep.

    kind    heads: each is switched off; stream: each vector is taken from a second text
    other   the second text
    stack   of an encoder-decoder: whose stream
    """
    of = measured(session)
    count = _count(session, kind, stack)
    if count > MOST:
        raise ConfigError(f"that would be {count:,} runs", hint=f"at most {MOST:,}: shorten the text")
    if kind == "heads":
        return lambda job: _heads(job, session, of)
    chosen = chosen_stack(session.run, stack)
    return lambda job: _stream(job, session, of, other, chosen)


def measured(session: RunSession) -> Answer:
    """Return the loss or the logit to measure; an entry of vectors that a model returns counts as a logit."""
    if isinstance(session.of, Loss | Logit):
        return session.of
    asked = said_of(session)
    if asked["name"] in (VECTORS, "logits") and len(asked["index"]) == 3:
        example, position, feature = asked["index"]
        return Logit(feature, position, example)
    raise ConfigError(f"{asked['title']} is neither the loss nor a logit", hint="choose one under “Gradient of”")


def _count(session: RunSession, kind: Kind, stack: str | None) -> int:
    if kind == "heads":
        return len(sublayers(session.run, kinds=ATTENTIONS)) * session.run.heads
    return sum(session.run[point.name].shape[1] for point in points(session.run, stack))


def _memory(session: RunSession) -> int:
    return max(LOT * bytes_of(session.run), SMALL)


def _heads(job: Job, session: RunSession, of: Answer) -> dict[str, Any]:
    targets = [] if isinstance(of, Loss) else [of]
    found = ablate_heads(session.run, targets=targets, memory=_memory(session), progress=job.show)
    effect = found.logits[:, 0] if targets else found.loss
    names = list(dict.fromkeys(part.name for part in found.parts))
    return _result(session, of, np.asarray(effect).reshape(len(names), -1)) | {
        "rows": [name.removesuffix(".output.x") for name in names],
        "names": names,
        "axis": "head",
        "word": "zero",
        "columns": [str(head) for head in range(session.run.heads)],
    }


def _stream(job: Job, session: RunSession, of: Answer, other: str, stack: str) -> dict[str, Any]:
    source = session.plain_session.other(other)
    settings: dict[str, Any] = {"estimate": False, "memory": _memory(session), "progress": job.show}
    found = patch_stream(session.run, source, of, stack=stack, **settings)
    places = points(session.run, stack)
    part = "source" if stack == "encoder" and "decoder" in stacks(session.run) else "tokens"
    words = [token["label"] for token in tokens_of(session.run, part) or []]
    width = found.effect.shape[1]
    return _result(session, of, found.effect) | {
        "rows": [point.label for point in places],
        "names": [point.name for point in places],
        "axis": "position",
        "word": "take",
        "other": other,
        "columns": words if len(words) == width else [str(n) for n in range(width)],
        "there": found.source,
    }


def _result(session: RunSession, of: Answer, effect: Any) -> dict[str, Any]:
    return {"effect": effect, "before": answer(of, session.run), "of": said_of(session)["title"]}
