"""The backward pass: gradients of the residual stream and of the tokens, and a step of an optimizer."""

from dataclasses import replace
from typing import Any

from ...core.errors import ConfigError, GlassformerError
from ...interpret import gradient_flow, gradient_times_input, integrated_gradients
from ...interpret.names import LOGITS, VECTORS
from ...interpret.stream import points, stacks
from ...training.optimizers import OPTIMIZERS
from ..explorer import Explorer, RunSession
from ..jobs import Job, Work
from ..router import route
from ..state import OptimizerStep, PageState, PageTarget
from .runs import said_of, tokens_of
from .sweeps import measured
from .tiles import statistics

TOLERANCE = 1e-3
"""Largest error of integrated gradients, relative to the larger of 1 and their sum; the page shows it."""
EMBEDDINGS = {"source_embedding": "source", "embedding": "tokens"}
"""Where the stream begins, by the part of the batch that is read there."""


@route("backward")
def backward(session: RunSession) -> dict[str, Any]:
    """Return the gradient at every point of the stream, its flow at residual connections, and its effect per token."""
    flow = note = None
    try:
        flow = [one._asdict() for one in reversed(gradient_flow(session.gradients))]  # the last connection first
    except GlassformerError as error:
        note = error.fact
    found = {"of": said_of(session), "points": _points(session), "tokens": _saliency(session)}
    return {**found, "flow": flow, "no_flow": note}


def _points(session: RunSession) -> list[dict[str, Any]]:
    """Return the points of the stream, from the logits back to the embedding; the decoder's before the encoder's."""
    found, names = session.gradients, list(stacks(session.run))
    last = VECTORS if VECTORS in session.run else LOGITS
    walk = [("what the model returns", last)]
    for stack in reversed(names):
        whose = f"{stack}: " if len(names) > 1 else ""
        walk += [(f"{whose}{point.label}", point.name) for point in reversed(points(session.run, stack))]
    return [{"title": title, "name": name, **statistics(found[name])} for title, name in walk if name in found]


def _saliency(session: RunSession) -> list[dict[str, Any]]:
    """Return gradient × input at every token that is read."""
    found = []
    for name, part in EMBEDDINGS.items():
        if name in session.gradients:
            values = gradient_times_input(session.run, session.gradients, name)[0]
            read = [one["label"] for one in tokens_of(session.run, part) or []]
            tokens = [*["(the model's own)"] * (len(values) - len(read)), *read]  # a learned vector may come first
            found.append({"part": part, "name": name, "tokens": tokens, "values": values})
    return found


@route("integrated")
def integrated(session: RunSession, name: str = "embedding") -> Work:
    """Begin to integrate gradients from the mean of the token vectors to the actual ones."""
    if name not in EMBEDDINGS or name not in session.run:
        raise ConfigError(f"there are no tokens at {name[:40]!r}", hint="use embedding")
    of = measured(session)

    def work(job: Job) -> dict[str, Any]:
        job.show(0, 100)
        found = integrated_gradients(session.run, of, name=name, baseline=None, tolerance=TOLERANCE, progress=job.show)
        return {"values": found.tokens[0], "difference": found.difference, "missing": found.missing,
                "gradients": found.gradients}  # fmt: skip

    return work


# --- one step --------------------------------------------------------------------------------------------------------


@route("optimizers")
def optimizers() -> dict[str, Any]:
    """Return the optimizers, each with its rate."""
    return {"optimizers": [{"name": name, "lr": own.default_lr} for name, own in OPTIMIZERS.items()]}


@route("step")
def step(explorer: Explorer, session: RunSession, asked: OptimizerStep) -> dict[str, Any]:
    """Return what one more step would do: how far each parameter moves, and the loss before, predicted and after."""
    if session.run.batch.targets is None:
        raise ConfigError("there is no loss to lower: the batch has no targets", hint="choose the right class")
    start = session.plain_session
    found = start.step(asked)
    moves = [move._asdict() for move in found.moves]
    return {"moves": moves, "before": found.before, "promised": found.before + found.promised, "after": found.after,
            "losses": losses(explorer, start.state)}  # fmt: skip


def losses(explorer: Explorer, state: PageState) -> list[float]:
    """Return the loss before the first step and after each."""
    bare = replace(state, changes=(), of=PageTarget())
    return [explorer.session(replace(bare, steps=bare.steps[:n])).run.loss for n in range(len(bare.steps) + 1)]
