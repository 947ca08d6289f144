"""Writing for a page: a model with the changes of the page, and caches.

A page asks for one token after the other, and returns to any of them. So the last few readers stay where they are, with
the logits after the last few sequences: one more token costs one token, and going back costs nothing.

A change without a position is made at every token. One with a position is made there. One that takes its values from
another run is made at the positions of the text, since a new token has no counterpart there.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.arrays import Array, Tree
from ..core.errors import GlassformerError
from ..generation.reader import Reader, start_reader
from ..generation.request import Request
from ..interpret.changed_model import changed_model
from ..interpret.changes import Change
from ..interpret.names import BATCH, Where, axes_of, is_of_source
from ..interpret.run import Run
from ..models import Model
from .run_session import RunSession
from .state import POSITIONS

READERS = 3
LOGITS = 64
"""Most readers, and most sequences whose logits are remembered, for each model."""

Ids = tuple[int, ...]
Key = tuple[Ids, Ids | None]
BY_TEXT = ("take", "freeze", "steer")
"""Changes whose values are those of another run, position by position."""


class PageWriter:
    """A model that writes with the changes of a page; it gives the logits after any sequence, from the nearest reader.

    inputs   the changes of what it reads first
    limits   of a change, by its number: why it is not made, or where alone
    """

    def __init__(
        self, model: Model, params: Tree, inputs: Sequence[Change] = (), limits: Sequence[dict[str, Any]] = ()
    ) -> None:
        self.model, self.params, self.inputs, self.limits = model, params, inputs, limits
        self._logits: OrderedDict[Key, Array] = OrderedDict()
        self._readers: OrderedDict[Key, Reader] = OrderedDict()
        self._lock = threading.Lock()

    def logits(self, ids: Ids, source: Ids | None) -> Array:
        """Return the logits (V,) about the token that follows ids, and with an encoder-decoder a source."""
        key = ids, source
        with self._lock:
            if key in self._logits:
                self._logits.move_to_end(key)
                return self._logits[key]
            # One thread at a time reads on with a reader.
            reader: Any = self._readers.pop((ids[:-1], source), None)
        sources = None if source is None else [source]
        request = Request(prompts=[ids], sources=sources, max_new_tokens=1).checked(self.model.config)
        if reader is None:
            reader = start_reader(self.model, self.params, request)
        else:
            reader.read(np.array([ids[-1]]))
        logits = np.array(reader.logits[0])
        with self._lock:
            self._readers[key], self._logits[key] = reader, logits
            while len(self._readers) > READERS:
                self._readers.popitem(last=False)
            while len(self._logits) > LOGITS:
                self._logits.popitem(last=False)
        return logits

    def read(self, name: str, ids: Ids) -> Ids:
        """Return the ids of the `tokens` or of the `source` with their changes."""
        read = np.array([ids])
        for change in self.inputs:
            read = change.apply(read, 1) if change.name == name else read
        return tuple(int(i) for i in read[0])


def writer_of(session: RunSession, size: int, *, chats: bool) -> PageWriter:
    """Return what writes with the changes of a session, behind a text or a conversation of `size` tokens."""
    run, limits = session.run, []
    inputs: list[Change] = []
    values: list[Change] = []
    for number, (change, asked) in enumerate(zip(session.made, session.state.changes, strict=True)):
        if change.name == POSITIONS or (session.is_parameter(change.name) and not change.backward):
            continue  # the model and the parameters of the run have it
        made, limit = _reaching(session, change, asked.word, size, chats=chats)
        (inputs if change.name in BATCH else values).extend(made)
        if limit:
            limits.append({"change": number, "why": limit})
    model, params = changed_model(run.model, run.params, values, 0) if values else (run.model, run.params)
    return PageWriter(model, params, inputs, limits)


def _reaching(session: RunSession, change: Change, word: str, size: int, *, chats: bool) -> tuple[list[Change], str]:
    """Return a change as it is made while the model writes, and what it cannot do there."""
    name = change.name
    if change.backward:
        return [], "not made: it changes a gradient, and writing computes none"
    if name in BATCH and name not in ("tokens", "source"):
        return [], f"not made: {'only the loss reads it' if name == 'targets' else 'what is written has no padding'}"
    own = replace(change, where=_from_first(session.run, change))
    at: Any = own.where.position
    if chats and (name in BATCH or at is not None or word in BY_TEXT):
        return [], "not made: it is about positions of the text, and the conversation has others"
    if name == "tokens" and (at or 0) >= size:
        return [], "not made: the model writes the token at that position itself"
    return ([own], "") if name in BATCH else _while_writing(session, own, word)


def _from_first(run: Run, change: Change) -> Where:
    """Return where a change is made, with positions counted from the first."""
    name, where = change.name, replace(change.where, example=None)
    shape = np.shape(getattr(run.batch, name)) if name in BATCH else run[name].shape
    sizes = dict(zip(axes_of(name, len(shape)), shape, strict=True))
    asked = {axis: getattr(where, axis) for axis in ("position", "key")}
    return replace(where, **{axis: at % sizes[axis] for axis, at in asked.items() if at is not None})


def _while_writing(session: RunSession, change: Change, word: str) -> tuple[list[Change], str]:
    """Return a change of a value in the same way; see `interpret.steering`."""
    run, name, made, limit = session.run, change.name, [change], ""
    axes = axes_of(name, len(run[name].shape))
    by_text = word in BY_TEXT or (word == "mean" and "key" in axes)
    if by_text and "key" in axes and change.where.key is None:
        return [], "not made: it takes a map of attention, which has an entry for each pair of tokens of the text"
    if by_text:
        made = _by_position(session, change, axes.index("position"))
        if change.where.position is None and not is_of_source(name):
            limit = f"made at the {len(made)} positions of the text only: a new token has no counterpart"
    try:
        changed_model(run.model, run.params, made, 0)
    except GlassformerError as error:
        return [], f"not made: {error.fact}"
    return made, limit


def _by_position(session: RunSession, change: Change, axis: int) -> list[Change]:
    """Return a change for each position, with the values of that position."""
    run, name, where = session.run, change.name, change.where
    shape = run[name].shape
    index = where.index(name, shape, run.heads)
    value: Array = session.plain[name] if change.word == "freeze" else np.asarray(change.value)
    entries = np.broadcast_to(value, shape)[index] if change.whole else value
    word = "add" if change.word == "add" else "put"
    return [
        replace(change, value=np.take(entries, [n], axis), where=replace(where, position=int(place)), whole=False,
                word=word)
        for n, place in enumerate(index[axis].reshape(-1))
    ]  # fmt: skip
