"""The gradient on its way back: through the stream, to the tokens, and into a step of an optimizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...errors import ConfigError, GlassformerError
from ...interpret import gradient_flow, gradient_times_input, integrated_gradients
from ...interpret.addresses import LOGITS, VECTORS
from ...interpret.stream import points, stacks
from ...training.optimizers import OPTIMIZERS
from ..answers import answers, only, seen_by
from ..explorer import Explorer, Seen
from ..jobs import Job
from ..room import tidied
from ..state import Asked, State, read_step
from ..tiles import statistics
from .changes import EMBEDDINGS
from .runs import said_of, tokens_of
from .sweeps import measured

TOLERANCE = 1e-3
"""What integrated gradients may miss, of the larger of 1 and their sum: they are shown as colors, with what is off."""


@answers("backward")
def backward(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
    """Return the way of a gradient: its length at every point of the stream, its flow, and what it says of tokens."""
    only(question, "state")
    seen = seen_by(explorer, question)
    flow, note = _flow(seen)
    return {"of": said_of(seen), "points": _points(seen), "flow": flow, "no_flow": note, "tokens": _saliency(seen)}


def _points(seen: Seen) -> list[dict[str, Any]]:
    """Return the points of the stream, from the logits back to the embedding; the decoder's before the encoder's."""
    found, names = seen.gradients, list(stacks(seen.run))
    last = VECTORS if VECTORS in seen.run else LOGITS
    walk = [("what the model returns", last)]
    for stack in reversed(names):
        whose = f"{stack}: " if len(names) > 1 else ""
        walk += [(f"{whose}{point.label}", point.name) for point in reversed(points(seen.run, stack))]
    return [{"title": title, "name": name, **statistics(found[name])} for title, name in walk if name in found]


def _flow(seen: Seen) -> tuple[list[dict[str, Any]] | None, str | None]:
    """Return the flow at every residual connection, the last first; or why there is none."""
    try:
        return [one._asdict() for one in reversed(gradient_flow(seen.gradients))], None
    except GlassformerError as error:
        return None, error.fact


def _saliency(seen: Seen) -> list[dict[str, Any]]:
    """Return gradient × input at every token that is read."""
    found = []
    for name, part in EMBEDDINGS.items():
        if name in seen.gradients:
            values = gradient_times_input(seen.run, seen.gradients, name)[0]
            found.append({"part": part, "name": name, "tokens": _labels(seen, part, len(values)), "values": values})
    return found


def _labels(seen: Seen, part: str, count: int) -> list[str]:
    """Return what stands at each position: tokens, perhaps behind a learned vector of the model's own."""
    read = [one["label"] for one in tokens_of(seen.opened, seen.run, part) or []]
    return [*["(the model's own)"] * (count - len(read)), *read]


@answers("integrated")
def integrated(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
    """Begin to integrate gradients on the way from the mean of the tokens to what they are."""
    only(question, "state", "name")
    seen = seen_by(explorer, question)
    name = question.get("name", "embedding")
    if name not in EMBEDDINGS or name not in seen.run:
        raise ConfigError(f"there are no tokens at {str(name)[:40]!r}", hint="use embedding")
    of = measured(seen)

    def work(job: Job) -> dict[str, Any]:
        job.show(0, 100)
        found = integrated_gradients(seen.run, of, name=name, baseline=None, tolerance=TOLERANCE, progress=job.show)
        return {"values": found.tokens[0], "difference": found.difference, "missing": found.missing,
                "gradients": found.gradients}  # fmt: skip

    return explorer.jobs.start(work).to_dict()


# --- one step --------------------------------------------------------------------------------------------------------


@answers("optimizers")
def optimizers(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
    """Return the optimizers, each with its rate."""
    only(question)
    return {"optimizers": [{"name": name, "lr": own.default_lr} for name, own in OPTIMIZERS.items()]}


@answers("step")
def step(explorer: Explorer, question: dict[str, Any]) -> dict[str, Any]:
    """Return what one more step would do: how far each parameter moves, and the loss before, promised and after."""
    only(question, "state", "optimizer", "lr")
    seen = seen_by(explorer, question)
    if seen.run.batch.targets is None:
        raise ConfigError(
            "there is no loss to lower: the batch has no targets", hint="say which class it should have been"
        )
    asked = read_step({"optimizer": question.get("optimizer"), "lr": question.get("lr")})
    start = seen.plain_seen
    with tidied(start.run):
        found = start.step(asked)
    moves = [move._asdict() for move in found.moves]
    return {"moves": moves, "before": found.before, "promised": found.before + found.promised, "after": found.after,
            "losses": losses(explorer, start.state)}  # fmt: skip


def losses(explorer: Explorer, state: State) -> list[float]:
    """Return the loss before the first step and after each."""
    bare = replace(state, changes=(), of=Asked())
    return [explorer.seen(replace(bare, steps=bare.steps[:n])).run.loss for n in range(len(bare.steps) + 1)]
