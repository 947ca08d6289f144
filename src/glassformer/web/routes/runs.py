"""The models at hand, one of them, and one of its runs with the names of all values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core.tree import flatten
from ...interpret import Logit, Loss, Run
from ...interpret.names import BATCH, RETURNED, axes_of, is_of_source
from ...interpret.reading import answers as answers_apart
from ...interpret.reading import example_text
from ...interpret.run import has_no_head
from ...interpret.stream import stacks
from ..explorer import Explorer, RunSession
from ..offers import chosen, parted, to_json
from ..router import route
from ..run_session import probabilities
from ..state import WITH_NUMBER, WITH_OTHER, WORDS
from ..views import PageView

TOP = 10


@route("models")
def models(explorer: Explorer) -> dict[str, Any]:
    """Return the models that can be opened, which one the command named, and the views of the page."""
    offers = to_json(explorer.offers)
    views = [view.to_dict() for view in PageView]
    return {"models": offers, "first": explorer.first, "prompt": explorer.prompt, "views": views}


@route("open")
def open_model(explorer: Explorer, model: str) -> dict[str, Any]:
    """Return the facts about a model that the page needs before any run."""
    opened, (base, step) = explorer.opened(model), parted(model)
    config = opened.model.config
    if model in explorer.offers or step is None:
        title = chosen(explorer.offers, model).title
    else:
        title = f"{explorer.training(base).title}, after step {step:,}"
    return {
        "title": title,
        "architecture": config.architecture,
        "facts": {name: getattr(config, name) for name in ("layers", "width", "heads", "vocab", "context")
                  if hasattr(config, name)},
        "parameters": opened.count,
        "precision": opened.dtype.name,
        "classes": opened.model.is_classifier,
        "vectors": has_no_head(opened.model.model),
        "chats": opened.model.chat_template is not None,
        "answers": answers_apart(opened.model),
        "reads": opened.model.inputs is None,
        "writes": config.architecture != "encoder",
        "example": example_text(opened.model),
        "words": {"all": WORDS, "number": WITH_NUMBER, "other": WITH_OTHER},
    }  # fmt: skip


@route("run")
def run(session: RunSession) -> dict[str, Any]:
    """Return the contents of a run: names with shapes and axes, tokens, loss, likeliest next tokens."""
    shown = session.run
    return {
        "tokens": tokens_of(shown, "tokens"),
        "source": tokens_of(shown, "source"),
        "tokens_before": tokens_of(session.plain, "tokens"),
        "source_before": tokens_of(session.plain, "source"),
        "values": [_named(shown, name, shown[name]) for name in shown],
        "parameters": [_named(shown, name, leaf) for name, leaf in flatten(shown.params).items()],
        "batch": [name for name in BATCH if getattr(shown.batch, name, None) is not None],
        "stacks": stacks(shown),
        "heads": shown.heads,
        "loss": None if shown.batch.targets is None else shown.loss,
        "loss_before": None if shown.batch.targets is None else session.plain.loss,
        "of": said_of(session),
        "next": None if has_no_head(shown.model) else likeliest(shown),
        "next_before": None if has_no_head(shown.model) else likeliest(session.plain),
        "idle": session.idle,
    }


def _named(shown: Run, name: str, value: Any) -> dict[str, Any]:
    address = shown.addresses.get(name)
    call = None if address is None else shown.calls[address.number]
    order = None if address is None or call is None else call.end if address.place == RETURNED else call.number
    return {
        "name": name,
        "shape": list(value.shape),
        "axes": axes_of(name, value.ndim),
        **sides_of(name, axes_of(name, value.ndim)),
        "number": order,
        "same": None if address is None else f"{address.number} {address.place}",  # other names of the same value
        "op": None if call is None else call.name,
    }


def sides_of(name: str, axes: Sequence[str]) -> dict[str, str | None]:
    """Return which tokens stand down and across the last two axes of a value: `tokens`, `source` or None."""
    # Cross-attention asks with the answer's tokens; keys and values are made of the source.
    own = "source" if is_of_source(name) else "tokens"
    keys = "source" if "cross_attention" in name else own
    down, across = (None, None, *axes)[-2:]
    return {"down": own if down == "position" else None, "across": keys if across == "key" else None}


def tokens_of(shown: Run, part: str) -> list[dict[str, Any]] | None:
    """Return the input tokens: ids with labels."""
    given = getattr(shown.batch, part)
    if given is None:
        return None
    labels = shown.labels
    call = labels.source if part == "source" and labels.source is not None else labels.tokens
    return [{"id": int(number), "label": call(int(number))} for number in np.asarray(given)[0]]


def likeliest(shown: Run, count: int = TOP) -> list[dict[str, Any]]:
    """Return the likeliest next tokens, or classes, at the last position."""
    p = probabilities(shown)
    order = np.argsort(-p, kind="stable")[:count]
    return [{"id": int(n), "label": shown.label(int(n)), "probability": float(p[n])} for n in order]


def said_of(session: RunSession) -> dict[str, Any]:
    """Return the number whose gradient is shown, in words and with its value."""
    of = session.of
    if isinstance(of, Loss):
        return {"kind": "loss", "title": "the loss", "value": float(of.value(session.run))}
    if isinstance(of, Logit):
        against = "" if of.against is None else f" above {session.run.label(of.against)!r}"
        title = f"the logit of {session.run.label(of.token)!r}{against}"
        return {"kind": "logit", "title": title, "value": float(of.value(session.run)), "token": of.token,
                "against": of.against, "position": of.position}  # fmt: skip
    asked = session.state.of
    name, index = (asked.name, list(asked.index)) if asked.kind == "entry" else ("vectors", [0, 0, 0])
    return {"kind": "entry", "title": f"{name}{index}", "value": float(of.value(session.run)), "name": name,
            "index": index}  # fmt: skip
