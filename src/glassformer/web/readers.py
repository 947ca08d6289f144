"""Caches for writing: the next token does not need the whole text again.

A page asks for one token after the other, and returns to any of them. So the last few readers stay where they are, with
the logits after the last few sequences: one more token costs one token, and going back costs nothing.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import numpy as np

from .. import dispatch
from ..arrays import Array, Tree
from ..generation.reader import CHUNK, Reader, checked
from ..models import Model

READERS = 3
LOGITS = 64
"""Most readers, and most sequences whose logits are remembered, for each model."""

Ids = tuple[int, ...]
Key = tuple[Ids, Ids | None]


class ReaderCache:
    """Gives the logits after any sequence, from the nearest reader."""

    def __init__(self) -> None:
        self._logits: OrderedDict[Key, Array] = OrderedDict()
        self._readers: OrderedDict[Key, Reader] = OrderedDict()
        self._lock = threading.Lock()

    def logits(self, model: Model, params: Tree, ids: Ids, source: Ids | None) -> Array:
        """Return the logits (V,) about the token that follows ids, and with an encoder-decoder a source."""
        key = ids, source
        with self._lock:
            if key in self._logits:
                self._logits.move_to_end(key)
                return self._logits[key]
            # One thread at a time reads on with a reader.
            before = self._readers.pop((ids[:-1], source), None)
        rows, sources = checked(model, [ids], None if source is None else [source])
        reader: Any = before
        if reader is None:
            reader = dispatch.current().reader(model, params, rows, sources, chunk=CHUNK, room=1)
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
